// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package cachedobjects

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/vtex/cleaner/controllers/plan/observed"
	"github.com/vtex/cleaner/controllers/snapshot"
)

// QueryMatches reports whether a query selects an object. namespace is the object's Namespace, for queries that select namespaces by
// labels; nil if it is unknown, and then such a query does not match. Field labels of a custom kind are paths: the API server has
// answered the same query, so the CustomResourceDefinition has them.
func QueryMatches(q snapshot.Query, o, namespace *observed.Object) bool {
	f := snapshot.BuiltinFieldLabels(o.Resource.GroupResource())
	if !f.HasOwn() && strings.Contains(o.Resource.Group, ".") {
		var paths []string
		for _, r := range q.Fields.Requirements() {
			paths = append(paths, r.Field)
		}
		f = snapshot.CustomFieldLabels(true, paths)
	}
	known := !slices.ContainsFunc(q.Fields.Requirements(), func(r fields.Requirement) bool { return !f.Has(r.Field) })
	namespaced := o.Namespace != ""
	return known && q.CheckScope(o.Resource.GroupResource(), namespaced) == "" && (o.Value != nil || !snapshot.NeedsValue(q.Fields)) &&
		(!namespaced || q.Namespaces.MatchesNamespace(o.Namespace, namespace)) && matchesResolved(&q, namespaced, f, o)
}

// matchesResolved is QueryMatches for a kind whose scope and field labels are known. It ignores the labels of the object's namespace. A
// cluster-scoped object is in every namespace.
func matchesResolved(q *snapshot.Query, namespaced bool, f snapshot.FieldLabels, o *observed.Object) bool {
	return (q.Name == "" || q.Name == o.Name) && (q.Annotations == "" || q.Annotations == o.Annotations) &&
		(!namespaced || (q.Namespace == "" || q.Namespace == o.Namespace) && q.Namespaces.MatchesName(o.Namespace)) &&
		q.Labels.Matches(labels.Set(o.Labels)) &&
		(q.Fields.Empty() || f.MatchesObject(q.Fields, o))
}
