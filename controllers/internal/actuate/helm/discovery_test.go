// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package helm

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/controllers/plan/observed"
)

// define puts a CustomResourceDefinition into the cluster. What it serves is another question.
func (f *fakeCluster) define(name string) {
	f.server.put(&unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": map[string]any{"name": name},
	}})
}

// TestFindKind shows how kinds are found, and that one counts as not served only if that is certain.
func TestFindKind(t *testing.T) {
	widgets := func(version string) schema.GroupVersionResource {
		return schema.GroupVersionResource{Group: "shop.example.com", Version: version, Resource: "widgets"}
	}
	widget := widgets("v1").GroupVersion().WithKind("Widget")
	serve := func(resources ...metav1.APIResource) func(f *fakeCluster) {
		return func(f *fakeCluster) { f.server.served["shop.example.com/v1"] = resources }
	}
	cases := map[string]struct {
		reason string
		given  func(f *fakeCluster)
		want   servedKind
		says   string
	}{
		"Namespaced": {
			reason: "the API server says so", given: serve(metav1.APIResource{Kind: "Widget", Name: "widgets", Namespaced: true}),
			want: servedKind{served: true, namespaced: true, resource: widgets("v1")},
		},
		"ClusterScoped": {
			reason: "the API server says so", given: serve(metav1.APIResource{Kind: "Widget", Name: "widgets"}),
			want: servedKind{served: true, resource: widgets("v1")},
		},
		"Subresource": {
			reason: "a subresource may have the kind of its own", given: serve(metav1.APIResource{Kind: "Widget", Name: "gadgets/widget"}, metav1.APIResource{Kind: "Widget", Name: "widgets"}),
			want: servedKind{served: true, resource: widgets("v1")},
		},
		"OnlySubresource": {
			reason: "which is no kind of objects", given: serve(metav1.APIResource{Kind: "Widget", Name: "gadgets/widget"}), want: servedKind{resource: widgets("v1")},
		},
		"NoGroup": {reason: "nothing is left of it", given: func(*fakeCluster) {}, want: servedKind{resource: widgets("v1")}},
		"OtherGroup": {reason: "a kind of another group is another kind", given: func(f *fakeCluster) {
			f.server.served["example.com/v1"] = []metav1.APIResource{{Kind: "Widget", Name: "widgets"}}
		}, want: servedKind{resource: widgets("v1")}},
		"OtherVersion": {
			reason: "the objects are there under another version", want: servedKind{served: true, namespaced: true, resource: widgets("v2")},
			given: func(f *fakeCluster) {
				f.server.served["shop.example.com/v2"] = []metav1.APIResource{{Kind: "Widget", Name: "widgets", Namespaced: true}}
			},
		},
		"Hidden": {
			reason: "the objects are there and out of sight", given: func(f *fakeCluster) { f.define("widgets.shop.example.com") },
			says: `cannot tell whether Widget of "shop.example.com/v1" is gone: CustomResourceDefinition "widgets.shop.example.com" is there and not served`,
		},
		"OtherDefinition": {
			reason: "one that is served has no hidden objects, and one of another group none of these",
			given: func(f *fakeCluster) {
				f.define("gadgets.shop.example.com")
				f.define("widgets.example.com")
				serve(metav1.APIResource{Kind: "Gadget", Name: "gadgets"})(f)
			},
			want: servedKind{resource: widgets("v1")},
		},
		"DiscoveryFails": {
			reason: "nobody knows", says: `cannot discover "shop.example.com/v1": the test answers 503`,
			given: func(f *fakeCluster) {
				f.server.onRequest(http.MethodGet, "/apis/shop.example.com/v1", -1, failWith(http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable))
			},
		},
		"GroupsFail": {
			reason: "nobody knows", says: `cannot tell whether Widget of "shop.example.com/v1" is served: `,
			given: func(f *fakeCluster) {
				f.server.onRequest(http.MethodGet, "/apis", -1, failWith(http.StatusInternalServerError, metav1.StatusReasonInternalError))
			},
		},
		"DefinitionsForbidden": {
			reason: "nobody knows", says: `is served: cannot list CustomResourceDefinitions: the test answers 403`,
			given: func(f *fakeCluster) {
				f.server.onRequest(http.MethodGet, "/customresourcedefinitions", -1, failWith(http.StatusForbidden, metav1.StatusReasonForbidden))
			},
		},
		"JustServed": {
			reason: "the two answers do not agree", says: `cannot tell whether Widget of "shop.example.com/v1" is served: the API server says both`,
			given: func(f *fakeCluster) {
				serve(metav1.APIResource{Kind: "Widget", Name: "widgets"})(f)
				f.server.onRequest(http.MethodGet, "/apis/shop.example.com/v1", 1, notServed())
			},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			f := newFakeCluster(t)
			tc.given(f)
			got, err := f.uninstaller().newKindResolver().findKind(t.Context(), widget)
			if tc.says == "" && err != nil || tc.says != "" && (err == nil || !strings.Contains(err.Error(), tc.says)) {
				t.Errorf("%s: got %v, want %q", tc.reason, err, tc.says)
			}
			if diff := cmp.Diff(tc.want, got, cmp.AllowUnexported(servedKind{})); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

// TestAnAPIThatIsDown keeps kinds that it does not serve from being found out, and no others.
func TestAnAPIThatIsDown(t *testing.T) {
	f := newFakeCluster(t)
	f.server.served["broken.example.com/v1"] = []metav1.APIResource{}
	f.server.onRequest(http.MethodGet, "/apis/broken.example.com/v1", -1, failWith(http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable))
	kinds := f.uninstaller().newKindResolver()
	if got, err := kinds.findKind(t.Context(), schema.GroupVersionKind{Group: "batch", Version: "v1", Kind: "Job"}); err != nil || !got.served {
		t.Errorf("got %+v, %v", got, err)
	}
	if _, err := kinds.findKind(t.Context(), schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Nothing"}); !errors.Is(err, &discovery.ErrGroupDiscoveryFailed{}) {
		t.Errorf("got %v", err)
	}
}

// TestKindsAreAskedForOnce sends no request twice for one release, but for one that has failed.
func TestKindsAreAskedForOnce(t *testing.T) {
	f := newFakeCluster(t)
	kinds := f.uninstaller().newKindResolver()
	find := func(group, kind string) {
		t.Helper()
		if got, err := kinds.findKind(t.Context(), schema.GroupVersionKind{Group: group, Version: "v1", Kind: kind}); err != nil || got.resource.Resource == "" {
			t.Errorf("got %+v, %v", got, err)
		}
	}
	for range 2 {
		find("", "ConfigMap")
		find("", "Service")
		find("batch", "Job")
	}
	if diff := cmp.Diff([]string{"GET /api/v1", "GET /apis/batch/v1"}, f.server.didSend()); diff != "" {
		t.Errorf("requests (-want +got):\n%s", diff)
	}
	find("example.com", "Nothing")
	f.server.didSend()
	find("example.com", "Nothing")
	find("example.com", "Nought")
	if sent := f.server.didSend(); len(sent) > 0 {
		t.Errorf("it asks again: %q", sent)
	}
	f.server.onRequest(http.MethodGet, "/apis/other.example.com/v1", 1, failWith(http.StatusInternalServerError, metav1.StatusReasonInternalError))
	other := schema.GroupVersionKind{Group: "other.example.com", Version: "v1", Kind: "Nothing"}
	if _, err := kinds.findKind(t.Context(), other); err == nil {
		t.Error("what could not be asked is known")
	}
	find("other.example.com", "Nothing")
}

// TestTooManyKinds bounds the requests that a manifest can cause.
func TestTooManyKinds(t *testing.T) {
	f := newFakeCluster(t)
	kinds := f.uninstaller().newKindResolver()
	of := func(i int) schema.GroupVersionKind {
		return schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: fmt.Sprint("Thing", i)}
	}
	for i := range maxKinds {
		must(kinds.findKind(t.Context(), of(i)))(t)
	}
	must(kinds.findKind(t.Context(), of(0)))(t)
	_, err := kinds.findKind(t.Context(), of(maxKinds))
	if blocked, ok := errors.AsType[*BlockedError](err); !ok || blocked.Reason != v1alpha1.ReasonTooManyObjects || !strings.Contains(blocked.Detail, "more than 128 kinds") {
		t.Errorf("got %v", err)
	}
}

// TestWhatBlocksARelease has releases with objects that must not go.
func TestWhatBlocksARelease(t *testing.T) {
	many := func(n int) (texts []string) {
		for i := range n {
			texts = append(texts, fmt.Sprintf("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c%02d, namespace: bank}\n", i))
		}
		return texts
	}
	role := named("rbac.authorization.k8s.io/v1", "ClusterRole", "reach")
	cases := map[string]struct {
		reason        string
		texts         []string
		account       string
		protected     []string
		allowed       []string
		blocked, says string
	}{
		"Own":            {reason: "all is in its namespace", texts: []string{config("a")}},
		"OtherNamespace": {reason: "nobody answers for it", texts: many(1), blocked: v1alpha1.ReasonReleaseOutsideNamespace, says: "ConfigMap bank/c00"},
		"ClusterScoped":  {reason: "nobody answers for it", texts: []string{role}, blocked: v1alpha1.ReasonReleaseOutsideNamespace, says: "ClusterRole reach (cluster-scoped)"},
		"Many":           {reason: "the first are named", texts: many(12), blocked: v1alpha1.ReasonReleaseOutsideNamespace, says: "ConfigMap bank/c07 and 2 more"},
		"AsAccount":      {reason: "the account answers for it", texts: many(1), account: "deleter"},
		"Protected":      {reason: "not even as an account", texts: many(1), account: "deleter", protected: []string{"bank"}, blocked: v1alpha1.ReasonProtected, says: "ConfigMap bank/c00 ("},
		"ProtectedKind":  {reason: "a cluster may hang on it", texts: []string{role}, account: "deleter", blocked: v1alpha1.ReasonProtected, says: "are cluster-scoped"},
		"AllowedKind":    {reason: "the administrator says that none does", texts: []string{role}, account: "deleter", allowed: []string{"clusterroles.rbac.authorization.k8s.io"}},
		"Itself":         {reason: "nobody is left to go on", texts: []string{named("v1", "ServiceAccount", "deleter")}, account: "deleter", blocked: v1alpha1.ReasonReleaseOwnsServiceAccount, says: `contains objects that ServiceAccount "deleter" needs for the uninstall: ServiceAccount team/deleter`},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			f := newFakeCluster(t)
			if tc.account != "" {
				f.account.Namespace, f.account.Name = "team", tc.account
			}
			f.protection.Namespaces, f.protection.AllowedKinds = tc.protected, tc.allowed
			f.install(tc.texts...)
			rel := must(f.uninstaller().ReadRelease(t.Context(), nil, "team", "shop"))(t)
			if rel.Blocked != tc.blocked || !strings.Contains(rel.Detail, tc.says) {
				t.Errorf("%s: got %q: %q, want %q: %q", tc.reason, rel.Blocked, rel.Detail, tc.blocked, tc.says)
			}
			got, err := f.uninstall(f.committed())
			if tc.blocked == "" {
				if err != nil || got.State != Done {
					t.Errorf("%s: got %q, %v", tc.reason, got.State, err)
				}
				return
			}
			if blocked, ok := errors.AsType[*BlockedError](err); !ok || blocked.Reason != tc.blocked || len(f.server.didWrite()) > 0 {
				t.Errorf("%s: got %q, %v", tc.reason, got.State, err)
			}
		})
	}
}

// TestWhatIsNotDeleted leaves objects, and says why: by the manifest, by the object as it is, and by the rights that were reviewed.
func TestWhatIsNotDeleted(t *testing.T) {
	f := newFakeCluster(t)
	f.server.served["shop.example.com/v1"] = []metav1.APIResource{{Kind: "Widget", Name: "widgets", Namespaced: true}}
	f.install(
		config("goes"), config("policy", "helm.sh/resource-policy: keep"), config("taken"), config("user"), named("v1", "Service", "web"),
		named("shop.example.com/v1", "Widget", "w"),
	)
	delete(f.server.served, "shop.example.com/v1")
	want := f.committed()
	rel := must(f.uninstaller().ReadRelease(t.Context(), nil, "team", "shop"))(t)
	want.Rights = slices.DeleteFunc(want.Rights, func(r observed.Right) bool { return r.Resource == "services" })
	f.annotate("configmaps/taken", releaseNamespaceAnnotation, "bank")
	f.annotate("configmaps/user", "helm.sh/resource-policy", "keep")
	got, err := f.uninstall(want)
	check(t, err)
	because := map[string]string{}
	for _, k := range got.Kept {
		because[k.Ref.Name] = k.Because
	}
	wantBecause := map[string]string{
		"policy": "the chart says helm.sh/resource-policy: keep",
		"taken":  `it says that it belongs to release "shop" in namespace "bank"`,
		"user":   "it says helm.sh/resource-policy: keep",
		"web":    "the right of the author to delete it was not checked when the uninstall was planned",
		"w":      "the API server serves no kind Widget of shop.example.com/v1",
	}
	if diff := cmp.Diff(wantBecause, because); diff != "" || got.State != Done {
		t.Errorf("got %q, kept (-want +got):\n%s", got.State, diff)
	}
	if diff := cmp.Diff([]string{markRecord, "delete ConfigMap goes", deleteRecord}, f.server.didWrite()); diff != "" {
		t.Errorf("writes (-want +got):\n%s", diff)
	}
	if objects := refs(rel.Objects); len(objects) != 4 || strings.Contains(strings.Join(objects, " "), "policy") {
		t.Errorf("the plan says that it deletes %q", objects)
	}
}
