// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/controllers/plan/fortimers"
	"github.com/vtex/cleaner/controllers/plan/observed"
)

// aged is a Pod that was created with the Cleaner.
func aged(o *observed.Object) {
	o.Value["metadata"].(map[string]any)["creationTimestamp"] = born.Format(time.RFC3339)
}

func timed(period v1alpha1.Duration, conditions ...string) v1alpha1.Work {
	return v1alpha1.Work{
		CommonSpec: v1alpha1.CommonSpec{Retry: &v1alpha1.Retry{Period: period}, Conditions: conditions},
		Targets:    []v1alpha1.ClusterTarget{podTarget("pods", deleted)},
	}
}

func monotonic(period v1alpha1.Duration, conditions ...string) v1alpha1.Work {
	w := timed(period, conditions...)
	w.Retry.Monotonic = true
	return w
}

func TestNextIsTheMomentAtWhichTimeAloneDecides(t *testing.T) {
	// An author's word is only needed for what cannot be solved.
	unsolvable := `pods.items.all(p, string(time) > string(timestamp(p.metadata.creationTimestamp) + duration("26h")))`
	solvable := `pods.items.all(p, age(p) > duration("26h"))`
	cases := map[string]struct {
		reason string
		spec   v1alpha1.Work
		change func(*Input)
		want   time.Duration // after the Cleaner's creation, which was a day ago
		flip   bool          // and it is exactly known
	}{
		"Solved": {
			reason: "it is evaluated again when time alone makes the conditions true",
			spec:   timed("5h", solvable),
			want:   26*time.Hour + 1, flip: true,
		},
		"SolvedWithAWord": {
			reason: "whatever the author says",
			spec:   monotonic("5h", solvable),
			want:   26*time.Hour + 1, flip: true,
		},
		"AfterThePeriod": {
			reason: "retry.period stays the longest time between two evaluations",
			spec:   timed("5h", `pods.items.all(p, age(p) > duration("30h"))`),
			want:   29 * time.Hour,
		},
		"OneOfTwo": {
			reason: "each answer counts, whatever the others are",
			spec:   timed("5h", solvable, "pods.items.size() == 0"),
			want:   26*time.Hour + 1, flip: true,
		},
		"EventNeeded": {
			reason: "what time cannot change waits for the period",
			spec:   timed("5h", "pods.items.size() == 0", `age(pods.items[0]) > duration("1h")`),
			want:   29 * time.Hour,
		},
		"Error": {
			reason: "and so does an error",
			spec:   timed("5h", `pods.items.all(p, p.spec.x == "")`, `age(pods.items[0]) > duration("1h")`),
			want:   29 * time.Hour,
		},
		"ErrorUntil": {
			reason: "unless time ends it",
			spec:   timed("5h", `pods.items.all(p, age(p) > duration("26h") || p.spec.x == "")`),
			want:   26*time.Hour + 1, flip: true,
		},
		"SolvedClockAhead": {
			reason: "a clock that is ahead has to wait longer",
			spec:   timed("5h", solvable),
			change: func(in *Input) { in.Clock.Ahead = 30 * time.Second },
			want:   26*time.Hour + 30*time.Second + 1, flip: true,
		},
		"SolvedForAWhile": {
			reason: "a condition that is true for a while only is found, too",
			spec:   timed("5h", `pods.items.all(p, age(p) > duration("26h") && age(p) < duration("27h"))`),
			want:   26*time.Hour + 1, flip: true,
		},
		"NotSolved": {
			reason: "what cannot be solved waits for the period",
			spec:   timed("5h", unsolvable),
			want:   29 * time.Hour,
		},
		"PartlySolved": {
			reason: "but for what can",
			spec:   timed("5h", unsolvable, solvable),
			want:   26*time.Hour + 1,
		},
		"Found": {
			reason: "with the author's word it is looked for",
			spec:   monotonic("5h", unsolvable),
			want:   26*time.Hour + time.Second,
		},
		"Guessed": {
			reason: "what was found before changes nothing but the cost",
			spec:   monotonic("5h", unsolvable),
			change: func(in *Input) { in.Expected = born.Add(26*time.Hour + time.Second) },
			want:   26*time.Hour + time.Second,
		},
		"GuessedWrong": {
			reason: "even if it is wrong now",
			spec:   monotonic("5h", unsolvable),
			change: func(in *Input) { in.Expected = born.Add(28 * time.Hour) },
			want:   26*time.Hour + time.Second,
		},
		"ClockAhead": {
			reason: "and by which clock the moment is",
			spec:   monotonic("5h", unsolvable),
			change: func(in *Input) { in.Clock.Ahead = 30 * time.Second },
			want:   26*time.Hour + 31*time.Second,
		},
		"NotFound": {
			reason: "a condition that is false at the end of the period is taken to be false until then",
			spec:   monotonic("5h", unsolvable, `pods.items.all(p, age(p) < duration("27h"))`),
			want:   29 * time.Hour,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			in := input(t, &tc.spec, seen(pod("a", aged)))
			if tc.change != nil {
				tc.change(&in)
			}
			p := ComputePlan(t.Context(), in)
			if got := p.NextEvaluation().Sub(born); p.Verdict != v1alpha1.VerdictWait || got != tc.want {
				t.Errorf("%s: got %s and %s, want %s", tc.reason, p.Verdict, got, tc.want)
			}
			if tc.flip != p.FlipsAt.Equal(p.Next) {
				t.Errorf("next is %s, and the flip %s", p.Next, p.FlipsAt)
			}
			if diff := cmp.Diff(p, ComputePlan(t.Context(), in)); diff != "" {
				t.Errorf("equal inputs gave different plans:\n%s", diff)
			}
		})
	}
}

// What is asked about items has its moment as what conditions say has: each item its own, and the earliest counts.
func TestLookIsTheMomentAtWhichTimeAloneChangesAnItem(t *testing.T) {
	older := func(hours int) func(*observed.Object) {
		return func(o *observed.Object) {
			o.Value["apiVersion"], o.Value["kind"] = "v1", "Pod"
			metadata := o.Value["metadata"].(map[string]any)
			metadata["namespace"], metadata["creationTimestamp"] = "shop", born.Add(-time.Duration(hours)*time.Hour).Format(time.RFC3339)
		}
	}
	rule := func(change func(*v1alpha1.Rule)) v1alpha1.Work {
		r := v1alpha1.Rule{Name: "old", ForEach: "pods.items", When: `age(item) >= duration("30h")`, Actions: []v1alpha1.RuleAction{{Delete: &v1alpha1.DeleteAction{}}}}
		change(&r)
		return v1alpha1.Work{
			CommonSpec: v1alpha1.CommonSpec{Lifecycle: v1alpha1.LifecycleRecurring, Retry: &v1alpha1.Retry{Period: "5h"}, Rules: []v1alpha1.Rule{r}},
			Targets:    []v1alpha1.ClusterTarget{podTarget("pods")},
		}
	}
	cases := map[string]struct {
		change     func(*v1alpha1.Rule)
		ahead      time.Duration
		conditions []string
		want       time.Duration // after now
	}{
		// b is due, c in 3h, a in 6h.
		"When":    {change: func(*v1alpha1.Rule) {}, want: 3 * time.Hour},
		"Unless":  {change: func(r *v1alpha1.Rule) { r.When, r.Unless = "true", `age(item) < duration("28h")` }, want: time.Hour},
		"ForEach": {change: func(r *v1alpha1.Rule) { r.ForEach, r.When = `pods.items.filter(p, age(p) > duration("30h"))`, "true" }, want: 3*time.Hour + 1},
		"Keep": {change: func(r *v1alpha1.Rule) {
			r.Keep = new(intstr.FromString("time < timestamp('2026-01-02T02:00:00Z') ? 2 : 1"))
		}, want: 2 * time.Hour},
		"Never":      {change: func(r *v1alpha1.Rule) { r.When = "item.metadata.name == 'a'" }, want: 5 * time.Hour},
		"Unknown":    {change: func(r *v1alpha1.Rule) { r.When = "string(age(item)).size() > 100" }, want: 5 * time.Hour},
		"Held":       {change: func(r *v1alpha1.Rule) { r.For = "2h" }, want: 2 * time.Hour},
		"HeldLonger": {change: func(r *v1alpha1.Rule) { r.For = "4h" }, want: 3 * time.Hour},
		"ClockAhead": {change: func(*v1alpha1.Rule) {}, ahead: 30 * time.Second, want: 3*time.Hour + 30*time.Second},
		"GateCloses": {change: func(r *v1alpha1.Rule) { r.When = "item.metadata.name == 'b'" }, conditions: []string{"time < timestamp('2026-01-02T01:00:00Z')"}, want: time.Hour},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			spec := rule(tc.change)
			spec.Conditions = tc.conditions
			in := input(t, &spec, seen(pod("a", older(0)), pod("b", older(7)), pod("c", older(3))))
			in.Clock.Ahead = tc.ahead
			p := ComputePlan(t.Context(), in)
			if got := p.NextEvaluation().Sub(in.Now); got != tc.want {
				t.Errorf("%s %s: it is looked again after %s, want %s", p.Verdict, p.Message, got, tc.want)
			}
			if !p.FlipsAt.IsZero() {
				t.Errorf("people are told of %s", p.FlipsAt)
			}
		})
	}
}

// The word of an author that is wrong costs time, and never an object: at the moment that was found the conditions
// decide, and they are asked about that moment.
func TestAWrongWordDeletesNothing(t *testing.T) {
	spec := monotonic("5h", `pods.items.all(p, age(p) > duration("26h")) && time.getMinutes() < 30`)
	in := input(t, &spec, seen(pod("a", aged)))
	for range 40 {
		p := ComputePlan(t.Context(), in)
		if due := in.Now.Sub(born) > 26*time.Hour && in.Now.Minute() < 30; due != (p.Verdict == v1alpha1.VerdictAct) {
			t.Fatalf("at %s: %s", in.Now, p.Verdict)
		}
		next := p.NextEvaluation()
		if !next.After(in.Now) || next.Sub(in.Now) > 5*time.Hour {
			t.Fatalf("at %s the next evaluation is at %s", in.Now, next)
		}
		in.Now, in.Expected = next.Add(7*time.Minute), p.Next
	}
}

// The moment at which time alone changes a plan is told to the nanosecond, however long the period is, and apart from the safety period.
func TestNextChangeIsExact(t *testing.T) {
	day := 24 * time.Hour
	for name, tc := range map[string]struct {
		reason string
		rule   v1alpha1.Rule
		want   time.Duration // after the birth of the Pods; zero: never
	}{
		"Moment":  {"a moment is over a nanosecond later", rule(func(r *v1alpha1.Rule) { r.When = `time > timestamp("2026-02-01T00:00:00Z")` }), 31*day + 1},
		"For":     {"a timer ends", rule(func(r *v1alpha1.Rule) { r.For = "12d" }), 13 * day},
		"Never":   {"no time is read", rule(), 0},
		"Unknown": {"it cannot be predicted", rule(func(r *v1alpha1.Rule) { r.When = `string(time) == "2026-02-01T00:00:00Z"` }), 0},
	} {
		t.Run(name, func(t *testing.T) {
			in := over(t, cluster(tc.rule), p("a"))
			in.Now = born.Add(day)
			got := ComputePlan(t.Context(), in)
			want := time.Time{}
			if tc.want != 0 {
				want = born.Add(tc.want)
			}
			if !got.NextChange.Equal(want) || !got.Recheck.Equal(in.Now.Add(v1alpha1.DefaultRetryPeriod)) {
				t.Errorf("%s: next is %s, and not %s; recheck is %s", tc.reason, got.NextChange, want, got.Recheck)
			}
		})
	}
}

func TestData(t *testing.T) {
	spec := func(data string, change ...func(*v1alpha1.Work)) v1alpha1.Work {
		s := v1alpha1.Work{CommonSpec: v1alpha1.CommonSpec{TTL: "0s", CloudEventData: data}, Targets: []v1alpha1.ClusterTarget{podTarget("pods", deleted)}}
		for _, c := range change {
			c(&s)
		}
		return s
	}
	type want struct {
		Verdict      v1alpha1.Verdict
		Reason, Data string
	}
	cases := map[string]struct {
		reason string
		spec   v1alpha1.Work
		want   want
		says   string
	}{
		"Value": {
			reason: "the value goes with the plan",
			spec:   spec(`{"pods": pods.items.map(p, p.metadata.name)}`),
			want:   want{v1alpha1.VerdictAct, v1alpha1.ReasonConditionsMet, `{"pods":["a"]}`},
		},
		"NotYet": {
			reason: "it is not asked for before it is needed",
			spec:   spec("pods.items[7]", func(s *v1alpha1.Work) { s.Conditions = []string{"false"} }),
			want:   want{Verdict: v1alpha1.VerdictWait, Reason: v1alpha1.ReasonConditionsNotMet},
		},
		"Error": {
			reason: "an error blocks",
			spec:   spec("pods.items[7]"),
			want:   want{Verdict: v1alpha1.VerdictBlocked, Reason: v1alpha1.ReasonEvaluationFailed},
			says:   "spec.cloudEventData at 1:11: index out of bounds: 7",
		},
		"DryRun": {
			reason: "in a dry run too",
			spec:   spec("pods.items[7]", func(s *v1alpha1.Work) { s.Mode = v1alpha1.ModeDryRun }),
			want:   want{Verdict: v1alpha1.VerdictBlocked, Reason: v1alpha1.ReasonEvaluationFailed},
			says:   "spec.cloudEventData",
		},
		"TooLarge": {
			reason: "and so does a value that a run cannot hold",
			spec:   spec(`lists.range(10000)`),
			want:   want{Verdict: v1alpha1.VerdictBlocked, Reason: v1alpha1.ReasonEvaluationFailed},
			says:   "spec.cloudEventData at 1:7: the value has more than 8192 bytes as JSON",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			in := input(t, &tc.spec, seen(pod("a")))
			p := ComputePlan(t.Context(), in)
			if diff := cmp.Diff(tc.want, want{p.Verdict, p.Reason, p.Data}); diff != "" || !strings.Contains(p.Message, tc.says) {
				t.Errorf("%s:\n-want +got\n%s%s", tc.reason, diff, p.Message)
			}
		})
	}
}

func TestAClockThatCannotBeTrusted(t *testing.T) {
	spec := v1alpha1.Work{CommonSpec: v1alpha1.CommonSpec{TTL: "1h"}, Targets: []v1alpha1.ClusterTarget{podTarget("pods", deleted)}}
	in := input(t, &spec, seen(pod("a")))
	in.Clock.Suspect = "the clocks differ"
	want := Plan{Verdict: v1alpha1.VerdictWait, Reason: v1alpha1.ReasonClockSkewSuspected, Message: "the clocks differ"}
	if diff := cmp.Diff(want, ComputePlan(t.Context(), in)); diff != "" {
		t.Errorf("nothing may be decided (-want +got):\n%s", diff)
	}
	spec.Suspend = true
	if p := ComputePlan(t.Context(), in); p.Reason != v1alpha1.ReasonSuspended {
		t.Errorf("what is suspended is not decided on anyway, and says %s", p.Reason)
	}
}

// The ttl has passed when it has by both clocks.
func TestTTLByBothClocks(t *testing.T) {
	spec := v1alpha1.Work{CommonSpec: v1alpha1.CommonSpec{TTL: "1h"}, Targets: []v1alpha1.ClusterTarget{podTarget("pods", deleted)}}
	in := input(t, &spec, seen(pod("a")))
	in.Clock.Ahead = 20 * time.Second
	in.Now = born.Add(time.Hour + 19*time.Second)
	p := ComputePlan(t.Context(), in)
	if due := born.Add(time.Hour + 20*time.Second); p.Reason != v1alpha1.ReasonWaitingForTTL || !p.Next.Equal(due) {
		t.Errorf("a clock that is 20s ahead says %s, and looks again at %s, want %s", p.Reason, p.Next, due)
	}
	in.Now = p.Next
	if p := ComputePlan(t.Context(), in); p.Verdict != v1alpha1.VerdictAct {
		t.Errorf("when it looks again it says %s", p.Reason)
	}
}

// Until then time alone changes none of the answers of rules, so that what held goes on to hold if nothing else happens.
func TestSteady(t *testing.T) {
	later := func(when string) *v1alpha1.Work {
		return cluster(rule(func(r *v1alpha1.Rule) { r.When, r.For = when, "1h" }))
	}
	cases := map[string]struct {
		reason string
		work   *v1alpha1.Work
		change func(*Input)
		want   time.Duration // from now; -1: they are not asked
		look   time.Duration // from now; 0: not before the next one
	}{
		"NoTime":     {reason: "what does not read the time stays", work: later("true"), want: always},
		"Foreseen":   {reason: "what reads it changes when that is foreseen", work: later(`time < timestamp("` + born.Add(30*time.Hour).Format(time.RFC3339) + `")`), want: 6 * time.Hour},
		"NoMore":     {reason: "what has changed for good stays", work: later(`time > timestamp("` + born.Format(time.RFC3339) + `")`), want: always},
		"ClockAhead": {reason: "by our clock", work: later(`time < timestamp("` + born.Add(30*time.Hour).Format(time.RFC3339) + `")`), change: func(in *Input) { in.Clock.Ahead = time.Minute }, want: 6*time.Hour + time.Minute},
		"Unforeseen": {reason: "nobody knows of what cannot be foreseen", work: later(`string(time) > "3"`)},
		"UnforeseenPatch": {reason: "what is written is none of what holds", work: cluster(rule(func(r *v1alpha1.Rule) {
			r.When, r.For, r.Actions = "true", "1s", []v1alpha1.RuleAction{{Patch: &v1alpha1.PatchAction{Type: v1alpha1.PatchMerge, Expression: `{"data": {"at": string(time)}}`}}}
		})), change: func(in *Input) {
			in.Holds = ComputePlan(t.Context(), *in).Holds
			in.Now = in.Now.Add(time.Minute)
		}, want: always},
		"Waiting":      {reason: "what waits is looked at soon then", work: later(`string(time) > "2"`), look: fortimers.MaxBlind / 2},
		"WaitingFor8s": {reason: "and sooner the less it waits", work: cluster(rule(func(r *v1alpha1.Rule) { r.When, r.For = `string(time) > "2"`, "8s" })), look: time.Second},
		"Closed": {reason: "rules are not asked while the conditions do not hold", work: func() *v1alpha1.Work {
			w := later("true")
			w.Conditions = []string{"false"}
			return w
		}(), want: -1},
		"NotRead": {reason: "nor while nobody knows what there is", work: later("true"), change: func(in *Input) { in.Snapshot[0].State = observed.Unsynced }, want: -1},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			in := over(t, tc.work, p("a"))
			in.Now = born.Add(24 * time.Hour)
			if tc.change != nil {
				tc.change(&in)
			}
			got := ComputePlan(t.Context(), in)
			if tc.want < 0 && !got.Steady.IsZero() || tc.want >= 0 && !got.Steady.Equal(in.Now.Add(tc.want)) {
				t.Errorf("%s: got %s, which is %s from now, want %s", tc.reason, got.Steady, got.Steady.Sub(in.Now), tc.want)
			}
			if tc.look != 0 && !got.NextCheck.Equal(in.Now.Add(tc.look)) {
				t.Errorf("%s: it is looked at again %s from now, want %s", tc.reason, got.NextCheck.Sub(in.Now), tc.look)
			}
			ended, cancel := context.WithCancel(t.Context())
			cancel()
			if got := ComputePlan(ended, in); !got.Steady.IsZero() {
				t.Errorf("of an evaluation that was interrupted: %s", got.Steady)
			}
		})
	}
}

// A step says for how long the hold of each of its items may be blind. With several items it is the shortest time.
func TestStepsSayHowBlindHoldsMayBe(t *testing.T) {
	for name, tc := range map[string]struct {
		length string
		want   time.Duration
	}{
		"NoFor":    {"", 0},
		"Long":     {"1h", fortimers.MaxBlind},
		"Short":    {"20s", 5 * time.Second},
		"Shortest": {`item.metadata.name == "a" ? duration("20s") : duration("12s")`, 3 * time.Second},
	} {
		work := cluster(rule(func(r *v1alpha1.Rule) {
			r.When, r.For, r.Actions = "true", tc.length, []v1alpha1.RuleAction{patches(`{"metadata": {"labels": {"old": string(items.size())}}}`)}
			r.ForEach, r.Actions[0].Object = `pods.items.filter(p, p.metadata.name != "c")`, `pods.items.filter(p, p.metadata.name == "c")[0]`
		}))
		in := over(t, work, p("a"), p("b"), p("c"))
		in.Holds = ComputePlan(t.Context(), in).Holds
		in.Now = in.Now.Add(time.Hour)
		steps := ComputePlan(t.Context(), in).Steps
		if len(steps) != 1 || steps[0].BlindFor != tc.want {
			t.Errorf("%s: %v may be blind for %s, want %s", name, shorts(steps), steps[0].BlindFor, tc.want)
		}
	}
}

// A plan names the parts of the spec that cannot be predicted, and no others.
func TestUnpredictable(t *testing.T) {
	unsolvable, solvable := `string(time) > "3"`, `age(item) > duration("26h")`
	named := func(name, when string) v1alpha1.Rule {
		return v1alpha1.Rule{Name: name, ForEach: "pods.items", When: when, Actions: []v1alpha1.RuleAction{{Report: &v1alpha1.ReportAction{}}}}
	}
	for name, tc := range map[string]struct {
		conditions []string
		rules      []v1alpha1.Rule
		want       Unpredictable
		predicted  bool // that the Pod is old enough
	}{
		"None":            {conditions: []string{"time > timestamp('2000-01-01T00:00:00Z')"}, rules: []v1alpha1.Rule{named("a", solvable)}, predicted: true},
		"One":             {rules: []v1alpha1.Rule{named("a", solvable), named("b", unsolvable), named("c", "true")}, want: Unpredictable{Rules: []string{"b"}}, predicted: true},
		"Several":         {rules: []v1alpha1.Rule{named("a", unsolvable), named("b", solvable), named("c", unsolvable)}, want: Unpredictable{Rules: []string{"a", "c"}}, predicted: true},
		"Conditions":      {conditions: []string{`string(time) > "1"`}, rules: []v1alpha1.Rule{named("a", solvable)}, want: Unpredictable{Conditions: true}, predicted: true},
		"FalseConditions": {conditions: []string{unsolvable}, rules: []v1alpha1.Rule{named("a", unsolvable)}, want: Unpredictable{Conditions: true}},
	} {
		t.Run(name, func(t *testing.T) {
			w := cluster(tc.rules...)
			w.Conditions = tc.conditions
			in := over(t, w, pod("a", aged))
			in.Now = born.Add(24 * time.Hour)
			got := ComputePlan(t.Context(), in)
			if right := tc.predicted && got.FirstChange.Equal(born.Add(26*time.Hour+1)); right != tc.predicted {
				t.Errorf("it predicts %s", got.FirstChange)
			}
			if diff := cmp.Diff(tc.want, got.Unpredictable); diff != "" || got.Unpredictable.IsAny() != (name != "None") {
				t.Errorf("%s (%s): -want +got\n%s", got.Reason, got.Message, diff)
			}
		})
	}
}
