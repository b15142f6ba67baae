// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	goruntime "runtime"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/controllers/internal/actionlog"
	"github.com/vtex/cleaner/controllers/internal/events"
)

// talkative has as many rules as there may be, each of which has something new to report each second.
func talkative() *v1alpha1.Cleaner {
	c := &v1alpha1.Cleaner{Spec: v1alpha1.CleanerSpec{CommonSpec: v1alpha1.CommonSpec{Lifecycle: v1alpha1.LifecycleRecurring}}}
	for n := range 64 {
		c.Spec.Rules = append(c.Spec.Rules, v1alpha1.Rule{
			Name: fmt.Sprintf("r-%d", n), ForEach: "[0]", Key: `"k"`, When: "true", Reason: `string(time) + "` + strings.Repeat("x", 1000) + `"`,
			Actions: []v1alpha1.RuleAction{{Report: &v1alpha1.ReportAction{}}},
		})
	}
	return c
}

// A pass makes an Event of each of the first rules, and one of all others: with the first of them, and how many there are more.
func TestAPassMakesFewEvents(t *testing.T) {
	r := newRig(t, talkative())
	for range 3 {
		r.pass()
		said := r.said()
		if len(said) != actionlog.EventsOfPass {
			t.Fatalf("it makes %d Events", len(said))
		}
		full := 0
		for _, text := range said {
			if !strings.HasPrefix(text, "Normal Reported r-") || len(text) > len("Normal Reported ")+events.MaxNote {
				t.Errorf("it says %.40q in %d bytes", text, len(text))
			}
			if strings.HasSuffix(text, fmt.Sprintf("…; and %d more", 64-actionlog.EventsOfPass)) {
				full++
			}
		}
		if full != 1 {
			t.Errorf("%d Events are of all that there was no room for", full)
		}
		after(time.Second)(r)
	}
}

// Each rule has an Event of its own, as long as there are few.
func TestEachRuleHasItsEvent(t *testing.T) {
	c := done(v1alpha1.RuleAction{Delete: &v1alpha1.DeleteAction{}})
	c.Spec.Rules[0].When = `item.metadata.name == "a"`
	other := *c.Spec.Rules[0].DeepCopy()
	other.Name, other.When, other.Reason = "old", `item.metadata.name == "b"`, `"it is old"`
	c.Spec.Rules = append(c.Spec.Rules, other)
	r := newRig(t, c, aPod("a", "Succeeded"), aPod("b", "Succeeded"))
	r.pass()
	same(t, "said", []string{"Normal Deleted done: deleted 1: Pod shop/a (it is done)", "Normal Deleted old: deleted 1: Pod shop/b (it is old)"}, r.said())
}

// crowd is a recorder for which the Cleaner of a rig stands for many, of the same spec.
type crowd struct {
	*events.Recorder
	of, size int
}

func (c crowd) RecordEvent(e events.Event) {
	for i := range c.size {
		e.Regarding.Name = fmt.Sprintf("c-%d-%d", c.of, i)
		e.Regarding.UID = types.UID(e.Regarding.Name)
		c.Recorder.RecordEvent(e)
	}
}

// nobody counts nothing.
type nobody struct{}

func (nobody) CountDroppedEvents(string, int) {}

// TestCleanersThatTellTooMuch holds that 60 Cleaners of a namespace, each with 64 rules that report anew each second, take few goroutines
// and little memory while the API server does not answer, and that the Event of another namespace is the next that is written.
func TestCleanersThatTellTooMuch(t *testing.T) {
	const rigs, each = 6, 10
	clock := clocktesting.NewFakeClock(epoch)
	release, written := make(chan struct{}), make(chan int, 1)
	var mu sync.Mutex
	asked := 0
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
		mu.Lock()
		asked++
		n := asked
		mu.Unlock()
		if strings.Contains(req.URL.Path, "/namespaces/other/") {
			written <- n
			return
		}
		select {
		case <-release:
		case <-req.Context().Done():
		}
	}))
	defer server.Close()
	defer close(release)
	recorder, err := events.NewRecorder(events.Options{
		Config: &rest.Config{Host: server.URL, QPS: -1}, Clock: clock, Metrics: nobody{}, EventsDropped: func(map[string]int, error) {},
	})
	must(t, err)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = recorder.Start(t.Context())
	}()
	t.Cleanup(func() { // the test's context is done
		for {
			select {
			case <-ended:
				return
			case <-time.After(time.Millisecond):
				clock.Step(time.Second)
			}
		}
	})
	var all []*rig
	for n := range rigs {
		r := newRig(t, talkative())
		r.recorder = crowd{recorder, n, each}
		r.pass() // compiles
		all = append(all, r)
	}
	goroutines, bytes := goruntime.NumGoroutine(), heap()
	for range 20 {
		for _, r := range all {
			after(time.Second)(r)
			r.pass()
		}
		clock.Step(time.Second)
	}
	if n := goruntime.NumGoroutine() - goroutines; n > 50 {
		t.Errorf("there are %d goroutines more", n)
	}
	if n := heap() - bytes; n > 16<<20 {
		t.Errorf("it takes %d KiB more", n>>10)
	}
	mu.Lock()
	before := asked
	mu.Unlock()
	recorder.RecordEvent(events.Event{
		Regarding: corev1.ObjectReference{APIVersion: v1alpha1.GroupVersion.String(), Kind: "Cleaner", Namespace: "other", Name: "c", UID: "other"},
		Type:      corev1.EventTypeNormal, Reason: "Deleted", Action: "Delete", Note: "gone",
	})
	select {
	case n := <-written:
		if n-before > 2 {
			t.Errorf("it was written as request %d after it was recorded", n-before)
		}
	case <-time.After(30 * time.Second):
		t.Error("it was not written")
	}
}
