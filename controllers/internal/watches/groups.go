// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package watches

import (
	"github.com/vtex/cleaner/controllers/internal/cachedobjects"
	"github.com/vtex/cleaner/controllers/internal/labelgroups"
)

// moveRounds is how often a group is made to keep up with the changes meanwhile.
const moveRounds = 8

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
			made = c.ApplyTo(made)
		}
	}
}

func (a *answers) beginGroup(i *informer, g labelgroups.Group) *labelgroups.Members {
	a.mu.Lock()
	defer a.mu.Unlock()
	if i.stopped || i.scope.demands[g] == nil { // no want would drop it
		return nil
	}
	return i.groups.BeginGroup(g)
}

func (a *answers) finishGroup(i *informer, g labelgroups.Group, m *labelgroups.Members, found cachedobjects.Shelf) ([]labelgroups.Move, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return i.groups.FinishGroup(g, m, found)
}

// giveUpGroup drops a group that was not finished, and has it made again after some more reads.
func (a *answers) giveUpGroup(i *informer, g labelgroups.Group, m *labelgroups.Members) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if i.groups.Of[g] == m && !m.Unfinished {
		return
	}
	if i.groups.Of[g] == m {
		i.groups.DropGroup(g)
	}
	i.scope.demands.PostponeGroup(g)
}

// addDemand counts a want that asks for a group, if it does.
func (s *scope) addDemand(w *want) {
	if g, ok := labelgroups.FindGroupAmong(s.resource.Resource, &w.query, w.required); ok {
		s.demands.AddQuery(g)
	}
}

// dropDemand forgets a want that asks for a group. With the last one the group is dropped.
func (s *scope) dropDemand(w *want) {
	g, ok := labelgroups.FindGroupAmong(s.resource.Resource, &w.query, w.required)
	if !ok || !s.demands.DropQuery(g) {
		return
	}
	for _, i := range []*informer{s.full, s.meta} {
		if i != nil {
			i.groups.DropGroup(g)
		}
	}
}
