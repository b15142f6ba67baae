// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package watches

import (
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/vtex/cleaner/controllers/internal/cachedobjects"
	"github.com/vtex/cleaner/controllers/internal/served"
	"github.com/vtex/cleaner/controllers/internal/wire"
	"github.com/vtex/cleaner/controllers/plan/monotime"
	"github.com/vtex/cleaner/controllers/plan/observed"
	"github.com/vtex/cleaner/controllers/snapshot"
)

// answers says how far queries can be answered, and with what, and wakes owners when that changes. All but findCandidates and makeGroup
// is called by who has the lock.
type answers struct {
	*lock
	owners map[Owner]map[interestKey]*want
	kinds  map[kindKey]*kind
}

// coverage is how far a query can be answered, and by which informers when it is Complete: by one, or by one for each of the
// namespaces that it names, in their order.
type coverage struct {
	state     observed.TargetState
	detail    string
	informers []*informer
}

// findCandidates returns the state of a query, and where the objects are that may match it, for the caller to look through without the
// lock. It is Unsynced unless one informer alone answers that is new enough; nil: any is.
func (a *answers) findCandidates(q *snapshot.Query, isNew func(*informer) bool) (t observed.Target, near []candidates, f snapshot.FieldLabels) {
	a.mu.RLock()
	defer a.mu.RUnlock()
	l := a.checkCoverage(q)
	if isNew != nil && l.state == observed.Complete && !(len(l.informers) == 1 && isNew(l.informers[0])) {
		l.state, l.detail = observed.Unsynced, "it is not known to be new enough"
	}
	t.State, t.Detail = l.state, l.detail
	k := a.kinds[kindKeyOf(q)]
	if k == nil || k.resource == nil {
		return t, nil, f
	}
	r := k.resource
	t.Resource, t.Namespaced, t.Custom = r.GVR, r.Namespaced, r.IsCustom()
	t.Outdated, t.Definition = a.mayBeOutdated(r, l.informers), r.definition
	if l.state == observed.Complete {
		namespaces, chosenAmong := a.findSelectedNamespaces(r, q)
		if len(l.informers) == 1 && chosenAmong == nil && cachedobjects.ChoosesByMetadata(q) {
			i := l.informers[0]
			t.At = i.history.Now()
			if changed, ok := i.history.ListSince(q.Since, i.objects); ok {
				t.IsChange = true
				return t, []candidates{{changed: changed}}, r.fields
			}
		}
		for _, i := range l.informers {
			c := i.findCandidates(q, namespaces)
			c.ChosenAmong = chosenAmong
			near = append(near, c)
		}
	}
	return t, near, r.fields
}

// mayBeOutdated says that what informers have was read by an earlier definition of their resource, or that no definition is known.
func (a *answers) mayBeOutdated(r *resource, informers []*informer) bool {
	if !r.IsCustom() {
		return false
	}
	_, state := a.findDefinition(r.Resource)
	return state != observed.Complete || slices.ContainsFunc(informers, (*informer).isOutdated)
}

// checkCoverage says how far a query can be answered.
func (a *answers) checkCoverage(q *snapshot.Query) coverage {
	k := a.kinds[kindKeyOf(q)]
	if k == nil {
		return coverage{state: observed.Unsynced, detail: "it is not watched"}
	}
	if k.resource == nil {
		return coverage{state: k.state, detail: k.detail}
	}
	r := k.resource
	if !r.allFields && snapshot.NeedsValue(q.Fields) {
		if r.fieldsError != "" {
			return coverage{state: observed.Failed, detail: r.fieldsError}
		}
		return coverage{state: observed.Unsynced, detail: r.readingDetail()}
	}
	if wrong := served.CheckQuery(r.Resource, r.fields, q); wrong != "" {
		return coverage{state: observed.Failed, detail: wrong}
	}
	all := coverage{state: observed.Complete}
	for _, namespace := range r.namespacesFor(q) {
		all = all.mergeWith(r.checkCoverageIn(q, namespace))
	}
	if q.Namespaces.Labels != nil {
		namespaces := q.Namespaces.NewListQuery()
		l := a.checkCoverage(&namespaces)
		l.informers = nil
		all = all.mergeWith(l)
	}
	if len(all.informers) > 1 && slices.ContainsFunc(all.informers, func(i *informer) bool { return i.scope.isWide() }) {
		return coverage{state: observed.Unsynced, detail: r.readingDetail()} // its own namespaces would be there twice
	}
	return all
}

// findSelectedNamespaces lists the namespaces in which a query that is Complete looks, in order; nil stands for all that there are. If
// their labels choose them, it returns the Namespaces among which they do.
func (a *answers) findSelectedNamespaces(r *resource, q *snapshot.Query) (names []string, chosenAmong *cachedobjects.Shelf) {
	if !r.Namespaced || q.Namespace != "" {
		return []string{served.NamespaceFor(r.Resource, *q)}, nil
	}
	if q.Namespaces.Labels == nil {
		return q.Namespaces.Names, nil
	}
	namespaces := q.Namespaces.NewListQuery()
	all := a.checkCoverage(&namespaces).informers[0].objects[""]
	return nil, &all
}

// findNamespace returns a Namespace, nil if there is none, and whether that is known.
func (a *answers) findNamespace(name string) (o *cachedobjects.Object, known bool) {
	all := snapshot.Namespaces{Labels: labels.Everything()}
	q := all.NewListQuery()
	l := a.checkCoverage(&q)
	if l.state != observed.Complete {
		return nil, false
	}
	return l.informers[0].objects[""].Get("", name), true
}

// selectsNames reports whether objects of a resource can be selected by their names: Kubernetes' own kinds and custom kinds can. Of what an aggregated
// API server serves, which has no definition, it is not known. While definitions are listed for the first time, each kind is taken for a custom one.
func (a *answers) selectsNames(r *resource) bool {
	if wire.IsKnown(r.GVR.GroupVersion()) {
		return true
	}
	definition, state := a.findDefinition(r.Resource)
	return state == observed.Unsynced || definition != nil
}

// findDefinition returns the CustomResourceDefinition of a resource, nil if there is none or none is known, and how far definitions are known.
func (a *answers) findDefinition(r served.Resource) (o *cachedobjects.Object, state observed.TargetState) {
	definitions := served.NewDefinitionQuery("")
	l := a.checkCoverage(&definitions)
	if l.state == observed.Complete {
		o = l.informers[0].objects[""].Get("", r.GVR.GroupResource().String())
	}
	return o, l.state
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

// noteLoss notes until when changes are known of what a want asks for, before it loses the informers that serve it.
func (a *answers) noteLoss(w *want) {
	for _, i := range a.checkCoverage(&w.query).informers {
		w.lost = monotime.ChooseEarlier(w.lost, i.known)
	}
}

// noteLosses is noteLoss for all wants that an informer serves.
func (a *answers) noteLosses(i *informer) {
	for w := range i.scope.wants {
		if slices.Contains(a.checkCoverage(&w.query).informers, i) {
			a.noteLoss(w)
		}
	}
}

// isServedBy reports whether an informer of a scope serves a want.
func (a *answers) isServedBy(w *want, s *scope) bool {
	return slices.ContainsFunc(a.checkCoverage(&w.query).informers, func(i *informer) bool { return i.scope == s })
}

// reportState wakes the owner of a want when it does not know of its state yet. To be still read is no news.
func (a *answers) reportState(w *want) {
	state := a.checkCoverage(&w.query).state
	if state == observed.Unsynced {
		w.reportedState = state // an owner that looks meanwhile has to hear of it when it is known again
		return
	}
	if state == w.reportedState {
		return
	}
	w.reportedState = state
	if w.owner == (Owner{}) {
		return
	}
	a.wakeups.AddOwnersSince(w.lost, w.owner)
	if state == observed.Complete {
		w.lost = time.Time{}
	}
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

// mergeWith is the coverage of two queries that have to be answered both: the worse of the two. What people can do something about
// comes before what passes by itself.
func (l coverage) mergeWith(other coverage) coverage {
	for _, worst := range []observed.TargetState{observed.Forbidden, observed.NoSuchKind, observed.TooLarge, observed.Failed, observed.Unsynced} {
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

// checkCoverageIn says how far what a query asks for in a namespace is known.
func (r *resource) checkCoverageIn(q *snapshot.Query, namespace string) coverage {
	full := snapshot.NeedsValue(q.Fields) || !q.MetadataOnly
	var wide *scope // that is being opened
	for key, more := r.widestScope(q, namespace), true; more; key, more = r.narrowScope(key, namespace, q.Name) {
		s := r.scopes[key]
		switch {
		case s == nil && wide != nil:
			return wide.checkOpening(q, full)
		case s == nil || s.access == unchecked:
			return coverage{state: observed.Unsynced, detail: r.readingDetail()}
		case s.access == uncheckable:
			return coverage{state: observed.Failed, detail: s.detail}
		case s.isClosed():
			isOpening := s.access == unneeded || s.access == opening
			if isOpening {
				wide = chooseOpening(wide, s)
			}
			if _, more := r.narrowScope(key, namespace, q.Name); more {
				continue
			}
			switch {
			case s.access == tooLarge:
				return coverage{state: observed.TooLarge, detail: s.detail}
			case isOpening:
				return s.checkOpening(q, full)
			}
			return coverage{state: observed.Forbidden, detail: served.ForbiddenDetail("the operator", s.detail, r.Resource, namespace, q.Name)}
		}
		return s.checkInformer(q, full)
	}
	return coverage{state: observed.Unsynced, detail: r.readingDetail()}
}

// chooseOpening returns which scope a query waits for: a wider one if that is being listed, else the narrower one, which is not open yet.
func chooseOpening(wide, s *scope) *scope {
	if wide != nil && wide.access == opening {
		return wide
	}
	return s
}

// checkOpening says how far a scope knows what a query asks for that is not open yet.
func (s *scope) checkOpening(q *snapshot.Query, full bool) coverage {
	switch {
	case s.access == opening:
		return s.checkInformer(q, full)
	case s.detail != "":
		return coverage{state: observed.Failed, detail: s.detail}
	default:
		return coverage{state: observed.Unsynced, detail: s.resource.readingDetail()}
	}
}

// checkInformer says how far the informer of a scope knows what a query asks for.
func (s *scope) checkInformer(q *snapshot.Query, full bool) coverage {
	switch i := s.informerFor(full); {
	case i == nil:
		return coverage{state: observed.Unsynced, detail: s.resource.readingDetail()}
	case i.failure != "":
		return coverage{state: observed.Failed, detail: i.failure}
	case !i.synced:
		return coverage{state: observed.Unsynced, detail: s.resource.readingDetail()}
	case full && !i.keeps.Covers(q.Reads):
		if s.next != nil && s.next.failure != "" {
			return coverage{state: observed.Failed, detail: s.next.failure}
		}
		if s.asideExcess != "" {
			return coverage{state: observed.TooLarge, detail: s.asideExcess}
		}
		return coverage{state: observed.Unsynced, detail: fmt.Sprintf("waiting for a list of %s with all fields that the expressions read", s.resource.GVR.GroupResource())}
	default:
		return coverage{state: observed.Complete, informers: []*informer{i}}
	}
}

// readingDetail says that a resource is being read, for people.
func (r *resource) readingDetail() string {
	return fmt.Sprintf("waiting for the first list of %s", r.GVR.GroupResource())
}
