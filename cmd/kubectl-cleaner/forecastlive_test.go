// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/yaml"

	"github.com/vtex/cleaner/api/v1alpha1"
)

// The Cleaners of forecastLive wait in the namespace team, and one of them uses a template that only the cluster has.
const forecastLive = `
apiVersion: cleaner.vtex.dev/v1alpha1
kind: CleanerTemplate
metadata: {name: of-the-cluster}
spec:
  parameters: [{name: wait, type: duration, default: 3h}]
  template:
    targets: [{name: maps, reference: {version: v1, kind: ConfigMap, matchLabels: {app: web}}}]
    rules: [{name: waits, forEach: maps.items, when: "true", for: params.wait, actions: [{delete: {}}]}]
---
apiVersion: cleaner.vtex.dev/v1alpha1
kind: Cleaner
metadata: {name: waiting, namespace: team}
spec: {lifecycle: Recurring, templateRef: {name: of-the-cluster}}
---
apiVersion: cleaner.vtex.dev/v1alpha1
kind: Cleaner
metadata: {name: broken, namespace: team}
spec: {lifecycle: Recurring, templateRef: {name: none}}
`

// testForecast predicts Cleaners of a cluster.
func testForecast(t *testing.T, s *session, client dynamic.Interface) {
	for text := range strings.SplitSeq(forecastLive, "\n---\n") {
		u := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(text), &u.Object); err != nil {
			t.Fatal(err)
		}
		resource := client.Resource(v1alpha1.GroupVersion.WithResource(strings.ToLower(u.GetKind()) + "s")).Namespace(u.GetNamespace())
		if _, err := resource.Create(t.Context(), u, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := resource.Delete(t.Context(), u.GetName(), metav1.DeleteOptions{}); err != nil {
				t.Error(err)
			}
		}()
	}
	cleaners := client.Resource(v1alpha1.GroupVersion.WithResource("cleaners"))
	readCreated := func(namespace, name string) time.Time {
		u, err := cleaners.Namespace(namespace).Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return u.GetCreationTimestamp().UTC()
	}
	created := readCreated("team", "waiting")
	at := created.Format(time.RFC3339)
	ahead := func(d time.Duration) string { return created.Add(d).Format(time.RFC3339) }

	due := readCreated("default", "preview").Add(time.Hour).Format(time.RFC3339)
	s.wants(s.run(0, "forecast", "preview", "-n", "default", "--at", at), "if nothing else changes: 1 step\n", due+"   ", "delete   ConfigMap default/a",
		"cleans up, and deletes itself, at "+due)
	s.wants(s.run(0, "forecast", "waiting", "-n", "team", "--at", at), ahead(3*time.Hour)+"   3h   delete   ConfigMap team/b   waits")

	// The status knows since when it waits.
	status := `{"status": {"pending": [{"rule": "waits", "key": "ConfigMap team/b", "until": "` + ahead(90*time.Minute) + `"}]}}`
	if _, err := cleaners.Namespace("team").Patch(t.Context(), "waiting", types.MergePatchType, []byte(status), metav1.PatchOptions{}, "status"); err != nil {
		t.Fatal(err)
	}
	s.wants(s.run(0, "forecast", "waiting", "-n", "team", "--at", at), ahead(90*time.Minute)+"   90m   delete   ConfigMap team/b   waits")
	s.wants(s.run(0, "forecast", "waiting", "-n", "team", "--at", at, "--since", ahead(-time.Hour)), ahead(2*time.Hour))

	// What prevents the operator from it is said: that is not seen in the spec and the objects.
	setReady := func(status string) {
		body := `{"status": {"conditions": [{"type": "Ready", "status": "` + status + `", "reason": "AccessDenied", "message": "You may not list pods.", "lastTransitionTime": "2026-01-01T00:00:00Z"}]}}`
		if _, err := cleaners.Namespace("team").Patch(t.Context(), "waiting", types.MergePatchType, []byte(body), metav1.PatchOptions{}, "status"); err != nil {
			t.Fatal(err)
		}
	}
	const prevented = "warning: status: Ready is False, AccessDenied: You may not list pods. As long as that is so, the operator may do less than is shown here."
	setReady("False")
	s.wants(s.run(0, "forecast", "waiting", "-n", "team", "--at", at), prevented, "ConfigMap team/b")
	setReady("True")
	if got := s.run(0, "forecast", "waiting", "-n", "team", "--at", at); strings.Contains(got, "AccessDenied") {
		t.Errorf("a Cleaner that is ready is warned of:\n%s", got)
	}

	// One that is invalid keeps none of the others from it.
	got := s.run(0, "forecast", "-n", "team", "--at", at)
	s.wants(got, "ConfigMap team/b", "warning: cannot predict Cleaner team/broken", `there is no template "none"`)
	s.wants(s.run(1, "forecast", "broken", "-n", "team"), "cannot predict Cleaner team/broken")
	s.wants(s.run(1, "forecast", "nobody", "-n", "team"), `"nobody" not found`)

	var all struct {
		Cleaners []struct {
			Kind, Cleaner string
			Steps         []struct{ Namespace, Name string }
		}
	}
	text := s.run(0, "forecast", "-A", "--at", at, "-o", "json")
	if err := json.NewDecoder(strings.NewReader(text)).Decode(&all); err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	var names []string
	for _, c := range all.Cleaners {
		name := c.Kind + " " + c.Cleaner
		for _, step := range c.Steps {
			name += " " + step.Namespace + "/" + step.Name
		}
		names = append(names, name)
	}
	want := []string{"ClusterCleaner everywhere default/a team/b", "Cleaner default/preview default/a", "Cleaner team/waiting team/b"}
	if diff := cmp.Diff(want, names); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}
