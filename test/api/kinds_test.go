// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package api

import (
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/api/validation"
)

// Validation knows which of Kubernetes' own kinds are cluster-scoped, by whatever name they are called, and takes no other
// kind for one.
func TestClusterScopedKindsAreKnown(t *testing.T) {
	client, err := discovery.NewDiscoveryClientForConfig(needCluster(t).Config())
	if err != nil {
		t.Fatal(err)
	}
	_, lists, err := client.ServerGroupsAndResources()
	if err != nil {
		t.Fatal(err)
	}
	seen := 0
	for _, list := range lists {
		gv, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range list.APIResources {
			if strings.Contains(r.Name, "/") || !slices.Contains(r.Verbs, "delete") {
				continue
			}
			if !r.Namespaced {
				seen++
			}
			for _, name := range []string{r.Kind, r.SingularName, strings.ToUpper(r.Name)} {
				c := &v1alpha1.Cleaner{Spec: v1alpha1.CleanerSpec{CommonSpec: v1alpha1.CommonSpec{TTL: "1h"}, Targets: []v1alpha1.Target{{
					Name: "a", Reference: v1alpha1.Reference{APIGroup: gv.Group, Version: gv.Version, Kind: name, Name: "a"}, Delete: true,
				}}}}
				refused := slices.ContainsFunc(validation.Validate(c.Work(), validation.Options{}), func(f validation.Finding) bool {
					return strings.Contains(f.Message, "cluster-scoped")
				})
				if refused == r.Namespaced {
					t.Errorf("%s %q: namespaced is %t, refused as cluster-scoped is %t", gv, name, r.Namespaced, refused)
				}
			}
		}
	}
	if seen < 20 {
		t.Errorf("only %d cluster-scoped kinds are served: this test cannot fail", seen)
	}
}
