// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

// Package queries makes queries and targets for tests.
package queries

import (
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/controllers/plan/observed"
	"github.com/vtex/cleaner/controllers/snapshot"
)

// New returns a query for all objects of a kind in namespace a, changed.
func New(kind string, change ...func(*snapshot.Query)) snapshot.Query {
	q := snapshot.Query{Version: "v1", Kind: kind, Namespace: "a", Labels: labels.Everything(), Fields: fields.Everything()}
	if kind == "Revision" {
		q.Group = "serving.example.com"
	}
	for _, c := range change {
		c(&q)
	}
	return q
}

// Named asks for one object.
func Named(name string) func(*snapshot.Query) { return func(q *snapshot.Query) { q.Name = name } }

// In asks in one namespace; in all if it is empty.
func In(namespace string) func(*snapshot.Query) {
	return func(q *snapshot.Query) { q.Namespace = namespace }
}

// MetadataOnly asks for metadata.
func MetadataOnly(q *snapshot.Query) { q.MetadataOnly = true }

// Labelled selects by labels.
func Labelled(s string) func(*snapshot.Query) {
	return func(q *snapshot.Query) {
		l, err := labels.Parse(s)
		if err != nil {
			panic(err)
		}
		q.Labels = l
	}
}

// Fielded selects by fields.
func Fielded(s string) func(*snapshot.Query) {
	return func(q *snapshot.Query) { q.Fields = fields.ParseSelectorOrDie(s) }
}

// Among asks in these namespaces only.
func Among(names ...string) func(*snapshot.Query) {
	return func(q *snapshot.Query) {
		q.Namespace, q.Namespaces.Names = "", append([]string{}, names...)
	}
}

// Except asks in all namespaces but these.
func Except(names ...string) func(*snapshot.Query) {
	return func(q *snapshot.Query) { q.Namespace, q.Namespaces.Except = "", names }
}

// ChosenBy asks in namespaces with these labels.
func ChosenBy(selector string) func(*snapshot.Query) {
	return func(q *snapshot.Query) {
		l, err := labels.Parse(selector)
		if err != nil {
			panic(err)
		}
		q.Namespace, q.Namespaces.Labels = "", l
	}
}

// Tier returns a label.
func Tier(name string) map[string]string { return map[string]string{"tier": name} }

// PlacesOf are the objects of an answer, with their namespaces.
func PlacesOf(t observed.Target) []string {
	var found []string
	for _, o := range t.Objects {
		found = append(found, o.Namespace+"/"+o.Name)
	}
	return found
}

// NamesOf returns the names of the objects of an answer.
func NamesOf(t observed.Target) []string {
	var names []string
	for _, o := range t.Objects {
		names = append(names, o.Name)
	}
	return names
}

// NewTarget returns a target of a core kind.
func NewTarget(kind string, change ...func(*v1alpha1.ClusterReference)) *v1alpha1.ClusterTarget {
	t := &v1alpha1.ClusterTarget{Name: "x", Reference: v1alpha1.ClusterReference{Reference: v1alpha1.Reference{Version: "v1", Kind: kind}}}
	for _, c := range change {
		c(&t.Reference)
	}
	return t
}
