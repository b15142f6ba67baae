// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"encoding/base64"
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/celenv/projection"
	"github.com/vtex/cleaner/celenv/usage"
	"github.com/vtex/cleaner/controllers/plan/observed"
)

// releaseSecret is the Secret of a revision of a release.
func releaseSecret(name string, revision int, status string) *unstructured.Unstructured {
	record := fmt.Sprintf(`{"name": %q, "info": {"status": %q, "last_deployed": "2026-01-02T03:04:05Z"}, "chart": {"metadata": {"name": "shop"}}}`, name, status)
	packed := base64.StdEncoding.EncodeToString([]byte(base64.StdEncoding.EncodeToString([]byte(record))))
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Secret", "type": "helm.sh/release.v1", "data": map[string]any{"release": packed},
		"metadata": map[string]any{
			"name": fmt.Sprintf("sh.helm.release.v1.%s.v%d", name, revision), "namespace": "shop", "uid": fmt.Sprint("u-", name, revision), "resourceVersion": "7",
			"labels": map[string]any{"owner": "helm", "name": name, "status": status, "version": fmt.Sprint(revision)}, "finalizers": []any{"example.com/a"},
		},
	}}
}

var ofSecrets = schema.GroupVersionResource{Version: "v1", Resource: "secrets"}

// releaseTarget is a target of Helm releases.
func releaseTarget(labels map[string]string) *v1alpha1.ClusterTarget {
	h := &v1alpha1.ClusterHelmReleases{HelmReleases: v1alpha1.HelmReleases{MatchLabels: labels}}
	return &v1alpha1.ResolveTargets([]v1alpha1.ClusterTarget{{Name: "releases", HelmReleases: h}})[0]
}

// Of the Secrets of files, a target of releases has the items; one that cannot be read is among them.
func TestReleasesOfFiles(t *testing.T) {
	o := NewObjects()
	o.AddKind(schema.GroupVersion{Version: "v1"}, metav1.APIResource{Name: "secrets", SingularName: "secret", Kind: "Secret", Namespaced: true})
	empty := releaseSecret("bad", 1, "deployed")
	delete(empty.Object, "data")
	other := releaseSecret("other", 1, "deployed")
	other.Object["type"] = "Opaque"
	for _, u := range []*unstructured.Unstructured{releaseSecret("web", 1, "superseded"), releaseSecret("web", 2, "deployed"), empty, other} {
		if err := o.AddObject(u); err != nil {
			t.Fatal(err)
		}
	}
	if err := o.AddUnread(releaseSecret("deep", 1, "deployed"), errors.New("it is nested too deep")); err != nil {
		t.Fatal(err)
	}
	if err := o.SortObjects(); err != nil {
		t.Fatal(err)
	}
	seen := readTarget(t.Context(), o, "shop", releaseTarget(nil))
	got := map[string]string{}
	for _, o := range seen.Objects {
		got[o.Name] = fmt.Sprintf("%v %v %s", o.Value["revision"], o.Value["status"], o.Unreadable)
		if o.Value["data"] != nil || !o.OfRelease || len(o.Finalizers) != 1 || o.Value["unreadable"] != nil != (o.Unreadable != "") {
			t.Errorf("%+v", o)
		}
	}
	want := map[string]string{
		"sh.helm.release.v1.web.v1": "1 superseded ", "sh.helm.release.v1.web.v2": "2 deployed ",
		"sh.helm.release.v1.bad.v1": "<nil> <nil> the Secret has no data.release", "sh.helm.release.v1.deep.v1": "<nil> <nil> it is nested too deep",
	}
	if diff := cmp.Diff(want, got); diff != "" || seen.State != observed.Complete {
		t.Errorf("%s %s (-want +got):\n%s", seen.State, seen.Detail, diff)
	}
	if some := readTarget(t.Context(), o, "shop", releaseTarget(map[string]string{"status": "superseded"})); len(some.Objects) != 1 || some.Objects[0].Name != "sh.helm.release.v1.web.v1" {
		t.Errorf("by labels it selects %+v", some.Objects)
	}
	found, matches, state, detail := ReadObject(t.Context(), o, "shop", releaseTarget(nil), "", "sh.helm.release.v1.web.v2")
	if state != observed.Complete || !matches || found.Value["status"] != "deployed" || !found.OfRelease {
		t.Errorf("by name it is %s %s %t %+v", state, detail, matches, found)
	}
	before := o.Clone()
	changed := releaseSecret("web", 2, "superseded")
	if !o.ReplaceObject("u-web2", changed.Object) {
		t.Fatal("there is no such Secret")
	}
	if found, _, _, _ = ReadObject(t.Context(), o, "shop", releaseTarget(nil), "", "sh.helm.release.v1.web.v2"); found == nil || found.Value["status"] != "superseded" {
		t.Errorf("after a change it is %+v", found)
	}
	if found, _, _, _ = ReadObject(t.Context(), before, "shop", releaseTarget(nil), "", "sh.helm.release.v1.web.v2"); found == nil || found.Value["status"] != "deployed" {
		t.Errorf("before it, it was %+v", found)
	}
}

// Targets of releases and of the same Secrets do not share a list.
func TestReleasesAreReadForThemselves(t *testing.T) {
	plain := *releaseTarget(nil)
	plain.HelmReleases = nil
	qs := NewQueries("shop", &v1alpha1.Work{Targets: []v1alpha1.ClusterTarget{plain, *releaseTarget(nil), *releaseTarget(nil)}})
	if qs[1].same != 1 || qs[2].same != 1 || qs[0].OfReleases || !qs[1].OfReleases {
		t.Errorf("targets share: %d, %d", qs[1].same, qs[2].same)
	}
}

// What decisions see of a release has no more than is read, but what they need of each object.
func TestReleaseKeepsWhatIsRead(t *testing.T) {
	qs := NewReadingQueries("shop", &v1alpha1.Work{Targets: []v1alpha1.ClusterTarget{*releaseTarget(nil)}}, map[string]usage.Reading{
		"releases": {Projection: projection.Merge(projection.KeepPath("status"), projection.KeepPath("chart", "version"))},
	})
	before := releaseSecret("web", 2, "deployed")
	first := FromAnswer(&observed.Object{Ref: observed.Ref{Resource: ofSecrets}, OfRelease: true}, before)
	if !first.OfRelease || first.Value["status"] != "deployed" || first.Value["data"] != nil {
		t.Errorf("an answer is read as %+v", first)
	}
	o := FromReleaseItem(ofSecrets, first.Value, qs[0].Reads)
	if o.Value["revision"] != nil || o.Value["lastDeployed"] != nil || o.Value["status"] != "deployed" || o.Labels["owner"] != "helm" || len(o.Finalizers) != 1 {
		t.Errorf("it has %+v", o)
	}
	if plain := FromAnswer(&observed.Object{Ref: observed.Ref{Resource: ofSecrets}}, before); plain.OfRelease || plain.Value["data"] == nil {
		t.Errorf("an answer about a Secret is read as %+v", plain)
	}
}
