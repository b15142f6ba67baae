// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"fmt"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/controllers/plan"
	"github.com/vtex/cleaner/controllers/plan/observed"
	"github.com/vtex/cleaner/controllers/snapshot"
)

// evaluatedSince are for how many items of rules `when` was evaluated and reused since the last call.
func evaluatedSince(r *rig, before *[2]int) string {
	r.t.Helper()
	now := [2]int{}
	families, err := r.registry.Gather()
	must(r.t, err)
	for _, f := range families {
		if f.GetName() != "cleaner_rule_items_total" {
			continue
		}
		for _, m := range f.GetMetric() {
			at := 0
			if m.GetLabel()[0].GetValue() == "reused" {
				at = 1
			}
			now[at] = int(m.GetCounter().GetValue())
		}
	}
	since := fmt.Sprintf("%d evaluated, %d reused", now[0]-before[0], now[1]-before[1])
	*before = now
	return since
}

// From one pass to the next only the items that changed are evaluated; all of them once the spec is another one, the evaluation is requested, or
// a period is over.
func TestPassesEvaluateWhatHasChanged(t *testing.T) {
	r := newRig(t, done(v1alpha1.RuleAction{Report: &v1alpha1.ReportAction{}}), aPod("a", "Running"), aPod("b", "Running"), aPod("c", "Running"))
	var before [2]int
	for _, step := range []struct {
		what string
		do   func(r *rig)
		want string
	}{
		{"at first", func(*rig) {}, "3 evaluated, 0 reused"},
		{"nothing", func(*rig) {}, "0 evaluated, 3 reused"},
		{"a change", func(r *rig) { r.pods.put(aPod("b", "Pending")) }, "1 evaluated, 2 reused"},
		{"a heartbeat", func(r *rig) { r.pods.put(aPod("b", "Pending")) }, "0 evaluated, 3 reused"},
		{"a spec", editing(func(c *v1alpha1.Cleaner) { c.Generation++; c.Spec.Rules[0].When = `item.status.phase == "Failed"` }), "3 evaluated, 0 reused"},
		{"nothing of that spec", func(*rig) {}, "0 evaluated, 3 reused"},
		{"a request", editing(func(c *v1alpha1.Cleaner) { c.Annotations = map[string]string{v1alpha1.AnnotationRequestedAt: "2"} }), "3 evaluated, 0 reused"},
		{"a period", after(time.Hour), "3 evaluated, 0 reused"},
		{"suspended", editing(func(c *v1alpha1.Cleaner) { c.Spec.Suspend = true }), "0 evaluated, 0 reused"},
		{"resumed", editing(func(c *v1alpha1.Cleaner) { c.Spec.Suspend = false }), "3 evaluated, 0 reused"},
	} {
		step.do(r)
		r.clock.Step(time.Minute)
		r.pass()
		if got := evaluatedSince(r, &before); got != step.want {
			t.Errorf("%s: %s, want %s", step.what, got, step.want)
		}
	}
}

// A pass over many objects looks only at those that have changed, as long as it wants nothing; and its status counts all.
func TestPassesReadWhatHasChanged(t *testing.T) {
	var pods []*unstructured.Unstructured
	for i := range plan.FirstObjects + 50 {
		pods = append(pods, aPod(fmt.Sprintf("a%03d", i), "Running"))
	}
	r := newRig(t, done(v1alpha1.RuleAction{Report: &v1alpha1.ReportAction{}}), pods...)
	read := 0
	r.own.Watched = reads(func(ctx context.Context, q snapshot.Query) observed.Target {
		seen := r.pods.readWatched(ctx, q)
		read += len(seen.Objects) + len(seen.Changes)
		return seen
	})
	var before [2]int
	for _, step := range []struct {
		what     string
		do       func(r *rig)
		want     string
		read     int
		resolved int64
	}{
		{"at first", func(*rig) {}, "150 evaluated, 0 reused", 150, 150},
		{"nothing", func(*rig) {}, "0 evaluated, 150 reused", 0, 150},
		{"a change", func(r *rig) { r.pods.put(aPod("a007", "Pending")) }, "1 evaluated, 149 reused", 1, 150},
		{"a heartbeat", func(r *rig) { r.pods.put(aPod("a007", "Pending")) }, "0 evaluated, 150 reused", 1, 150},
		{"a new one", func(r *rig) { r.pods.put(aPod("b", "Running")) }, "1 evaluated, 150 reused", 1, 151},
		{"one that goes", gone("a140"), "0 evaluated, 150 reused", 1, 150},
		{"one of the first that goes", gone("a003"), "0 evaluated, 149 reused", 1 + 149, 149},
		{"one that matches", func(r *rig) { r.pods.put(aPod("a009", "Succeeded")) }, "1 evaluated, 148 reused", 1 + 149, 149},
		{"one that still matches", func(*rig) {}, "1 evaluated, 148 reused", 149, 149},
		{"a period", after(time.Hour), "149 evaluated, 0 reused", 149, 149},
	} {
		step.do(r)
		r.clock.Step(time.Minute)
		read = 0
		r.pass()
		if got := evaluatedSince(r, &before); got != step.want || read != step.read {
			t.Errorf("%s: %s, and %d objects read, want %s and %d", step.what, got, read, step.want, step.read)
		}
		if st := r.cleaner().Status; st.ResolvedTargetCount != step.resolved || len(st.ResolvedTargets) != plan.FirstObjects {
			t.Errorf("%s: %d objects are counted and %d named, want %d", step.what, st.ResolvedTargetCount, len(st.ResolvedTargets), step.resolved)
		}
	}
}

// Numbers that are wrong delay actions until all items are evaluated again, and never cause one.
func TestWrongNumbersOnlyDelay(t *testing.T) {
	r := newRig(t, done(v1alpha1.RuleAction{Delete: &v1alpha1.DeleteAction{}}), aPod("a", "Running"), aPod("b", "Running"), aPod("c", "Succeeded"))
	r.own.Watched = reads(func(ctx context.Context, q snapshot.Query) observed.Target {
		seen := r.pods.readWatched(ctx, q)
		for i := range seen.Objects {
			seen.Objects[i].Content = uint64(len(seen.Objects[i].Name)) // the same for all
		}
		return seen
	})
	r.pass()
	same(t, "requests", []string{"delete c"}, r.pods.took()) // at first all are evaluated
	r.pods.put(aPod("b", "Succeeded"))
	deleted := time.Duration(0)
	for start := r.clock.Now(); len(r.pods.names()) > 1 && deleted < 3*time.Hour; deleted = r.clock.Now().Sub(start) {
		r.clock.Step(10 * time.Minute)
		r.pass()
	}
	if left := r.pods.names(); len(left) != 1 || left[0] != "a" || deleted < 10*time.Minute || deleted > time.Hour+10*time.Minute {
		t.Errorf("after %s left %v", deleted, left)
	}
}

// A confirmation that cannot be evaluated forgets the results: the next decision is about all items, and says what is wrong.
func TestAFailedConfirmationForgetsResults(t *testing.T) {
	c := done(v1alpha1.RuleAction{Delete: &v1alpha1.DeleteAction{}})
	c.Spec.Conditions = []string{`pods.items.all(p, p.status.phase != "Lost")`}
	c.Spec.Rules[0].Confirm = []v1alpha1.Confirm{{Target: "pods"}}
	r := newRig(t, c, aPod("a", "Running"), aPod("b", "Running"))
	r.pass()
	r.pods.put(aPod("b", "Succeeded"))
	r.own.Live = reads(func(ctx context.Context, q snapshot.Query) observed.Target {
		seen := r.pods.readLive(ctx, q)
		for i := range seen.Objects {
			if seen.Objects[i].Value != nil {
				seen.Objects[i].Value = map[string]any{"apiVersion": "v1", "kind": "Pod", "metadata": seen.Objects[i].Value["metadata"]}
			}
		}
		return seen
	})
	r.clock.Step(time.Minute)
	r.pass()
	if mem := r.memories.memoryOf(r.key()); mem.Results != nil || len(r.pods.names()) != 2 {
		t.Errorf("%d bytes of results are remembered, and %v are left", mem.Results.CountBytes(), r.pods.names())
	}
}
