// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/yaml"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/cmd/kubectl-cleaner/internal/manifests"
	"github.com/vtex/cleaner/controllers/snapshot"
	controlplane "github.com/vtex/cleaner/test/cluster"
	"github.com/vtex/cleaner/test/helmtest"
)

const liveObjects = `
apiVersion: cleaner.vtex.dev/v1alpha1
kind: Cleaner
metadata: {name: preview, namespace: default}
spec: {ttl: 1h, targets: [{name: maps, reference: {version: v1, kind: ConfigMap, name: a}, delete: true}]}
---
apiVersion: cleaner.vtex.dev/v1alpha1
kind: ClusterCleaner
metadata: {name: everywhere}
spec: {ttl: 1h, targets: [{name: maps, reference: {version: v1, kind: ConfigMap, matchLabels: {app: web}}, delete: true}]}
---
apiVersion: v1
kind: Namespace
metadata: {name: team, labels: {tier: preview}}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: a, namespace: default, labels: {app: web}}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: b, namespace: team, labels: {app: web}}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: c, namespace: team, labels: {app: other}}
`

const liveCleaner = `
apiVersion: cleaner.vtex.dev/v1alpha1
kind: ClusterCleaner
metadata: {name: chosen}
spec:
  lifecycle: Recurring
  targets:
  - name: maps
    reference: {version: v1, kind: configmaps, matchLabels: {app: web}, namespaceSelector: {matchLabels: {tier: preview}}}
  - name: nothing
    onMissing: AsNull
    reference: {apiGroup: example.com, version: v1, kind: Nothing}
  rules:
  - {name: all, forEach: maps.items, when: "nothing == null", confirm: [{target: maps, name: item.metadata.name}], actions: [{delete: {}}]}
`

// session runs commands against a control plane.
type session struct {
	t          *testing.T
	kubeconfig string
	now        time.Time
}

func (s *session) run(want int, args ...string) string {
	s.t.Helper()
	var out, errs strings.Builder
	code := run(s.t.Context(), clocktesting.NewFakeClock(s.now), append(args, "--kubeconfig", s.kubeconfig), strings.NewReader(liveCleaner), &out, &errs)
	if code != want {
		s.t.Fatalf("%v ends with %d, not with %d:\n%s%s", args, code, want, out.String(), errs.String())
	}
	return out.String() + errs.String()
}

func (s *session) wants(got string, parts ...string) {
	s.t.Helper()
	for _, part := range parts {
		if !strings.Contains(got, part) {
			s.t.Errorf("%q is missing in:\n%s", part, got)
		}
	}
}

// TestLive runs all commands that ask a cluster against a real API server.
func TestLive(t *testing.T) {
	if testing.Short() {
		t.Skip("needs a control plane: not with -short")
	}
	ctx := t.Context()
	plane, err := controlplane.Start(context.WithoutCancel(ctx), controlplane.Options{Log: os.Stderr})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := plane.Stop(); err != nil {
			t.Error(err)
		}
	})
	if err := controlplane.InstallCRDs(ctx, plane.Config(), "../../config/crd/bases"); err != nil {
		t.Fatal(err)
	}
	client, err := dynamic.NewForConfig(plane.Config())
	if err != nil {
		t.Fatal(err)
	}
	s := &session{t: t, kubeconfig: filepath.Join(t.TempDir(), "kubeconfig"), now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}
	if err := controlplane.WriteKubeconfig(s.kubeconfig, plane.Config()); err != nil {
		t.Fatal(err)
	}
	for text := range strings.SplitSeq(liveObjects, "\n---\n") {
		u := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(text), &u.Object); err != nil {
			t.Fatal(err)
		}
		resource := schema.GroupVersionResource{
			Group: u.GroupVersionKind().Group, Version: u.GroupVersionKind().Version, Resource: strings.ToLower(u.GetKind()) + "s",
		}
		if _, err := client.Resource(resource).Namespace(u.GetNamespace()).Create(ctx, u, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	cleaners := client.Resource(v1alpha1.GroupVersion.WithResource("cleaners")).Namespace("default")
	read := func() *unstructured.Unstructured {
		u, err := cleaners.Get(ctx, "preview", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return u
	}

	t.Run("Plan", func(t *testing.T) {
		s := &session{t: t, kubeconfig: s.kubeconfig, now: s.now}
		got := s.run(0, "plan", "-f", "-")
		s.wants(got, "ClusterCleaner chosen at 2026-01-01T00:00:00Z: Act", "delete   ConfigMap team/b")
		if strings.Contains(got, "default/a") || strings.Contains(got, "team/c") {
			t.Errorf("what is not chosen is in the plan:\n%s", got)
		}
	})
	t.Run("PlanBesideManagedFieldsThatAreTooDeep", func(t *testing.T) { // which no decoder reads in a list
		s := &session{t: t, kubeconfig: s.kubeconfig, now: s.now}
		maps := client.Resource(schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}).Namespace("team")
		patch := `{"metadata":{"managedFields":[{"manager":"x","operation":"Apply","apiVersion":"v1","time":"2026-01-01T00:00:00Z","fieldsType":"FieldsV1","fieldsV1":` + strings.Repeat(`{"f:a":`, 9995) + "{}" + strings.Repeat("}", 9995) + `}]}}`
		if _, err := maps.Patch(ctx, "c", types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
		s.wants(s.run(0, "plan", "-f", "-"), "ClusterCleaner chosen at 2026-01-01T00:00:00Z: Act", "delete   ConfigMap team/b")
		if err := maps.Delete(ctx, "c", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	})
	t.Run("PlanOfARelease", func(t *testing.T) {
		s := &session{t: t, kubeconfig: s.kubeconfig, now: s.now}
		file := filepath.Join(t.TempDir(), "cleaner.yaml")
		text := "apiVersion: cleaner.vtex.dev/v1alpha1\nkind: Cleaner\nmetadata: {name: release, namespace: default}\nspec: {ttl: 1h, helm: {release: web, delete: true}}\n"
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := s.run(0, "plan", "-f", file); strings.Contains(got, "helmUninstall") {
			t.Errorf("there is no release, and the plan is:\n%s", got)
		}
		config := func(kind, scope string) map[string]string {
			return map[string]string{"a.yaml": "apiVersion: v1\nkind: " + kind + "\nmetadata: {name: of-web}\n" + scope}
		}
		if _, err := helmtest.Install(ctx, plane.Config(), "default", "web", helmtest.Chart{Templates: config("ConfigMap", "")}); err != nil {
			t.Fatal(err)
		}
		s.wants(s.run(0, "plan", "-f", file), "Act", "helmUninstall   default/web   helm")
		s.wants(s.run(0, "plan", "-f", file, "-o", "json"), `"verb": "helmUninstall"`, `"revision": 1`)
		if _, err := helmtest.Install(ctx, plane.Config(), "default", "wide", helmtest.Chart{Templates: config("Namespace", "")}); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(strings.ReplaceAll(text, "release: web", "release: wide")), 0o600); err != nil {
			t.Fatal(err)
		}
		s.wants(s.run(0, "plan", "-f", file), "Blocked (ReleaseOutsideNamespace)", "Namespace of-web (cluster-scoped)")
		if _, err := client.Resource(schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}).Namespace("default").Get(ctx, "of-web", metav1.GetOptions{}); err != nil {
			t.Errorf("a plan has changed something: %s", err)
		}
	})
	t.Run("Forecast", func(t *testing.T) { testForecast(t, &session{t: t, kubeconfig: s.kubeconfig, now: s.now}, client) })
	t.Run("Validate", func(t *testing.T) {
		s := &session{t: t, kubeconfig: s.kubeconfig, now: s.now}
		s.wants(s.run(0, "validate", "-f", "-", "--live"), `kind "Nothing"`, "ClusterCleaner chosen is valid")
	})
	t.Run("AccountRights", func(t *testing.T) { testAccountRights(t, &session{t: t, kubeconfig: s.kubeconfig, now: s.now}, client) })
	t.Run("Suspend", func(t *testing.T) {
		s := &session{t: t, kubeconfig: s.kubeconfig, now: s.now}
		s.wants(s.run(0, "suspend", "preview", "-n", "default"), "cleaner/preview suspended")
		if got, _, _ := unstructured.NestedBool(read().Object, "spec", "suspend"); !got {
			t.Error("it is not suspended")
		}
		s.wants(s.run(0, "resume", "cln/preview"), "cleaner/preview resumed")
		if got, _, _ := unstructured.NestedBool(read().Object, "spec", "suspend"); got {
			t.Error("it is suspended still")
		}
		s.wants(s.run(0, "suspend", "clustercleaner/everywhere"), "clustercleaner/everywhere suspended")
		s.wants(s.run(1, "suspend", "nobody"), `"nobody" not found`)
		s.wants(s.run(2, "suspend", "pod/a"), "write cleaner/a or clustercleaner/a")
	})
	t.Run("Run", func(t *testing.T) {
		s := &session{t: t, kubeconfig: s.kubeconfig, now: s.now}
		s.wants(s.run(0, "run", "preview"), "cleaner/preview evaluation requested")
		if got := read().GetAnnotations()[v1alpha1.AnnotationRequestedAt]; got != "2026-01-01T00:00:00Z" {
			t.Errorf("the annotation is %q", got)
		}
	})
	t.Run("Explain", func(t *testing.T) {
		s := &session{t: t, kubeconfig: s.kubeconfig, now: s.now}
		s.wants(s.run(0, "explain", "preview"), "cleaner/preview has no status: the operator has not seen it yet, or is not running.")
		status := `{"status": {"observedGeneration": 1, "counters": {"acted": 5, "failed": 2}, "nextScheduledEvaluation": "2026-01-01T01:00:00Z",
			"conditions": [
				{"type": "Ready", "status": "True", "reason": "ConditionsNotMet", "message": "A condition is false.", "lastTransitionTime": "2026-01-01T00:00:00Z"},
				{"type": "Delivered", "status": "False", "reason": "DeliveryFailed", "message": "No answer.", "lastTransitionTime": "2026-01-01T00:00:00Z"}],
			"pending": [{"rule": "old", "key": "a", "until": "2026-01-01T00:40:00Z"}],
			"findings": [{"rule": "twice", "count": 7, "items": ["10.0.0.1", "10.0.0.2"], "message": "of two Pods"}],
			"ruleCounts": [{"rule": "old", "items": 9, "matched": 4, "waiting": 1, "errors": 3}],
			"lastActions": [{"object": "ConfigMap default/a", "rule": "targets.maps", "action": "delete", "time": "2026-01-01T00:00:00Z", "result": "deleted"}],
			"lastEvaluation": {"time": "2026-01-01T00:00:00Z", "verdict": "Wait", "reason": "ConditionsNotMet", "conditions": [{"expression": "false", "value": false}],
				"errors": [{"rule": "old", "key": "b", "field": "rules[0].when", "message": "no such key", "count": 3}],
				"withheld": [{"object": "ConfigMap default/c", "because": "it is protected"}]}}}`
		if _, err := cleaners.Patch(ctx, "preview", types.MergePatchType, []byte(status), metav1.PatchOptions{}, "status"); err != nil {
			t.Fatal(err)
		}
		s.wants(s.run(0, "explain", "preview"),
			"this status is for an earlier generation of the spec", "cleaner/preview: ConditionsNotMet\nA condition is false.\n", "Delivered is False: DeliveryFailed: No answer.",
			"Evaluated: Wait (ConditionsNotMet), since 2026-01-01T00:00:00Z", "  false: false", "error in rule old, b: rules[0].when no such key (3 items)",
			"withheld: ConfigMap default/c: it is protected", "a         old    2026-01-01T00:40:00Z", "twice     7       10.0.0.1, 10.0.0.2, …   of two Pods", "delete        ConfigMap default/a   targets.maps", "old    9       4         0      0        1         0           0          0          3        0", "Next: 2026-01-01T01:00:00Z")
	})

	t.Run("ExplainObject", func(t *testing.T) {
		testExplainCosts(t, s, client)
		testExplainObject(t, &session{t: t, kubeconfig: s.kubeconfig, now: s.now.AddDate(4, 0, 0)}, client)
	})
	t.Run("List", func(t *testing.T) {
		s := &session{t: t, kubeconfig: s.kubeconfig, now: s.now}
		s.wants(s.run(0, "list"), "NAME      READY   REASON             MODE      NEXT                   DONE   AGE\n", "preview   True    ConditionsNotMet   Enforce   2026-01-01T01:00:00Z   5      ")
		s.wants(s.run(0, "list", "-A"), "NAMESPACE   NAME                        READY", "            clustercleaner/everywhere           ", "default     preview                     True    ConditionsNotMet")
		s.wants(s.run(0, "list", "-n", "team"), "There are no Cleaners in namespace team.\n")
		s.wants(s.run(0, "list", "-l", "team=web"), "There are no Cleaners in namespace default.\n")
		if got := s.run(0, "list", "-n", "team", "-o", "json"); got != "{\n  \"kind\": \"CleanerList\",\n  \"items\": []\n}\n" {
			t.Errorf("without Cleaners it prints %s", got)
		}
		s.wants(s.run(0, "list", "-A", "-o", "yaml"), "kind: CleanerList\n", "- created:", "  kind: ClusterCleaner\n", "  namespace: default\n", "  done: 5\n", "  ruleCounts:\n  - errors: 3\n    items: 9\n    matched: 4\n    rule: old\n    waiting: 1\n", "  failed: 2\n", "  reason: ConditionsNotMet\n", "  message: A condition is false.\n")
		s.wants(s.run(1, "list", "-A", "--as", "nobody"), "cannot list ClusterCleaners: ", "cannot list Cleaners: ")
	})

	t.Run("UI", func(t *testing.T) { testUI(t, &session{t: t, kubeconfig: s.kubeconfig, now: s.now}, read) })
	t.Run("Plugin", func(t *testing.T) { testPlugin(t, plane.KubectlPath(), s.kubeconfig) })
	t.Run("Version", func(t *testing.T) { testVersion(t, &session{t: t, kubeconfig: s.kubeconfig, now: s.now}, client) })

	// What is said to be served without a cluster is what a cluster serves.
	t.Run("Builtins", func(t *testing.T) {
		asked, err := discovery.NewDiscoveryClientForConfig(plane.Config())
		if err != nil {
			t.Fatal(err)
		}
		_, lists, err := asked.ServerGroupsAndResources()
		if err != nil {
			t.Fatal(err)
		}
		world := snapshot.NewObjects()
		manifests.AddBuiltinKinds(world)
		checked := 0
		for _, list := range lists {
			gv, err := schema.ParseGroupVersion(list.GroupVersion)
			if err != nil {
				t.Fatal(err)
			}
			for _, r := range list.APIResources {
				if gv.Group == v1alpha1.GroupVersion.Group || strings.Contains(r.Name, "/") || !strings.Contains(strings.Join(r.Verbs, " "), "list") {
					continue
				}
				checked++
				gvr, namespaced := world.FindResource(gv, r.Kind)
				if gvr.Resource != r.Name || namespaced != r.Namespaced {
					t.Errorf("%s of %s: is %q, namespaced %t; offline %q, %t", r.Kind, gv, r.Name, r.Namespaced, gvr.Resource, namespaced)
				}
			}
		}
		if checked < 50 {
			t.Errorf("only %d kinds were checked", checked)
		}
	})
}
