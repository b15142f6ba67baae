// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package itemtrace

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/vtex/cleaner/celenv/parts"
)

// A nil Trace follows nothing, and takes all notes.
func TestNoTrace(t *testing.T) {
	var none *Trace
	none.BeginPlan()
	none.NoteOutcome("r", Item{Name: "a"}, Acted, "")
	none.NoteWait("r", Item{Name: "a"}, time.Unix(0, 0))
	if none.Follows("uid") || none.Follows("") || none.ListEntries() != nil {
		t.Error("it follows an object")
	}
}

func TestFollows(t *testing.T) {
	trace := NewTrace("uid-a")
	if !trace.Follows("uid-a") {
		t.Error("it does not follow its object")
	}
	if trace.Follows("uid-b") || trace.Follows("") {
		t.Error("it follows another object")
	}
}

// What comes later for an item takes the place of what was known of it before, and keeps the parts of its `when`.
func TestOutcomes(t *testing.T) {
	until := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	whole := []parts.Part{{Of: "when", Expression: "true", Value: "true"}}
	for name, tc := range map[string]struct {
		note func(t *Trace)
		want []Entry
	}{
		"Begun": {func(*Trace) {}, []Entry{{Rule: "r", Item: Item{Name: "a"}, Outcome: NotMatched, Parts: whole}}},
		"Outcome": {func(t *Trace) { t.NoteOutcome("r", Item{Name: "a"}, Protected, "it is protected") }, []Entry{
			{Rule: "r", Item: Item{Name: "a"}, Outcome: Protected, Because: "it is protected", Parts: whole},
		}},
		"Last": {func(t *Trace) {
			t.NoteOutcome("r", Item{Name: "a"}, Acted, "old")
			t.NoteOutcome("r", Item{Name: "a"}, Failed, "no such key")
		}, []Entry{{Rule: "r", Item: Item{Name: "a"}, Outcome: Failed, Because: "no such key", Parts: whole}}},
		"Wait": {func(t *Trace) { t.NoteWait("r", Item{Name: "a"}, until) }, []Entry{{Rule: "r", Item: Item{Name: "a"}, Outcome: Waiting, Until: until, Parts: whole}}},
		"OtherItem": {func(t *Trace) {
			t.NoteOutcome("r", Item{Name: "b"}, Acted, "")
			t.NoteWait("r", Item{Name: "b"}, until)
		}, []Entry{{Rule: "r", Item: Item{Name: "a"}, Outcome: NotMatched, Parts: whole}}},
		"OtherObject": { // of a kind of the same name
			func(t *Trace) { t.NoteOutcome("r", Item{Name: "a", Object: "uid-b"}, Acted, "") }, []Entry{{Rule: "r", Item: Item{Name: "a"}, Outcome: NotMatched, Parts: whole}},
		},
		"OtherRule": {func(t *Trace) { t.NoteOutcome("x", Item{Name: "a"}, Acted, "") }, []Entry{{Rule: "r", Item: Item{Name: "a"}, Outcome: NotMatched, Parts: whole}}},
		"Action": {func(t *Trace) {
			t.NoteAction("r", Item{Name: "b"}, Acted, "")
			t.NoteAction("r", Item{Name: "b"}, Failed, "no patch")
		}, []Entry{
			{Rule: "r", Item: Item{Name: "a"}, Outcome: NotMatched, Parts: whole},
			{Rule: "r", Item: Item{Name: "b"}, ByAction: true, Outcome: Failed, Because: "no patch"},
		}},
		"OwnAction": {func(t *Trace) { t.NoteAction("r", Item{Name: "a"}, Acted, "") }, []Entry{{Rule: "r", Item: Item{Name: "a"}, Outcome: Acted, Parts: whole}}},
		"NextPlan":  {func(t *Trace) { t.BeginPlan() }, nil},
	} {
		t.Run(name, func(t *testing.T) {
			trace := NewTrace("uid-a")
			trace.BeginItem(Entry{Rule: "r", Item: Item{Name: "a"}, Outcome: NotMatched, Parts: whole})
			tc.note(trace)
			if diff := cmp.Diff(tc.want, trace.ListEntries()); diff != "" {
				t.Errorf("-want +got\n%s", diff)
			}
		})
	}
}

// The list is the caller's own.
func TestListEntries(t *testing.T) {
	trace := NewTrace("uid-a")
	trace.BeginItem(Entry{Rule: "r", Item: Item{Name: "a"}})
	trace.ListEntries()[0].Rule = "changed"
	if got := trace.ListEntries()[0].Rule; got != "r" {
		t.Errorf("a caller has changed the rule to %q", got)
	}
}

// More entries than there is room for are not noted, and those that are still change.
func TestEntriesAreBounded(t *testing.T) {
	trace := NewTrace("uid-a")
	for i := range 3 * maxEntries {
		trace.NoteAction("r", Item{Name: fmt.Sprint(i)}, Acted, "")
	}
	if n := len(trace.ListEntries()); n != maxEntries {
		t.Errorf("there are %d entries", n)
	}
	trace.NoteAction("r", Item{Name: fmt.Sprint(3 * maxEntries)}, Failed, "too many")
	trace.NoteAction("r", Item{Name: "0"}, Failed, "late")
	got := trace.ListEntries()
	if n := len(got); n != maxEntries || got[0].Because != "late" || got[n-1].Because != "" {
		t.Errorf("%d entries, the first is %+v, the last %+v", n, got[0], got[n-1])
	}
}
