// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package watches

import (
	"context"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/vtex/cleaner/controllers/plan"
	"github.com/vtex/cleaner/controllers/snapshot"
)

// Read answers from what is watched, without any request. A query that no Cleaner wants is never Complete.
func (e *Engine) Read(_ context.Context, q snapshot.Query) plan.Target {
	q.Compile()
	t, near, f := e.findCandidates(&q)
	if !q.Labels.Empty() || !q.Fields.Empty() || q.Namespaces.Except != nil { // else all that is near matches
		near = slices.DeleteFunc(near, func(o *object) bool { // stored objects never change, so that they are compared without the lock
			return !o.matchesQuery(&q, t.Namespaced, f)
		})
	}
	if len(near) == 0 {
		return t
	}
	t.Objects = make([]plan.Object, len(near))
	for n, o := range near {
		t.Objects[n] = o.Object
		if !q.MetadataOnly || snapshot.NeedsValue(q.Fields) {
			var err error
			if t.Objects[n], err = o.readWhole(); err != nil {
				t.State, t.Detail, t.Objects = plan.Failed, err.Error(), nil
				return t
			}
		}
		if q.MetadataOnly {
			t.Objects[n].Value = nil
		}
	}
	return t
}

// findCandidates returns the state of a query, and the objects that may match it, in a list of the caller's own. They have the name
// and the namespaces that are asked for, but for those that are only left out: which are meant is settled under the same
// lock. Their labels and fields are left to compare.
func (e *Engine) findCandidates(q *snapshot.Query) (t plan.Target, near sortedObjects, f snapshot.FieldLabels) {
	e.mu.RLock()
	defer e.mu.RUnlock()
	l := e.checkCoverage(q)
	if g, ok := l.missingGroup(q); ok {
		e.mu.RUnlock()
		e.buildGroups(q, g)
		e.mu.RLock()
		l = e.checkCoverage(q) // much may have changed meanwhile
	}
	t.State, t.Detail = l.state, l.detail
	k := e.kinds[kindKeyOf(q)]
	if k == nil || k.resource == nil {
		return t, nil, f
	}
	r := k.resource
	t.Resource, t.Namespaced = r.GVR, r.Namespaced
	if l.state == plan.Complete {
		namespaces := e.listSelectedNamespaces(r, q)
		for _, i := range l.informers {
			near = i.appendCandidates(near, q, namespaces)
		}
	}
	return t, near, r.fields
}

// coverage is how far a query can be answered, and by which informers when it is Complete: by one, or by one for each of the
// namespaces that it names, in their order.
type coverage struct {
	state     plan.TargetState
	detail    string
	informers []*informer
}

// mergeWith is the coverage of two queries that have to be answered both: the worse of the two. What people can do something about
// comes before what passes by itself.
func (l coverage) mergeWith(other coverage) coverage {
	for _, worst := range []plan.TargetState{plan.Forbidden, plan.NoSuchKind, plan.Failed, plan.Unsynced} {
		switch worst {
		case l.state:
			return coverage{state: l.state, detail: l.detail}
		case other.state:
			return coverage{state: other.state, detail: other.detail}
		}
	}
	for _, i := range other.informers {
		if len(l.informers) == 0 || l.informers[len(l.informers)-1] != i {
			l.informers = append(l.informers, i)
		}
	}
	return l
}

// checkCoverage says how far a query can be answered.
func (e *Engine) checkCoverage(q *snapshot.Query) coverage {
	k := e.kinds[kindKeyOf(q)]
	if k == nil {
		return coverage{state: plan.Unsynced, detail: "nobody watches it"}
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
		l := e.checkCoverage(&namespaces)
		l.informers = nil
		all = all.mergeWith(l)
	}
	return all
}

// checkCoverageIn says how far what a query asks for in a namespace is known.
func (r *resource) checkCoverageIn(q *snapshot.Query, namespace string) coverage {
	full := snapshot.NeedsValue(q.Fields) || !q.MetadataOnly
	for key, more := (scopeKey{}), true; more; key, more = r.narrowScope(key, namespace, q.Name) {
		s := r.scopes[key]
		switch {
		case s == nil || s.access == unchecked:
			return coverage{state: plan.Unsynced, detail: r.readingDetail()}
		case s.access == uncheckable:
			return coverage{state: plan.Failed, detail: s.detail}
		case s.access == denied:
			if _, more := r.narrowScope(key, namespace, q.Name); !more {
				return coverage{state: plan.Forbidden, detail: forbiddenDetail("the operator", s.detail, r.Resource, namespace, q.Name)}
			}
			continue
		}
		switch i := s.informerFor(full); {
		case i == nil:
			return coverage{state: plan.Unsynced, detail: r.readingDetail()}
		case i.failure != "":
			return coverage{state: plan.Failed, detail: i.failure}
		case !i.synced:
			return coverage{state: plan.Unsynced, detail: r.readingDetail()}
		default:
			return coverage{state: plan.Complete, informers: []*informer{i}}
		}
	}
	return coverage{state: plan.Unsynced, detail: r.readingDetail()}
}

// listSelectedNamespaces lists the namespaces in which a query that is Complete looks, in order; nil stands for all that there are.
func (e *Engine) listSelectedNamespaces(r *resource, q *snapshot.Query) []string {
	if !r.Namespaced || q.Namespace != "" {
		return []string{namespaceFor(r.Resource, *q)}
	}
	if q.Namespaces.Labels == nil {
		return q.Namespaces.Names
	}
	names := []string{} // nil would be all of them
	namespaces := q.Namespaces.NewListQuery()
	for _, i := range e.checkCoverage(&namespaces).informers {
		for _, o := range i.appendCandidates(nil, &namespaces, nil) {
			if q.Namespaces.MatchesNamespace(o.Name, &o.Object) {
				names = append(names, o.Name)
			}
		}
	}
	return names
}

// maySelectNamespace says that a namespace has the labels that are asked for. While that is not known, it may.
func (e *Engine) maySelectNamespace(n *snapshot.Namespaces, namespace string) bool {
	q := n.NewListQuery()
	l := e.checkCoverage(&q)
	if l.state != plan.Complete {
		return true
	}
	o := l.informers[0].objects[""].get("", namespace)
	return o != nil && n.Labels.Matches(labels.Set(o.Labels))
}

// readingDetail says that a resource is being read, for people.
func (r *resource) readingDetail() string {
	return fmt.Sprintf("%s are being read", r.GVR.GroupResource())
}

// reportState wakes the owner of a want when it does not know of its state yet. To be still read is no news.
func (e *Engine) reportState(w *want) {
	state := e.checkCoverage(&w.query).state
	if state == plan.Unsynced || state == w.reportedState {
		return
	}
	w.reportedState = state
	if w.owner == (Owner{}) {
		return
	}
	e.woken = append(e.woken, w.owner)
	if !w.transitionsOnly {
		return
	}
	for _, other := range e.owners[w.owner] { // what it looks at now is known of namespaces too
		if other.selectsNamespace != nil {
			other.reportedState = e.checkCoverage(&other.query).state
		}
	}
}

func (e *Engine) reportStates(wants map[*want]struct{}) {
	for w := range wants {
		e.reportState(w)
	}
}
