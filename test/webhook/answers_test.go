// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"
)

// What is probably not meant is said, and admitted.
func TestWarnings(t *testing.T) {
	ns := shared.namespace(t)
	admin, warned := shared.as(t, "admin", "system:masters")
	err := admin.Create(t.Context(), cleaner(t, ns, "c", `
targets:
- {name: pods, reference: {version: v1, kind: Pod, matchLabels: {}}}
- {name: runs, reference: {apiGroup: tekton.dev, version: v1, kind: PipelineRun, name: a}, onMissing: AsNull}
- {name: jobs, reference: {apiGroup: apps, version: v1, kind: Job}, includeWhenEvaluating: false, onMissing: Wait}
conditions:
- |-
  pods.items.all(p,
    p.metadata.labels["app"] == "web")
`), client.DryRunAll)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"spec: nothing is deleted except the Cleaner itself, and no event is sent: set delete: true on a target or on helm, or add a cloudEventSink",
		`spec.targets[1].reference.kind: the API server does not serve kind "PipelineRun" of tekton.dev/v1, and runs is null until it does: check apiGroup, version and kind with kubectl api-resources`,
		`spec.targets[2].reference.kind: the API server does not serve kind "Job" of apps/v1, and the Cleaner waits until it does: check apiGroup, version and kind with kubectl api-resources`,
		"spec.targets[2].onMissing: has no effect with includeWhenEvaluating: false, because expressions cannot read the target: remove one of the two",
		`spec.conditions[0] at 2:20: objects without "app" in p.metadata.labels make this an error, and an error never deletes; write p.metadata.?labels[?"app"].orValue("")`,
	}
	if diff := cmp.Diff(want, warned.warnings); diff != "" {
		t.Errorf("-want, +got:\n%s", diff)
	}
}

// The API server knows more cluster-scoped kinds than we do.
func TestScopeIsAskedFor(t *testing.T) {
	ns := shared.namespace(t)
	shared.apply(t, `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: planets.example.com}
spec:
  group: example.com
  names: {kind: Planet, plural: planets, singular: planet}
  scope: Cluster
  versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}]
`)
	want := denied + "spec.targets[0].delete: must be false: planets.example.com are cluster-scoped, and a Cleaner deletes only in its own namespace"
	eventually(t, "planets are out of reach", func(ctx context.Context) string {
		err := shared.Create(ctx, cleaner(t, ns, "c", `
ttl: 1d
targets: [{name: earth, reference: {apiGroup: example.com, version: v1, kind: planet, name: earth}, delete: true}]
`), client.DryRunAll)
		if err == nil { // not served yet
			return "it was admitted"
		}
		if err.Error() != want {
			t.Fatalf("got %v", err)
		}
		return ""
	})
}

// That nobody knows whether a kind is served is no answer.
func TestDiscoveryThatFails(t *testing.T) {
	ns := shared.namespace(t)
	shared.apply(t, `
apiVersion: apiregistration.k8s.io/v1
kind: APIService
metadata: {name: v1.broken.example.com}
spec:
  group: broken.example.com
  version: v1
  service: {namespace: default, name: nobody}
  groupPriorityMinimum: 1000
  versionPriority: 10
`)
	defer func() {
		if _, err := shared.Kubectl(context.WithoutCancel(t.Context()), "delete", "apiservice", "v1.broken.example.com"); err != nil {
			t.Error(err)
		}
	}()
	eventually(t, "the answer is that there is none", func(ctx context.Context) string {
		err := shared.Create(ctx, cleaner(t, ns, "c", `
ttl: 1d
targets: [{name: a, reference: {apiGroup: broken.example.com, version: v1, kind: A, name: a}, delete: true}]
`), client.DryRunAll)
		if err == nil { // the API server has not heard of the APIService yet
			return "it was admitted"
		}
		if !apierrors.IsServiceUnavailable(err) || !strings.HasPrefix(err.Error(), denied+`cannot determine whether kind "A" of broken.example.com/v1 is served: `) {
			t.Fatalf("got %v", err)
		}
		return ""
	})
}

// What nothing is wrong with is stored, by either version.
func TestGoodOnesPass(t *testing.T) {
	ns := shared.namespace(t)
	admin, warned := shared.as(t, "admin", "system:masters")
	for _, version := range []string{"v1alpha", "v1alpha1"} {
		c := cleaner(t, ns, version, podsToDelete)
		c.SetAPIVersion("cleaner.vtex.dev/" + version)
		if err := admin.Create(t.Context(), c); err != nil {
			t.Errorf("%s: %v", version, err)
		}
	}
	if len(warned.warnings) > 0 {
		t.Errorf("warnings: %v", warned.warnings)
	}
}

// kubectl shows a refusal as it shows those of a schema, with the line and the caret.
func TestKubectlShowsThePlace(t *testing.T) {
	ns := shared.namespace(t)
	text, err := yaml.Marshal(cleaner(t, ns, "preview-42", `
targets: [{name: pods, reference: {version: v1, kind: Pod, matchLabels: {preview: "42"}}, delete: true}]
conditions: ['!pod.items.exists(p, p.status.phase == "Running")']
`).Object)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "cleaner.yaml")
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	_, err = shared.Kubectl(t.Context(), "apply", "-f", path)
	want := `The Cleaner "preview-42" is invalid: spec.conditions[0]: 1:2: there is no target or variable "pod"; did you mean "pods"?
  | !pod.items.exists(p, p.status.phase == "Running")
  |  ^`
	if err == nil || !strings.HasSuffix(err.Error(), want) {
		t.Errorf("got %v\nwant %s", err, want)
	}
}
