// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package watches

import (
	"context"
	"fmt"
	"slices"

	"github.com/vtex/cleaner/controllers/plan"
	"github.com/vtex/cleaner/controllers/snapshot"
)

const (
	// fewNamespaces are read one by one; of more, those that are meant are picked from a list of the whole cluster.
	fewNamespaces = 8
	// maxRereads is how often objects are read again because the namespaces that have them changed meanwhile.
	maxRereads = 3
)

// readInSelectedNamespaces reads what there is in the namespaces that a query chooses. Those that it chooses by their labels must be the
// same, and unchanged, before and after, so that the answer is one that was true.
func (l *Live) readInSelectedNamespaces(ctx context.Context, res Resource, q snapshot.Query) plan.Target {
	if q.Namespaces.Labels == nil {
		return l.readInNamedNamespaces(ctx, res, q, q.Namespaces.Names)
	}
	before := l.listSelectedNamespaces(ctx, &q.Namespaces)
	for range maxRereads {
		if before.State != plan.Complete {
			return plan.Target{State: before.State, Detail: before.Detail, Resource: res.GVR, Namespaced: true}
		}
		names := []string{} // nil would be all of them
		for _, o := range before.Objects {
			names = append(names, o.Name)
		}
		t := l.readInNamedNamespaces(ctx, res, q, names)
		if t.State != plan.Complete {
			return t
		}
		after := l.listSelectedNamespaces(ctx, &q.Namespaces)
		if after.State == plan.Complete && slices.EqualFunc(before.Objects, after.Objects, func(a, b plan.Object) bool { return a.Ref == b.Ref }) {
			return t
		}
		before = after
	}
	return plan.Target{
		State: plan.Failed, Resource: res.GVR, Namespaced: true,
		Detail: fmt.Sprintf("namespaces changed each time while %s were listed in those that the namespaceSelector chooses", res.GVR.GroupResource()),
	}
}

// listSelectedNamespaces reads the Namespaces that are chosen.
func (l *Live) listSelectedNamespaces(ctx context.Context, n *snapshot.Namespaces) plan.Target {
	t := l.Read(ctx, n.NewListQuery())
	t.Objects = slices.DeleteFunc(t.Objects, func(o plan.Object) bool { return !n.MatchesNamespace(o.Name, &o) })
	return t
}

// readInNamedNamespaces reads what there is in these namespaces, or in all when there is no list of them, as it was at one moment.
func (l *Live) readInNamedNamespaces(ctx context.Context, res Resource, q snapshot.Query, names []string) plan.Target {
	among := q.Namespaces
	q.Namespaces, q.Namespace = snapshot.Namespaces{}, ""
	if names == nil || len(names) > fewNamespaces {
		t, _ := l.readInNamespace(ctx, res, q, "")
		// The namespaces that a spec names may be all that is allowed.
		if t.State != plan.Forbidden || among.Names == nil {
			meant := snapshot.Namespaces{Names: names, Except: among.Except}
			t.Objects = slices.DeleteFunc(t.Objects, func(o plan.Object) bool { return !meant.MatchesName(o.Namespace) })
			return t
		}
	}
	all := plan.Target{State: plan.Complete, Resource: res.GVR, Namespaced: true}
	var version string
	for _, q.Namespace = range names {
		var t plan.Target
		if t, version = l.readInNamespace(ctx, res, q, version); t.State != plan.Complete {
			return t
		}
		all.Objects = append(all.Objects, t.Objects...)
	}
	return all
}
