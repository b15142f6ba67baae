// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package observed

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// MaxReleaseRights is how many different rights the uninstall of one release may need. Each is a review by the API
// server, at each commit and before each start.
const MaxReleaseRights = 256

const (
	// AllResources stands for the resource of a kind that is not served: who may do something with all resources of the
	// group may do it with that one, whatever it will be called.
	AllResources = "*"
	// Everything stands for all verbs and all groups.
	Everything = "*"
)

// Right is one thing that somebody may do, as the API server reviews it.
type Right struct {
	Verb, Group, Resource, Subresource string
	// Namespace is empty for what is cluster-scoped, and for all namespaces. Name is empty for all objects.
	Namespace, Name string
	// Everywhere says that a namespaced resource is meant in all namespaces. The review is the same.
	Everywhere bool
}

// String is the right as it is asked for: delete deployments.apps "web" in namespace "shop".
func (r Right) String() string {
	if r.Verb == Everything {
		return "do everything"
	}
	var b strings.Builder
	switch gr := (schema.GroupResource{Group: r.Group, Resource: r.Resource}); {
	case r.Resource != AllResources:
		fmt.Fprintf(&b, "%s %s", r.Verb, gr)
	case r.Group == Everything:
		fmt.Fprintf(&b, "%s all resources of all groups", r.Verb)
	case r.Group == "":
		fmt.Fprintf(&b, "%s all resources of the core group", r.Verb)
	default:
		fmt.Fprintf(&b, "%s all resources of group %q", r.Verb, r.Group)
	}
	if r.Subresource != "" {
		fmt.Fprintf(&b, "/%s", r.Subresource)
	}
	if r.Name != "" {
		fmt.Fprintf(&b, " %q", r.Name)
	}
	switch {
	case r.Namespace != "":
		fmt.Fprintf(&b, " in namespace %q", r.Namespace)
	case r.Everywhere:
		b.WriteString(" in all namespaces")
	}
	return b.String()
}

// CompareRights orders rights as they are listed.
func CompareRights(a, b Right) int {
	return cmp.Or(
		cmp.Compare(a.Group, b.Group), cmp.Compare(a.Resource, b.Resource), cmp.Compare(a.Subresource, b.Subresource), cmp.Compare(a.Name, b.Name),
		cmp.Compare(a.Verb, b.Verb), cmp.Compare(a.Namespace, b.Namespace),
	)
}

// RequiredRights are those that an author needs to have the release uninstalled, each once and in order. Those for its
// hooks are left out where hooks are not run. A release that is not there needs none.
func (r *Release) RequiredRights(disableHooks bool) []Right {
	all := slices.Clone(r.Rights)
	if !disableHooks {
		all = append(all, r.HookRights...)
	}
	slices.SortFunc(all, CompareRights)
	return slices.Compact(all)
}
