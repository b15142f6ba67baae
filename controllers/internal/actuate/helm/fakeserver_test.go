// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package helm

import (
	"bytes"
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

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/vtex/cleaner/controllers/plan/observed"
)

// fakeServer is an API server that keeps objects in memory. It stands in for a real one where a test has it fail: it honors
// preconditions, finalizers, pages of lists and watches of one object. A DELETE without preconditions fails the test.
type fakeServer struct {
	t     *testing.T
	clock *clocktesting.FakeClock
	// served are the kinds that it serves.
	served map[string][]metav1.APIResource
	// answer answers requests in the server's place, if it returns true.
	answer func(n int, w http.ResponseWriter, r *http.Request) bool

	mu       sync.Mutex
	objects  map[string]*unstructured.Unstructured
	version  int
	requests []string
	writes   []string
	// events are what watches show; changed is closed at the next one.
	events  []fakeEvent
	changed chan struct{}
}

// fakeEvent is a change of the object at a path.
type fakeEvent struct {
	path, kind string
	version    int
	object     *unstructured.Unstructured
}

// put stores an object, in namespace team if its kind has namespaces and it names none.
func (s *fakeServer) put(o *unstructured.Unstructured) {
	s.t.Helper()
	resource, namespaced := s.findResource(o.GroupVersionKind())
	if namespaced && o.GetNamespace() == "" {
		o.SetNamespace("team")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.store(pathOf(resource, o.GetNamespace(), o.GetName()), o)
}

func (s *fakeServer) findResource(kind schema.GroupVersionKind) (_ schema.GroupVersionResource, namespaced bool) {
	s.t.Helper()
	for _, r := range s.served[kind.GroupVersion().String()] {
		if r.Kind == kind.Kind {
			return kind.GroupVersion().WithResource(r.Name), r.Namespaced
		}
	}
	s.t.Fatalf("%s is not served", kind)
	return schema.GroupVersionResource{}, false
}

func pathOf(r schema.GroupVersionResource, namespace, name string) string {
	path := "/apis/" + r.GroupVersion().String()
	if r.Group == "" {
		path = "/api/" + r.Version
	}
	if namespace != "" {
		path += "/namespaces/" + namespace
	}
	return path + "/" + r.Resource + "/" + name
}

// store gives an object its next version, and shows it to watches. The lock is held.
func (s *fakeServer) store(path string, o *unstructured.Unstructured) {
	s.version++
	kind := "MODIFIED"
	if s.objects[path] == nil {
		kind = "ADDED"
		o.SetUID(types.UID(fmt.Sprint("uid-", s.version)))
		o.SetCreationTimestamp(metav1.Time{Time: s.clock.Now()})
	}
	o.SetResourceVersion(strconv.Itoa(s.version))
	s.objects[path] = o
	s.show(fakeEvent{path, kind, s.version, o.DeepCopy()})
}

// remove takes an object away. The lock is held.
func (s *fakeServer) remove(path string) {
	s.version++
	o := s.objects[path]
	delete(s.objects, path)
	s.show(fakeEvent{path, "DELETED", s.version, o.DeepCopy()})
}

func (s *fakeServer) show(e fakeEvent) {
	s.events = append(s.events, e)
	close(s.changed)
	s.changed = make(chan struct{})
}

// change changes an object as anybody else may: the first one whose path ends so. If the change returns false, the object is taken away.
func (s *fakeServer) change(suffix string, by func(o *unstructured.Unstructured) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, path := range slices.Sorted(maps.Keys(s.objects)) {
		if !strings.HasSuffix(path, suffix) {
			continue
		}
		o := s.objects[path].DeepCopy()
		if by(o) {
			s.store(path, o)
		} else {
			s.remove(path)
		}
		return
	}
	s.t.Errorf("there is no %s", suffix)
}

// find returns the object whose path ends so; nil if there is none.
func (s *fakeServer) find(suffix string) *unstructured.Unstructured {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, path := range slices.Sorted(maps.Keys(s.objects)) {
		if strings.HasSuffix(path, suffix) {
			return s.objects[path].DeepCopy()
		}
	}
	return nil
}

// left names the objects that are there.
func (s *fakeServer) left() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var names []string
	for path := range s.objects {
		names = append(names, namePath(path))
	}
	slices.Sort(names)
	return names
}

// didWrite are the writes that were carried out since it was last asked, and didSend how many requests there were.
func (s *fakeServer) didWrite() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	writes := s.writes
	s.writes = nil
	return writes
}

// didSend are the requests since it was last asked.
func (s *fakeServer) didSend() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	requests := s.requests
	s.requests = nil
	return requests
}

// namePath names the object at a path, without its namespace.
func namePath(path string) string {
	r, _, name := splitPath(path)
	return observed.FormatName(kindOf(r.Resource), "", name)
}

// kindOf is the kind of a resource; empty if tests have none of it.
func kindOf(resource string) string {
	return map[string]string{
		"clusterrolebindings": "ClusterRoleBinding", "clusterroles": "ClusterRole", "configmaps": "ConfigMap", "jobs": "Job", "namespaces": "Namespace", "pods": "Pod",
		"rolebindings": "RoleBinding", "roles": "Role", "secrets": "Secret", "serviceaccounts": "ServiceAccount", "services": "Service", "widgets": "Widget",
	}[resource]
}

func splitPath(path string) (r schema.GroupVersionResource, namespace, name string) {
	parts := strings.Split(strings.Trim(path, "/"), "/")
	if parts[0] == "apis" {
		r.Group, parts = parts[1], parts[1:]
	}
	r.Version, parts = parts[1], parts[2:]
	if len(parts) > 2 {
		namespace, parts = parts[1], parts[2:]
	}
	r.Resource = parts[0]
	if len(parts) > 1 {
		name = parts[1]
	}
	return r, namespace, name
}

// ServeHTTP answers a request.
func (s *fakeServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	s.requests = append(s.requests, r.Method+" "+r.URL.Path)
	n, answer := len(s.requests), s.answer
	s.mu.Unlock()
	if answer != nil && answer(n, w, r) {
		return
	}
	if r.URL.Query().Get("watch") != "" {
		s.watch(w, r)
		return
	}
	respond(w, s.carryOut(r))
}

// respond writes an answer: an object, or the error that it is.
func respond(w http.ResponseWriter, answer any) {
	code := http.StatusOK
	if wrong, ok := answer.(*apierrors.StatusError); ok {
		s := wrong.Status()
		s.Kind, s.APIVersion = "Status", "v1"
		code, answer = int(s.Code), s
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(answer)
}

// carryOut does what a request asks for.
func (s *fakeServer) carryOut(r *http.Request) any {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return apierrors.NewBadRequest(err.Error())
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if found := s.discover(r.URL.Path); found != nil {
		return found
	}
	resource, namespace, name := splitPath(r.URL.Path)
	if !slices.ContainsFunc(s.served[resource.GroupVersion().String()], func(s metav1.APIResource) bool { return s.Name == resource.Resource }) {
		return notServed()
	}
	path := pathOf(resource, namespace, name)
	switch now := s.objects[path]; {
	case r.Method == http.MethodGet && name == "":
		return s.list(r, resource, namespace)
	case r.Method == http.MethodPost:
		o := &unstructured.Unstructured{Object: readBody(s.t, body)}
		path = pathOf(resource, namespace, o.GetName())
		if s.objects[path] != nil {
			return apierrors.NewAlreadyExists(resource.GroupResource(), o.GetName())
		}
		s.store(path, o)
		s.runHook(path, o)
		s.writes = append(s.writes, "create "+namePath(path))
		return o.DeepCopy()
	case now == nil:
		return apierrors.NewNotFound(resource.GroupResource(), name)
	case r.Method == http.MethodGet:
		return now.DeepCopy()
	case r.Method == http.MethodPut:
		o := &unstructured.Unstructured{Object: readBody(s.t, body)}
		if o.GetResourceVersion() != now.GetResourceVersion() || o.GetUID() != now.GetUID() {
			return apierrors.NewConflict(resource.GroupResource(), name, fmt.Errorf("it has version %s", now.GetResourceVersion()))
		}
		s.store(path, o)
		s.writes = append(s.writes, "update "+namePath(path))
		return o.DeepCopy()
	default:
		return s.delete(path, now, body)
	}
}

// readBody reads the object in a request, which is JSON or protobuf.
func readBody(t *testing.T, body []byte) map[string]any {
	if bytes.HasPrefix(body, []byte("{")) {
		var object map[string]any
		check(t, json.Unmarshal(body, &object))
		return object
	}
	o, _, err := scheme.Codecs.UniversalDeserializer().Decode(body, nil, nil)
	check(t, err)
	return must(runtime.DefaultUnstructuredConverter.ToUnstructured(o))(t)
}

// delete deletes an object of exactly the version that the request names.
func (s *fakeServer) delete(path string, now *unstructured.Unstructured, body []byte) any {
	options := &metav1.DeleteOptions{}
	check(s.t, runtime.DefaultUnstructuredConverter.FromUnstructured(readBody(s.t, body), options))
	p := options.Preconditions
	if p == nil {
		p = &metav1.Preconditions{}
	}
	if p.UID == nil || p.ResourceVersion == nil || options.PropagationPolicy == nil || *options.PropagationPolicy != metav1.DeletePropagationBackground {
		s.t.Errorf("the DELETE of %s does not say which object it means: %s", namePath(path), body)
		return apierrors.NewBadRequest("no preconditions")
	}
	resource, _, name := splitPath(path)
	if *p.UID != now.GetUID() || *p.ResourceVersion != now.GetResourceVersion() {
		return apierrors.NewConflict(resource.GroupResource(), name, fmt.Errorf("it has UID %s and version %s", now.GetUID(), now.GetResourceVersion()))
	}
	s.writes = append(s.writes, "delete "+namePath(path))
	if len(now.GetFinalizers()) == 0 {
		s.remove(path)
	} else {
		o := now.DeepCopy()
		o.SetDeletionTimestamp(&metav1.Time{Time: s.clock.Now()})
		s.store(path, o)
	}
	return &metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusSuccess}
}

// runHook ends a Job or a Pod as its label says, at once. The lock is held.
func (s *fakeServer) runHook(path string, o *unstructured.Unstructured) {
	ends := o.GetLabels()["ends"]
	if o.GetKind() == "Job" {
		ends, _, _ = unstructured.NestedString(o.Object, "spec", "template", "metadata", "labels", "ends")
	}
	if ends == well || ends == badly {
		o = o.DeepCopy()
		endHook(o, ends)
		s.store(path, o)
	}
}

// endHook has a Job or a Pod end.
func endHook(o *unstructured.Unstructured, ends string) {
	o.Object["status"] = map[string]any{"phase": ends, "reason": "AsAsked", "message": "the test says so"}
	if o.GetKind() == "Job" {
		kind := map[string]string{well: "Complete", badly: "Failed"}[ends]
		o.Object["status"] = map[string]any{"conditions": []any{
			map[string]any{"type": "SuccessCriteriaMet", "status": "True"},
			map[string]any{"type": kind, "status": "True", "reason": "AsAsked", "message": "the test says so"},
		}}
	}
}

// list answers with a page of a list, by labels.
func (s *fakeServer) list(r *http.Request, resource schema.GroupVersionResource, namespace string) any {
	wanted, err := labels.Parse(r.URL.Query().Get("labelSelector"))
	if err != nil {
		return apierrors.NewBadRequest(err.Error())
	}
	kind, _ := strings.CutPrefix(r.URL.Query().Get("fieldSelector"), "type=")
	var items []unstructured.Unstructured
	for _, path := range slices.Sorted(maps.Keys(s.objects)) {
		is, in, _ := splitPath(path)
		o := s.objects[path]
		if is == resource && (namespace == "" || in == namespace) && wanted.Matches(labels.Set(o.GetLabels())) && (kind == "" || o.Object["type"] == kind) {
			items = append(items, *o)
		}
	}
	list := &unstructured.UnstructuredList{Object: map[string]any{"apiVersion": resource.GroupVersion().String()}}
	for _, s := range s.served[resource.GroupVersion().String()] {
		if s.Name == resource.Resource {
			list.SetKind(s.Kind + "List")
		}
	}
	from, _ := strconv.Atoi(r.URL.Query().Get("continue"))
	limit, _ := strconv.Atoi(r.URL.Query().Get("limit"))
	items = items[min(from, len(items)):]
	if limit > 0 && limit < len(items) {
		items = items[:limit]
		list.SetContinue(strconv.Itoa(from + limit))
	}
	list.Items = items
	return list.UnstructuredContent()
}

// watch shows what happens to one object after a version, until the request ends.
func (s *fakeServer) watch(w http.ResponseWriter, r *http.Request) {
	from, _ := strconv.Atoi(r.URL.Query().Get("resourceVersion"))
	name, _ := strings.CutPrefix(r.URL.Query().Get("fieldSelector"), "metadata.name=")
	path := r.URL.Path + "/" + name
	w.Header().Set("Content-Type", "application/json")
	stream := http.NewResponseController(w)
	_ = stream.Flush()
	for shown := 0; ; {
		s.mu.Lock()
		events, changed := s.events[shown:], s.changed
		shown = len(s.events)
		s.mu.Unlock()
		for _, e := range events {
			if e.path == path && e.version > from {
				_ = json.NewEncoder(w).Encode(map[string]any{"type": e.kind, "object": e.object})
			}
		}
		_ = stream.Flush()
		select {
		case <-changed:
		case <-r.Context().Done():
			return
		}
	}
}

// discover answers what it serves; nil if the path is not one of discovery.
func (s *fakeServer) discover(path string) any {
	switch parts := strings.Split(strings.Trim(path, "/"), "/"); {
	case path == "/api":
		return &metav1.APIVersions{TypeMeta: metav1.TypeMeta{Kind: "APIVersions"}, Versions: []string{"v1"}}
	case path == "/apis":
		groups := &metav1.APIGroupList{TypeMeta: metav1.TypeMeta{Kind: "APIGroupList", APIVersion: "v1"}}
		for _, name := range slices.Sorted(maps.Keys(s.served)) {
			if group, version, ok := strings.Cut(name, "/"); ok {
				groups.Groups = append(groups.Groups, metav1.APIGroup{
					Name: group, Versions: []metav1.GroupVersionForDiscovery{{GroupVersion: name, Version: version}},
				})
			}
		}
		return groups
	case parts[0] == "api" && len(parts) == 2, parts[0] == "apis" && len(parts) == 3:
		name := strings.Join(parts[1:], "/")
		if s.served[name] == nil {
			return notServed()
		}
		return &metav1.APIResourceList{TypeMeta: metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"}, GroupVersion: name, APIResources: s.served[name]}
	default:
		return nil
	}
}

// notServed is what the API server says of a path: nothing about an object.
func notServed() *apierrors.StatusError {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusNotFound, Reason: metav1.StatusReasonNotFound,
		Message: "the server could not find the requested resource", Details: &metav1.StatusDetails{},
	}}
}
