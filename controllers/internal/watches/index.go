// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package watches

// index finds the wants of one resource that an object may concern, at a cost that does not depend on how many other
// wants there are. A want is in the buckets of its name, or of one label that it requires, or, when it requires none, in
// those of its namespaces. One that takes more values of a label than snapshot.MaxListed is found by each object that has the label: an
// author may write as many values as a spec has room for, and a bucket takes far more room than its value.
type index map[bucketKey]map[*want]struct{}

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
)

// addWant files a want. Of several labels it takes the one that fewest others require, so that a label that all Cleaners
// share gathers no crowd.
func (x index) addWant(w *want) {
	w.buckets = nil
	crowd := 0
	for _, keys := range bucketsFor(w) {
		n := 0
		for _, k := range keys {
			n = max(n, len(x[k]))
		}
		if w.buckets == nil || n < crowd {
			w.buckets, crowd = keys, n
		}
	}
	for _, k := range w.buckets {
		if x[k] == nil {
			x[k] = map[*want]struct{}{}
		}
		x[k][w] = struct{}{}
	}
}

// removeWant takes a want out.
func (x index) removeWant(w *want) {
	for _, k := range w.buckets {
		delete(x[k], w)
		if len(x[k]) == 0 {
			delete(x, k)
		}
	}
	w.buckets = nil
}

// bucketsFor lists the sets of buckets that each suffice for a want.
func bucketsFor(w *want) [][]bucketKey {
	var sets [][]bucketKey
	places := w.kind.resource.namespacesFor(&w.query)
	everywhere := func(keys ...bucketKey) {
		set := make([]bucketKey, 0, len(places)*len(keys))
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

// appendOwners appends the owners that an object concerns as it was or as it is now; either may be nil. An owner may be
// appended more than once.
func (x index) appendOwners(owners []Owner, before, now *object) []Owner {
	o := now
	if o == nil {
		o = before
	}
	owners = x.appendOwnersIn(owners, "", before, now)
	if o.Namespace != "" {
		owners = x.appendOwnersIn(owners, o.Namespace, before, now)
	}
	return owners
}

func (x index) appendOwnersIn(owners []Owner, namespace string, before, now *object) []Owner {
	var name string
	var labelsNow, labelsBefore map[string]string
	if now != nil {
		name, labelsNow = now.Name, now.Labels
	}
	if before != nil {
		name, labelsBefore = before.Name, before.Labels
	}
	owners = x.appendFromBucket(owners, bucketKey{by: byObjectName, namespace: namespace, name: name}, before, now)
	owners = x.appendFromBucket(owners, bucketKey{by: byNamespace, namespace: namespace}, before, now)
	for k, v := range labelsNow {
		owners = x.appendFromBucket(owners, bucketKey{by: byLabelName, namespace: namespace, name: k}, before, now)
		owners = x.appendFromBucket(owners, bucketKey{by: byLabelValue, namespace: namespace, name: k, labelValue: v}, before, now)
	}
	for k, v := range labelsBefore {
		current, still := labelsNow[k]
		if !still {
			owners = x.appendFromBucket(owners, bucketKey{by: byLabelName, namespace: namespace, name: k}, before, now)
		}
		if !still || current != v {
			owners = x.appendFromBucket(owners, bucketKey{by: byLabelValue, namespace: namespace, name: k, labelValue: v}, before, now)
		}
	}
	return owners
}

func (x index) appendFromBucket(owners []Owner, k bucketKey, before, now *object) []Owner {
	for w := range x[k] {
		is, was := w.matchesObject(now), w.matchesObject(before)
		if (is || was) && !(is && was && w.transitionsOnly) {
			owners = append(owners, w.owner)
		}
	}
	return owners
}

// matchesObject says that a want, whose resource is known, is for this object.
func (w *want) matchesObject(o *object) bool {
	if o == nil || w.full && !o.isWhole() { // a whole object is on its way by another informer
		return false
	}
	r := w.kind.resource
	return o.matchesQuery(&w.query, r.Namespaced, r.fields) && (w.selectsNamespace == nil || w.selectsNamespace(o.Namespace))
}
