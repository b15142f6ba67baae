// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"context"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/controllers/plan/observed"
)

// Namespaces chooses namespaces. The zero value chooses all.
type Namespaces struct {
	// Names are the only ones that may be chosen, sorted, and without those of Except. Nil: any may be. Empty: none.
	Names []string
	// Labels must match those of a namespace. Nil: any do.
	Labels labels.Selector
	// Except are not chosen, whatever else is said. Sorted.
	Except []string
}

// newNamespaces returns what a reference chooses.
func newNamespaces(r *v1alpha1.ClusterReference) (Namespaces, error) {
	var n Namespaces
	if len(r.ExcludeNamespaces) > 0 {
		n.Except = slices.Compact(slices.Sorted(slices.Values(r.ExcludeNamespaces)))
	}
	n.Names = r.ListNamespaces()
	if r.NamespaceSelector == nil {
		return n, nil
	}
	selector, err := metav1.LabelSelectorAsSelector(r.NamespaceSelector)
	if err == nil && !selector.Empty() {
		n.Labels = selector
	}
	return n, err
}

// SelectsAll says that every namespace is chosen.
func (n *Namespaces) SelectsAll() bool { return n.Names == nil && n.Labels == nil && n.Except == nil }

// MatchesName says that a namespace of this name may be chosen: its labels are for others to look at.
func (n *Namespaces) MatchesName(name string) bool {
	return (n.Names == nil || containsName(n.Names, name)) && !containsName(n.Except, name)
}

// MatchesNamespace reports whether a namespace is selected. Nil is an unknown namespace: it has no labels that could match.
func (n *Namespaces) MatchesNamespace(name string, namespace *observed.Object) bool {
	return n.MatchesName(name) && (n.Labels == nil || namespace != nil && n.Labels.Matches(labels.Set(namespace.Labels)))
}

// NewListQuery asks for the Namespaces whose labels match.
func (n *Namespaces) NewListQuery() Query {
	return Query{Version: "v1", Kind: "Namespace", Labels: n.Labels, Fields: fields.Everything(), MetadataOnly: true}
}

// ListSelected reads the selected Namespaces, and returns their names, which are never nil: that would be all of them. It changes the list that it
// gets, which must be its own.
func (n *Namespaces) ListSelected(ctx context.Context, r Reader) (selected observed.Target, names []string) {
	selected, names = r.Read(ctx, n.NewListQuery()), []string{}
	selected.Objects = slices.DeleteFunc(selected.Objects, func(o observed.Object) bool { return !n.MatchesNamespace(o.Name, &o) })
	for i := range selected.Objects {
		names = append(names, selected.Objects[i].Name)
	}
	return selected, names
}

// AreUnchanged says that two reads found the same objects at the same versions.
func AreUnchanged(before, after observed.Target) bool {
	return before.State == observed.Complete && after.State == observed.Complete &&
		slices.EqualFunc(before.Objects, after.Objects, func(a, b observed.Object) bool { return a.IsVersion(b.Ref) })
}

// NewNamespaceQuery asks for the metadata of one Namespace.
func NewNamespaceQuery(name string) Query { return NewObjectQuery("Namespace", "", name) }

// NewObjectQuery asks for the metadata of one object of the core group.
func NewObjectQuery(kind, namespace, name string) Query {
	return Query{
		Version: "v1", Kind: kind, Namespace: namespace, Name: name, Labels: labels.Everything(), Fields: fields.Everything(), MetadataOnly: true,
	}
}

func containsName(sorted []string, name string) bool {
	_, ok := slices.BinarySearch(sorted, name)
	return ok
}
