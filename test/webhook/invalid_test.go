// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"os"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"
)

// denied begins what the API server says when the webhook refuses a Cleaner.
var denied = deniedBy("Cleaner")

// deniedBy begins what the API server says when the webhook for a kind refuses.
func deniedBy(kind string) string {
	return `admission webhook "` + strings.ToLower(kind) + `s.cleaner.vtex.dev" denied the request: `
}

// Every manifest that api/validation refuses is refused when it is written, in the same words, unless the schema was
// faster; by whichever version it comes.
func TestInvalidManifests(t *testing.T) {
	text, err := os.ReadFile("../../api/validation/testdata/invalid.yaml")
	if err != nil {
		t.Fatal(err)
	}
	text = bytes.ReplaceAll(text, []byte("LARGE"), bytes.Repeat([]byte("x"), 256<<10))
	var cases []struct {
		Name, Reason, Kind string
		Spec               json.RawMessage
		Want               []string
		Schema             bool
	}
	if err := yaml.Unmarshal(text, &cases); err != nil {
		t.Fatal(err)
	}
	ns := shared.namespace(t)
	ours := 0
	for i, tc := range cases {
		if !tc.Schema {
			ours++
		}
		t.Run(tc.Name, func(t *testing.T) {
			kind := cmp.Or(tc.Kind, "Cleaner")
			c := object(t, kind, strings.ToLower(tc.Name), string(tc.Spec))
			if kind == "Cleaner" {
				c.SetNamespace(ns)
				if i%2 == 1 {
					c.SetAPIVersion("cleaner.vtex.dev/v1alpha")
				}
			}
			err := shared.Create(t.Context(), c, client.DryRunAll)
			if !apierrors.IsInvalid(err) {
				t.Fatalf("%s: got %v", tc.Reason, err)
			}
			var status apierrors.APIStatus
			if !errors.As(err, &status) {
				t.Fatalf("no status: %v", err)
			}
			if tc.Schema {
				if strings.Contains(err.Error(), "admission webhook") {
					t.Errorf("the schema lets it through: %v", err)
				}
				return
			}
			if diff := gocmp.Diff(deniedBy(kind)+strings.Join(tc.Want, "\n"), err.Error()); diff != "" {
				t.Errorf("%s\n-want, +got:\n%s", tc.Reason, diff)
			}
			var causes []string
			for _, cause := range status.Status().Details.Causes {
				if cause.Type == metav1.CauseTypeFieldValueInvalid {
					causes = append(causes, cause.Field+": "+cause.Message)
				}
			}
			if diff := gocmp.Diff(tc.Want, causes); diff != "" {
				t.Errorf("causes\n-want, +got:\n%s", diff)
			}
		})
	}
	if ours < 90 {
		t.Errorf("the webhook itself refuses only %d", ours)
	}
}
