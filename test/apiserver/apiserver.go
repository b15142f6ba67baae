// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

// Package apiserver is an API server of a few hundred lines for unit tests, which can be told to fail.
package apiserver

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
)

// Server is an API server of a few hundred lines: discovery, get, list in pages, watch, access reviews, and the faults
// that tests ask for. Real clients talk to it over HTTP.
type Server struct {
	t *testing.T
	*httptest.Server

	mu       sync.Mutex
	version  int
	served   map[schema.GroupVersionResource]*servedKind
	denied   denials
	requests map[string]int // by verb and resource
	// fault, when set, may answer a request instead of the server.
	fault func(w http.ResponseWriter, verb string, gvr schema.GroupVersionResource, r *http.Request) bool
}

type servedKind struct {
	metav1.APIResource
	objects  map[objectKey]map[string]any
	log      []logged
	expired  int           // versions up to this one are too old to watch from
	changed  chan struct{} // closed at each change, and replaced
	shutdown chan struct{} // closed when the kind goes
}

type logged struct {
	version     int
	kind        string
	now, before map[string]any
}

// objectKey is the namespace and name of an object.
type objectKey struct{ namespace, name string }

// Denial refuses verbs. An empty field is any.
type Denial struct{ verb, Resource, Namespace, Name string }

// Watches of up to shortWatch seconds get a bookmark after bookmarkAfter, as those of an API server do before they end.
const (
	shortWatch    = 10
	bookmarkAfter = 20 * time.Millisecond
)

// The resources that tests use.
var (
	Pods       = schema.GroupVersionResource{Version: "v1", Resource: "pods"}
	Namespaces = schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}
	Nodes      = schema.GroupVersionResource{Version: "v1", Resource: "nodes"}
	Revisions  = schema.GroupVersionResource{Group: "serving.example.com", Version: "v1", Resource: "revisions"}
	CRDs       = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
)

// New starts a server of Pods, Nodes, Namespaces and CustomResourceDefinitions. It stops with the test.
func New(t *testing.T) *Server {
	s := &Server{t: t, version: 100, served: map[schema.GroupVersionResource]*servedKind{}, requests: map[string]int{}}
	s.Server = httptest.NewServer(s)
	t.Cleanup(func() {
		s.CloseClientConnections()
		s.Close()
	})
	s.Serve(Pods, "Pod", true)
	s.Serve(Nodes, "Node", false)
	s.Serve(Namespaces, "Namespace", false)
	s.Serve(CRDs, "CustomResourceDefinition", false)
	return s
}

// Config returns a configuration for clients.
func (s *Server) Config() *rest.Config {
	return &rest.Config{Host: s.URL, QPS: -1, ContentConfig: rest.ContentConfig{ContentType: "application/json"}}
}

// Serve begins to serve a kind.
func (s *Server) Serve(gvr schema.GroupVersionResource, kind string, namespaced bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.served[gvr] = &servedKind{
		APIResource: metav1.APIResource{
			Name: gvr.Resource, SingularName: strings.ToLower(kind), Kind: kind, Namespaced: namespaced, Verbs: []string{"get", "list", "watch"},
		},
		objects: map[objectKey]map[string]any{}, changed: make(chan struct{}), shutdown: make(chan struct{}),
	}
}

// Unserve stops serving a kind: its watches end, and its paths are not found.
func (s *Server) Unserve(gvr schema.GroupVersionResource) {
	s.mu.Lock()
	defer s.mu.Unlock()
	close(s.served[gvr].shutdown)
	delete(s.served, gvr)
}

// Install is what a CustomResourceDefinition does.
func (s *Server) Install(gvr schema.GroupVersionResource, kind string, namespaced bool) {
	s.Serve(gvr, kind, namespaced)
	s.Put(CRDs, "", gvr.GroupResource().String(), nil)
}

// Uninstall removes a kind and its CustomResourceDefinition.
func (s *Server) Uninstall(gvr schema.GroupVersionResource) {
	s.Unserve(gvr)
	s.Remove(CRDs, "", gvr.GroupResource().String())
}

// Put creates or replaces an object, and returns its version. It may have any content, and more metadata.
func (s *Server) Put(gvr schema.GroupVersionResource, namespace, name string, l map[string]string, content ...map[string]any) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	k := s.served[gvr]
	s.version++
	meta := map[string]any{
		"name": name, "uid": "uid-" + name, "resourceVersion": strconv.Itoa(s.version), "managedFields": []any{map[string]any{"manager": "m"}},
	}
	if namespace != "" {
		meta["namespace"] = namespace
	}
	if l != nil {
		meta["labels"] = l
	}
	o := map[string]any{"apiVersion": gvr.GroupVersion().String(), "kind": k.Kind, "metadata": meta}
	for _, c := range content {
		maps.Copy(o, c)
	}
	more, _ := o["metadata"].(map[string]any)
	maps.Copy(meta, more)
	o["metadata"] = meta
	key := objectKey{namespace, name}
	event := "MODIFIED"
	if k.objects[key] == nil {
		event = "ADDED"
	}
	k.note(logged{s.version, event, o, k.objects[key]})
	k.objects[key] = o
	return s.version
}

// Remove deletes an object.
func (s *Server) Remove(gvr schema.GroupVersionResource, namespace, name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	k := s.served[gvr]
	key := objectKey{namespace, name}
	if k.objects[key] == nil {
		return
	}
	s.version++
	last := maps.Clone(k.objects[key]) // which has the version of its deletion
	meta := maps.Clone(last["metadata"].(map[string]any))
	meta["resourceVersion"] = strconv.Itoa(s.version)
	last["metadata"] = meta
	k.note(logged{s.version, "DELETED", last, k.objects[key]})
	delete(k.objects, key)
}

// RemoveSilently removes an object without an event, as if its event were lost.
func (s *Server) RemoveSilently(gvr schema.GroupVersionResource, namespace, name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.served[gvr].objects, objectKey{namespace, name})
}

// SetVersion sets the version of the last change.
func (s *Server) SetVersion(version int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.version = version
}

// Disconnect ends the watches of a kind, as a restart does. Forgotten changes can only be found by a list.
func (s *Server) Disconnect(gvr schema.GroupVersionResource, forget bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	k := s.served[gvr]
	close(k.shutdown)
	k.shutdown = make(chan struct{})
	if forget {
		s.version++
		k.expired, k.log = s.version, nil
	}
}

// Deny denies these requests, and no others, from now on.
func (s *Server) Deny(d ...Denial) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.denied = d
}

// SetFault sets a function that may answer requests. It returns true if it did.
func (s *Server) SetFault(f func(w http.ResponseWriter, verb string, gvr schema.GroupVersionResource, r *http.Request) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fault = f
}

// Asked counts the requests of a verb and a resource, or a discovery of a version of a group.
func (s *Server) Asked(what string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.requests[what]
}

func (k *servedKind) note(l logged) {
	k.log = append(k.log, l)
	close(k.changed)
	k.changed = make(chan struct{})
}

func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	gv := schema.GroupVersion{Version: parts[1]}
	parts = parts[2:]
	if r.URL.Path[:5] == "/apis" {
		gv, parts = schema.GroupVersion{Group: gv.Version, Version: parts[0]}, parts[1:]
	}
	switch {
	case len(parts) == 0:
		s.discover(w, r, gv)
		return
	case parts[0] == "selfsubjectaccessreviews":
		s.review(w, r)
		return
	}
	var namespace, name string
	if parts[0] == "namespaces" && len(parts) > 2 {
		namespace, parts = parts[1], parts[2:]
	}
	if len(parts) > 1 {
		name = parts[1]
	}
	s.answer(w, r, gv.WithResource(parts[0]), namespace, name)
}

func (s *Server) discover(w http.ResponseWriter, r *http.Request, gv schema.GroupVersion) {
	if s.faulty(w, "discover", gv.WithResource(""), r) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	list := metav1.APIResourceList{TypeMeta: metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"}, GroupVersion: gv.String()}
	for gvr, k := range s.served {
		if gvr.GroupVersion() == gv {
			sub := k.APIResource
			sub.Name += "/status"
			list.APIResources = append(list.APIResources, sub, k.APIResource)
		}
	}
	if len(list.APIResources) == 0 {
		http.Error(w, "404 page not found", http.StatusNotFound)
		return
	}
	reply(w, http.StatusOK, list)
}

func (s *Server) review(w http.ResponseWriter, r *http.Request) {
	var in authorizationv1.SelfSubjectAccessReview
	if err := json.NewDecoder(r.Body).Decode(&in); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	a := in.Spec.ResourceAttributes
	if s.faulty(w, "review", schema.GroupVersionResource{Group: a.Group, Version: a.Version, Resource: a.Resource}, r) {
		return
	}
	s.mu.Lock()
	in.Status.Allowed = !s.denied.deny(a.Verb, a.Resource, a.Namespace, a.Name)
	s.mu.Unlock()
	reply(w, http.StatusCreated, in)
}

// denials are what a server refuses.
type denials []Denial

// deny says that a request is forbidden. A denial with a namespace does not deny others, and one without denies requests
// for all namespaces only, unless its namespace is "*".
func (d denials) deny(verb, resource, namespace, name string) bool {
	return slices.ContainsFunc(d, func(d Denial) bool {
		return (d.verb == "" || d.verb == verb) && d.Resource == resource && (d.Namespace == "*" || d.Namespace == namespace) &&
			(d.Name == "*" || d.Name == name)
	})
}

func (s *Server) faulty(w http.ResponseWriter, verb string, gvr schema.GroupVersionResource, r *http.Request) bool {
	s.mu.Lock()
	s.requests[verb+" "+gvr.Resource]++
	f := s.fault
	s.mu.Unlock()
	return f != nil && f(w, verb, gvr, r)
}

func (s *Server) answer(w http.ResponseWriter, r *http.Request, gvr schema.GroupVersionResource, namespace, name string) {
	q := r.URL.Query()
	verb := "list"
	switch {
	case name != "":
		verb = "get"
	case q.Get("watch") == "true" || q.Get("watch") == "1":
		verb = "watch"
	}
	if s.faulty(w, verb, gvr, r) {
		return
	}
	named := name
	if f, ok := strings.CutPrefix(q.Get("fieldSelector"), "metadata.name="); ok {
		named, _, _ = strings.Cut(f, ",")
	}
	selector, err := labels.Parse(q.Get("labelSelector"))
	if err != nil {
		Fail(w, http.StatusBadRequest, metav1.StatusReasonBadRequest, nil)
		return
	}
	s.mu.Lock()
	k := s.served[gvr]
	switch {
	case k == nil || !k.Namespaced && namespace != "":
		s.mu.Unlock()
		http.Error(w, "404 page not found", http.StatusNotFound)
		return
	case s.denied.deny(verb, gvr.Resource, namespace, named):
		s.mu.Unlock()
		Fail(w, http.StatusForbidden, metav1.StatusReasonForbidden, nil)
		return
	}
	s.mu.Unlock()
	matches := func(o map[string]any) bool {
		m := o["metadata"].(map[string]any)
		l, _ := m["labels"].(map[string]string)
		return (namespace == "" || m["namespace"] == namespace) && (named == "" || m["name"] == named) && selector.Matches(labels.Set(l))
	}
	shape := func(o map[string]any) map[string]any { return o }
	if strings.Contains(r.Header.Get("Accept"), "as=PartialObjectMetadata") {
		shape = func(o map[string]any) map[string]any {
			return map[string]any{"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata", "metadata": o["metadata"]}
		}
	}
	switch verb {
	case "get":
		s.mu.Lock()
		o := k.objects[objectKey{namespace, name}]
		s.mu.Unlock()
		if o == nil {
			Fail(w, http.StatusNotFound, metav1.StatusReasonNotFound, &metav1.StatusDetails{Name: name, Group: gvr.Group, Kind: gvr.Resource})
			return
		}
		reply(w, http.StatusOK, shape(o))
	case "list":
		s.list(w, r, gvr, k, matches, shape)
	case "watch":
		s.watch(w, r, gvr, k, matches, shape)
	}
}

func (s *Server) list(w http.ResponseWriter, r *http.Request, gvr schema.GroupVersionResource, k *servedKind, matches func(map[string]any) bool, shape func(map[string]any) map[string]any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	q := r.URL.Query()
	items := []any{}
	from, _ := strconv.Atoi(q.Get("continue"))
	limit, _ := strconv.Atoi(q.Get("limit"))
	meta := map[string]any{"resourceVersion": strconv.Itoa(s.version)}
	keys := slices.SortedFunc(maps.Keys(k.objects), func(a, b objectKey) int { return strings.Compare(a.namespace+"/"+a.name, b.namespace+"/"+b.name) })
	for _, key := range keys[min(from, len(keys)):] {
		from++
		if !matches(k.objects[key]) {
			continue
		}
		items = append(items, shape(k.objects[key]))
		if len(items) == limit && from < len(keys) {
			meta["continue"] = strconv.Itoa(from)
			break
		}
	}
	kind, version := k.Kind+"List", gvr.GroupVersion().String()
	if strings.Contains(r.Header.Get("Accept"), "as=PartialObjectMetadataList") {
		kind, version = "PartialObjectMetadataList", "meta.k8s.io/v1"
	}
	reply(w, http.StatusOK, map[string]any{"apiVersion": version, "kind": kind, "metadata": meta, "items": items})
}

func (s *Server) watch(w http.ResponseWriter, r *http.Request, gvr schema.GroupVersionResource, k *servedKind, matches func(map[string]any) bool, shape func(map[string]any) map[string]any) {
	q := r.URL.Query()
	from, _ := strconv.Atoi(q.Get("resourceVersion"))
	send := func(kind string, o map[string]any) {
		_ = json.NewEncoder(w).Encode(map[string]any{"type": kind, "object": o})
	}
	w.Header().Set("Content-Type", "application/json")
	s.mu.Lock()
	shutdown := k.shutdown
	switch {
	case q.Get("sendInitialEvents") == "true":
		for _, o := range k.objects {
			if matches(o) {
				send("ADDED", shape(o))
			}
		}
		from = s.version
		send("BOOKMARK", shape(map[string]any{"apiVersion": gvr.GroupVersion().String(), "kind": k.Kind, "metadata": map[string]any{
			"resourceVersion": strconv.Itoa(from), "annotations": map[string]string{metav1.InitialEventsAnnotationKey: "true"},
		}}))
	case from < k.expired:
		send("ERROR", map[string]any{"apiVersion": "v1", "kind": "Status", "status": "Failure", "reason": "Expired", "code": http.StatusGone})
		s.mu.Unlock()
		return
	}
	s.mu.Unlock()
	w.(http.Flusher).Flush()
	var bookmark <-chan time.Time
	if seconds, err := strconv.Atoi(q.Get("timeoutSeconds")); err == nil && seconds <= shortWatch && q.Get("allowWatchBookmarks") == "true" {
		bookmark = time.After(bookmarkAfter)
	}
	isDue := false
	for {
		s.mu.Lock()
		if k.shutdown != shutdown { // what it had to send may be forgotten
			s.mu.Unlock()
			return
		}
		changed := k.changed
		for _, l := range k.log {
			if l.version <= from {
				continue
			}
			from = l.version
			is, was := matches(l.now) && l.kind != "DELETED", l.before != nil && matches(l.before)
			last := shape(maps.Clone(l.now))
			switch {
			case is && was:
				send("MODIFIED", shape(l.now))
			case is:
				send("ADDED", shape(l.now))
			case was:
				send("DELETED", last)
			}
		}
		if isDue {
			send("BOOKMARK", shape(map[string]any{"apiVersion": gvr.GroupVersion().String(), "kind": k.Kind, "metadata": map[string]any{"resourceVersion": strconv.Itoa(s.version)}}))
			isDue = false
			s.requests["bookmark "+gvr.Resource]++
		}
		s.mu.Unlock()
		w.(http.Flusher).Flush()
		select {
		case <-r.Context().Done():
			return
		case <-shutdown:
			return
		case <-changed:
		case <-bookmark:
			isDue = true
		}
	}
}

func reply(w http.ResponseWriter, code int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(v)
}

// Fail answers with a Status.
func Fail(w http.ResponseWriter, code int, reason metav1.StatusReason, d *metav1.StatusDetails) {
	reply(w, code, metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusFailure,
		Code: int32(code), Reason: reason, Details: d, Message: fmt.Sprintf("made up: %s", reason),
	})
}
