// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vtex/cleaner/api/v1alpha1"
)

// The manager's own clients drop the labels of Cleaners, and those that others make of its configuration do not: a Cleaner may select
// Cleaners by their labels.
func TestOnlyTheManagersOwnClientsDropLabels(t *testing.T) {
	const (
		path  = "/apis/cleaner.vtex.dev"
		group = `{"kind":"APIGroup","apiVersion":"v1","name":"cleaner.vtex.dev","versions":[{"groupVersion":"cleaner.vtex.dev/v1alpha1","version":"v1alpha1"}]}`
	)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		answers := map[string]string{
			"/api":             `{"kind":"APIVersions","versions":["v1"]}`,
			"/api/v1":          `{"kind":"APIResourceList","groupVersion":"v1","resources":[{"name":"secrets","namespaced":true,"kind":"Secret","verbs":["get"]}]}`,
			"/apis":            `{"kind":"APIGroupList","apiVersion":"v1","groups":[` + group + `]}`,
			path:               group,
			path + "/v1alpha1": `{"kind":"APIResourceList","groupVersion":"cleaner.vtex.dev/v1alpha1","resources":[{"name":"cleaners","namespaced":true,"kind":"Cleaner","verbs":["get"]}]}`,
			path + "/v1alpha1/namespaces/shop/cleaners/c": `{"kind":"Cleaner","apiVersion":"cleaner.vtex.dev/v1alpha1","metadata":{"namespace":"shop","name":"c","uid":"u","labels":{"a":"b"},"managedFields":[]}}`,
		}
		answer, ok := answers[r.URL.Path]
		if !ok {
			http.NotFound(w, r)
			return
		}
		_, _ = io.WriteString(w, answer)
	}))
	defer server.Close()
	mgr, _, err := newManager(&rest.Config{Host: server.URL}, &flags{namespace: "cleaner-system", signingSecret: "signing", probeAddress: "0", metricsAddress: "0"})
	if err != nil {
		t.Fatal(err)
	}
	key := client.ObjectKey{Namespace: "shop", Name: "c"}
	for name, read := range map[string]func(o client.Object) error{
		"live": func(o client.Object) error { return mgr.GetAPIReader().Get(t.Context(), key, o) },
		"patch": func(o client.Object) error {
			return mgr.GetClient().Patch(t.Context(), o, client.RawPatch("application/merge-patch+json", []byte("{}")))
		},
	} {
		c := &v1alpha1.Cleaner{}
		c.Namespace, c.Name = key.Namespace, key.Name
		if err := read(c); err != nil || c.UID != "u" || c.Labels != nil {
			t.Errorf("%s: got %+v, %v", name, c.ObjectMeta, err)
		}
	}
	targets, err := dynamic.NewForConfig(mgr.GetConfig())
	if err != nil {
		t.Fatal(err)
	}
	o, err := targets.Resource(v1alpha1.GroupVersion.WithResource("cleaners")).Namespace(key.Namespace).Get(t.Context(), key.Name, metav1.GetOptions{})
	if err != nil || o.GetLabels()["a"] != "b" {
		t.Errorf("as a target: got %v, %v", o, err)
	}
}
