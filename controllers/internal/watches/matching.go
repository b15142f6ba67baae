// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package watches

import (
	"context"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/clock"

	"github.com/vtex/cleaner/controllers/internal/cachedobjects"
	"github.com/vtex/cleaner/controllers/internal/contain"
	"github.com/vtex/cleaner/controllers/internal/wakeups"
	"github.com/vtex/cleaner/controllers/plan/monotime"
	"github.com/vtex/cleaner/controllers/snapshot"
)

const (
	// maxChanges is how many changes of a namespace are remembered one by one. When there are more, every Cleaner that wants anything of
	// their kind there is woken.
	maxChanges = 128
	// maxMatchedLabels is how many labels of an object are looked up. An object with more concerns every Cleaner that wants anything of
	// its kind there.
	maxMatchedLabels = 512
	// turnLookups, turnWants and turnComparisons bound one turn of a namespace: how many buckets are looked up, how many wants are
	// looked at, both under the lock, and how many terms of selectors are compared, without it.
	turnLookups     = 128
	turnWants       = 128
	turnComparisons = 1024
	// maxComparisons is how many terms are compared because of one change: with the wants of its namespace, and with those of all
	// namespaces. The owners of the others are woken without a look.
	maxComparisons = 8192
)

// change is what happened to an object: what it was, and what it is now. One of them may be nil.
type change struct {
	resource    *resource
	before, now *cachedobjects.Object
	at          time.Time // it was added
	// since is when it may have come at the earliest, where a list has shown it; zero: it was seen to come.
	since time.Time
}

// earliest is when it came, or may have come.
func (c *change) earliest() time.Time { return monotime.ChooseEarlier(c.since, c.at) }

// newChange keeps of an object what its wants are matched with.
func newChange(r *resource, before, now *cachedobjects.Object, since time.Time) change {
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
	return max(len(cachedobjects.LabelsOf(c.before)), len(cachedobjects.LabelsOf(c.now))) > maxMatchedLabels
}

// backlog holds the changes that have not woken their Cleaners yet. Namespaces take turns: what happens in one, and what is wanted of it,
// delays what happens in another by one turn. The cost of adding a change does not depend on what waits.
type backlog struct {
	clock clock.PassiveClock

	mu     sync.Mutex
	queues map[string]*changes
	line   []*changes // whose turn it is, in order
	// unreported are the lists that readers see, and whose differences are not all added yet, and since when these may have been.
	unreported map[*listing]time.Time
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
	return &backlog{clock: c, queues: map[string]*changes{}, unreported: map[*listing]time.Time{}, ready: make(chan struct{}, 1)}
}

// beginReport has the differences of a list pending, which may have been since then, until endReport. It is called before a reader can see
// them, and they are added meanwhile.
func (b *backlog) beginReport(l *listing, since time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.unreported[l] = since
}

// endReport is called when the differences of a list are added.
func (b *backlog) endReport(l *listing) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.unreported, l)
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
		all.since = monotime.ChooseEarlier(all.since, c.since)
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
			all.first, all.since = monotime.ChooseEarlier(all.first, w.at), monotime.ChooseEarlier(all.since, w.since)
		}
	}
	q.floods[c.resource] = all
}

// pending says since when a namespace has changes that may have to wake Cleaners.
type pending struct {
	namespace string
	since     time.Time
}

// listPending says what is pending of some namespaces, the longest first. A namespace may be there several times.
func (b *backlog) listPending(of func(namespace string) bool) []pending {
	b.mu.Lock()
	defer b.mu.Unlock()
	var out []pending
	for _, q := range b.queues {
		if of(q.namespace) {
			out = append(out, pending{q.namespace, q.oldest()})
		}
	}
	for l, since := range b.unreported {
		for _, namespace := range l.ChangedIn {
			if of(namespace) {
				out = append(out, pending{namespace, since})
			}
		}
	}
	slices.SortFunc(out, func(a, b pending) int { return a.since.Compare(b.since) })
	return out
}

// oldest returns when the first change came that has not woken its Cleaners yet. There is one.
func (q *changes) oldest() time.Time {
	since := q.begun
	for i := range q.waiting {
		since = monotime.ChooseEarlier(since, q.waiting[i].earliest())
	}
	for _, all := range q.floods {
		since = monotime.ChooseEarlier(since, monotime.ChooseEarlier(all.since, all.first))
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

// matcher finds out whom changes concern, and has them woken. It takes the lock for as long as it needs to look up what a turn needs, and
// compares without it.
type matcher struct {
	backlog *backlog
	mu      sync.Locker
	wakeups *wakeups.Wakeups
	// findNamespace returns a Namespace, and whether it is known at all. The caller holds the lock.
	findNamespace func(name string) (*cachedobjects.Object, bool)
	// reaches reports whether changes in a namespace may concern an owner. The caller holds the lock.
	reaches func(o Owner, namespace string) bool
}

// pendingSince returns since when there are changes that may have to wake an owner; zero: there are none. For an owner with a namespace,
// these are changes there, or in no namespace.
func (m *matcher) pendingSince(o Owner) time.Time {
	all := m.backlog.listPending(func(namespace string) bool { return o.Namespace == "" || namespace == "" || namespace == o.Namespace })
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
			m.wakeups.EnqueueOwners()
			continue
		}
		select {
		case <-ctx.Done():
		case <-m.backlog.ready:
		}
	}
}

// work takes one turn, and records the Cleaners that it finds. It reports whether there was a turn.
func (m *matcher) work() bool {
	q := m.backlog.takeTurn()
	if q == nil {
		return false
	}
	defer m.backlog.endTurn(q)
	q.current.listBuckets()
	t := m.lookUp(q.current)
	m.wakeups.AddOwnersSince(q.current.earliest(), q.current.match(t)...) // it is no longer pending then
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
	namespace      *cachedobjects.Object
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
func (w *want) matchesObject(t *turn, o *cachedobjects.Object) bool {
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
