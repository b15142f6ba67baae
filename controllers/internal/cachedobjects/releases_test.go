// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package cachedobjects

import (
	"encoding/base64"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/vtex/cleaner/celenv/projection"
	"github.com/vtex/cleaner/controllers/internal/wire"
	"github.com/vtex/cleaner/controllers/snapshot"
)

var ofSecrets = schema.GroupVersionResource{Version: "v1", Resource: "secrets"}

// releaseSecret is the Secret of a revision of a release.
func releaseSecret(version string) *unstructured.Unstructured {
	record := `{"name":"web","info":{"status":"deployed"},"chart":{"metadata":{"name":"shop"}},"config":{"password":"hidden"}}`
	packed := base64.StdEncoding.EncodeToString([]byte(base64.StdEncoding.EncodeToString([]byte(record))))
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Secret", "type": "helm.sh/release.v1", "data": map[string]any{"release": packed},
		"metadata": map[string]any{
			"name": "sh.helm.release.v1.web.v1", "namespace": "shop", "uid": "u", "resourceVersion": version,
			"labels": map[string]any{"owner": "helm", "name": "web", "status": "deployed", "version": "1"},
		},
	}}
}

// What a watch of releases holds is what is read of the item, and nothing else of the Secret. A new version of it with the same item has the same
// content. One that could not be read is held, too.
func TestFilterOfReleases(t *testing.T) {
	f := FilterOf(&snapshot.Query{OfReleases: true, Labels: labels.SelectorFromSet(labels.Set{"owner": "helm", "name": "web"})})
	if f != FilterOf(&snapshot.Query{OfReleases: true, Labels: labels.Everything()}) || f.Labels != "owner=helm" || f.Fields != "type=helm.sh/release.v1" {
		t.Errorf("the filter is %+v", f)
	}
	reads := snapshot.NewReads(projection.Merge(projection.Identity(), projection.KeepPath("type"), projection.KeepPath("status"), projection.KeepPath("data")))
	made := func(obj any) *Object {
		t.Helper()
		o, err := f.NewObject(ofSecrets, "Secret", obj, reads)
		if err != nil {
			t.Fatal(err)
		}
		return o
	}
	first, second := made(releaseSecret("7")), made(releaseSecret("8"))
	want := map[string]any{
		"apiVersion": "v1", "kind": "Secret", "type": "helm.sh/release.v1", "status": "deployed",
		"metadata": map[string]any{"name": "sh.helm.release.v1.web.v1", "namespace": "shop", "uid": "u", "resourceVersion": "7"},
	}
	if diff := cmp.Diff(want, first.Value); diff != "" || first.LoadValue != nil || !first.OfRelease || first.Unreadable != "" || first.Labels["name"] != "web" {
		t.Errorf("it holds %+v (-want +got):\n%s", first.Object, diff)
	}
	if first.Content == 0 || first.Content == second.Content {
		t.Errorf("the contents are %d and %d", first.Content, second.Content)
	}
	if second.InheritContent(first); second.Content != first.Content {
		t.Error("the same item has another content")
	}
	if again := made(first); again != first {
		t.Error("one that is made is made again")
	}
	unread := made(&wire.Object{
		PartialObjectMetadata: metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: "a", Namespace: "shop", UID: "u", ResourceVersion: "7"}},
		Content:               func() (map[string]any, error) { return nil, errors.New("it is too large") },
	})
	if unread.Unreadable != "it is too large" || unread.Name != "a" || unread.Value["status"] != nil || unread.LoadValue != nil || unread.Bytes != len(unread.Unreadable) {
		t.Errorf("what could not be read is %+v", unread.Object)
	}
	q := snapshot.Query{OfReleases: true, Labels: labels.Everything(), Fields: fields.OneTermEqualSelector("type", "helm.sh/release.v1")}
	if !unread.MatchesQuery(&q, true, snapshot.BuiltinFieldLabels(ofSecrets.GroupResource())) {
		t.Error("what could not be read is hidden")
	}
	metadata := made(&metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: "a"}})
	if metadata.IsWhole() || metadata.OfRelease {
		t.Errorf("metadata is %+v", metadata.Object)
	}
	if _, err := f.NewObject(ofSecrets, "Secret", &metav1.Status{}, reads); err == nil {
		t.Error("a Status is an object")
	}
}
