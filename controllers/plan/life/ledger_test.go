// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package life

import (
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/controllers/plan"
	"github.com/vtex/cleaner/controllers/plan/runrow"
)

// A row has no kind: what has shown its object says it, and until then the resource stands for it.
func TestNameObject(t *testing.T) {
	const row = "targets.pods pods/v1 shop/a uid-a 7"
	run := &v1alpha1.Run{Number: 1, Rows: []string{row, "forged"}}
	l := &Ledger{}
	l.RecordSights(run, map[int]Sight{0: {Failed: "not now"}, 1: {}}, born)
	if got := l.Rows[0].NameObject(row); got != "pods shop/a" {
		t.Errorf("before a read: %q", got)
	}
	l.RecordSights(run, map[int]Sight{0: {Kind: "Pod", UID: "uid-a"}}, born)
	l.RecordSights(run, map[int]Sight{0: {Missing: true}}, born)
	if got := l.Rows[0].NameObject(row); got != "Pod shop/a" {
		t.Errorf("after a read: %q", got)
	}
	if got := l.Rows[1].NameObject("forged"); got != "forged" {
		t.Errorf("a row that cannot be read: %q", got)
	}
	if _, batch := BeginBatch(&v1alpha1.CleanerStatus{}, nil, "", []runrow.Row{{Rule: "r", Ref: pod("a").Ref}}, nil, born); batch.Rows[0].NameObject(row) != "Pod shop/a" {
		t.Errorf("in a batch: %q", batch.Rows[0].NameObject(row))
	}
}

// Of the steps on an object, the first that changes it says what is done to it.
func TestFindVerb(t *testing.T) {
	on := func(name string, verb plan.Verb) plan.Step { return plan.Step{Verb: verb, Object: pod(name)} }
	c := NewCourse(plan.Plan{Steps: []plan.Step{on("a", plan.VerbPatch), on("b", plan.VerbEvict), on("a", plan.VerbDelete)}})
	reports := NewCourse(plan.Plan{Steps: []plan.Step{on("a", plan.VerbReport), on("a", plan.VerbPatch), on("b", plan.VerbReport)}})
	if got := []plan.Verb{reports.FindVerb("uid-a"), reports.FindVerb("uid-b")}; got[0] != plan.VerbPatch || got[1] != "" {
		t.Errorf("a report, which asks for nothing, counts as an action: %q", got)
	}
	for uid, want := range map[types.UID]plan.Verb{"uid-a": plan.VerbPatch, "uid-b": plan.VerbEvict, "uid-c": ""} {
		if got := c.FindVerb(uid); got != want {
			t.Errorf("%s: got %q, want %q", uid, got, want)
		}
	}
}
