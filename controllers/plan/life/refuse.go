// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package life

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/controllers/plan"
	"github.com/vtex/cleaner/controllers/plan/observed"
	"github.com/vtex/cleaner/controllers/plan/runrow"
)

// Belonging says whether an object is one that a target stands for.
type Belonging struct {
	// Resource is what the kind of the target's reference is served as.
	Resource schema.GroupVersionResource
	// Matches says that the object has the labels and fields that the reference asks for, and that its namespace has the
	// labels.
	Matches bool
}

// RefuseRow says why the object of a recorded row must not be touched; empty if it may. A status is not believed: what
// it tells to delete must be what a target of the spec stands for.
func RefuseRow(owner plan.Owner, spec *v1alpha1.Work, row runrow.Row, o *observed.Object, belongs Belonging, p plan.Protection) string {
	t := row.FindTarget(spec)
	if t < 0 && slices.ContainsFunc(spec.Rules, func(r v1alpha1.Rule) bool { return r.Name == row.Rule }) {
		return "" // rules are evaluated again before each action: only what they want is done
	}
	if t < 0 {
		return fmt.Sprintf("no target with delete: true is named %q", row.Rule)
	}
	ref := &spec.Targets[t].Reference
	switch {
	case owner.Namespace != "" && row.Namespace != owner.Namespace:
		return "it is not in the Cleaner's namespace"
	case owner.Namespace == "" && !inNamespaces(ref, row.Namespace):
		return fmt.Sprintf("target %q does not select namespace %q", spec.Targets[t].Name, row.Namespace)
	case row.Resource != belongs.Resource:
		return fmt.Sprintf("target %q selects %s", spec.Targets[t].Name, observed.ResourceName(belongs.Resource))
	case ref.Name != "" && ref.Name != row.Name, !belongs.Matches:
		return fmt.Sprintf("target %q no longer selects it", spec.Targets[t].Name)
	}
	return p.ForSpec(spec).ForbidsDelete(o)
}

// inNamespaces says whether the lists of a reference let a namespace in. Objects of cluster-scoped kinds are in none.
func inNamespaces(ref *v1alpha1.ClusterReference, namespace string) bool {
	switch {
	case namespace == "":
		return ref.Namespace == ""
	case ref.Namespace != "" && ref.Namespace != namespace, len(ref.Namespaces) > 0 && !slices.Contains(ref.Namespaces, namespace):
		return false
	}
	return !slices.Contains(ref.ExcludeNamespaces, namespace)
}
