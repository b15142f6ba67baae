// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package remembered

import (
	"fmt"
	"testing"
	"time"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/controllers/internal/rehearsed"
	"github.com/vtex/cleaner/controllers/plan"
	"github.com/vtex/cleaner/controllers/plan/fortimers"
	"github.com/vtex/cleaner/controllers/plan/life"
	"github.com/vtex/cleaner/controllers/plan/limits"
	"github.com/vtex/cleaner/controllers/plan/observed"
	"github.com/vtex/cleaner/controllers/plan/reuse"
	"github.com/vtex/cleaner/controllers/plan/stringhash"
)

var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// full is something of each kind.
func full() *Items {
	m := NewItems()
	item := plan.ItemKey{Rule: "r", Key: "k"}
	o := observed.Object{Ref: observed.Ref{Namespace: "shop", Name: "a", UID: "uid-a", ResourceVersion: "7"}}
	step := plan.Step{Rule: "r", Keys: []string{"k"}, Object: o, Verb: plan.VerbPatch, Patch: &plan.Patch{Body: []byte("{}")}}
	m.Holds = fortimers.Holds{"r": {Since: map[stringhash.Sum]fortimers.Hold{item.Sum(): {Since: epoch}}}}
	m.Backoff.RecordFailure("uid-b", v1alpha1.ReasonDeletionRefused, "forbidden", epoch)
	for range 5 {
		m.Recreations.RecordDeletion(o.Place(), o.UID, epoch)
	}
	m.Unconfirmed.PostponeItems(map[plan.ItemKey]bool{item: true}, time.Minute, epoch)
	m.Awaited.CompareReads(plan.Plan{Steps: []plan.Step{step}}, plan.Plan{})
	m.Lagging.NoteLag(&step, "8", epoch, "7")
	m.Done = limits.Done{{At: epoch, UID: "uid-a"}}
	m.Patches.NotePatch(&step, "7", "8", epoch)
	m.Idle.NoteIdle(step.IdleID(), "7", step.Patch.Sum(), epoch)
	m.Told.GrowBy(1 << 20)
	m.Told.NoteReport(item, "7 ", epoch, time.Minute)
	m.Rehearsed[item.Sum()] = rehearsed.Item{}
	decision := (&reuse.Results{}).BeginDecision(epoch, time.Hour, 1<<20)
	rule := decision.BeginRule("r", reuse.Inputs{}, 1, nil)
	rule.NoteFalse(1, time.Time{}, nil)
	rule.EndRule()
	m.Results, m.ResultsVersion = decision.EndDecision(), "v1"
	return &m
}

// kinds are what is remembered of each kind, but for what is done.
func (m *Items) kinds() map[string]int {
	told := 0
	if !m.Told.IsEmpty() {
		told = 1
	}
	return map[string]int{
		"holds": int(m.Holds.Bytes()), "backoff": len(m.Backoff), "remade": len(m.Recreations), "unconfirmed": len(m.Unconfirmed), "awaited": int(m.Awaited.CountBytes()), "lagging": len(m.Lagging),
		"patches": int(m.Patches.CountBytes()), "idle": int(m.Idle.CountBytes()), "told": told, "rehearsed": len(m.Rehearsed), "results": int(m.Results.CountBytes()),
	}
}

// Each kind is counted, and all are forgotten where all have to be. What was used up of limits stays used up.
func TestForget(t *testing.T) {
	m, empty := full(), NewItems()
	if empty.CountBytes() != 0 {
		t.Errorf("nothing takes %d bytes", empty.CountBytes())
	}
	for kind, n := range m.kinds() {
		if n == 0 {
			t.Fatalf("%s has nothing, so that this shows nothing", kind)
		}
	}
	before := m.CountBytes()
	m.Forget(epoch)
	for kind, n := range m.kinds() {
		if n != 0 {
			t.Errorf("of %s something is remembered", kind)
		}
	}
	if len(m.Done) != 1 || !m.Done[0].Forgotten || m.CountBytes() >= before {
		t.Errorf("done is %+v; %d bytes are counted, and %d were", m.Done, m.CountBytes(), before)
	}
	item := plan.Plan{Verdict: v1alpha1.VerdictAct, Steps: []plan.Step{{Rule: "r", Keys: []string{"k"}, Verb: plan.VerbReport}}}
	if left := m.Told.LeaveOut(item, epoch.Add(time.Second)); len(left.Steps) != 0 {
		t.Error("what was reported is reported again at once")
	}
}

// First that is forgotten which costs least: each byte less of room takes another kind.
func TestFitInto(t *testing.T) {
	order := []string{"results", "patches", "idle", "rehearsed", "unconfirmed", "awaited", "told"}
	m := full()
	for i, kind := range order {
		m.FitInto(m.CountBytes()-1, epoch)
		for j, other := range order {
			if gone := m.kinds()[other] == 0; gone != (j <= i) {
				t.Errorf("when %s has to go, %s is gone: %t", kind, other, gone)
			}
		}
		if m.Holds == nil || len(m.Backoff) == 0 {
			t.Fatalf("when %s has to go, all is forgotten", kind)
		}
	}
	if m.FitInto(m.CountBytes(), epoch); m.Holds == nil {
		t.Error("what fits is forgotten")
	}
	if m.FitInto(m.CountBytes()-1, epoch); m.Holds != nil || len(m.Backoff) != 0 {
		t.Error("what does not fit is remembered")
	}
}

// Who asks again does not wait for what was refused to be confirmed, and what holds goes on to hold.
func TestAskAgain(t *testing.T) {
	m := full()
	m.AskAgain()
	for kind, n := range m.kinds() {
		stays := kind == "holds" || kind == "lagging" || kind == "told"
		if (n > 0) != stays {
			t.Errorf("%s is remembered: %t", kind, n > 0)
		}
	}
}

// The results of another version of the Cleaner are of no use.
func TestResultsOfAVersion(t *testing.T) {
	m := full()
	if m.ResultsOf("v1") != m.Results {
		t.Error("the results of this version are not found")
	}
	if r := m.ResultsOf("v2"); r == nil || r.CountBytes() != 0 {
		t.Errorf("another version has %d bytes of results", r.CountBytes())
	}
}

// resultsOf has as many results as a decision about so many items of so many rules hands on.
func (m *Items) resultsOf(free int64, rules, items int) {
	d := m.ResultsOf("1").BeginDecision(epoch, 365*24*time.Hour, m.MakeRoom(free, true).ResultBytes)
	for r := range rules {
		rule := d.BeginRule(fmt.Sprint("rule", r), reuse.Inputs{}, items, nil)
		for i := range uint64(items) {
			if !rule.IsFalse(i + 1) {
				rule.NoteFalse(i+1, time.Time{}, nil)
			}
		}
		rule.EndRule()
	}
	m.Results, m.ResultsVersion = d.EndDecision(), "1"
}

// However many results there are, they take no room from `for` timers, neither of the Cleaner nor of others.
func TestResultsLeaveTimersTheirRoom(t *testing.T) {
	const bound = 16 << 20
	empty := NewItems()
	want := empty.MakeRoom(bound, true).Holds
	for _, tc := range []struct{ rules, items int }{{1, 500_000}, {20, 50_000}, {64, 15_000}} {
		m := NewItems()
		for range 10 {
			m.resultsOf(bound-m.CountBytes(), tc.rules, tc.items)
			m.FitInto(bound, epoch)
		}
		if n := m.MakeRoom(bound-m.CountBytes(), true).Holds; n != want || m.CountBytes() == 0 || m.CountBytes() > bound/4 {
			t.Errorf("%d rules with %d items leave room for %d holds, and nothing for %d; results take %d bytes", tc.rules, tc.items, n, want, m.CountBytes())
		}
	}
}

func TestMakeRoom(t *testing.T) {
	m := full()
	const free = 80 * fortimers.HoldBytes
	room := m.MakeRoom(free-m.Results.CountBytes(), true)
	if want := 1 + 60; room.Holds != want {
		t.Errorf("there is room for %d holds, want %d", room.Holds, want)
	}
	if want := free/8 + m.Done.CountBytes(); room.DoneBytes != want {
		t.Errorf("there is room for %d bytes of deeds, want %d", room.DoneBytes, want)
	}
	if want := int64(free / 8); room.ResultBytes != want {
		t.Errorf("there is room for %d bytes of results, want %d", room.ResultBytes, want)
	}
	if room := m.MakeRoom(free, false); room != nil {
		t.Errorf("an unknown room is %+v", room)
	}
	if room := m.MakeRoom(-1<<30, true); room.Holds != 0 || room.DoneBytes != 0 || room.ResultBytes != 0 {
		t.Errorf("where there is none: %+v", room)
	}
}

// Of a decision that is said again later, as much is kept as is shown of it.
func TestTrimPlan(t *testing.T) {
	const many = 1000
	long := fmt.Sprintf("%0100000d", 0)
	d := plan.Plan{Reason: "why", Message: long, DeferDetail: long, Data: "x", Steps: make([]plan.Step, many), Confirm: make([]observed.Read, many), Holds: fortimers.Holds{"r": {}}}
	for range many {
		d.Pending = append(d.Pending, plan.Pending{Key: long})
		d.Errors = append(d.Errors, v1alpha1.ItemError{Key: long, Message: long})
		d.Withheld = append(d.Withheld, plan.Withheld{Object: "o", Because: long})
		d.Deferred = append(d.Deferred, plan.ItemKey{Key: long})
	}
	got := TrimPlan(d)
	if got.Steps != nil || got.Confirm != nil || got.Holds != nil || got.Data != "" || got.Reason != "why" || len(got.Deferred) != 1 {
		t.Errorf("kept are %+v", got)
	}
	if n := len(got.Pending); n == 0 || n == many || len(got.Errors) != n || len(got.Withheld) != n {
		t.Errorf("kept are %d, %d and %d rows", n, len(got.Errors), len(got.Withheld))
	}
	for _, text := range []string{got.Message, got.DeferDetail, got.Pending[0].Key, got.Errors[0].Key, got.Errors[0].Message, got.Withheld[0].Because} {
		if len(text) == 0 || len(text) > 10_000 {
			t.Errorf("a text of %d bytes is kept", len(text))
		}
	}
	if len(d.Steps) != many || len(d.Pending) != many {
		t.Error("the decision itself has changed")
	}
	if got := TrimPlan(plan.Plan{}); got.Pending != nil || got.Errors != nil || got.Withheld != nil || got.Deferred != nil {
		t.Errorf("of nothing is kept %+v", got)
	}
}

// A period that cannot be parsed is the default one: what is done counts until then.
func TestDropExpired(t *testing.T) {
	for name, tc := range map[string]struct {
		limits *v1alpha1.Limits
		after  time.Duration
		kept   int
	}{
		"Default":       {nil, limits.DefaultPer - time.Second, 1},
		"DefaultIsOver": {nil, limits.DefaultPer + time.Second, 0},
		"Longer":        {&v1alpha1.Limits{Per: "48h"}, limits.DefaultPer + time.Second, 1},
		"Invalid":       {&v1alpha1.Limits{Per: "x"}, limits.DefaultPer + time.Second, 0},
	} {
		m := full()
		m.DropExpired(tc.limits, epoch.Add(tc.after))
		if len(m.Done) != tc.kept {
			t.Errorf("%s: %d actions are remembered, want %d", name, len(m.Done), tc.kept)
		}
	}
	m := full()
	m.DropExpired(nil, epoch.Add(1000*time.Hour))
	for _, kind := range []string{"backoff", "remade", "patches", "idle"} {
		if m.kinds()[kind] > 0 {
			t.Errorf("%s is remembered for ever", kind)
		}
	}
}

// What an evaluation has seen is of its version, and of no use while the watches may not show what was done. It goes with the results.
func TestTheBaseOfAVersion(t *testing.T) {
	for name, tc := range map[string]struct {
		change  func(m *Items)
		version string
		want    bool
	}{
		"Same":    {func(*Items) {}, "v1", true},
		"Other":   {func(*Items) {}, "v2", false},
		"Acted":   {func(m *Items) { m.Overlay["uid"] = life.ActedOn{} }, "v1", false},
		"Lagging": {func(m *Items) { m.Lagging = life.Lagging{life.LaggingKey{}: life.Lag{}} }, "v1", false},
		"Forget":  {func(m *Items) { m.Forget(epoch) }, "v1", false},
		"Results": {func(m *Items) { m.ForgetResults() }, "v1", false},
		"Again":   {func(m *Items) { m.AskAgain() }, "v1", false},
	} {
		m := NewItems()
		m.Results, m.Base, m.ResultsVersion = &reuse.Results{}, &plan.Base{}, "v1"
		tc.change(&m)
		if got := m.FindBase(tc.version); (got != nil) != tc.want {
			t.Errorf("%s: that there is one is %t", name, got != nil)
		}
	}
}
