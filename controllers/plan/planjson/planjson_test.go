// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package planjson

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/controllers/plan"
	"github.com/vtex/cleaner/controllers/plan/observed"
)

var (
	born = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	pods = schema.GroupVersionResource{Version: "v1", Resource: "pods"}
)

// written is a document as a program reads it.
func written(t *testing.T, d any) any {
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
func TestWritePlan(t *testing.T) {
	yes, no, now := true, int64(0), born.Add(24*time.Hour)
	pod := func(name string) observed.Object {
		return observed.Object{
			Ref:   observed.Ref{Resource: pods, Kind: "Pod", Namespace: "shop", Name: name, UID: types.UID("uid-" + name), ResourceVersion: "7"},
			Value: map[string]any{"apiVersion": "v1", "kind": "Pod"},
		}
	}
	patch := plan.Patch{Type: v1alpha1.PatchApply, Subresource: "status", Force: true}
	sent := patch
	sent.Body = []byte(`{"status":{"n":3,"phase":"Failed"}}`)
	p := plan.Plan{
		Verdict: v1alpha1.VerdictAct, Reason: v1alpha1.ReasonConditionsMet, NextChange: now.Add(48 * time.Hour), Recheck: now.Add(time.Hour),
		Conditions: []v1alpha1.ConditionOutcome{{Expression: "pods.items.size() > 0", Value: &yes}},
		Steps: []plan.Step{
			{Rule: "r", Verb: plan.VerbPatch, Object: pod("a"), Patch: &sent, Reason: "it is done"},
			{Rule: "r", Verb: plan.VerbRemoveFinalizer, Object: pod("a"), Finalizer: "example.com/x", Reason: "it is done"},
			{Rule: "r", Verb: plan.VerbDelete, Object: pod("a"), Grace: &no, Propagation: v1alpha1.PropagateBackground, Reason: "it is done"},
		},
		Withheld: []plan.Withheld{{
			Step:    plan.Step{Rule: "r", Verb: plan.VerbPatch, Object: pod("d"), Patch: &patch, Reason: "it is done"},
			Because: `it has the label or annotation cleaner.vtex.dev/protect: "true"`,
		}},
		Pending: []plan.Pending{{Rule: "later", Key: "Pod shop/c", Until: now.Add(time.Minute)}},
		Errors:  []v1alpha1.ItemError{{Rule: "r", Key: "Pod shop/b", Field: "rules[0].when", Message: "no such key: done", Count: 2}},
	}
	got := written(t, WritePlan(&p, plan.Owner{Name: "c"}, now, []string{"careful"}))
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
			 "because": "it has the label or annotation cleaner.vtex.dev/protect: \"true\""}
		],
		"pending": [{"rule": "later", "key": "Pod shop/c", "until": "2026-01-02T00:01:00Z"}],
		"next": "2026-01-04T00:00:00Z",
		"recheck": "2026-01-02T01:00:00Z",
		"errors": [{"rule": "r", "key": "Pod shop/b", "expression": "rules[0].when", "message": "no such key: done", "count": 2}],
		"warnings": ["careful"]
	}`)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}

func TestWritePlanOfNothing(t *testing.T) {
	p := plan.Plan{Verdict: v1alpha1.VerdictWait, Reason: v1alpha1.ReasonSuspended}
	got := written(t, WritePlan(&p, plan.Owner{Namespace: "shop", Name: "c"}, born.In(time.FixedZone("", 3600)), nil))
	want := parsed(t, `{
		"kind": "Plan", "cleaner": "shop/c", "at": "2026-01-01T00:00:00Z", "verdict": "Wait", "reason": "Suspended",
		"conditions": [], "steps": [], "withheld": [], "pending": [], "next": null, "recheck": null, "errors": [], "warnings": []
	}`)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}

// A release that a rule uninstalls is named beside the Secret that records it.
func TestWriteUninstall(t *testing.T) {
	p := plan.Plan{Verdict: v1alpha1.VerdictAct, Steps: []plan.Step{{Rule: "r", Verb: plan.VerbHelmUninstall, Object: observed.Object{
		Ref:   observed.Ref{Resource: pods, Kind: "Secret", Namespace: "shop", Name: "sh.helm.release.v1.web.v3", UID: "u", ResourceVersion: "7"},
		Value: map[string]any{"apiVersion": "v1", "kind": "Secret"},
	}}}}
	steps := WritePlan(&p, plan.Owner{Name: "c"}, born, nil).Steps
	want := Step{
		Rule: "r", Verb: "helmUninstall", APIVersion: "v1", Kind: "Secret", Namespace: "shop", Name: "sh.helm.release.v1.web.v3", UID: "u", ResourceVersion: "7",
		Options: &Options{Release: "web", Revision: 3},
	}
	if diff := cmp.Diff([]Step{want}, steps); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	for want, s := range map[string]Step{
		"release shop/web": steps[0], "Pod shop/a": {Kind: "Pod", Namespace: "shop", Name: "a"}, "Node n": {Kind: "Node", Name: "n"}, "key": {Key: "key"}, "shop/web": {Namespace: "shop", Name: "web"},
	} {
		if got := s.NameObject(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// What is no object has its key.
func TestWritePlanOfAReport(t *testing.T) {
	p := plan.Plan{Steps: []plan.Step{{Rule: "r", Keys: []string{"10.0.0.1"}, Verb: plan.VerbReport, Reason: "of two Pods"}}}
	got := written(t, WritePlan(&p, plan.Owner{Name: "c"}, born, nil)).(map[string]any)["steps"]
	want := parsed(t, `[{"rule": "r", "verb": "report", "key": "10.0.0.1", "reason": "of two Pods"}]`)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}

// A release is a step, and what was read without its value is called by its resource.
func TestWritePlanOfARelease(t *testing.T) {
	no := false
	p := plan.Plan{
		Verdict: v1alpha1.VerdictAct, Reason: v1alpha1.ReasonConditionsMet,
		Conditions: []v1alpha1.ConditionOutcome{{Expression: "x", Error: "it failed"}, {Expression: "y", Value: &no}},
		Steps: []plan.Step{{
			Rule: "targets.notes", Action: -1, Keys: []string{"u"}, Verb: plan.VerbDelete, Propagation: v1alpha1.PropagateBackground,
			Object: observed.Object{Ref: observed.Ref{Resource: pods, Namespace: "shop", Name: "a"}},
		}},
		Release: &observed.Release{Name: "web", Revision: 3, UID: "secret"},
	}
	got := written(t, WritePlan(&p, plan.Owner{Namespace: "shop", Name: "c"}, born, nil)).(map[string]any)
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

// An error of one item says no number.
func TestWritePlanOfErrors(t *testing.T) {
	p := plan.Plan{
		Errors: []v1alpha1.ItemError{{Rule: "r", Field: "rules[0].forEach", Message: "no", Count: 1}},
	}
	got := written(t, WritePlan(&p, plan.Owner{Name: "c"}, born, nil)).(map[string]any)
	for field, want := range map[string]string{
		"errors": `[{"rule": "r", "expression": "rules[0].forEach", "message": "no"}]`,
	} {
		if diff := cmp.Diff(parsed(t, want), got[field]); diff != "" {
			t.Errorf("%s: -want +got\n%s", field, diff)
		}
	}
}

// The counts of rules are written with their errors, and only when they are asked for; what rules leave to others is always written.
func TestWriteCounts(t *testing.T) {
	p := plan.Plan{
		Counts: []plan.RuleCount{
			{Rule: "old", Items: 9, Matched: 8, Kept: 1, Spared: 1, Waiting: 1, Protected: 1, Shadowed: 2, Deferred: 1, Acted: 1},
			{Rule: "fine", Items: 2},
		},
		Shadowed: []plan.Shadow{{Rule: "old", By: "first", Object: "Pod shop/a", Items: 2}},
		Errors: []v1alpha1.ItemError{
			{Rule: "old", Key: "x", Message: "no such key", Count: 2},
			{Rule: "old", Key: "y", Message: "no such field", Count: 1},
			{Rule: "gone", Message: "not a list", Count: 1},
		},
	}
	got := written(t, WritePlan(&p, plan.Owner{Name: "c"}, born, nil)).(map[string]any)
	if counts, there := got["counts"]; there {
		t.Errorf("counts are written without being asked for: %v", counts)
	}
	if diff := cmp.Diff(parsed(t, `[{"rule": "old", "by": "first", "object": "Pod shop/a", "items": 2}]`), got["shadowed"]); diff != "" {
		t.Errorf("shadowed: -want +got\n%s", diff)
	}
	want := []Count{
		{Rule: "old", Items: 9, Matched: 8, Kept: 1, Spared: 1, Waiting: 1, Protected: 1, Shadowed: 2, Errors: 3, Acted: 1},
		{Rule: "fine", Items: 2},
	}
	if diff := cmp.Diff(want, WriteCounts(&p)); diff != "" {
		t.Errorf("counts: -want +got\n%s", diff)
	}
	names := `{"rule": "old", "items": 9, "matched": 8, "kept": 1, "spared": 1, "waiting": 1, "protected": 1, "shadowed": 2, "errors": 3, "acted": 1}`
	if diff := cmp.Diff(parsed(t, names), written(t, want[0])); diff != "" {
		t.Errorf("names of counts: -want +got\n%s", diff)
	}
	if empty := WriteCounts(&plan.Plan{}); len(empty) != 0 {
		t.Errorf("a plan without rules has counts: %v", empty)
	}
	bare := written(t, WritePlan(&plan.Plan{}, plan.Owner{Name: "c"}, born, nil)).(map[string]any)
	if shadowed, there := bare["shadowed"]; there {
		t.Errorf("no rule leaves anything to another one, and written is %v", shadowed)
	}
}
