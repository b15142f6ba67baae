// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package watches

import (
	"context"
	"flag"
	"fmt"
	"net"
	"os"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/utils/clock"

	"github.com/vtex/cleaner/controllers/plan"
	"github.com/vtex/cleaner/controllers/snapshot"
	"github.com/vtex/cleaner/test/cluster"
)

// shared is the control plane of all tests that need one; nil with -short.
var shared *cluster.Cluster

func TestMain(m *testing.M) {
	flag.Parse()
	os.Exit(run(m))
}

func run(m *testing.M) int {
	if testing.Short() {
		return m.Run()
	}
	c, err := cluster.Start(context.Background(), cluster.Options{Log: os.Stderr})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	shared = c
	code := m.Run()
	if err := c.Stop(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}

// realWorld is an Engine that runs against the control plane as a user of its own, who may do nothing at first.
type realWorld struct {
	*rig
	user      string
	namespace string
	admin     kubernetes.Interface
	dynamic   dynamic.Interface
	live      *Live
	wires     *wires
}

// wires are the connections of an Engine, so that a test can cut them.
type wires struct {
	mu   sync.Mutex
	open []net.Conn
}

func (w *wires) dial(ctx context.Context, network, address string) (net.Conn, error) {
	c, err := (&net.Dialer{}).DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.open = append(w.open, c)
	return c, nil
}

func (w *wires) cut() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range w.open {
		_ = c.Close()
	}
	w.open = nil
}

func newReal(t *testing.T) *realWorld {
	t.Helper()
	if shared == nil {
		t.Skip("needs a control plane: not with -short")
	}
	r := &realWorld{user: "user-of-" + t.Name(), wires: &wires{}}
	var err error
	if r.namespace, err = shared.Namespace(t.Context(), "watches"); err != nil {
		t.Fatal(err)
	}
	r.admin = kubernetes.NewForConfigOrDie(shared.Config())
	r.dynamic = dynamic.NewForConfigOrDie(shared.Config())
	cfg, err := shared.ConfigFor(r.user)
	if err != nil {
		t.Fatal(err)
	}
	cfg.Dial = r.wires.dial
	e, err := New(Options{Config: cfg, Clock: clock.RealClock{}, RetryEvery: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	r.live = NewLive("the operator", dynamic.NewForConfigOrDie(cfg), metadata.NewForConfigOrDie(cfg), e.Resolver())
	r.rig = startRig(t, e, nil)
	return r
}

// may lets the user read a resource in all namespaces, until it is called.
func (r *realWorld) may(group, resource string) (revoke func()) {
	r.Helper()
	name := r.user + "-" + resource
	rules := []rbacv1.PolicyRule{{APIGroups: []string{group}, Resources: []string{resource}, Verbs: []string{"get", "list", "watch"}}}
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: rules}
	if _, err := r.admin.RbacV1().ClusterRoles().Create(r.Context(), role, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		r.Fatal(err)
	}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: r.user}},
	}
	if _, err := r.admin.RbacV1().ClusterRoleBindings().Create(r.Context(), binding, metav1.CreateOptions{}); err != nil {
		r.Fatal(err)
	}
	revoke = sync.OnceFunc(func() {
		if err := r.admin.RbacV1().ClusterRoleBindings().Delete(context.Background(), name, metav1.DeleteOptions{}); err != nil {
			r.Error(err)
		}
	})
	r.Cleanup(revoke)
	return revoke
}

// mayIn lets the user read a resource in the test's namespace: all of it, or objects of these names.
func (r *realWorld) mayIn(resource string, names ...string) {
	r.Helper()
	meta := metav1.ObjectMeta{Name: resource + "-" + fmt.Sprint(len(names)), Namespace: r.namespace}
	role := &rbacv1.Role{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{{
		APIGroups: []string{""}, Resources: []string{resource}, ResourceNames: names, Verbs: []string{"get", "list", "watch"},
	}}}
	if _, err := r.admin.RbacV1().Roles(r.namespace).Create(r.Context(), role, metav1.CreateOptions{}); err != nil {
		r.Fatal(err)
	}
	binding := &rbacv1.RoleBinding{
		ObjectMeta: meta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: meta.Name},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: r.user}},
	}
	if _, err := r.admin.RbacV1().RoleBindings(r.namespace).Create(r.Context(), binding, metav1.CreateOptions{}); err != nil {
		r.Fatal(err)
	}
}

// configMap creates or replaces a ConfigMap.
func (r *realWorld) configMap(name string, labels map[string]string) {
	r.Helper()
	c := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: r.namespace, Labels: labels}}
	_, err := r.admin.CoreV1().ConfigMaps(r.namespace).Update(r.Context(), c, metav1.UpdateOptions{})
	if apierrors.IsNotFound(err) {
		_, err = r.admin.CoreV1().ConfigMaps(r.namespace).Create(r.Context(), c, metav1.CreateOptions{})
	}
	if err != nil {
		r.Fatal(err)
	}
}

func (r *realWorld) query(kind string, change ...func(*snapshot.Query)) snapshot.Query {
	return query(kind, append(change, in(r.namespace))...)
}

// livesAs checks what the API server itself says.
func (r *realWorld) livesAs(q snapshot.Query, state plan.TargetState, names ...string) {
	r.Helper()
	if got := r.live.Read(r.Context(), q); got.State != state || fmt.Sprint(namesOf(got)) != fmt.Sprint(names) {
		r.Errorf("live: %s %q %v, want %s %v", got.State, got.Detail, namesOf(got), state, names)
	}
}

func TestClusterStartsToMatchAndLeaves(t *testing.T) {
	r := newReal(t)
	r.may("", "configmaps")
	web, name := r.query("ConfigMap", labelled("app=web")), r.query("configmaps", named("late"), metadataOnly)
	r.configMap("c", map[string]string{"app": "db"})
	r.wakes(owner("c"), "the sync", func() { r.Want(owner("c"), interests(web, name)) })
	r.reads(web, plan.Complete)
	r.wakes(owner("c"), "a match", func() { r.configMap("c", map[string]string{"app": "web"}) })
	r.reads(web, plan.Complete, "c")
	r.livesAs(web, plan.Complete, "c")
	r.wakes(owner("c"), "a label that leaves", func() { r.configMap("c", nil) })
	r.reads(web, plan.Complete)
	r.livesAs(name, plan.Complete)
	r.wakes(owner("c"), "a name", func() { r.configMap("late", nil) })
	r.reads(name, plan.Complete, "late")
	r.livesAs(name, plan.Complete, "late")
	r.wakes(owner("c"), "a deletion", func() {
		if err := r.admin.CoreV1().ConfigMaps(r.namespace).Delete(t.Context(), "late", metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})
	r.reads(name, plan.Complete)
	r.livesAs(r.query("ConfigMap", named("late"), fielded("metadata.name!=late")), plan.Complete)
	r.livesAs(r.query("ConfigMap", fielded("data.x=y")), plan.Failed)
}

func TestClusterRightsGrantedRevokedGranted(t *testing.T) {
	r := newReal(t)
	q := r.query("ConfigMap", labelled("app=web"))
	r.configMap("c", map[string]string{"app": "web"})
	r.wakes(owner("c"), "the refusal", func() { r.Want(owner("c"), interests(q)) })
	r.reads(q, plan.Forbidden)
	r.livesAs(q, plan.Forbidden)
	for range 2 {
		var revoke func()
		r.wakes(owner("c"), "the permission", func() { revoke = r.may("", "configmaps") })
		r.reads(q, plan.Complete, "c")
		revoke()
		r.wakes(owner("c"), "the refusal", r.wires.cut)
		r.reads(q, plan.Forbidden)
	}
}

func TestClusterRoleInOneNamespace(t *testing.T) {
	r := newReal(t)
	r.mayIn("configmaps")
	r.mayIn("secrets", "mine")
	mine, elsewhere := r.query("ConfigMap", labelled("app=web")), query("ConfigMap", in("default"))
	secret, other := r.query("Secret", named("mine")), r.query("Secret", named("other"))
	r.configMap("c", map[string]string{"app": "web"})
	r.Want(owner("c"), interests(mine, elsewhere, secret, other))
	r.reads(mine, plan.Complete, "c")
	r.reads(elsewhere, plan.Forbidden)
	r.reads(secret, plan.Complete)
	r.reads(other, plan.Forbidden)
	r.livesAs(secret, plan.Complete)
	r.livesAs(other, plan.Forbidden)
	r.wakes(owner("c"), "the only object in scope", func() {
		s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "mine"}}
		if _, err := r.admin.CoreV1().Secrets(r.namespace).Create(t.Context(), s, metav1.CreateOptions{}); err != nil {
			t.Error(err)
		}
	})
	r.reads(secret, plan.Complete, "mine")
}

var (
	widgets = schema.GroupVersionResource{Group: "watches.example.com", Version: "v1", Resource: "widgets"}
	crdsAPI = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
)

// widgetCRD defines widgets in v1, which may be served, and v2, which is.
func widgetCRD(servesV1 bool) *unstructured.Unstructured {
	version := func(name string, served, storage bool) any {
		return map[string]any{
			"name": name, "served": served, "storage": storage,
			"selectableFields": []any{map[string]any{"jsonPath": ".spec.color"}},
			"schema": map[string]any{"openAPIV3Schema": map[string]any{"type": "object", "properties": map[string]any{
				"spec": map[string]any{"type": "object", "properties": map[string]any{"color": map[string]any{"type": "string"}}},
			}}},
		}
	}
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": map[string]any{"name": "widgets.watches.example.com"},
		"spec": map[string]any{
			"group": widgets.Group, "scope": "Namespaced", "names": map[string]any{"kind": "Widget", "plural": "widgets", "singular": "widget"},
			"versions": []any{version("v1", servesV1, false), version("v2", true, true)},
		},
	}}
}

// widget creates a widget as soon as its kind is served.
func (r *realWorld) widget(name, color string) {
	r.Helper()
	w := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "watches.example.com/v2", "kind": "Widget", "metadata": map[string]any{"name": name}, "spec": map[string]any{"color": color},
	}}
	v2 := widgets
	v2.Version = "v2"
	until(r.T, "a widget is created", func() bool {
		_, err := r.dynamic.Resource(v2).Namespace(r.namespace).Create(r.Context(), w, metav1.CreateOptions{})
		return err == nil
	})
}

func TestClusterKindComesGoesAndComesBack(t *testing.T) {
	r := newReal(t)
	r.may(widgets.Group, "widgets")
	r.may(crdsAPI.Group, crdsAPI.Resource)
	group := func(q *snapshot.Query) { q.Group = widgets.Group }
	q, red := r.query("widget", group), r.query("Widget", group, fielded("spec.color=red"))
	r.wakes(owner("c"), "the missing kind", func() { r.Want(owner("c"), interests(q, red)) })
	r.reads(q, plan.NoSuchKind)
	r.livesAs(q, plan.NoSuchKind)
	crds := r.dynamic.Resource(crdsAPI)
	t.Cleanup(func() { _ = crds.Delete(context.Background(), "widgets.watches.example.com", metav1.DeleteOptions{}) })
	for range 2 {
		r.wakes(owner("c"), "the kind", func() {
			if _, err := crds.Create(t.Context(), widgetCRD(true), metav1.CreateOptions{}); err != nil {
				t.Error(err)
			}
		})
		r.reads(q, plan.Complete)
		r.widget("red", "red")
		r.widget("blue", "blue")
		r.reads(q, plan.Complete, "blue", "red")
		r.reads(red, plan.Complete, "red")
		r.livesAs(red, plan.Complete, "red")
		r.wakes(owner("c"), "the end of the kind", func() {
			if err := crds.Delete(t.Context(), "widgets.watches.example.com", metav1.DeleteOptions{}); err != nil {
				t.Error(err)
			}
		})
		r.reads(q, plan.NoSuchKind)
		until(t, "the definition is gone", func() bool {
			_, err := crds.Get(t.Context(), "widgets.watches.example.com", metav1.GetOptions{})
			return apierrors.IsNotFound(err)
		})
	}
}

func TestClusterVersionIsServedNoLonger(t *testing.T) {
	r := newReal(t)
	r.may(widgets.Group, "widgets")
	r.may(crdsAPI.Group, crdsAPI.Resource)
	crds := r.dynamic.Resource(crdsAPI)
	t.Cleanup(func() { _ = crds.Delete(context.Background(), "widgets.watches.example.com", metav1.DeleteOptions{}) })
	q := r.query("widget", func(q *snapshot.Query) { q.Group = widgets.Group })
	if _, err := crds.Create(t.Context(), widgetCRD(true), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	r.Want(owner("c"), interests(q))
	r.widget("w", "red")
	r.reads(q, plan.Complete, "w")
	for _, tc := range []struct {
		served bool
		state  plan.TargetState
		names  []string
	}{{false, plan.NoSuchKind, nil}, {true, plan.Complete, []string{"w"}}} {
		r.wakes(owner("c"), "another definition", func() {
			until(t, "the definition is updated", func() bool {
				now, err := crds.Get(t.Context(), "widgets.watches.example.com", metav1.GetOptions{})
				if err != nil {
					return false
				}
				now.Object["spec"] = widgetCRD(tc.served).Object["spec"]
				_, err = crds.Update(t.Context(), now, metav1.UpdateOptions{})
				return err == nil
			})
		})
		r.reads(q, tc.state, tc.names...)
		if tc.served {
			r.livesAs(q, tc.state, tc.names...)
		}
	}
}
