// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package helm

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"helm.sh/helm/v3/pkg/release"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"github.com/vtex/cleaner/controllers/internal/recordtext"
	"github.com/vtex/cleaner/controllers/plan"
	"github.com/vtex/cleaner/controllers/plan/observed"
	"github.com/vtex/cleaner/test/cluster"
	"github.com/vtex/cleaner/test/cluster/clustertest"
	"github.com/vtex/cleaner/test/helmtest"
)

// controlPlane is that of all tests of this package.
var controlPlane *cluster.Cluster

func TestMain(m *testing.M) {
	clustertest.Suite{Ready: func(_ context.Context, c *cluster.Cluster) error {
		controlPlane = c
		return nil
	}}.Main(m)
}

// world is one test's part of the cluster: a namespace, and a release named "shop" in it.
type world struct {
	t         *testing.T
	ctx       context.Context
	admin     *rest.Config
	client    kubernetes.Interface
	objects   metadata.Interface
	namespace string
	witness   *cluster.Witness
	// user is who uninstalls, in the audit log.
	user string
	// account is whose rights it has, if it is not the operator itself, and protection what it is kept from.
	account    types.NamespacedName
	protection plan.Protection
}

func newWorld(t *testing.T) *world {
	t.Helper()
	if testing.Short() {
		t.Skip("needs a control plane")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	t.Cleanup(cancel)
	w := &world{t: t, ctx: ctx, admin: controlPlane.Config()}
	w.client = must(kubernetes.NewForConfig(w.admin))(t)
	w.objects = must(metadata.NewForConfig(w.admin))(t)
	w.namespace = must(controlPlane.Namespace(ctx, "helm"))(t)
	w.user = "uninstaller-in-" + w.namespace
	w.witness = must(controlPlane.Witness())(t)
	return w
}

func must[T any](v T, err error) func(*testing.T) T {
	return func(t *testing.T) T {
		t.Helper()
		check(t, err)
		return v
	}
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// config makes a manifest of a ConfigMap.
func config(name string, annotations ...string) string {
	return fmt.Sprintf("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: %s, annotations: {%s}}\n", name, strings.Join(annotations, ", "))
}

// shop is a chart with objects that must go before others.
func shop() helmtest.Chart {
	return helmtest.Chart{Templates: map[string]string{
		"a.yaml":       config("a"),
		"b.yaml":       config("b"),
		"service.yaml": "apiVersion: v1\nkind: Service\nmetadata: {name: web}\nspec: {ports: [{port: 80}]}\n",
		"access.yaml": `apiVersion: v1
kind: ServiceAccount
metadata: {name: runner}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: runner}
rules: [{apiGroups: [""], resources: [pods], verbs: [get]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: runner}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: runner}
subjects: [{kind: ServiceAccount, name: runner}]
`,
	}}
}

// shopObjects are what shop installs, in the order of their deletion.
func shopObjects() []string {
	return []string{
		"Service web", "ConfigMap a", "ConfigMap b",
		"RoleBinding runner", "Role runner", "ServiceAccount runner",
	}
}

func (w *world) install(c helmtest.Chart) {
	w.t.Helper()
	must(helmtest.Install(w.ctx, w.admin, w.namespace, "shop", c))(w.t)
}

func (w *world) upgrade(c helmtest.Chart) {
	w.t.Helper()
	must(helmtest.Upgrade(w.ctx, w.admin, w.namespace, "shop", c))(w.t)
}

// rewrite changes what the only record of the release says, as whoever may write Secrets can.
func (w *world) rewrite(change func(*release.Release)) {
	w.t.Helper()
	secrets := w.client.CoreV1().Secrets(w.namespace)
	s := must(secrets.Get(w.ctx, "sh.helm.release.v1.shop.v1", metav1.GetOptions{}))(w.t)
	r := unpacked(w.t, s.Data["release"])
	change(r)
	s.Data["release"] = packed(w.t, r)
	must(secrets.Update(w.ctx, s, metav1.UpdateOptions{}))(w.t)
}

// unpacked is a record as Helm decodes it.
func unpacked(t testing.TB, data []byte) *release.Release {
	t.Helper()
	text, err := recordtext.Unpack(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	r := &release.Release{}
	if err := json.NewDecoder(text).Decode(r); err != nil {
		t.Fatal(err)
	}
	return r
}

// uninstaller makes one with the identity that the audit log is judged for. Faults may be put before its requests.
func (w *world) uninstaller(faults ...func(http.RoundTripper) http.RoundTripper) *Uninstaller {
	w.t.Helper()
	cfg := must(controlPlane.ConfigFor(w.user, "system:masters"))(w.t)
	for _, f := range faults {
		cfg.Wrap(f)
	}
	return must(New(Options{Config: cfg, ServiceAccount: w.account, Protection: w.protection, Clock: clock.RealClock{}}))(w.t)
}

func (w *world) look() Release {
	w.t.Helper()
	return must(w.uninstaller().ReadRelease(w.ctx, nil, w.namespace, "shop"))(w.t)
}

// committed is what a run records of the release, and its Cleaner adds.
func (w *world) committed() UninstallRequest {
	w.t.Helper()
	r := w.look()
	return UninstallRequest{
		Namespace: w.namespace, Name: r.Name, Revision: r.Revision, UID: r.UID, FirstDeployed: r.FirstDeployed, Digest: r.Digest,
		Rights: r.RequiredRights(false), Mark: "ours", HookTimeout: time.Hour, Timeout: 30 * time.Second,
	}
}

// mark writes an annotation on the only record of the release, as whoever may write Secrets can; empty takes it off.
func (w *world) mark(annotation, value string) {
	w.t.Helper()
	secrets := w.client.CoreV1().Secrets(w.namespace)
	s := must(secrets.Get(w.ctx, "sh.helm.release.v1.shop.v1", metav1.GetOptions{}))(w.t)
	if s.Annotations == nil {
		s.Annotations = map[string]string{}
	}
	s.Annotations[annotation] = value
	if value == "" {
		delete(s.Annotations, annotation)
	}
	must(secrets.Update(w.ctx, s, metav1.UpdateOptions{}))(w.t)
}

// uninstall carries the uninstall to an end, without anything that is in the way.
func (w *world) uninstall(want UninstallRequest) Outcome {
	w.t.Helper()
	return must(w.uninstaller().Uninstall(w.ctx, nil, want, allow{}))(w.t)
}

// names are the names of the objects of the test's chart that are there, and of the release's records.
func (w *world) names() []string {
	w.t.Helper()
	var names []string
	for _, r := range []schema.GroupVersionResource{
		{Version: "v1", Resource: "configmaps"}, {Version: "v1", Resource: "services"}, {Version: "v1", Resource: "serviceaccounts"},
		{Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "roles"},
		{Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "rolebindings"},
		{Group: "batch", Version: "v1", Resource: "jobs"},
		{Version: "v1", Resource: "secrets"},
	} {
		list := must(w.objects.Resource(r).Namespace(w.namespace).List(w.ctx, metav1.ListOptions{}))(w.t)
		for _, o := range list.Items {
			if o.Name != "kube-root-ca.crt" && o.Name != "default" {
				names = append(names, observed.FormatName(kindOf(r.Resource), "", o.Name))
			}
		}
	}
	slices.Sort(names)
	return names
}

// writes are the requests of the uninstaller that were no reads, in their order, after it was made sure that the log is
// complete. Each one that breaks the promise about preconditions fails the test.
func (w *world) writes() []string {
	w.t.Helper()
	fence := must(w.client.CoreV1().ConfigMaps(w.namespace).Create(w.ctx,
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "fence-"}}, metav1.CreateOptions{}))(w.t)
	events := must(w.witness.WaitFor(w.ctx, func(events []cluster.Event) bool {
		return slices.ContainsFunc(events, func(e cluster.Event) bool {
			return e.Verb == "create" && e.ObjectRef != nil && e.ObjectRef.Namespace == w.namespace && strings.Contains(string(e.ResponseObject.Raw), string(fence.UID))
		})
	}))(w.t)
	check(w.t, w.client.CoreV1().ConfigMaps(w.namespace).Delete(w.ctx, fence.Name, metav1.DeleteOptions{}))
	for _, v := range cluster.Violations(events, w.user) {
		w.t.Error(v)
	}
	var writes []string
	for _, e := range events {
		if !e.By(w.user) || e.ObjectRef == nil || slices.Contains([]string{"get", "list", "watch"}, e.Verb) {
			continue
		}
		if e.ObjectRef.Namespace != w.namespace && w.account.Name == "" {
			w.t.Errorf("%s lies outside the namespace", e)
		}
		if e.Code() >= 300 {
			continue
		}
		writes = append(writes, e.Verb+" "+observed.FormatName(kindOf(e.ObjectRef.Resource), "", e.ObjectRef.Name))
	}
	return writes
}

// wantGone checks that nothing of the release is left.
func (w *world) wantGone() {
	w.t.Helper()
	if diff := cmp.Diff([]string(nil), w.names()); diff != "" {
		w.t.Errorf("left (-want +got):\n%s", diff)
	}
}

// allow is a guard that lets everything through.
type allow struct{}

func (allow) MayStart() error               { return nil }
func (allow) MayDelete(observed.Ref) error  { return nil }
func (allow) MayRunHook(observed.Ref) error { return nil }
func (allow) MayNote(observed.Ref) error    { return nil }

// guard is a guard that does something when it is asked.
type guard struct {
	start   func() error
	delete  func(observed.Ref) error
	runHook func(observed.Ref) error
	note    func(observed.Ref) error
}

func (g guard) MayStart() error {
	if g.start == nil {
		return nil
	}
	return g.start()
}

func (g guard) MayDelete(ref observed.Ref) error {
	if g.delete == nil {
		return nil
	}
	return g.delete(ref)
}

func (g guard) MayRunHook(ref observed.Ref) error {
	if g.runHook == nil {
		return nil
	}
	return g.runHook(ref)
}

func (g guard) MayNote(ref observed.Ref) error {
	if g.note == nil {
		return nil
	}
	return g.note(ref)
}

// roundTripper is a function that serves requests.
type roundTripper func(*http.Request) (*http.Response, error)

// RoundTrip serves a request.
func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

var (
	errCrashed = errors.New("crashed")
	errRefused = errors.New("refused")
)

// crash is the death of the process at its nth write: before the request is sent, or after it was carried out and before
// the answer is read.
func crash(nth int, carriedOut bool) func(http.RoundTripper) http.RoundTripper {
	var mu sync.Mutex
	writes := 0
	return func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			mu.Lock()
			defer mu.Unlock()
			if r.Method != http.MethodGet {
				writes++
			}
			if writes < nth {
				return next.RoundTrip(r)
			}
			if writes == nth && carriedOut && r.Method != http.MethodGet {
				if response, err := next.RoundTrip(r); err == nil {
					response.Body.Close()
				}
			}
			return nil, errCrashed
		})
	}
}

// until returns when something has become true.
func (w *world) until(condition func() bool) {
	w.t.Helper()
	for !condition() {
		select {
		case <-time.After(50 * time.Millisecond):
		case <-w.t.Context().Done():
			w.t.Fatal("it did not happen in time")
		}
	}
}
