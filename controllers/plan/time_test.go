// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vtex/cleaner/api/v1alpha1"
)

// aged is a Pod that was created with the Cleaner.
func aged(o *Object) {
	o.Value["metadata"].(map[string]any)["creationTimestamp"] = born.Format(time.RFC3339)
}

func monotonic(period v1alpha1.Duration, conditions ...string) v1alpha1.Work {
	return v1alpha1.Work{
		CommonSpec: v1alpha1.CommonSpec{
			Retry:      &v1alpha1.Retry{Period: period, Monotonic: true},
			Conditions: conditions,
		},
		Targets: []v1alpha1.ClusterTarget{podTarget("pods", deleted)},
	}
}

func TestNextIsTheMomentAtWhichTimeAloneDecides(t *testing.T) {
	cases := map[string]struct {
		reason string
		spec   v1alpha1.Work
		change func(*Input)
		want   time.Duration // after the Cleaner's creation, which was a day ago
	}{
		"Found": {
			reason: "it is evaluated again when time alone makes the conditions true",
			spec:   monotonic("5h", `pods.items.all(p, age(p) > duration("26h"))`),
			want:   26*time.Hour + time.Second,
		},
		"NotAsserted": {
			reason: "without the author's word nothing is searched",
			spec: func() v1alpha1.Work {
				s := monotonic("5h", `pods.items.all(p, age(p) > duration("26h"))`)
				s.Retry.Monotonic = false
				return s
			}(),
			want: 29 * time.Hour,
		},
		"AfterThePeriod": {
			reason: "retry.period stays the longest time between two evaluations",
			spec:   monotonic("5h", `pods.items.all(p, age(p) > duration("30h"))`),
			want:   29 * time.Hour,
		},
		"EventNeeded": {
			reason: "what time cannot change waits for the period",
			spec:   monotonic("5h", `pods.items.all(p, age(p) > duration("26h"))`, "pods.items.size() == 0"),
			want:   29 * time.Hour,
		},
		"Error": {
			reason: "and so does an error",
			spec:   monotonic("5h", `pods.items.all(p, age(p) > duration("26h"))`, `pods.items.all(p, p.spec.x == "")`),
			want:   29 * time.Hour,
		},
		"Guessed": {
			reason: "what was found before changes nothing but the cost",
			spec:   monotonic("5h", `pods.items.all(p, age(p) > duration("26h"))`),
			change: func(in *Input) { in.Expected = born.Add(26*time.Hour + time.Second) },
			want:   26*time.Hour + time.Second,
		},
		"GuessedWrong": {
			reason: "even if it is wrong now",
			spec:   monotonic("5h", `pods.items.all(p, age(p) > duration("26h"))`),
			change: func(in *Input) { in.Expected = born.Add(28 * time.Hour) },
			want:   26*time.Hour + time.Second,
		},
		"ClockAhead": {
			reason: "a clock that is ahead has to wait longer",
			spec:   monotonic("5h", `pods.items.all(p, age(p) > duration("26h"))`),
			change: func(in *Input) { in.Clock.Ahead = 30 * time.Second },
			want:   26*time.Hour + 31*time.Second,
		},
		"Never": {
			reason: "a condition that is false at the end of the period is taken to be false until then",
			spec:   monotonic("5h", `pods.items.all(p, age(p) > duration("26h") && age(p) < duration("27h"))`),
			want:   29 * time.Hour,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			in := input(t, &tc.spec, seen(pod("a", aged)))
			if tc.change != nil {
				tc.change(&in)
			}
			p := Compute(t.Context(), in)
			if got := p.Next.Sub(born); p.Verdict != v1alpha1.VerdictWait || got != tc.want {
				t.Errorf("%s: got %s and %s, want %s", tc.reason, p.Verdict, got, tc.want)
			}
			if diff := cmp.Diff(p, Compute(t.Context(), in)); diff != "" {
				t.Errorf("equal inputs gave different plans:\n%s", diff)
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
		p := Compute(t.Context(), in)
		if due := in.Now.Sub(born) > 26*time.Hour && in.Now.Minute() < 30; due != (p.Verdict == v1alpha1.VerdictAct) {
			t.Fatalf("at %s: %s", in.Now, p.Verdict)
		}
		if !p.Next.After(in.Now) || p.Next.Sub(in.Now) > 5*time.Hour {
			t.Fatalf("at %s the next evaluation is at %s", in.Now, p.Next)
		}
		in.Now, in.Expected = p.Next.Add(7*time.Minute), p.Next
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
			p := Compute(t.Context(), in)
			if diff := cmp.Diff(tc.want, want{p.Verdict, p.Reason, p.Data}); diff != "" || !strings.Contains(p.Message, tc.says) {
				t.Errorf("%s:\n-want +got\n%s%s", tc.reason, diff, p.Message)
			}
		})
	}
}

// What was evaluated at the decision is recorded with the run, and stays there when it is finished.
func TestDataIsRecorded(t *testing.T) {
	run, m := Commit(&v1alpha1.CleanerStatus{}, nil, "v1:0", Plan{Data: `{"a":1}`}, born)
	if run.Data != `{"a":1}` {
		t.Errorf("the run has %q", run.Data)
	}
	if done := Finish(run, m, v1alpha1.ResultCompleted, "", born); done.Data != run.Data {
		t.Errorf("the finished run has %q", done.Data)
	}
}

func TestAClockThatCannotBeTrusted(t *testing.T) {
	spec := v1alpha1.Work{CommonSpec: v1alpha1.CommonSpec{TTL: "1h"}, Targets: []v1alpha1.ClusterTarget{podTarget("pods", deleted)}}
	in := input(t, &spec, seen(pod("a")))
	in.Clock.Suspect = "the clocks differ"
	want := Plan{Verdict: v1alpha1.VerdictWait, Reason: v1alpha1.ReasonClockSkewSuspected, Message: "the clocks differ"}
	if diff := cmp.Diff(want, Compute(t.Context(), in)); diff != "" {
		t.Errorf("nothing may be decided (-want +got):\n%s", diff)
	}
	spec.Suspend = true
	if p := Compute(t.Context(), in); p.Reason != v1alpha1.ReasonSuspended {
		t.Errorf("what is suspended is not decided on anyway, and says %s", p.Reason)
	}
}

// The ttl has passed when it has by both clocks.
func TestTTLByBothClocks(t *testing.T) {
	spec := v1alpha1.Work{CommonSpec: v1alpha1.CommonSpec{TTL: "1h"}, Targets: []v1alpha1.ClusterTarget{podTarget("pods", deleted)}}
	in := input(t, &spec, seen(pod("a")))
	in.Clock.Ahead = 20 * time.Second
	in.Now = born.Add(time.Hour + 19*time.Second)
	p := Compute(t.Context(), in)
	if due := born.Add(time.Hour + 20*time.Second); p.Reason != v1alpha1.ReasonWaitingForTTL || !p.Next.Equal(due) {
		t.Errorf("a clock that is 20s ahead says %s, and looks again at %s, want %s", p.Reason, p.Next, due)
	}
	in.Now = p.Next
	if p := Compute(t.Context(), in); p.Verdict != v1alpha1.VerdictAct {
		t.Errorf("when it looks again it says %s", p.Reason)
	}
}

// A run that is open takes no step while the clock cannot be trusted, but for its end when the Cleaner is deleted or
// edited.
func TestAnOpenRunAndAClockThatCannotBeTrusted(t *testing.T) {
	run, m := Commit(&v1alpha1.CleanerStatus{}, nil, "v1:0", Plan{Steps: []Step{{Rule: "targets.pods", Object: pod("a")}}}, born)
	c := &v1alpha1.Cleaner{Status: v1alpha1.CleanerStatus{Run: run}}
	v := View{Cleaner: c, Helm: c.Spec.Helm, Decides: "v1:0", Now: born}
	if got := Next(v, m); got.Kind == Idle {
		t.Fatalf("the run has nothing to do, so this shows nothing: %+v", got)
	}
	v.ClockSuspect = true
	want := Request{Kind: Idle, Reason: v1alpha1.ReasonClockSkewSuspected, Until: born.Add(ClockRetry)}
	if diff := cmp.Diff(want, Next(v, m)); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	v.Decides = "v1:1"
	if got := Next(v, m); got.Kind == Idle || got.Kind == DeleteRows {
		t.Errorf("an edit asks for %s", got.Kind)
	}

	// A release that is uninstalling is finished, but not now.
	v.Decides = "v1:0"
	run.Helm = &v1alpha1.HelmRelease{Name: "r", Revision: 1, UID: "u", FirstDeployed: metav1.NewMicroTime(born)}
	m.Release = &Release{State: ReleaseUninstalling, Name: "r", Revision: 1, UID: "u", FirstDeployed: born}
	c.DeletionTimestamp, v.FinishGrace = &metav1.Time{Time: born}, time.Minute
	if diff := cmp.Diff(want, Next(v, m)); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	v.ClockSuspect = false
	if got := Next(v, m); got.Kind != FinishUninstall {
		t.Errorf("when the clock is right it asks for %s", got.Kind)
	}
}
