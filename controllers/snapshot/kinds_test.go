// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/controllers/anykind"
	"github.com/vtex/cleaner/controllers/plan/observed"
)

// ofKinds are kinds that are served, in this order.
func ofKinds(resources ...string) (kinds []anykind.Kind) {
	for _, r := range resources {
		kinds = append(kinds, anykind.Kind{GroupVersionResource: schema.GroupVersionResource{Version: "v1", Resource: r}, Kind: r, Namespaced: true})
	}
	return kinds
}

// byKind answers queries by their kinds.
type byKind map[string]observed.Target

// Read answers a query.
func (r byKind) Read(_ context.Context, q Query) observed.Target {
	t := r[q.Kind]
	t.Objects = slices.Clone(t.Objects)
	return t
}

// complete is a target with objects of a resource, whose UIDs are their names unless they say another.
func complete(resource string, names ...string) observed.Target {
	t := observed.Target{State: observed.Complete}
	for _, name := range names {
		name, uid, has := strings.Cut(name, "=")
		if !has {
			uid = resource + name
		}
		t.Objects = append(t.Objects, observed.Object{Ref: observed.Ref{Resource: schema.GroupVersionResource{Version: "v1", Resource: resource}, Namespace: "a", Name: name, UID: types.UID(uid)}})
	}
	return t
}

func TestReadKinds(t *testing.T) {
	denied := observed.Target{State: observed.Forbidden, Detail: "it may not"}
	for name, tc := range map[string]struct {
		reads   byKind
		kinds   []string
		skipped []anykind.Skipped
		state   observed.TargetState
		objects []string
		left    []string // kinds that are skipped
		detail  string
	}{
		"Merged":    {reads: byKind{"a": complete("a", "x", "z"), "b": complete("b", "x", "y")}, kinds: []string{"b", "a"}, state: observed.Complete, objects: []string{"a a/x", "b a/x", "b a/y", "a a/z"}},
		"Twice":     {reads: byKind{"a": complete("a", "x=1"), "b": complete("b", "x=1")}, kinds: []string{"a", "b"}, state: observed.Complete, objects: []string{"a a/x"}},
		"Denied":    {reads: byKind{"a": complete("a", "x"), "b": denied}, kinds: []string{"a", "b"}, state: observed.Complete, objects: []string{"a a/x"}, left: []string{"b"}},
		"TooLarge":  {reads: byKind{"a": complete("a", "x"), "b": {State: observed.TooLarge}}, kinds: []string{"a", "b"}, state: observed.Complete, objects: []string{"a a/x"}, left: []string{"b"}},
		"Failed":    {reads: byKind{"a": complete("a", "x"), "b": {State: observed.Failed}}, kinds: []string{"a", "b"}, state: observed.Complete, objects: []string{"a a/x"}, left: []string{"b"}},
		"Other":     {reads: byKind{"a": complete("a", "x"), "b": complete("c", "y")}, kinds: []string{"a", "b"}, state: observed.Complete, objects: []string{"a a/x"}, left: []string{"b"}},
		"Gone":      {reads: byKind{"a": complete("a", "x"), "b": {State: observed.NoSuchKind}}, kinds: []string{"a", "b"}, state: observed.Complete, objects: []string{"a a/x"}},
		"Unsynced":  {reads: byKind{"a": complete("a", "x"), "b": {State: observed.Unsynced, Detail: "waiting for b"}}, kinds: []string{"a", "b"}, state: observed.Unsynced, detail: "waiting for b", left: []string{"b"}},
		"Unknown":   {reads: byKind{"a": complete("a", "x")}, kinds: []string{"a", "b"}, state: observed.Unsynced, left: []string{"b"}},
		"AllDenied": {reads: byKind{"a": denied}, kinds: []string{"a"}, state: observed.Forbidden, detail: "no kind of all 1 can be read; a: it may not", left: []string{"a"}},
		"Skipped":   {reads: byKind{"a": complete("a", "x")}, kinds: []string{"a"}, skipped: anykind.Skip(ofKinds("c"), "no"), state: observed.Complete, objects: []string{"a a/x"}, left: []string{"c"}},
		"AllGone":   {reads: byKind{"a": {State: observed.NoSuchKind}}, kinds: []string{"a"}, state: observed.Complete},
	} {
		t.Run(name, func(t *testing.T) {
			q := Query{Kind: v1alpha1.AnyKind, OfAnyKind: true, Namespace: "a", Kinds: anykind.Request{NamespacedOnly: true}}
			got := q.ReadKinds(t.Context(), tc.reads, ofKinds(tc.kinds...), tc.skipped)
			var objects, left []string
			for _, o := range got.Objects {
				objects = append(objects, o.String())
			}
			for _, k := range got.ListSkipped() {
				left = append(left, k.Resource.GroupResource().String())
			}
			if got.State != tc.state || got.Detail != tc.detail || !got.Namespaced || got.Kinds == nil {
				t.Errorf("got %s %q", got.State, got.Detail)
			}
			if diff := cmp.Diff(tc.objects, objects); diff != "" {
				t.Errorf("objects (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tc.left, left); diff != "" {
				t.Errorf("skipped (-want +got):\n%s", diff)
			}
		})
	}
}

// finder finds a and b, or fails.
type finder struct{ err error }

// FindKinds finds kinds.
func (f finder) FindKinds(context.Context, *Query) ([]anykind.Kind, []anykind.Skipped, error) {
	return ofKinds("a", "b"), nil, f.err
}

func TestExpandKinds(t *testing.T) {
	reads := byKind{"a": complete("a", "x"), "b": complete("b", "x"), "Pod": complete("pods", "p")}
	r := ExpandKinds(reads, finder{})
	if got := r.Read(t.Context(), Query{Kind: "Pod"}); len(got.Objects) != 1 || got.Kinds != nil {
		t.Errorf("a query of one kind: %+v", got)
	}
	if got := r.Read(t.Context(), Query{Kind: v1alpha1.AnyKind, OfAnyKind: true}); len(got.Objects) != 2 || len(got.Kinds) != 2 {
		t.Errorf("a query of all kinds: %+v", got)
	}
	if got := ExpandKinds(reads, finder{errors.New("away")}).Read(t.Context(), Query{Kind: v1alpha1.AnyKind}); got.State != observed.Failed || got.Detail != "away" {
		t.Errorf("without kinds: %+v", got)
	}
}

// anyTarget is a target of all kinds.
func anyTarget(change func(*v1alpha1.ClusterReference)) *v1alpha1.ClusterTarget {
	t := &v1alpha1.ClusterTarget{Name: "all", Reference: v1alpha1.ClusterReference{Reference: v1alpha1.Reference{Kind: v1alpha1.AnyKind}, HasAnyAnnotation: []string{"y", "x"}, ExcludeKinds: []string{"secrets"}}}
	if change != nil {
		change(&t.Reference)
	}
	return t
}

func TestQueryOfAllKinds(t *testing.T) {
	q, err := NewQuery("", anyTarget(nil))
	if err != nil || !q.OfAnyKind || !q.MetadataOnly || q.Annotations != "x,y" || q.Kinds.NamespacedOnly || q.Kinds.FindReviewedNamespace() != "" {
		t.Errorf("%+v: %v", q, err)
	}
	one := q.OfKind(&ofKinds("configmaps")[0])
	if one.Kind != "configmaps" || one.Version != "v1" || one.Kinds.Exclude != nil || one.Annotations != "x,y" || !one.OfAnyKind {
		t.Errorf("of a kind it is %+v", one)
	}
	for names, want := range map[string]string{"a": "a", "a b": ""} {
		q, err := NewQuery("", anyTarget(func(r *v1alpha1.ClusterReference) { r.Namespaces = strings.Fields(names) }))
		if err != nil || q.Kinds.FindReviewedNamespace() != want || !q.Kinds.NamespacedOnly {
			t.Errorf("in %s it is reviewed in %q: %v", names, q.Kinds.FindReviewedNamespace(), err)
		}
	}
	// A selector that selects all namespaces still selects namespaces, in which no cluster-scoped objects are.
	if all, err := NewQuery("", anyTarget(func(r *v1alpha1.ClusterReference) { r.NamespaceSelector = &metav1.LabelSelector{} })); err != nil || !all.Kinds.NamespacedOnly || all.Digest() == q.Digest() {
		t.Errorf("with an empty selector it is %+v: %v", all, err)
	}
	if other, err := NewQuery("", anyTarget(func(r *v1alpha1.ClusterReference) { r.HasAnyAnnotation = []string{"x"} })); err != nil || other.Digest() == q.Digest() {
		t.Errorf("two annotations share a read: %v", err)
	}
	if other, err := NewQuery("", anyTarget(func(r *v1alpha1.ClusterReference) { r.ExcludeKinds = nil })); err != nil || other.Digest() == q.Digest() {
		t.Errorf("two lists of kinds share a read: %v", err)
	}
}

// Objects of files are read as a cluster would show them: metadata alone, of kinds that are not excluded, with the annotation.
func TestObjectsOfAllKinds(t *testing.T) {
	s := NewObjects()
	for _, r := range []metav1.APIResource{{Name: "configmaps", Kind: "ConfigMap", Namespaced: true}, {Name: "secrets", Kind: "Secret", Namespaced: true}, {Name: "namespaces", Kind: "Namespace"}, {Name: "pods", Kind: "Pod", Namespaced: true, Verbs: metav1.Verbs{"list"}}} {
		s.AddKind(schema.GroupVersion{Version: "v1"}, r)
	}
	s.AddKind(schema.GroupVersion{Group: "example.com", Version: "v1beta1"}, metav1.APIResource{Name: "gadgets", Kind: "Gadget"})
	s.AddKind(schema.GroupVersion{Group: "example.com", Version: "v1"}, metav1.APIResource{Name: "gadgets", Kind: "Gadget"})
	for _, kind := range []string{"ConfigMap", "Secret", "Namespace", "Pod"} {
		for name, annotations := range map[string]map[string]any{"with": {"x": "1h"}, "without": {"z": "1h"}} {
			u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": kind, "metadata": map[string]any{"name": name, "annotations": annotations}, "data": map[string]any{"k": "v"}}}
			if err := s.AddObject(u); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := s.SortObjects(); err != nil {
		t.Fatal(err)
	}
	q, err := NewQuery("", anyTarget(nil))
	if err != nil {
		t.Fatal(err)
	}
	got := s.Read(t.Context(), q)
	if len(got.Objects) != 1 || got.Objects[0].String() != "ConfigMap default/with" || got.Objects[0].Value["data"] != nil || got.Objects[0].Value["kind"] != "ConfigMap" {
		t.Errorf("got %+v", got)
	}
	var kinds []string
	for _, k := range s.ListKinds() {
		kinds = append(kinds, k.Version+" "+k.GroupResource().String())
	}
	if diff := cmp.Diff([]string{"v1 configmaps", "v1 secrets", "v1 gadgets.example.com"}, kinds); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	without := s.FindNamed(schema.GroupResource{Resource: "configmaps"}, "default", "without")
	if miss := s.FindMiss(&q, without); miss != "annotations: it has none of x,y" {
		t.Errorf("the miss is %q", miss)
	}
}

// One object of a target of all kinds is read as its own kind, also where another kind has the same name.
func TestReadSeenOfAllKinds(t *testing.T) {
	r := byKind{"a": complete("a", "x"), "b": complete("b", "x")}
	for _, resource := range []string{"a", "b"} {
		read := observed.Read{Namespace: "a", Name: "x", Resource: schema.GroupVersionResource{Version: "v1", Resource: resource}}
		found, matches, state, detail := ReadSeen(t.Context(), r, "", anyTarget(nil), read)
		if state != observed.Complete || !matches || found == nil || found.Resource.Resource != resource {
			t.Errorf("%s: %+v %t %s %s", resource, found, matches, state, detail)
		}
	}
	broken := anyTarget(func(r *v1alpha1.ClusterReference) { r.MatchLabels = map[string]string{"!": "!"} })
	if _, _, state, _ := ReadSeen(t.Context(), r, "", broken, observed.Read{Name: "x"}); state != observed.Failed {
		t.Errorf("a selector that is none: %s", state)
	}
}
