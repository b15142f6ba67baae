// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package watches

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/vtex/cleaner/controllers/internal/cachedobjects"
	"github.com/vtex/cleaner/controllers/internal/labelgroups"
	"github.com/vtex/cleaner/controllers/plan/observed"
	"github.com/vtex/cleaner/controllers/snapshot"
	"github.com/vtex/cleaner/test/queries"
)

// TestReadersSeeOnlyWhatWas changes Pods at random, one by one and by lists, while others read them by labels and change what is wanted, so
// that groups come and go. What is read is always what there was at one moment, in order.
func TestReadersSeeOnlyWhatWas(t *testing.T) {
	const span = 700 * time.Millisecond
	e, s := newWatching(t)
	type state map[scopeKey]*cachedobjects.Object
	var mu sync.Mutex
	states := []state{{}}
	var at atomic.Int64 // the last state that is sure to be there
	now := func() state { return states[len(states)-1] }
	var qs []snapshot.Query
	for _, place := range []func(*snapshot.Query){queries.In("a"), queries.In(""), queries.Among("a", "b")} {
		for _, app := range []string{"x", "y"} {
			q := queries.New("Pod", place, queries.Labelled("app="+app))
			q.Compile()
			qs = append(qs, q)
		}
	}
	shows := func(st state, q *snapshot.Query) string {
		var out []string
		for k, o := range st {
			if q.Namespace != "" && k.namespace != q.Namespace || q.Namespaces.Names != nil && !slices.Contains(q.Namespaces.Names, k.namespace) || !q.Labels.Matches(labels.Set(o.Labels)) {
				continue
			}
			out = append(out, k.namespace+"/"+k.name+"@"+o.ResourceVersion)
		}
		slices.Sort(out)
		return strings.Join(out, " ")
	}
	e.SetInterests(owner("c"), interests(qs...))
	end := time.Now().Add(span)
	var all sync.WaitGroup
	var reads, grouped atomic.Int64
	all.Go(func() {
		random := rand.New(rand.NewPCG(1, 1))
		version := 0
		pod := func(k scopeKey) *cachedobjects.Object {
			version++
			l := map[string]string{"app": []string{"x", "y", "z"}[random.IntN(3)]}
			if random.IntN(8) == 0 {
				for n := range labelgroups.MaxLabels {
					l[fmt.Sprint("l", n)] = "v"
				}
			}
			o := podOf(k.namespace, k.name, l)
			o.ResourceVersion = fmt.Sprint(version)
			return o
		}
		key := func() scopeKey {
			return scopeKey{namespace: []string{"a", "b", "c"}[random.IntN(3)], name: fmt.Sprint("p", random.IntN(30))}
		}
		for step := 0; time.Now().Before(end); step++ {
			next := state{}
			for k, o := range now() {
				next[k] = o
			}
			var do func()
			switch k := key(); {
			case step%40 == 39:
				var list []*cachedobjects.Object
				for k, o := range next {
					switch random.IntN(6) {
					case 0:
						delete(next, k)
						continue
					case 1:
						o = pod(k)
						next[k] = o
					}
					list = append(list, o)
				}
				do = func() { feedsOf(e).replaceObjects(s.informer, list, "") }
			case random.IntN(3) == 0:
				delete(next, k)
				do = func() { e.mu.Lock(); feedsOf(e).removeObject(s.informer, k.namespace, k.name); e.unlockAndWake() }
			default:
				next[k] = pod(k)
				do = func() { e.mu.Lock(); feedsOf(e).storeObject(s.informer, next[k]); e.unlockAndWake() }
			}
			mu.Lock()
			states = append(states, next)
			mu.Unlock()
			do()
			at.Add(1)
			if step%7 == 0 {
				time.Sleep(20 * time.Microsecond)
			}
		}
	})
	all.Go(func() {
		for n := 0; time.Now().Before(end); n++ {
			e.SetInterests(owner("d"), interests(qs[n%len(qs)]))
			if n%50 == 0 {
				e.SetInterests(owner("c"), interests(qs[n/50%len(qs):]...))
			}
			matchAll(e)
			time.Sleep(100 * time.Microsecond)
		}
	})
	for r := range 3 {
		all.Go(func() {
			for n := r; time.Now().Before(end) && !t.Failed(); n++ {
				q := &qs[n%len(qs)]
				first := at.Load()
				got := e.Read(t.Context(), *q)
				mu.Lock()
				maybe := states[first:]
				mu.Unlock()
				reads.Add(1)
				if n%4 == 0 {
					time.Sleep(100 * time.Microsecond)
				}
				var seen []string
				for i := range got.Objects {
					seen = append(seen, got.Objects[i].Namespace+"/"+got.Objects[i].Name+"@"+got.Objects[i].ResourceVersion)
				}
				if !slices.IsSortedFunc(got.Objects, func(a, b observed.Object) int { return observed.CompareNames(&a.Ref, &b.Ref) }) {
					t.Errorf("not in order: %v", seen)
				}
				slices.Sort(seen)
				text := strings.Join(seen, " ")
				if got.State != observed.Complete || !slices.ContainsFunc(maybe, func(st state) bool { return shows(st, q) == text }) {
					t.Errorf("query %d: %s %v was never so in %d states", n%len(qs), got.State, text, len(maybe))
				}
				e.mu.RLock()
				grouped.Add(int64(len(s.informer.groups.Of)))
				e.mu.RUnlock()
			}
		})
	}
	all.Wait()
	e.DropInterests(owner("c"))
	e.DropInterests(owner("d"))
	if b := feedsOf(e).groupBytes; !b.IsZero() || len(s.informer.scope.demands) != 0 || reads.Load() < 10 || grouped.Load() < reads.Load() {
		t.Errorf("%d reads, %d groups, and %+v are counted", reads.Load(), grouped.Load(), b)
	}
	t.Logf("%d reads, %d states, %d groups seen", reads.Load(), len(states), grouped.Load())
}
