// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package crd

import (
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
)

// Every list and every text of a status has a bound, in each version: who may write a status may fill it.
func TestStatusIsBounded(t *testing.T) {
	all, err := Definitions()
	if err != nil {
		t.Fatal(err)
	}
	seen := 0
	for _, crd := range all {
		for _, version := range crd.Spec.Versions {
			if status, ok := version.Schema.OpenAPIV3Schema.Properties["status"]; ok {
				seen++
				holdBounds(t, crd.Spec.Names.Kind+" "+version.Name+" status", &status)
			}
		}
	}
	if seen == 0 {
		t.Error("no kind has a status")
	}
}

func holdBounds(t *testing.T, at string, s *apiextensionsv1.JSONSchemaProps) {
	t.Helper()
	switch {
	case s.Type == "string" && s.MaxLength == nil && len(s.Enum) == 0 && s.Format == "" && s.Pattern == "":
		t.Errorf("%s is a text without maxLength", at)
	case s.Type == "array" && s.MaxItems == nil:
		t.Errorf("%s is a list without maxItems", at)
	}
	for name := range s.Properties {
		below := s.Properties[name]
		holdBounds(t, at+"."+name, &below)
	}
	if s.Items != nil {
		holdBounds(t, at+"[]", s.Items.Schema)
	}
}
