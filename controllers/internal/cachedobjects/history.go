// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package cachedobjects

import (
	"github.com/vtex/cleaner/controllers/plan/observed"
	"github.com/vtex/cleaner/controllers/snapshot"
)

const (
	// fewEdits is how many changes a History has at least, of objects with few labels and finalizers, mostEdits how many at most, and bytesPerEdit for how many bytes of objects it has one
	// otherwise. It may have twice as many, so that it need not drop one with each change.
	fewEdits, mostEdits, bytesPerEdit = 16, 512, 16 << 10
	// mostBytes is how many bytes of labels and finalizers an object may have in a History.
	mostBytes = 4 << 10
)

// History has the latest changes of objects, so that a reader need not compare all of them. Who changes it has a lock of all readers.
type History struct {
	edits []edit // the latest ones, in order
	now   Moment
}

// edit is an object before a change, without its fields; nil: it was not there.
type edit struct {
	namespace, name string
	before          *Object
}

// Moment is a place in a History. It is comparable, and is never mistaken for one in another History.
type Moment struct {
	of     *History
	number int
}

// NewHistory returns a History that begins now.
func NewHistory() *History {
	h := &History{}
	h.now.of = h
	return h
}

// Now returns the moment after the latest change.
func (h *History) Now() Moment { return h.now }

// NoteEdit adds a change of an object, among objects of so many bytes. One of both may be nil. What was before a change of an object with many
// labels or finalizers is not known.
func (h *History) NoteEdit(before, now *Object, bytes int) {
	in := now
	if in == nil {
		in = before
	}
	h.now.number++
	if before != nil && !before.hasFewLabels() {
		h.edits = nil
		return
	}
	if keep := min(max(fewEdits, bytes/bytesPerEdit), mostEdits); len(h.edits) >= 2*keep {
		h.edits = append(make([]edit, 0, 2*keep), h.edits[len(h.edits)-keep+1:]...) // not in place: what is dropped goes
	}
	h.edits = append(h.edits, edit{in.Namespace, in.Name, before.KeepForMatching(false)})
}

// hasFewLabels says that the labels and finalizers of an object take little memory.
func (o *Object) hasFewLabels() bool {
	n := 0
	for key, value := range o.Labels {
		n += len(key) + len(value)
	}
	for _, f := range o.Finalizers {
		n += len(f)
	}
	return n <= mostBytes
}

// Difference is an object as it was, without its fields, and as it is. One of them may be nil.
type Difference struct {
	Namespace, Name string
	Before, Now     *Object
}

// ListSince returns what has changed in objects since a Moment, each object once. It is not ok if that is not known.
func (h *History) ListSince(moment any, objects map[string]Shelf) (changed []Difference, ok bool) {
	m, is := moment.(Moment)
	since := h.now.number - m.number
	if !is || m.of != h || since > len(h.edits) {
		return nil, false
	}
	type place struct{ namespace, name string }
	seen := make(map[place]bool, since)
	for _, e := range h.edits[len(h.edits)-since:] {
		if at := (place{e.namespace, e.name}); !seen[at] {
			seen[at] = true
			changed = append(changed, Difference{e.namespace, e.name, e.before, objects[e.namespace].Get(e.namespace, e.name)})
		}
	}
	return changed, true
}

// ChoosesByMetadata says that what a query chooses is known without the fields of objects.
func ChoosesByMetadata(q *snapshot.Query) bool { return q.Fields.Empty() && !q.MetadataOnly }

// ListChanges returns a target with how the objects have changed that a query chooses by their metadata.
func ListChanges(t observed.Target, changed []Difference, q *snapshot.Query) observed.Target {
	for _, d := range changed {
		c := observed.Change{Namespace: d.Namespace, Name: d.Name, Was: d.Before.isChosen(q, t.Namespaced)}
		if c.Was {
			c.Before = d.Before.Content
		}
		if d.Now.isChosen(q, t.Namespaced) {
			now, err := d.Now.ReadWhole()
			if err != nil {
				return observed.Target{State: observed.Failed, Detail: err.Error(), Resource: t.Resource, Namespaced: t.Namespaced}
			}
			c.Now = &now
		}
		if c.Was || c.Now != nil {
			t.Changes = append(t.Changes, c)
		}
	}
	return t
}

// isChosen says that a query chooses an object by its metadata. It chooses no nil.
func (o *Object) isChosen(q *snapshot.Query, namespaced bool) bool {
	return o != nil && matchesResolved(q, namespaced, snapshot.FieldLabels{}, &o.Object)
}
