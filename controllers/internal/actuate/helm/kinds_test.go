// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package helm

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"

	"github.com/vtex/cleaner/controllers/plan/observed"
	"github.com/vtex/cleaner/test/cluster"
)

// TestKindIsGone uninstalls releases with a custom resource whose definition was removed.
func TestKindIsGone(t *testing.T) {
	const crd = "widgets.shop.example.com"
	const unserve = `[{"op":"replace","path":"/spec/versions/0/served","value":false}]`
	install := func(w *world) UninstallRequest {
		check(w.t, cluster.InstallCRDs(w.ctx, w.admin, "testdata/crd.yaml"))
		c := shop()
		c.Templates["widget.yaml"] = "apiVersion: shop.example.com/v1\nkind: Widget\nmetadata: {name: w}\n"
		w.install(c)
		return w.committed()
	}

	t.Run("Served", func(t *testing.T) {
		w := newWorld(t)
		got := w.uninstall(install(w))
		if !slices.Contains(refs(got.Deleted), "Widget w") {
			t.Errorf("the custom resource was not deleted: %q", refs(got.Deleted))
		}
	})
	t.Run("Gone", func(t *testing.T) {
		w := newWorld(t)
		want := install(w)
		check(t, cluster.RemoveCRD(w.ctx, w.admin, crd))
		got := w.settled(want)
		if diff := cmp.Diff(Done, got.State); diff != "" {
			t.Errorf("outcome (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff([]string{"Widget w"}, kept(got.Kept)); diff != "" {
			t.Errorf("left out (-want +got):\n%s", diff)
		}
		w.wantGone()
	})
	t.Run("PartialDiscovery", func(t *testing.T) {
		w := newWorld(t)
		want := install(w)
		w.breakDiscovery()
		check(t, cluster.RemoveCRD(w.ctx, w.admin, crd))
		got, err := w.uninstaller().Uninstall(w.ctx, nil, want, allow{})
		if !errors.Is(err, &discovery.ErrGroupDiscoveryFailed{}) {
			t.Errorf("got error %v: nobody can tell whether the kind is gone", err)
		}
		if diff := cmp.Diff(Outcome{}, got); diff != "" {
			t.Errorf("outcome (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff([]string(nil), w.writes()); diff != "" {
			t.Errorf("requests (-want +got):\n%s", diff)
		}
	})
	t.Run("NotServed", func(t *testing.T) {
		w := newWorld(t)
		want := install(w)
		w.patchCRD(unserve)
		if got, err := w.uninstaller().Uninstall(w.ctx, nil, want, allow{}); err == nil || got.State != Unfinished {
			t.Errorf("got %q, %v: want an error, the objects are only out of sight", got.State, err)
		}
		if diff := cmp.Diff([]string(nil), w.writes()); diff != "" {
			t.Errorf("requests (-want +got):\n%s", diff)
		}
		w.removeHiddenCRD()
	})
	t.Run("OutOfSightHalfWay", func(t *testing.T) {
		w := newWorld(t)
		want := install(w)
		got, err := w.uninstaller().Uninstall(w.ctx, nil, want, guard{delete: func(ref observed.Ref) error {
			if ref.Name == "web" {
				w.patchCRD(unserve)
			}
			return nil
		}})
		if err == nil || got.State != Unfinished {
			t.Errorf("got %q, %v: want an error, a path that is not served says nothing about objects", got.State, err)
		}
		if !slices.Contains(w.names(), "Secret sh.helm.release.v1.shop.v1") {
			t.Error("the record of the release is gone before its objects")
		}
		w.removeHiddenCRD()
	})
	t.Run("OtherVersion", func(t *testing.T) {
		w := newWorld(t)
		want := install(w)
		w.patchCRD(`[{"op":"add","path":"/spec/versions/1","value":{"name":"v2","served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object"}}}},
			{"op":"replace","path":"/spec/versions/0/served","value":false},{"op":"replace","path":"/spec/versions/0/storage","value":false}]`)
		got := w.settled(want)
		if !slices.Contains(refs(got.Deleted), "Widget w") {
			t.Errorf("the custom resource was not deleted: %q", refs(got.Deleted))
		}
		check(t, cluster.RemoveCRD(w.ctx, w.admin, crd))
	})
}

// settled uninstalls as soon as discovery has caught up with a change: until then it is an error, as it should be.
func (w *world) settled(want UninstallRequest) Outcome {
	w.t.Helper()
	for {
		got, err := w.uninstaller().Uninstall(w.ctx, nil, want, allow{})
		if err == nil {
			return got
		}
		select {
		case <-w.ctx.Done():
			w.t.Fatal(err)
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// patchCRD changes the definition of Widgets, and returns when v1 is no longer served.
func (w *world) patchCRD(patch string) {
	w.t.Helper()
	client := must(dynamic.NewForConfig(w.admin))(w.t)
	must(client.Resource(crdsResource()).Patch(w.ctx, "widgets.shop.example.com", types.JSONPatchType, []byte(patch), metav1.PatchOptions{}))(w.t)
	w.until(func() bool {
		_, err := w.client.Discovery().ServerResourcesForGroupVersion("shop.example.com/v1")
		return err != nil
	})
}

// removeHiddenCRD removes the definition of Widgets after its only version was no longer served. It is served again
// first: the API server may take minutes to convince itself that no object of a version that it does not serve is left.
func (w *world) removeHiddenCRD() {
	w.t.Helper()
	const name, serve = "widgets.shop.example.com", `[{"op":"replace","path":"/spec/versions/0/served","value":true}]`
	client := must(dynamic.NewForConfig(w.admin))(w.t)
	must(client.Resource(crdsResource()).Patch(w.ctx, name, types.JSONPatchType, []byte(serve), metav1.PatchOptions{}))(w.t)
	w.until(func() bool {
		_, err := w.client.Discovery().ServerResourcesForGroupVersion("shop.example.com/v1")
		return err == nil
	})
	check(w.t, cluster.RemoveCRD(w.ctx, w.admin, name))
}

// breakDiscovery registers an API without a server behind it, and returns when discovery is incomplete by it.
func (w *world) breakDiscovery() {
	w.t.Helper()
	services := schema.GroupVersionResource{Group: "apiregistration.k8s.io", Version: "v1", Resource: "apiservices"}
	const name = "v1.broken.example.com"
	text := []byte(`{"apiVersion":"apiregistration.k8s.io/v1","kind":"APIService","metadata":{"name":"` + name + `"},"spec":{
		"group":"broken.example.com","version":"v1","groupPriorityMinimum":100,"versionPriority":1,"insecureSkipTLSVerify":true,
		"service":{"namespace":"default","name":"nobody"}}}`)
	client := must(dynamic.NewForConfig(w.admin))(w.t)
	must(client.Resource(services).Patch(w.ctx, name, types.ApplyPatchType, text, metav1.PatchOptions{FieldManager: "test"}))(w.t)
	broken := func() bool {
		_, _, err := w.client.Discovery().ServerGroupsAndResources()
		return err != nil
	}
	w.t.Cleanup(func() {
		check(w.t, client.Resource(services).Delete(context.WithoutCancel(w.ctx), name, metav1.DeleteOptions{}))
		w.until(func() bool { return !broken() })
	})
	w.until(broken)
}
