// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package watches

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/vtex/cleaner/controllers/internal/keptparts"
	"github.com/vtex/cleaner/controllers/internal/served"
	"github.com/vtex/cleaner/controllers/plan/observed"
	"github.com/vtex/cleaner/controllers/snapshot"
	"github.com/vtex/cleaner/test/apiserver"
	"github.com/vtex/cleaner/test/queries"
)

// openWatches lists the namespaces in which a kind is watched, or a namespace and a name, sorted; "": all.
func openWatches(e *Engine, kind string) (all []string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, r := range e.catalog.resources {
		for k, s := range r.scopes {
			if r.Kind == kind && len(s.listInformers()) > 0 {
				all = append(all, strings.TrimSuffix(k.namespace+"/"+k.name, "/"))
			}
		}
	}
	slices.Sort(all)
	return all
}

// isOfAll reports whether a request is for Pods of all namespaces, and isOfMany whether it is for more than one Pod.
func isOfAll(r *http.Request) bool  { return !strings.Contains(r.URL.Path, "/namespaces/") }
func isOfMany(r *http.Request) bool { return r.URL.Query().Get("fieldSelector") == "" }

// holdPods holds lists of Pods that are chosen until it is let go of.
func holdPods(s *apiserver.Server, isChosen func(*http.Request) bool) (began <-chan struct{}, letGo func()) {
	asked, free := make(chan struct{}, 100), make(chan struct{})
	s.SetFault(func(_ http.ResponseWriter, verb string, gvr schema.GroupVersionResource, r *http.Request) bool {
		if isStreamed(verb, r) && gvr == apiserver.Pods && isChosen(r) {
			asked <- struct{}{}
			select {
			case <-free:
			case <-r.Context().Done():
			}
		}
		return false
	})
	return asked, sync.OnceFunc(func() { close(free) })
}

// A kind is watched in the namespaces that Cleaners ask for, if these are few. If they are many, one watch of all takes over when it knows all that
// the others know: until then these serve, and only who comes meanwhile waits.
func TestManyNamespacesAreWatchedAtOnce(t *testing.T) {
	s := apiserver.New(t)
	r := newRig(t, s)
	placementOf(r.Engine).few = 2
	for _, namespace := range []string{"a", "b", "c", "d"} {
		s.Put(apiserver.Pods, namespace, "p", nil)
	}
	began, letGo := holdPods(s, isOfAll)
	in := func(namespace string) (Owner, []Interest) {
		return Owner{Namespace: namespace, Name: "c"}, interests(queries.New("Pod", queries.In(namespace)))
	}
	for _, namespace := range []string{"a", "b"} {
		o, i := in(namespace)
		r.SetInterests(o, i)
		r.reads(i[0].Query, observed.Complete, "p")
	}
	if got := openWatches(r.Engine, "Pod"); !slices.Equal(got, []string{"a", "b"}) {
		t.Fatalf("watched is %q", got)
	}
	third, i := in("c")
	r.SetInterests(third, i)
	<-began
	r.reads(i[0].Query, observed.Unsynced)
	first, own := in("a")
	r.wakes(first, "a change while all is listed", func() { s.Put(apiserver.Pods, "a", "q", nil) })
	r.reads(own[0].Query, observed.Complete, "p", "q")
	if got := openWatches(r.Engine, "Pod"); !slices.Equal(got, []string{"", "a", "b"}) {
		t.Errorf("while all is listed, watched is %q", got)
	}
	before := r.queue.count(first)
	r.wakes(third, "the one watch", letGo)
	r.reads(i[0].Query, observed.Complete, "p")
	until(t, "one watch", func() bool { return slices.Equal(openWatches(r.Engine, "Pod"), []string{""}) })
	until(t, "the first looks again", func() bool { return r.queue.count(first) > before })
	r.reads(own[0].Query, observed.Complete, "p", "q")
	r.wakes(first, "a change", func() { s.Put(apiserver.Pods, "a", "r", nil) })
	r.reads(own[0].Query, observed.Complete, "p", "q", "r")
	fourth, i := in("d")
	r.SetInterests(fourth, i)
	r.reads(i[0].Query, observed.Complete, "p")
	if got := openWatches(r.Engine, "Pod"); !slices.Equal(got, []string{""}) {
		t.Errorf("with one more, watched is %q", got)
	}
}

// Objects that Cleaners name are watched each for itself, if they are few. If they are many, one watch of their namespace takes over when it knows all
// that the others know, and ends when they are few again.
func TestManyNamesAreWatchedAtOnce(t *testing.T) {
	s := apiserver.New(t)
	r, clock := newSteppedRig(t, s, retry)
	placementOf(r.Engine).fewNames = 2
	for _, name := range []string{"p", "q", "r", "other"} {
		s.Put(apiserver.Pods, "a", name, nil)
	}
	began, letGo := holdPods(s, isOfMany)
	watched := func(when string, want ...string) {
		t.Helper()
		until(t, fmt.Sprintf("%s, watched is %q", when, want), func() bool { return slices.Equal(openWatches(r.Engine, "Pod"), want) })
	}
	named := func(name string) snapshot.Query { return queries.New("Pod", queries.Named(name)) }
	for _, name := range []string{"p", "q"} {
		r.SetInterests(owner("of-"+name), interests(named(name)))
		r.reads(named(name), observed.Complete, name)
	}
	watched("with two names", "a/p", "a/q")
	r.mu.RLock()
	objects := feedsOf(r.Engine).objects
	r.mu.RUnlock()
	if objects != 2 {
		t.Errorf("%d objects are kept", objects)
	}
	r.SetInterests(owner("of-r"), interests(named("r")))
	<-began
	r.reads(named("r"), observed.Unsynced)
	r.wakes(owner("of-p"), "a change while the namespace is listed", func() { s.Put(apiserver.Pods, "a", "p", queries.Tier("web")) })
	watched("while the namespace is listed", "a", "a/p", "a/q")
	r.wakes(owner("of-r"), "the one watch", letGo)
	watched("with three names", "a")
	for _, name := range []string{"p", "q", "r"} {
		r.reads(named(name), observed.Complete, name)
		r.wakes(owner("of-"+name), "a deletion", func() { s.Remove(apiserver.Pods, "a", name) })
		r.reads(named(name), observed.Complete)
	}
	r.DropInterests(owner("of-q"))
	r.DropInterests(owner("of-r"))
	until(t, "the Pod is watched alone", func() bool {
		clock.Step(maxDenialWait * retry)
		return slices.Equal(openWatches(r.Engine, "Pod"), []string{"a/p"})
	})
	r.wakes(owner("of-p"), "its coming", func() { s.Put(apiserver.Pods, "a", "p", nil) })
	r.reads(named("p"), observed.Complete, "p")
}

// An aggregated API server need not select objects by their names: it is asked for all. Custom kinds can be selected. Which of them a kind is may be
// known later.
func TestNamesThatMayNotBeSelectedAreNot(t *testing.T) {
	for name, tc := range map[string]struct {
		isDefined, isLate bool
		want              string
	}{"Aggregated": {false, false, "a"}, "Custom": {true, false, "a/one"}, "AggregatedLate": {false, true, "a"}, "CustomLate": {true, true, "a/one"}} {
		t.Run(name, func(t *testing.T) {
			s := apiserver.New(t)
			s.Serve(apiserver.Revisions, "Revision", true)
			if tc.isDefined {
				defineColors(s, "first")
			}
			s.Put(apiserver.Revisions, "a", "one", nil)
			release := make(chan struct{})
			s.SetFault(func(_ http.ResponseWriter, _ string, gvr schema.GroupVersionResource, r *http.Request) bool {
				if gvr == apiserver.CRDs {
					select {
					case <-release:
					case <-r.Context().Done():
					}
				}
				return false
			})
			r := newRig(t, s)
			known := func() {
				close(release)
				definitions := served.NewDefinitionQuery("")
				until(t, "definitions are known", func() bool { return r.Read(t.Context(), definitions).State == observed.Complete })
			}
			if !tc.isLate {
				known()
			}
			q := queries.New("Revision", queries.Named("one"))
			q.Group, q.Version = apiserver.Revisions.Group, apiserver.Revisions.Version
			r.SetInterests(owner("c"), interests(q))
			r.reads(q, observed.Complete, "one")
			if tc.isLate {
				known()
			}
			until(t, fmt.Sprintf("watched is %s", tc.want), func() bool { return slices.Equal(openWatches(r.Engine, "Revision"), []string{tc.want}) })
			r.reads(q, observed.Complete, "one")
		})
	}
}

// Who asks for all namespaces is served by a watch of all. Once nobody asks for that many, it ends, after some time.
func TestAWatchOfAllEnds(t *testing.T) {
	s := apiserver.New(t)
	for _, namespace := range []string{"a", "b"} {
		s.Put(apiserver.Pods, namespace, "p", nil)
	}
	r, clock := newSteppedRig(t, s, retry)
	own, all := queries.New("Pod"), queries.New("Pod", queries.In(""))
	r.SetInterests(owner("own"), interests(own))
	r.reads(own, observed.Complete, "p")
	r.SetInterests(Owner{Name: "all"}, interests(all))
	r.reads(all, observed.Complete, "p", "p")
	until(t, "one watch", func() bool { return slices.Equal(openWatches(r.Engine, "Pod"), []string{""}) })
	r.DropInterests(Owner{Name: "all"})
	clock.Step(maxDenialWait*retry - time.Nanosecond)
	r.SetInterests(Owner{Name: "all"}, interests(all)) // it comes again in time
	clock.Step(time.Nanosecond)
	r.reads(all, observed.Complete, "p", "p")
	r.DropInterests(Owner{Name: "all"})
	if got := openWatches(r.Engine, "Pod"); !slices.Equal(got, []string{""}) {
		t.Errorf("soon after, watched is %q", got)
	}
	asked := s.Asked("list pods") + s.Asked("watch pods")
	until(t, "a narrow watch", func() bool {
		clock.Step(maxDenialWait * retry)
		return slices.Equal(openWatches(r.Engine, "Pod"), []string{"a"})
	})
	r.reads(own, observed.Complete, "p")
	r.wakes(owner("own"), "a change", func() { s.Put(apiserver.Pods, "a", "q", nil) })
	if s.Asked("list pods")+s.Asked("watch pods") == asked {
		t.Error("the narrow watch has asked for nothing")
	}
}

// Cleaners of single namespaces continue while all namespaces are too large to be watched, also while the operator tries again.
func TestAWatchOfAllThatIsTooLargeStopsNobody(t *testing.T) {
	e, clock, w, s, f := stillFull(t)
	b := breadth{placementOf(e)}
	b.few = 8
	all := newWant(Owner{Name: "all"}, &Interest{Query: queries.New("Pod", queries.In(""))}, false)
	all.kind = w.kind
	w.kind.wants[all] = struct{}{}
	b.placeWant(all)
	s.full.synced, s.full.bytes = true, 90*mebi
	f.until.Store(1)
	if !pressureOf(e).closeLargest(0) || s.access != tooLarge {
		t.Fatalf("it is %d", s.access)
	}
	own := s.resource.scopes[scopeKey{namespace: "a"}]
	b.recordAccess(own, nil, nil)
	own.full.synced, own.full.keeps = true, own.full.listing
	check := func(when string) {
		t.Helper()
		if got := e.answers.checkCoverage(&w.query).state; got != observed.Complete {
			t.Errorf("%s, the Cleaner of one namespace is told %s", when, got)
		}
	}
	check("without the watch of all")
	f.ended.Store(1)
	f.room.Store(95 * mebi)
	clock.Step(b.retryEvery * maxDenialWait)
	if !b.mayCheckAccess(s) {
		t.Fatal("it is not tried again")
	}
	b.recordAccess(s, nil, nil)
	if s.access != opening || s.full == nil {
		t.Fatalf("it is %d", s.access)
	}
	check("while all is listed again")
	s.full.bytes, own.full.bytes = 15*mebi, 20*mebi
	if !pressureOf(e).closeLargest(mebi) || s.access != tooLarge || own.access != allowed {
		t.Errorf("it is %d, and the watch of one namespace %d", s.access, own.access)
	}
	check("when that is too large again")
	if clock.Step(b.retryEvery * maxDenialWait / 2); b.mayCheckAccess(s) {
		t.Error("how much it takes is not known, and it is tried again because there is room for what was listed of it")
	}
	f.room.Store(0)
	b.recordAccess(s, nil, errors.New("away"))
	if s.access != tooLarge {
		t.Errorf("the API server did not say what it may watch, and it is %d", s.access)
	}
	check("when the API server does not say what it may watch")
	b.detachFromScopes(all, nil)
	s.readsNow("phase")
	if b.mayCheckAccess(s) || s.access != tooLarge {
		t.Errorf("nobody needs it, and it is %d", s.access)
	}
	clock.Step(b.retryEvery * maxDenialWait)
	if b.mayCheckAccess(s) || s.access != unneeded || !s.alarm.Due.IsZero() {
		t.Errorf("nobody needs it, and it is %d, to be tried at %s", s.access, s.alarm.Due)
	}
	check("when nobody asks for all any longer")
}

// If a watch of all namespaces is too large, those of single namespaces may take as much together, though each takes little: then some of them end.
func TestManySmallWatchesEndTogether(t *testing.T) {
	const namespaces = 20
	e, _, w, s, f := stillFull(t)
	b := breadth{placementOf(e)}
	b.few = 8
	var wants []*want
	for n := range namespaces {
		one := newWant(Owner{Namespace: fmt.Sprint("n", n), Name: "c"}, &Interest{Query: queries.New("Pod", queries.In(fmt.Sprint("n", n)))}, false)
		one.kind = w.kind
		w.kind.wants[one] = struct{}{}
		b.placeWant(one)
		wants = append(wants, one)
	}
	s.full.synced, s.full.bytes = true, 90*mebi
	f.until.Store(1)
	if !pressureOf(e).closeLargest(2*mebi) || s.access != tooLarge {
		t.Fatalf("the watch of all is %d", s.access)
	}
	for n := range namespaces {
		own := s.resource.scopes[scopeKey{namespace: fmt.Sprint("n", n)}]
		b.recordAccess(own, nil, nil)
		own.full.synced, own.full.keeps, own.full.bytes = true, own.full.listing, mebi
	}
	states := func() (complete, large int) {
		for _, one := range wants {
			switch e.answers.checkCoverage(&one.query).state {
			case observed.Complete:
				complete++
			case observed.TooLarge:
				large++
			}
		}
		return complete, large
	}
	if complete, large := states(); complete != namespaces || large != 0 {
		t.Fatalf("%d are complete and %d too large", complete, large)
	}
	if pressureOf(e).closeLargest(2 * namespaces * mebi) {
		t.Error("some end that take less together")
	}
	for round := range 3 {
		if !pressureOf(e).closeLargest(3 * mebi) {
			t.Error("none ends")
		}
		if complete, large := states(); large != 3*(round+1) || complete != namespaces-large {
			t.Errorf("in round %d %d are complete and %d too large", round, complete, large)
		}
	}
}

// What cannot be found out about all namespaces is told to those who ask for all, and to nobody else.
func TestAccessToAllConcernsOnlyThem(t *testing.T) {
	e, _, w, s := still(t)
	e.catalog.resources[s.resource.Resource] = s.resource
	b := breadth{placementOf(e)}
	b.few = 8
	s.access = unneeded
	own := b.newScope(s.resource, scopeKey{namespace: "a"}, s)
	b.placeWant(w)
	b.recordAccess(own, nil, nil)
	own.full.synced, own.full.keeps = true, own.full.listing
	all := newWant(Owner{Name: "all"}, &Interest{Query: queries.New("Pod", queries.In(""))}, false)
	all.kind = w.kind
	w.kind.wants[all] = struct{}{}
	b.placeWant(all)
	states := func(when string, want observed.TargetState) {
		t.Helper()
		if got := e.answers.checkCoverage(&all.query).state; got != want {
			t.Errorf("%s, who asks for all is told %s, want %s", when, got, want)
		}
		if got := e.answers.checkCoverage(&w.query).state; got != observed.Complete {
			t.Errorf("%s, who asks for one namespace is told %s", when, got)
		}
	}
	states("at first", observed.Unsynced)
	w.reportedState, w.lost = observed.Complete, time.Time{}
	e.wakeups.TakeOwners()
	b.recordAccess(s, nil, http.ErrServerClosed)
	states("without one answer", observed.Unsynced)
	b.recordAccess(s, nil, http.ErrServerClosed)
	states("without an answer", observed.Failed)
	b.recordAccess(s, []string{"list"}, nil)
	states("without the right", observed.Forbidden)
	b.detachFromScopes(all, nil)
	if b.mayCheckAccess(s) || s.access != unneeded {
		t.Errorf("nobody asks for all, and it is %d", s.access)
	}
	if woken, _ := e.wakeups.TakeOwners(); slices.Contains(woken, w.owner) || !w.lost.IsZero() {
		t.Errorf("who asks for one namespace, which has not changed, is woken, and has lost what was since %s", w.lost)
	}
}

// openingAll is an Engine that lists all Pods, while a watch of namespace a, which has shown version 10, serves a want.
func openingAll(t *testing.T) (b breadth, e *Engine, w *want, s *scope) {
	t.Helper()
	e, _, w, s = still(t)
	e.catalog.resources[s.resource.Resource] = s.resource
	b = breadth{placementOf(e)}
	b.recordAccess(s, []string{"list"}, nil)
	own := s.resource.scopes[scopeKey{namespace: "a"}]
	b.recordAccess(own, nil, nil)
	own.full.synced, own.full.keeps, own.full.changed = true, own.full.listing, "10"
	b.recordAccess(s, nil, nil)
	return b, e, w, s
}

// A watch of all takes over when it knows all changes that narrow ones have shown, and all that is read of its objects: nothing goes back.
func TestAWatchOfAllCatchesUpFirst(t *testing.T) {
	b, e, w, s := openingAll(t)
	s.full.keeps, s.full.reached = s.full.listing, "10"
	ends := func(when string, want bool) {
		t.Helper()
		if b.endOpening(s); (s.access == allowed) != want {
			t.Errorf("%s, it is %d", when, s.access)
		}
		if got := e.answers.checkCoverage(&w.query).state; got != observed.Complete {
			t.Errorf("%s, its Cleaner is told %s", when, got)
		}
	}
	ends("before its list is there", false)
	s.full.synced, s.full.reached = true, "9"
	ends("with an older list", false)
	s.full.reached, s.full.failure = "10", "away"
	ends("while it fails", false)
	s.full.failure, s.full.keeps = "", keptparts.MergeReads(nil)
	ends("with less than is read", false)
	s.full.keeps = s.full.listing
	ends("with all that the narrow one knows", true)
	if s.resource.scopes[scopeKey{namespace: "a"}] != nil {
		t.Error("the narrow one remains")
	}
}

// An answer is of the watch of all, or of those of namespaces: of both, objects would be there twice.
func TestNoObjectIsThereTwiceWhileAllIsListed(t *testing.T) {
	b, e, w, s := openingAll(t)
	both := newWant(Owner{Name: "both"}, &Interest{Query: queries.New("Pod", queries.Among("a", "c"))}, false)
	both.kind = w.kind
	w.kind.wants[both] = struct{}{}
	b.placeWant(both)
	if s.resource.scopes[scopeKey{namespace: "c"}] != nil {
		t.Error("a narrow watch begins that would end soon")
	}
	s.full.synced, s.full.keeps, s.full.reached = true, s.full.listing, "9"
	if got := e.answers.checkCoverage(&both.query); got.state != observed.Unsynced {
		t.Errorf("two watches answer: %s", got.state)
	}
	s.full.reached = "10"
	b.endOpening(s)
	if got := e.answers.checkCoverage(&both.query); got.state != observed.Complete || len(got.informers) != 1 {
		t.Errorf("the watch of all has taken over, and it is %s of %d", got.state, len(got.informers))
	}
}

// If all namespaces cannot be listed, those that Cleaners ask for are watched each for itself, however many these are.
func TestAWatchOfAllThatFailsStopsNobody(t *testing.T) {
	s := apiserver.New(t)
	r := newRig(t, s)
	placementOf(r.Engine).few = 1
	var fails atomic.Bool
	fails.Store(true)
	s.SetFault(func(w http.ResponseWriter, verb string, gvr schema.GroupVersionResource, r *http.Request) bool {
		if !isStreamed(verb, r) || gvr != apiserver.Pods || !isOfAll(r) || !fails.Load() {
			return false
		}
		apiserver.Fail(w, http.StatusInternalServerError, "InternalError", nil)
		return true
	})
	namespaces := []string{"a", "b", "c", "d"}
	for _, namespace := range namespaces {
		s.Put(apiserver.Pods, namespace, "p", nil)
		r.SetInterests(Owner{Namespace: namespace, Name: "c"}, interests(queries.New("Pod", queries.In(namespace))))
	}
	for _, namespace := range namespaces {
		r.reads(queries.New("Pod", queries.In(namespace)), observed.Complete, "p")
	}
	fails.Store(false)
	until(t, "one watch", func() bool { return slices.Equal(openWatches(r.Engine, "Pod"), []string{""}) })
	for _, namespace := range namespaces {
		r.reads(queries.New("Pod", queries.In(namespace)), observed.Complete, "p")
		r.wakes(Owner{Namespace: namespace, Name: "c"}, "a change", func() { s.Put(apiserver.Pods, namespace, "q", nil) })
	}
}

// Who waits for all namespaces to be watched is served by a watch of its own if that fails for some time, and knows since when it has missed changes.
func TestWhoWaitedForAllKnowsWhatItMissed(t *testing.T) {
	e, clock, w, s := still(t)
	e.catalog.resources[s.resource.Resource] = s.resource
	b := breadth{placementOf(e)}
	b.recordAccess(s, []string{"list"}, nil)
	b.recordAccess(s, nil, nil)
	other := newWant(Owner{Namespace: "c", Name: "c"}, &Interest{Query: queries.New("Pod", queries.In("c"))}, false)
	other.kind = w.kind
	w.kind.wants[other] = struct{}{}
	b.placeWant(other)
	known := clock.Now()
	s.full.synced, s.full.keeps, s.full.known, other.reportedState = true, s.full.listing, known, observed.Complete
	narrow := scopeKey{namespace: "c"}
	feedsOf(e).markFailing(s.full, errors.New("away"))
	if s.resource.scopes[narrow] != nil || !other.lost.IsZero() {
		t.Error("one failure ends it")
	}
	clock.Step(b.retryEvery)
	feedsOf(e).markFailing(s.full, errors.New("away"))
	if own := s.resource.scopes[narrow]; own == nil || !other.lost.Equal(known) {
		t.Fatalf("its own watch is %v, and it has missed changes since %s", own, other.lost)
	}
	b.recordAccess(s.resource.scopes[narrow], nil, nil)
	s.resource.scopes[narrow].full.synced, s.resource.scopes[narrow].full.keeps = true, s.resource.scopes[narrow].full.listing
	e.wakeups.TakeOwners()
	e.answers.reportStates(s.resource.scopes[narrow].wants)
	if woken, _ := e.wakeups.TakeOwners(); !slices.Contains(woken, other.owner) {
		t.Errorf("woken is %v", woken)
	}
}
