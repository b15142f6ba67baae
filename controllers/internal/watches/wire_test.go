// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package watches

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"github.com/vtex/cleaner/controllers/internal/wire"
	"github.com/vtex/cleaner/controllers/plan/observed"
	"github.com/vtex/cleaner/test/queries"
)

// contentTypes notes in which format each answer came.
type contentTypes struct {
	http.RoundTripper
	mu   sync.Mutex
	seen map[string]string // by path
}

func (c *contentTypes) RoundTrip(r *http.Request) (*http.Response, error) {
	answer, err := c.RoundTripper.RoundTrip(r)
	if err == nil {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.seen[r.URL.Path] = answer.Header.Get("Content-Type")
	}
	return answer, err
}

// versions are all objects of a list or of the beginning of a watch, by namespace, name and version, without managedFields.
func versions(items []unstructured.Unstructured) map[string]any {
	out := map[string]any{}
	for _, u := range items {
		unstructured.RemoveNestedField(u.Object, "metadata", "managedFields")
		out[fmt.Sprintf("%s/%s %s", u.GetNamespace(), u.GetName(), u.GetResourceVersion())] = u.Object
	}
	return out
}

// begins are the objects that a watch begins with.
func begins(ctx context.Context, c dynamic.Interface, gvr schema.GroupVersionResource) ([]unstructured.Unstructured, error) {
	yes := true
	w, err := c.Resource(gvr).Watch(ctx, metav1.ListOptions{SendInitialEvents: &yes, AllowWatchBookmarks: true, ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan})
	if err != nil {
		return nil, err
	}
	defer w.Stop()
	var out []unstructured.Unstructured
	for e := range w.ResultChan() {
		u, ok := e.Object.(*unstructured.Unstructured)
		if o, binary := e.Object.(*wire.Object); binary {
			content, err := o.Content()
			if err != nil {
				return nil, err
			}
			u, ok = &unstructured.Unstructured{Object: content}, true
		}
		switch {
		case !ok:
			return nil, fmt.Errorf("a %q of a %T: %v", e.Type, e.Object, e.Object)
		case e.Type == watch.Bookmark && u.GetAnnotations()[metav1.InitialEventsAnnotationKey] == "true":
			return out, nil
		case e.Type == watch.Added:
			out = append(out, *u)
		}
	}
	return nil, fmt.Errorf("the watch of %s ended", gvr)
}

// Each kind that an API server serves is read in protobuf if its types are known, else as JSON, and always as any dynamic
// client reads it.
func TestClusterIsReadAsByAnyClient(t *testing.T) {
	r := newReal(t)
	everything(t, r)
	types := &contentTypes{seen: map[string]string{}}
	config := shared.Config()
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { types.RoundTripper = next; return types })
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	ours, err := wire.NewClient(config, client, clock.RealClock{})
	if err != nil {
		t.Fatal(err)
	}
	lists, err := r.admin.Discovery().ServerPreferredResources()
	if err != nil {
		t.Fatal(err)
	}
	compared, differ := 0, []string(nil) // from what this program knows
	for _, l := range lists {
		gv, err := schema.ParseGroupVersion(l.GroupVersion)
		if err != nil {
			t.Fatal(err)
		}
		for _, kind := range l.APIResources {
			if verbs := strings.Join(kind.Verbs, " "); !strings.Contains(verbs, "list") || !strings.Contains(verbs, "watch") {
				continue
			}
			gvr := gv.WithResource(kind.Name)
			t.Run(gvr.GroupResource().String(), func(t *testing.T) {
				want, err := r.dynamic.Resource(gvr).List(t.Context(), metav1.ListOptions{})
				if err != nil {
					t.Fatal(err)
				}
				streamed, err := begins(t.Context(), ours, gvr)
				known := scheme.Scheme.IsVersionRegistered(gv)
				if known && err != nil && strings.Contains(err.Error(), "will read it from JSON") {
					known = false
					differ = append(differ, gvr.Resource)
					streamed, err = begins(t.Context(), ours, gvr)
				}
				if err != nil {
					t.Fatal(err)
				}
				got, err := ours.Resource(gvr).List(t.Context(), metav1.ListOptions{})
				if err != nil {
					t.Fatal(err)
				}
				whole := versions(want.Items)
				for name, some := range map[string][]unstructured.Unstructured{"listed": got.Items, "streamed": streamed} {
					for version, o := range versions(some) {
						if want, both := whole[version]; both { // else it has changed in between
							compared++
							if diff := cmp.Diff(want, o); diff != "" {
								t.Errorf("%s, %s (-any client +ours):\n%s", name, version, diff)
							}
						}
					}
				}
				types.mu.Lock()
				defer types.mu.Unlock()
				defer clear(types.seen)
				for path, contentType := range types.seen {
					if strings.HasSuffix(path, "/"+gvr.Resource) && strings.Contains(contentType, "protobuf") != known {
						t.Errorf("%s came as %s", path, contentType)
					}
				}
			})
		}
	}
	if compared < 200 {
		t.Errorf("only %d objects were compared", compared)
	}
	if len(differ) > 5 || slices.Contains(differ, "pods") {
		t.Errorf("%q are read as JSON: are the control plane and this program of the same year?", differ)
	}
}

// A kind whose fields are not those that this program knows is watched like any other. In the Kubernetes of the types that
// this program is built with a CSINode has a status, which it did not have before.
func TestClusterKindOfAnotherVersionIsWatched(t *testing.T) {
	r := newReal(t)
	r.may("storage.k8s.io", "csinodes")
	node := &storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{Name: r.namespace}}
	node, err := r.admin.StorageV1().CSINodes().Create(t.Context(), node, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	q := queries.New("CSINode", queries.Named(r.namespace))
	q.Group = storagev1.GroupName
	r.wakes(owner("c"), "the sync", func() { r.SetInterests(owner("c"), interests(q)) })
	r.reads(q, observed.Complete, r.namespace)
	r.wakes(owner("c"), "a change", func() {
		node.Labels = map[string]string{"a": "b"}
		if _, err := r.admin.StorageV1().CSINodes().Update(t.Context(), node, metav1.UpdateOptions{}); err != nil {
			t.Error(err)
		}
	})
	r.wakes(owner("c"), "a deletion", func() {
		if err := r.admin.StorageV1().CSINodes().Delete(t.Context(), node.Name, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})
	r.reads(q, observed.Complete)
}

// everything makes objects with values that are not written the same everywhere.
func everything(t *testing.T, r *realWorld) {
	t.Helper()
	seconds := int64(30)
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "a", Namespace: r.namespace, Annotations: map[string]string{"at": "2026-01-01T00:00:00Z"}}}
	pod.Spec = corev1.PodSpec{
		TerminationGracePeriodSeconds: &seconds,
		Containers: []corev1.Container{{
			Name: "main", Image: "example.com/main:1",
			Resources:     corev1.ResourceRequirements{Requests: corev1.ResourceList{"cpu": apiresource.MustParse("0.25"), "memory": apiresource.MustParse("1.5Gi")}},
			LivenessProbe: &corev1.Probe{ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/", Port: intstr.FromString("http")}}},
			Ports:         []corev1.ContainerPort{{Name: "http", ContainerPort: 80}},
		}},
	}
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "a", Namespace: r.namespace}, Data: map[string][]byte{"key": {0, 1, 255}, "none": {}}}
	event := &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{Name: "a", Namespace: r.namespace}, InvolvedObject: corev1.ObjectReference{Kind: "Pod", Namespace: r.namespace, Name: "a"},
		EventTime: metav1.NowMicro(), Action: "Test", Reason: "Test", ReportingController: "example.com/test", ReportingInstance: "test", Type: corev1.EventTypeNormal,
	}
	_, podErr := r.admin.CoreV1().Pods(r.namespace).Create(t.Context(), pod, metav1.CreateOptions{})
	_, secretErr := r.admin.CoreV1().Secrets(r.namespace).Create(t.Context(), secret, metav1.CreateOptions{})
	_, eventErr := r.admin.CoreV1().Events(r.namespace).Create(t.Context(), event, metav1.CreateOptions{})
	for _, err := range []error{podErr, secretErr, eventErr} {
		if err != nil {
			t.Fatal(err)
		}
	}
}
