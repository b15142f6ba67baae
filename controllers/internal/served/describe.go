// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package served

import (
	"cmp"
	"fmt"

	"k8s.io/client-go/rest"

	"github.com/vtex/cleaner/controllers/snapshot"
)

// ForbiddenDetail says who lacks which permission.
func ForbiddenDetail(who, verbs string, res Resource, namespace, name string) string {
	return fmt.Sprintf("%s is not allowed to %s %s", who, verbs, DescribeScope(res, namespace, name))
}

// DescribeScope describes the objects of a request: all, those of a namespace, or one.
func DescribeScope(res Resource, namespace, name string) string {
	return snapshot.DescribeScope(res.GVR.GroupResource(), res.Namespaced, namespace, name)
}

// NamespaceFor returns the namespace of a request; empty for a cluster-scoped kind.
func NamespaceFor(res Resource, q snapshot.Query) string {
	if !res.Namespaced {
		return ""
	}
	return q.Namespace
}

// DescribeExcess says which objects take too many bytes of memory, of those that the operator may use, and what to do about it. If they end because a
// namespace has more than its share, that is their owner.
func DescribeExcess(r Resource, namespace, name, owner string, bytes, limit int64) string {
	const mebi = 1 << 20
	reason := fmt.Sprintf("more than is left of the %d MiB that the operator may use", limit/mebi)
	if owner != "" {
		reason = fmt.Sprintf("and Cleaners of namespace %q alone need more than their share of the %d MiB that the operator may use, while nothing is left of these", owner, limit/mebi)
	}
	size := fmt.Sprintf("%d MiB", bytes/mebi)
	if bytes < mebi {
		size = fmt.Sprintf("%d KiB", bytes>>10)
	}
	return fmt.Sprintf("%s take about %s of memory, %s: select objects in fewer namespaces, read fewer of their fields, or give the operator more memory",
		DescribeScope(r, namespace, name), size, reason)
}

// CheckQuery says why a query of a resource, whose selectors may name these fields, will never be answered; empty if it may be.
func CheckQuery(r Resource, f snapshot.FieldLabels, q *snapshot.Query) string {
	wrong := cmp.Or(q.CheckScope(r.GVR.GroupResource(), r.Namespaced), CheckNames(q), f.CheckSelector(r.GVR.GroupResource(), q.Fields))
	if wrong == "" && !r.Watchable {
		wrong = fmt.Sprintf("%s cannot be listed and watched", r.GVR.GroupResource())
	}
	return wrong
}

// CheckNames returns what is wrong with the names of a query; empty if nothing is. No request may have such a name: it could lead to
// another path of the API server, and an empty one to all objects.
func CheckNames(q *snapshot.Query) string {
	check := func(what, name string) string {
		for _, wrong := range rest.IsValidPathSegmentName(name) {
			return fmt.Sprintf("no %s is named %q: a name %s", what, name, wrong)
		}
		return ""
	}
	if wrong := cmp.Or(check("object", q.Name), check("namespace", q.Namespace)); wrong != "" {
		return wrong
	}
	for _, name := range q.Namespaces.Names {
		if name == "" {
			return `no namespace is named ""`
		}
		if wrong := check("namespace", name); wrong != "" {
			return wrong
		}
	}
	return ""
}
