// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package live

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/fields"

	"github.com/vtex/cleaner/controllers/internal/served"
	"github.com/vtex/cleaner/controllers/internal/wire"
	"github.com/vtex/cleaner/controllers/plan/observed"
	"github.com/vtex/cleaner/controllers/snapshot"
)

const (
	// FewNamespaces is how many namespaces are read one by one. For more, the whole cluster is listed.
	FewNamespaces = 8
	// maxExcluded and maxExcludedBytes bound the excluded namespaces in a request's field selector.
	maxExcluded, maxExcludedBytes = 64, 2 << 10
	// maxRereads is how often to read again because the selected namespaces changed meanwhile.
	maxRereads = 3
)

// readInSelectedNamespaces reads the objects of the selected namespaces. Namespaces that labels select must be the same, and unchanged,
// before and after, so that the answer was true at one moment.
func (l *Reader) readInSelectedNamespaces(ctx context.Context, res served.Resource, q snapshot.Query) observed.Target {
	if q.Namespaces.Labels == nil {
		return l.readInNamedNamespaces(ctx, res, q, q.Namespaces.Names)
	}
	before, names := q.Namespaces.ListSelected(ctx, l)
	for range maxRereads {
		if before.State != observed.Complete {
			return observed.Target{State: before.State, Detail: before.Detail, Resource: res.GVR, Namespaced: true}
		}
		t := l.readInNamedNamespaces(ctx, res, q, names)
		if t.State != observed.Complete {
			return t
		}
		after, now := q.Namespaces.ListSelected(ctx, l)
		if snapshot.AreUnchanged(before, after) {
			return t
		}
		before, names = after, now
	}
	return observed.Target{
		State: observed.Failed, Resource: res.GVR, Namespaced: true,
		Detail: fmt.Sprintf("the namespaces that namespaceSelector selects kept changing while %s were listed", res.GVR.GroupResource()),
	}
}

// readInNamedNamespaces reads the objects of these namespaces, or of all if names is nil, in one version. It ignores other namespaces,
// so that nothing in them can make it fail.
func (l *Reader) readInNamedNamespaces(ctx context.Context, res served.Resource, q snapshot.Query, names []string) observed.Target {
	among := q.Namespaces
	q.Namespaces, q.Namespace = snapshot.Namespaces{Names: names, Except: among.Except}, ""
	if names == nil || len(names) > FewNamespaces {
		t, _ := l.readInNamespace(ctx, res, q, "")
		// The namespaces that a spec names may be all that is allowed.
		if t.State != observed.Forbidden || among.Names == nil {
			return t
		}
	}
	all := observed.Target{State: observed.Complete, Resource: res.GVR, Namespaced: true, Custom: res.IsCustom()}
	var version string
	for _, q.Namespace = range names {
		var t observed.Target
		if t, version = l.readInNamespace(ctx, res, q, version); t.State != observed.Complete {
			return t
		}
		all.Objects = append(all.Objects, t.Objects...)
	}
	return all
}

// selectOutside adds the first excluded namespaces, as many as there is room for, to a field selector. All namespaced built-in kinds
// can be selected so; for others it is not known.
func selectOutside(res served.Resource, excluded []string, selected fields.Selector) fields.Selector {
	if !res.Namespaced || !wire.IsKnown(res.GVR.GroupVersion()) {
		return selected
	}
	var terms []fields.Selector
	if !selected.Empty() {
		terms = append(terms, selected)
	}
	room := maxExcludedBytes
	for _, name := range excluded[:min(len(excluded), maxExcluded)] {
		if room -= len(name); room < 0 {
			break
		}
		terms = append(terms, fields.OneTermNotEqualSelector("metadata.namespace", name))
	}
	return fields.AndSelectors(terms...)
}
