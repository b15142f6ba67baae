// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package anykind

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"

	"github.com/vtex/cleaner/api/v1alpha1"
)

// list is a list of resources of a group version: of namespaced kinds that can be listed, watched and deleted, as kind/resource, but for those that
// end with what is different: !verb, or ! for a cluster-scoped one.
func list(gv string, kinds ...string) *metav1.APIResourceList {
	out := &metav1.APIResourceList{GroupVersion: gv}
	for _, text := range kinds {
		text, without, differs := strings.Cut(text, "!")
		kind, resource, _ := strings.Cut(text, "=")
		r := metav1.APIResource{Kind: kind, Name: resource, Namespaced: !differs || without != "", Verbs: metav1.Verbs{"get", "list", "watch", "delete", "create"}}
		r.Verbs = slices.DeleteFunc(r.Verbs, func(verb string) bool { return differs && verb == without })
		out.APIResources = append(out.APIResources, r)
	}
	return out
}

func names(kinds []Kind) (out []string) {
	for _, k := range kinds {
		out = append(out, k.GroupResource().String())
	}
	return out
}

func TestListKinds(t *testing.T) {
	got := ListKinds([]*metav1.APIResourceList{
		list("v1", "ConfigMap=configmaps", "Pod=pods", "Pod=pods/status", "Event=events", "Endpoints=endpoints", "Namespace=namespaces!", "Node=nodes!", "Binding=bindings!list", "Binding=unwatched!watch", "Binding=kept!delete"),
		list("apps/v1", "Deployment=deployments"),
		list("apps/v1beta1", "Deployment=deployments", "Old=olds"),
		list("events.k8s.io/v1", "Event=events"),
		list("coordination.k8s.io/v1", "Lease=leases", "LeaseCandidate=leasecandidates"),
		list("discovery.k8s.io/v1", "EndpointSlice=endpointslices"),
		list("apiextensions.k8s.io/v1", "CustomResourceDefinition=customresourcedefinitions!"),
		list("rbac.authorization.k8s.io/v1", "Role=roles"),
		list("cleaner.vtex.dev/v1alpha1", "Cleaner=cleaners", "CleanerTemplate=cleanertemplates!"),
		list("project.openshift.io/v1", "Project=projects!"),
		list("storage.k8s.io/v1", "StorageClass=storageclasses!"),
		list("not/a/version", "X=xs"),
	})
	want := []string{"configmaps", "pods", "deployments.apps", "olds.apps", "leasecandidates.coordination.k8s.io", "storageclasses.storage.k8s.io"}
	if diff := cmp.Diff(want, names(got)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if got[2].Version != "v1" || got[2].Kind != "Deployment" || !got[2].Namespaced || got[5].Namespaced {
		t.Errorf("got %+v", got)
	}
}

func TestSelectKinds(t *testing.T) {
	kinds := ListKinds([]*metav1.APIResourceList{
		list("v1", "ConfigMap=configmaps", "Secret=secrets"), list("apps/v1", "Deployment=deployments"), list("example.com/v1", "Secret=secrets", "Gadget=gadgets"),
		list("storage.k8s.io/v1", "StorageClass=storageclasses!"),
	})
	for name, tc := range map[string]struct {
		r    Request
		want []string
	}{
		"All":          {Request{}, []string{"configmaps", "secrets", "deployments.apps", "gadgets.example.com", "secrets.example.com", "storageclasses.storage.k8s.io"}},
		"Namespaced":   {Request{NamespacedOnly: true}, []string{"configmaps", "secrets", "deployments.apps", "gadgets.example.com", "secrets.example.com"}},
		"OfAnyGroup":   {Request{Exclude: []string{"secrets"}}, []string{"configmaps", "deployments.apps", "gadgets.example.com", "storageclasses.storage.k8s.io"}},
		"OfOneGroup":   {Request{Exclude: []string{"Secret.example.com"}}, []string{"configmaps", "secrets", "deployments.apps", "gadgets.example.com", "storageclasses.storage.k8s.io"}},
		"ByKind":       {Request{Exclude: []string{"configmap", "DEPLOYMENT.apps"}}, []string{"secrets", "gadgets.example.com", "secrets.example.com", "storageclasses.storage.k8s.io"}},
		"WholeGroup":   {Request{Exclude: []string{"*.example.com"}}, []string{"configmaps", "secrets", "deployments.apps", "storageclasses.storage.k8s.io"}},
		"OtherGroup":   {Request{Exclude: []string{"deployments.example.com", "*.com"}}, []string{"configmaps", "secrets", "deployments.apps", "gadgets.example.com", "secrets.example.com", "storageclasses.storage.k8s.io"}},
		"StarAlone":    {Request{Exclude: []string{"*"}}, []string{"configmaps", "secrets", "deployments.apps", "gadgets.example.com", "secrets.example.com", "storageclasses.storage.k8s.io"}},
		"ManyExcluded": {Request{NamespacedOnly: true, Exclude: []string{"secrets", "*.apps", "gadgets"}}, []string{"configmaps"}},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, names(SelectKinds(kinds, tc.r))); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestNewRequest(t *testing.T) {
	target := func(change func(*v1alpha1.ClusterReference)) *v1alpha1.ClusterTarget {
		t := &v1alpha1.ClusterTarget{Reference: v1alpha1.ClusterReference{Reference: v1alpha1.Reference{Kind: v1alpha1.AnyKind}}}
		change(&t.Reference)
		return t
	}
	for name, tc := range map[string]struct {
		want   bool
		change func(*v1alpha1.ClusterReference)
	}{
		"Everywhere":        {false, func(*v1alpha1.ClusterReference) {}},
		"Namespaces":        {true, func(r *v1alpha1.ClusterReference) { r.Namespaces = []string{"a"} }},
		"ExcludeNamespaces": {true, func(r *v1alpha1.ClusterReference) { r.ExcludeNamespaces = []string{"a"} }},
		"NamespaceSelector": {true, func(r *v1alpha1.ClusterReference) { r.NamespaceSelector = &metav1.LabelSelector{} }},
	} {
		if got := NewRequest(target(tc.change)); got.NamespacedOnly != tc.want {
			t.Errorf("%s: %+v", name, got)
		}
	}
	if got := NewRequest(target(func(r *v1alpha1.ClusterReference) { r.ExcludeKinds = []string{"secrets"} })); !slices.Equal(got.Exclude, []string{"secrets"}) {
		t.Errorf("got %+v", got)
	}
	for names, want := range map[string]string{"": "", "a": "a", "a a": "a", "a b": "", "a no": "a", "no": ""} {
		got := NewRequest(target(func(r *v1alpha1.ClusterReference) {
			r.ExcludeNamespaces = []string{"no"}
			if names != "" {
				r.Namespaces = strings.Fields(names)
			}
		}))
		if at := got.FindReviewedNamespace(); at != want || (got.Namespaces == nil) != (names == "") {
			t.Errorf("of the namespaces %q, rights are reviewed in %q: %+v", names, at, got)
		}
	}
}

// A group whose kinds discovery does not know is no error, and another failure is one.
func TestListServed(t *testing.T) {
	lists := []*metav1.APIResourceList{{GroupVersion: "v1", APIResources: []metav1.APIResource{{Name: "configmaps", Kind: "ConfigMap", Namespaced: true, Verbs: metav1.Verbs{"list", "watch", "delete"}}}}}
	away := errors.New("away")
	partly := &discovery.ErrGroupDiscoveryFailed{Groups: map[schema.GroupVersion]error{
		{Group: "b.example.com", Version: "v1"}: away, {Group: "b.example.com", Version: "v2"}: away, {Group: "a.example.com", Version: "v1"}: away,
	}}
	for name, tc := range map[string]struct {
		err     error
		unknown []schema.GroupResource
		fails   bool
	}{
		"All":    {},
		"Partly": {err: partly, unknown: []schema.GroupResource{{Group: "a.example.com", Resource: "*"}, {Group: "b.example.com", Resource: "*"}}},
		"None":   {err: away, fails: true},
	} {
		kinds, unknown, err := ListServed(lists, tc.err)
		if !slices.Equal(unknown, tc.unknown) || (err != nil) != tc.fails || !tc.fails && len(kinds) != 1 {
			t.Errorf("%s: %v, %v, %v", name, kinds, unknown, err)
		}
	}
}

// The targets of a ClusterCleaner share the bounds. What is over one is skipped, and the message says how many and what to write.
func TestBound(t *testing.T) {
	var kinds []Kind
	for n := range MaxKinds + 3 {
		kinds = append(kinds, Kind{GroupVersionResource: schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: fmt.Sprintf("kinds%03d", n)}})
	}
	var b Bound
	if within, skipped := b.Take(kinds[:MaxKinds-1], Request{}); len(within) != MaxKinds-1 || skipped != nil {
		t.Errorf("%d are within, and %v skipped", len(within), skipped)
	}
	within, skipped := b.Take(kinds, Request{}) // those that are reviewed already are reviewed once
	if len(within) != MaxKinds || len(skipped) != 3 || skipped[0].Resource != kinds[MaxKinds].Resource {
		t.Fatalf("%d are within, and %v skipped", len(within), skipped)
	}
	if want := "a ClusterCleaner stands for at most 256 kinds, in each namespace that it names alone, and takes at most 1024 watches: 3 kinds are too many: leave out kinds with excludeKinds"; skipped[2].Reason != want {
		t.Errorf("it says %q, want %q", skipped[2].Reason, want)
	}
	if within, _ := b.Take(kinds[:10], Request{Namespaces: []string{"shop"}}); len(within) != 0 {
		t.Errorf("in a namespace, where other rights are reviewed, %d are within", len(within))
	}
	core := []Kind{{GroupVersionResource: schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}}, {GroupVersionResource: schema.GroupVersionResource{Version: "v1", Resource: "secrets"}}}
	b = Bound{}
	if within, _ := b.Take(append(core, kinds[:100]...), Request{Namespaces: make([]string, 400)}); len(within) != 102 { // 800 + 100 watches
		t.Errorf("with 400 namespaces %d are within", len(within))
	}
	if within, _ := b.Take(append(core, kinds[:100]...), Request{Namespaces: make([]string, 100)}); len(within) != 25 { // ConfigMaps take 100 of the 124, and Secrets find no room
		t.Errorf("with 100 namespaces %d are within what is left", len(within))
	}
}

// Skipped kinds have the reason, each for itself.
func TestSkip(t *testing.T) {
	kinds := []Kind{
		{GroupVersionResource: schema.GroupVersionResource{Version: "v1", Resource: "secrets"}}, {GroupVersionResource: schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}},
	}
	yes, no := Split(kinds, func(k *Kind) bool { return k.Group == "" })
	if len(yes) != 1 || len(no) != 1 || no[0].Group != "apps" {
		t.Errorf("%v, %v", yes, no)
	}
	if got := Skip(no, "denied"); len(got) != 1 || got[0].String() != "deployments.apps" || got[0].Reason != "denied" {
		t.Errorf("got %v", got)
	}
}

func TestFindUnknown(t *testing.T) {
	kinds := []Kind{{GroupVersionResource: schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}, Kind: "Deployment"}}
	if got := FindUnknown(kinds, []string{"Deployment", "deployments.apps", "*.apps", "deploy", "deployments.v1.apps", "*.example.com"}); !slices.Equal(got, []string{"deploy", "deployments.v1.apps", "*.example.com"}) {
		t.Errorf("got %v", got)
	}
}

// While the kinds of a group cannot be listed, those that were known stand.
func TestMerge(t *testing.T) {
	of := func(group, resource string) Kind {
		return Kind{GroupVersionResource: schema.GroupVersionResource{Group: group, Version: "v1", Resource: resource}}
	}
	got := Merge([]Kind{of("", "pods"), of("z", "new")}, []Kind{of("", "gone"), of("a", "lost"), of("z", "new"), of("z", "old")}, []schema.GroupResource{{Group: "a"}, {Group: "z"}})
	if want := []Kind{of("", "pods"), of("a", "lost"), of("z", "new"), of("z", "old")}; !slices.Equal(got, want) {
		t.Errorf("got %v", got)
	}
}
