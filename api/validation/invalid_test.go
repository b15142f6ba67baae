// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package validation_test

import (
	"bytes"
	"encoding/json"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/api/validation"
	"github.com/vtex/cleaner/celenv"
	"github.com/vtex/cleaner/config/templates"
)

// Every manifest of testdata/invalid.yaml is refused with exactly what is written there: the field, what is wrong, and
// what to write instead. test/webhook sends the same ones to an API server.
func TestInvalid(t *testing.T) {
	text, err := os.ReadFile("testdata/invalid.yaml")
	if err != nil {
		t.Fatal(err)
	}
	text = bytes.ReplaceAll(text, []byte("LARGE"), bytes.Repeat([]byte("x"), 256<<10))
	var cases []struct {
		Name, Reason, Kind string
		Spec               json.RawMessage
		Want               []string
	}
	if err := yaml.Unmarshal(text, &cases); err != nil {
		t.Fatal(err)
	}
	if len(cases) < 100 {
		t.Fatalf("there are only %d", len(cases))
	}
	compiler, err := celenv.NewCompiler(celenv.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range cases {
		t.Run(tc.Name, func(t *testing.T) {
			var got []string
			for _, f := range judge(t, compiler, tc.Kind, tc.Spec).Errors() {
				got = append(got, f.String())
			}
			if diff := cmp.Diff(tc.Want, got); diff != "" || len(got) == 0 {
				t.Errorf("%s\n-want, +got:\n%s", tc.Reason, diff)
			}
		})
	}
}

// judge says what is wrong with a spec of a kind, which is Cleaner if it is not given.
func judge(t *testing.T, compiler *celenv.Compiler, kind string, spec json.RawMessage) validation.Findings {
	t.Helper()
	read := func(into any) {
		if err := json.Unmarshal(spec, into); err != nil {
			t.Fatal(err)
		}
	}
	var work *v1alpha1.Work
	switch kind {
	case "CleanerTemplate":
		template := &v1alpha1.CleanerTemplate{}
		read(&template.Spec)
		parameters, o := templates.Validate(template), validation.Options{}
		if len(parameters) == 0 {
			if work, o.Compiled = templates.StandIn(template); work != nil {
				_, o.Compiled = compiler.Compile(t.Context(), work)
			}
		}
		return validation.ValidateTemplate(template, parameters, o)
	case "ClusterCleaner":
		c := &v1alpha1.ClusterCleaner{}
		read(&c.Spec)
		work = c.Work()
	default:
		c := &v1alpha1.Cleaner{}
		read(&c.Spec)
		work = c.Work()
	}
	_, errs := compiler.Compile(t.Context(), work)
	return validation.Validate(work, validation.Options{Compiled: errs})
}
