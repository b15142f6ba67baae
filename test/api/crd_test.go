// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/discovery"
	"k8s.io/utils/ptr"

	"github.com/vtex/cleaner/api/v1alpha"
	"github.com/vtex/cleaner/api/v1alpha1"
)

func TestVersionsAreAlike(t *testing.T) {
	crd, err := readCRD(cleanerKind(v1alpha1.GroupVersion))
	if err != nil {
		t.Fatal(err)
	}
	byName := map[string]apiextensionsv1.CustomResourceDefinitionVersion{}
	for _, v := range crd.Spec.Versions {
		if !v.Served {
			t.Errorf("%s is not served", v.Name)
		}
		if want := v.Name == v1alpha1.GroupVersion.Version; v.Storage != want {
			t.Errorf("storage of %s is %t, want %t", v.Name, v.Storage, want)
		}
		if v.Subresources == nil || v.Subresources.Status == nil {
			t.Errorf("%s has no status subresource", v.Name)
		}
		v.Storage = false
		byName[v.Name] = v
	}
	a, b := byName[v1alpha.GroupVersion.Version], byName[v1alpha1.GroupVersion.Version]
	a.Name = b.Name
	if diff := cmp.Diff(a, b); diff != "" {
		t.Errorf("the versions differ: -v1alpha, +v1alpha1:\n%s", diff)
	}
}

func TestServed(t *testing.T) {
	client, err := discovery.NewDiscoveryClientForConfig(needCluster(t).Config())
	if err != nil {
		t.Fatal(err)
	}
	for _, version := range versions() {
		t.Run(version.Version, func(t *testing.T) {
			list, err := client.ServerResourcesForGroupVersion(version.String())
			if err != nil {
				t.Fatal(err)
			}
			got := map[string][]string{}
			for _, r := range list.APIResources {
				got[r.Name] = append(append([]string{r.Kind, r.SingularName}, r.ShortNames...), r.Categories...)
			}
			want := map[string][]string{"cleaners": {"Cleaner", "cleaner", "cln", "cleaning"}, "cleaners/status": {"Cleaner", ""}}
			if version == v1alpha1.GroupVersion {
				want["clustercleaners"] = []string{"ClusterCleaner", "clustercleaner", "ccln", "cleaning"}
				want["clustercleaners/status"] = []string{"ClusterCleaner", ""}
				want["cleanertemplates"] = []string{"CleanerTemplate", "cleanertemplate", "clntpl"}
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("-want, +got:\n%s", diff)
			}
		})
	}
	// Whoever asks for no version gets the one that is stored.
	groups, err := client.ServerGroups()
	if err != nil {
		t.Fatal(err)
	}
	for _, g := range groups.Groups {
		if g.Name == v1alpha1.GroupVersion.Group && g.PreferredVersion.Version != v1alpha1.GroupVersion.Version {
			t.Errorf("%s is preferred", g.PreferredVersion.Version)
		}
	}
}

func TestColumns(t *testing.T) {
	client, err := discovery.NewDiscoveryClientForConfig(needCluster(t).Config())
	if err != nil {
		t.Fatal(err)
	}
	of := map[int32][]string{0: {"Name", "Ready", "Reason", "Mode", "Next", "Done", "Age"}, 1: {"Targets", "TTL", "Last Action"}}
	for k, want := range map[kind]map[int32][]string{
		cleanerKind(v1alpha1.GroupVersion): of,
		cleanerKind(v1alpha.GroupVersion):  of,
		clusterCleanerKind():               of,
		templateKind():                     {0: {"Name", "Description", "Age"}},
	} {
		t.Run(k.String(), func(t *testing.T) {
			text, err := client.RESTClient().Get().AbsPath("/apis/"+k.GroupVersion().String()+"/"+k.plural).
				SetHeader("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io").DoRaw(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			var table metav1.Table
			if err := json.Unmarshal(text, &table); err != nil {
				t.Fatal(err)
			}
			byPriority := map[int32][]string{}
			for _, c := range table.ColumnDefinitions {
				byPriority[c.Priority] = append(byPriority[c.Priority], c.Name)
			}
			if diff := cmp.Diff(want, byPriority); diff != "" {
				t.Errorf("-want, +got:\n%s", diff)
			}
		})
	}
}

// The API server refuses a CRD whose rules could cost too much. Ours stay so far below that limit that four times as many
// targets would still be allowed.
func TestRulesAreCheap(t *testing.T) {
	client, err := apiextensions.NewForConfig(needCluster(t).Config())
	if err != nil {
		t.Fatal(err)
	}
	crds := client.ApiextensionsV1().CustomResourceDefinitions()
	try := func(ctx context.Context, k kind, maxTargets int64) error {
		crd, err := crds.Get(ctx, k.plural+"."+k.Group, metav1.GetOptions{})
		if err != nil {
			return err
		}
		for i := range crd.Spec.Versions {
			setMaxTargets(crd.Spec.Versions[i].Schema.OpenAPIV3Schema, maxTargets)
		}
		_, err = crds.Update(ctx, crd, metav1.UpdateOptions{DryRun: []string{metav1.DryRunAll}})
		return err
	}
	for _, k := range kinds() {
		if err := try(t.Context(), k, 4*64); err != nil {
			t.Errorf("%s is too close to the limit: %v", k, err)
		}
		if try(t.Context(), k, 1<<20) == nil {
			t.Errorf("a million targets of a %s are allowed: this test cannot fail", k)
		}
	}
}

// setMaxTargets changes how many targets a schema allows, wherever it has them.
func setMaxTargets(s *apiextensionsv1.JSONSchemaProps, n int64) {
	for name, property := range s.Properties {
		if name == "targets" && property.MaxItems != nil {
			property.MaxItems = ptr.To(n)
		}
		setMaxTargets(&property, n)
		s.Properties[name] = property
	}
}
