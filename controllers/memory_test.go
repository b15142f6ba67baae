// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"fmt"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/celenv"
	"github.com/vtex/cleaner/controllers/internal/resolvedspec"
	"github.com/vtex/cleaner/controllers/plan"
	"github.com/vtex/cleaner/controllers/snapshot"
)

func TestPausesGrowUntilTheAuthorAsksAgain(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	m := newMemory("uid", mine)
	c := &v1alpha1.Cleaner{ObjectMeta: metav1.ObjectMeta{Generation: 1}}
	m.resumeReads(fmt.Sprint(c.Generation), c)
	said := plan.Plan{Reason: "Because"}
	for _, want := range []time.Duration{1, 2, 4, 8, 10, 10} {
		got := m.backOffReads(said, &m.disagreed, 10*time.Second, now)
		if got.Next != now.Add(want*time.Second) || m.paused.Reason != "Because" {
			t.Fatalf("it waits until %s, want %s", got.Next, now.Add(want*time.Second))
		}
		m.resumeReads(fmt.Sprint(c.Generation), c)
	}
	if m.retryAt.IsZero() {
		t.Error("a pass without news ends the pause")
	}
	c.Annotations = map[string]string{v1alpha1.AnnotationRequestedAt: "now"}
	if m.resumeReads(fmt.Sprint(c.Generation), c); !m.retryAt.IsZero() {
		t.Error("the annotation does not end the pause")
	}
	m.backOffReads(said, &m.disagreed, time.Minute, now)
	c.Generation = 2
	if m.resumeReads(fmt.Sprint(c.Generation), c); !m.retryAt.IsZero() || m.disagreed != 0 {
		t.Error("an edit does not end the pause")
	}
}

// TestAPauseEndsWithWhatItIsAbout shows that what is wanted anew does not wait because live reads once disagreed, but for the
// pause after a run that left something.
func TestAPauseEndsWithWhatItIsAbout(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	m := newMemory("uid", mine)
	m.backOffReads(plan.Plan{Verdict: v1alpha1.VerdictWait, Reason: v1alpha1.ReasonUnconfirmed}, &m.disagreed, time.Hour, now)
	m.backOffReads(plan.Plan{Verdict: v1alpha1.VerdictWait, Reason: v1alpha1.ReasonUnconfirmed}, &m.disagreed, time.Hour, now)
	if m.forgetUnconfirmed(); !m.retryAt.IsZero() || m.disagreed != 0 {
		t.Errorf("after the conditions did not hold, live reads wait until %s, and %s the next time", m.retryAt, m.disagreed)
	}
	m.backOffReads(plan.Plan{Verdict: v1alpha1.VerdictWait, Reason: v1alpha1.ReasonPartial}, &m.afterPartial, time.Hour, now)
	if m.forgetUnconfirmed(); !m.retryAt.Equal(now.Add(time.Second)) {
		t.Errorf("after a run that left something, live reads wait until %s", m.retryAt)
	}
}

// What the targets ask for is made once for a version of the spec, and kept while the Cleaner listens.
func TestQueriesAreMadeOnce(t *testing.T) {
	m, version := newMemory("uid", mine), "1"
	compiler, err := celenv.NewCompiler(celenv.Options{})
	must(t, err)
	queries := func(name string) *snapshot.TargetQuery {
		work := &v1alpha1.Work{Targets: []v1alpha1.ClusterTarget{{Name: "pod", Reference: v1alpha1.ClusterReference{Reference: v1alpha1.Reference{Version: "v1", Kind: "Pod", Name: name}}}}}
		c := &v1alpha1.Cleaner{ObjectMeta: metav1.ObjectMeta{Namespace: "shop"}}
		p := newPass(&CleanerReconciler{clock: clocktesting.NewFakeClock(epoch)}, c, types.NamespacedName{}, resolvedspec.Assignment{Work: work, Version: version}, m)
		programs, errs := compiler.Compile(t.Context(), work)
		if len(errs) > 0 {
			t.Fatal(errs)
		}
		q := &p.mem.makeQueries(p.assignment.Version, p.store.Draft.GetNamespace(), p.assignment.Work, programs)[0]
		if q.Err != nil || q.Name != name || q.Namespace != "shop" || q.Reads.Projection().Whole {
			t.Errorf("version %s: it asks for %q in %q (%v), want %q", version, q.Name, q.Namespace, q.Err, name)
		}
		return q
	}
	if queries("a"); m.queried.queries != nil {
		t.Error("a Cleaner that does not listen keeps what it would ask for")
	}
	m.listening = epoch
	first := queries("a")
	if queries("a") != first {
		t.Error("the same version asks anew")
	}
	version = "2"
	if queries("b") == first {
		t.Error("another version asks for the same")
	}
}

// TestWhoeverAsksReadsOnceAnInterval has somebody change the annotation before each pass over a Cleaner whose live reads justify nothing: that
// ends its pauses, and live reads are no more often than evaluations all the same.
func TestWhoeverAsksReadsOnceAnInterval(t *testing.T) {
	for name, c := range map[string]*v1alpha1.Cleaner{"Once": once(), "Recurring": done(v1alpha1.RuleAction{Delete: &v1alpha1.DeleteAction{}})} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, c, aPod("a", "Succeeded"))
			r.pods.freeze()
			r.pods.put(aPod("a", "Running")) // which the watches do not know
			reads := 0
			r.pods.listed = func() { reads++ }
			asked := 0
			for second := range 10 {
				for range 20 {
					asked++
					c := r.cleaner()
					c.Annotations = map[string]string{v1alpha1.AnnotationRequestedAt: fmt.Sprint(asked)}
					must(t, r.store.Update(t.Context(), c))
					r.pass()
				}
				if got := reads + r.pods.gets; got != second+1 {
					t.Fatalf("after %d s, and being asked %d times, it has read live %d times", second, asked, got)
				}
				r.clock.Step(DefaultMinInterval)
			}
		})
	}
}
