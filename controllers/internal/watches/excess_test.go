// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package watches

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/vtex/cleaner/controllers/internal/keptparts"
	"github.com/vtex/cleaner/controllers/internal/memorybudget"
	"github.com/vtex/cleaner/controllers/plan/observed"
	"github.com/vtex/cleaner/controllers/snapshot"
	"github.com/vtex/cleaner/test/apiserver"
	"github.com/vtex/cleaner/test/queries"
)

const mebi = 1 << 20

// full is a heap that is full until so many watches have ended, and then has room for so many bytes.
type full struct {
	NopMetrics
	until, ended atomic.Int64
	room         atomic.Int64
}

func (f *full) CountTooLarge() { f.ended.Add(1) }

func (f *full) measure() int64 {
	if f.ended.Load() < f.until.Load() {
		return 100 * mebi
	}
	return 70*mebi - f.room.Load() // 70 % may be in use with what comes back
}

// newFullRig is newRig with 100 MiB of memory.
func newFullRig(t *testing.T, s *apiserver.Server, f *full) *rig {
	t.Helper()
	e, err := New(Options{
		Config: s.Config(), Clock: clock.RealClock{}, RetryEvery: 2 * time.Second, Metrics: f, Budget: memorybudget.NewMeasured(100*mebi, f.measure, func() {}),
	})
	if err != nil {
		t.Fatal(err)
	}
	return startRig(t, e, s)
}

// stillFull is still with 100 MiB of memory, and with a scope that is watched.
func stillFull(t *testing.T) (*Engine, *clocktesting.FakeClock, *want, *scope, *full) {
	t.Helper()
	e, clock, w, s := still(t)
	f := &full{}
	e.catalog.resources[s.resource.Resource] = s.resource
	feedsOf(e).budget = memorybudget.NewMeasured(100*mebi, f.measure, func() {})
	placementOf(e).recordAccess(s, nil, nil)
	return e, clock, w, s, f
}

// pad is the content of an object that takes about so many bytes.
func pad(bytes int) map[string]any {
	return map[string]any{"spec": map[string]any{"text": strings.Repeat("x", bytes)}}
}

// When memory is full, the watch ends whose objects take most. Cleaners of one namespace go on with a watch of their own, unless theirs takes most.
// When there is room again, all are served.
func TestTheLargestWatchEnds(t *testing.T) {
	s := apiserver.New(t)
	for n := range 8 {
		s.Put(apiserver.Pods, "large", fmt.Sprint("p", n), nil, pad(mebi))
	}
	s.Put(apiserver.Pods, "a", "p", nil, pad(10))
	s.Put(apiserver.Nodes, "", "n", nil, pad(mebi))
	f := &full{}
	r := newFullRig(t, s, f)
	all, small, large, nodes := queries.New("Pod", queries.In("")), queries.New("Pod"), queries.New("Pod", queries.In("large")), queries.New("Node")
	r.SetInterests(Owner{Name: "all"}, interests(all))
	r.SetInterests(owner("small"), interests(small))
	r.SetInterests(owner("large"), interests(large))
	r.SetInterests(Owner{Name: "nodes"}, interests(nodes))
	r.reads(nodes, observed.Complete, "n")
	r.reads(small, observed.Complete, "p")

	r.wakes(Owner{Name: "all"}, "the end of its watch", func() { f.until.Store(1) })
	r.reads(all, observed.TooLarge)
	want := "pods in all namespaces take about 8 MiB of memory, more than is left of the 100 MiB that the operator may use: select objects in fewer namespaces, read fewer of their fields, or give the operator more memory"
	if got := r.Read(t.Context(), all).Detail; got != want {
		t.Errorf("it says %q, want %q", got, want)
	}
	r.reads(small, observed.Complete, "p")
	r.reads(large, observed.Complete, "p0", "p1", "p2", "p3", "p4", "p5", "p6", "p7")
	r.reads(nodes, observed.Complete, "n")
	r.wakes(owner("small"), "a change", func() { s.Put(apiserver.Pods, "a", "p", nil, pad(20)) })

	f.until.Store(2)
	r.reads(large, observed.TooLarge)
	r.reads(small, observed.Complete, "p")
	r.reads(nodes, observed.Complete, "n")

	r.wakes(Owner{Name: "all"}, "room", func() { f.room.Store(30 * mebi) })
	r.reads(all, observed.Complete, "p", "p0", "p1", "p2", "p3", "p4", "p5", "p6", "p7")
	r.reads(large, observed.Complete, "p0", "p1", "p2", "p3", "p4", "p5", "p6", "p7")
	if n := f.ended.Load(); n != 2 {
		t.Errorf("%d watches have ended", n)
	}
}

// What is watched for a namespace alone that has more than its share ends before what is larger and watched for others, until it has its share.
func TestANamespaceWithMoreThanItsShareGivesUpFirst(t *testing.T) {
	s := apiserver.New(t)
	s.Serve(secrets(), "Secret", true)
	for n := range 10 {
		s.Put(secrets(), "greedy", fmt.Sprint("s", n), nil, pad(mebi))
		s.Put(apiserver.Pods, "greedy", fmt.Sprint("p", n), nil, pad(mebi))
		s.Put(apiserver.Pods, "greedy", fmt.Sprint("q", n), queries.Tier("web"), pad(mebi))
		s.Put(secrets(), "modest", fmt.Sprint("s", n), nil, pad(2*mebi))
	}
	for n := range 30 {
		s.Put(apiserver.Nodes, "", fmt.Sprint("n", n), nil, pad(mebi))
	}
	f := &full{}
	r := newFullRig(t, s, f)
	secretsOf := func(namespace string) snapshot.Query { return queries.New("Secret", queries.In(namespace)) }
	pods, nodes := queries.New("Pod", queries.In("greedy")), queries.New("Node")
	r.SetInterests(Owner{Namespace: "greedy", Name: "pods"}, interests(pods))
	r.SetInterests(Owner{Namespace: "greedy", Name: "secrets"}, interests(secretsOf("greedy")))
	r.SetInterests(Owner{Namespace: "modest", Name: "secrets"}, interests(secretsOf("modest")))
	r.SetInterests(Owner{Name: "nodes"}, interests(nodes))
	counts := func(q snapshot.Query, n int) {
		t.Helper()
		until(t, fmt.Sprintf("%d of kind %s are known", n, q.Kind), func() bool {
			got := r.Read(t.Context(), q)
			return got.State == observed.Complete && len(got.Objects) == n
		})
	}
	others := func() {
		t.Helper()
		counts(nodes, 30)
		counts(secretsOf("modest"), 10)
	}
	counts(pods, 20)
	counts(secretsOf("greedy"), 10)
	others()
	f.until.Store(1)
	r.reads(pods, observed.TooLarge)
	want := `pods in namespace "greedy" take about 20 MiB of memory, and Cleaners of namespace "greedy" alone need more than their share of the 100 MiB that the operator may use, while nothing is left of these: select objects in fewer namespaces, read fewer of their fields, or give the operator more memory`
	if got := r.Read(t.Context(), pods).Detail; got != want {
		t.Errorf("it says %q, want %q", got, want)
	}
	counts(secretsOf("greedy"), 10)
	others()
	f.until.Store(2) // it has its share now, so that the largest ends
	r.reads(nodes, observed.TooLarge)
	counts(secretsOf("greedy"), 10)
	counts(secretsOf("modest"), 10)
}

// A scope is watched for a namespace alone if only Cleaners of that need it.
func TestFindSolePayer(t *testing.T) {
	for name, tc := range map[string]struct {
		payers []Owner
		want   string
	}{
		"Nobody":             {nil, ""},
		"One":                {[]Owner{owner("c")}, "a"},
		"Two":                {[]Owner{owner("c"), owner("d")}, "a"},
		"AnotherNamespace":   {[]Owner{owner("c"), {Namespace: "b", Name: "c"}}, ""},
		"AClusterCleaner":    {[]Owner{{Name: "c"}}, ""},
		"AClusterCleanerToo": {[]Owner{owner("c"), owner("d"), {Name: "c"}}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			payers := map[Owner]int{}
			for _, o := range tc.payers {
				payers[o]++
			}
			if got := findSolePayer(payers); got != tc.want {
				t.Errorf("it is %q, want %q", got, tc.want)
			}
		})
	}
}

// What arrives counts before it is stored, so that a list ends which would not fit.
func TestAListThatArrivesCounts(t *testing.T) {
	e, s := newWatching(t)
	s.beginList()
	for n := range 4 {
		if _, err := s.Transformer()(newPod(n, mebi)); err != nil {
			t.Fatal(err)
		}
	}
	if pressureOf(e).closeLargest(5 * mebi) {
		t.Fatal("it ends although it takes less")
	}
	if !pressureOf(e).closeLargest(4 * mebi) {
		t.Fatal("it does not end")
	}
	if c := e.answers.checkCoverage(&e.owners[owner("first")][firstKey(e)].query); c.state != observed.Unsynced || s.informer.scope.access != tooLarge || s.informer.scope.full != nil {
		t.Errorf("what names one object is %s, and the watch of all %v", c.state, s.informer.scope.access)
	}
	if pressureOf(e).closeLargest(0); s.informer.scope.access != tooLarge {
		t.Error("what has ended comes back")
	}
}

func firstKey(e *Engine) interestKey {
	return slices.Collect(maps.Keys(e.owners[owner("first")]))[0]
}

func newPod(n, bytes int) *unstructured.Unstructured {
	o := map[string]any{"apiVersion": "v1", "kind": "Pod", "metadata": map[string]any{"namespace": "a", "name": fmt.Sprint("p", n), "resourceVersion": fmt.Sprint(n + 1)}}
	maps.Copy(o, pad(bytes))
	return &unstructured.Unstructured{Object: o}
}

// readsNow has a scope read these fields of the status, and no others.
func (s *scope) readsNow(fields ...string) {
	s.reads = keptparts.Wants{}
	if len(fields) > 0 {
		s.reads.AddQuery(queries.New("Pod", reading(fields...)).Reads)
	}
}

// What was too large is watched again when there is room for it, when less is read of it, or when some time has passed, and not before.
func TestWhatWasTooLargeComesBack(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(f *full, s *scope)
		passed time.Duration
		want   access
	}{
		"NotAtOnce":       {func(*full, *scope) {}, retry, tooLarge},
		"TooLittleRoom":   {func(f *full, _ *scope) { f.room.Store(3 * mebi) }, retry, tooLarge},
		"Room":            {func(f *full, _ *scope) { f.room.Store(5 * mebi) }, retry, opening},
		"LessIsRead":      {func(_ *full, s *scope) { s.readsNow("phase") }, retry, opening},
		"NothingIsRead":   {func(_ *full, s *scope) { s.readsNow() }, retry, opening},
		"AfterAWhile":     {func(*full, *scope) {}, retry * maxDenialWait, opening},
		"NotMuchTooEarly": {func(*full, *scope) {}, retry*maxDenialWait - 1, tooLarge},
		"MoreIsRead":      {func(_ *full, s *scope) { s.readsNow("phase", "reason", "x") }, retry, tooLarge},
		"OtherThingsAre":  {func(_ *full, s *scope) { s.readsNow("x") }, retry, tooLarge},
		"TheSameIs":       {func(_ *full, s *scope) { s.readsNow("reason", "phase") }, retry, tooLarge},
	} {
		t.Run(name, func(t *testing.T) {
			e, clock, _, s, f := stillFull(t)
			p := placementOf(e)
			s.asked[""] = 1
			s.readsNow("phase", "reason")
			s.full.listing, s.full.bytes = keptparts.MergeReads(s.reads.ListReads()), 4*mebi
			if !pressureOf(e).closeLargest(mebi) || s.access != tooLarge || s.full != nil {
				t.Fatalf("it does not end: %v", s.access)
			}
			tc.change(f, s)
			clock.Step(tc.passed)
			if s.alarm.Due.After(clock.Now()) {
				t.Errorf("it is looked at in %s", s.alarm.Due.Sub(clock.Now()))
			}
			if p.mayCheckAccess(s) {
				p.recordAccess(s, nil, nil)
			}
			if s.access != tc.want || (s.full != nil) != (tc.want != tooLarge) {
				t.Errorf("access is %v, want %v", s.access, tc.want)
			}
		})
	}
}

// If less is read of a scope than it keeps, it is listed again before any watch ends for want of memory.
func TestWhatIsNotReadGoesFirst(t *testing.T) {
	e, _, w, s, f := stillFull(t)
	s.readsNow("phase", "reason")
	before := s.full
	before.listing, before.bytes = keptparts.MergeReads(s.reads.ListReads()), 4*mebi
	before.keeps, before.synced = before.listing, true
	w.query.Reads, w.reportedState = queries.New("Pod", reading("phase")).Reads, observed.Complete
	s.readsNow("phase")
	if pressureOf(e).closeLargest(5*mebi) || before.stopped {
		t.Fatal("what takes little is listed again")
	}
	if !pressureOf(e).closeLargest(mebi) || s.access != allowed || !before.stopped || s.full == nil || s.full == before {
		t.Fatalf("access is %v, and the informer %+v", s.access, s.full)
	}
	if n := f.ended.Load(); n > 0 {
		t.Errorf("%d watches have ended", n)
	}
	if got := e.answers.checkCoverage(&w.query).state; got != observed.Unsynced || w.reportedState != observed.Unsynced {
		t.Errorf("its Cleaner is told %s, and has been told %s", got, w.reportedState)
	}
	s.full.bytes = 4 * mebi
	if !pressureOf(e).closeLargest(mebi) || s.access != tooLarge {
		t.Errorf("what is read is too much, and access is %v", s.access)
	}
}

// The sum is that of the objects, whatever happens to them.
func TestBytesAreThoseOfTheObjects(t *testing.T) {
	_, s := newWatching(t)
	random := rand.New(rand.NewPCG(1, 1))
	version := 0
	for step := range 2000 {
		pod := newPod(random.IntN(20), random.IntN(4000))
		version++
		pod.SetResourceVersion(fmt.Sprint(version))
		var err error
		switch random.IntN(10) {
		case 0:
			err = s.Delete(pod)
		case 1:
			s.beginList()
			var list []any
			for n := range random.IntN(20) {
				one := newPod(n, random.IntN(4000))
				one.SetResourceVersion(fmt.Sprint(version))
				list = append(list, one)
			}
			err = s.Replace(list, fmt.Sprint(version))
		default:
			err = s.Update(pod)
		}
		if err != nil {
			t.Fatal(err)
		}
		sum := 0
		for _, shelf := range s.informer.objects {
			for _, o := range shelf.AppendTo(nil) {
				sum += o.Bytes
			}
		}
		if s.informer.bytes != sum || s.informer.loading.Load() != 0 {
			t.Fatalf("after %d steps it counts %d and %d bytes, and the objects take %d", step, s.informer.bytes, s.informer.loading.Load(), sum)
		}
	}
}

// A stream that is cut and begins again counts once.
func TestAStreamThatIsCutCountsOnce(t *testing.T) {
	s := apiserver.New(t)
	const cuts = 6
	var streams atomic.Int64
	release := make(chan struct{})
	s.SetFault(func(w http.ResponseWriter, verb string, gvr schema.GroupVersionResource, req *http.Request) bool {
		if gvr != apiserver.Pods || verb != "watch" || !isStreamed(verb, req) {
			return false
		}
		n := streams.Add(1)
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(map[string]any{"type": "ADDED", "object": newPod(1, mebi).Object}) // the test may have ended
		w.(http.Flusher).Flush()
		if n >= cuts {
			select {
			case <-release:
			case <-req.Context().Done():
			}
		}
		return true
	})
	r := newRig(t, s)
	defer close(release)
	r.SetInterests(Owner{Name: "all"}, interests(queries.New("Pod", queries.In(""))))
	until(t, "the last stream has shown its Pod", func() bool {
		r.mu.RLock()
		defer r.mu.RUnlock()
		for _, of := range r.catalog.resources {
			for _, s := range of.scopes {
				if n := s.countBytes(); n > 2*mebi {
					t.Fatalf("one Pod of 1 MiB counts as %d MiB", n/mebi)
				} else if n > mebi && streams.Load() >= cuts {
					return true
				}
			}
		}
		return false
	})
}

// What is listed aside is too large for the memory: only who asked for it is told, and those who read less continue. When nothing that large is
// asked for, it is not tried again.
func TestTheListAsideGoesFirst(t *testing.T) {
	e, clock, w, s, _ := stillFull(t)
	p := placementOf(e)
	narrow := newWant(owner("narrow"), &Interest{Query: queries.New("Pod", reading("phase"))}, false)
	narrow.kind = w.kind
	p.placeWant(narrow)
	s.full.listing = keptparts.MergeReads([]*snapshot.Reads{narrow.query.Reads})
	s.full.keeps, s.full.synced, s.full.bytes = s.full.listing, true, 4*mebi
	widening{feedsOf(e)}.beginWidening(s.full)
	if s.next == nil {
		t.Fatal("nothing is listed aside")
	}
	s.next.loading.Store(40 * mebi)
	states := func(want string) {
		t.Helper()
		if got := fmt.Sprint(e.answers.checkCoverage(&narrow.query).state, e.answers.checkCoverage(&w.query).state); got != want {
			t.Errorf("who reads less, and who reads all, is %s, want %s", got, want)
		}
	}
	states("Complete Unsynced")
	next := s.next
	if !pressureOf(e).closeLargest(mebi) || s.next != nil || !next.stopped || s.access != allowed {
		t.Fatal("it does not end, or more does")
	}
	states("Complete TooLarge")
	if due := s.full.wider.Due.Sub(clock.Now()); due != retry*maxDenialWait {
		t.Errorf("it is tried again in %s", due)
	}
	clock.Step(retry * maxDenialWait)
	widening{feedsOf(e)}.beginWidening(s.full)
	states("Complete Unsynced")
	if s.next == nil {
		t.Error("it is not tried again")
	}
	if !pressureOf(e).closeLargest(mebi) {
		t.Error("it does not end again")
	}
	states("Complete TooLarge")
	s.full.listing, s.full.bytes = keptparts.KeepAll(), 50*mebi // it is listed anew, and there is room by now
	widening{feedsOf(e)}.endList(s.full, clock.Now(), time.Time{})
	states("Complete Complete")
	p.detachFromScopes(w, nil)
	widening{feedsOf(e)}.beginWidening(s.full)
	if s.next != nil || s.asideExcess != "" {
		t.Error("it is tried again for nobody")
	}
}
