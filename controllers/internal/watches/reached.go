// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package watches

import (
	"context"

	"github.com/vtex/cleaner/controllers/internal/cachedobjects"
	"github.com/vtex/cleaner/controllers/internal/served"
	"github.com/vtex/cleaner/controllers/plan/observed"
	"github.com/vtex/cleaner/controllers/snapshot"
)

// Place is what an informer watches: a resource or a part of it, as whole objects or as metadata.
type Place struct {
	served.Resource
	Namespace, Name string
	Filter          cachedobjects.Filter
	Full            bool
}

// FindPlace returns the place whose informer alone answers a query, how many objects that has, and how many of them are in the namespaces of the
// query. ok is false if there is none.
func (e *Engine) FindPlace(q *snapshot.Query) (p Place, all, near int, ok bool) {
	q.Compile()
	e.mu.RLock()
	defer e.mu.RUnlock()
	l := e.answers.checkCoverage(q)
	if l.state != observed.Complete || len(l.informers) != 1 || q.Namespaces.Labels != nil || l.informers[0].isOutdated() {
		return p, 0, 0, false
	}
	i := l.informers[0]
	p = Place{i.scope.resource.Resource, i.scope.namespace, i.scope.name, i.scope.filter, i.full}
	namespaces, _ := e.answers.findSelectedNamespaces(i.scope.resource, q)
	return p, cachedobjects.CountObjects(i.findShelves(nil)), cachedobjects.CountObjects(i.findShelves(namespaces)), true
}

// ReachedVersion returns the version up to which all changes of a place are known, or "" if there is none.
func (e *Engine) ReachedVersion(p Place) string {
	e.mu.RLock()
	defer e.mu.RUnlock()
	if i := e.findInformer(p); i != nil {
		return i.reached
	}
	return ""
}

// AwaitVersion waits until all changes of a place up to a version are known. It is false if that cannot be, or ctx is done before.
func (e *Engine) AwaitVersion(ctx context.Context, p Place, version string) bool {
	for {
		reached, change := e.checkReached(p, version)
		if reached || change == nil {
			return reached
		}
		select {
		case <-ctx.Done():
			return false
		case <-change:
		}
	}
}

// checkReached says whether all changes of a place up to a version are known. If not, change is closed when that may be; nil if it will not be.
func (e *Engine) checkReached(p Place, version string) (reached bool, change <-chan struct{}) {
	e.mu.Lock()
	defer e.mu.Unlock()
	i := e.findInformer(p)
	switch {
	case i == nil || i.isOutdated():
		return false, nil
	case i.hasReached(version):
		return true, nil
	case i.awaited == nil:
		i.awaited = make(chan struct{})
	}
	return false, i.awaited
}

// ConfirmList compares a list of all objects of a place at a version, which it sorts, with those that are known. If they are the same, ReadAt
// answers at that version, and at those before it, until the watch shows a change, which may have been before it: of an object that was gone again, for example.
func (e *Engine) ConfirmList(p Place, list []observed.Ref, version string) bool {
	e.mu.RLock()
	i := e.findInformer(p)
	if i == nil {
		e.mu.RUnlock()
		return false
	}
	known, edits := cachedobjects.Candidates{Shelves: i.findShelves(nil)}, i.edits
	e.mu.RUnlock()
	if !known.AreVersions(list) {
		return false
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.findInformer(p) != i || i.edits != edits {
		return false
	}
	i.confirmed = version
	return i.hasReached(version)
}

// findInformer returns the informer of a place; nil if there is none that answers.
func (e *Engine) findInformer(p Place) *informer {
	r := e.catalog.resources[p.Resource]
	if r == nil {
		return nil
	}
	s := r.scopes[scopeKey{namespace: p.Namespace, name: p.Name, filter: p.Filter}]
	if s == nil {
		return nil
	}
	if i := s.informerFor(p.Full); i != nil && i.full == p.Full && i.synced && i.failure == "" {
		return i
	}
	return nil
}

// noteReached records that all changes up to a version are known.
func (i *informer) noteReached(version string) {
	i.reached = cachedobjects.ChooseLater(i.reached, version)
	i.endWait()
}

// noteEdit records a change of an object that an informer has.
func (i *informer) noteEdit(before, now *cachedobjects.Object) {
	i.history.NoteEdit(before, now, i.bytes)
	i.noteChange()
}

// noteChange records that what an informer has is no longer the same.
func (i *informer) noteChange() {
	i.edits++
	i.confirmed = ""
}

// endWait has those look who wait for what an informer reaches.
func (i *informer) endWait() {
	if i.awaited != nil {
		close(i.awaited)
		i.awaited = nil
	}
}

// hasReached says that all changes up to a version are known.
func (i *informer) hasReached(version string) bool {
	return !i.isOutdated() && (i.confirmed == version || cachedobjects.IsAsNew(i.reached, version) || cachedobjects.IsAsNew(i.confirmed, version))
}
