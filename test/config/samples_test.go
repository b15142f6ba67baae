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
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"sigs.k8s.io/yaml"

	"github.com/vtex/cleaner/api/v1alpha"
	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/api/validation"
	"github.com/vtex/cleaner/celenv"
	"github.com/vtex/cleaner/config/templates"
	"github.com/vtex/cleaner/test/celtest"
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
	needTemplates(t)
	for _, path := range samples(t) {
		t.Run(filepath.Base(path), func(t *testing.T) {
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			apply(t, path, text)
		})
	}
}

// needTemplates applies the templates that are shipped, which samples and examples name.
func needTemplates(t *testing.T) {
	t.Helper()
	c, _ := needCluster(t)
	if _, err := c.Kubectl(t.Context(), "apply", "--server-side", "--validate=strict", "-k", "../../config/templates"); err != nil {
		t.Fatal(err)
	}
}

// apply applies a manifest, in the namespace that it names, with further arguments of kubectl.
func apply(t *testing.T, path string, text []byte, args ...string) {
	t.Helper()
	c, client := needCluster(t)
	var manifest metav1.PartialObjectMetadata
	if err := yaml.Unmarshal(text, &manifest); err != nil {
		t.Fatal(err)
	}
	if manifest.Namespace != "" {
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: manifest.Namespace}}
		if _, err := client.CoreV1().Namespaces().Create(t.Context(), ns, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
			t.Fatal(err)
		}
	}
	if _, err := c.Kubectl(t.Context(), append([]string{"apply", "--server-side", "--validate=strict", "-f", path}, args...)...); err != nil {
		t.Error(err)
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
			c := ownerOf(t, text)
			var template *v1alpha1.CleanerTemplate
			if ref := c.Work().TemplateRef; ref != nil {
				if template, err = templates.Load(ref.Name); err != nil {
					t.Fatal(err)
				}
			}
			work, errs := templates.Expand(c, template)
			if len(errs) > 0 {
				t.Fatal(errs.ToAggregate())
			}
			programs, errs := compiler.Compile(t.Context(), work)
			findings := validation.Validate(work, validation.Options{Compiled: errs})
			for _, finding := range findings.Errors() {
				t.Error(finding)
			}
			if len(errs) > 0 {
				return
			}
			var warnings []string
			for _, w := range findings.Warnings() {
				warnings = append(warnings, w.Path)
			}
			for _, w := range programs.Warnings() {
				warnings = append(warnings, "spec."+w.Path)
			}
			want := map[string][]string{
				// The original is shipped because it is the original, not because it is careful.
				"cleaner_v1alpha_preview.yaml": {"spec.conditions[0]"},
				// What it is for: Pods by force, and those of kube-system too.
				"cleaner_v1alpha1_podgc-orphaned.yaml": {"spec.rules[0].actions[1].delete.gracePeriodSeconds", "spec.includeProtected"},
				// Pods of kube-system leak addresses too.
				"cleaner_v1alpha1_spiderpool-ip.yaml": {"spec.includeProtected"},
			}
			if diff := cmp.Diff(want[filepath.Base(path)], warnings); diff != "" {
				t.Errorf("warnings: -want, +got:\n%s", diff)
			}
		})
	}
}

// ownerOf reads the Cleaner or the ClusterCleaner of a sample. It is strict.
func ownerOf(t *testing.T, text []byte) v1alpha1.Owner {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	scheme.AddKnownTypes(v1alpha.GroupVersion, &v1alpha.Cleaner{})
	object, _, err := serializer.NewCodecFactory(scheme, serializer.EnableStrict).UniversalDeserializer().Decode(text, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	c, ok := object.(v1alpha1.Owner)
	if !ok {
		t.Fatalf("%T is no Cleaner", object)
	}
	return c
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
	programs := celtest.CompileWork(t, c.Work())
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
			results := programs.EvaluateConditions(t.Context(), celenv.Input{
				Targets: map[string]any{"revisions": map[string]any{"items": revisions}},
				Time:    time.Date(2026, 2, 1, 0, 0, 0, 0, time.UTC),
			})
			if results[0].Err != nil || results[0].Value != tc.want {
				t.Errorf("%s: got %v, %v; want %v", tc.reason, results[0].Value, results[0].Err, tc.want)
			}
		})
	}
}
