// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package fortimers

import (
	"maps"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/controllers/plan/stringhash"
)

// born is when tests begin.
var born = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

const minute = time.Minute

func at(seconds int) time.Time { return born.Add(time.Duration(seconds) * time.Second) }

// begun are the holds of a rule named r, by their keys.
func begun(spec *v1alpha1.Work, of map[string]Hold) Holds {
	out := RuleHolds{Text: fingerprintRule(spec, &spec.Rules[0]), Since: map[stringhash.Sum]Hold{}}
	for key, hold := range of {
		out.Since[stringhash.SumOf(key)] = hold
	}
	return Holds{"r": out}
}

func spec() *v1alpha1.Work {
	return &v1alpha1.Work{CommonSpec: v1alpha1.CommonSpec{Rules: []v1alpha1.Rule{{Name: "r", For: "1m"}}}}
}

func anyRoom() bool { return true }

func TestRecordHold(t *testing.T) {
	for name, tc := range map[string]struct {
		reason string
		before map[string]Hold
		length time.Duration
		want   time.Time
	}{
		"New":          {"it begins now", nil, minute, at(100)},
		"Lasts":        {"it goes on", map[string]Hold{"k": {Since: at(10)}}, minute, at(10)},
		"Other":        {"another item has its own", map[string]Hold{"l": {Since: at(10)}}, minute, at(100)},
		"Ahead":        {"a clock was set back", map[string]Hold{"k": {Since: at(101)}}, minute, at(100)},
		"Blind":        {"nobody looked for a moment", map[string]Hold{"k": {Since: at(10), Blind: at(90)}}, minute, at(10)},
		"BlindTooLong": {"nobody looked for longer", map[string]Hold{"k": {Since: at(10), Blind: at(89)}}, minute, at(100)},
		"BlindShort":   {"a short `for` bears less", map[string]Hold{"k": {Since: at(10), Blind: at(96)}}, 12 * time.Second, at(100)},
		"BlindAhead":   {"a clock was set back since", map[string]Hold{"k": {Since: at(10), Blind: at(101)}}, minute, at(100)},
	} {
		t.Run(name, func(t *testing.T) {
			work := spec()
			holding := begun(work, tc.before).BeginRule(work, &work.Rules[0], at(100))
			since, ok := holding.RecordHold("k", tc.length, anyRoom)
			if !ok || !since.Equal(tc.want) {
				t.Errorf("%s: since %s, want %s (%t)", tc.reason, since, tc.want, ok)
			}
			if diff := cmp.Diff(map[stringhash.Sum]Hold{stringhash.SumOf("k"): {Since: tc.want}}, holding.ListHolds().Since); diff != "" {
				t.Errorf("-want +got\n%s", diff)
			}
			if again, ok := holding.RecordHold("k", tc.length, func() bool { return false }); !ok || !again.Equal(since) {
				t.Errorf("another item with this hold has it since %s (%t)", again, ok)
			}
		})
	}
}

// What has no room does not begin, and what has begun needs none.
func TestRecordHoldWithoutRoom(t *testing.T) {
	work, none := spec(), func() bool { return false }
	holding := begun(work, map[string]Hold{"k": {Since: at(10)}}).BeginRule(work, &work.Rules[0], at(100))
	if since, ok := holding.RecordHold("k", minute, none); !ok || !since.Equal(at(10)) {
		t.Errorf("what has begun lasts since %s (%t)", since, ok)
	}
	if since, ok := holding.RecordHold("l", minute, none); ok || !since.Equal(at(100)) {
		t.Errorf("what has no room lasts since %s (%t)", since, ok)
	}
	if n := len(holding.ListHolds().Since); n != 1 {
		t.Errorf("%d holds last", n)
	}
}

// Nobody can say whether it goes on: it neither begins nor ends, and what was seen counts.
func TestRecordUnknown(t *testing.T) {
	work := spec()
	before := begun(work, map[string]Hold{"k": {Since: at(10)}, "blind": {Since: at(10), Blind: at(90)}, "seen": {Since: at(10)}})
	was := maps.Clone(before["r"].Since)
	holding := before.BeginRule(work, &work.Rules[0], at(100))
	holding.RecordHold("seen", minute, anyRoom)
	for _, key := range []string{"k", "blind", "seen", "new"} {
		holding.RecordUnknown(key)
	}
	want := begun(work, map[string]Hold{"k": {Since: at(10), Blind: at(100)}, "blind": {Since: at(10), Blind: at(90)}, "seen": {Since: at(10)}})
	if diff := cmp.Diff(want["r"], holding.ListHolds()); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	if since, ok := holding.RecordHold("k", minute, anyRoom); !ok || !since.Equal(at(10)) || !holding.ListHolds().Since[stringhash.SumOf("k")].Blind.IsZero() {
		t.Errorf("another item of the hold was seen, and it lasts since %s (%t)", since, ok)
	}
	holding.DropHolds(map[string]bool{"k": true, "none": true})
	if _, there := holding.ListHolds().Since[stringhash.SumOf("k")]; there || len(holding.ListHolds().Since) != 2 {
		t.Errorf("it was not dropped alone: %v", holding.ListHolds())
	}
	if diff := cmp.Diff(was, before["r"].Since); diff != "" {
		t.Errorf("holds that were handed out were changed:\n%s", diff)
	}
}

func TestBlindAll(t *testing.T) {
	work := spec()
	before := begun(work, map[string]Hold{"k": {Since: at(10)}, "blind": {Since: at(10), Blind: at(90)}})
	want := begun(work, map[string]Hold{"k": {Since: at(10), Blind: at(100)}, "blind": {Since: at(10), Blind: at(90)}})
	if diff := cmp.Diff(want, before.BlindAll(at(100))); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	if diff := cmp.Diff(want["r"], before.BeginRule(work, &work.Rules[0], at(100)).ListUnknown()); diff != "" {
		t.Errorf("of one rule: -want +got\n%s", diff)
	}
	earlier := begun(work, map[string]Hold{"k": {Since: at(10), Blind: at(80)}, "blind": {Since: at(10), Blind: at(80)}})
	if diff := cmp.Diff(earlier, want.BlindAll(at(80))); diff != "" {
		t.Errorf("it has turned out that nobody has seen them for longer: -want +got\n%s", diff)
	}
	if got := Holds(nil).BlindAll(at(100)); got != nil {
		t.Errorf("none are %v", got)
	}
	if got := before.BeganAt(at(7)); got.CountHolds() != 2 || got["r"].Since[stringhash.SumOf("blind")] != (Hold{Since: at(7)}) || got["r"].Text != before["r"].Text {
		t.Errorf("from a moment on they are %v", got)
	}
	if n := before.Bytes(); n != 2*HoldBytes {
		t.Errorf("they take %d bytes", n)
	}
}

// What was edited begins anew: the rule, and all that its expressions read besides objects.
func TestBeginRule(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*v1alpha1.Work)
		lasts  bool
	}{
		"Same":       {func(*v1alpha1.Work) {}, true},
		"Conditions": {func(w *v1alpha1.Work) { w.Conditions = []string{"true"} }, true},
		"OtherRule":  {func(w *v1alpha1.Work) { w.Rules = append(w.Rules, v1alpha1.Rule{Name: "s"}) }, true},
		"Rule":       {func(w *v1alpha1.Work) { w.Rules[0].When = "true" }, false},
		"Name":       {func(w *v1alpha1.Work) { w.Rules[0].Name = "s" }, false},
		"Targets":    {func(w *v1alpha1.Work) { w.Targets = append(w.Targets, v1alpha1.ClusterTarget{Name: "pods"}) }, false},
		"Variables":  {func(w *v1alpha1.Work) { w.Variables = append(w.Variables, v1alpha1.Variable{Name: "v"}) }, false},
	} {
		before, work := begun(spec(), map[string]Hold{"k": {Since: at(10)}}), spec()
		tc.change(work)
		since, _ := before.BeginRule(work, &work.Rules[0], at(100)).RecordHold("k", minute, anyRoom)
		if lasts := since.Equal(at(10)); lasts != tc.lasts {
			t.Errorf("%s: it lasts since %s", name, since)
		}
	}
}

func TestBlindFor(t *testing.T) {
	for length, want := range map[time.Duration]time.Duration{0: 0, 4 * time.Second: time.Second, 40 * time.Second: MaxBlind, time.Hour: MaxBlind} {
		if got := BlindFor(length); got != want {
			t.Errorf("a hold of %s bears %s, want %s", length, got, want)
		}
	}
}

// What is unknown since an earlier moment is blind since then, and since the first of such moments.
func TestRecordUnknownSince(t *testing.T) {
	at := func(n int) time.Time { return time.Date(2026, 1, 1, 0, 0, n, 0, time.UTC) }
	work, rule := &v1alpha1.Work{}, &v1alpha1.Rule{Name: "r"}
	room := func() bool { return true }
	holds := Holds{}
	look := func(now int, do func(h *Holding)) {
		h := holds.BeginRule(work, rule, at(now))
		do(h)
		holds = Holds{"r": h.ListHolds()}
	}
	look(0, func(h *Holding) { h.RecordHold("x", time.Minute, room) })
	look(30, func(h *Holding) { h.RecordUnknownSince("x", at(22)) })
	look(31, func(h *Holding) { h.RecordUnknownSince("x", at(31)) })
	look(32, func(h *Holding) {
		if since, _ := h.RecordHold("x", time.Minute, room); !since.Equal(at(0)) {
			t.Errorf("10 s are not too long: it begins at %s", since)
		}
	})
	look(50, func(h *Holding) { h.RecordUnknownSince("x", at(45)) })
	look(56, func(h *Holding) {
		if since, _ := h.RecordHold("x", time.Minute, room); !since.Equal(at(56)) {
			t.Errorf("11 s are too long: it begins at %s", since)
		}
	})
}
