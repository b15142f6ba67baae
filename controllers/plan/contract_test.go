// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/vtex/cleaner/api/v1alpha1"
)

// written is a document as a program reads it.
func written(t *testing.T, d Document) any {
	t.Helper()
	text, err := json.Marshal(d)
	if err != nil {
		t.Fatal(err)
	}
	return parsed(t, string(text))
}

func parsed(t *testing.T, text string) any {
	t.Helper()
	var out any
	if err := json.Unmarshal([]byte(text), &out); err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	return out
}

// The form of a document is a promise: this test is changed only where fields are added.
func TestDocument(t *testing.T) {
	work := cluster(
		rule(func(r *v1alpha1.Rule) {
			r.When, r.Reason = `item.spec.done == "yes"`, `"it is done"`
			patch := patches(`{"status": {"phase": "Failed", "n": 3}}`)
			patch.Patch.Type, patch.Patch.Subresource, patch.Patch.Force = v1alpha1.PatchApply, "status", true
			r.Actions = []v1alpha1.RuleAction{patch, {RemoveFinalizer: &v1alpha1.RemoveFinalizerAction{Name: "example.com/x"}}, deletes(0)}
		}),
		rule(func(r *v1alpha1.Rule) { r.Name, r.When, r.For = "later", `item.metadata.name == "c"`, "1m" }),
	)
	work.Conditions = []string{"pods.items.size()  >  0"}
	in := over(t, work, held(p("a", "done:yes"), "example.com/x"), p("b"), p("c"), p("d", "done:yes", v1alpha1.ProtectKey+"=true"))
	plan := ComputePlan(t.Context(), in)
	got := written(t, plan.ToDocument(in.Owner, in.Now, []string{"careful"}))
	want := parsed(t, `{
		"kind": "Plan", "cleaner": "c", "at": "2026-01-02T00:00:00Z", "verdict": "Act", "reason": "ConditionsMet",
		"conditions": [{"expression": "pods.items.size() > 0", "value": true}],
		"steps": [
			{"rule": "r", "verb": "patch", "apiVersion": "v1", "kind": "Pod", "namespace": "shop", "name": "a", "uid": "uid-a", "resourceVersion": "7",
			 "subresource": "status", "patchType": "Apply", "patch": {"status": {"phase": "Failed", "n": 3}}, "options": {"force": true}, "reason": "it is done"},
			{"rule": "r", "verb": "removeFinalizer", "apiVersion": "v1", "kind": "Pod", "namespace": "shop", "name": "a", "uid": "uid-a", "resourceVersion": "7",
			 "options": {"finalizer": "example.com/x"}, "reason": "it is done"},
			{"rule": "r", "verb": "delete", "apiVersion": "v1", "kind": "Pod", "namespace": "shop", "name": "a", "uid": "uid-a", "resourceVersion": "7",
			 "options": {"gracePeriodSeconds": 0, "propagationPolicy": "Background"}, "reason": "it is done"}
		],
		"withheld": [
			{"rule": "r", "verb": "patch", "apiVersion": "v1", "kind": "Pod", "namespace": "shop", "name": "d", "uid": "uid-d", "resourceVersion": "7",
			 "subresource": "status", "patchType": "Apply", "options": {"force": true}, "reason": "it is done",
			 "because": "it carries cleaner.vtex.dev/protect: \"true\""}
		],
		"pending": [{"rule": "later", "key": "shop/c.pods/v1", "until": "2026-01-02T00:01:00Z"}],
		"next": "2026-01-02T00:01:00Z",
		"errors": [{"rule": "r", "key": "shop/b.pods/v1", "expression": "rules[0].when", "message": "MESSAGE", "count": 2}],
		"warnings": ["careful"]
	}`)
	if m := got.(map[string]any)["errors"].([]any)[0].(map[string]any); m["message"] != "" {
		m["message"] = "MESSAGE" // the words of expressions are not promised
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}

func TestDocumentOfNothing(t *testing.T) {
	plan := ComputePlan(t.Context(), Input{
		Owner: Owner{Namespace: "shop", Name: "c"}, Now: born.In(time.FixedZone("", 3600)), Spec: &v1alpha1.Work{CommonSpec: v1alpha1.CommonSpec{Suspend: true}},
	})
	got := written(t, plan.ToDocument(Owner{Namespace: "shop", Name: "c"}, born.In(time.FixedZone("", 3600)), nil))
	want := parsed(t, `{
		"kind": "Plan", "cleaner": "shop/c", "at": "2026-01-01T00:00:00Z", "verdict": "Wait", "reason": "Suspended",
		"conditions": [], "steps": [], "withheld": [], "pending": [], "next": null, "errors": [], "warnings": []
	}`)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}

// What is no object has its key.
func TestDocumentOfAReport(t *testing.T) {
	steps := Plan{Steps: []Step{{Rule: "r", Keys: []string{"10.0.0.1"}, Verb: VerbReport, Reason: "of two Pods"}}}
	got := written(t, steps.ToDocument(Owner{Name: "c"}, born, nil)).(map[string]any)["steps"]
	want := parsed(t, `[{"rule": "r", "verb": "report", "key": "10.0.0.1", "reason": "of two Pods"}]`)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}

func TestDocumentOfARelease(t *testing.T) {
	no := false
	plan := Plan{
		Verdict: v1alpha1.VerdictAct, Reason: v1alpha1.ReasonConditionsMet,
		Conditions: []v1alpha1.ConditionOutcome{{Expression: "x", Error: "it failed"}, {Expression: "y", Value: &no}},
		Steps:      []Step{{Rule: "targets.notes", Action: noAction, Keys: []string{"u"}, Verb: VerbDelete, Propagation: v1alpha1.PropagateBackground, Object: Object{Ref: Ref{Resource: pods, Namespace: "shop", Name: "a"}}}},
		Release:    &Release{Name: "web", Revision: 3, UID: "secret"},
	}
	got := written(t, plan.ToDocument(Owner{Namespace: "shop", Name: "c"}, born, nil)).(map[string]any)
	want := parsed(t, `{
		"conditions": [{"expression": "x", "error": "it failed"}, {"expression": "y", "value": false}],
		"steps": [
			{"rule": "targets.notes", "verb": "delete", "apiVersion": "v1", "kind": "pods", "namespace": "shop", "name": "a", "options": {"propagationPolicy": "Background"}},
			{"rule": "helm", "verb": "helmUninstall", "namespace": "shop", "name": "web", "uid": "secret", "options": {"revision": 3}}
		]
	}`).(map[string]any)
	for field, v := range want {
		if diff := cmp.Diff(v, got[field]); diff != "" {
			t.Errorf("%s: -want +got\n%s", field, diff)
		}
	}
}
