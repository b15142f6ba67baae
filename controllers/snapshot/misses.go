// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/selection"

	"github.com/vtex/cleaner/controllers/plan/observed"
)

// maxMiss bounds what is repeated of a selector, in bytes: it can have thousands of values.
const maxMiss = 200

// FindNamed returns the object of a resource with this namespace and name; nil if there is none.
func (s *Objects) FindNamed(r schema.GroupResource, namespace, name string) *observed.Object {
	for i := range s.objects[r] {
		if o := &s.objects[r][i]; o.Namespace == namespace && o.Name == name {
			return o
		}
	}
	return nil
}

// ResolveShortName returns the kind that a short name stands for, such as po; other names as they are.
func (s *Objects) ResolveShortName(gv schema.GroupVersion, name string) string {
	for i := range s.served[gv] {
		if r := &s.served[gv][i]; slices.Contains(r.ShortNames, strings.ToLower(name)) {
			return r.Kind
		}
	}
	return name
}

// FindFailure says why the objects of a resource cannot be read; empty if they can.
func (s *Objects) FindFailure(r schema.GroupResource) string { return s.failures[r].detail }

// FindMiss says by what a query leaves an object out that is of its kind; empty if it selects the object.
func (s *Objects) FindMiss(q *Query, o *observed.Object) string {
	if q.Name != "" && q.Name != o.Name {
		return fmt.Sprintf("name: %s", q.Name)
	}
	if o.Namespace != "" {
		if miss := s.findNamespaceMiss(q, o.Namespace); miss != "" {
			return miss
		}
	}
	if miss := findLabelMiss("labels", q.Labels, o.Labels); miss != "" {
		return miss
	}
	if !hasAnnotation(o, q.Annotations) {
		return shortenMiss("annotations: it has none of " + q.Annotations)
	}
	l := s.fieldLabels[o.Resource]
	for _, one := range q.Fields.Requirements() {
		if value := l.readValue(one.Field, o); (value == one.Value) == (one.Operator == selection.NotEquals) {
			return shortenMiss(fmt.Sprintf("fieldSelector: %s%s%s, and it is %q", one.Field, one.Operator, one.Value, value))
		}
	}
	return ""
}

// findNamespaceMiss says by what a query leaves a namespace out.
func (s *Objects) findNamespaceMiss(q *Query, name string) string {
	switch n := &q.Namespaces; {
	case q.Namespace != "" && q.Namespace != name:
		return "namespace: " + q.Namespace
	case containsName(n.Except, name):
		return "excludeNamespaces: it lists " + name
	case !n.MatchesName(name):
		return "namespaces: it does not list " + name
	case n.Labels == nil:
		return ""
	}
	of := s.FindNamed(schema.GroupResource{Resource: "namespaces"}, "", name)
	if of == nil {
		return fmt.Sprintf("namespaceSelector: the labels of namespace %s are unknown", name)
	}
	return findLabelMiss("namespaceSelector", q.Namespaces.Labels, of.Labels)
}

// findLabelMiss says which requirement of a selector labels do not meet.
func findLabelMiss(field string, s labels.Selector, has map[string]string) string {
	requirements, selectable := s.Requirements()
	if !selectable {
		return field + ": it selects nothing"
	}
	i := slices.IndexFunc(requirements, func(r labels.Requirement) bool { return !r.Matches(labels.Set(has)) })
	if i < 0 {
		return ""
	}
	r := &requirements[i]
	if value, there := has[r.Key()]; there {
		return shortenMiss(fmt.Sprintf("%s: %s", field, r)) + fmt.Sprintf(", and it is %q", value)
	}
	return shortenMiss(fmt.Sprintf("%s: %s", field, r)) + ", and there is no such label"
}

// shortenMiss cuts a text off that is too long to be read.
func shortenMiss(text string) string {
	if len(text) <= maxMiss {
		return text
	}
	return strings.ToValidUTF8(text[:maxMiss], "") + "…"
}
