// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package watches

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/vtex/cleaner/controllers/internal/held"
	"github.com/vtex/cleaner/controllers/plan"
	"github.com/vtex/cleaner/controllers/snapshot"
	"github.com/vtex/cleaner/test/apiserver"
	"github.com/vtex/cleaner/test/queries"
)

// TestGroupsKeepUp changes objects and their labels at random, and reads by selectors that have groups.
func TestGroupsKeepUp(t *testing.T) {
	const seed, steps = 7, 150
	random := rand.New(rand.NewPCG(seed, seed))
	s := apiserver.New(t)
	r := newRig(t, s)
	web, anywhere, both, either := queries.New("Pod", queries.Labelled("app=web")), queries.New("Pod", queries.In(""), queries.Labelled("app=web")), queries.New("Pod", queries.Labelled("app=web,tier=a")), queries.New("Pod", queries.Labelled("app in (web,db)"))
	r.SetInterests(owner("c"), interests(web, anywhere, both, either))
	pod := map[string]map[string]string{} // labels of the Pods of namespace a
	names := func(which func(map[string]string) bool) (found []string) {
		for _, name := range slices.Sorted(maps.Keys(pod)) {
			if which(pod[name]) {
				found = append(found, name)
			}
		}
		return found
	}
	s.Put(apiserver.Pods, "b", "web", map[string]string{"app": "web"})
	for range steps {
		name := fmt.Sprintf("p%d", random.IntN(8))
		switch {
		case random.IntN(4) == 0 && pod[name] != nil:
			delete(pod, name)
			s.Remove(apiserver.Pods, "a", name)
		default:
			pod[name] = map[string]string{}
			if random.IntN(4) == 0 {
				pod[name] = manyLabels(maxGroupedLabels)
			}
			pod[name]["app"], pod[name]["tier"] = []string{"web", "db", "api"}[random.IntN(3)], []string{"a", "b"}[random.IntN(2)]
			s.Put(apiserver.Pods, "a", name, pod[name])
		}
		isWeb := func(l map[string]string) bool { return l["app"] == "web" }
		r.reads(web, plan.Complete, names(isWeb)...)
		r.reads(both, plan.Complete, names(func(l map[string]string) bool { return isWeb(l) && l["tier"] == "a" })...)
		r.reads(either, plan.Complete, names(func(l map[string]string) bool { return l["app"] != "api" })...)
		r.reads(anywhere, plan.Complete, append(names(isWeb), "web")...)
	}
}

// TestNoMemberIsLookedAtUnderTheLock shows that a reader of a group copies lists under the lock that all watches share: there is nothing in
// them that could be looked at.
func TestNoMemberIsLookedAtUnderTheLock(t *testing.T) {
	e, s := newWatching(t)
	for _, q := range []snapshot.Query{
		queries.New("Pod", queries.Labelled("app=web")),
		queries.New("Pod", queries.In(""), queries.Labelled("app=web")),
		queries.New("Pod", queries.Among("a", "b"), queries.Labelled("app=web")),
	} {
		q.Compile()
		e.SetInterests(owner("c"), interests(q))
		g, _ := groupOf(s.informer.scope.resource.Resource, &q)
		e.mu.Lock()
		s.informer.groups = groups{g: make(held.SortedObjects, 100), g.ofManyLabels(): make(held.SortedObjects, 100)}
		e.mu.Unlock()
		if got, _, _ := e.answers.findCandidates(&q); got.State != plan.Complete {
			t.Errorf("the state is %v: %s", got.State, got.Detail)
		}
	}
}
