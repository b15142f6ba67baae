// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package watches

import (
	"fmt"
	"net/http"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/celenv/projection"
	"github.com/vtex/cleaner/controllers/plan/observed"
	"github.com/vtex/cleaner/controllers/snapshot"
	"github.com/vtex/cleaner/test/apiserver"
	"github.com/vtex/cleaner/test/queries"
)

// reading has a query read some fields of the status besides what identifies an object.
func reading(fields ...string) func(*snapshot.Query) {
	p := projection.Identity()
	for _, field := range fields {
		p = projection.Merge(p, projection.KeepPath("status", field))
	}
	return func(q *snapshot.Query) { q.Reads = snapshot.NewReads(p) }
}

// status is the content of a Pod.
func status(phase string) map[string]any {
	return map[string]any{"status": map[string]any{"phase": phase, "reason": "Evicted", "message": "long", "hostIP": "10.0.0.1"}, "spec": map[string]any{"nodeName": "n"}}
}

// shows waits until a query shows these fields of the status of one Pod, and nothing else of it.
func (r *rig) shows(q snapshot.Query, want map[string]any) {
	r.Helper()
	var last observed.Target
	defer func() {
		if r.Failed() {
			r.Logf("the last answer was %s %q with %v", last.State, last.Detail, last.Objects)
		}
	}()
	until(r.T, fmt.Sprintf("%v is shown", want), func() bool {
		last = r.Read(r.Context(), q)
		return last.State == observed.Complete && len(last.Objects) == 1 && cmp.Equal(last.Objects[0].Value["status"], any(want)) && last.Objects[0].Value["spec"] == nil
	})
}

// countLists counts what is listed of Pods, in either way.
func countLists(s *apiserver.Server) *atomic.Int64 {
	n := &atomic.Int64{}
	s.SetFault(func(_ http.ResponseWriter, verb string, gvr schema.GroupVersionResource, r *http.Request) bool {
		if gvr == apiserver.Pods && (verb == "list" || verb == "watch" && r.URL.Query().Get("sendInitialEvents") == "true") {
			n.Add(1)
		}
		return false
	})
	return n
}

// A store has what its Cleaners read, and no more. Who reads more sees nothing of it until all that it reads is there; the others go on.
func TestWhoReadsMoreWaitsForIt(t *testing.T) {
	s := apiserver.New(t)
	r := newRig(t, s)
	s.Put(apiserver.Pods, "a", "p", map[string]string{"app": "web"}, status("Running"))
	narrow, wide, other := queries.New("Pod", reading("phase")), queries.New("Pod", reading("phase", "reason")), queries.New("Pod", reading("hostIP"))
	r.SetInterests(owner("narrow"), interests(narrow))
	r.shows(narrow, map[string]any{"phase": "Running"})
	if got := r.Read(t.Context(), wide); got.State != observed.Unsynced || got.Detail != "waiting for a list of pods with all fields that the expressions read" || got.Objects != nil {
		t.Errorf("who reads more sees %s %q, %v", got.State, got.Detail, got.Objects)
	}
	woken := r.queue.count(owner("narrow"))
	r.wakes(owner("wide"), "the list", func() { r.SetInterests(owner("wide"), interests(wide)) })
	for _, q := range []snapshot.Query{narrow, wide} {
		r.shows(q, map[string]any{"phase": "Running", "reason": "Evicted"})
	}
	s.Put(apiserver.Pods, "a", "p", map[string]string{"app": "web"}, status("Failed"))
	r.shows(wide, map[string]any{"phase": "Failed", "reason": "Evicted"})
	until(t, "a change wakes both", func() bool { return r.queue.count(owner("narrow")) > woken })
	r.SetInterests(owner("wide"), interests(other)) // it reads something else now
	r.shows(other, map[string]any{"phase": "Failed", "hostIP": "10.0.0.1"})
	r.SetInterests(owner("whole"), interests(queries.New("Pod")))
	until(t, "all is shown", func() bool {
		got := r.Read(t.Context(), queries.New("Pod"))
		return got.State == observed.Complete && got.Objects[0].Value["spec"] != nil
	})
	if got := r.Read(t.Context(), narrow); got.State != observed.Complete || got.Objects[0].Labels["app"] != "web" {
		t.Errorf("who reads less sees %s %q", got.State, got.Detail)
	}
}

// The number of a content stays while nothing changes that the store keeps, such as with each heartbeat of a Node, and is another one after each
// change of that, also if an object is made again with the same content.
func TestTheNumberOfAContent(t *testing.T) {
	s := apiserver.New(t)
	r := newRig(t, s)
	q := queries.New("Pod", reading("phase"))
	put := func(phase, beat string) {
		content := status(phase)
		content["status"].(map[string]any)["message"] = beat
		s.Put(apiserver.Pods, "a", "p", nil, content)
	}
	version := ""
	next := func() observed.Object {
		t.Helper()
		var shown observed.Object
		until(t, "the next version is shown", func() bool {
			got := r.Read(t.Context(), q)
			if got.State != observed.Complete || len(got.Objects) != 1 || got.Objects[0].ResourceVersion == version {
				return false
			}
			shown, version = got.Objects[0], got.Objects[0].ResourceVersion
			return true
		})
		return shown
	}
	put("Running", "1")
	r.SetInterests(owner("c"), interests(q))
	first := next()
	put("Running", "2")
	if beat := next(); beat.Content != first.Content || beat.Content == 0 || beat.Value["metadata"].(map[string]any)["resourceVersion"] != version {
		t.Errorf("after a heartbeat the content is %d, and was %d; its value is %v", beat.Content, first.Content, beat.Value)
	}
	put("Failed", "3")
	changed := next()
	if changed.Content == first.Content {
		t.Error("after a change the content is the same")
	}
	put("Running", "4")
	if back := next(); back.Content == changed.Content {
		t.Error("after another change the content is the same")
	}
	s.Remove(apiserver.Pods, "a", "p")
	put("Running", "5")
	if again := next(); again.Content == first.Content {
		t.Error("an object that was made again has the content of the other")
	}
	if metadata := r.Read(t.Context(), queries.New("Pod", queries.MetadataOnly)); len(metadata.Objects) == 1 && metadata.Objects[0].Content != 0 {
		t.Error("metadata have a content")
	}
}

// A list has what was read when it began. Who comes while it is under way waits for the next one.
func TestWhoComesDuringAListWaitsForTheNext(t *testing.T) {
	s := apiserver.New(t)
	r := newRig(t, s)
	s.Put(apiserver.Pods, "a", "p", nil, status("Running"))
	began, release := make(chan struct{}, 100), make(chan struct{})
	s.SetFault(func(_ http.ResponseWriter, verb string, gvr schema.GroupVersionResource, req *http.Request) bool {
		if gvr == apiserver.Pods && (verb == "list" || verb == "watch") {
			began <- struct{}{}
			select {
			case <-release:
			case <-req.Context().Done():
			}
		}
		return false
	})
	early, late := queries.New("Pod", reading("phase")), queries.New("Pod", reading("reason"))
	r.SetInterests(owner("early"), interests(early))
	<-began
	r.SetInterests(owner("late"), interests(late))
	close(release)
	r.shows(late, map[string]any{"phase": "Running", "reason": "Evicted"})
}

// What others read is not listed again, and a list that comes for another reason narrows the store.
func TestStoresNarrowAtTheNextList(t *testing.T) {
	s := apiserver.New(t)
	r := newRig(t, s)
	s.Put(apiserver.Pods, "a", "p", nil, status("Running"))
	narrow, wide := queries.New("Pod", reading("phase")), queries.New("Pod", reading("phase", "reason"))
	r.SetInterests(owner("wide"), interests(wide))
	r.shows(wide, map[string]any{"phase": "Running", "reason": "Evicted"})
	lists := countLists(s)
	r.SetInterests(owner("narrow"), interests(narrow))
	r.shows(narrow, map[string]any{"phase": "Running", "reason": "Evicted"})
	r.DropInterests(owner("wide"))
	s.Put(apiserver.Pods, "a", "p", nil, status("Failed"))
	r.shows(narrow, map[string]any{"phase": "Failed", "reason": "Evicted"})
	if n := lists.Load(); n > 0 {
		t.Errorf("it was listed %d times for who reads less", n)
	}
	s.Disconnect(apiserver.Pods, true)
	r.shows(narrow, map[string]any{"phase": "Failed"})
}

// Field selectors are compared with what is kept for them.
func TestFieldSelectorsSeeWhatTheyCompare(t *testing.T) {
	s := apiserver.New(t)
	r := newRig(t, s)
	s.Put(apiserver.Pods, "a", "p", nil, status("Running"))
	s.Put(apiserver.Pods, "a", "q", nil, status("Failed"))
	all := queries.New("Pod", reading("reason"))
	r.SetInterests(owner("c"), interests(all))
	r.reads(all, observed.Complete, "p", "q")
	selected := snapshot.Queries{{Query: queries.New("Pod", queries.Fielded("status.phase=Failed"), queries.MetadataOnly)}}
	selected.KeepReadings(&v1alpha1.Work{Targets: make([]v1alpha1.ClusterTarget, 1)}, nil)
	q := selected[0].Query
	r.SetInterests(owner("d"), interests(q))
	r.reads(q, observed.Complete, "q")
	r.wakes(owner("d"), "an object that begins to match", func() { s.Put(apiserver.Pods, "a", "p", nil, status("Failed")) })
	r.reads(q, observed.Complete, "p", "q")
}

// However often a tenant changes what is read: its Cleaner waits, and all is listed at the pace that the clock allows, once for all who wait.
func TestListsForMoreAreBounded(t *testing.T) {
	s := apiserver.New(t)
	r, fake := newSteppedRig(t, s, 0) // lists every 2 seconds
	s.Put(apiserver.Pods, "a", "p", nil, status("Running"))
	first := queries.New("Pod", reading("phase"))
	r.SetInterests(owner("first"), interests(first))
	r.shows(first, map[string]any{"phase": "Running"})
	lists := countLists(s)
	const atOnce, edits = 3, 40
	last := func(n int) snapshot.Query { return queries.New("Pod", reading(fmt.Sprint("f", n))) }
	for n := range atOnce {
		r.SetInterests(owner("edits"), interests(last(n)))
		r.reads(last(n), observed.Complete, "p")
	}
	for n := range edits {
		r.SetInterests(owner("edits"), interests(last(atOnce+n)))
		r.SetInterests(owner(fmt.Sprint("waits", n)), interests(queries.New("Pod", reading(fmt.Sprint("g", n)))))
		if got := r.Read(t.Context(), last(atOnce+n)); got.State != observed.Unsynced {
			t.Fatalf("edit %d is answered by %s", n, got.State)
		}
		r.reads(first, observed.Complete, "p") // who reads less goes on
	}
	if n := lists.Load(); n != atOnce {
		t.Errorf("it was listed %d times at once, and %d times are allowed", n, atOnce)
	}
	until(t, "the list waits for its turn", fake.HasWaiters)
	fake.Step(3 * time.Second)
	r.reads(last(atOnce+edits-1), observed.Complete, "p")
	for n := range edits {
		r.reads(queries.New("Pod", reading(fmt.Sprint("g", n))), observed.Complete, "p")
	}
	if n := lists.Load(); n != atOnce+1 {
		t.Errorf("it was listed %d times in all, and %d times are allowed", n, atOnce+1)
	}
}

// Who has asked for more and is gone has nothing listed.
func TestNothingIsListedForWhoIsGone(t *testing.T) {
	s := apiserver.New(t)
	r, fake := newSteppedRig(t, s, 0)
	s.Put(apiserver.Pods, "a", "p", nil, status("Running"))
	first := queries.New("Pod", reading("phase"))
	r.SetInterests(owner("first"), interests(first))
	r.shows(first, map[string]any{"phase": "Running"})
	lists := countLists(s)
	for n := range 4 {
		q := queries.New("Pod", reading(fmt.Sprint("f", n)))
		r.SetInterests(owner("c"), interests(q))
		if n < 3 {
			r.reads(q, observed.Complete, "p")
		}
	}
	r.DropInterests(owner("c"))
	i := informerOf(t, r.Engine, apiserver.Pods)
	fake.Step(3 * time.Second)
	until(t, "the alarm has rung for nothing", func() bool {
		r.Engine.mu.RLock()
		defer r.Engine.mu.RUnlock()
		return i.wider.Due.IsZero()
	})
	if n := lists.Load(); n != 3 {
		t.Errorf("it was listed %d times", n)
	}
}

// informerOf is the informer of whole objects of a resource.
func informerOf(t *testing.T, e *Engine, gvr schema.GroupVersionResource) *informer {
	t.Helper()
	e.mu.RLock()
	defer e.mu.RUnlock()
	for r, of := range e.catalog.resources {
		if r.GVR == gvr {
			for _, s := range of.scopes {
				if s.full != nil {
					return s.full
				}
			}
		}
	}
	t.Fatalf("%s is not watched", gvr)
	return nil
}

// Thousands of Cleaners with readings of their own do not hold up the others: what is read is merged without the lock.
func TestManyReadingsAreMergedOnce(t *testing.T) {
	s := apiserver.New(t)
	r := newRig(t, s)
	s.Put(apiserver.Pods, "a", "p", nil, status("Running"))
	const cleaners = 2000
	var all []snapshot.Query
	for n := range cleaners {
		q := queries.New("Pod", reading(fmt.Sprint("f", n%500), "phase"))
		all = append(all, q)
		r.SetInterests(owner(fmt.Sprint("c", n)), interests(q))
	}
	slices.Reverse(all)
	for _, q := range all {
		r.shows(q, map[string]any{"phase": "Running"})
	}
	i := informerOf(t, r.Engine, apiserver.Pods)
	r.mu.RLock()
	defer r.mu.RUnlock()
	if n := len(i.scope.reads.ListReads()); n != 500 {
		t.Errorf("%d readings are told apart", n)
	}
}

// A Cleaner that comes during a list which narrows is answered from the wider store before it, and then not any more. When it can be answered
// again it is woken, and hears of what it cannot have seen, such as an object that has left its selection meanwhile.
func TestWhoIsNotAnsweredAnyMoreIsWoken(t *testing.T) {
	fielded := snapshot.Queries{{Query: queries.New("Pod", queries.Fielded("status.phase=Failed"), queries.MetadataOnly)}}
	fielded.KeepReadings(&v1alpha1.Work{Targets: make([]v1alpha1.ClusterTarget, 1)}, nil)
	for name, tc := range map[string]struct {
		late  snapshot.Query
		after []string
	}{
		"All":           {queries.New("Pod", reading("phase")), []string{"p"}},
		"FieldSelector": {fielded[0].Query, nil},
	} {
		t.Run(name, func(t *testing.T) {
			s := apiserver.New(t)
			r := newRig(t, s)
			s.Put(apiserver.Pods, "a", "p", nil, status("Failed"))
			wide := queries.New("Pod", reading("phase", "reason"))
			r.SetInterests(owner("wide"), interests(wide))
			r.reads(wide, observed.Complete, "p")
			r.SetInterests(owner("other"), interests(queries.New("Pod", reading("reason"))))
			r.DropInterests(owner("wide"))
			began, gates := holdLists(s, 2)
			s.Disconnect(apiserver.Pods, true)
			<-began // a list that has only what the other one reads
			r.SetInterests(owner("late"), interests(tc.late))
			r.reads(tc.late, observed.Complete, "p") // from the wider store
			r.News.TakeChange(owner("late"))
			close(gates[0])
			<-began // the list that widens
			r.reads(tc.late, observed.Unsynced)
			s.Put(apiserver.Pods, "a", "p", nil, status("Running"))
			r.wakes(owner("late"), "the wider list", func() { close(gates[1]) })
			r.reads(tc.late, observed.Complete, tc.after...)
			if r.News.TakeChange(owner("late")).IsZero() {
				t.Error("nothing says that it may have missed a change")
			}
		})
	}
}

// holdLists holds up the next lists of Pods until their gates are closed, and says when each has begun.
func holdLists(s *apiserver.Server, n int) (began chan struct{}, gates []chan struct{}) {
	for range n {
		gates = append(gates, make(chan struct{}))
	}
	began = make(chan struct{}, 100)
	var lists atomic.Int64
	s.SetFault(func(_ http.ResponseWriter, verb string, gvr schema.GroupVersionResource, req *http.Request) bool {
		if gvr != apiserver.Pods || verb != "list" && (verb != "watch" || req.URL.Query().Get("sendInitialEvents") != "true") {
			return false
		}
		k := int(lists.Add(1)) - 1
		began <- struct{}{}
		if k < len(gates) {
			select {
			case <-gates[k]:
			case <-req.Context().Done():
			}
		}
		return false
	})
	return began, gates
}
