// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package watches

import (
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/vtex/cleaner/controllers/plan/observed"
	"github.com/vtex/cleaner/controllers/snapshot"
	"github.com/vtex/cleaner/test/apiserver"
	"github.com/vtex/cleaner/test/queries"
)

// watchesPods waits until an owner knows Pods, by a watch that has shown one.
func watchesPods(r *rig, c Owner) snapshot.Query {
	r.Helper()
	q := queries.New("Pod")
	r.server.Put(apiserver.Pods, "a", "first", nil)
	r.SetInterests(c, interests(q))
	r.reads(q, observed.Complete, "first")
	r.server.Put(apiserver.Pods, "a", "second", nil)
	r.reads(q, observed.Complete, "first", "second")
	return q
}

// An API server that cannot fill its watch cache, because an object somewhere cannot be converted, refuses each watch with 429 for as long as
// that object is there. What is known is kept up to date by lists, and says so where they fail, too.
func TestWatchesThatAreRefusedAreReplacedByLists(t *testing.T) {
	s := apiserver.New(t)
	r := newRig(t, s)
	q := watchesPods(r, owner("c"))
	var lists atomic.Bool
	lists.Store(true)
	s.SetFault(func(w http.ResponseWriter, verb string, gvr schema.GroupVersionResource, _ *http.Request) bool {
		if gvr != apiserver.Pods || verb != "watch" && lists.Load() {
			return false
		}
		apiserver.Fail(w, http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests, nil)
		return true
	})
	s.Disconnect(apiserver.Pods, false)
	s.Put(apiserver.Pods, "a", "third", nil)
	r.reads(q, observed.Complete, "first", "second", "third")
	lists.Store(false)
	r.reads(q, observed.Failed)
	s.SetFault(nil)
	s.Remove(apiserver.Pods, "a", "third")
	r.reads(q, observed.Complete, "first", "second")
}

// A watch of which nothing arrives, not even a bookmark, is not believed for ever. What a list shows then may have come at any time since the
// watch was heard; and if it shows nothing new, nothing has come: some API servers send no bookmarks.
func TestASilentWatchIsNotBelieved(t *testing.T) {
	s := apiserver.New(t)
	r, fake := newSteppedRig(t, s, retry)
	c := owner("c")
	q := watchesPods(r, c)
	isMatched := func() bool { return len(r.matcher.backlog.listPending(everywhere)) == 0 }
	until(t, "all is matched", isMatched)
	r.News.TakeChange(c)
	asked := s.Asked("watch pods") + s.Asked("list pods")
	until(t, "a silent watch is begun anew", func() bool {
		fake.Step(10 * time.Second)
		return s.Asked("watch pods")+s.Asked("list pods") > asked
	})
	if news := r.News.TakeChange(c); !news.IsZero() {
		t.Errorf("what has not changed is news since %s", news)
	}
	s.SetFault(func(w http.ResponseWriter, verb string, gvr schema.GroupVersionResource, req *http.Request) bool {
		if gvr != apiserver.Pods || verb != "watch" || req.URL.Query().Get("sendInitialEvents") == "true" {
			return false
		}
		w.WriteHeader(http.StatusOK)
		w.(http.Flusher).Flush()
		<-req.Context().Done()
		return true
	})
	s.Put(apiserver.Pods, "a", "third", nil)
	r.reads(q, observed.Complete, "first", "second", "third")
	until(t, "all is matched", isMatched)
	r.News.TakeChange(c)
	heard := fake.Now()
	s.Disconnect(apiserver.Pods, false)
	s.Put(apiserver.Pods, "a", "fourth", nil)
	until(t, "what a silent watch has missed is known", func() bool {
		fake.Step(10 * time.Second)
		return len(r.Read(t.Context(), q).Objects) == 4
	})
	until(t, "all is matched", isMatched)
	if news := r.News.TakeChange(c); news.IsZero() || news.After(heard) {
		t.Errorf("what was missed since %s is news since %s", heard, news)
	}
}
