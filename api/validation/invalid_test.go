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
		Name, Reason string
		Spec         json.RawMessage
		Want         []string
	}
	if err := yaml.Unmarshal(text, &cases); err != nil {
		t.Fatal(err)
	}
	if len(cases) < 40 {
		t.Fatalf("there are only %d", len(cases))
	}
	compiler, err := celenv.NewCompiler(celenv.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range cases {
		t.Run(tc.Name, func(t *testing.T) {
			c := &v1alpha1.Cleaner{}
			if err := json.Unmarshal(tc.Spec, &c.Spec); err != nil {
				t.Fatal(err)
			}
			_, errs := compiler.Compile(c.Work())
			var got []string
			for _, f := range validation.Validate(c.Work(), validation.Options{Compiled: errs}).Errors() {
				got = append(got, f.String())
			}
			if diff := cmp.Diff(tc.Want, got); diff != "" || len(got) == 0 {
				t.Errorf("%s\n-want, +got:\n%s", tc.Reason, diff)
			}
		})
	}
}
