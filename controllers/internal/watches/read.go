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
	t, near, f := e.find(&q)
	if !q.Labels.Empty() || !q.Fields.Empty() || q.Among.Except != nil { // else all that is near matches
		near = slices.DeleteFunc(near, func(o *object) bool { // stored objects never change, so that they are compared without the lock
			return !o.matches(&q, t.Namespaced, f)
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
			if t.Objects[n], err = o.read(); err != nil {
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

// find returns the state of a query, and the objects that may match it, in a shelf of the caller's own. They have the name
// and the namespaces that are asked for, but for those that are only left out: which are meant is settled under the same
// lock. Their labels and fields are left to compare.
func (e *Engine) find(q *snapshot.Query) (t plan.Target, near shelf, f snapshot.FieldLabels) {
	e.mu.RLock()
	defer e.mu.RUnlock()
	l := e.look(q)
	if g, ok := l.lacksGroup(q); ok {
		e.mu.RUnlock()
		e.gather(q, g)
		e.mu.RLock()
		l = e.look(q) // much may have changed meanwhile
	}
	t.State, t.Detail = l.state, l.detail
	k := e.kinds[kindKeyOf(q)]
	if k == nil || k.resource == nil {
		return t, nil, f
	}
	r := k.resource
	t.Resource, t.Namespaced = r.GVR, r.Namespaced
	if l.state == plan.Complete {
		namespaces := e.chosen(r, q)
		for _, i := range l.informers {
			near = i.near(near, q, namespaces)
		}
	}
	return t, near, r.fields
}

// sight is how far a query can be answered, and by which informers when it is Complete: by one, or by one for each of the
// namespaces that it names, in their order.
type sight struct {
	state     plan.TargetState
	detail    string
	informers []*informer
}

// and is the sight of two queries that have to be answered both: the worse of the two. What people can do something about
// comes before what passes by itself.
func (l sight) and(other sight) sight {
	for _, worst := range []plan.TargetState{plan.Forbidden, plan.NoSuchKind, plan.Failed, plan.Unsynced} {
		switch worst {
		case l.state:
			return sight{state: l.state, detail: l.detail}
		case other.state:
			return sight{state: other.state, detail: other.detail}
		}
	}
	for _, i := range other.informers {
		if len(l.informers) == 0 || l.informers[len(l.informers)-1] != i {
			l.informers = append(l.informers, i)
		}
	}
	return l
}

// look says how far a query can be answered.
func (e *Engine) look(q *snapshot.Query) sight {
	k := e.kinds[kindKeyOf(q)]
	if k == nil {
		return sight{state: plan.Unsynced, detail: "nobody watches it"}
	}
	if k.resource == nil {
		return sight{state: k.state, detail: k.detail}
	}
	r := k.resource
	if !r.allFields && snapshot.NeedsValue(q.Fields) {
		if r.fieldsTrouble != "" {
			return sight{state: plan.Failed, detail: r.fieldsTrouble}
		}
		return sight{state: plan.Unsynced, detail: r.reading()}
	}
	if wrong := r.wrong(q); wrong != "" {
		return sight{state: plan.Failed, detail: wrong}
	}
	all := sight{state: plan.Complete}
	for _, namespace := range r.places(q) {
		all = all.and(r.look(q, namespace))
	}
	if q.Among.Labels != nil {
		namespaces := q.Among.Query()
		l := e.look(&namespaces)
		l.informers = nil
		all = all.and(l)
	}
	return all
}

// look says how far what a query asks for in a namespace is known.
func (r *resource) look(q *snapshot.Query, namespace string) sight {
	full := snapshot.NeedsValue(q.Fields) || !q.MetadataOnly
	for key, more := (scopeKey{}), true; more; key, more = r.below(key, namespace, q.Name) {
		s := r.scopes[key]
		switch {
		case s == nil || s.access == unchecked:
			return sight{state: plan.Unsynced, detail: r.reading()}
		case s.access == uncheckable:
			return sight{state: plan.Failed, detail: s.detail}
		case s.access == denied:
			if _, more := r.below(key, namespace, q.Name); !more {
				return sight{state: plan.Forbidden, detail: forbidden("the operator", s.detail, r.Resource, namespace, q.Name)}
			}
			continue
		}
		switch i := s.serving(full); {
		case i == nil:
			return sight{state: plan.Unsynced, detail: r.reading()}
		case i.failing != "":
			return sight{state: plan.Failed, detail: i.failing}
		case !i.synced:
			return sight{state: plan.Unsynced, detail: r.reading()}
		default:
			return sight{state: plan.Complete, informers: []*informer{i}}
		}
	}
	return sight{state: plan.Unsynced, detail: r.reading()}
}

// chosen lists the namespaces in which a query that is Complete looks, in order; nil stands for all that there are.
func (e *Engine) chosen(r *resource, q *snapshot.Query) []string {
	if !r.Namespaced || q.Namespace != "" {
		return []string{namespaceIn(r.Resource, *q)}
	}
	if q.Among.Labels == nil {
		return q.Among.Names
	}
	names := []string{} // nil would be all of them
	namespaces := q.Among.Query()
	for _, i := range e.look(&namespaces).informers {
		for _, o := range i.near(nil, &namespaces, nil) {
			if q.Among.Choose(o.Name, &o.Object) {
				names = append(names, o.Name)
			}
		}
	}
	return names
}

// mayChoose says that a namespace has the labels that are asked for. While that is not known, it may.
func (e *Engine) mayChoose(n *snapshot.Namespaces, namespace string) bool {
	q := n.Query()
	l := e.look(&q)
	if l.state != plan.Complete {
		return true
	}
	o := l.informers[0].objects[""].get("", namespace)
	return o != nil && n.Labels.Matches(labels.Set(o.Labels))
}

// reading says that a resource is being read, for people.
func (r *resource) reading() string { return fmt.Sprintf("%s are being read", r.GVR.GroupResource()) }

// tell wakes the owner of a want when it does not know of its state yet. To be still read is no news.
func (e *Engine) tell(w *want) {
	state := e.look(&w.query).state
	if state == plan.Unsynced || state == w.told {
		return
	}
	w.told = state
	if w.owner == (Owner{}) {
		return
	}
	e.woken = append(e.woken, w.owner)
	if !w.turns {
		return
	}
	for _, other := range e.owners[w.owner] { // what it looks at now is known of namespaces too
		if other.chooses != nil {
			other.told = e.look(&other.query).state
		}
	}
}

func (e *Engine) tellAll(wants map[*want]struct{}) {
	for w := range wants {
		e.tell(w)
	}
}
