// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/controllers/internal/ration"
	"github.com/vtex/cleaner/controllers/plan"
)

func heap() int64 {
	var now runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&now)
	return int64(now.HeapAlloc)
}

// greedy makes up items with long names, and reports each; or waits for each.
func greedy(items int, wait string) *v1alpha1.Cleaner {
	c := done(v1alpha1.RuleAction{Report: &v1alpha1.ReportAction{}})
	long := fmt.Sprintf(`"%s" + string(item)`, strings.Repeat("x", 900))
	c.Spec.Rules[0].ForEach, c.Spec.Rules[0].When, c.Spec.Rules[0].Key, c.Spec.Rules[0].Reason, c.Spec.Rules[0].For = fmt.Sprintf("lists.range(%d)", items), "true", long, long, wait
	return c
}

// What a Cleaner leaves in memory after a pass is what it is counted with, and its share at most, whatever it makes up: of 28000 reports,
// or holds, with names and reasons of a kilobyte. The reports that are not remembered are not made again at once.
func TestWhatAPassLeavesIsBounded(t *testing.T) {
	for name, c := range map[string]*v1alpha1.Cleaner{"Reports": greedy(28_000, ""), "Holds": greedy(15_000, "1h"), "Both": greedy(10_000, "1s")} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, c)
			r.pass() // compiles
			const share = 1 << 20
			r.memories.book = ration.NewBook(ration.Bounds{Cleaner: share, Namespace: share, Namespaces: share, Cluster: share})
			mem := r.memories.m[r.key()]
			mem.forgetItems()
			mem.told.ForgetUntil(time.Time{})
			before := heap()
			for range 3 {
				after(time.Minute)(r)
				r.pass()
			}
			r.took()
			if left, counted := heap()-before, mem.countBytes(); counted > share || left > share*3/2 || counted < share/16 {
				t.Errorf("it has left %d KiB, counted with %d KiB, and its share is %d KiB", left>>10, counted>>10, share>>10)
			}
			r.said()
			after(time.Minute)(r)
			if r.pass(); len(r.said()) > 0 {
				t.Error("it is reported again at once")
			}
		})
	}
}

// However many Cleaners tenants have, what is remembered of all is bounded; a modest one of another namespace, and a ClusterCleaner,
// are remembered, and what was used up of a limit stays used up.
func TestWhatIsRememberedOfAllIsBounded(t *testing.T) {
	s := &memories{}
	visit := func(key types.NamespacedName, holds int) *memory {
		m := s.memoryOf(key)
		defer s.settleMemory(key, m)
		made := map[plan.Sum]plan.Hold{}
		for i := range min(holds, int(s.book.FindRoom(key)/plan.HoldBytes)) {
			made[plan.SumOf(fmt.Sprint(i))] = plan.Hold{Since: epoch}
		}
		m.holds = plan.Holds{"r": {Since: made}}
		return m
	}
	modest, cluster := types.NamespacedName{Namespace: "modest", Name: "c"}, types.NamespacedName{Name: "c"}
	visit(modest, 100)
	visit(cluster, 100)
	before := heap()
	for i := range 60 {
		visit(types.NamespacedName{Namespace: fmt.Sprint("tenant-", i%12), Name: fmt.Sprint(i)}, 50_000).done = plan.Done{{At: epoch, UID: "x"}}
	}
	bounds := ration.DefaultBounds()
	if took := heap() - before; took > bounds.Namespaces*5/4 {
		t.Errorf("%d MiB are remembered, of %d", took>>20, bounds.Namespaces>>20)
	}
	for _, key := range []types.NamespacedName{modest, cluster} {
		if n := len(s.m[key].holds["r"].Since); n != 100 {
			t.Errorf("%q has %d holds", key, n)
		}
	}
	forgotten := 0
	for key, m := range s.m {
		if len(m.holds) == 0 && key != modest && key != cluster {
			forgotten++
			if len(m.done) != 1 || !m.done[0].Forgotten {
				t.Errorf("%q has done %+v", key, m.done)
			}
		}
	}
	if forgotten == 0 {
		t.Error("nothing was forgotten")
	}
	// A pass that goes on is not disturbed: what it is about is forgotten after it.
	busy := types.NamespacedName{Namespace: "busy", Name: "c"}
	m := s.memoryOf(busy)
	m.holds = plan.Holds{"r": {}}
	s.doomed[busy] = true
	if s.settleMemory(busy, m); m.holds != nil {
		t.Error("what was to be forgotten after the pass is remembered")
	}
	s.forgetCleaner(busy)
	if s.settleMemory(busy, m); s.m[busy] != nil {
		t.Error("what is gone is remembered")
	}
}
