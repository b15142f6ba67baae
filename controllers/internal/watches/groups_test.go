// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package watches

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"k8s.io/utils/clock"

	"github.com/vtex/cleaner/controllers/internal/cachedobjects"
	"github.com/vtex/cleaner/controllers/internal/labelgroups"
	"github.com/vtex/cleaner/controllers/internal/listdiff"
	"github.com/vtex/cleaner/controllers/internal/wakeups"
	"github.com/vtex/cleaner/controllers/plan/observed"
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
				pod[name] = manyLabels(labelgroups.MaxLabels)
			}
			pod[name]["app"], pod[name]["tier"] = []string{"web", "db", "api"}[random.IntN(3)], []string{"a", "b"}[random.IntN(2)]
			s.Put(apiserver.Pods, "a", name, pod[name])
		}
		isWeb := func(l map[string]string) bool { return l["app"] == "web" }
		r.reads(web, observed.Complete, names(isWeb)...)
		r.reads(both, observed.Complete, names(func(l map[string]string) bool { return isWeb(l) && l["tier"] == "a" })...)
		r.reads(either, observed.Complete, names(func(l map[string]string) bool { return l["app"] != "api" })...)
		r.reads(anywhere, observed.Complete, append(names(isWeb), "web")...)
	}
}

// unreadable are so many objects that nobody can look at.
func unreadable(n int) cachedobjects.Shelf {
	return cachedobjects.NewShelf(make(cachedobjects.SortedObjects, n))
}

// What tenants make as much of as they like is not looked at under the lock that all watches share: there is nothing there that could be
// looked at. It is so for what has a group and what has none, for a group while it is made, for a whole list, and for Namespaces whose
// labels choose.
func TestNoObjectIsLookedAtUnderTheLock(t *testing.T) {
	e, s := newWatching(t)
	knowNamespaces(t, e, nil)
	for name, q := range map[string]snapshot.Query{
		"Namespace":  queries.New("Pod", queries.Labelled("app=web")),
		"Anywhere":   queries.New("Pod", queries.In(""), queries.Labelled("app=web")),
		"Namespaces": queries.New("Pod", queries.Among("a", "b"), queries.Labelled("app=web")),
		"Chosen":     queries.New("Pod", queries.ChosenBy("tier=shop"), queries.Labelled("app=web")),
		"Name":       queries.New("Pod", queries.Named("p")),
		"NoLabel":    queries.New("Pod"),
	} {
		q.Compile()
		e.SetInterests(owner("c"), interests(q))
		g, grouped := labelgroups.FindGroup(s.informer.scope.resource.Resource, &q)
		if _, stored := feedsOf(e).storeListing(s.informer, &listing{Diff: &listdiff.Diff{
			Objects: map[string]cachedobjects.Shelf{"a": unreadable(100), "b": unreadable(100)}, Groups: map[labelgroups.Group]*labelgroups.Members{g.OfManyLabels(): {Shelf: unreadable(100)}},
		}}); !stored {
			t.Fatal("the informer has ended")
		}
		e.mu.Lock()
		namespaces := e.catalog.kinds[kindKey{version: "v1", kind: "namespace"}]
		for w := range namespaces.wants {
			w.scopes[0].meta.objects[""] = unreadable(100)
		}
		e.mu.Unlock()
		for range 3 {
			got, near, _ := e.answers.findCandidates(&q, nil)
			if got.State != observed.Complete || len(near) != 1 || len(near[0].Shelves) == 0 {
				t.Errorf("%s: the state is %v: %s, in %v", name, got.State, got.Detail, near)
			}
			if !grouped {
				continue
			}
			if m := e.answers.beginGroup(s.informer, g); m != nil {
				if _, done := e.answers.finishGroup(s.informer, g, m, unreadable(100)); !done || s.informer.groups.Of[g] == nil {
					t.Errorf("%s: no group was made", name)
				}
			}
		}
	}
}

// groupedPods is an Engine that has Pods of two namespaces, and what a tenant's Cleaner asks for.
func groupedPods(t *testing.T) (e *Engine, s *store, q snapshot.Query, g labelgroups.Group) {
	t.Helper()
	e, s = newWatching(t)
	for i, namespace := range []string{"a", "a", "b"} {
		putObject(e, s, podOf(namespace, fmt.Sprint("p", i), map[string]string{"app": "web"}))
	}
	putObject(e, s, podOf("a", "other", map[string]string{"app": "db"}))
	q = queries.New("Pod", queries.Labelled("app=web"))
	q.Compile()
	return e, s, q, labelgroups.Group{Namespace: "a", Key: "app", Value: "web"}
}

// readPods reads, and expects Pods of these names.
func readPods(t *testing.T, e *Engine, q snapshot.Query, want string) {
	t.Helper()
	if got := e.Read(t.Context(), q); got.State != observed.Complete || fmt.Sprint(queries.NamesOf(got)) != want {
		t.Errorf("got %s %q, %v, want %s", got.State, got.Detail, queries.NamesOf(got), want)
	}
}

// A group is made when what is wanted is read again, and not for what was never wanted.
func TestAGroupIsMadeWhenItIsReadAgain(t *testing.T) {
	e, s, q, g := groupedPods(t)
	for range 3 * labelgroups.ReadsUntilNext {
		readPods(t, e, q, "[p0 p1]")
	}
	if len(s.informer.groups.Of) > 0 {
		t.Error("nobody wants it, and there is a group")
	}
	e.SetInterests(owner("c"), interests(q))
	readPods(t, e, q, "[p0 p1]")
	if s.informer.groups.Of[g] != nil {
		t.Error("there is a group after one read")
	}
	readPods(t, e, q, "[p0 p1]")
	if m := s.informer.groups.Of[g]; m == nil || m.Unfinished || m.CountObjects() != 2 {
		t.Errorf("there is no group, but %+v", m)
	}
	readPods(t, e, q, "[p0 p1]")
	e.DropInterests(owner("c"))
	if e.answers.beginGroup(s.informer, g) != nil {
		t.Error("one is made that no want would drop")
	}
}

// A group ends with the last want that asks for it, and when its informer ends: nothing is kept of it, or counted.
func TestGroupsEndWithTheirLastWant(t *testing.T) {
	for name, tc := range map[string]struct {
		end   func(e *Engine, s *store, other snapshot.Query)
		stays bool
	}{
		"Nobody":   {func(*Engine, *store, snapshot.Query) {}, true},
		"OneOfTwo": {func(e *Engine, _ *store, _ snapshot.Query) { e.DropInterests(owner("c")) }, true},
		"Both":     {func(e *Engine, _ *store, _ snapshot.Query) { e.DropInterests(owner("c")); e.DropInterests(owner("d")) }, false},
		"AnotherSpec": {func(e *Engine, _ *store, q snapshot.Query) {
			e.SetInterests(owner("c"), interests(q))
			e.SetInterests(owner("d"), interests(q))
		}, false},
		"Informer": {func(e *Engine, s *store, _ snapshot.Query) {
			e.mu.Lock()
			feedsOf(e).stopInformers(s.informer.scope)
			e.mu.Unlock()
		}, false},
		"NoMoreAccess": {func(e *Engine, s *store, _ snapshot.Query) {
			e.mu.Lock()
			placementOf(e).markDenied(s.informer.scope)
			e.mu.Unlock()
		}, false},
		"AnotherList": {func(e *Engine, s *store, _ snapshot.Query) { feedsOf(e).replaceObjects(s.informer, nil, "") }, false},
	} {
		for _, unfinished := range []bool{false, true} {
			t.Run(fmt.Sprint(name, unfinished), func(t *testing.T) {
				e, s, q, g := groupedPods(t)
				e.SetInterests(owner("c"), interests(q))
				e.SetInterests(owner("d"), interests(q))
				m := e.answers.beginGroup(s.informer, g)
				if !unfinished {
					e.answers.finishGroup(s.informer, g, m, s.informer.objects["a"])
				}
				tc.end(e, s, queries.New("Pod", queries.Labelled("app=db")))
				if unfinished {
					if _, done := e.answers.finishGroup(s.informer, g, m, s.informer.objects["a"]); !done {
						t.Error("it is made on")
					}
				}
				if stays := s.informer.groups.Of[g] != nil; stays != tc.stays {
					t.Errorf("that the group is there is %t", stays)
				}
				if b := feedsOf(e).groupBytes; !tc.stays && !b.IsZero() {
					t.Errorf("counted are %+v", b)
				}
			})
		}
	}
}

// Cleaners whose selectors change all the time leave nothing behind.
func TestChangingSelectorsLeaveNothing(t *testing.T) {
	e, s, _, _ := groupedPods(t)
	for n := range 100 {
		var all []snapshot.Query
		for i := range 8 {
			all = append(all, queries.New("Pod", queries.Labelled(fmt.Sprintf("l-%d-%d=v", n, i))))
		}
		e.SetInterests(owner("c"), interests(all...))
		for range 2 {
			for _, q := range all {
				e.Read(t.Context(), q)
			}
		}
		if len(s.informer.groups.Of) != 8 || len(s.informer.scope.demands) != 8 {
			t.Fatalf("there are %d groups, and %d are asked for", len(s.informer.groups.Of), len(s.informer.scope.demands))
		}
	}
	e.DropInterests(owner("c"))
	if b := feedsOf(e).groupBytes; len(s.informer.groups.Of) != 0 || len(s.informer.scope.demands) != 0 || !b.IsZero() {
		t.Errorf("there are %d groups, %d are asked for, and %+v are counted", len(s.informer.groups.Of), len(s.informer.scope.demands), b)
	}
}

// What changes while a group is made is in it, whether it was seen or not.
func TestChangesWhileAGroupIsMade(t *testing.T) {
	e, s, q, g := groupedPods(t)
	e.SetInterests(owner("c"), interests(q))
	m := e.answers.beginGroup(s.informer, g)
	if e.answers.beginGroup(s.informer, g) != nil {
		t.Error("it is made twice at a time")
	}
	made := cachedobjects.Shelf{}
	for _, change := range []func(){
		func() { putObject(e, s, podOf("a", "p5", map[string]string{"app": "web"})) },
		func() { made = cachedobjects.NewShelf(s.informer.objects["a"].AppendMatching(nil, g.HasObject)) }, // it was begun by now
		func() { putObject(e, s, podOf("a", "p0", map[string]string{"app": "db"})) },
		func() { putObject(e, s, podOf("a", "p6", manyLabels(labelgroups.MaxLabels+1))) },
		func() { putObject(e, s, podOf("a", "p7", map[string]string{"app": "web"})) },
		func() { e.mu.Lock(); feedsOf(e).removeObject(s.informer, "a", "p7"); e.mu.Unlock() },
		func() { putObject(e, s, podOf("b", "p8", map[string]string{"app": "web"})) },
	} {
		change()
		readPods(t, e, q, fmt.Sprint(namesWith(s, "web"))) // it is not there yet
	}
	rounds := 0
	for done := false; !done; rounds++ {
		var moves []labelgroups.Move
		moves, done = e.answers.finishGroup(s.informer, g, m, made)
		for _, c := range moves {
			made = c.ApplyTo(made)
		}
		if rounds == 0 {
			putObject(e, s, podOf("a", "p9", map[string]string{"app": "web"}))
		}
	}
	if s.informer.groups.Of[g] != m || m.Unfinished || rounds != 3 {
		t.Errorf("after %d rounds it is %+v", rounds, m)
	}
	readPods(t, e, q, "[p1 p5 p9]")
}

// namesWith are the names of the Pods of namespace a with a label, without any group.
func namesWith(s *store, app string) (names []string) {
	for _, o := range s.informer.objects["a"].AppendTo(nil) {
		if o.Labels["app"] == app {
			names = append(names, o.Name)
		}
	}
	return names
}

// A group in which too much changes while it is made is given up, for some reads.
func TestAGroupIsGivenUp(t *testing.T) {
	e, s, q, g := groupedPods(t)
	e.SetInterests(owner("c"), interests(q))
	m := e.answers.beginGroup(s.informer, g)
	for range labelgroups.MaxMoves + 1 {
		putObject(e, s, podOf("a", "p0", map[string]string{"app": "web"}))
	}
	if _, done := e.answers.finishGroup(s.informer, g, m, cachedobjects.Shelf{}); !done || s.informer.groups.Of[g] != nil {
		t.Error("it is made on")
	}
	e.answers.giveUpGroup(s.informer, g, m)
	for n := 1; n <= labelgroups.ReadsUntilNext; n++ {
		if s.informer.groups.Of[g] != nil {
			t.Errorf("there is a group after %d reads", n)
		}
		readPods(t, e, q, "[p0 p1]")
	}
	if s.informer.groups.Of[g] == nil {
		t.Error("it is never made again")
	}
	m = &labelgroups.Members{Unfinished: true} // of one that was not finished, for whatever reason
	s.informer.groups.DropGroup(g)
	s.informer.groups.Of[g] = m
	e.answers.giveUpGroup(s.informer, g, m)
	if s.informer.groups.Of[g] != nil {
		t.Error("it stays unfinished")
	}
}

// What has no room for a group is read without one.
func TestWithoutRoomThereIsNoGroup(t *testing.T) {
	e, s, q, g := groupedPods(t)
	e.SetInterests(owner("c"), interests(q))
	e.mu.Lock()
	other := labelgroups.Group{Namespace: "a", Key: "other", Value: "v"} // takes nearly all that a namespace may have
	s.informer.groups.FinishGroup(other, s.informer.groups.BeginGroup(other), unreadable((8<<20)/16-40))
	e.mu.Unlock()
	for range 2 * labelgroups.ReadsUntilNext {
		readPods(t, e, q, "[p0 p1]")
	}
	if s.informer.groups.Of[g] != nil || len(s.informer.groups.Of) != 1 {
		t.Errorf("there are %d groups", len(s.informer.groups.Of))
	}
}

// However many changes a list shows, others have the lock in between.
func TestChangesOfAListAreReportedInParts(t *testing.T) {
	const n = 10 * changesAtATime
	e, s := newWatching(t)
	e.SetInterests(owner("c"), interests(queries.New("Pod")))
	matchAll(e)
	m := &holdsMetrics{}
	e.wakeups.Count, e.matcher.backlog.clock = m.CountWakeups, holdsClock{e.matcher.backlog.clock, e.wakeups}
	objects := make([]*cachedobjects.Object, n)
	for i := range objects {
		objects[i] = podOf("a", fmt.Sprint("p", i), nil)
	}
	feedsOf(e).replaceObjects(s.informer, objects, "")
	if m.all != n || m.most > changesAtATime {
		t.Errorf("%d changes are reported, up to %d at a time", m.all, m.most)
	}
	if got := fmt.Sprint(matchAll(e)); got != "[c first]" { // there are too many to tell whom they concern
		t.Errorf("woken are %s", got)
	}
}

// holdsClock is asked for the time of each change that is added, under the lock. Each time it wakes an owner, so that as many are
// woken when the lock is given back as were added while it was held.
type holdsClock struct {
	clock.PassiveClock
	wakeups *wakeups.Wakeups
}

func (c holdsClock) Now() time.Time {
	c.wakeups.AddOwners(owner("c"))
	return c.PassiveClock.Now()
}

// holdsMetrics counts who was woken in all, and the most at a time.
type holdsMetrics struct {
	NopMetrics
	all, most int
}

func (m *holdsMetrics) CountWakeups(owners int) { m.all, m.most = m.all+owners, max(m.most, owners) }
