// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package watches

import (
	"testing"
	"time"

	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/vtex/cleaner/controllers/internal/cachedobjects"
	"github.com/vtex/cleaner/controllers/internal/news"
	"github.com/vtex/cleaner/controllers/plan/observed"
	"github.com/vtex/cleaner/controllers/snapshot"
	"github.com/vtex/cleaner/test/queries"
)

// rigBacklog is a backlog with a clock of its own, and one kind.
type rigBacklog struct {
	*backlog
	clock *clocktesting.FakeClock
	pods  *resource
}

func newRigBacklog() *rigBacklog {
	c := clocktesting.NewFakeClock(time.Unix(1000, 0))
	return &rigBacklog{backlog: newBacklog(c), clock: c, pods: &resource{index: newIndex()}}
}

func (b *rigBacklog) change(r *resource, namespace string) {
	b.add(newChange(r, nil, &cachedobjects.Object{Object: observed.Object{Ref: observed.Ref{Namespace: namespace, Name: "a"}}}, time.Time{}))
}

// takeWhole takes a turn that finds whom a change concerns, and gives how old that was when it began.
func (b *rigBacklog) takeWhole(meanwhile func()) (*resource, time.Duration) {
	q := b.takeTurn()
	r, age := q.current.resource, b.clock.Since(q.current.at)
	meanwhile()
	q.current = nil
	b.endTurn(q)
	return r, age
}

// pendingFor is for how long something is pending in a namespace; -1 if nothing is.
func (b *rigBacklog) pendingFor(namespace string) time.Duration {
	for _, p := range b.listPending(func(of string) bool { return of == namespace }) {
		return b.clock.Since(p.since)
	}
	return -1
}

// A change is pending until it is known whom it concerns.
func TestPendingChanges(t *testing.T) {
	b := newRigBacklog()
	b.change(b.pods, "ns")
	b.clock.Step(time.Second)
	if got, other := b.pendingFor("ns"), b.pendingFor("other"); got != time.Second || other != -1 {
		t.Errorf("it is pending for %s, and elsewhere for %s", got, other)
	}
	b.takeWhole(func() {
		if got := b.pendingFor("ns"); got != time.Second {
			t.Errorf("while it is matched it is pending for %s", got)
		}
	})
	if got := b.pendingFor("ns"); got != -1 {
		t.Errorf("it is pending for %s when nothing is left", got)
	}
}

// In a namespace in which something waits without end, a change is pending since it came, and not since the first one did.
func TestAChangeIsPendingSinceItCame(t *testing.T) {
	b := newRigBacklog()
	b.change(b.pods, "busy")
	for range 1000 {
		b.takeWhole(func() {
			b.clock.Step(100 * time.Millisecond)
			b.change(b.pods, "busy")
		})
		if got := b.pendingFor("busy"); got != 0 {
			t.Fatalf("what has just come is pending for %s", got)
		}
	}
}

// What stands for many changes is pending since the first of them came; and however many come of one kind, what changes of another has its
// turn when all that came before it had.
func TestAFloodIsPendingSinceItsFirstChange(t *testing.T) {
	b := newRigBacklog()
	services := &resource{index: newIndex()}
	flood := func() {
		for range maxChanges + 2 {
			b.change(b.pods, "ns")
		}
	}
	b.change(services, "ns")
	b.takeWhole(func() {
		b.change(b.pods, "ns")
		b.clock.Step(time.Second)
		b.change(services, "ns")
		b.clock.Step(time.Second)
		flood()
	})
	if got := b.pendingFor("ns"); got != 2*time.Second {
		t.Errorf("the flood is pending for %s", got)
	}
	if r, age := b.takeWhole(func() { b.clock.Step(time.Second); flood() }); r != b.pods || age != 2*time.Second {
		t.Errorf("the first to be matched is of %s, of pods: %t", age, r == b.pods)
	}
	if r, age := b.takeWhole(flood); r != services || age != 2*time.Second {
		t.Errorf("the next one to be matched is of %s, of services: %t", age, r == services)
	}
}

// What is pending in a namespace is news of those only who may look there: a Cleaner of it, and ClusterCleaners that choose it.
func TestWhatIsPendingIsNewsOfWhoReachesIt(t *testing.T) {
	e, s := newWatching(t)
	wants := func(o Owner, quiet bool, ask ...func(*snapshot.Query)) Owner {
		e.SetInterests(o, []Interest{{Query: queries.New("Pod", ask...), Quiet: quiet}})
		return o
	}
	want := map[Owner]bool{
		wants(Owner{Namespace: "busy", Name: "own"}, false, queries.In("busy")):                                true,
		wants(Owner{Namespace: "calm", Name: "own"}, false, queries.In("calm")):                                false,
		wants(Owner{Name: "everywhere"}, false, queries.In("")):                                                true,
		wants(Owner{Name: "excludes"}, false, queries.Except("busy")):                                          false,
		wants(Owner{Name: "excludes-others"}, false, queries.Except("calm")):                                   true,
		wants(Owner{Name: "names"}, false, queries.Among("busy", "calm")):                                      true,
		wants(Owner{Name: "names-others"}, false, queries.Among("calm")):                                       false,
		wants(Owner{Name: "chooses"}, false, queries.ChosenBy("tier=dev")):                                     true, // as nobody knows its labels
		wants(Owner{Name: "chooses-others"}, false, queries.ChosenBy("tier=dev"), queries.Except("busy", "x")): false,
		wants(Owner{Name: "is-not-woken"}, true, queries.In("")):                                               false,
	}
	matchAll(e)
	for o := range want {
		e.News.TakeChange(o)
	}
	putObject(e, s, podOf("busy", "p", nil))
	for o, pending := range want {
		if got := e.News.TakeChange(o); !got.IsZero() != pending {
			t.Errorf("%s hears of a change: %t", o, !got.IsZero())
		}
	}
	feedsOf(e).matcher.backlog.add(newChange(&resource{index: newIndex()}, nil, podOf("", "node", nil), time.Time{}))
	e.News.TakeChange(Owner{Name: "excludes"})
	if e.News.TakeChange(Owner{Name: "excludes"}).IsZero() {
		t.Error("a change of an object without a namespace is nobody's")
	}
}

// setClock has an Engine and its parts tell the time by another clock.
func setClock(e *Engine, c clock.WithTicker) {
	changes := news.New(c, e.matcher.pendingSince)
	e.clock, e.News, e.wakeups.News, e.matcher.backlog.clock = c, changes, changes, c
}
