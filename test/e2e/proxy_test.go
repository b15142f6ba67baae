// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/test/operator"
)

// proxy stands between an operator and its API server.
type proxy struct {
	server *httptest.Server
	cut    atomic.Bool
}

// fault is what becomes of a request: it is answered with this code in the place of the API server; 0 is what that answers.
type fault int

// answerLost is a request that the API server serves, and whose answer nobody gets.
const answerLost fault = -1

// through runs an operator behind a proxy, which a test may have tamper with requests and answers.
func through(t *testing.T, e *env, tamper func(*http.Request) fault, answered func(*http.Response), args ...string) *proxy {
	t.Helper()
	behind, err := url.Parse(e.Config().Host)
	if err != nil {
		t.Fatal(err)
	}
	tlsConfig, err := rest.TLSConfigFor(&rest.Config{TLSClientConfig: rest.TLSClientConfig{CAData: e.Config().CAData}})
	if err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{TLSClientConfig: tlsConfig}
	forward := &httputil.ReverseProxy{
		Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(behind) },
		Transport:     transport,
		FlushInterval: -1, // watches
		ModifyResponse: func(r *http.Response) error {
			answered(r)
			return nil
		},
		ErrorLog: silent(),
	}
	p := &proxy{}
	p.server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if p.cut.Load() {
			panic(http.ErrAbortHandler)
		}
		switch f := tamper(r); f {
		case 0:
			forward.ServeHTTP(w, r)
		case answerLost:
			forward.ServeHTTP(httptest.NewRecorder(), r)
			panic(http.ErrAbortHandler)
		default:
			http.Error(w, "the proxy refuses", int(f))
		}
	}))
	p.server.Config.ErrorLog = silent()
	p.server.StartTLS()
	t.Cleanup(func() {
		p.server.CloseClientConnections()
		p.server.Close()
		transport.CloseIdleConnections()
	})
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: p.server.Certificate().Raw})
	o, err := operator.Run(t.Context(), e.Cluster, operator.Options{Binary: e.binary, Args: args, Through: func(c *rest.Config) {
		c.Host, c.CAData = p.server.URL, ca
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := o.Kill(); err != nil {
			t.Error(err)
		}
	})
	return p
}

func silent() *log.Logger { return log.New(io.Discard, "", 0) }

func untampered(*http.Request) fault { return 0 }

func unseen(*http.Response) {}

// part cuts all connections, and lets none be made until join is called.
func (p *proxy) part() {
	p.cut.Store(true)
	p.server.CloseClientConnections()
}

func (p *proxy) join() { p.cut.Store(false) }

// What happens while an operator cannot reach the API server it learns when it can again; what it knew before then counts
// for nothing.
func TestTheWatchesAreLostAndComeBack(t *testing.T) {
	l := newLab(t, alone(t))
	p := through(t, l.env, untampered, unseen, lone()...)
	l.labelled(map[string]string{"state": "used"}, "changed", "kept", "replaced")
	l.apply(cleanerYAML("c", stays("", shopMaps+`
  rules:
  - {name: stale, forEach: maps.items, when: item.data.state == "stale", actions: [{delete: {}}]}`)))
	l.labelled(map[string]string{"state": "stale"}, "first")
	l.leaves("changed", "kept", "replaced")
	p.part()
	cm := l.configMap("rescued", map[string]string{"app": "shop"}, map[string]string{"state": "stale"})
	l.update(cm, "rescued", func() { cm.Data["state"] = "used" })
	l.update(cm, "changed", func() { cm.Data["state"] = "stale" })
	l.exists(cm, "replaced")
	if err := l.Delete(l.ctx, cm); err != nil {
		t.Fatal(err)
	}
	l.labelled(map[string]string{"state": "stale"}, "new", "replaced")
	if n := len(l.trail.deletes()); n != 1 {
		t.Fatalf("%d deletions were sent without a connection", n-1)
	}
	p.join()
	l.leaves("kept", "rescued")
	l.labelled(map[string]string{"state": "stale"}, "late")
	l.leaves("kept", "rescued")
	l.says("c", v1alpha1.ConditionReady, v1alpha1.ReasonNothingToDo)
	l.trail.deletedOnce()
}

// More than a batch is deleted while the API server is out of order: some requests are refused, and of some the answer is
// lost.
func TestBatchesOfARuleUnderFaults(t *testing.T) {
	l := newLab(t, alone(t))
	s := l.sink()
	const n = 600
	for i := range n {
		l.labelled(nil, fmt.Sprintf("m-%03d", i))
	}
	var deletions, faults atomic.Int64
	tamper := func(r *http.Request) fault {
		if r.Method != http.MethodDelete || !strings.Contains(r.URL.Path, "/configmaps/") {
			return 0
		}
		switch d := deletions.Add(1); {
		case d%7 == 0:
			faults.Add(1)
			return answerLost
		case d%11 == 0:
			faults.Add(1)
			return http.StatusServiceUnavailable
		case d%13 == 0:
			faults.Add(1)
			return http.StatusTooManyRequests
		}
		return 0
	}
	through(t, l.env, tamper, unseen, lone()...)
	l.apply(cleanerYAML("c", stays(s.URL, shopMaps+takeAll)))
	l.leaves()
	l.says("c", v1alpha1.ConditionReady, v1alpha1.ReasonNothingToDo)
	l.trail.deletedOnce()
	if faults.Load() < n/10 {
		t.Errorf("%d deletions of %d met a fault: this shows little", faults.Load(), deletions.Load())
	}
	l.eventually("each object is counted once", func() string {
		got := told(t, s)
		if deleted, gone := got[v1alpha1.OutcomeDeleted], got[v1alpha1.OutcomeGone]; deleted+gone != n || gone == 0 {
			return fmt.Sprintf("the events add up to %v", got)
		}
		return ""
	})
	if got := slices.Sorted(maps.Keys(told(t, s))); len(got) != 2 {
		t.Errorf("the events tell of %v", got)
	}
}

// lag holds what watches send for as long as it is locked.
type lag struct{ sync.RWMutex }

// lagging is the body of a watch that a lag holds.
type lagging struct {
	io.ReadCloser
	by *lag
}

func (b lagging) Read(into []byte) (int, error) {
	n, err := b.ReadCloser.Read(into)
	b.by.RLock()
	defer b.by.RUnlock()
	return n, err
}

// An object whose deletion was not answered, and that is found to be gone, is counted once: also while the watch shows it
// still.
func TestWhatIsGoneIsCountedOnceWhileTheWatchLags(t *testing.T) {
	looked := func(*http.Request, time.Time) fault { return 0 }
	countedOnceWhileTheWatchLags(t, looked)
}

// The same when it cannot be looked at before it would be deleted again.
func TestWhatIsGoneIsCountedOnceWhenItIsLookedAtLate(t *testing.T) {
	var first sync.Map // by path
	looked := func(r *http.Request, deleted time.Time) fault {
		if _, again := first.LoadOrStore(r.URL.Path, true); again {
			return 0
		}
		later := time.NewTimer(time.Until(deleted.Add(2 * time.Second))) // by then a deletion that got lost is due again
		defer later.Stop()
		select {
		case <-later.C:
		case <-r.Context().Done():
		}
		return http.StatusServiceUnavailable
	}
	countedOnceWhileTheWatchLags(t, looked)
}

// countedOnceWhileTheWatchLags loses the answers to deletions, and then holds the watch that would show them. What becomes
// of a read of one of the objects depends on looked, which is told when they were deleted.
func countedOnceWhileTheWatchLags(t *testing.T, looked func(r *http.Request, deleted time.Time) fault) {
	t.Helper()
	l := newLab(t, alone(t))
	s := l.sink()
	l.labelled(nil, "a", "b", "c")
	var watch lag
	var begins, ends sync.Once
	var deleted time.Time
	var deletions atomic.Int64
	tamper := func(r *http.Request) fault {
		switch {
		case !strings.Contains(r.URL.Path, "/configmaps/"):
			return 0
		case r.Method == http.MethodGet && deletions.Load() > 0: // since when deleted is set
			return looked(r, deleted)
		case r.Method != http.MethodDelete:
			return 0
		}
		begins.Do(func() {
			watch.Lock()
			deleted = time.Now()
		})
		if deletions.Add(1) <= 3 {
			return answerLost
		}
		return 0
	}
	through(t, l.env, tamper, func(r *http.Response) {
		if strings.Contains(r.Request.URL.Path, "/configmaps") && r.Request.URL.Query().Has("watch") {
			r.Body = lagging{r.Body, &watch}
		}
	}, lone()...)
	catchUp := func() { ends.Do(watch.Unlock) }
	l.apply(cleanerYAML("c", stays(s.URL, shopMaps+takeAll)))
	l.leaves()
	t.Cleanup(catchUp)
	l.says("c", v1alpha1.ConditionReady, v1alpha1.ReasonNothingToDo)
	catchUp()
	l.labelled(nil, "late")
	l.leaves()
	l.eventually("each object is counted once", func() string {
		got := told(t, s)
		if got[v1alpha1.OutcomeGone] != 3 || got[v1alpha1.OutcomeDeleted] != 1 {
			return fmt.Sprintf("the events add up to %v", got)
		}
		return ""
	})
	if n := deletions.Load(); n != 4 {
		t.Errorf("%d deletions were sent for 4 objects", n)
	}
}
