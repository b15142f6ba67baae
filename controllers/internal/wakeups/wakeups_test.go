// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package wakeups

import (
	"fmt"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/vtex/cleaner/controllers/internal/news"
)

func owner(name string) types.NamespacedName { return types.NamespacedName{Namespace: "a", Name: name} }

// queue notes what is added.
type queue struct {
	workqueue.TypedRateLimitingInterface[reconcile.Request]
	added []string
}

func (q *queue) Add(r reconcile.Request) { q.added = append(q.added, r.Name) }

// Cleaners are put into the queue once they are asked for, and counted. Before there is a queue, they are counted alone.
func TestEnqueueOwners(t *testing.T) {
	counted, q := 0, &queue{}
	w := &Wakeups{Count: func(n int) { counted += n }}
	w.AddOwners(owner("early"))
	w.EnqueueOwners()
	w.SetQueue(q)
	w.EnqueueOwners()
	if counted != 1 || len(q.added) > 0 {
		t.Errorf("%d are counted, and %v woken", counted, q.added)
	}
	w.AddOwners(owner("b"), owner("c"))
	w.AddOwners(owner("b"))
	w.EnqueueOwners()
	w.EnqueueOwners()
	if got := fmt.Sprint(q.added); counted != 4 || got != "[b c b]" {
		t.Errorf("%d are counted, and %s woken", counted, got)
	}
	w.AddOwners(owner("d"))
	if woken, to := w.TakeOwners(); len(woken) != 1 || to != q {
		t.Errorf("got %v for %v", woken, to)
	}
	if woken, _ := w.TakeOwners(); len(woken) > 0 {
		t.Errorf("got %v once more", woken)
	}
}

// It is news since when a change may have happened.
func TestAddOwnersSince(t *testing.T) {
	clock := clocktesting.NewFakeClock(time.Unix(1000, 0))
	w := &Wakeups{News: news.New(clock, func(types.NamespacedName) time.Time { return time.Time{} })}
	w.AddOwnersSince(time.Unix(900, 0), owner("b"))
	w.AddOwners(owner("c"))
	for name, want := range map[string]int64{"b": 900, "c": 1000} {
		if got := w.News.TakeChange(owner(name)); got.Unix() != want {
			t.Errorf("%s: got %v, want %d", name, got, want)
		}
	}
}
