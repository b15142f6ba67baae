// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package helm

import (
	"context"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/vtex/cleaner/api/v1alpha1"
)

func crdsResource() schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
}

// servedKind is how the API server serves a kind, if it does.
type servedKind struct {
	served     bool
	resource   schema.GroupVersionResource
	namespaced bool
}

// maxKinds is how many different kinds are asked for, for one release: each may take a request to the API server.
const maxKinds = 128

// kindResolver asks for each group and version once, and only for those that are needed: an API that is down does not matter to releases
// without objects of it.
type kindResolver struct {
	u        *Uninstaller
	found    map[schema.GroupVersionKind]servedKind
	versions map[schema.GroupVersion][]metav1.APIResource
	// all is what the API server serves, and definitions the names of its CRDs, once they were asked for.
	all         []*metav1.APIResourceList
	definitions []string
}

func (u *Uninstaller) newKindResolver() *kindResolver {
	return &kindResolver{u: u, found: map[schema.GroupVersionKind]servedKind{}, versions: map[schema.GroupVersion][]metav1.APIResource{}}
}

// findKind says how a kind is served.
func (k *kindResolver) findKind(ctx context.Context, kind schema.GroupVersionKind) (servedKind, error) {
	if served, known := k.found[kind]; known {
		return served, nil
	}
	if len(k.found) == maxKinds {
		return servedKind{}, &BlockedError{
			Reason: v1alpha1.ReasonTooManyObjects,
			Detail: fmt.Sprintf("the release has objects of more than %d kinds: uninstall it with Helm", maxKinds),
		}
	}
	served, err := k.discoverKind(ctx, kind)
	if err == nil {
		k.found[kind] = served
	}
	return served, err
}

// discoverKind asks how a kind is served. That it is not served is only said when it is proven; then the resource is a guess, to
// give the object a name.
func (k *kindResolver) discoverKind(ctx context.Context, kind schema.GroupVersionKind) (servedKind, error) {
	gv := kind.GroupVersion()
	if _, asked := k.versions[gv]; !asked {
		list, err := k.u.discovery.ServerResourcesForGroupVersionWithContext(ctx, gv.String())
		switch {
		case apierrors.IsNotFound(err):
			list = &metav1.APIResourceList{}
		case err != nil:
			return servedKind{}, fmt.Errorf("cannot discover %q: %w", gv, err)
		}
		k.versions[gv] = list.APIResources
	}
	if s, ok := findServed(k.versions[gv], kind); ok {
		return s, nil
	}
	return k.findElsewhere(ctx, kind)
}

// findElsewhere looks for a kind that its version does not have: in the other versions of the group, and then for a CRD that
// is there but not served (yet).
func (k *kindResolver) findElsewhere(ctx context.Context, kind schema.GroupVersionKind) (servedKind, error) {
	if err := k.discoverAll(ctx); err != nil {
		return servedKind{}, fmt.Errorf("cannot tell whether %s of %q is served: %w", kind.Kind, kind.GroupVersion(), err)
	}
	plurals := map[string]bool{}
	for _, list := range k.all {
		gv, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil || gv.Group != kind.Group {
			continue
		}
		if s, ok := findServed(list.APIResources, gv.WithKind(kind.Kind)); ok {
			if gv == kind.GroupVersion() {
				return servedKind{}, fmt.Errorf("cannot tell whether %s of %q is served: the API server says both", kind.Kind, gv)
			}
			return s, nil
		}
		for _, r := range list.APIResources {
			plurals[r.Name] = true
		}
	}
	for _, definition := range k.definitions {
		plural, group, _ := strings.Cut(definition, ".")
		if group == kind.Group && !plurals[plural] {
			return servedKind{}, fmt.Errorf("cannot tell whether %s of %q is gone: CustomResourceDefinition %q is there and not served",
				kind.Kind, kind.GroupVersion(), definition)
		}
	}
	guess, _ := meta.UnsafeGuessKindToResource(kind)
	return servedKind{resource: guess}, nil
}

// discoverAll asks once for all that the API server serves, and for the CRDs.
func (k *kindResolver) discoverAll(ctx context.Context) error {
	if k.all != nil {
		return nil
	}
	_, all, err := k.u.discovery.ServerGroupsAndResourcesWithContext(ctx)
	if err != nil {
		return err
	}
	definitions, err := k.u.crds.Resource(crdsResource()).List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("cannot list CustomResourceDefinitions: %w", err)
	}
	for i := range definitions.Items {
		k.definitions = append(k.definitions, definitions.Items[i].Name)
	}
	k.all = all
	return nil
}

// findServed finds a kind among the resources of its group and version.
func findServed(resources []metav1.APIResource, kind schema.GroupVersionKind) (servedKind, bool) {
	for _, r := range resources {
		if r.Kind == kind.Kind && !strings.Contains(r.Name, "/") {
			return servedKind{served: true, resource: kind.GroupVersion().WithResource(r.Name), namespaced: r.Namespaced}, true
		}
	}
	return servedKind{}, false
}
