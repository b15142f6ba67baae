// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

// Package anykind says which kinds a target of kind "*" stands for: of those that an API server serves, the ones that the target and the rights
// of those who act leave over, and which are skipped and why.
//
// It is pure: others ask the API server what it serves and who may do what.
package anykind

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"

	"github.com/vtex/cleaner/api/protection"
	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/controllers/plan/observed"
)

const (
	// MaxKinds is how many kinds the targets of one ClusterCleaner stand for at most, counted once for each namespace that rights to them are reviewed
	// in: for two verbs of each, which makes 512 reviews of its author, and as many of its ServiceAccount.
	MaxKinds = 256
	// MaxWatches is how many watches these targets take at most: each takes one for each of its kinds, and of Secrets and ConfigMaps one for each
	// namespace that it names, because these are not watched in all namespaces.
	MaxWatches = 1024
)

// Kind is a kind that an API server serves.
type Kind struct {
	schema.GroupVersionResource
	// Kind is the kind as the API server writes it.
	Kind string
	// Namespaced is true if its objects have namespaces.
	Namespaced bool
}

// Skipped is a kind that a target leaves out although it selects it.
type Skipped struct {
	schema.GroupResource
	// Reason says why, for people.
	Reason string
}

// Request is what a target of kind "*" asks for.
type Request struct {
	// Exclude are the kinds that the spec leaves out, as it writes them.
	Exclude []string
	// NamespacedOnly leaves out cluster-scoped kinds: a target that selects namespaces selects only in those.
	NamespacedOnly bool
	// Namespaces are the only ones that the target may select, each once. Nil: it may select any.
	Namespaces []string
}

// NewRequest returns what a target asks for.
func NewRequest(t *v1alpha1.ClusterTarget) Request {
	r := &t.Reference
	return Request{
		Exclude: r.ExcludeKinds, NamespacedOnly: r.Namespaces != nil || r.NamespaceSelector != nil || r.ExcludeNamespaces != nil, Namespaces: r.ListNamespaces(),
	}
}

// FindReviewedNamespace returns the namespace in which rights on the kinds are needed; empty: in all. Of several namespaces it is all, so that the
// reviews do not multiply.
func (r *Request) FindReviewedNamespace() string {
	if len(r.Namespaces) == 1 {
		return r.Namespaces[0]
	}
	return ""
}

// ListServed is ListKinds for what discovery has answered. Groups whose kinds it could not list are unknown: that is no error.
func ListServed(lists []*metav1.APIResourceList, err error) (kinds []Kind, unknown []schema.GroupResource, _ error) {
	partly, some := errors.AsType[*discovery.ErrGroupDiscoveryFailed](err)
	if err != nil && !some {
		return nil, nil, fmt.Errorf("cannot list the kinds that the API server serves: %w", err)
	}
	if some {
		for gv := range partly.Groups {
			unknown = append(unknown, schema.GroupResource{Group: gv.Group, Resource: observed.AllResources})
		}
		slices.SortFunc(unknown, func(a, b schema.GroupResource) int { return strings.Compare(a.Group, b.Group) })
	}
	return ListKinds(lists), slices.Compact(unknown), nil
}

// ListKinds returns the kinds of lists of resources that can be listed, watched and deleted, in order: of each resource, the first version that
// is listed. What is never cleaned by kind is not among them.
func ListKinds(lists []*metav1.APIResourceList) (kinds []Kind) {
	known := map[schema.GroupResource]bool{}
	for _, list := range lists {
		gv, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			continue
		}
		for i := range list.APIResources {
			r := &list.APIResources[i]
			gvr := gv.WithResource(r.Name)
			if known[gvr.GroupResource()] || strings.Contains(r.Name, "/") || !hasVerbs(r) || isNeverMeant(gvr.GroupResource()) {
				continue
			}
			known[gvr.GroupResource()] = true
			kinds = append(kinds, Kind{GroupVersionResource: gvr, Kind: r.Kind, Namespaced: r.Namespaced})
		}
	}
	sortKinds(kinds)
	return kinds
}

// hasVerbs reports whether the objects of a resource can be listed, watched and deleted.
func hasVerbs(r *metav1.APIResource) bool {
	return !slices.ContainsFunc([]string{"list", "watch", "delete"}, func(verb string) bool { return !slices.Contains(r.Verbs, verb) })
}

// isNeverMeant says that no target of kind "*" selects objects of a resource: a cluster depends on them, or they are many, change all the time,
// and are the work of controllers, which copy labels to them.
func isNeverMeant(r schema.GroupResource) bool {
	switch r {
	case schema.GroupResource{Resource: "events"}, schema.GroupResource{Group: "events.k8s.io", Resource: "events"},
		schema.GroupResource{Group: "coordination.k8s.io", Resource: "leases"},
		schema.GroupResource{Resource: "endpoints"}, schema.GroupResource{Group: "discovery.k8s.io", Resource: "endpointslices"}:
		return true
	}
	return protection.IsProtected(r) || v1alpha1.ListsByRequester(r.Group)
}

// SelectKinds returns the kinds that a request leaves over, in their order.
func SelectKinds(kinds []Kind, r Request) (selected []Kind) {
	for _, k := range kinds {
		if (k.Namespaced || !r.NamespacedOnly) && !slices.ContainsFunc(r.Exclude, k.isNamed) {
			selected = append(selected, k)
		}
	}
	return selected
}

// isNamed reports whether a text names the kind: <kind or resource>, with or without .<group>, or *.<group>.
func (k *Kind) isNamed(text string) bool {
	name, group, hasGroup := strings.Cut(text, ".")
	if hasGroup && !strings.EqualFold(group, k.Group) {
		return false
	}
	return name == v1alpha1.AnyKind && hasGroup || strings.EqualFold(name, k.Resource) || strings.EqualFold(name, k.Kind)
}

// Bound counts what the targets of one ClusterCleaner take. Its zero value has nothing.
type Bound struct {
	reviewed map[reviewed]bool
	watches  int
}

// reviewed is a kind in a namespace, or in all.
type reviewed struct {
	schema.GroupResource
	namespace string
}

// Take returns those of the kinds of a target that there is room for. The others are skipped.
func (b *Bound) Take(kinds []Kind, t Request) (within []Kind, skipped []Skipped) {
	if b.reviewed == nil {
		b.reviewed = map[reviewed]bool{}
	}
	within, over := Split(kinds, func(k *Kind) bool {
		r, each := reviewed{k.GroupResource(), t.FindReviewedNamespace()}, 1
		if k.Group == "" && (k.Resource == "secrets" || k.Resource == "configmaps") {
			each = max(1, len(t.Namespaces))
		}
		if !b.reviewed[r] && len(b.reviewed) >= MaxKinds || b.watches+each > MaxWatches {
			return false
		}
		b.reviewed[r] = true
		b.watches += each
		return true
	})
	if len(over) == 0 {
		return within, nil
	}
	return within, Skip(over, fmt.Sprintf("a ClusterCleaner stands for at most %d kinds, in each namespace that it names alone, and takes at most %d watches: %d kinds are too many: leave out kinds with excludeKinds", MaxKinds, MaxWatches, len(over)))
}

// FindUnknown returns those of the names of kinds that name none of these.
func FindUnknown(kinds []Kind, names []string) (unknown []string) {
	for _, name := range names {
		if !slices.ContainsFunc(kinds, func(k Kind) bool { return k.isNamed(name) }) {
			unknown = append(unknown, name)
		}
	}
	return unknown
}

// Merge returns kinds, and those of groups as they were known before.
func Merge(kinds, before []Kind, groups []schema.GroupResource) []Kind {
	merged := slices.Clone(kinds)
	for _, k := range before {
		lost := slices.ContainsFunc(groups, func(g schema.GroupResource) bool { return g.Group == k.Group })
		if lost && !slices.ContainsFunc(kinds, func(other Kind) bool { return other.GroupResource() == k.GroupResource() }) {
			merged = append(merged, k)
		}
	}
	sortKinds(merged)
	return merged
}

func sortKinds(kinds []Kind) {
	slices.SortFunc(kinds, func(a, b Kind) int {
		return cmp.Or(cmp.Compare(a.Group, b.Group), cmp.Compare(a.Resource, b.Resource))
	})
}

// Skip returns kinds as skipped for a reason.
func Skip(kinds []Kind, reason string) (skipped []Skipped) {
	for _, k := range kinds {
		skipped = append(skipped, Skipped{GroupResource: k.GroupResource(), Reason: reason})
	}
	return skipped
}

// Split divides kinds by what may says of each.
func Split(kinds []Kind, may func(*Kind) bool) (yes, no []Kind) {
	for i := range kinds {
		if may(&kinds[i]) {
			yes = append(yes, kinds[i])
		} else {
			no = append(no, kinds[i])
		}
	}
	return yes, no
}
