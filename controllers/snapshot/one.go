// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/controllers/anykind"
	"github.com/vtex/cleaner/controllers/plan/observed"
)

// ReadObject reads one object of a target's kind, and says whether the target stands for it. The owner is the namespace of the target's
// owner, empty for a ClusterCleaner. Only Complete is an answer: then found is nil because there is no such object, or because the target
// names others. It does not read objects that the target does not name: the right to read them was not reviewed.
//
// A Cleaner may leave the namespace empty, which is its own then. Cluster-scoped kinds ignore it.
func ReadObject(ctx context.Context, r Reader, owner string, t *v1alpha1.ClusterTarget, namespace, name string) (found *observed.Object, matches bool, state observed.TargetState, detail string) {
	q, err := NewQuery(owner, t)
	if err != nil {
		return nil, false, observed.Failed, err.Error()
	}
	return q.readObject(ctx, r, owner, t, namespace, name)
}

// ReadSeen is ReadObject for the read of an object that was seen: in a target of all kinds the read says which kind it has.
func ReadSeen(ctx context.Context, r Reader, owner string, t *v1alpha1.ClusterTarget, read observed.Read) (found *observed.Object, matches bool, state observed.TargetState, detail string) {
	q, err := NewQuery(owner, t)
	if err != nil {
		return nil, false, observed.Failed, err.Error()
	}
	if q.OfAnyKind {
		q = q.OfKind(&anykind.Kind{GroupVersionResource: read.Resource, Kind: read.Resource.Resource})
	}
	return q.readObject(ctx, r, owner, t, read.Namespace, read.Name)
}

func (q *Query) readObject(ctx context.Context, r Reader, owner string, t *v1alpha1.ClusterTarget, namespace, name string) (found *observed.Object, matches bool, state observed.TargetState, detail string) {
	if name == "" {
		return nil, false, observed.Failed, fmt.Sprintf("target %q is asked for an object without a name", t.Name)
	}
	if q.excludesObject(owner, namespace, name) {
		return nil, false, observed.Complete, ""
	}
	one := *q
	one.Name, one.Namespaces, one.Labels, one.Fields = name, Namespaces{}, labels.Everything(), fields.Everything()
	if owner == "" {
		one.Namespace = namespace
	}
	seen, selected := readSelected(ctx, r, one, q)
	if seen.State != observed.Complete {
		return nil, false, seen.State, seen.Detail
	}
	if wrong := q.checkReach(&seen, owner, one.Namespace, namespace, name); wrong != "" {
		return nil, false, observed.Failed, wrong
	}
	if len(seen.Objects) == 0 {
		return nil, false, observed.Complete, ""
	}
	found = &seen.Objects[0]
	matches = selected && q.selectsName(found, seen.Namespaced)
	if !matches || !seen.Namespaced || q.Namespaces.SelectsAll() {
		return found, matches, observed.Complete, ""
	}
	if matches, state, detail = readNamespaceMatch(ctx, r, q, found.Namespace); state != observed.Complete {
		return nil, false, state, detail
	}
	return found, matches, observed.Complete, ""
}

// checkReach says why a target does not reach an object that was read: its kind has another scope, or the target belongs to a Cleaner,
// which sees only its own namespace.
func (q *Query) checkReach(seen *observed.Target, owner, own, namespace, name string) string {
	r := seen.Resource.GroupResource()
	if wrong := q.CheckScope(r, seen.Namespaced); wrong != "" {
		return wrong
	}
	if seen.Namespaced && namespace != "" && namespace != own {
		return fmt.Sprintf("a Cleaner in namespace %q does not see %s", owner, DescribeScope(r, true, namespace, name))
	}
	return ""
}

// selectsName says that a query names no object, or this one.
func (q *Query) selectsName(o *observed.Object, namespaced bool) bool {
	return q.Name == "" || q.Name == o.Name && (!namespaced || q.Namespace == o.Namespace)
}

// readNamespaceMatch says whether a query chooses a namespace, by its name and the labels that it has now.
func readNamespaceMatch(ctx context.Context, r Reader, q *Query, namespace string) (matches bool, state observed.TargetState, detail string) {
	var in *observed.Object
	if q.Namespaces.Labels != nil && q.Namespaces.MatchesName(namespace) {
		seen := r.Read(ctx, NewNamespaceQuery(namespace))
		if seen.State != observed.Complete {
			return false, seen.State, seen.Detail
		}
		if len(seen.Objects) > 0 {
			in = &seen.Objects[0]
		}
	}
	return q.Namespaces.MatchesNamespace(namespace, in), observed.Complete, ""
}

// readSelected reads an object, and says whether it has the labels and fields that a query asks for. What fields there are
// the API server knows: it is asked for them first, and for the object alone when they are not what they should be.
func readSelected(ctx context.Context, r Reader, one Query, q *Query) (t observed.Target, selected bool) {
	if !q.Fields.Empty() {
		one.Labels, one.Fields = q.Labels, q.Fields
		t = r.Read(ctx, one)
		if t.State != observed.Complete || len(t.Objects) > 0 {
			return t, true
		}
		one.Labels, one.Fields = labels.Everything(), fields.Everything()
		return r.Read(ctx, one), false
	}
	t = r.Read(ctx, one)
	return t, len(t.Objects) > 0 && q.Labels.Matches(labels.Set(t.Objects[0].Labels))
}

// excludesObject says that a query names its object, or its namespaces, and that it is none of those.
func (q *Query) excludesObject(owner, namespace, name string) bool {
	if q.Name != "" && q.Name != name {
		return true
	}
	if owner != "" || namespace == "" {
		return false
	}
	return q.Namespace != "" && q.Namespace != namespace || !q.Namespaces.MatchesName(namespace)
}
