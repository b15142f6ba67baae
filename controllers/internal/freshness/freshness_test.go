// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package freshness

import (
	"context"
	"fmt"
	"io"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/vtex/cleaner/controllers/internal/live"
	"github.com/vtex/cleaner/controllers/internal/served"
	"github.com/vtex/cleaner/controllers/internal/watches"
	"github.com/vtex/cleaner/controllers/plan/observed"
	"github.com/vtex/cleaner/controllers/snapshot"
	"github.com/vtex/cleaner/test/apiserver"
	"github.com/vtex/cleaner/test/queries"
)

const deadline = 30 * time.Second

// gate holds back what arrives of watches while it is closed.
type gate struct {
	mu     sync.Mutex
	opened chan struct{} // nil: it is open
}

func (g *gate) shut() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.opened == nil {
		g.opened = make(chan struct{})
	}
}

func (g *gate) open() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.opened != nil {
		close(g.opened)
		g.opened = nil
	}
}

func (g *gate) wait(ctx context.Context) {
	g.mu.Lock()
	opened := g.opened
	g.mu.Unlock()
	if opened != nil {
		select {
		case <-ctx.Done():
		case <-opened:
		}
	}
}

// gatedTransport has watches pass a gate.
type gatedTransport struct {
	next http.RoundTripper
	gate *gate
}

func (t gatedTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := t.next.RoundTrip(r)
	if err == nil && r.URL.Query().Get("watch") != "" {
		resp.Body = gatedBody{resp.Body, t.gate, r.Context()}
	}
	return resp, err
}

type gatedBody struct {
	io.ReadCloser
	gate *gate
	ctx  context.Context //nolint:containedctx // that of the request
}

func (b gatedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.gate.wait(b.ctx)
	return n, err
}

// counts are how many proofs ended how.
type counts struct {
	mu sync.Mutex
	of map[string]int
}

func (c *counts) CountProof(result string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.of[result]++
}

func (c *counts) count(result string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.of[result]
}

// rig is a Prover whose watches run against an API server.
type rig struct {
	*Prover
	t      *testing.T
	server *apiserver.Server
	gate   *gate
	counts *counts
	clock  *clocktesting.FakePassiveClock
}

// newRig returns a rig that watches what the queries ask for.
func newRig(t *testing.T, s *apiserver.Server, qs ...snapshot.Query) *rig {
	t.Helper()
	r := &rig{t: t, server: s, gate: &gate{}, counts: &counts{of: map[string]int{}}, clock: clocktesting.NewFakePassiveClock(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))}
	config := s.Config()
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return gatedTransport{next, r.gate} })
	engine, err := watches.New(watches.Options{Config: config, Clock: clock.RealClock{}, RetryEvery: 200 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	requests, err := live.NewReader("the operator", rest.CopyConfig(s.Config()), clock.RealClock{}, engine.Resolver())
	if err != nil {
		t.Fatal(err)
	}
	r.Prover = NewProver(engine, requests, r.counts, r.clock)
	r.worth = math.MaxInt64 // lists are compared
	ended := make(chan struct{})
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		defer close(ended)
		_ = engine.Start(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		r.gate.open()
		<-ended
	})
	interests := make([]watches.Interest, len(qs))
	for i := range qs {
		interests[i].Query = qs[i]
	}
	engine.SetInterests(watches.Owner{Name: "c"}, interests)
	for i := range qs {
		r.until(fmt.Sprintf("query %d is watched", i), func() bool { return engine.Read(t.Context(), qs[i]).State == observed.Complete })
	}
	return r
}

func (r *rig) until(what string, done func() bool) {
	r.t.Helper()
	for end := time.Now().Add(deadline); !done(); {
		if time.Now().After(end) {
			r.t.Fatalf("it takes too long until %s", what)
		}
		select {
		case <-r.t.Context().Done():
		case <-time.After(2 * time.Millisecond):
		}
	}
}

func everywhere(change ...func(*snapshot.Query)) snapshot.Query {
	return queries.New("Pod", append([]func(*snapshot.Query){queries.In("")}, change...)...)
}

// fill puts so many Pods into namespaces that take turns.
func fill(s *apiserver.Server, n int, namespaces ...string) {
	for i := range n {
		s.Put(apiserver.Pods, namespaces[i%len(namespaces)], fmt.Sprintf("p%04d", i), map[string]string{"n": fmt.Sprint(i % 7)})
	}
}

// What a watch has not shown yet is seen, or nothing is said.
func TestReadIsAsNewAsTheAPIServer(t *testing.T) {
	for name, tc := range map[string]struct {
		few  int
		busy bool // the kind changes after the read has begun
		want string
	}{
		"Few":       {few: 500, want: compared},
		"ManyQuiet": {few: 1, want: compared},
		"ManyBusy":  {few: 1, busy: true, want: reached},
	} {
		t.Run(name, func(t *testing.T) {
			s := apiserver.New(t)
			fill(s, 20, "a", "b")
			r := newRig(t, s, everywhere())
			r.few, r.patience, r.listTime = tc.few, deadline, time.Minute
			if !tc.busy {
				r.patience = 100 * time.Millisecond
			}
			s.Put(apiserver.Namespaces, "", "x", nil) // the version of the API server goes on, and no watch of Pods says so
			versions := make(chan observed.Target, 1)
			go func() { versions <- r.Read(t.Context(), everywhere()) }()
			if tc.busy {
				r.until("the version was asked for", func() bool { return s.Asked("list pods") > 0 })
				s.Put(apiserver.Pods, "a", "late", nil)
			}
			got := <-versions
			if got.State != observed.Complete || len(got.Objects) < 20 {
				t.Errorf("got %s %q, %d objects", got.State, got.Detail, len(got.Objects))
			}
			r.until("it is counted", func() bool { return r.counts.count(tc.want) == 1 })
		})
	}
}

// Where a list takes long, a second watch shows what has changed since: nothing, or what the first comes to know too. If the API server does not tell,
// lists are compared.
func TestChangesAreFollowedWhereListsTakeLong(t *testing.T) {
	for name, tc := range map[string]struct {
		fault func(w http.ResponseWriter, r *http.Request) bool // of the second watch
		late  bool                                              // the first watch shows the last change later
		want  string
	}{
		"Quiet":  {want: followed},
		"Behind": {late: true, want: followed},
		"Refused": {fault: func(w http.ResponseWriter, _ *http.Request) bool {
			http.Error(w, "made up", http.StatusGone)
			return true
		}, want: compared},
		"Silent": {fault: func(_ http.ResponseWriter, r *http.Request) bool { <-r.Context().Done(); return true }, want: compared},
		"Ended":  {fault: func(http.ResponseWriter, *http.Request) bool { return true }, want: compared},
		"Older": {fault: func(w http.ResponseWriter, _ *http.Request) bool {
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, `{"type":"BOOKMARK","object":{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":{"resourceVersion":"1"}}}`)
			return true
		}, want: compared},
	} {
		t.Run(name, func(t *testing.T) {
			s := apiserver.New(t)
			fill(s, 20, "a", "b")
			r := newRig(t, s, everywhere())
			r.few, r.patience, r.listTime, r.worth = 1, 10*time.Millisecond, time.Minute, 0
			s.SetFault(func(w http.ResponseWriter, verb string, gvr schema.GroupVersionResource, q *http.Request) bool {
				return tc.fault != nil && verb == "watch" && gvr == apiserver.Pods && q.URL.Query().Get("timeoutSeconds") == "3" && tc.fault(w, q)
			})
			if tc.late {
				r.gate.shut()
				s.Put(apiserver.Pods, "a", "late", nil)
			}
			s.Put(apiserver.Namespaces, "", "x", nil) // the version of the API server goes on, and no watch of Pods says so
			lists := s.Asked("list pods")
			answers := make(chan observed.Target, 1)
			go func() { answers <- r.Read(t.Context(), everywhere()) }()
			most := 20
			if tc.late {
				most = 21
				r.until("the second watch has shown all changes", func() bool { return s.Asked("bookmark pods") > 0 })
				select {
				case got := <-answers:
					t.Errorf("got %s, %d objects, before the first watch knew of the last", got.State, len(got.Objects))
					return
				case <-time.After(50 * time.Millisecond):
				}
			}
			r.gate.open()
			got := <-answers
			if got.State != observed.Complete || len(got.Objects) != most {
				t.Errorf("got %s %q, %d objects", got.State, got.Detail, len(got.Objects))
			}
			reads := 1
			r.until("it is proved so", func() bool { // on a slow machine, the first watch may begin late, and know all at once
				if r.counts.count(tc.want) > 0 {
					return true
				}
				s.Put(apiserver.Namespaces, "", "x", nil)
				r.Read(t.Context(), everywhere())
				reads++
				return false
			})
			if n := s.Asked("list pods") - lists; tc.want == followed && n > reads {
				t.Errorf("%d lists were sent for %d proofs", n, reads)
			}
		})
	}
}

// A proof waits for a watch no longer than a list takes that proves the same: many Cleaners may wait for it.
func TestAProofWaitsNoLongerThanAListTakes(t *testing.T) {
	s := apiserver.New(t)
	fill(s, 20, "a", "b")
	r := newRig(t, s, everywhere())
	r.few, r.patience, r.listTime = 1, time.Hour, time.Microsecond
	s.Put(apiserver.Namespaces, "", "x", nil)                                     // the version of the API server goes on, and no watch of Pods says so
	if got := r.Read(t.Context(), everywhere()); got.State != observed.Complete { // it waits for 3 seconds at most
		t.Errorf("got %s %q", got.State, got.Detail)
	}
	r.until("it is compared", func() bool { return r.counts.count(compared) == 1 })
}

// A proof does not wait much longer for a watch than others had to: the next change of a kind may be made by those who wait for the proof.
func TestAProofWaitsNoLongerThanOthersHadTo(t *testing.T) {
	s := apiserver.New(t)
	fill(s, 20, "a", "b")
	r := newRig(t, s, everywhere())
	r.few, r.patience, r.listTime = 1, time.Hour, 10*time.Millisecond
	for n := range 2 {
		s.Put(apiserver.Namespaces, "", "x", nil)
		if got := r.Read(t.Context(), everywhere()); got.State != observed.Complete {
			t.Errorf("got %s %q", got.State, got.Detail)
		}
		r.until("it is compared", func() bool { return r.counts.count(compared) == n+1 })
	}
	place, _, _, _ := r.watches.FindPlace(new(everywhere()))
	if got := r.waits[place]; got >= leastWait {
		t.Errorf("after two that waited in vain, the next proof waits for %s", got)
	}
}

// A change that comes while lists are compared, or when none is possible, proves as one that comes before.
func TestAChangeProvesWhileAListIsUnderWay(t *testing.T) {
	for name, listed := range map[string]func(w http.ResponseWriter, r *http.Request){
		"Slow":   func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() },
		"Failed": func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusForbidden) },
	} {
		t.Run(name, func(t *testing.T) {
			s := apiserver.New(t)
			fill(s, 20, "a", "b")
			r := newRig(t, s, everywhere())
			r.few, r.patience, r.listTime = 1, deadline, 70*time.Millisecond
			asked := make(chan struct{}, 1)
			s.SetFault(func(w http.ResponseWriter, verb string, gvr schema.GroupVersionResource, req *http.Request) bool {
				if verb != "list" || gvr != apiserver.Pods || req.URL.Query().Get("limit") == "1" {
					return false
				}
				select {
				case asked <- struct{}{}:
				default:
				}
				listed(w, req)
				return true
			})
			s.Put(apiserver.Namespaces, "", "x", nil)
			got := make(chan observed.Target, 1)
			go func() { got <- r.Read(t.Context(), everywhere()) }()
			<-asked
			r.clock.SetTime(r.clock.Now().Add(time.Second))
			s.Put(apiserver.Pods, "a", "late", nil)
			if now := <-got; now.State != observed.Complete || !slices.Contains(queries.NamesOf(now), "late") {
				t.Errorf("got %s %q, %d objects", now.State, now.Detail, len(now.Objects))
			}
			r.until("it is counted", func() bool { return r.counts.count(reached) == 1 })
			place, _, _, _ := r.watches.FindPlace(new(everywhere()))
			if wait := r.waits[place]; wait != longAgainst*time.Second {
				t.Errorf("after a change that came after a second, the next proof waits for %s", wait)
			}
		})
	}
}

func TestNextWait(t *testing.T) {
	for name, tc := range map[string]struct {
		wait, took time.Duration
		came       bool
		want       time.Duration
	}{
		"InVain":   {wait: 100, took: 100, want: 50},
		"AtOnce":   {wait: 100, came: true, want: 50},
		"Soon":     {wait: 100, took: 10, came: true, want: 50},
		"JustSo":   {wait: 100, took: 90, came: true, want: 360},
		"ClockSet": {wait: 100, took: -90, came: true, want: 50},
	} {
		if got := nextWait(tc.wait, tc.took, tc.came); got != tc.want {
			t.Errorf("%s: got %d, want %d", name, got, tc.want)
		}
	}
}

// It is known of few places how long others had to wait: tenants choose them.
func TestTheWaitsOfFewPlacesAreKnown(t *testing.T) {
	s := apiserver.New(t)
	fill(s, 20, "a")
	r := newRig(t, s, everywhere())
	r.few, r.patience, r.listTime = 1, time.Hour, time.Millisecond
	for i := range maxPlaces {
		r.waits[watches.Place{Namespace: fmt.Sprint(i)}] = time.Second
	}
	s.Put(apiserver.Namespaces, "", "x", nil)
	if got := r.Read(t.Context(), everywhere()); got.State != observed.Complete || len(r.waits) != 1 {
		t.Errorf("got %s, with the waits of %d places", got.State, len(r.waits))
	}
}

// Where nothing was written since the last change of a built-in kind, its watch has reached what the API server has: one request proves it.
func TestAVersionThatWasReachedBeforeProves(t *testing.T) {
	events := schema.GroupVersionResource{Version: "v1", Resource: "events"}
	for name, tc := range map[string]struct {
		kind    schema.GroupVersionResource
		install func(*apiserver.Server)
		want    string
		lists   int
	}{
		"BuiltIn": {apiserver.Pods, func(*apiserver.Server) {}, reached, 1},
		// Many that expire at once have one version, of which the watch may have shown a part.
		"Event": {events, func(s *apiserver.Server) { s.Serve(events, "Event", true) }, compared, 1},
		// Other API servers may give all lists the same version, and serve what a CustomResourceDefinition defines.
		"Defined":            {apiserver.Revisions, func(s *apiserver.Server) { s.Install(apiserver.Revisions, "Revision", true) }, compared, 2},
		"OfAnotherAPIServer": {apiserver.Revisions, func(s *apiserver.Server) { s.Serve(apiserver.Revisions, "Revision", true) }, compared, 1},
	} {
		t.Run(name, func(t *testing.T) {
			s := apiserver.New(t)
			tc.install(s)
			for i := range 20 {
				s.Put(tc.kind, "a", fmt.Sprintf("o%02d", i), nil)
			}
			query := queries.New(map[string]string{"pods": "Pod", "events": "Event", "revisions": "Revision"}[tc.kind.Resource], queries.In(""))
			r := newRig(t, s, query, served.NewDefinitionQuery(tc.kind.GroupResource().String()))
			r.few, r.patience, r.listTime = 1, 100*time.Millisecond, time.Minute
			asked := s.Asked("list " + tc.kind.Resource)
			if got := r.Read(t.Context(), query); got.State != observed.Complete || len(got.Objects) != 20 {
				t.Errorf("got %s with %d objects", got.State, len(got.Objects))
			}
			r.until("it is counted", func() bool { return r.counts.count(tc.want) == 1 })
			if n := s.Asked("list "+tc.kind.Resource) - asked; n != tc.lists {
				t.Errorf("it took %d lists", n)
			}
		})
	}
}

// An API server of its own that gives all lists the same version proves nothing by it.
func TestAVersionThatStaysProvesNothing(t *testing.T) {
	s := apiserver.New(t)
	s.Serve(apiserver.Revisions, "Revision", true)
	revisions := queries.New("Revision", queries.In(""))
	for i := range 20 {
		s.Put(apiserver.Revisions, "a", fmt.Sprintf("o%02d", i), nil)
	}
	r := newRig(t, s, revisions)
	r.few, r.patience, r.listTime = 1, 100*time.Millisecond, time.Minute
	s.RemoveSilently(apiserver.Revisions, "a", "o00")
	if got := r.Read(t.Context(), revisions); got.State != observed.Unsynced {
		t.Errorf("got %s with %d objects", got.State, len(got.Objects))
	}
}

// While a watch is behind, nothing is proved, and what it has missed is read live.
func TestAWatchThatIsBehindProvesNothing(t *testing.T) {
	for name, few := range map[string]int{"Few": 500, "Many": 1} {
		t.Run(name, func(t *testing.T) {
			s := apiserver.New(t)
			fill(s, 20, "a", "b")
			r := newRig(t, s, everywhere())
			r.few, r.patience, r.listTime = few, 100*time.Millisecond, time.Minute
			r.gate.shut()
			s.Remove(apiserver.Pods, "a", "p0000")
			s.Put(apiserver.Pods, "a", "new", nil)
			if got := r.Read(t.Context(), everywhere()); got.State != observed.Unsynced || len(got.Objects) > 0 {
				t.Errorf("got %s, %d objects", got.State, len(got.Objects))
			}
			got := Reader{Proven: r.Prover, Live: r.requests}.Read(t.Context(), everywhere())
			if names := queries.NamesOf(got); got.State != observed.Complete || !slices.Contains(names, "new") || slices.Contains(names, "p0000") {
				t.Errorf("live reads give %s %v", got.State, names)
			}
			asked := s.Asked("list pods")
			if got := r.Read(t.Context(), everywhere()); got.State != observed.Unsynced || s.Asked("list pods") != asked {
				t.Errorf("after one failure it is tried again at once: %s", got.State)
			}
			r.gate.open()
			r.clock.SetTime(r.clock.Now().Add(pauseAfterFailure))
			r.until("it has caught up", func() bool {
				r.clock.SetTime(r.clock.Now().Add(pauseAfterFailure))
				return r.Read(t.Context(), everywhere()).State == observed.Complete
			})
			if names := queries.NamesOf(r.Read(t.Context(), everywhere())); !slices.Contains(names, "new") || slices.Contains(names, "p0000") {
				t.Errorf("it gives %v", names)
			}
		})
	}
}

// An object whose deletion no watch has shown is noticed where lists are compared.
func TestAnEventThatIsLostIsNoticed(t *testing.T) {
	s := apiserver.New(t)
	fill(s, 5, "a")
	r := newRig(t, s, everywhere())
	r.patience = 100 * time.Millisecond
	s.RemoveSilently(apiserver.Pods, "a", "p0003")
	s.Put(apiserver.Namespaces, "", "x", nil)
	if got := r.Read(t.Context(), everywhere()); got.State == observed.Complete {
		t.Errorf("it gives %v", queries.NamesOf(got))
	}
}

// An API server that has lost what it knew, as one that was restored from a backup, proves nothing.
func TestAnAPIServerThatGoesBackProvesNothing(t *testing.T) {
	for name, few := range map[string]int{"Few": 500, "Many": 1} {
		s := apiserver.New(t)
		fill(s, 20, "a", "b")
		r := newRig(t, s, everywhere())
		r.few = few
		s.SetVersion(s.Put(apiserver.Namespaces, "", "x", nil) - 5)
		if got := r.Read(t.Context(), everywhere()); got.State == observed.Complete {
			t.Errorf("%s: it proves %d objects", name, len(got.Objects))
		}
	}
}

// Nor does one that goes back while it is asked, even if it passes the version that it had returned.
func TestAnAPIServerThatGoesBackWhileItIsAskedProvesNothing(t *testing.T) {
	s := apiserver.New(t)
	fill(s, 20, "a", "b")
	r := newRig(t, s, everywhere())
	r.few, r.patience, r.listTime = 1, deadline, 70*time.Millisecond
	place, _, _, _ := r.watches.FindPlace(new(everywhere()))
	now := s.Put(apiserver.Namespaces, "", "x", nil)
	s.SetFault(func(_ http.ResponseWriter, verb string, gvr schema.GroupVersionResource, req *http.Request) bool {
		if verb == "list" && gvr == apiserver.Pods && req.URL.Query().Get("limit") != "1" {
			s.SetVersion(now - 10)
		}
		return false
	})
	got := make(chan observed.Target, 1)
	go func() { got <- r.Read(t.Context(), everywhere()) }()
	r.until("it is noticed", func() bool { return r.isLost(place) })
	for i := range 20 {
		s.Put(apiserver.Pods, "a", fmt.Sprint("late", i), nil)
	}
	if now := <-got; now.State != observed.Unsynced {
		t.Errorf("it proves %d objects", len(now.Objects))
	}
	r.until("its watch has passed the version", func() bool {
		reached, err := strconv.Atoi(r.watches.ReachedVersion(place))
		return err == nil && reached > now
	})
}

// An object that comes and goes while the watch is behind is in no list. When the watch shows how it came, what was compared before proves nothing
// any longer.
func TestAnObjectThatIsGoneAgainIsNotProved(t *testing.T) {
	for name, few := range map[string]int{"Few": 500, "Many": 1} {
		t.Run(name, func(t *testing.T) {
			s := apiserver.New(t)
			fill(s, 5, "a")
			r := newRig(t, s, everywhere())
			r.few, r.patience, r.listTime = few, 100*time.Millisecond, time.Minute
			for n := range 20 { // the watch may show the first alone, or both at once
				r.gate.shut()
				s.Put(apiserver.Pods, "a", "z", nil)
				s.Remove(apiserver.Pods, "a", "z")
				for range 3 {
					r.clock.SetTime(r.clock.Now().Add(pauseAfterFailure))
					if got := r.Read(t.Context(), everywhere()); got.State == observed.Complete && slices.Contains(queries.NamesOf(got), "z") {
						t.Fatalf("round %d: it proves %v", n, queries.NamesOf(got))
					}
					r.gate.open()
					r.gate.shut()
				}
				r.gate.open()
				r.until("the watch has caught up", func() bool {
					r.clock.SetTime(r.clock.Now().Add(pauseAfterFailure))
					return r.Read(t.Context(), everywhere()).State == observed.Complete
				})
			}
		})
	}
}

// Once an API server has gone back, its watch may have missed what came instead: nothing is proved when it has passed the version from before.
func TestAnAPIServerThatWentBackProvesNothingLater(t *testing.T) {
	for name, few := range map[string]int{"Few": 500, "Many": 1} {
		s := apiserver.New(t)
		fill(s, 20, "a", "b")
		r := newRig(t, s, everywhere())
		r.few, r.patience, r.listTime = few, 50*time.Millisecond, time.Minute
		last := s.Put(apiserver.Pods, "a", "lost", nil)
		r.until("the watch shows it", func() bool { return slices.Contains(queries.NamesOf(r.Read(t.Context(), everywhere())), "lost") })
		s.RemoveSilently(apiserver.Pods, "a", "lost")
		s.SetVersion(last - 3)
		if got := r.Read(t.Context(), everywhere()); got.State == observed.Complete {
			t.Errorf("%s: it proves %d objects of another time", name, len(got.Objects))
		}
		for s.Put(apiserver.Pods, "b", "p0001", nil) < last+5 {
			r.clock.SetTime(r.clock.Now().Add(pauseAfterFailure))
			if got := r.Read(t.Context(), everywhere()); got.State == observed.Complete {
				t.Errorf("%s: it proves %d objects of another time", name, len(got.Objects))
			}
		}
	}
}

// What is asked for where proofs cost more than a live read, or cannot be, is not proved.
func TestNotProved(t *testing.T) {
	other := schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
	for name, tc := range map[string]struct {
		query snapshot.Query
		many  int
		fault func(s *apiserver.Server)
	}{
		"ASmallPart": {query: queries.New("Pod", queries.In("b")), many: 20},
		"ByName":     {query: everywhere(queries.Named("p0000"))},
		"Unwatched":  {query: queries.New("ConfigMap", queries.In(""))},
		"NoVersion": {query: everywhere(), fault: func(s *apiserver.Server) {
			s.SetFault(func(w http.ResponseWriter, verb string, gvr schema.GroupVersionResource, _ *http.Request) bool {
				if verb != "list" || gvr != apiserver.Pods {
					return false
				}
				w.Header().Set("Content-Type", "application/json")
				_, _ = io.WriteString(w, `{"apiVersion":"meta.k8s.io/v1","kind":"PartialObjectMetadataList","metadata":{"resourceVersion":"abc"},"items":[]}`)
				return true
			})
		}},
		"Error": {query: everywhere(), fault: func(s *apiserver.Server) {
			s.SetFault(func(w http.ResponseWriter, verb string, gvr schema.GroupVersionResource, _ *http.Request) bool {
				if verb == "list" && gvr == apiserver.Pods {
					http.Error(w, "no", http.StatusInternalServerError)
				}
				return verb == "list" && gvr == apiserver.Pods
			})
		}},
		"Forbidden": {query: everywhere(), fault: func(s *apiserver.Server) { s.Deny(apiserver.Denial{Resource: "pods"}) }},
	} {
		t.Run(name, func(t *testing.T) {
			s := apiserver.New(t)
			s.Serve(other, "ConfigMap", true)
			fill(s, 3, "a")
			fill(s, 1, "b")
			fill(s, tc.many, "c")
			r := newRig(t, s, everywhere())
			if tc.fault != nil {
				tc.fault(s)
			}
			if got := r.Read(t.Context(), tc.query); got.State != observed.Unsynced {
				t.Errorf("got %s", got.State)
			}
		})
	}
}

// Those who ask while a proof is under way share the next one, which begins after they asked.
func TestProofsAreShared(t *testing.T) {
	s := apiserver.New(t)
	fill(s, 20, "a", "b")
	r := newRig(t, s, everywhere())
	asked, answer := make(chan struct{}, 100), make(chan struct{})
	s.SetFault(func(_ http.ResponseWriter, verb string, gvr schema.GroupVersionResource, _ *http.Request) bool {
		if verb == "list" && gvr == apiserver.Pods {
			asked <- struct{}{}
			<-answer
		}
		return false
	})
	const readers = 50
	results := make(chan observed.Target, readers+1)
	read := func() { results <- r.Read(t.Context(), everywhere(queries.Labelled("n!=9"))) }
	go read()
	<-asked
	s.Put(apiserver.Pods, "a", "new", nil) // the first may not know of it, all others must
	for range readers {
		go read()
	}
	r.until("all wait", func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		return len(r.lines) == 1 && func() bool {
			for _, l := range r.lines {
				return l.next != nil && l.next.waiting == readers
			}
			return false
		}()
	})
	close(answer)
	news := 0
	for range readers + 1 {
		got := <-results
		if got.State != observed.Complete {
			t.Fatalf("got %s %s", got.State, got.Detail)
		}
		if slices.Contains(queries.NamesOf(got), "new") {
			news++
		}
	}
	if news < readers {
		t.Errorf("%d know what was there when they asked, want %d", news, readers)
	}
	if n := s.Asked("list pods"); n > 4 {
		t.Errorf("%d lists", n)
	}
	r.until("nothing is kept", func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		return len(r.lines) == 0
	})
}

// A caller whose time is over does not wait for a proof.
func TestACallerMayLeave(t *testing.T) {
	s := apiserver.New(t)
	fill(s, 3, "a")
	r := newRig(t, s, everywhere())
	answer := make(chan struct{})
	s.SetFault(func(_ http.ResponseWriter, verb string, _ schema.GroupVersionResource, r *http.Request) bool {
		if verb == "list" {
			select {
			case <-answer:
			case <-r.Context().Done():
			}
		}
		return false
	})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if got := r.Read(ctx, everywhere()); got.State != observed.Unsynced {
		t.Errorf("got %s", got.State)
	}
	close(answer)
}

// Namespaces that labels choose are the same before and after.
func TestNamespacesThatAreChosen(t *testing.T) {
	s := apiserver.New(t)
	fill(s, 20, "a", "b", "c")
	for _, name := range []string{"a", "b"} {
		s.Put(apiserver.Namespaces, "", name, queries.Tier("dev"))
	}
	s.Put(apiserver.Namespaces, "", "c", nil)
	q := queries.New("Pod", queries.ChosenBy("tier=dev"), func(q *snapshot.Query) { q.Namespaces.Except = []string{"b"} })
	r := newRig(t, s, q)
	got := r.Read(t.Context(), q)
	if places := queries.PlacesOf(got); got.State != observed.Complete || len(places) != 7 || slices.ContainsFunc(places, func(p string) bool { return !strings.HasPrefix(p, "a/") }) {
		t.Errorf("got %s %v", got.State, places)
	}
	s.SetFault(func(_ http.ResponseWriter, verb string, gvr schema.GroupVersionResource, _ *http.Request) bool {
		if verb == "list" && gvr == apiserver.Pods {
			s.Put(apiserver.Namespaces, "", "c", queries.Tier("dev"))
		}
		return false
	})
	if got := r.Read(t.Context(), q); got.State != observed.Unsynced {
		t.Errorf("the namespaces have changed meanwhile, and it gives %s %v", got.State, queries.PlacesOf(got))
	}
}
