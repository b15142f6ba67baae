// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package reportdedup

import (
	"testing"
	"time"

	"github.com/vtex/cleaner/controllers/plan"
	"github.com/vtex/cleaner/controllers/plan/observed"
)

var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func item(rule, key string) plan.ItemKey { return plan.ItemKey{Rule: rule, Key: key} }

func TestReportsBeyondTheirRoom(t *testing.T) {
	var r Reports
	r.GrowBy(reportBytes)
	r.NoteReport(item("r", "a"), "1", epoch, time.Hour)
	r.NoteReport(item("r", "b"), "1", epoch, time.Hour)
	for _, tc := range []struct {
		what, key, said string
		at              time.Duration
		has             bool
	}{
		{"what is remembered was made", "a", "1", 2 * time.Hour, true},
		{"and says something else now", "a", "2", 0, false},
		{"what is not remembered is not made again at once", "b", "1", time.Minute, true},
		{"but once in a while", "b", "1", 2 * time.Hour, false},
	} {
		if got := r.HasReport(item("r", tc.key), tc.said, epoch.Add(tc.at)); got != tc.has {
			t.Errorf("%s: got %t", tc.what, got)
		}
	}
	if r.CountBytes() != reportBytes {
		t.Errorf("%d bytes are taken", r.CountBytes())
	}
	if r.GrowBy(-2 * reportBytes); r.room != 0 {
		t.Errorf("there is room for %d where there is none", r.room)
	}
}

func TestReportsThatAreKept(t *testing.T) {
	var r Reports
	if !r.IsEmpty() {
		t.Error("reports are remembered that were not made")
	}
	for _, i := range []plan.ItemKey{item("r", "a"), item("r", "b"), item("wrong", "c"), item("gone", "d")} {
		r.NoteReport(i, "1", epoch, time.Hour)
		r.NoteReport(i, "2", epoch, time.Hour)
	}
	r.KeepWanted(map[plan.ItemKey]bool{item("r", "a"): true}, map[string]bool{"wrong": true})
	for _, tc := range []struct {
		what string
		of   plan.ItemKey
		has  bool
	}{
		{"an item that is wanted", item("r", "a"), true},
		{"an item that is not wanted any more", item("r", "b"), false},
		{"an item of a rule that something is wrong with", item("wrong", "c"), true},
		{"an item of a rule that has none any more", item("gone", "d"), false},
	} {
		if got := r.HasReport(tc.of, "2", epoch); got != tc.has {
			t.Errorf("%s: got %t", tc.what, got)
		}
	}
	if r.CountBytes() != 2*reportBytes || len(r.made) != 2 {
		t.Errorf("%d bytes are taken, of %d rules", r.CountBytes(), len(r.made))
	}
	r.ForgetUntil(epoch.Add(time.Minute))
	if !r.IsEmpty() || !r.HasReport(item("r", "a"), "2", epoch) || r.HasReport(item("r", "a"), "2", epoch.Add(time.Minute)) {
		t.Error("what was forgotten is reported again at once, or never")
	}
}

// A report that was made is left out, and holds up nothing that comes after it; a deed stays.
func TestLeaveOut(t *testing.T) {
	step := func(verb plan.Verb, key, version string, after ...int) plan.Step {
		return plan.Step{Rule: "r", Keys: []string{key}, Verb: verb, After: after, Object: observed.Object{Ref: observed.Ref{ResourceVersion: version}}}
	}
	all := plan.Plan{Steps: []plan.Step{
		step(plan.VerbReport, "a", "1"), step(plan.VerbDelete, "a", "1", 0), step(plan.VerbReport, "b", "1", 1), step(plan.VerbReport, "a", "2", 0, 2),
	}}
	var r Reports
	if got := r.LeaveOut(all, epoch); len(got.Steps) != 4 || &got.Steps[0] != &all.Steps[0] {
		t.Errorf("where none was made %d are left", len(got.Steps))
	}
	r.NoteReport(item("r", "a"), VersionOf(&all.Steps[0]), epoch, time.Hour)
	got := r.LeaveOut(all, epoch).Steps
	if len(got) != 3 || got[0].Verb != plan.VerbDelete || len(got[0].After) != 0 || len(got[1].After) != 1 || got[1].After[0] != 0 || len(got[2].After) != 1 || got[2].After[0] != 1 {
		t.Errorf("left: %+v", got)
	}
	if len(all.Steps[3].After) != 2 {
		t.Error("what was decided is changed")
	}
}
