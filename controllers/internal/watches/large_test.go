// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package watches

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/transport"

	"github.com/vtex/cleaner/controllers/internal/live"
	"github.com/vtex/cleaner/controllers/plan/observed"
	"github.com/vtex/cleaner/controllers/snapshot"
	"github.com/vtex/cleaner/test/apiserver"
	"github.com/vtex/cleaner/test/cluster"
	"github.com/vtex/cleaner/test/queries"
)

// unreadableLarge is what is told of an object that is too large.
const unreadableLarge = "it would take more than 24 MiB of memory; select objects without it"

// A custom resource that is made to be large in memory is neither read nor taken for absent: who selects it is told so, by
// what is watched and by what is read live, and nobody else notices.
func TestClusterHasAnObjectThatIsTooLarge(t *testing.T) {
	gadgets := schema.GroupVersionResource{Group: "large.example.com", Version: "v1", Resource: "gadgets"}
	definition := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": map[string]any{"name": "gadgets.large.example.com"},
		"spec": map[string]any{
			"group": gadgets.Group, "scope": "Namespaced", "names": map[string]any{"kind": "Gadget", "plural": "gadgets", "singular": "gadget"},
			"versions": []any{map[string]any{"name": "v1", "served": true, "storage": true, "schema": map[string]any{
				"openAPIV3Schema": map[string]any{"type": "object", "x-kubernetes-preserve-unknown-fields": true},
			}}},
		},
	}}
	gadget := func(name, value string, items int) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "large.example.com/v1", "kind": "Gadget", "metadata": map[string]any{"name": name, "labels": map[string]any{"size": value}},
			"spec": slices.Repeat([]any{map[string]any{"a": map[string]any{}}}, items),
		}}
	}
	r := newReal(t)
	r.may(gadgets.Group, "gadgets")
	crds := r.dynamic.Resource(crdsAPI)
	t.Cleanup(func() { // other tests read all that there is
		if err := cluster.RemoveCRD(context.Background(), shared.Config(), "gadgets.large.example.com"); err != nil {
			t.Error(err)
		}
	})
	if _, err := crds.Create(t.Context(), definition, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	client := r.dynamic.Resource(gadgets).Namespace(r.namespace)
	until(t, "a gadget is created", func() bool {
		_, err := client.Create(t.Context(), gadget("small", "small", 1), metav1.CreateOptions{})
		return err == nil
	})
	group := func(q *snapshot.Query) { q.Group = gadgets.Group }
	all, small, one := r.query("gadget", group), r.query("gadget", group, queries.Labelled("size=small")), r.query("gadget", group, queries.Named("large"))
	metadata := r.query("gadget", group)
	metadata.MetadataOnly = true
	r.SetInterests(owner("all"), interests(all, one, metadata))
	r.SetInterests(owner("small"), interests(small))
	r.reads(all, observed.Complete, "small")
	r.reads(one, observed.Complete)

	r.wakes(owner("all"), "an object that is too large", func() {
		if _, err := client.Create(t.Context(), gadget("large", "large", 110_000), metav1.CreateOptions{}); err != nil {
			t.Error(err)
		}
	})
	unreadable := `cannot read Gadget ` + r.namespace + `/large: ` + unreadableLarge
	for name, tc := range map[string]struct {
		query snapshot.Query
		live  string // what is told of it then
	}{
		"AllOfThem": {all, `cannot list gadgets.large.example.com in namespace "` + r.namespace + `": ` + unreadable},
		"OfItsName": {one, `cannot get gadgets.large.example.com "large" in namespace "` + r.namespace + `": ` + unreadableLarge},
	} {
		r.says(tc.query, observed.Failed, unreadable)
		if got := r.live.Read(t.Context(), tc.query); got.State != observed.Failed || got.Detail != tc.live || got.Objects != nil {
			t.Errorf("%s, live: got %s %q with %v, want %q", name, got.State, got.Detail, queries.NamesOf(got), tc.live)
		}
	}
	for _, q := range []snapshot.Query{small, metadata} { // who does not select it, and who reads no more than its metadata
		names := []string{"small"}
		if q.MetadataOnly {
			names = []string{"large", "small"}
		}
		r.reads(q, observed.Complete, names...)
		r.livesAs(q, observed.Complete, names...)
	}

	r.wakes(owner("all"), "the end of it", func() {
		if err := client.Delete(t.Context(), "large", metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})
	r.reads(all, observed.Complete, "small")
	r.reads(one, observed.Complete)
}

// One of Kubernetes' own kinds, which is sent in protobuf, is treated the same.
func TestClusterHasAnObjectOfAKnownKindThatIsTooLarge(t *testing.T) {
	r := newReal(t)
	r.may(networkingv1.GroupName, "networkpolicies")
	policies := r.admin.NetworkingV1().NetworkPolicies(r.namespace)
	rule := networkingv1.NetworkPolicyIngressRule{From: []networkingv1.NetworkPolicyPeer{{PodSelector: &metav1.LabelSelector{}}}}
	if _, err := policies.Create(t.Context(), &networkingv1.NetworkPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: "large"}, Spec: networkingv1.NetworkPolicySpec{Ingress: slices.Repeat([]networkingv1.NetworkPolicyIngressRule{rule}, 60_000)},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { // other tests read all that there is
		if err := policies.Delete(context.Background(), "large", metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})
	q := r.query("NetworkPolicy", func(q *snapshot.Query) { q.Group = networkingv1.GroupName })
	r.SetInterests(owner("c"), interests(q))
	unreadable := `cannot read NetworkPolicy ` + r.namespace + `/large: ` + unreadableLarge
	r.says(q, observed.Failed, unreadable)
	if got := r.live.Read(t.Context(), q); got.State != observed.Failed || !strings.HasSuffix(got.Detail, unreadable) {
		t.Errorf("live: got %s %q", got.State, got.Detail)
	}
}

// poisonPolicy makes a NetworkPolicy with a value that only protobuf can say. An API server fails when it notes who manages such a value;
// so nobody manages anything of it any more when it comes.
func poisonPolicy(t *testing.T, namespace string) {
	t.Helper()
	config := rest.CopyConfig(shared.Config())
	config.ContentType = runtime.ContentTypeProtobuf
	policies := kubernetes.NewForConfigOrDie(config).NetworkingV1().NetworkPolicies(namespace)
	o, err := policies.Create(t.Context(), &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Name: "poison", Labels: map[string]string{"poison": "yes"}}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { // other tests read all that there is
		if err := policies.Delete(context.Background(), "poison", metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})
	for range 20 { // now and then it notes it after all
		o.ManagedFields = []metav1.ManagedFieldsEntry{{}}
		if o, err = policies.Update(t.Context(), o, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		bad := o.DeepCopy()
		bad.Spec.Ingress = []networkingv1.NetworkPolicyIngressRule{{Ports: []networkingv1.NetworkPolicyPort{{Port: &intstr.IntOrString{Type: 5, StrVal: "http"}}}}}
		if _, err = policies.Update(t.Context(), bad, metav1.UpdateOptions{}); err == nil {
			return
		}
	}
	t.Fatal(err)
}

// listsOnly refuses to stream what there is, as API servers do by default before Kubernetes 1.34.
type listsOnly struct{ http.RoundTripper }

func (l listsOnly) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.URL.Query().Get("sendInitialEvents") == "" {
		return l.RoundTripper.RoundTrip(r)
	}
	w := httptest.NewRecorder()
	apiserver.Fail(w, http.StatusUnprocessableEntity, metav1.StatusReasonInvalid, nil)
	return w.Result(), nil
}

// An object that an API server cannot write as JSON is an error to who selects it, and to nobody else: neither of what is watched nor
// of what is read live.
func TestClusterHasAnObjectThatNoJSONCanSay(t *testing.T) {
	for name, wrap := range map[string]transport.WrapperFunc{
		"Streamed": func(rt http.RoundTripper) http.RoundTripper { return rt },
		"Listed":   func(rt http.RoundTripper) http.RoundTripper { return listsOnly{rt} },
	} {
		t.Run(name, func(t *testing.T) { readBesidesPoison(newRealThrough(t, wrap)) })
	}
}

func readBesidesPoison(r *realWorld) {
	r.Helper()
	t := r.T
	r.may(networkingv1.GroupName, "networkpolicies")
	poisonPolicy(t, r.namespace)
	other, err := shared.Namespace(t.Context(), "clean")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.admin.NetworkingV1().NetworkPolicies(other).Create(t.Context(), &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Name: "a", Labels: map[string]string{"poison": "no"}}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { // the next one looks for its own
		if err := r.admin.NetworkingV1().NetworkPolicies(other).DeleteCollection(context.Background(), metav1.DeleteOptions{}, metav1.ListOptions{}); err != nil {
			t.Error(err)
		}
	})
	group := func(q *snapshot.Query) { q.Group = networkingv1.GroupName }
	poisoned, one, clean := r.query("NetworkPolicy", group), r.query("NetworkPolicy", group, queries.Named("poison")), r.query("NetworkPolicy", group)
	clean.Namespace = other
	outside := queries.New("NetworkPolicy", group, queries.Labelled("poison in (yes, no)"), queries.Except(r.namespace))
	r.SetInterests(owner("c"), interests(poisoned, one, clean, outside))
	unreadable := `cannot read NetworkPolicy ` + r.namespace + `/poison: it has a value that cannot be written as JSON; correct or delete it`
	for _, q := range []snapshot.Query{poisoned, one} {
		r.says(q, observed.Failed, unreadable)
		if got := r.live.Read(t.Context(), q); got.State != observed.Failed || !strings.Contains(got.Detail, "it has a value that cannot be written as JSON") {
			t.Errorf("live: got %s %q", got.State, got.Detail)
		}
	}
	r.reads(clean, observed.Complete, "a")
	r.livesAs(clean, observed.Complete, "a")
	r.reads(outside, observed.Complete, "a")
	r.livesAs(outside, observed.Complete, "a")
	r.wakes(owner("c"), "another object", func() {
		if _, err := r.admin.NetworkingV1().NetworkPolicies(other).Create(t.Context(), &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Name: "b"}}, metav1.CreateOptions{}); err != nil {
			t.Error(err)
		}
	})
	r.reads(clean, observed.Complete, "a", "b")
}

// An API server that sends lists, and no stream of what there is, is read the same.
func TestListHasAnObjectThatIsTooLarge(t *testing.T) {
	s := apiserver.New(t)
	s.Install(apiserver.Revisions, "Revision", true)
	s.SetFault(func(w http.ResponseWriter, _ string, _ schema.GroupVersionResource, r *http.Request) bool {
		streams := r.URL.Query().Get("sendInitialEvents") != ""
		if streams {
			apiserver.Fail(w, http.StatusUnprocessableEntity, metav1.StatusReasonInvalid, nil)
		}
		return streams
	})
	s.Put(apiserver.Revisions, "a", "large", map[string]string{"size": "large"}, map[string]any{"spec": slices.Repeat([]any{map[string]any{"a": map[string]any{}}}, 110_000)})
	s.Put(apiserver.Revisions, "a", "small", map[string]string{"size": "small"})
	r := newRig(t, s)
	all, small := queries.New("Revision"), queries.New("Revision", queries.Labelled("size=small"))
	metadata := all
	metadata.MetadataOnly = true
	r.SetInterests(owner("c"), interests(all, small, metadata))
	r.says(all, observed.Failed, `cannot read Revision a/large: `+unreadableLarge)
	r.reads(small, observed.Complete, "small")
	r.reads(metadata, observed.Complete, "large", "small")
	if s.Asked("list revisions") == 0 {
		t.Error("nothing was listed")
	}
}

// What lies in a namespace that is not chosen keeps nothing from being read live, whether the others are named or not.
func TestLiveReadsPastWhatIsTooLargeElsewhere(t *testing.T) {
	s := apiserver.New(t)
	s.Install(apiserver.Revisions, "Revision", true)
	s.Put(apiserver.Revisions, "mallory", "large", nil, map[string]any{"spec": slices.Repeat([]any{map[string]any{"a": map[string]any{}}}, 110_000)})
	s.Put(apiserver.Revisions, "shop", "small", nil)
	for _, namespace := range []string{"mallory", "shop"} {
		s.Put(apiserver.Namespaces, "", namespace, queries.Tier(namespace))
	}
	many := []string{"shop"}
	for i := range live.FewNamespaces {
		many = append(many, fmt.Sprint("z", i))
		s.Put(apiserver.Namespaces, "", many[i+1], queries.Tier("shop"))
	}
	for name, q := range map[string]snapshot.Query{
		"Excluded": queries.New("Revision", queries.Except("mallory")), "Many": queries.New("Revision", queries.Among(many...)), "Chosen": queries.New("Revision", queries.ChosenBy("tier=shop")),
	} {
		if got := newLive(t, s).Read(t.Context(), q); got.State != observed.Complete || fmt.Sprint(queries.NamesOf(got)) != "[small]" {
			t.Errorf("%s: got %s %q %v", name, got.State, got.Detail, queries.NamesOf(got))
		}
	}
	unreadable := `cannot list revisions.serving.example.com in all namespaces: cannot read Revision mallory/large: ` + unreadableLarge
	if got := newLive(t, s).Read(t.Context(), queries.New("Revision", queries.Except("shop"))); got.State != observed.Failed || got.Detail != unreadable {
		t.Errorf("where it is chosen: got %s %q", got.State, got.Detail)
	}
}
