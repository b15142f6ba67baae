// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package whynot

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/controllers/plan/observed"
	"github.com/vtex/cleaner/controllers/snapshot"
)

// Name names an object, as a user writes it.
type Name struct {
	// Kind is a kind, a resource, or in a cluster a short name, in any case. Group is its group, if Grouped says that it was given.
	Kind, Group string
	Grouped     bool
	// Namespace is empty for an object that has none, and where the user has left it out.
	Namespace, Name string
}

// ParseName parses KIND/NAMESPACE/NAME or KIND/NAME, where KIND may be KIND.GROUP.
func ParseName(text string) (Name, error) {
	words := strings.Split(text, "/")
	if len(words) < 2 || len(words) > 3 || slices.Contains(words, "") {
		return Name{}, fmt.Errorf("%q names no object: write KIND/NAMESPACE/NAME, or KIND/NAME if it has no namespace", text)
	}
	n := Name{Name: words[len(words)-1]}
	n.Kind, n.Group, n.Grouped = strings.Cut(words[0], ".")
	if n.Kind == "" {
		return Name{}, fmt.Errorf("%q names no kind: write KIND or KIND.GROUP", words[0])
	}
	if len(words) == 3 {
		n.Namespace = words[1]
	}
	return n, nil
}

// String names the object as messages do, with the kind as the user has written it.
func (n Name) String() string {
	kind := n.Kind
	if n.Grouped {
		kind += "." + n.Group
	}
	return observed.FormatName(kind, n.Namespace, n.Name)
}

// kind is the kind of the object, as far as targets have it.
type kind struct {
	resource   schema.GroupVersionResource
	namespaced bool
}

// resolveKind finds the kind of the object among those of the targets. It is not known if no target has it.
func (n Name) resolveKind(world *snapshot.Objects, targets []v1alpha1.ClusterTarget) (of kind, known bool, err error) {
	for i := range targets {
		r := &targets[i].Reference
		if targets[i].IsOfAnyKind() {
			if of, known, err = n.addAnyKind(world, of, known); err != nil {
				return kind{}, false, err
			}
			continue
		}
		gv := schema.GroupVersion{Group: r.APIGroup, Version: r.Version}
		resource, namespaced := world.FindResource(gv, r.Kind)
		meant, _ := world.FindResource(gv, world.ResolveShortName(gv, n.Kind))
		switch {
		case resource.Resource == "" || meant != resource || n.Grouped && n.Group != r.APIGroup:
		case known && of.resource.GroupResource() != resource.GroupResource():
			return kind{}, false, fmt.Errorf("%s can be %s or %s: write KIND.GROUP", n.Kind, of.resource.GroupResource(), resource.GroupResource())
		default:
			of, known = kind{resource, namespaced}, true
		}
	}
	return of, known, nil
}

// addAnyKind finds the kind of the object among all that targets of kind "*" may select, besides the one that is known.
func (n Name) addAnyKind(world *snapshot.Objects, of kind, known bool) (kind, bool, error) {
	for _, k := range world.ListKinds() {
		gv := k.GroupVersion()
		resource, namespaced := world.FindResource(gv, world.ResolveShortName(gv, n.Kind))
		switch {
		case resource != k.GroupVersionResource || n.Grouped && n.Group != k.Group:
		case known && of.resource.GroupResource() != resource.GroupResource():
			return kind{}, false, fmt.Errorf("%s can be %s or %s: write KIND.GROUP", n.Kind, of.resource.GroupResource(), resource.GroupResource())
		default:
			of, known = kind{resource, namespaced}, true
		}
	}
	return of, known, nil
}
