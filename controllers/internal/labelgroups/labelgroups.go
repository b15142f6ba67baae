// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

// Package labelgroups has the objects of a cache by label, so that a query costs what it finds and not what there is. What all groups take is bounded.
//
// It decides nothing, and sends no request. Its callers need a lock.
package labelgroups

import (
	"sync/atomic"

	"github.com/vtex/cleaner/controllers/internal/cachedobjects"
	"github.com/vtex/cleaner/controllers/internal/served"
	"github.com/vtex/cleaner/controllers/snapshot"
)

const (
	// MaxLabels is how many labels an object in groups has at most. Those with more are in one group of their own, which is looked
	// through with each other.
	MaxLabels = 64
	// maxBytes bounds what all groups take, and maxBytesOfOne those of one namespace. Groups of all namespaces, which only
	// ClusterCleaners ask for, may take half of it. What has no group is looked through instead.
	maxBytes, maxBytesOfOne = 64 << 20, 8 << 20
	// bytesPerGroup and bytesPerMember are what a group takes at most, besides its label, and a member of one.
	bytesPerGroup, bytesPerMember = 512, 16
	// readsUntilGroup is the read after which a group is due. A selector that is read only once is gone before a group would be of use.
	readsUntilGroup = 2
	// ReadsUntilNext is for how many reads no group is due for which there was no room, or in which too much has changed meanwhile.
	ReadsUntilNext = 64
	// MaxMoves is how many changes are noted for a group while it is made. After more, it is given up.
	MaxMoves = 1024
)

// Group is a label with a value, in a namespace or, if that is empty, anywhere. A group without a key has the objects with many labels.
type Group struct{ Namespace, Key, Value string }

// OfManyLabels is the group of the same namespace that has the objects with many labels.
func (g Group) OfManyLabels() Group { return Group{Namespace: g.Namespace} }

// HasObject says that an object of the group's namespace is in it.
func (g Group) HasObject(o *cachedobjects.Object) bool {
	if many := len(o.Labels) > MaxLabels; many || g.Key == "" {
		return many && g.Key == ""
	}
	v, ok := o.Labels[g.Key]
	return ok && v == g.Value
}

// FindGroup is a group that has all objects of a resource that match a query, if there is one.
func FindGroup(r served.Resource, q *snapshot.Query) (Group, bool) {
	return FindGroupAmong(r, q, snapshot.CompileSelector(q.Labels).RequiredLabels())
}

// FindGroupAmong is FindGroup for a query that requires these labels.
func FindGroupAmong(r served.Resource, q *snapshot.Query, required []snapshot.RequiredLabel) (Group, bool) {
	if q.Name != "" {
		return Group{}, false
	}
	for _, l := range required {
		if len(l.Values) == 1 {
			return Group{served.NamespaceFor(r, *q), l.Key, l.Values[0]}, true
		}
	}
	return Group{}, false
}

// Demands are the groups that queries ask for, and how often each was read without one. Reads may be noted by several goroutines.
type Demands map[Group]*demand

type demand struct {
	queries int
	reads   atomic.Int64
}

// AddQuery counts a query that asks for a group.
func (d Demands) AddQuery(g Group) {
	if d[g] == nil {
		d[g] = &demand{}
	}
	d[g].queries++
}

// DropQuery forgets a query that asks for a group, and reports whether it was the last one.
func (d Demands) DropQuery(g Group) (last bool) {
	if d[g].queries--; d[g].queries > 0 {
		return false
	}
	delete(d, g)
	return true
}

// NoteRead notes a read for which there was no group, and reports whether one is due.
func (d Demands) NoteRead(g Group) (due bool) {
	asked := d[g]
	return asked != nil && asked.reads.Add(1) >= readsUntilGroup
}

// PostponeGroup has a group not be due for some reads.
func (d Demands) PostponeGroup(g Group) {
	if asked := d[g]; asked != nil {
		asked.reads.Store(readsUntilGroup - ReadsUntilNext)
	}
}

// Bytes count what all groups take, in all and by namespace. Its zero value counts nothing yet.
type Bytes struct {
	all int
	of  map[string]int
}

// IsZero reports whether no group takes anything.
func (b *Bytes) IsZero() bool { return b.all == 0 && len(b.of) == 0 }

// add counts more bytes of a namespace, or less.
func (b *Bytes) add(namespace string, bytes int) {
	if b.of == nil {
		b.of = map[string]int{}
	}
	b.all += bytes
	if b.of[namespace] += bytes; b.of[namespace] == 0 {
		delete(b.of, namespace)
	}
}

// isTooMuch says that the groups of a namespace take more than they may.
func (b *Bytes) isTooMuch(namespace string) bool {
	most := maxBytesOfOne
	if namespace == "" {
		most = maxBytes / 2
	}
	return b.all > maxBytes || b.of[namespace] > most
}

// Groups are the objects of a cache by a label that a query asks for, so that a query costs what it finds and not what there is. One
// is made when a query that is wanted is read again, kept up to date from then on, and dropped when no query asks for it any longer.
// The group of objects with many labels is always there.
type Groups struct {
	bytes *Bytes
	// Of are the groups that there are, and those that are being made.
	Of map[Group]*Members
}

// Members are the objects of a group.
type Members struct {
	cachedobjects.Shelf
	// Unfinished says that the group is being made, without the lock. Until it is, what changes in it is noted in moves.
	Unfinished bool
	moves      []Move
	// bytes is what is counted for the group.
	bytes int
}

// Move is an object that has come into a group, or has gone.
type Move struct {
	*cachedobjects.Object
	Gone bool
}

// ApplyTo returns a shelf with the object, or without it.
func (m Move) ApplyTo(s cachedobjects.Shelf) cachedobjects.Shelf {
	if m.Gone {
		return s.DeleteObject(m.Namespace, m.Name)
	}
	return s.PutObject(m.Object)
}

// New returns Groups without any, whose bytes count among others.
func New(b *Bytes) Groups { return Groups{bytes: b, Of: map[Group]*Members{}} }

// BeginGroup begins to make a group. It returns nil if it is there, or is being made.
func (x Groups) BeginGroup(g Group) *Members {
	if x.Of[g] != nil {
		return nil
	}
	m := &Members{Unfinished: true}
	x.Of[g] = m
	return m
}

// FinishGroup takes in what was found for a group, unless something has changed in it meanwhile: then it returns what. It reports whether that
// was all there is to do; the group is there if there was room for it.
func (x Groups) FinishGroup(g Group, m *Members, found cachedobjects.Shelf) (moves []Move, done bool) {
	if x.Of[g] != m { // no query asks for it now, or too much has changed
		return nil, true
	}
	if len(m.moves) > 0 {
		moves, m.moves = m.moves, nil
		return moves, false
	}
	m.Unfinished = false
	x.setMembers(g, m, found)
	return nil, true
}

// setMembers sets the members of a group, or drops it if they take too much.
func (x Groups) setMembers(g Group, m *Members, s cachedobjects.Shelf) {
	m.Shelf = s
	if g.Key == "" { // these are few, and are bounded by what their labels take
		if s.CountObjects() == 0 {
			delete(x.Of, g)
		}
		return
	}
	before := m.bytes
	m.bytes = bytesPerGroup + len(g.Key) + len(g.Value) + bytesPerMember*s.CountObjects()
	x.bytes.add(g.Namespace, m.bytes-before)
	if m.bytes > before && x.bytes.isTooMuch(g.Namespace) {
		x.DropGroup(g)
	}
}

// DropGroup drops a group, if it is there.
func (x Groups) DropGroup(g Group) {
	if m := x.Of[g]; m != nil {
		x.bytes.add(g.Namespace, -m.bytes)
		delete(x.Of, g)
	}
}

// DropAll drops all groups.
func (x Groups) DropAll() {
	for g, m := range x.Of {
		x.bytes.add(g.Namespace, -m.bytes)
	}
	clear(x.Of)
}

// MoveObject moves an object between groups; before or now may be nil. It costs about the same, however many objects there are.
func (x Groups) MoveObject(before, now *cachedobjects.Object) {
	for g := range ListGroups(before) {
		if now == nil || !g.HasObject(now) { // else now takes its place
			x.moveOne(g, Move{before, true})
		}
	}
	for g := range ListGroups(now) {
		x.moveOne(g, Move{now, false})
	}
}

func (x Groups) moveOne(g Group, c Move) {
	m := x.Of[g]
	if m == nil {
		if g.Key != "" || c.Gone {
			return
		}
		m = &Members{}
		x.Of[g] = m
	}
	if !m.Unfinished {
		x.setMembers(g, m, c.ApplyTo(m.Shelf))
		return
	}
	if m.moves = append(m.moves, c); len(m.moves) > MaxMoves {
		x.DropGroup(g)
	}
}

// ListGroups are all groups that an object can be in: few, however many labels it has.
func ListGroups(o *cachedobjects.Object) func(yield func(Group) bool) {
	return func(yield func(Group) bool) {
		if o == nil {
			return
		}
		if len(o.Labels) > MaxLabels {
			_ = yield(Group{Namespace: o.Namespace}) && (o.Namespace == "" || yield(Group{}))
			return
		}
		for key, value := range o.Labels {
			if !yield(Group{o.Namespace, key, value}) || o.Namespace != "" && !yield(Group{"", key, value}) {
				return
			}
		}
	}
}
