// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package cachedobjects

import (
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"pgregory.net/rapid"

	"github.com/vtex/cleaner/controllers/plan/observed"
	"github.com/vtex/cleaner/controllers/snapshot"
)

// stored is what an informer has, with its History.
type stored struct {
	objects map[string]Shelf
	history *History
	last    uint64
}

func newStored() *stored { return &stored{objects: map[string]Shelf{}, history: NewHistory()} }

func (s *stored) put(namespace, name string, l map[string]string) {
	before := s.objects[namespace].Get(namespace, name)
	now := newPod(namespace, name, l)
	s.last++
	now.Content = s.last
	s.objects[namespace] = s.objects[namespace].PutObject(now)
	s.history.NoteEdit(before, now, 0)
}

func (s *stored) remove(namespace, name string) {
	if before := s.objects[namespace].Get(namespace, name); before != nil {
		s.objects[namespace] = s.objects[namespace].DeleteObject(namespace, name)
		s.history.NoteEdit(before, nil, 0)
	}
}

// list returns the numbers of the contents that a query chooses.
func (s *stored) list(q *snapshot.Query) map[string]uint64 {
	found := map[string]uint64{}
	for _, shelf := range s.objects {
		for _, o := range shelf.AppendTo(nil) {
			if o.isChosen(q, true) {
				found[o.Namespace+"/"+o.Name] = o.Content
			}
		}
	}
	return found
}

// What a query has chosen, with the changes since, is what it chooses, however it chooses; and each change says what was.
func TestChangesLeadToWhatThereIs(t *testing.T) {
	everywhere := snapshot.Query{Labels: labels.Everything(), Fields: fields.Everything()}
	web, inA, others := everywhere, everywhere, everywhere
	web.Labels = labels.SelectorFromSet(labels.Set{"app": "web"})
	inA.Namespace = "a"
	others.Namespaces.Except = []string{"a"}
	named := inA
	named.Name = "p1"
	answered, unknown := 0, 0
	rapid.Check(t, func(rt *rapid.T) {
		s := newStored()
		change := func() {
			namespace, name := rapid.SampledFrom([]string{"a", "b"}).Draw(rt, "namespace"), fmt.Sprint("p", rapid.IntRange(0, 3).Draw(rt, "name"))
			if rapid.IntRange(0, 2).Draw(rt, "gone") == 0 {
				s.remove(namespace, name)
				return
			}
			s.put(namespace, name, map[string]string{"app": rapid.SampledFrom([]string{"web", "db"}).Draw(rt, "app")})
		}
		for range rapid.IntRange(0, 60).Draw(rt, "before") {
			change()
		}
		q := rapid.SampledFrom([]snapshot.Query{everywhere, web, inA, others, named}).Draw(rt, "query")
		moment, was := s.history.Now(), s.list(&q)
		changes := rapid.SampledFrom([]int{0, 1, 2, 5, 15, 60}).Draw(rt, "changes")
		for range changes {
			change()
		}
		changed, ok := s.history.ListSince(moment, s.objects)
		if !ok {
			if unknown++; changes <= fewEdits {
				rt.Fatalf("%d changes are not known", changes)
			}
			return
		}
		answered++
		target := ListChanges(observed.Target{State: observed.Complete, Namespaced: true}, changed, &q)
		for _, c := range target.Changes {
			name := c.Namespace + "/" + c.Name
			if content, there := was[name]; c.Was != there || c.Before != content {
				rt.Fatalf("%s was %t (%d), and not %t (%d)", name, there, content, c.Was, c.Before)
			}
			if delete(was, name); c.Now != nil {
				was[name] = c.Now.Content
			}
		}
		if diff := cmp.Diff(s.list(&q), was); diff != "" {
			rt.Fatalf("-what there is +what the changes lead to:\n%s", diff)
		}
	})
	if answered == 0 || unknown == 0 {
		t.Errorf("%d moments are known, and %d are not: the test shows too little", answered, unknown)
	}
}

// A moment of another History is never known, nor anything else.
func TestMomentsOfOthersAreUnknown(t *testing.T) {
	s, other := newStored(), newStored()
	for _, moment := range []any{nil, "1", other.history.Now(), Moment{}} {
		if _, ok := s.history.ListSince(moment, s.objects); ok {
			t.Errorf("%v is known", moment)
		}
	}
	if _, ok := s.history.ListSince(s.history.Now(), s.objects); !ok {
		t.Error("its own moment is unknown")
	}
}

// However many changes there are, a History has few, which hold no fields. There are more where the objects take more memory.
func TestAHistoryIsBounded(t *testing.T) {
	for bytes, most := range map[int]int{0: 2 * fewEdits, 100 * bytesPerEdit: 200, 1 << 40: 2 * mostEdits} {
		h, o := NewHistory(), newPod("a", "p", nil)
		for range 10 * mostEdits {
			h.NoteEdit(o, o, bytes)
			if len(h.edits) > most {
				t.Fatalf("there are %d changes in objects of %d bytes, want %d at most", len(h.edits), bytes, most)
			}
		}
		if h.edits[0].before.Value != nil || len(h.edits) < most/2 {
			t.Errorf("of %d changes it has %v", len(h.edits), h.edits[0].before.Value)
		}
	}
}

// Of an object with many labels nothing is kept, and what changes in it is unknown; what comes later is known.
func TestAHistoryKeepsNoLargeLabels(t *testing.T) {
	large := map[string]string{}
	for i := range 200 {
		large[fmt.Sprint("label-", i)] = "a value of some length"
	}
	s := newStored()
	s.put("a", "p", large)
	first := s.history.Now()
	for i := range 100 {
		large["i"] = fmt.Sprint(i)
		s.put("a", "p", large)
	}
	if len(s.history.edits) > 0 {
		t.Errorf("%d large objects are kept", len(s.history.edits))
	}
	later := s.history.Now()
	s.put("a", "q", nil)
	if _, ok := s.history.ListSince(first, s.objects); ok {
		t.Error("a moment before changes that are not kept is known")
	}
	if changed, ok := s.history.ListSince(later, s.objects); !ok || len(changed) != 1 {
		t.Errorf("since then there are %v, %t", changed, ok)
	}
	held := newPod("a", "p", nil)
	for i := range 300 {
		held.Finalizers = append(held.Finalizers, fmt.Sprint("example.com/finalizer-", i))
	}
	s.history.NoteEdit(held, nil, 0)
	if len(s.history.edits) > 0 {
		t.Error("many finalizers are kept")
	}
}

// Who reads changes while others come sees what was when it began.
func TestAReaderKeepsItsChanges(t *testing.T) {
	s := newStored()
	moment := s.history.Now()
	for i := range 10 {
		s.put("a", fmt.Sprint("p", i), nil)
	}
	before, _ := s.history.ListSince(moment, s.objects)
	names := fmt.Sprint(before)
	for i := range 100 {
		s.put("a", fmt.Sprint("q", i), nil)
	}
	if fmt.Sprint(before) != names {
		t.Error("the changes that were read are others now")
	}
}

// An object that cannot be read is an error, as it is where all are read.
func TestAChangeThatCannotBeRead(t *testing.T) {
	o := newPod("a", "p", nil)
	o.Value, o.LoadValue = nil, func() (map[string]any, error) { return nil, errors.New("too large") }
	q := snapshot.Query{Labels: labels.Everything(), Fields: fields.Everything()}
	if got := ListChanges(observed.Target{State: observed.Complete, Namespaced: true}, []Difference{{"a", "p", nil, o}}, &q); got.State != observed.Failed || got.IsChange {
		t.Errorf("the state is %s", got.State)
	}
	q.MetadataOnly = true
	if ChoosesByMetadata(&q) {
		t.Error("what only metadata is read of has contents")
	}
	q.MetadataOnly, q.Fields = false, fields.OneTermEqualSelector("spec.nodeName", "n")
	if ChoosesByMetadata(&q) {
		t.Error("fields are metadata")
	}
}

// A read says at which moment it was only if nothing had to be decoded for it.
func TestWhatIsDecodedHasNoMoment(t *testing.T) {
	stored, decoded := newPod("a", "p", nil), newPod("a", "q", nil)
	value := decoded.Value
	decoded.Value, decoded.LoadValue = nil, func() (map[string]any, error) { return value, nil }
	q := snapshot.Query{Labels: labels.Everything(), Fields: fields.Everything()}
	at := observed.Target{State: observed.Complete, At: NewHistory().Now()}
	if got := (SortedObjects{stored}).ReadInto(at, &q); got.At == nil || len(got.Objects) != 1 {
		t.Errorf("of what is stored it reads %+v", got)
	}
	if got := (SortedObjects{stored, decoded}).ReadInto(at, &q); got.At != nil || len(got.Objects) != 2 || got.Objects[1].Value == nil {
		t.Errorf("of what is decoded it reads %+v", got)
	}
	decoded.LoadValue = func() (map[string]any, error) { return nil, errors.New("too large") }
	if got := (SortedObjects{stored, decoded}).ReadInto(at, &q); got.State != observed.Failed || got.Objects != nil {
		t.Errorf("of what cannot be read it reads %+v", got)
	}
	q.MetadataOnly = true
	if got := (SortedObjects{stored}).ReadInto(at, &q); got.Objects[0].Value != nil || got.Objects[0].Content != 0 {
		t.Errorf("where only metadata is read it reads %+v", got.Objects[0])
	}
}
