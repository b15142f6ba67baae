// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package watches

import (
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/vtex/cleaner/controllers/plan/observed"
	"github.com/vtex/cleaner/controllers/snapshot"
	"github.com/vtex/cleaner/test/apiserver"
	"github.com/vtex/cleaner/test/queries"
)

// ofAnyKind makes a query one of a target of all kinds, for objects with an annotation.
func ofAnyKind(annotations string) func(*snapshot.Query) {
	return func(q *snapshot.Query) { q.OfAnyKind, q.MetadataOnly, q.Annotations = true, true, annotations }
}

// putAnnotated puts a Pod with an annotation; without one if the key is empty.
func putAnnotated(s *apiserver.Server, name, key string) {
	meta := map[string]any{"name": name, "namespace": "a", "uid": "uid-" + name}
	if key != "" {
		meta["annotations"] = map[string]any{key: "1h"}
	}
	version := s.Put(apiserver.Pods, "a", "version", nil)
	meta["resourceVersion"] = strconv.Itoa(version + 1)
	s.Put(apiserver.Pods, "a", name, nil, map[string]any{"metadata": meta, "spec": map[string]any{"nodeName": "n"}})
}

// What is selected by an annotation is watched for itself: as metadata, and without what does not have the annotation. An object that gets or
// loses the annotation wakes its owner, and others wake no one.
func TestWatchByAnnotation(t *testing.T) {
	s := apiserver.New(t)
	r := newRig(t, s)
	q, plain := queries.New("Pod", ofAnyKind("x/ttl")), queries.New("Pod")
	putAnnotated(s, "p", "x/ttl")
	putAnnotated(s, "other", "y/ttl")
	r.wakes(owner("any"), "the sync", func() { r.SetInterests(owner("any"), interests(q)) })
	r.reads(q, observed.Complete, "p")
	r.wakes(owner("plain"), "the sync", func() { r.SetInterests(owner("plain"), interests(plain)) })
	r.reads(plain, observed.Complete, "other", "p", "version")
	got := r.Read(t.Context(), q)
	if o := got.Objects[0]; o.Value["spec"] != nil || o.Value["kind"] != "Pod" || o.Annotations != "x/ttl" {
		t.Errorf("it is read as %v", o.Value)
	}

	r.wakes(owner("any"), "an annotation", func() { putAnnotated(s, "other", "x/ttl") })
	r.reads(q, observed.Complete, "other", "p")
	r.wakes(owner("any"), "an annotation that goes", func() { putAnnotated(s, "p", "") })
	r.reads(q, observed.Complete, "other")
	before := r.queue.count(owner("any"))
	r.wakes(owner("plain"), "an object without the annotation", func() { putAnnotated(s, "p", "z") })
	r.wakes(owner("any"), "a deletion", func() { s.Remove(apiserver.Pods, "a", "other") })
	if n := r.queue.count(owner("any")); n != before+1 {
		t.Errorf("what it does not select has woken it %d times", n-before-1)
	}
	r.reads(q, observed.Complete)
}

// What is selected by labels is asked for by labels, so that the API server sends no others.
func TestWatchBySelectedLabels(t *testing.T) {
	s := apiserver.New(t)
	var mu sync.Mutex
	asked := map[string]bool{}
	s.SetFault(func(_ http.ResponseWriter, verb string, gvr schema.GroupVersionResource, r *http.Request) bool {
		mu.Lock()
		defer mu.Unlock()
		if gvr == apiserver.Pods && (verb == "list" || verb == "watch") {
			asked[verb+" "+r.URL.Query().Get("labelSelector")+" "+metadataOnly(r)] = true
		}
		return false
	})
	r := newRig(t, s)
	s.Put(apiserver.Pods, "a", "p", map[string]string{"app": "web"})
	s.Put(apiserver.Pods, "a", "other", map[string]string{"app": "db"})
	q := queries.New("Pod", queries.Labelled("app=web"), ofAnyKind(""))
	r.SetInterests(owner("any"), interests(q))
	r.reads(q, observed.Complete, "p")
	r.wakes(owner("any"), "a match", func() { s.Put(apiserver.Pods, "a", "q", map[string]string{"app": "web"}) })
	r.reads(q, observed.Complete, "p", "q")
	mu.Lock()
	defer mu.Unlock()
	for what := range asked {
		if !strings.HasSuffix(what, " app=web metadata") {
			t.Errorf("it was asked for: %s", what)
		}
	}
	if len(asked) == 0 {
		t.Error("no request was seen")
	}
}

func metadataOnly(r *http.Request) string {
	if strings.Contains(r.Header.Get("Accept"), "PartialObjectMetadata") {
		return "metadata"
	}
	return "whole"
}

// A kind whose selected objects take too much memory is TooLarge, as others are, and the others stay.
func TestWatchByAnnotationIsTooLarge(t *testing.T) {
	s := apiserver.New(t)
	f := &full{}
	r := newFullRig(t, s, f)
	s.Put(apiserver.Nodes, "", "n", nil, pad(10))
	s.Put(apiserver.Pods, "a", "p", nil, map[string]any{"metadata": map[string]any{
		"name": "p", "namespace": "a", "uid": "uid-p", "resourceVersion": "3", "annotations": map[string]string{"x/ttl": strings.Repeat("x", 4*mebi)},
	}})
	pods, nodes := queries.New("Pod", queries.In(""), ofAnyKind("x/ttl")), queries.New("Node", ofAnyKind("x/ttl"))
	r.SetInterests(Owner{Name: "any"}, interests(pods, nodes))
	r.reads(pods, observed.Complete, "p")
	r.reads(nodes, observed.Complete)
	r.wakes(Owner{Name: "any"}, "the end of its watch", func() { f.until.Store(1) })
	r.reads(pods, observed.TooLarge)
	r.reads(nodes, observed.Complete)
}

// What a target of all kinds asks for is not what another target asks for that reads metadata.
func TestQueriesOfAllKindsAreTheirOwn(t *testing.T) {
	plain := queries.New("Pod", queries.MetadataOnly)
	digests := map[[32]byte]bool{plain.Digest(): true}
	for _, annotations := range []string{"", "x/ttl", "y/ttl"} {
		q := queries.New("Pod", ofAnyKind(annotations))
		digests[q.Digest()] = true
	}
	if len(digests) != 4 {
		t.Errorf("of 4 queries %d differ", len(digests))
	}
}
