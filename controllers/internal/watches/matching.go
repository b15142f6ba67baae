// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package watches

import (
	"context"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/vtex/cleaner/controllers/internal/contain"
	"github.com/vtex/cleaner/controllers/internal/held"
	"github.com/vtex/cleaner/controllers/snapshot"
)

const (
	// turnLookups, turnWants and turnComparisons bound one turn of a namespace: how many buckets are looked up, how many wants are
	// looked at, both under the lock, and how many terms of selectors are compared, without it.
	turnLookups     = 128
	turnWants       = 128
	turnComparisons = 1024
	// maxComparisons is how many terms are compared because of one change: with the wants of its namespace, and with those of all
	// namespaces. The owners of the others are woken without a look.
	maxComparisons = 8192
)

// matching finds the Cleaners that a change must wake, in several turns. It can wake too many, but misses none.
type matching struct {
	change
	place string
	// flood says that too much has changed to tell what: all who want something of the place are woken.
	flood bool

	listed  bool
	buckets []bucketKey // those that are left, the next one last
	begun   bool        // says that left is how many of the next one are
	left    int
	// own and shared count the terms that were compared with wants of the namespace, and with those of all.
	own, shared int
	woken       map[Owner]struct{}
}

func newMatching(c change) *matching {
	return &matching{change: c, place: c.namespace(), woken: map[Owner]struct{}{}}
}

// newFlood returns a matching for all changes of a resource in a namespace.
func newFlood(r *resource, namespace string, all flood) *matching {
	return &matching{change: change{resource: r, at: all.first, since: all.since}, place: namespace, flood: true, woken: map[Owner]struct{}{}}
}

// listBuckets lists where to look, before the first turn.
func (m *matching) listBuckets() {
	if m.listed {
		return
	}
	m.listed = true
	if !m.flood {
		m.buckets = appendBuckets(nil, m.before, m.now)
		return
	}
	m.buckets = append(m.buckets, bucketKey{by: byPlace})
	if m.place != "" {
		m.buckets = append(m.buckets, bucketKey{by: byPlace, namespace: m.place})
	}
}

// turn is what one turn of a matching looks at. Its wants never change in what it reads.
type turn struct {
	wants []candidate
	// namespaced and fields are those of the resource, namespace is the Namespace of the place, as far as it is known.
	namespaced     bool
	fields         snapshot.FieldLabels
	namespace      *held.Object
	namespaceKnown bool
}

// candidate is a want, and whether it is compared or taken without a look.
type candidate struct {
	*want
	compared bool
}

// collect fills a turn with wants that have not been looked at. The caller holds the lock.
func (m *matching) collect(t *turn) {
	comparisons := 0
	for lookups := 0; len(m.buckets) > 0 && lookups < turnLookups; lookups++ {
		k := m.buckets[len(m.buckets)-1]
		b := m.resource.index.buckets[k]
		if b != nil {
			if !m.begun {
				m.begun, m.left = true, len(b.entries)
			}
			for m.left = min(m.left, len(b.entries)); m.left > 0; m.left-- {
				if len(t.wants) == turnWants || comparisons >= turnComparisons {
					return
				}
				w := b.entries[m.left-1].want
				n := m.charge(w, k.namespace == "")
				comparisons += n
				t.wants = append(t.wants, candidate{w, n > 0})
			}
		}
		m.buckets, m.begun = m.buckets[:len(m.buckets)-1], false
	}
}

// charge returns what a want may cost; 0 if it is not compared.
func (m *matching) charge(w *want, shared bool) int {
	spent, n := &m.own, w.comparisons
	if shared {
		spent = &m.shared
	}
	if m.flood {
		n = w.placeComparisons
	}
	if _, woken := m.woken[w.owner]; woken || n > turnComparisons || *spent+n > maxComparisons {
		return 0
	}
	*spent += n
	return n
}

// match returns the owners that a turn finds, each of a change once.
func (m *matching) match(t *turn) []Owner {
	var found []Owner
	for _, c := range t.wants {
		if _, woken := m.woken[c.owner]; !woken && m.concerns(t, c) {
			m.woken[c.owner] = struct{}{}
			found = append(found, c.owner)
		}
	}
	return found
}

// concerns says that a change may be one that a want is for.
func (m *matching) concerns(t *turn, c candidate) bool {
	if t.namespaced && !c.query.Namespaces.MatchesName(m.place) {
		return false
	}
	if !c.compared || m.flood {
		return !c.compared || c.mayBeIn(t)
	}
	var is, was bool
	if p := contain.CatchPanic(func() { is, was = c.matchesObject(t, m.now), c.matchesObject(t, m.before) }); p != nil {
		return true
	}
	return (is || was) && !(is && was && c.transitionsOnly)
}

// matchesObject says that a want is for this object.
func (w *want) matchesObject(t *turn, o *held.Object) bool {
	if o == nil || w.full && !o.IsWhole() { // a whole object is on its way by another informer
		return false
	}
	return o.MatchesQuery(&w.query, t.namespaced, t.fields) && w.mayBeIn(t)
}

// mayBeIn reports whether the labels of the namespace match the namespaceSelector of a want, or are unknown.
func (w *want) mayBeIn(t *turn) bool {
	l := w.query.Namespaces.Labels
	return l == nil || !t.namespaceKnown || t.namespace != nil && l.Matches(labels.Set(t.namespace.Labels))
}

// matcher finds out whom changes concern, and has them woken. It takes the lock for as long as it needs to look up what a turn needs, and
// compares without it.
type matcher struct {
	*backlog
	mu      sync.Locker
	wakeups *wakeups
	// findNamespace returns a Namespace, and whether it is known at all. The caller holds the lock.
	findNamespace func(name string) (*held.Object, bool)
	// reaches reports whether changes in a namespace may concern an owner. The caller holds the lock.
	reaches func(o Owner, namespace string) bool
}

// pendingSince returns since when there are changes that may have to wake an owner; zero: there are none. For an owner with a namespace,
// these are changes there, or in no namespace.
func (m *matcher) pendingSince(o Owner) time.Time {
	all := m.listPending(func(namespace string) bool { return o.Namespace == "" || namespace == "" || namespace == o.Namespace })
	if len(all) == 0 {
		return time.Time{}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, p := range all {
		if o.Namespace != "" || p.namespace == "" || m.reaches(o, p.namespace) {
			return p.since
		}
	}
	return time.Time{}
}

// run works until ctx is done.
func (m *matcher) run(ctx context.Context) {
	for ctx.Err() == nil {
		if m.work() {
			m.wakeups.enqueueOwners()
			continue
		}
		select {
		case <-ctx.Done():
		case <-m.ready:
		}
	}
}

// work takes one turn, and records the Cleaners that it finds. It reports whether there was a turn.
func (m *matcher) work() bool {
	q := m.takeTurn()
	if q == nil {
		return false
	}
	defer m.endTurn(q)
	q.current.listBuckets()
	t := m.lookUp(q.current)
	m.wakeups.addOwnersSince(q.current.since, q.current.match(t)...)
	if len(q.current.buckets) == 0 {
		q.current = nil
	}
	return true
}

// lookUp does what a turn needs the lock for.
func (m *matcher) lookUp(c *matching) *turn {
	m.mu.Lock()
	defer m.mu.Unlock()
	t := &turn{namespaced: c.resource.Namespaced, fields: c.resource.fields}
	c.collect(t)
	for _, w := range t.wants {
		if w.compared && w.query.Namespaces.Labels != nil {
			t.namespace, t.namespaceKnown = m.findNamespace(c.place)
			break
		}
	}
	return t
}
