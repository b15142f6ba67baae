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
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"helm.sh/helm/v3/pkg/release"
	"helm.sh/helm/v3/pkg/releaseutil"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/yaml"

	"github.com/vtex/cleaner/controllers/plan"
)

// fakeCluster is an API server that keeps objects in memory. It stands in for a real one where a test has it fail: it honors
// preconditions, finalizers, pages of lists and watches of one object. A DELETE without preconditions fails the test.
type fakeCluster struct {
	t     *testing.T
	url   string
	clock *clocktesting.FakeClock
	// account, if it has a name, is whose rights the uninstaller has, and protection what it is kept from.
	account    types.NamespacedName
	protection plan.Protection
	// served are the kinds that it serves.
	served map[string][]metav1.APIResource
	// answer answers requests in the cluster's place, if it returns true. before is called before each other one, without the lock.
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

// newFakeCluster returns a cluster without objects that serves some kinds. Its clock stands still.
func newFakeCluster(t *testing.T) *fakeCluster {
	t.Helper()
	f := &fakeCluster{t: t, clock: clocktesting.NewFakeClock(epoch), objects: map[string]*unstructured.Unstructured{}, changed: make(chan struct{})}
	namespaced := func(kind, resource string) metav1.APIResource {
		return metav1.APIResource{Kind: kind, Name: resource, Namespaced: true}
	}
	f.served = map[string][]metav1.APIResource{
		"v1": {
			namespaced("ConfigMap", "configmaps"), namespaced("Secret", "secrets"), namespaced("Service", "services"), namespaced("Pod", "pods"),
			namespaced("Pod", "pods/status"), namespaced("ServiceAccount", "serviceaccounts"), {Kind: "Namespace", Name: "namespaces"},
		},
		"batch/v1": {namespaced("Job", "jobs")},
		"rbac.authorization.k8s.io/v1": {
			namespaced("Role", "roles"), namespaced("RoleBinding", "rolebindings"),
			{Kind: "ClusterRole", Name: "clusterroles"}, {Kind: "ClusterRoleBinding", Name: "clusterrolebindings"},
		},
		"apiextensions.k8s.io/v1": {{Kind: "CustomResourceDefinition", Name: "customresourcedefinitions"}},
	}
	server := httptest.NewServer(f)
	f.url = server.URL
	t.Cleanup(server.Close)
	return f
}

// fakeClusterWithAccount is one whose uninstaller acts as a ServiceAccount, and may run hooks.
func fakeClusterWithAccount(t *testing.T) *fakeCluster {
	t.Helper()
	f := newFakeCluster(t)
	f.account = types.NamespacedName{Namespace: "team", Name: "deleter"}
	return f
}

func (f *fakeCluster) uninstaller() *Uninstaller {
	f.t.Helper()
	return must(New(Options{
		Config: &rest.Config{Host: f.url, QPS: -1}, ServiceAccount: f.account, Protection: f.protection, Clock: f.clock,
	}))(f.t)
}

// install puts a release with these manifests into the cluster, and all its objects but those that tests put there themselves.
func (f *fakeCluster) install(texts ...string) *release.Release {
	f.t.Helper()
	files := map[string]string{}
	for i, text := range texts {
		files[fmt.Sprintf("%03d.yaml", i)] = text
	}
	hooks, sorted, err := releaseutil.SortManifests(files, nil, releaseutil.InstallOrder)
	check(f.t, err)
	r := made(func(r *release.Release) { r.Hooks = hooks })
	for _, m := range sorted {
		r.Manifest += "---\n# Source: " + m.Name + "\n" + m.Content + "\n"
		f.putText(m.Content)
	}
	f.putRelease(r)
	return r
}

// putText stores an object with what Helm writes on each.
func (f *fakeCluster) putText(text string) {
	f.t.Helper()
	o := &unstructured.Unstructured{}
	check(f.t, yaml.Unmarshal([]byte(text), &o.Object))
	l, a := o.GetLabels(), o.GetAnnotations()
	if l == nil {
		l = map[string]string{}
	}
	if a == nil {
		a = map[string]string{}
	}
	l[managedByLabel] = managedByHelm
	a[releaseNameAnnotation], a[releaseNamespaceAnnotation] = "shop", "team"
	o.SetLabels(l)
	o.SetAnnotations(a)
	f.put(o)
}

// putRelease stores the record of a revision.
func (f *fakeCluster) putRelease(r *release.Release) {
	f.t.Helper()
	f.put(&unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Secret", "type": string(secretType), "data": map[string]any{"release": packedTwice(f.t, r)},
		"metadata": map[string]any{
			"namespace": "team", "name": fmt.Sprintf("sh.helm.release.v1.%s.v%d", r.Name, r.Version),
			"labels": map[string]any{"owner": "helm", "name": r.Name, "status": string(r.Info.Status), "version": strconv.Itoa(r.Version)},
		},
	}})
}

// packedTwice is a record as the JSON of a Secret has it: Helm's base64, and that of a Secret.
func packedTwice(t *testing.T, r *release.Release) string {
	t.Helper()
	text := must(json.Marshal(packed(t, r)))(t)
	var s string
	check(t, json.Unmarshal(text, &s))
	return s
}

// put stores an object, in namespace team if its kind has namespaces and it names none.
func (f *fakeCluster) put(o *unstructured.Unstructured) {
	f.t.Helper()
	resource, namespaced := f.findResource(o.GroupVersionKind())
	if namespaced && o.GetNamespace() == "" {
		o.SetNamespace("team")
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.store(pathOf(resource, o.GetNamespace(), o.GetName()), o)
}

func (f *fakeCluster) findResource(kind schema.GroupVersionKind) (_ schema.GroupVersionResource, namespaced bool) {
	f.t.Helper()
	for _, r := range f.served[kind.GroupVersion().String()] {
		if r.Kind == kind.Kind {
			return kind.GroupVersion().WithResource(r.Name), r.Namespaced
		}
	}
	f.t.Fatalf("%s is not served", kind)
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
func (f *fakeCluster) store(path string, o *unstructured.Unstructured) {
	f.version++
	kind := "MODIFIED"
	if f.objects[path] == nil {
		kind = "ADDED"
		o.SetUID(types.UID(fmt.Sprint("uid-", f.version)))
		o.SetCreationTimestamp(metav1.Time{Time: f.clock.Now()})
	}
	o.SetResourceVersion(strconv.Itoa(f.version))
	f.objects[path] = o
	f.show(fakeEvent{path, kind, f.version, o.DeepCopy()})
}

// remove takes an object away. The lock is held.
func (f *fakeCluster) remove(path string) {
	f.version++
	o := f.objects[path]
	delete(f.objects, path)
	f.show(fakeEvent{path, "DELETED", f.version, o.DeepCopy()})
}

func (f *fakeCluster) show(e fakeEvent) {
	f.events = append(f.events, e)
	close(f.changed)
	f.changed = make(chan struct{})
}

// change changes an object as anybody else may: the first one whose path ends so. If the change returns false, the object is taken away.
func (f *fakeCluster) change(suffix string, by func(o *unstructured.Unstructured) bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, path := range slices.Sorted(maps.Keys(f.objects)) {
		if !strings.HasSuffix(path, suffix) {
			continue
		}
		o := f.objects[path].DeepCopy()
		if by(o) {
			f.store(path, o)
		} else {
			f.remove(path)
		}
		return
	}
	f.t.Errorf("there is no %s", suffix)
}

// annotate sets an annotation, and removes it if the value is empty.
func (f *fakeCluster) annotate(suffix, key, value string) {
	f.change(suffix, func(o *unstructured.Unstructured) bool {
		a := o.GetAnnotations()
		if a == nil {
			a = map[string]string{}
		}
		a[key] = value
		if value == "" {
			delete(a, key)
		}
		o.SetAnnotations(a)
		return true
	})
}

// hold puts a finalizer on an object, or takes all finalizers off, and the object away if it is being deleted.
func (f *fakeCluster) hold(suffix string, finalizers ...string) {
	f.change(suffix, func(o *unstructured.Unstructured) bool {
		o.SetFinalizers(finalizers)
		return len(finalizers) > 0 || o.GetDeletionTimestamp() == nil
	})
}

// setStatus changes what the record says about the release.
func (f *fakeCluster) setStatus(suffix string, s release.Status) {
	f.rewriteRecord(suffix, func(r *release.Release) { r.Info.Status = s })
}

// rewriteRecord changes what a record says, as anybody who may write Secrets can.
func (f *fakeCluster) rewriteRecord(suffix string, by func(*release.Release)) {
	f.change(suffix, func(o *unstructured.Unstructured) bool {
		r := f.readRelease(o)
		by(r)
		check(f.t, unstructured.SetNestedField(o.Object, packedTwice(f.t, r), "data", "release"))
		return true
	})
}

func (f *fakeCluster) readRelease(o *unstructured.Unstructured) *release.Release {
	f.t.Helper()
	data, _, err := unstructured.NestedString(o.Object, "data", "release")
	check(f.t, err)
	var text []byte
	check(f.t, json.Unmarshal([]byte(strconv.Quote(data)), &text))
	return unpacked(f.t, text)
}

// find returns the object whose path ends so; nil if there is none.
func (f *fakeCluster) find(suffix string) *unstructured.Unstructured {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, path := range slices.Sorted(maps.Keys(f.objects)) {
		if strings.HasSuffix(path, suffix) {
			return f.objects[path].DeepCopy()
		}
	}
	return nil
}

// left names the objects that are there.
func (f *fakeCluster) left() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	var names []string
	for path := range f.objects {
		names = append(names, namePath(path))
	}
	slices.Sort(names)
	return names
}

// didWrite are the writes that were carried out since it was last asked, and didSend how many requests there were.
func (f *fakeCluster) didWrite() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	writes := f.writes
	f.writes = nil
	return writes
}

// didSend are the requests since it was last asked.
func (f *fakeCluster) didSend() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	requests := f.requests
	f.requests = nil
	return requests
}

// committed is what a run records of the release, and its Cleaner adds. It leaves no requests.
func (f *fakeCluster) committed() UninstallRequest {
	f.t.Helper()
	r := must(f.uninstaller().ReadRelease(f.t.Context(), nil, "team", "shop"))(f.t)
	f.didSend()
	return UninstallRequest{
		Namespace: "team", Name: r.Name, Revision: r.Revision, UID: r.UID, FirstDeployed: r.FirstDeployed, Digest: r.Digest,
		Mark: "ours", HookTimeout: time.Hour,
	}
}

// uninstall tries once.
func (f *fakeCluster) uninstall(want UninstallRequest) (Outcome, error) {
	f.t.Helper()
	return f.uninstaller().Uninstall(f.t.Context(), nil, want, allow{})
}

// namePath is how messages name the object at a path.
func namePath(path string) string {
	r, _, name := splitPath(path)
	return plan.Ref{Resource: r, Name: name}.String()
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
func (f *fakeCluster) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	f.requests = append(f.requests, r.Method+" "+r.URL.Path)
	n, answer := len(f.requests), f.answer
	f.mu.Unlock()
	if answer != nil && answer(n, w, r) {
		return
	}
	if r.URL.Query().Get("watch") != "" {
		f.watch(w, r)
		return
	}
	respond(w, f.carryOut(r))
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
func (f *fakeCluster) carryOut(r *http.Request) any {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return apierrors.NewBadRequest(err.Error())
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if found := f.discover(r.URL.Path); found != nil {
		return found
	}
	resource, namespace, name := splitPath(r.URL.Path)
	if !slices.ContainsFunc(f.served[resource.GroupVersion().String()], func(s metav1.APIResource) bool { return s.Name == resource.Resource }) {
		return notServed()
	}
	path := pathOf(resource, namespace, name)
	switch now := f.objects[path]; {
	case r.Method == http.MethodGet && name == "":
		return f.list(r, resource, namespace)
	case r.Method == http.MethodPost:
		o := &unstructured.Unstructured{Object: readBody(f.t, body)}
		path = pathOf(resource, namespace, o.GetName())
		if f.objects[path] != nil {
			return apierrors.NewAlreadyExists(resource.GroupResource(), o.GetName())
		}
		f.store(path, o)
		f.runHook(path, o)
		f.writes = append(f.writes, "create "+namePath(path))
		return o.DeepCopy()
	case now == nil:
		return apierrors.NewNotFound(resource.GroupResource(), name)
	case r.Method == http.MethodGet:
		return now.DeepCopy()
	case r.Method == http.MethodPut:
		o := &unstructured.Unstructured{Object: readBody(f.t, body)}
		if o.GetResourceVersion() != now.GetResourceVersion() || o.GetUID() != now.GetUID() {
			return apierrors.NewConflict(resource.GroupResource(), name, fmt.Errorf("it has version %s", now.GetResourceVersion()))
		}
		f.store(path, o)
		f.writes = append(f.writes, "update "+namePath(path))
		return o.DeepCopy()
	default:
		return f.delete(path, now, body)
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
func (f *fakeCluster) delete(path string, now *unstructured.Unstructured, body []byte) any {
	options := &metav1.DeleteOptions{}
	check(f.t, runtime.DefaultUnstructuredConverter.FromUnstructured(readBody(f.t, body), options))
	p := options.Preconditions
	if p == nil {
		p = &metav1.Preconditions{}
	}
	if p.UID == nil || p.ResourceVersion == nil || options.PropagationPolicy == nil || *options.PropagationPolicy != metav1.DeletePropagationBackground {
		f.t.Errorf("the DELETE of %s does not say which object it means: %s", namePath(path), body)
		return apierrors.NewBadRequest("no preconditions")
	}
	resource, _, name := splitPath(path)
	if *p.UID != now.GetUID() || *p.ResourceVersion != now.GetResourceVersion() {
		return apierrors.NewConflict(resource.GroupResource(), name, fmt.Errorf("it has UID %s and version %s", now.GetUID(), now.GetResourceVersion()))
	}
	f.writes = append(f.writes, "delete "+namePath(path))
	if len(now.GetFinalizers()) == 0 {
		f.remove(path)
	} else {
		o := now.DeepCopy()
		o.SetDeletionTimestamp(&metav1.Time{Time: f.clock.Now()})
		f.store(path, o)
	}
	return &metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusSuccess}
}

// runHook ends a Job or a Pod as its label says, at once. The lock is held.
func (f *fakeCluster) runHook(path string, o *unstructured.Unstructured) {
	ends := o.GetLabels()["ends"]
	if o.GetKind() == "Job" {
		ends, _, _ = unstructured.NestedString(o.Object, "spec", "template", "metadata", "labels", "ends")
	}
	if ends == well || ends == badly {
		o = o.DeepCopy()
		endHook(o, ends)
		f.store(path, o)
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
func (f *fakeCluster) list(r *http.Request, resource schema.GroupVersionResource, namespace string) any {
	wanted, err := labels.Parse(r.URL.Query().Get("labelSelector"))
	if err != nil {
		return apierrors.NewBadRequest(err.Error())
	}
	kind, _ := strings.CutPrefix(r.URL.Query().Get("fieldSelector"), "type=")
	var items []unstructured.Unstructured
	for _, path := range slices.Sorted(maps.Keys(f.objects)) {
		is, in, _ := splitPath(path)
		o := f.objects[path]
		if is == resource && (namespace == "" || in == namespace) && wanted.Matches(labels.Set(o.GetLabels())) && (kind == "" || o.Object["type"] == kind) {
			items = append(items, *o)
		}
	}
	list := &unstructured.UnstructuredList{Object: map[string]any{"apiVersion": resource.GroupVersion().String()}}
	for _, s := range f.served[resource.GroupVersion().String()] {
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
func (f *fakeCluster) watch(w http.ResponseWriter, r *http.Request) {
	from, _ := strconv.Atoi(r.URL.Query().Get("resourceVersion"))
	name, _ := strings.CutPrefix(r.URL.Query().Get("fieldSelector"), "metadata.name=")
	path := r.URL.Path + "/" + name
	w.Header().Set("Content-Type", "application/json")
	stream := http.NewResponseController(w)
	_ = stream.Flush()
	for shown := 0; ; {
		f.mu.Lock()
		events, changed := f.events[shown:], f.changed
		shown = len(f.events)
		f.mu.Unlock()
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
func (f *fakeCluster) discover(path string) any {
	switch parts := strings.Split(strings.Trim(path, "/"), "/"); {
	case path == "/api":
		return &metav1.APIVersions{TypeMeta: metav1.TypeMeta{Kind: "APIVersions"}, Versions: []string{"v1"}}
	case path == "/apis":
		groups := &metav1.APIGroupList{TypeMeta: metav1.TypeMeta{Kind: "APIGroupList", APIVersion: "v1"}}
		for _, name := range slices.Sorted(maps.Keys(f.served)) {
			if group, version, ok := strings.Cut(name, "/"); ok {
				groups.Groups = append(groups.Groups, metav1.APIGroup{
					Name: group, Versions: []metav1.GroupVersionForDiscovery{{GroupVersion: name, Version: version}},
				})
			}
		}
		return groups
	case parts[0] == "api" && len(parts) == 2, parts[0] == "apis" && len(parts) == 3:
		name := strings.Join(parts[1:], "/")
		if f.served[name] == nil {
			return notServed()
		}
		return &metav1.APIResourceList{TypeMeta: metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"}, GroupVersion: name, APIResources: f.served[name]}
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
