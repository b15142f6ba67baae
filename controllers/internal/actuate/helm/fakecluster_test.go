// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package helm

import (
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"strconv"
	"testing"
	"time"

	"helm.sh/helm/v3/pkg/release"
	"helm.sh/helm/v3/pkg/releaseutil"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/yaml"

	"github.com/vtex/cleaner/controllers/plan"
)

// fakeCluster is a cluster with releases in it, and an uninstaller that acts on them.
type fakeCluster struct {
	t      *testing.T
	url    string
	clock  *clocktesting.FakeClock
	server *fakeServer
	// account, if it has a name, is whose rights the uninstaller has, and protection what it is kept from.
	account    types.NamespacedName
	protection plan.Protection
}

// newFakeCluster returns a cluster without objects that serves some kinds. Its clock stands still.
func newFakeCluster(t *testing.T) *fakeCluster {
	t.Helper()
	f := &fakeCluster{t: t, clock: clocktesting.NewFakeClock(epoch)}
	f.server = &fakeServer{t: t, clock: f.clock, objects: map[string]*unstructured.Unstructured{}, changed: make(chan struct{})}
	namespaced := func(kind, resource string) metav1.APIResource {
		return metav1.APIResource{Kind: kind, Name: resource, Namespaced: true}
	}
	f.server.served = map[string][]metav1.APIResource{
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
	server := httptest.NewServer(f.server)
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
	f.server.put(o)
}

// putRelease stores the record of a revision.
func (f *fakeCluster) putRelease(r *release.Release) {
	f.t.Helper()
	f.server.put(&unstructured.Unstructured{Object: map[string]any{
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

// annotate sets an annotation, and removes it if the value is empty.
func (f *fakeCluster) annotate(suffix, key, value string) {
	f.server.change(suffix, func(o *unstructured.Unstructured) bool {
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
	f.server.change(suffix, func(o *unstructured.Unstructured) bool {
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
	f.server.change(suffix, func(o *unstructured.Unstructured) bool {
		r := readRelease(f.t, o)
		by(r)
		check(f.t, unstructured.SetNestedField(o.Object, packedTwice(f.t, r), "data", "release"))
		return true
	})
}

func readRelease(t *testing.T, o *unstructured.Unstructured) *release.Release {
	t.Helper()
	data, _, err := unstructured.NestedString(o.Object, "data", "release")
	check(t, err)
	var text []byte
	check(t, json.Unmarshal([]byte(strconv.Quote(data)), &text))
	return unpacked(t, text)
}

// committed is what a run records of the release, and its Cleaner adds. It leaves no requests.
func (f *fakeCluster) committed() UninstallRequest {
	f.t.Helper()
	r := must(f.uninstaller().ReadRelease(f.t.Context(), nil, "team", "shop"))(f.t)
	f.server.didSend()
	return UninstallRequest{
		Namespace: "team", Name: r.Name, Revision: r.Revision, UID: r.UID, FirstDeployed: r.FirstDeployed, Digest: r.Digest,
		Rights: r.RequiredRights(false), Mark: "ours", HookTimeout: time.Hour,
	}
}

// uninstall tries once.
func (f *fakeCluster) uninstall(want UninstallRequest) (Outcome, error) {
	f.t.Helper()
	return f.uninstaller().Uninstall(f.t.Context(), nil, want, allow{})
}
