// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package watches

import (
	"slices"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"github.com/vtex/cleaner/controllers/internal/held"
	"github.com/vtex/cleaner/controllers/plan/moments"
)

const (
	// maxChanges is how many changes of a namespace are remembered one by one. When there are more, every Cleaner that wants anything of
	// their kind there is woken.
	maxChanges = 128
	// maxMatchedLabels is how many labels of an object are looked up. An object with more concerns every Cleaner that wants anything of
	// its kind there.
	maxMatchedLabels = 512
)

// change is what happened to an object: what it was, and what it is now. One of them may be nil.
type change struct {
	resource    *resource
	before, now *held.Object
	at          time.Time // it was added
	// since is when it may have come at the earliest, where a list has shown it; zero: it was seen to come.
	since time.Time
}

// earliest is when it came, or may have come.
func (c *change) earliest() time.Time { return moments.ChooseEarlier(c.since, c.at) }

// newChange keeps of an object what its wants are matched with.
func newChange(r *resource, before, now *held.Object, since time.Time) change {
	fields := r.index.byFields > 0
	return change{resource: r, before: before.KeepForMatching(fields), now: now.KeepForMatching(fields), since: since}
}

// namespace returns the object's namespace.
func (c *change) namespace() string {
	if c.now != nil {
		return c.now.Namespace
	}
	return c.before.Namespace
}

// hasManyLabels says that there are too many labels to look them up.
func (c *change) hasManyLabels() bool {
	return max(len(held.LabelsOf(c.before)), len(held.LabelsOf(c.now))) > maxMatchedLabels
}

// backlog holds the changes that have not woken their Cleaners yet. Namespaces take turns: what happens in one, and what is wanted of it,
// delays what happens in another by one turn. The cost of adding a change does not depend on what waits.
type backlog struct {
	clock clock.PassiveClock

	mu     sync.Mutex
	queues map[string]*changes
	line   []*changes // whose turn it is, in order
	// ready has something when there may be a turn to take.
	ready chan struct{}
}

// flood is when the first of too many changes came, and since when some of them may have, where a list has shown them.
type flood struct{ first, since time.Time }

// changes is the queue of one namespace. Only the goroutine whose turn it is may use current.
type changes struct {
	namespace string
	current   *matching // has begun
	waiting   []change
	// floods are the kinds with too many changes, and when the first of them came.
	floods map[*resource]flood
	// begun is when current came: it can be read while a goroutine works on current. Zero: there is none.
	begun time.Time
}

func newBacklog(c clock.PassiveClock) *backlog {
	return &backlog{clock: c, queues: map[string]*changes{}, ready: make(chan struct{}, 1)}
}

// add adds a change.
func (b *backlog) add(c change) {
	b.mu.Lock()
	defer b.mu.Unlock()
	c.at = b.clock.Now()
	q := b.queues[c.namespace()]
	if q == nil {
		q = &changes{namespace: c.namespace()}
		b.queues[q.namespace] = q
		b.line = append(b.line, q)
		select {
		case b.ready <- struct{}{}:
		default:
		}
	}
	if all, flooded := q.floods[c.resource]; flooded {
		all.since = moments.ChooseEarlier(all.since, c.since)
		q.floods[c.resource] = all
		return
	}
	if len(q.waiting) < maxChanges && !c.hasManyLabels() {
		q.waiting = append(q.waiting, c)
		return
	}
	if q.floods == nil {
		q.floods = map[*resource]flood{}
	}
	all := flood{c.at, c.since}
	for i := range q.waiting {
		if w := &q.waiting[i]; w.resource == c.resource {
			all.first, all.since = moments.ChooseEarlier(all.first, w.at), moments.ChooseEarlier(all.since, w.since)
		}
	}
	q.floods[c.resource] = all
}

// pending says since when a namespace has changes that may have to wake Cleaners.
type pending struct {
	namespace string
	since     time.Time
}

// listPending says what is pending of some namespaces, the longest first.
func (b *backlog) listPending(of func(namespace string) bool) []pending {
	b.mu.Lock()
	defer b.mu.Unlock()
	var out []pending
	for _, q := range b.queues {
		if of(q.namespace) {
			out = append(out, pending{q.namespace, q.oldest()})
		}
	}
	slices.SortFunc(out, func(a, b pending) int { return a.since.Compare(b.since) })
	return out
}

// oldest returns when the first change came that has not woken its Cleaners yet. There is one.
func (q *changes) oldest() time.Time {
	since := q.begun
	for i := range q.waiting {
		since = moments.ChooseEarlier(since, q.waiting[i].earliest())
	}
	for _, all := range q.floods {
		since = moments.ChooseEarlier(since, moments.ChooseEarlier(all.since, all.first))
	}
	return since
}

// takeTurn returns the namespace whose turn it is, with a matching that has begun; nil when there is nothing to do. It must be given back.
func (b *backlog) takeTurn() *changes {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.line) == 0 {
		return nil
	}
	q := b.line[0]
	b.line[0] = nil
	b.line = b.line[1:]
	if q.current == nil {
		q.current = q.beginNext()
		q.begun = q.current.earliest()
	}
	return q
}

// beginNext begins with what came first. A flood stands for all other changes of its kind.
func (q *changes) beginNext() *matching {
	var flooded *resource
	for r, all := range q.floods {
		if flooded == nil || all.first.Before(q.floods[flooded].first) {
			flooded = r
		}
	}
	if flooded == nil || len(q.waiting) > 0 && q.waiting[0].at.Before(q.floods[flooded].first) {
		c := q.waiting[0]
		q.waiting[0] = change{}
		q.waiting = q.waiting[1:]
		return newMatching(c)
	}
	all := q.floods[flooded]
	delete(q.floods, flooded)
	rest := q.waiting[:0]
	for _, c := range q.waiting {
		if c.resource != flooded {
			rest = append(rest, c)
		}
	}
	clear(q.waiting[len(rest):])
	q.waiting = rest
	return newFlood(flooded, q.namespace, all)
}

// endTurn gives a namespace back, which goes to the end of the line if there is more to do.
func (b *backlog) endTurn(q *changes) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if q.current == nil {
		q.begun = time.Time{}
	}
	if q.current == nil && len(q.waiting) == 0 && len(q.floods) == 0 {
		delete(b.queues, q.namespace)
		return
	}
	b.line = append(b.line, q)
}
