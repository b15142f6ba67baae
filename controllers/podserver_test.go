// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	jsonpatch "github.com/evanphx/json-patch/v5"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/vtex/cleaner/controllers/plan/observed"
	"github.com/vtex/cleaner/controllers/snapshot"
)

// podServer has Pods and the Namespace, and deletes and patches Pods, as far as the tests need, as an API server does.
type podServer struct {
	t     *testing.T
	clock *clocktesting.FakeClock

	mu      sync.Mutex
	objects map[string]*unstructured.Unstructured // by name
	// stale are what the watches know; nil: what there is.
	stale map[string]*unstructured.Unstructured
	// syncing says that the watches have not begun.
	syncing bool
	// listed is called when all Pods were read live, unless it is nil.
	listed func()
	// gets is how many Pods were read live, one at a time.
	gets int
	// trouble is what reads of Pods fail with.
	trouble observed.Target
	// answer is what requests that change something are answered with, unless it is nil.
	answer func(verb, name string) *apierrors.StatusError
	// sent are the requests that change something.
	sent []string
	// contents are the numbers of what the watches have shown of objects, but for their versions.
	contents map[string]uint64
}

// put stores an object at a new version.
func (s *podServer) put(o *unstructured.Unstructured) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.keep(o)
}

func (s *podServer) keep(o *unstructured.Unstructured) {
	version := 1
	if before := s.objects[o.GetName()]; before != nil {
		version, _ = strconv.Atoi(before.GetResourceVersion())
		version++
	}
	o.SetResourceVersion(strconv.Itoa(version))
	s.objects[o.GetName()] = o
}

// freeze has the watches know what there is now, until they are told otherwise.
func (s *podServer) freeze() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stale = map[string]*unstructured.Unstructured{}
	for name, o := range s.objects {
		s.stale[name] = o.DeepCopy()
	}
}

// thaw has the watches know what there is.
func (s *podServer) thaw() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stale = nil
}

// names are those of the Pods that there are.
func (s *podServer) names() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []string
	for name, o := range s.objects {
		if o.GetKind() == "Pod" {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}

// took are the requests that were sent since the last time that it was asked.
func (s *podServer) took() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := s.sent
	s.sent = nil
	slices.Sort(out)
	return out
}

func (s *podServer) readLive(_ context.Context, q snapshot.Query) observed.Target {
	s.mu.Lock()
	defer s.mu.Unlock()
	if q.Kind != "Namespace" && s.trouble.State != observed.Unknown {
		return s.trouble
	}
	seen := readOf(s.t, s.objects, q)
	if q.Kind == "Pod" && q.Name != "" {
		s.gets++
	}
	if s.listed != nil && q.Name == "" {
		s.listed()
	}
	return seen
}

func (s *podServer) readWatched(_ context.Context, q snapshot.Query) observed.Target {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.syncing {
		return observed.Target{State: observed.Unsynced, Detail: "the watch is beginning"}
	}
	objects := s.objects
	if s.stale != nil {
		objects = s.stale
	}
	seen := readOf(s.t, objects, q)
	for i := range seen.Objects { // the watches keep no more than what is read
		if o := &seen.Objects[i]; o.Value != nil {
			o.Value = q.Reads.Projection().ApplyToMap(o.Value)
			o.Content = s.numberContent(o.Value)
		}
	}
	if q.MetadataOnly || !q.Fields.Empty() || seen.State != observed.Complete {
		return seen
	}
	return showChange(seen, q.Since)
}

// moment is what a read has shown, by the names of the objects.
type moment map[string]observed.Object

// showChange says what has changed in a target since a moment, if that is known.
func showChange(seen observed.Target, since any) observed.Target {
	now := moment{}
	for _, o := range seen.Objects {
		now[o.Namespace+"/"+o.Name] = o
	}
	seen.At = now
	was, known := since.(moment)
	if !known {
		return seen
	}
	seen.IsChange, seen.Objects = true, nil
	for name, o := range now {
		if old, there := was[name]; !there || old.ResourceVersion != o.ResourceVersion {
			seen.Changes = append(seen.Changes, observed.Change{Namespace: o.Namespace, Name: o.Name, Was: there, Before: old.Content, Now: &o})
		}
	}
	for name, o := range was {
		if _, still := now[name]; !still {
			seen.Changes = append(seen.Changes, observed.Change{Namespace: o.Namespace, Name: o.Name, Was: true, Before: o.Content})
		}
	}
	return seen
}

// numberContent returns the number of a content.
func (s *podServer) numberContent(value map[string]any) uint64 {
	shown := maps.Clone(value)
	metadata, _ := shown["metadata"].(map[string]any)
	metadata = maps.Clone(metadata)
	delete(metadata, "resourceVersion")
	shown["metadata"] = metadata
	text := fmt.Sprint(shown)
	if s.contents == nil {
		s.contents = map[string]uint64{}
	}
	if s.contents[text] == 0 {
		s.contents[text] = uint64(len(s.contents)) + 1
	}
	return s.contents[text]
}

// readOf reads as an API server would that has these objects.
func readOf(t *testing.T, objects map[string]*unstructured.Unstructured, q snapshot.Query) observed.Target {
	all := snapshot.NewObjects()
	core := schema.GroupVersion{Version: "v1"}
	for _, kind := range kinds() {
		all.AddKind(core, kind)
	}
	for _, name := range slices.Sorted(maps.Keys(objects)) {
		if q.Name != "" && q.Name != name {
			continue
		}
		if err := all.AddObject(objects[name].DeepCopy()); err != nil {
			t.Error(err)
		}
	}
	if err := all.SortObjects(); err != nil {
		t.Error(err)
	}
	if q.Kind == "pods" { // a row names the resource
		q.Kind = "Pod"
	}
	return all.Read(t.Context(), q)
}

func kinds() []metav1.APIResource {
	verbs := metav1.Verbs{"get", "list", "watch", "delete", "patch"}
	return []metav1.APIResource{
		{Name: "pods", SingularName: "pod", Kind: "Pod", Namespaced: true, Verbs: verbs},
		{Name: "namespaces", SingularName: "namespace", Kind: "Namespace", Verbs: verbs},
	}
}

// ServerResourcesForGroupVersionWithContext says what is served.
func (s *podServer) ServerResourcesForGroupVersionWithContext(_ context.Context, groupVersion string) (*metav1.APIResourceList, error) {
	if groupVersion != "v1" {
		return nil, apierrors.NewNotFound(schema.GroupResource{}, groupVersion)
	}
	return &metav1.APIResourceList{GroupVersion: "v1", APIResources: kinds()}, nil
}

// ServeHTTP deletes, evicts and patches Pods.
func (s *podServer) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	name, subresource, _ := strings.Cut(strings.TrimPrefix(req.URL.Path, "/api/v1/namespaces/shop/pods/"), "/")
	body, err := io.ReadAll(req.Body)
	if err != nil {
		s.t.Error(err)
	}
	answer, failed := s.serve(req, name, subresource, body)
	if failed != nil {
		failed.ErrStatus.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}
		w.WriteHeader(int(failed.ErrStatus.Code))
		answer = failed.ErrStatus
	}
	if err := json.NewEncoder(w).Encode(answer); err != nil {
		s.t.Error(err)
	}
}

func (s *podServer) serve(req *http.Request, name, subresource string, body []byte) (any, *apierrors.StatusError) {
	gr := schema.GroupResource{Resource: "pods"}
	o := s.objects[name]
	if req.Method == http.MethodGet {
		if o == nil {
			return nil, apierrors.NewNotFound(gr, name)
		}
		return o.Object, nil
	}
	verb := map[string]string{http.MethodDelete: "delete", http.MethodPatch: "patch", http.MethodPost: "evict"}[req.Method]
	var options metav1.DeleteOptions
	switch {
	case verb == "delete":
		must(s.t, json.Unmarshal(body, &options))
	case subresource == "eviction":
		var eviction struct{ DeleteOptions metav1.DeleteOptions }
		must(s.t, json.Unmarshal(body, &eviction))
		options = eviction.DeleteOptions
	}
	dry := len(options.DryRun) > 0 || req.URL.Query().Get("dryRun") != ""
	s.sent = append(s.sent, strings.TrimSpace(fmt.Sprintf("%s %s %s", verb, name, map[bool]string{true: "dry run"}[dry])))
	if s.answer != nil {
		if failed := s.answer(verb, name); failed != nil {
			return nil, failed
		}
		o = s.objects[name] // it may have been changed
	}
	if o == nil {
		return nil, apierrors.NewNotFound(gr, name)
	}
	if p := options.Preconditions; verb != "patch" && (p == nil || *p.UID != o.GetUID() || *p.ResourceVersion != o.GetResourceVersion()) {
		return nil, apierrors.NewConflict(gr, name, fmt.Errorf("the precondition does not hold"))
	}
	if verb == "patch" {
		return s.patch(o, body, dry)
	}
	if !dry && len(o.GetFinalizers()) > 0 {
		held := o.DeepCopy()
		held.SetDeletionTimestamp(&metav1.Time{Time: s.clock.Now()})
		held.SetDeletionGracePeriodSeconds(new(int64))
		s.keep(held)
		return held.Object, nil
	}
	if !dry {
		delete(s.objects, name)
	}
	return metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusSuccess, Details: &metav1.StatusDetails{Name: name, UID: o.GetUID()}}, nil
}

// patch merges.
func (s *podServer) patch(o *unstructured.Unstructured, body []byte, dry bool) (any, *apierrors.StatusError) {
	var asked metav1.PartialObjectMetadata
	must(s.t, json.Unmarshal(body, &asked))
	if asked.UID != o.GetUID() || asked.ResourceVersion != o.GetResourceVersion() {
		return nil, apierrors.NewConflict(schema.GroupResource{Resource: "pods"}, o.GetName(), fmt.Errorf("it has changed"))
	}
	before, err := json.Marshal(o.Object)
	must(s.t, err)
	after, err := jsonpatch.MergePatch(before, body)
	must(s.t, err)
	now := &unstructured.Unstructured{}
	must(s.t, now.UnmarshalJSON(after))
	if !dry && !equality.Semantic.DeepEqual(o, now) {
		s.keep(now)
	}
	return now.Object, nil
}
