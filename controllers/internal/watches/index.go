// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package watches

import (
	"github.com/vtex/cleaner/controllers/internal/cachedobjects"
)

// index finds the wants of one resource that an object may concern, at a cost that does not depend on how many other
// wants there are. A want is in the buckets of its name, or of one label that it requires, or, when it requires none, in
// those of its namespaces. One that takes more values of a label than snapshot.MaxListed is found by each object that has the label: an
// author may write as many values as a spec has room for, and a bucket takes far more room than its value. All are in the buckets of
// their places besides.
type index struct {
	buckets map[bucketKey]*bucket
	// byFields counts the wants that compare what metadata does not have.
	byFields int
}

// bucketKey is what all wants of a bucket require. The namespace is empty for those that name none, and for cluster-scoped
// kinds.
type bucketKey struct {
	by         bucketKind
	namespace  string
	name       string // of the object, or of the label
	labelValue string
}

type bucketKind uint8

const (
	byObjectName bucketKind = iota
	byLabelValue
	byLabelName
	byNamespace
	byPlace // all that there are
)

// bucket is a list of wants. Who goes through it from its end, and lets go of the lock in between, misses none that was there when it
// began: a want that is taken out leaves its place to the last one, and new ones come last.
type bucket struct {
	entries []entry
}

// entry is a want, and which of its buckets this is.
type entry struct {
	*want
	nth int
}

func newIndex() *index { return &index{buckets: map[bucketKey]*bucket{}} }

// size is how many wants a bucket has.
func (x *index) size(k bucketKey) int {
	if b := x.buckets[k]; b != nil {
		return len(b.entries)
	}
	return 0
}

// addWant files a want. Of several labels it takes the one that fewest others require, so that a label that all Cleaners
// share gathers no crowd.
func (x *index) addWant(w *want) {
	w.buckets, w.positions = nil, nil
	crowd := 0
	for _, keys := range bucketsFor(w) {
		n := 0
		for _, k := range keys {
			n = max(n, x.size(k))
		}
		if w.buckets == nil || n < crowd {
			w.buckets, crowd = keys, n
		}
	}
	for _, place := range w.kind.resource.namespacesFor(&w.query) {
		w.buckets = append(w.buckets, bucketKey{by: byPlace, namespace: place})
	}
	w.positions = make([]int, len(w.buckets))
	for n, k := range w.buckets {
		b := x.buckets[k]
		if b == nil {
			b = &bucket{}
			x.buckets[k] = b
		}
		w.positions[n] = len(b.entries)
		b.entries = append(b.entries, entry{w, n})
	}
	if w.byFields {
		x.byFields++
	}
}

// removeWant removes a want, if it is there.
func (x *index) removeWant(w *want) {
	if w.positions == nil {
		return
	}
	for n, k := range w.buckets {
		b, at := x.buckets[k], w.positions[n]
		last := len(b.entries) - 1
		b.entries[at] = b.entries[last]
		b.entries[at].positions[b.entries[at].nth] = at
		b.entries[last] = entry{}
		b.entries = b.entries[:last]
		if last == 0 {
			delete(x.buckets, k)
		}
	}
	if w.byFields {
		x.byFields--
	}
	w.buckets, w.positions = nil, nil
}

// bucketsFor lists the sets of buckets that each suffice for a want.
func bucketsFor(w *want) [][]bucketKey {
	var sets [][]bucketKey
	places := w.kind.resource.namespacesFor(&w.query)
	everywhere := func(keys ...bucketKey) {
		set := make([]bucketKey, 0, len(places)*(len(keys)+1))
		for _, k := range keys {
			for _, k.namespace = range places {
				set = append(set, k)
			}
		}
		sets = append(sets, set)
	}
	if w.query.Name != "" {
		everywhere(bucketKey{by: byObjectName, name: w.query.Name})
		return sets
	}
	for _, l := range w.required {
		if l.Values == nil {
			everywhere(bucketKey{by: byLabelName, name: l.Key})
			continue
		}
		keys := make([]bucketKey, len(l.Values))
		for n, v := range l.Values {
			keys[n] = bucketKey{by: byLabelValue, name: l.Key, labelValue: v}
		}
		everywhere(keys...)
	}
	if len(sets) == 0 {
		everywhere(bucketKey{by: byNamespace})
	}
	return sets
}

// appendBuckets appends the buckets of the wants that an object may concern as it was or as it is now; either may be nil.
func appendBuckets(keys []bucketKey, before, now *cachedobjects.Object) []bucketKey {
	o := now
	if o == nil {
		o = before
	}
	keys = appendBucketsIn(keys, "", o.Name, before, now)
	if o.Namespace != "" {
		keys = appendBucketsIn(keys, o.Namespace, o.Name, before, now)
	}
	return keys
}

func appendBucketsIn(keys []bucketKey, namespace, name string, before, now *cachedobjects.Object) []bucketKey {
	keys = append(keys, bucketKey{by: byObjectName, namespace: namespace, name: name}, bucketKey{by: byNamespace, namespace: namespace})
	labelsBefore, labelsNow := cachedobjects.LabelsOf(before), cachedobjects.LabelsOf(now)
	for k, v := range labelsNow {
		keys = append(keys, bucketKey{by: byLabelName, namespace: namespace, name: k}, bucketKey{by: byLabelValue, namespace: namespace, name: k, labelValue: v})
	}
	for k, v := range labelsBefore {
		current, still := labelsNow[k]
		if !still {
			keys = append(keys, bucketKey{by: byLabelName, namespace: namespace, name: k})
		}
		if !still || current != v {
			keys = append(keys, bucketKey{by: byLabelValue, namespace: namespace, name: k, labelValue: v})
		}
	}
	return keys
}
