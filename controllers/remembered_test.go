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
	"github.com/vtex/cleaner/controllers/internal/memoryquota"
	"github.com/vtex/cleaner/controllers/plan/fortimers"
	"github.com/vtex/cleaner/controllers/plan/limits"
	"github.com/vtex/cleaner/controllers/plan/stringhash"
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
			const share = 1 << 20
			r.memories.Bounds = memoryquota.Bounds{Cleaner: share, Namespace: share, Namespaces: share, Cluster: share}
			r.pass() // compiles
			mem := r.memories.memoryOf(r.key())
			mem.ForgetItems()
			mem.Told.ForgetUntil(time.Time{})
			before := heap()
			for range 3 {
				after(time.Minute)(r)
				r.pass()
			}
			r.pods.took()
			if left, counted := heap()-before, mem.CountBytes(); counted > share || left > share*3/2 || counted < share/16 {
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
	s, all := &memories{}, map[types.NamespacedName]*memory{}
	visit := func(key types.NamespacedName, count int) *memory {
		m := s.memoryOf(key)
		defer s.settleMemory(key, m)
		room, _ := s.FindRoom(key, m)
		m.Holds, all[key] = holding(min(count, int(room/fortimers.HoldBytes))), m
		return m
	}
	modest, cluster := types.NamespacedName{Namespace: "modest", Name: "c"}, types.NamespacedName{Name: "c"}
	visit(modest, 100)
	visit(cluster, 100)
	before := heap()
	for i := range 60 {
		visit(types.NamespacedName{Namespace: fmt.Sprint("tenant-", i%12), Name: fmt.Sprint(i)}, 50_000).Done = limits.Done{{At: epoch, UID: "x"}}
	}
	bounds := memoryquota.DefaultBounds()
	if took := heap() - before; took > bounds.Namespaces*5/4 {
		t.Errorf("%d MiB are remembered, of %d", took>>20, bounds.Namespaces>>20)
	}
	for _, key := range []types.NamespacedName{modest, cluster} {
		if n := len(all[key].Holds["r"].Since); n != 100 {
			t.Errorf("%q has %d holds", key, n)
		}
	}
	forgotten := 0
	for key, m := range all {
		if len(m.Holds) == 0 && key != modest && key != cluster {
			forgotten++
			if len(m.Done) != 1 || !m.Done[0].Forgotten {
				t.Errorf("%q has done %+v", key, m.Done)
			}
		}
	}
	if forgotten == 0 {
		t.Error("nothing was forgotten")
	}
}

// holding are so many holds.
func holding(n int) fortimers.Holds {
	made := map[stringhash.Sum]fortimers.Hold{}
	for i := range n {
		made[stringhash.SumOf(fmt.Sprint(i))] = fortimers.Hold{Since: epoch}
	}
	return fortimers.Holds{"r": {Since: made}}
}

// Where other Cleaners of its namespace have taken all that may be remembered, a modest one still waits for what is to hold, and still
// does as much as its limits allow.
func TestAFullNamespaceLeavesRoomForModestCleaners(t *testing.T) {
	for name, change := range map[string]func(*v1alpha1.Cleaner){
		"For":    func(c *v1alpha1.Cleaner) { c.Spec.Rules[0].For = "3s" },
		"Limits": func(c *v1alpha1.Cleaner) { c.Spec.Limits = &v1alpha1.Limits{MaxActions: 100} },
	} {
		t.Run(name, func(t *testing.T) {
			c := done(v1alpha1.RuleAction{Delete: &v1alpha1.DeleteAction{}})
			change(c)
			r := newRig(t, c, aPod("a", "Succeeded"))
			r.pass()
			r.pods.put(aPod("b", "Succeeded"))
			for i := range 40 { // each takes all there is
				key := types.NamespacedName{Namespace: r.key().Namespace, Name: fmt.Sprint("greedy-", i)}
				m := r.memories.memoryOf(key)
				room, _ := r.memories.FindRoom(key, m)
				m.Holds = holding(int(room / fortimers.HoldBytes))
				r.memories.settleMemory(key, m)
			}
			for range 2 {
				r.clock.Step(time.Minute)
				r.pass()
			}
			if left := r.pods.names(); len(left) > 0 {
				t.Errorf("it has not deleted %v: %s", left, r.line())
			}
		})
	}
}
