// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package watches

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/transport"
	"k8s.io/utils/clock"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/controllers/internal/live"
	"github.com/vtex/cleaner/controllers/internal/served"
	"github.com/vtex/cleaner/controllers/plan/observed"
	"github.com/vtex/cleaner/controllers/snapshot"
	"github.com/vtex/cleaner/test/cluster"
	"github.com/vtex/cleaner/test/cluster/clustertest"
	"github.com/vtex/cleaner/test/queries"
)

// shared is the control plane of all tests that need one; nil with -short.
var shared *cluster.Cluster

func TestMain(m *testing.M) {
	clustertest.Suite{Ready: func(_ context.Context, c *cluster.Cluster) error {
		shared = c
		return nil
	}}.Main(m)
}

// realWorld is an Engine that runs against the control plane as a user of its own, who may do nothing at first.
type realWorld struct {
	*rig
	user      string
	config    *rest.Config
	namespace string
	admin     kubernetes.Interface
	dynamic   dynamic.Interface
	live      *live.Reader
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

func newReal(t *testing.T) *realWorld { return newRealThrough(t, nil) }

// newRealThrough is newReal with what each request goes through.
func newRealThrough(t *testing.T, wrap transport.WrapperFunc) *realWorld {
	t.Helper()
	if shared == nil {
		t.Skip("needs a control plane: not with -short")
	}
	r := &realWorld{user: "user-of-" + strings.ReplaceAll(t.Name(), "/", "-"), wires: &wires{}}
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
	cfg.Wrap(wrap)
	r.config = cfg
	e, err := New(Options{Config: cfg, Clock: clock.RealClock{}, RetryEvery: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	if r.live, err = live.NewReader("the operator", cfg, clock.RealClock{}, e.Resolver()); err != nil {
		t.Fatal(err)
	}
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
	r.mayInOf(r.namespace, resource, names...)
}

// mayInOf is mayIn for another namespace.
func (r *realWorld) mayInOf(namespace, resource string, names ...string) {
	r.Helper()
	meta := metav1.ObjectMeta{Name: resource + "-" + fmt.Sprint(len(names)), Namespace: namespace}
	role := &rbacv1.Role{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{{
		APIGroups: []string{""}, Resources: []string{resource}, ResourceNames: names, Verbs: []string{"get", "list", "watch"},
	}}}
	if _, err := r.admin.RbacV1().Roles(namespace).Create(r.Context(), role, metav1.CreateOptions{}); err != nil {
		r.Fatal(err)
	}
	binding := &rbacv1.RoleBinding{
		ObjectMeta: meta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: meta.Name},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: r.user}},
	}
	if _, err := r.admin.RbacV1().RoleBindings(namespace).Create(r.Context(), binding, metav1.CreateOptions{}); err != nil {
		r.Fatal(err)
	}
}

// configMap creates or replaces a ConfigMap.
func (r *realWorld) configMap(name string, labels map[string]string) {
	r.Helper()
	r.configMapOf(r.namespace, name, labels)
}

// configMapOf is configMap for another namespace.
func (r *realWorld) configMapOf(namespace, name string, labels map[string]string) {
	r.Helper()
	c := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace, Labels: labels}}
	_, err := r.admin.CoreV1().ConfigMaps(namespace).Update(r.Context(), c, metav1.UpdateOptions{})
	if apierrors.IsNotFound(err) {
		_, err = r.admin.CoreV1().ConfigMaps(namespace).Create(r.Context(), c, metav1.CreateOptions{})
	}
	if err != nil {
		r.Fatal(err)
	}
}

// accountOf creates a ServiceAccount, of which one watch serves all namespaces.
func (r *realWorld) accountOf(namespace, name string, labels map[string]string) {
	r.Helper()
	a := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}
	if _, err := r.admin.CoreV1().ServiceAccounts(namespace).Create(r.Context(), a, metav1.CreateOptions{}); err != nil {
		r.Fatal(err)
	}
}

func (r *realWorld) query(kind string, change ...func(*snapshot.Query)) snapshot.Query {
	return queries.New(kind, append(change, queries.In(r.namespace))...)
}

// livesAs checks what the API server itself says.
func (r *realWorld) livesAs(q snapshot.Query, state observed.TargetState, names ...string) {
	r.Helper()
	if got := r.live.Read(r.Context(), q); got.State != state || fmt.Sprint(queries.NamesOf(got)) != fmt.Sprint(names) {
		r.Errorf("live: %s %q %v, want %s %v", got.State, got.Detail, queries.NamesOf(got), state, names)
	}
}

// namespaces makes two namespaces more, of which the first sorts first.
func (r *realWorld) namespaces() (a, b string) {
	r.Helper()
	var names []string
	for range 2 {
		name, err := shared.Namespace(r.Context(), "chosen")
		if err != nil {
			r.Fatal(err)
		}
		names = append(names, name)
	}
	slices.Sort(names)
	return names[0], names[1]
}

// tier gives a namespace this tier, among those of this test.
func (r *realWorld) tier(namespace, tier string) {
	r.Helper()
	patch := fmt.Sprintf(`{"metadata": {"labels": {%q: %q}}}`, r.user, tier)
	if _, err := r.admin.CoreV1().Namespaces().Patch(r.Context(), namespace, types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
		r.Fatal(err)
	}
}

// findsLive waits until the watches say these objects, and checks that the API server says so too.
func (r *realWorld) findsLive(q snapshot.Query, places ...string) {
	r.Helper()
	r.finds(q, places...)
	if got := r.live.Read(r.Context(), q); got.State != observed.Complete || !slices.Equal(queries.PlacesOf(got), places) {
		r.Errorf("live: %s %q %v, want %v", got.State, got.Detail, queries.PlacesOf(got), places)
	}
}

func TestClusterNamespaceSelector(t *testing.T) {
	r := newReal(t)
	r.may("", "configmaps")
	a, b := r.namespaces()
	web := map[string]string{"app": "web"}
	r.configMapOf(a, "c", web)
	r.configMapOf(b, "c", web)
	r.tier(a, "dev")
	dev := queries.New("ConfigMap", queries.ChosenBy(r.user+"=dev"), queries.Labelled("app=web"))
	others := queries.New("ConfigMap", queries.ChosenBy(r.user), queries.Except(a), queries.Labelled("app=web"), queries.MetadataOnly)
	own := queries.New("ConfigMap", queries.In(b), queries.Labelled("app=web"))
	r.wakes(platform, "the refusal", func() { r.SetInterests(platform, interests(dev, others)) })
	r.says(dev, observed.Forbidden, "the operator is not allowed to list and watch namespaces (cluster-scoped)")
	r.livesAs(dev, observed.Forbidden)
	r.SetInterests(owner("c"), interests(own))
	r.finds(own, b+"/c")

	r.wakes(platform, "the permission", func() { r.may("", "namespaces") })
	r.findsLive(dev, a+"/c")
	r.findsLive(others)
	r.wakes(platform, "a label", func() { r.tier(b, "dev") })
	r.findsLive(dev, a+"/c", b+"/c")
	r.findsLive(others, b+"/c")
	r.wakes(platform, "another label", func() { r.tier(a, "prod") })
	r.findsLive(dev, b+"/c")
	r.wakes(platform, "an object", func() { r.configMapOf(b, "d", web) })
	r.findsLive(dev, b+"/c", b+"/d")
}

func TestClusterNamespacesWithRightsOfEach(t *testing.T) {
	r := newReal(t)
	placementOf(r.Engine).few, placementOf(r.Engine).fewNames = 0, 0
	a, b := r.namespaces()
	r.mayInOf(a, "serviceaccounts")
	web := map[string]string{"app": "web"}
	for _, namespace := range []string{a, b} {
		r.accountOf(namespace, "c", web)
	}
	both, one := queries.New("ServiceAccount", queries.Among(a, b), queries.Labelled("app=web")), queries.New("ServiceAccount", queries.In(a), queries.Labelled("app=web"))
	r.wakes(platform, "the refusal", func() { r.SetInterests(platform, interests(both)) })
	r.SetInterests(owner("c"), interests(one))
	r.says(both, observed.Forbidden, fmt.Sprintf("the operator is not allowed to list and watch serviceaccounts in namespace %q", b))
	r.livesAs(both, observed.Forbidden)
	r.finds(one, a+"/c")
	r.wakes(platform, "the permission", func() { r.mayInOf(b, "serviceaccounts") })
	r.findsLive(both, a+"/c", b+"/c")
	r.wakes(platform, "an object", func() { r.accountOf(b, "d", web) })
	r.findsLive(both, a+"/c", b+"/c", b+"/d")

	var many []string // more than are read one by one at once
	for n := range live.FewNamespaces {
		many = append(many, fmt.Sprintf("zzz-%d", n))
	}
	r.livesAs(queries.New("ServiceAccount", queries.Among(append([]string{a, b}, many...)...)), observed.Forbidden)
	r.wakes(platform, "the cluster", func() { r.may("", "serviceaccounts") })
	r.findsLive(both, a+"/c", b+"/c", b+"/d")
	wide := queries.New("ServiceAccount", queries.Among(append([]string{a, b}, many...)...), queries.Labelled("app=web"))
	r.SetInterests(platform, interests(wide))
	r.findsLive(wide, a+"/c", b+"/c", b+"/d")
}

// Labels of namespaces flip while the API server is read: of each namespace all is seen, or nothing.
func TestClusterNamespacesFlipWhileTheyAreRead(t *testing.T) {
	const each, flips = 12, 40
	r := newReal(t)
	r.may("", "configmaps")
	r.may("", "namespaces")
	a, b := r.namespaces()
	for n := range each {
		r.configMapOf(a, fmt.Sprintf("c%02d", n), map[string]string{"app": "web"})
		r.configMapOf(b, fmt.Sprintf("c%02d", n), map[string]string{"app": "web"})
	}
	q := queries.New("ConfigMap", queries.ChosenBy(r.user+"=dev"), queries.Labelled("app=web"))
	r.SetInterests(platform, interests(q))
	r.reads(q, observed.Complete)
	done, looked := make(chan struct{}), make(chan struct{}, 1)
	var readers sync.WaitGroup
	complete := 0
	for n, reader := range []snapshot.Reader{r.Engine, r.live} {
		readers.Go(func() {
			for {
				got := reader.Read(t.Context(), q)
				counts := map[string]int{}
				for _, o := range got.Objects {
					counts[o.Namespace]++
				}
				for namespace, n := range counts {
					if n != each {
						t.Errorf("%d of %d objects of namespace %s", n, each, namespace)
					}
				}
				switch {
				case got.State == observed.Complete && n == 1:
					complete++
				case got.State != observed.Complete && n == 0, got.State != observed.Failed && got.State != observed.Complete:
					t.Errorf("state is %s %q", got.State, got.Detail)
				}
				if n == 1 {
					select {
					case looked <- struct{}{}:
					default:
					}
				}
				select {
				case <-done:
					return
				default:
				}
			}
		})
	}
	for n := range flips {
		r.tier([]string{a, b}[n%2], []string{"prod", "dev"}[n/2%2])
		<-looked // faster flips would fail each live read, and show nothing
	}
	r.tier(a, "dev")
	r.tier(b, "prod")
	close(done)
	readers.Wait()
	if complete == 0 {
		t.Error("no live read was ever complete")
	}
	var names []string
	for n := range each {
		names = append(names, fmt.Sprintf("%s/c%02d", a, n))
	}
	r.findsLive(q, names...)
}

func TestClusterReadOne(t *testing.T) {
	r := newReal(t)
	r.may("", "secrets")
	r.may("", "namespaces")
	r.tier(r.namespace, "dev")
	s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "s", Labels: map[string]string{"app": "web"}}, Type: "example.com/kept"}
	if _, err := r.admin.CoreV1().Secrets(r.namespace).Create(t.Context(), s, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	ofTier := func(tier string) func(*v1alpha1.ClusterReference) {
		return func(c *v1alpha1.ClusterReference) {
			c.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{r.user: tier}}
		}
	}
	ofType := func(kind string) func(*v1alpha1.ClusterReference) {
		return func(c *v1alpha1.ClusterReference) { c.FieldSelector = "type=" + kind }
	}
	for name, tc := range map[string]struct {
		target *v1alpha1.ClusterTarget
		name   string
		want   string
	}{
		"All":       {queries.NewTarget("Secret"), "s", "true true Complete "},
		"Missing":   {queries.NewTarget("Secret"), "other", "false false Complete "},
		"Tier":      {queries.NewTarget("Secret", ofTier("dev")), "s", "true true Complete "},
		"OtherTier": {queries.NewTarget("Secret", ofTier("prod")), "s", "true false Complete "},
		"Type":      {queries.NewTarget("Secret", ofType("example.com/kept"), ofTier("dev")), "s", "true true Complete "},
		"OtherType": {queries.NewTarget("Secret", ofType("Opaque")), "s", "true false Complete "},
		"Forbidden": {queries.NewTarget("ConfigMap"), "s", fmt.Sprintf("false false Forbidden the operator is not allowed to get configmaps %q in namespace %q", "s", r.namespace)},
	} {
		t.Run(name, func(t *testing.T) {
			until(t, tc.want, func() bool { // the API server learns of rights a moment later
				found, matches, state, detail := snapshot.ReadObject(t.Context(), r.live, "", tc.target, r.namespace, tc.name)
				return fmt.Sprintf("%t %t %s %s", found != nil, matches, state, detail) == tc.want
			})
		})
	}
}

func TestClusterStartsToMatchAndLeaves(t *testing.T) {
	r := newReal(t)
	r.may("", "configmaps")
	web, name := r.query("ConfigMap", queries.Labelled("app=web")), r.query("configmaps", queries.Named("late"), queries.MetadataOnly)
	r.configMap("c", map[string]string{"app": "db"})
	r.wakes(owner("c"), "the sync", func() { r.SetInterests(owner("c"), interests(web, name)) })
	r.reads(web, observed.Complete)
	r.wakes(owner("c"), "a match", func() { r.configMap("c", map[string]string{"app": "web"}) })
	r.reads(web, observed.Complete, "c")
	r.livesAs(web, observed.Complete, "c")
	r.wakes(owner("c"), "a label that leaves", func() { r.configMap("c", nil) })
	r.reads(web, observed.Complete)
	r.livesAs(name, observed.Complete)
	r.wakes(owner("c"), "a name", func() { r.configMap("late", nil) })
	r.reads(name, observed.Complete, "late")
	r.livesAs(name, observed.Complete, "late")
	r.wakes(owner("c"), "a deletion", func() {
		if err := r.admin.CoreV1().ConfigMaps(r.namespace).Delete(t.Context(), "late", metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})
	r.reads(name, observed.Complete)
	r.livesAs(r.query("ConfigMap", queries.Named("late"), queries.Fielded("metadata.name!=late")), observed.Complete)
	r.livesAs(r.query("ConfigMap", queries.Fielded("data.x=y")), observed.Failed)
}

func TestClusterRightsGrantedRevokedGranted(t *testing.T) {
	r := newReal(t)
	q := r.query("ConfigMap", queries.Labelled("app=web"))
	r.configMap("c", map[string]string{"app": "web"})
	r.wakes(owner("c"), "the refusal", func() { r.SetInterests(owner("c"), interests(q)) })
	r.reads(q, observed.Forbidden)
	r.livesAs(q, observed.Forbidden)
	for range 2 {
		var revoke func()
		r.wakes(owner("c"), "the permission", func() { revoke = r.may("", "configmaps") })
		r.reads(q, observed.Complete, "c")
		revoke()
		r.wakes(owner("c"), "the refusal", r.wires.cut)
		r.reads(q, observed.Forbidden)
	}
}

func TestClusterRoleInOneNamespace(t *testing.T) {
	r := newReal(t)
	r.mayIn("configmaps")
	r.mayIn("secrets", "mine")
	mine, elsewhere := r.query("ConfigMap", queries.Labelled("app=web")), queries.New("ConfigMap", queries.In("default"))
	secret, other := r.query("Secret", queries.Named("mine")), r.query("Secret", queries.Named("other"))
	r.configMap("c", map[string]string{"app": "web"})
	r.SetInterests(owner("c"), interests(mine, elsewhere, secret, other))
	r.reads(mine, observed.Complete, "c")
	r.reads(elsewhere, observed.Forbidden)
	r.reads(secret, observed.Complete)
	r.reads(other, observed.Forbidden)
	r.livesAs(secret, observed.Complete)
	r.livesAs(other, observed.Forbidden)
	r.wakes(owner("c"), "the only object in scope", func() {
		s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "mine"}}
		if _, err := r.admin.CoreV1().Secrets(r.namespace).Create(t.Context(), s, metav1.CreateOptions{}); err != nil {
			t.Error(err)
		}
	})
	r.reads(secret, observed.Complete, "mine")
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
	q, red := r.query("widget", group), r.query("Widget", group, queries.Fielded("spec.color=red"))
	r.wakes(owner("c"), "the missing kind", func() { r.SetInterests(owner("c"), interests(q, red)) })
	r.reads(q, observed.NoSuchKind)
	r.livesAs(q, observed.NoSuchKind)
	crds := r.dynamic.Resource(crdsAPI)
	t.Cleanup(func() { _ = crds.Delete(context.Background(), "widgets.watches.example.com", metav1.DeleteOptions{}) })
	for range 2 {
		r.wakes(owner("c"), "the kind", func() {
			if _, err := crds.Create(t.Context(), widgetCRD(true), metav1.CreateOptions{}); err != nil {
				t.Error(err)
			}
		})
		r.reads(q, observed.Complete)
		r.widget("red", "red")
		r.widget("blue", "blue")
		r.reads(q, observed.Complete, "blue", "red")
		r.reads(red, observed.Complete, "red")
		r.livesAs(red, observed.Complete, "red")
		r.wakes(owner("c"), "the end of the kind", func() {
			if err := crds.Delete(t.Context(), "widgets.watches.example.com", metav1.DeleteOptions{}); err != nil {
				t.Error(err)
			}
		})
		r.reads(q, observed.NoSuchKind)
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
	r.SetInterests(owner("c"), interests(q))
	r.widget("w", "red")
	r.reads(q, observed.Complete, "w")
	for _, tc := range []struct {
		served bool
		state  observed.TargetState
		names  []string
	}{{false, observed.NoSuchKind, nil}, {true, observed.Complete, []string{"w"}}} {
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

// An API server says within the time for which changes are followed that it has shown all of them, also where nothing has changed for long, and of kinds
// that a CustomResourceDefinition defines.
func TestChangesCanBeFollowed(t *testing.T) {
	w := newReal(t)
	crds := w.dynamic.Resource(crdsAPI)
	t.Cleanup(func() { _ = crds.Delete(context.Background(), "widgets.watches.example.com", metav1.DeleteOptions{}) })
	until(t, "the definition is made", func() bool { // another test may have had one
		_, err := crds.Create(t.Context(), widgetCRD(true), metav1.CreateOptions{})
		return err == nil
	})
	w.widget("one", "red")
	v2 := widgets
	v2.Version = "v2"
	reader, err := live.NewReader("an administrator", shared.Config(), clock.RealClock{}, w.Resolver())
	if err != nil {
		t.Fatal(err)
	}
	for _, gvr := range []schema.GroupVersionResource{
		{Version: "v1", Resource: "pods"}, {Group: "apps", Version: "v1", Resource: "daemonsets"}, v2, {Version: "v1", Resource: "configmaps"},
	} {
		res := served.Resource{GVR: gvr, Namespaced: true}
		from, err := reader.ReadVersion(t.Context(), res, "")
		if err != nil {
			t.Fatal(err)
		}
		made, err := w.admin.CoreV1().ConfigMaps(w.namespace).Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "follow-"}}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		to, err := reader.ReadVersion(t.Context(), res, "")
		if err != nil {
			t.Fatal(err)
		}
		want := from
		if gvr.Resource == "configmaps" {
			want = made.ResourceVersion
		}
		last := ""
		until(t, "the changes of "+gvr.Resource+" are shown", func() bool { // a slow API server may send its bookmark too late
			last, err = reader.FollowChanges(t.Context(), res, "", "", "", from, to)
			return err == nil
		})
		if order, err := resourceversion.CompareResourceVersion(last, want); err != nil || order < 0 || gvr.Resource != "configmaps" && order > 0 {
			t.Errorf("%s: from %s to %s: the last change is %s, want %s", gvr.Resource, from, to, last, want)
		}
	}
}
