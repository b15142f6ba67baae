// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"
)

// denied begins what the API server says when the webhook refuses.
const denied = `admission webhook "cleaners.cleaner.vtex.dev" denied the request: `

// Every manifest that api/validation refuses is refused when it is written, in the same words, unless the schema was
// faster; by whichever version it comes.
func TestInvalidManifests(t *testing.T) {
	text, err := os.ReadFile("../../api/validation/testdata/invalid.yaml")
	if err != nil {
		t.Fatal(err)
	}
	text = bytes.ReplaceAll(text, []byte("LARGE"), bytes.Repeat([]byte("x"), 256<<10))
	var cases []struct {
		Name, Reason string
		Spec         json.RawMessage
		Want         []string
		Schema       bool
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
			c := cleaner(t, ns, strings.ToLower(tc.Name), string(tc.Spec))
			if i%2 == 1 {
				c.SetAPIVersion("cleaner.vtex.dev/v1alpha")
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
			if diff := cmp.Diff(denied+strings.Join(tc.Want, "\n"), err.Error()); diff != "" {
				t.Errorf("%s\n-want, +got:\n%s", tc.Reason, diff)
			}
			var causes []string
			for _, cause := range status.Status().Details.Causes {
				if cause.Type == metav1.CauseTypeFieldValueInvalid {
					causes = append(causes, cause.Field+": "+cause.Message)
				}
			}
			if diff := cmp.Diff(tc.Want, causes); diff != "" {
				t.Errorf("causes\n-want, +got:\n%s", diff)
			}
		})
	}
	if ours < 30 {
		t.Errorf("the webhook itself refuses only %d", ours)
	}
}
