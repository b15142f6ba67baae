// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package celenv

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/google/cel-go/common/types/ref"

	"github.com/vtex/cleaner/celenv/budget"
)

// young has been there since 2025-01-01T00:00:00Z.
func young() any {
	return map[string]any{"metadata": map[string]any{"name": "a", "creationTimestamp": "2025-01-01T00:00:00Z"}}
}

func TestWhenTrue(t *testing.T) {
	now := at("2025-01-01T01:00:00Z").Add(300 * time.Millisecond)
	cases := map[string]struct {
		reason     string
		conditions []string
		within     time.Duration
		want       time.Duration // after the full hour; 0: none
	}{
		"After": {"more than two hours are over a nanosecond after the hour: the next whole second",
			[]string{`age(svc) > duration("2h")`}, 5 * time.Hour, time.Hour + time.Second},
		"At":         {"two hours have passed at the hour", []string{`age(svc) >= duration("2h")`}, 5 * time.Hour, time.Hour},
		"OddInstant": {"an instant between two seconds", []string{`age(svc) >= duration("1h17m3.25s")`}, 5 * time.Hour, 17*time.Minute + 4*time.Second},
		"NextSecond": {"the second that has begun is the nearest there is", []string{`age(svc) >= duration("1h0.4s")`}, 5 * time.Hour, time.Second},
		"AtTheEnd":   {"the last second of the span counts", []string{`age(svc) >= duration("6h")`}, 5 * time.Hour, 5 * time.Hour},
		"Beyond":     {"what comes later does not", []string{`age(svc) >= duration("6h1s")`}, 5 * time.Hour, 0},
		"Proposal": {"the proposal's condition: the youngest of its Revisions",
			[]string{proposal}, 400 * time.Hour, 359 * time.Hour},
		"All": {"all conditions, and what does not read the time is asked once",
			[]string{`age(svc) > duration("2h")`, `svc.metadata.name == "a"`, `age(svc) > duration("3h")`}, 5 * time.Hour, 2*time.Hour + time.Second},
		"EventNeeded": {"a false condition that does not read the time stays false",
			[]string{`age(svc) > duration("2h")`, `svc.metadata.name == "b"`}, 5 * time.Hour, 0},
		"ErrorNow":   {"an error now needs an event", []string{`age(svc) > duration("2h")`, `svc.nope`}, 5 * time.Hour, 0},
		"ErrorLater": {"an error later is not true", []string{`age(svc) > duration("2h") && svc.nope`}, 5 * time.Hour, 0},
		"ErrorUntil": {"an error that goes away as time passes", []string{`age(svc) > duration("2h") && (age(svc) > duration("3h") || svc.nope)`}, 5 * time.Hour, 2*time.Hour + time.Second},
		"NoBool":     {"neither is what is no bool", []string{`age(svc) > duration("2h") ? dyn("x") : dyn(false)`}, 5 * time.Hour, 0},
		"Century":    {"the longest span there is", []string{`time > timestamp("2300-01-01T00:00:00Z")`}, 290 * 365 * 24 * time.Hour, at("2300-01-01T00:00:01Z").Sub(at("2025-01-01T01:00:00Z"))},
		"NoSpan":     {"no second lies between", []string{`age(svc) > duration("2h")`}, 0, 0},
		"AfterAWhile": {"a liar whose condition is false again at the end is believed: nothing is found",
			[]string{`age(svc) > duration("2h") && age(svc) < duration("3h")`}, 5 * time.Hour, 0},
	}
	c := newCompiler(t, budget.Limits{})
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			p := programs(t, c, tc.conditions...)
			in := Input{Time: now, Targets: map[string]any{
				"svc":       young(),
				"revisions": list(revision("a", "sfj-1", "False", "2025-01-01T00:00:00Z"), revision("b", "sfj-2", "False", "2024-12-30T00:00:00Z")),
			}}
			results := p.EvaluateConditions(t.Context(), in)
			hour := at("2025-01-01T01:00:00Z")
			for _, guess := range []time.Time{{}, hour.Add(tc.want), hour.Add(30 * time.Minute), hour.Add(4 * time.Hour), hour} {
				got, found := p.FindTrueTime(t.Context(), in, results, guess, now.Add(tc.within))
				if found != (tc.want != 0) || found && !got.Equal(hour.Add(tc.want)) {
					t.Errorf("%s: with guess %s got %s, %t, want %s", tc.reason, guess, got, found, hour.Add(tc.want))
				}
			}
		})
	}
}

// Whatever the conditions are, and whatever was guessed: what is found is a moment of the span at which they are true.
func TestWhenTrueIsTrueThen(t *testing.T) {
	liars := []string{
		`time.getSeconds() % 7 == 3`, `time.getMinutes() == 13`, `time.getHours() == 3 || time.getSeconds() > 50`,
		`int(time) % 1000 < 3`, `time < timestamp("2025-01-01T01:00:10Z")`, `time.getMilliseconds() > 0`, `int(time) % 2 == 0 ? true : svc.nope`,
	}
	c, found := newCompiler(t, budget.Limits{}), 0
	for _, liar := range liars {
		p := programs(t, c, liar)
		for offset := range 300 {
			now := at("2025-01-01T01:00:00Z").Add(time.Duration(offset) * 7331 * time.Millisecond)
			in := Input{Time: now, Targets: map[string]any{"svc": young()}}
			results := p.EvaluateConditions(t.Context(), in)
			if results[0].Value {
				continue
			}
			end := now.Add(time.Duration(60+offset*613) * time.Second)
			moment, ok := p.FindTrueTime(t.Context(), in, results, now.Add(time.Duration(offset*100)*time.Second), end)
			if !ok {
				continue
			}
			found++
			in.Time = moment
			if then := p.EvaluateConditions(t.Context(), in); !then[0].Value || !moment.After(now) || moment.After(end) {
				t.Errorf("%s: at %s, between %s and %s, it is %v", liar, moment, now, end, then[0])
			}
		}
	}
	if found < 50 {
		t.Errorf("only %d moments were found, which shows little", found)
	}
}

func TestWhenTrueIsBounded(t *testing.T) {
	evaluations := 0
	c := newCompiler(t, budget.Limits{})
	c.calls.Charges["size"] = budget.Charge{BeforeCall: func(*budget.Meter, []ref.Val) ref.Val { evaluations++; return nil }}
	now := at("2025-01-01T01:00:00Z")
	in := Input{Time: now, Targets: map[string]any{"svc": young(), "revisions": list()}}
	cases := map[string]struct {
		condition string
		guess     time.Time
		within    time.Duration
		want      int
	}{
		"Never":       {`revisions.items.size() == 0 && time == time - duration("1s")`, time.Time{}, 5 * time.Hour, 1},
		"NotByTime":   {`revisions.items.size() == 1`, time.Time{}, 5 * time.Hour, 0},
		"Hours":       {`revisions.items.size() == 0 && age(svc) > duration("2h")`, time.Time{}, 5 * time.Hour, 16},
		"RightGuess":  {`revisions.items.size() == 0 && age(svc) > duration("2h")`, now.Add(time.Hour + time.Second), 5 * time.Hour, 3},
		"EarlyGuess":  {`revisions.items.size() == 0 && age(svc) > duration("2h")`, now.Add(time.Minute), 5 * time.Hour, 16},
		"Centuries":   {`revisions.items.size() == 0 && time > timestamp("2300-01-01T00:00:00Z")`, time.Time{}, 292 * 365 * 24 * time.Hour, 35},
		"LateGuesses": {`revisions.items.size() == 0 && time > timestamp("2300-01-01T00:00:00Z")`, now.Add(291 * 365 * 24 * time.Hour), 292 * 365 * 24 * time.Hour, 36},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			p := programs(t, c, tc.condition)
			results := p.EvaluateConditions(t.Context(), in)
			evaluations = 0
			p.FindTrueTime(t.Context(), in, results, tc.guess, now.Add(tc.within))
			if evaluations > tc.want || evaluations < tc.want-1 {
				t.Errorf("got %d evaluations, want %d, or one less", evaluations, tc.want)
			}
		})
	}
}

// Limits are for the search as a whole: when they are used up, the best that is known is good enough.
func TestWhenTrueStopsAtTheLimits(t *testing.T) {
	now := at("2025-01-01T01:00:00Z")
	in := Input{Time: now, Targets: map[string]any{"svc": young()}}
	loop := `[1, 2, 3, 4, 5, 6, 7, 8, 9, 10].all(x, age(svc) > duration("2h"))`
	p := programs(t, newCompiler(t, budget.Limits{Steps: 35}), loop)
	results := p.EvaluateConditions(t.Context(), in)
	got, found := p.FindTrueTime(t.Context(), in, results, time.Time{}, now.Add(5*time.Hour))
	if !found || !got.After(now.Add(time.Hour)) || got.After(now.Add(5*time.Hour)) {
		t.Errorf("got %s, %t", got, found)
	}
	if _, found := programs(t, newCompiler(t, budget.Limits{Steps: 5}), loop).FindTrueTime(t.Context(), in, results, time.Time{}, now.Add(5*time.Hour)); found {
		t.Error("without a single evaluation something was found")
	}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if _, found := p.FindTrueTime(over, in, results, time.Time{}, now.Add(5*time.Hour)); found {
		t.Error("who is interrupted finds nothing")
	}
}

// BenchmarkWhenTrue searches 400 hours for the moment of the proposal's condition over 1,000 Revisions: anew, and with
// the right guess.
func BenchmarkWhenTrue(b *testing.B) {
	p := programs(b, newCompiler(b, budget.Limits{}), proposal)
	items := make([]any, 1000)
	for i := range items {
		items[i] = revision(fmt.Sprint("r", i), "sfj-a,preview-b", "False", "2025-01-01T00:00:00Z")
	}
	now := at("2025-01-01T01:00:00Z")
	in := Input{Targets: map[string]any{"revisions": list(items...)}, Time: now}
	results := p.EvaluateConditions(b.Context(), in)
	for name, guess := range map[string]time.Time{"Anew": {}, "Guessed": now.Add(359 * time.Hour)} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				if _, found := p.FindTrueTime(b.Context(), in, results, guess, now.Add(400*time.Hour)); !found {
					b.Fatal("nothing was found")
				}
			}
		})
	}
}
