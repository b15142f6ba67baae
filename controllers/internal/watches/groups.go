// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package watches

import (
	"sync/atomic"

	"github.com/vtex/cleaner/controllers/internal/cachedobjects"
	"github.com/vtex/cleaner/controllers/internal/served"
	"github.com/vtex/cleaner/controllers/snapshot"
)

const (
	// maxGroupedLabels is how many labels an object in groups has at most. Those with more are in one group of their own, which is looked
	// through with each other.
	maxGroupedLabels = 64
	// readsUntilGroup is the read that makes a group. A selector that is read only once is gone before a group would be of use.
	readsUntilGroup = 2
	// readsUntilNext is for how many reads no group is made for which there was no room, or in which too much has changed meanwhile.
	readsUntilNext = 64
	// maxGroupBytes bounds what all groups take, and maxGroupBytesOfOne those of one namespace. Groups of all namespaces, which only
	// ClusterCleaners ask for, may take half of it. What has no group is looked through instead.
	maxGroupBytes, maxGroupBytesOfOne = 64 << 20, 8 << 20
	// bytesPerGroup and bytesPerMember are what a group takes at most, besides its label, and a member of one.
	bytesPerGroup, bytesPerMember = 512, 16
	// maxMoves is how many changes are noted for a group while it is made, and moveRounds how often it is made to keep up with them.
	maxMoves, moveRounds = 1024, 8
)

// group is a label with a value, in a namespace or, if that is empty, anywhere. A group without a key has the objects with many labels.
type group struct{ namespace, key, value string }

// ofManyLabels is the group of the same namespace that has the objects with many labels.
func (g group) ofManyLabels() group { return group{namespace: g.namespace} }

// hasObject says that an object of the group's namespace is in it.
func (g group) hasObject(o *cachedobjects.Object) bool {
	if many := len(o.Labels) > maxGroupedLabels; many || g.key == "" {
		return many && g.key == ""
	}
	v, ok := o.Labels[g.key]
	return ok && v == g.value
}

// groupOf is a group that has all objects of a resource that match a query, if there is one.
func groupOf(r served.Resource, q *snapshot.Query) (group, bool) {
	return groupAmong(r, q, snapshot.CompileSelector(q.Labels).RequiredLabels())
}

// groupAmong is groupOf for a query that requires these labels.
func groupAmong(r served.Resource, q *snapshot.Query, required []snapshot.RequiredLabel) (group, bool) {
	if q.Name != "" {
		return group{}, false
	}
	for _, l := range required {
		if len(l.Values) == 1 {
			return group{served.NamespaceFor(r, *q), l.Key, l.Values[0]}, true
		}
	}
	return group{}, false
}

// demand is how many wants of a scope ask for a group, and how often it was read without one.
type demand struct {
	wants int
	reads atomic.Int64
}

// groupBytes are what all groups of an Engine take, in all and by namespace. The Engine's lock guards them.
type groupBytes struct {
	all int
	of  map[string]int
}

// add counts more bytes of a namespace, or less.
func (b *groupBytes) add(namespace string, bytes int) {
	b.all += bytes
	if b.of[namespace] += bytes; b.of[namespace] == 0 {
		delete(b.of, namespace)
	}
}

// isTooMuch says that the groups of a namespace take more than they may.
func (b *groupBytes) isTooMuch(namespace string) bool {
	most := maxGroupBytesOfOne
	if namespace == "" {
		most = maxGroupBytes / 2
	}
	return b.all > maxGroupBytes || b.of[namespace] > most
}

// groups are the objects of an informer by a label that a query asks for, so that a query costs what it finds and not what there is. One
// is made when a query that is wanted is read again, kept up to date from then on, and dropped with the last want that asks for it.
// The group of objects with many labels is always there.
type groups struct {
	bytes *groupBytes
	of    map[group]*members
}

// members are the objects of a group.
type members struct {
	cachedobjects.Shelf
	// unfinished says that the group is being made, without the lock. Until it is, what changes in it is noted in moves.
	unfinished bool
	moves      []move
	// bytes is what is counted for the group.
	bytes int
}

// move is an object that has come into a group, or has gone.
type move struct {
	*cachedobjects.Object
	gone bool
}

func (m move) apply(s cachedobjects.Shelf) cachedobjects.Shelf {
	if m.gone {
		return s.DeleteObject(m.Namespace, m.Name)
	}
	return s.PutObject(m.Object)
}

func newGroups(b *groupBytes) groups { return groups{bytes: b, of: map[group]*members{}} }

// begin begins to make a group. It returns nil if it is there, or is being made.
func (x groups) begin(g group) *members {
	if x.of[g] != nil {
		return nil
	}
	m := &members{unfinished: true}
	x.of[g] = m
	return m
}

// finish takes in what was found for a group, unless something has changed in it meanwhile: then it returns what. It reports whether that
// was all there is to do; the group is there if there was room for it.
func (x groups) finish(g group, m *members, found cachedobjects.Shelf) (moves []move, done bool) {
	if x.of[g] != m { // no want asks for it now, or too much has changed
		return nil, true
	}
	if len(m.moves) > 0 {
		moves, m.moves = m.moves, nil
		return moves, false
	}
	m.unfinished = false
	x.set(g, m, found)
	return nil, true
}

// set sets the members of a group, or drops it if they take too much.
func (x groups) set(g group, m *members, s cachedobjects.Shelf) {
	m.Shelf = s
	if g.key == "" { // these are few, and are bounded by what their labels take
		if s.CountObjects() == 0 {
			delete(x.of, g)
		}
		return
	}
	before := m.bytes
	m.bytes = bytesPerGroup + len(g.key) + len(g.value) + bytesPerMember*s.CountObjects()
	x.bytes.add(g.namespace, m.bytes-before)
	if m.bytes > before && x.bytes.isTooMuch(g.namespace) {
		x.drop(g)
	}
}

// drop drops a group, if it is there.
func (x groups) drop(g group) {
	if m := x.of[g]; m != nil {
		x.bytes.add(g.namespace, -m.bytes)
		delete(x.of, g)
	}
}

// dropAll drops all groups.
func (x groups) dropAll() {
	for g, m := range x.of {
		x.bytes.add(g.namespace, -m.bytes)
	}
	clear(x.of)
}

// moveObject moves an object between groups; before or now may be nil. It costs about the same, however many objects there are.
func (x groups) moveObject(before, now *cachedobjects.Object) {
	for g := range groupsWith(before) {
		if now == nil || !g.hasObject(now) { // else now takes its place
			x.move(g, move{before, true})
		}
	}
	for g := range groupsWith(now) {
		x.move(g, move{now, false})
	}
}

func (x groups) move(g group, c move) {
	m := x.of[g]
	if m == nil {
		if g.key != "" || c.gone {
			return
		}
		m = &members{}
		x.of[g] = m
	}
	if !m.unfinished {
		x.set(g, m, c.apply(m.Shelf))
		return
	}
	if m.moves = append(m.moves, c); len(m.moves) > maxMoves {
		x.drop(g)
	}
}

// missingGroup is a group of an informer that a query has asked for again.
type missingGroup struct {
	*informer
	group
}

// makeGroup makes a group. The lock is held to begin and to finish; the objects are looked at without it.
func (a *answers) makeGroup(i *informer, g group) {
	m := a.beginGroup(i, g)
	if m == nil {
		return
	}
	defer a.giveUpGroup(i, g, m)
	var namespaces []string // all of them
	if g.namespace != "" {
		namespaces = []string{g.namespace}
	}
	a.mu.RLock()
	shelves := i.findShelves(namespaces) // what has changed since it began is noted too, and moved again
	a.mu.RUnlock()
	cachedobjects.SortShelves(shelves)
	var found cachedobjects.SortedObjects
	for _, s := range shelves {
		found = s.AppendMatching(found, g.hasObject)
	}
	made := cachedobjects.NewShelf(found)
	for range moveRounds {
		moves, done := a.finishGroup(i, g, m, made)
		if done {
			return
		}
		for _, c := range moves {
			made = c.apply(made)
		}
	}
}

func (a *answers) beginGroup(i *informer, g group) *members {
	a.mu.Lock()
	defer a.mu.Unlock()
	if i.stopped || i.scope.demands[g] == nil { // no want would drop it
		return nil
	}
	return i.groups.begin(g)
}

func (a *answers) finishGroup(i *informer, g group, m *members, found cachedobjects.Shelf) ([]move, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return i.groups.finish(g, m, found)
}

// giveUpGroup drops a group that was not finished, and has it made again after some more reads.
func (a *answers) giveUpGroup(i *informer, g group, m *members) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if i.groups.of[g] == m && !m.unfinished {
		return
	}
	if i.groups.of[g] == m {
		i.groups.drop(g)
	}
	if d := i.scope.demands[g]; d != nil {
		d.reads.Store(readsUntilGroup - readsUntilNext)
	}
}

// addDemand counts a want that asks for a group, if it does.
func (s *scope) addDemand(w *want) {
	g, ok := groupAmong(s.resource.Resource, &w.query, w.required)
	if !ok {
		return
	}
	d := s.demands[g]
	if d == nil {
		d = &demand{}
		s.demands[g] = d
	}
	d.wants++
}

// dropDemand forgets a want that asks for a group. With the last one the group is dropped.
func (s *scope) dropDemand(w *want) {
	g, ok := groupAmong(s.resource.Resource, &w.query, w.required)
	if !ok {
		return
	}
	d := s.demands[g]
	if d.wants--; d.wants > 0 {
		return
	}
	delete(s.demands, g)
	for _, i := range []*informer{s.full, s.meta} {
		if i != nil {
			i.groups.drop(g)
		}
	}
}

// groupsWith are all groups that an object can be in: few, however many labels it has.
func groupsWith(o *cachedobjects.Object) func(yield func(group) bool) {
	return func(yield func(group) bool) {
		if o == nil {
			return
		}
		if len(o.Labels) > maxGroupedLabels {
			_ = yield(group{namespace: o.Namespace}) && (o.Namespace == "" || yield(group{}))
			return
		}
		for key, value := range o.Labels {
			if !yield(group{o.Namespace, key, value}) || o.Namespace != "" && !yield(group{"", key, value}) {
				return
			}
		}
	}
}
