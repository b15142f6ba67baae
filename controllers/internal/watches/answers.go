// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package watches

import (
	"k8s.io/apimachinery/pkg/labels"

	"github.com/vtex/cleaner/controllers/internal/held"
	"github.com/vtex/cleaner/controllers/internal/served"
	"github.com/vtex/cleaner/controllers/plan"
	"github.com/vtex/cleaner/controllers/snapshot"
)

// answers says how far queries can be answered, and with what, and wakes owners when that changes. All but findCandidates and buildGroups
// is called by who has the lock.
type answers struct {
	*lock
	owners map[Owner]map[interestKey]*want
	kinds  map[kindKey]*kind
}

// findCandidates returns the state of a query, and the objects that may match it, in lists of the caller's own. They have the name
// and the namespaces that are asked for, but for those that are only left out: which are meant is settled under the same
// lock. Their labels and fields are left to compare.
func (a *answers) findCandidates(q *snapshot.Query) (t plan.Target, near []candidates, f snapshot.FieldLabels) {
	a.mu.RLock()
	defer a.mu.RUnlock()
	l := a.checkCoverage(q)
	if g, ok := l.missingGroup(q); ok {
		a.mu.RUnlock()
		a.buildGroups(q, g)
		a.mu.RLock()
		l = a.checkCoverage(q) // much may have changed meanwhile
	}
	t.State, t.Detail = l.state, l.detail
	k := a.kinds[kindKeyOf(q)]
	if k == nil || k.resource == nil {
		return t, nil, f
	}
	r := k.resource
	t.Resource, t.Namespaced = r.GVR, r.Namespaced
	if l.state == plan.Complete {
		namespaces := a.listSelectedNamespaces(r, q)
		for _, i := range l.informers {
			near = append(near, i.findCandidates(q, namespaces))
		}
	}
	return t, near, r.fields
}

// buildGroups makes a group of the informers that answer a query.
func (a *answers) buildGroups(q *snapshot.Query, g group) {
	a.mu.Lock()
	defer a.unlockAndWake()
	for _, i := range a.checkCoverage(q).informers {
		i.buildGroup(g)
	}
}

// checkCoverage says how far a query can be answered.
func (a *answers) checkCoverage(q *snapshot.Query) coverage {
	k := a.kinds[kindKeyOf(q)]
	if k == nil {
		return coverage{state: plan.Unsynced, detail: "it is not watched"}
	}
	if k.resource == nil {
		return coverage{state: k.state, detail: k.detail}
	}
	r := k.resource
	if !r.allFields && snapshot.NeedsValue(q.Fields) {
		if r.fieldsError != "" {
			return coverage{state: plan.Failed, detail: r.fieldsError}
		}
		return coverage{state: plan.Unsynced, detail: r.readingDetail()}
	}
	if wrong := r.checkQuery(q); wrong != "" {
		return coverage{state: plan.Failed, detail: wrong}
	}
	all := coverage{state: plan.Complete}
	for _, namespace := range r.namespacesFor(q) {
		all = all.mergeWith(r.checkCoverageIn(q, namespace))
	}
	if q.Namespaces.Labels != nil {
		namespaces := q.Namespaces.NewListQuery()
		l := a.checkCoverage(&namespaces)
		l.informers = nil
		all = all.mergeWith(l)
	}
	return all
}

// listSelectedNamespaces lists the namespaces in which a query that is Complete looks, in order; nil stands for all that there are.
func (a *answers) listSelectedNamespaces(r *resource, q *snapshot.Query) []string {
	if !r.Namespaced || q.Namespace != "" {
		return []string{served.NamespaceFor(r.Resource, *q)}
	}
	if q.Namespaces.Labels == nil {
		return q.Namespaces.Names
	}
	names := []string{} // nil would be all of them
	namespaces := q.Namespaces.NewListQuery()
	for _, i := range a.checkCoverage(&namespaces).informers {
		all := i.findCandidates(&namespaces, nil)
		for _, o := range all.listObjects() {
			if q.Namespaces.MatchesNamespace(o.Name, &o.Object) {
				names = append(names, o.Name)
			}
		}
	}
	return names
}

// findNamespace returns a Namespace, nil if there is none, and whether that is known.
func (a *answers) findNamespace(name string) (o *held.Object, known bool) {
	all := snapshot.Namespaces{Labels: labels.Everything()}
	q := all.NewListQuery()
	l := a.checkCoverage(&q)
	if l.state != plan.Complete {
		return nil, false
	}
	return l.informers[0].objects[""].Get("", name), true
}

// reaches says that an owner may have to be told of a change in a namespace: one of its queries chooses it, as far as is known.
func (a *answers) reaches(o Owner, namespace string) bool {
	var t *turn
	for _, w := range a.owners[o] {
		q := &w.query
		switch {
		case w.quiet, w.transitionsOnly, q.Namespace != "" && q.Namespace != namespace, !q.Namespaces.MatchesName(namespace), w.kind.resource != nil && !w.kind.resource.Namespaced:
			continue
		case t == nil && q.Namespaces.Labels != nil:
			t = &turn{}
			t.namespace, t.namespaceKnown = a.findNamespace(namespace)
		}
		if w.mayBeIn(t) {
			return true
		}
	}
	return false
}

// reportState wakes the owner of a want when it does not know of its state yet. To be still read is no news.
func (a *answers) reportState(w *want) {
	state := a.checkCoverage(&w.query).state
	if state == plan.Unsynced || state == w.reportedState {
		return
	}
	w.reportedState = state
	if w.owner == (Owner{}) {
		return
	}
	a.wakeups.addOwners(w.owner)
	if !w.transitionsOnly {
		return
	}
	for _, other := range a.owners[w.owner] { // what it looks at now is known of namespaces too
		if other.query.Namespaces.Labels != nil {
			other.reportedState = a.checkCoverage(&other.query).state
		}
	}
}

func (a *answers) reportStates(wants map[*want]struct{}) {
	for w := range wants {
		a.reportState(w)
	}
}
