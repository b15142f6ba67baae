// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package watches

import (
	"sync/atomic"

	"github.com/vtex/cleaner/controllers/internal/cachedobjects"
	"github.com/vtex/cleaner/controllers/internal/labelgroups"
)

const (
	// readsUntilGroup is the read that makes a group. A selector that is read only once is gone before a group would be of use.
	readsUntilGroup = 2
	// readsUntilNext is for how many reads no group is made for which there was no room, or in which too much has changed meanwhile.
	readsUntilNext = 64
	// moveRounds is how often a group is made to keep up with the changes meanwhile.
	moveRounds = 8
)

// demand is how many wants of a scope ask for a group, and how often it was read without one.
type demand struct {
	wants int
	reads atomic.Int64
}

// missingGroup is a group of an informer that a query has asked for again.
type missingGroup struct {
	*informer
	labelgroups.Group
}

// makeGroup makes a group. The lock is held to begin and to finish; the objects are looked at without it.
func (a *answers) makeGroup(i *informer, g labelgroups.Group) {
	m := a.beginGroup(i, g)
	if m == nil {
		return
	}
	defer a.giveUpGroup(i, g, m)
	var namespaces []string // all of them
	if g.Namespace != "" {
		namespaces = []string{g.Namespace}
	}
	a.mu.RLock()
	shelves := i.findShelves(namespaces) // what has changed since it began is noted too, and moved again
	a.mu.RUnlock()
	cachedobjects.SortShelves(shelves)
	var found cachedobjects.SortedObjects
	for _, s := range shelves {
		found = s.AppendMatching(found, g.HasObject)
	}
	made := cachedobjects.NewShelf(found)
	for range moveRounds {
		moves, done := a.finishGroup(i, g, m, made)
		if done {
			return
		}
		for _, c := range moves {
			made = c.Apply(made)
		}
	}
}

func (a *answers) beginGroup(i *informer, g labelgroups.Group) *labelgroups.Members {
	a.mu.Lock()
	defer a.mu.Unlock()
	if i.stopped || i.scope.demands[g] == nil { // no want would drop it
		return nil
	}
	return i.groups.Begin(g)
}

func (a *answers) finishGroup(i *informer, g labelgroups.Group, m *labelgroups.Members, found cachedobjects.Shelf) ([]labelgroups.Move, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return i.groups.Finish(g, m, found)
}

// giveUpGroup drops a group that was not finished, and has it made again after some more reads.
func (a *answers) giveUpGroup(i *informer, g labelgroups.Group, m *labelgroups.Members) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if i.groups.Of[g] == m && !m.Unfinished {
		return
	}
	if i.groups.Of[g] == m {
		i.groups.Drop(g)
	}
	if d := i.scope.demands[g]; d != nil {
		d.reads.Store(readsUntilGroup - readsUntilNext)
	}
}

// addDemand counts a want that asks for a group, if it does.
func (s *scope) addDemand(w *want) {
	g, ok := labelgroups.FindGroupAmong(s.resource.Resource, &w.query, w.required)
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
	g, ok := labelgroups.FindGroupAmong(s.resource.Resource, &w.query, w.required)
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
			i.groups.Drop(g)
		}
	}
}
