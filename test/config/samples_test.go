// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package config

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/vtex/cleaner/api/v1alpha"
	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/api/validation"
	"github.com/vtex/cleaner/celenv"
)

// samples are the paths of all samples.
func samples(t *testing.T) []string {
	t.Helper()
	paths, err := filepath.Glob("../../config/samples/cleaner_*.yaml")
	if err != nil || len(paths) < 5 {
		t.Fatalf("the samples are not where they should be: %v, %v", paths, err)
	}
	return paths
}

func TestSamplesApply(t *testing.T) {
	c, client := needCluster(t)
	for _, path := range samples(t) {
		t.Run(filepath.Base(path), func(t *testing.T) {
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			var sample metav1.PartialObjectMetadata
			if err := yaml.Unmarshal(text, &sample); err != nil {
				t.Fatal(err)
			}
			if sample.Namespace != "" {
				ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: sample.Namespace}}
				if _, err := client.CoreV1().Namespaces().Create(t.Context(), ns, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
					t.Fatal(err)
				}
			}
			if _, err := c.Kubectl(t.Context(), "apply", "--server-side", "--validate=strict", "-f", path); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestSamplesAreValid(t *testing.T) {
	compiler, err := celenv.NewCompiler(celenv.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range samples(t) {
		t.Run(filepath.Base(path), func(t *testing.T) {
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			c := &v1alpha1.Cleaner{}
			if err := yaml.UnmarshalStrict(text, c); err != nil {
				t.Fatal(err)
			}
			programs, errs := compiler.Compile(c.Work())
			for _, finding := range validation.Validate(c.Work(), validation.Options{Compiled: errs}) {
				t.Error(finding)
			}
			if len(errs) > 0 {
				return
			}
			// The original is shipped because it is the original, not because it is careful.
			if warns := len(programs.Warnings()) > 0; warns != (c.APIVersion == v1alpha.GroupVersion.String()) {
				t.Errorf("warnings: %v", programs.Warnings())
			}
		})
	}
}

func TestSamplesAreListed(t *testing.T) {
	text, err := os.ReadFile("../../config/samples/kustomization.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var list struct{ Resources []string }
	if err := yaml.Unmarshal(text, &list); err != nil {
		t.Fatal(err)
	}
	var want []string
	for _, path := range samples(t) {
		want = append(want, filepath.Base(path))
	}
	slices.Sort(list.Resources)
	if diff := cmp.Diff(want, list.Resources); diff != "" {
		t.Errorf("-want, +got:\n%s", diff)
	}
}

// The guarded form of the proposal's condition has an answer for every Revision.
func TestGuardedPreview(t *testing.T) {
	text, err := os.ReadFile("../../config/samples/cleaner_v1alpha1_preview.yaml")
	if err != nil {
		t.Fatal(err)
	}
	c := &v1alpha1.Cleaner{}
	if err := yaml.UnmarshalStrict(text, c); err != nil {
		t.Fatal(err)
	}
	compiler, err := celenv.NewCompiler(celenv.Options{})
	if err != nil {
		t.Fatal(err)
	}
	programs, errs := compiler.Compile(c.Work())
	if len(errs) > 0 {
		t.Fatal(errs.ToAggregate())
	}
	const idle = `status: {conditions: [{type: Active, status: "False", lastTransitionTime: "2026-01-01T00:00:00Z"}]}`
	cases := map[string]struct {
		reason    string
		revisions string
		want      bool
	}{
		"None":       {"What is not there is of no use.", `[]`, true},
		"Unrouted":   {"Knative takes the annotation off Revisions without a route.", `[{metadata: {annotations: {a: b}}, ` + idle + `}]`, true},
		"Bare":       {"It may have been the only one.", `[{metadata: {name: a}, ` + idle + `}]`, true},
		"Previews":   {"These routes are previews.", `[{metadata: {annotations: {serving.knative.dev/routes: "sfj-a,preview-b"}}, ` + idle + `}]`, true},
		"Production": {"One route is none.", `[{metadata: {annotations: {serving.knative.dev/routes: "sfj-a,www"}}, ` + idle + `}]`, false},
		"Active":     {"It serves.", `[{metadata: {}, status: {conditions: [{type: Active, status: "True", lastTransitionTime: "2026-01-01T00:00:00Z"}]}}]`, false},
		"JustIdle":   {"It served a moment ago.", `[{metadata: {}, status: {conditions: [{type: Active, status: "False", lastTransitionTime: "2026-01-31T00:00:00Z"}]}}]`, false},
		"NoStatus":   {"Nobody knows yet.", `[{metadata: {}}]`, false},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			var revisions []any
			if err := yaml.Unmarshal([]byte(tc.revisions), &revisions); err != nil {
				t.Fatal(err)
			}
			results := programs.Conditions(t.Context(), celenv.Input{
				Targets: map[string]any{"revisions": map[string]any{"items": revisions}},
				Time:    time.Date(2026, 2, 1, 0, 0, 0, 0, time.UTC),
			})
			if results[0].Err != nil || results[0].Value != tc.want {
				t.Errorf("%s: got %v, %v; want %v", tc.reason, results[0].Value, results[0].Err, tc.want)
			}
		})
	}
}
