// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package freshness

import (
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/vtex/cleaner/controllers/internal/served"
	"github.com/vtex/cleaner/controllers/plan/observed"
	"github.com/vtex/cleaner/test/apiserver"
	"github.com/vtex/cleaner/test/queries"
)

// A definition changes, so that the API server shows objects otherwise, at the same versions. While the watch of definitions has not shown that, nothing is
// proved of the kind, and neither while definitions cannot be watched.
func TestADefinitionThatIsNotKnownProvesNothing(t *testing.T) {
	define := func(s *apiserver.Server, generation int64) {
		s.Put(apiserver.CRDs, "", apiserver.Revisions.GroupResource().String(), nil, map[string]any{"metadata": map[string]any{"generation": generation}})
	}
	denial := apiserver.Denial{Resource: "customresourcedefinitions", Namespace: "*", Name: "*"}
	for name, tc := range map[string]struct {
		few    int
		denied bool
		change func(*apiserver.Server)
		want   observed.TargetState
	}{
		"FewAndTheSame":    {few: 500, change: func(s *apiserver.Server) { define(s, 1) }, want: observed.Complete},
		"FewAndAnother":    {few: 500, change: func(s *apiserver.Server) { define(s, 2) }, want: observed.Unsynced},
		"FewAndGone":       {few: 500, change: func(s *apiserver.Server) { s.Remove(apiserver.CRDs, "", apiserver.Revisions.GroupResource().String()) }, want: observed.Unsynced},
		"ManyAndTheSame":   {few: 0, change: func(s *apiserver.Server) { define(s, 1) }, want: observed.Complete},
		"ManyAndAnother":   {few: 0, change: func(s *apiserver.Server) { define(s, 2) }, want: observed.Unsynced},
		"Denied":           {few: 500, denied: true, change: func(*apiserver.Server) {}, want: observed.Unsynced},
		"FewAndUnreadable": {few: 500, change: func(s *apiserver.Server) { s.Deny(denial) }, want: observed.Unsynced},
	} {
		t.Run(name, func(t *testing.T) {
			s := apiserver.New(t)
			s.Install(apiserver.Revisions, "Revision", true)
			define(s, 1)
			s.Put(apiserver.Revisions, "a", "o1", nil)
			if tc.denied {
				s.Deny(denial)
			}
			query := queries.New("Revision", queries.In(""))
			r := newRig(t, s, query)
			if !tc.denied {
				r.until("definitions are watched", func() bool {
					return r.watches.Read(t.Context(), served.NewDefinitionQuery(apiserver.Revisions.GroupResource().String())).State == observed.Complete
				})
			}
			r.few, r.patience = tc.few, 300*time.Millisecond
			r.gate.shut()
			tc.change(s)
			if got := r.Read(t.Context(), query); got.State != tc.want {
				t.Errorf("got %s, want %s", got.State, tc.want)
			}
		})
	}
}

// Where versions have no order, what was compared counts only until the watch shows something: that may have been before.
func TestWithoutOrderAnEventTakesBackWhatWasCompared(t *testing.T) {
	s := apiserver.New(t)
	s.Serve(apiserver.Revisions, "Revision", true) // by another API server, which gives a list the version of its newest object
	query := queries.New("Revision", queries.In(""))
	last := 0
	for _, name := range []string{"a", "b", "c"} {
		last = s.Put(apiserver.Revisions, "x", name, nil)
	}
	r := newRig(t, s, query)
	r.until("it is known that there is no definition", func() bool { return !r.watches.Read(t.Context(), query).Outdated })
	r.patience = 200 * time.Millisecond
	r.gate.shut()
	s.Put(apiserver.Revisions, "x", "z", nil) // and it is gone again while the watch is behind
	s.RemoveSilently(apiserver.Revisions, "x", "z")
	s.SetVersion(last)
	place, all, _, _ := r.watches.FindPlace(&query)
	proved := r.awaitProof(t.Context(), place, all)
	if proved == nil || proved.version == "" || !proved.exactly {
		t.Fatalf("it is proved: %+v", proved)
	}
	if got := r.watches.ReadConfirmed(t.Context(), query, proved.version); got.State != observed.Complete || len(got.Objects) != 3 {
		t.Errorf("before the event there are %v, %s", queries.NamesOf(got), got.State)
	}
	r.gate.open()
	r.until("the watch shows it", func() bool { return len(r.watches.Read(t.Context(), query).Objects) == 4 })
	if got := r.watches.ReadConfirmed(t.Context(), query, proved.version); got.State == observed.Complete {
		t.Errorf("after the event there are %v", queries.NamesOf(got))
	}
}

// Who comes while a slow proof is made waits for the next one, and does not read live.
func TestSlowProofsServeAllWhoWait(t *testing.T) {
	s := apiserver.New(t)
	fill(s, 20, "a", "b")
	r := newRig(t, s, everywhere())
	const slow = maxDuration * 3 / 5
	var whole atomic.Int64
	first := make(chan struct{})
	began := sync.OnceFunc(func() { close(first) })
	s.SetFault(func(_ http.ResponseWriter, verb string, gvr schema.GroupVersionResource, req *http.Request) bool {
		switch {
		case verb != "list" || gvr != apiserver.Pods:
		case strings.Contains(req.Header.Get("Accept"), "PartialObjectMetadata"):
			began()
			<-time.After(slow)
		default:
			whole.Add(1)
		}
		return false
	})
	reader := Reader{Proven: r.Prover, Live: r.requests}
	var all sync.WaitGroup
	all.Go(func() { reader.Read(t.Context(), everywhere()) })
	<-first
	for range 20 {
		all.Go(func() { reader.Read(t.Context(), everywhere()) })
	}
	all.Wait()
	r.until("both proofs are counted", func() bool { return r.counts.count(compared) == 2 })
	if n := whole.Load(); n > 0 {
		t.Errorf("%d have read live", n)
	}
}
