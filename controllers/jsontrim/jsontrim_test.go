// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package jsontrim

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"k8s.io/client-go/rest"
)

// serve answers each path with its text, of the type that the request accepts.
func serve(t *testing.T, text func(path string) string) *httptest.Server {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", r.Header.Get("Accept"))
		_, _ = io.WriteString(w, text(r.URL.Path))
		if strings.HasSuffix(r.URL.Path, "/hanging") {
			w.(http.Flusher).Flush()
			<-r.Context().Done()
		}
	}))
	t.Cleanup(server.Close)
	return server
}

func get(t *testing.T, client *http.Client, method, url, accept string) io.ReadCloser {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Accept", accept)
	resp, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = resp.Body.Close() })
	return resp.Body
}

// The objects in a response are where its request says, whatever the response itself looks like, also behind a gateway.
func TestShapes(t *testing.T) {
	const (
		whole    = `{"metadata":{"managedFields":[]},"items":[{"metadata":{"managedFields":[]}}],"object":{"metadata":{"managedFields":[]}}}`
		asObject = `{"metadata":{},"items":[{"metadata":{"managedFields":[]}}],"object":{"metadata":{"managedFields":[]}}}`
		asList   = `{"metadata":{"managedFields":[]},"items":[{"metadata":{}}],"object":{"metadata":{"managedFields":[]}}}`
		asEvent  = `{"metadata":{"managedFields":[]},"items":[{"metadata":{"managedFields":[]}}],"object":{"metadata":{}}}`
		js       = "application/json"
	)
	server := serve(t, func(string) string { return whole })
	for _, root := range []string{"", "/k8s/clusters/api"} {
		config := &rest.Config{Host: server.URL + root}
		LimitDepth(config)
		client, err := rest.HTTPClientFor(config)
		if err != nil {
			t.Fatal(err)
		}
		for _, tc := range []struct{ method, path, accept, want string }{
			{http.MethodGet, "/api/v1/pods?limit=500", js, asList},
			{http.MethodGet, "/api/v1/pods", js + ";as=PartialObjectMetadataList;g=meta.k8s.io;v=v1", asList},
			{http.MethodGet, "/api/v1/namespaces", js, asList},
			{http.MethodGet, "/api/v1/namespaces/a/pods?watch=false", js, asList},
			{http.MethodGet, "/apis/cleaner.vtex.dev/v1alpha1/cleaners", js, asList},
			{http.MethodGet, "/apis/cleaner.vtex.dev/v1alpha1/namespaces/a/cleaners", js, asList},
			{http.MethodGet, "/api/v1/pods?watch=true", js, asEvent},
			{http.MethodGet, "/apis/example.com/v1/namespaces/a/widgets?allowWatchBookmarks=true&watch=1", js + ";stream=watch", asEvent},
			{http.MethodGet, "/api/v1/namespaces/a", js, asObject},
			{http.MethodGet, "/api/v1/namespaces/a/pods/b", js, asObject},
			{http.MethodGet, "/apis/example.com/v1/widgets/a", js, asObject},
			{http.MethodPatch, "/apis/example.com/v1/namespaces/a/widgets/b", js, asObject},
			{http.MethodPost, "/apis/example.com/v1/namespaces/a/widgets", js, asObject},
			{http.MethodPut, "/apis/cleaner.vtex.dev/v1alpha1/namespaces/a/cleaners/b/status", js, asObject},
			{http.MethodGet, "/api/v1/pods", "application/vnd.kubernetes.protobuf", whole},
			{http.MethodGet, "/api/v1/namespaces/a/pods/b/log", "text/plain", whole},
			{http.MethodGet, "/api/v1", js, whole},
			{http.MethodGet, "/apis/example.com/v1", js, whole},
			{http.MethodGet, "/apis", js, whole},
			{http.MethodGet, "/openapi/v3/apis/apps/v1", js, whole},
			{http.MethodGet, "/healthz", js, whole},
		} {
			out, err := io.ReadAll(get(t, client, tc.method, config.Host+tc.path, tc.accept))
			if err != nil || string(out) != tc.want {
				t.Errorf("%s %s: got %s, %v, want %s", tc.method, tc.path, out, err, tc.want)
			}
		}
		if out, err := io.ReadAll(get(t, client, http.MethodGet, server.URL+"/other/api/v1/pods", js)); err != nil || string(out) != whole {
			t.Errorf("elsewhere: got %s, %v", out, err)
		}
	}
}

// Only a client that asks for it drops metadata, and only that of the kinds of the group.
func TestMetadataOfOneGroupIsDropped(t *testing.T) {
	const (
		one    = `{"metadata":{"labels":{"a":"b"}}}`
		whole  = `{"metadata":{"labels":{}},"items":[` + one + `],"object":` + one + `}`
		asList = `{"metadata":{"labels":{}},"items":[{"metadata":{}}],"object":` + one + `}`
		asOne  = `{"metadata":{},"items":[` + one + `],"object":` + one + `}`
		asSeen = `{"metadata":{"labels":{}},"items":[` + one + `],"object":{"metadata":{}}}`
	)
	server := serve(t, func(string) string { return whole })
	for _, root := range []string{"", "/k8s/clusters/apis"} {
		all := &rest.Config{Host: server.URL + root}
		LimitDepth(all)
		part := rest.CopyConfig(all)
		LimitMetadata(part, *someKept)
		for _, tc := range []struct{ method, path, want string }{
			{http.MethodGet, "/apis/example.com/v1/namespaces/a/widgets?limit=8", asList},
			{http.MethodGet, "/apis/example.com/v2/widgets", asList},
			{http.MethodGet, "/apis/example.com/v1/widgets?watch=true", asSeen},
			{http.MethodGet, "/apis/example.com/v1/namespaces/a/widgets/b", asOne},
			{http.MethodPatch, "/apis/example.com/v1/namespaces/a/widgets/b/status", asOne},
			{http.MethodGet, "/apis/example.com.au/v1/widgets", whole},
			{http.MethodGet, "/apis/apps/v1/namespaces/a/deployments", whole},
			{http.MethodGet, "/api/v1/namespaces/example.com/pods", whole},
		} {
			for config, want := range map[*rest.Config]string{all: whole, part: tc.want} {
				client, err := rest.HTTPClientFor(config)
				if err != nil {
					t.Fatal(err)
				}
				out, err := io.ReadAll(get(t, client, tc.method, config.Host+tc.path, "application/json"))
				if err != nil || string(out) != want {
					t.Errorf("%s %s: got %s, %v, want %s", tc.method, tc.path, out, err, want)
				}
			}
		}
	}
}

// A watch that begins with all that there is ends that with a bookmark, which a cache waits for.
func TestTheEndOfInitialEventsIsKept(t *testing.T) {
	const bookmark = `{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"7","annotations":{"k8s.io/initial-events-end":"true"}}}}` + "\n"
	server := serve(t, func(string) string { return bookmark })
	config := &rest.Config{Host: server.URL}
	LimitMetadata(config, *someKept)
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	out, err := io.ReadAll(get(t, client, http.MethodGet, server.URL+"/apis/example.com/v1/widgets?watch=true&sendInitialEvents=true", "application/json"))
	if err != nil || string(out) != bookmark {
		t.Errorf("got %s, %v", out, err)
	}
}

// An event is read when it has come, and not when the next one has.
func TestEventsAreNotHeldBack(t *testing.T) {
	const event = `{"type":"ADDED","object":{"metadata":{"name":"a"}}}` + "\n"
	server := serve(t, func(string) string { return event })
	config := &rest.Config{Host: server.URL}
	body := get(t, WrapClient(config, server.Client()), http.MethodGet, server.URL+"/api/v1/hanging?watch=1", "application/json")
	out := make([]byte, len(event))
	if _, err := io.ReadFull(body, out); err != nil || string(out) != event {
		t.Errorf("got %q, %v", out, err)
	}
}

// A response that passes two of them is made shallow once, and an object that was cut says so to both.
func TestWhatIsCutSaysSo(t *testing.T) {
	server := serve(t, func(path string) string {
		if strings.HasSuffix(path, "/deep") {
			return `{"kind":"Widget","spec":` + nested(9_999) + `}`
		}
		return `{"kind":"Widget","spec":` + nested(maxDepth-1) + `}`
	})
	config := &rest.Config{Host: server.URL}
	LimitDepth(config)
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	client = WrapClient(config, client)
	for name, cut := range map[string]bool{"deep": true, "whole": false} {
		var content map[string]any
		if err := json.NewDecoder(get(t, client, http.MethodGet, server.URL+"/apis/example.com/v1/widgets/"+name, "application/json")).Decode(&content); err != nil {
			t.Fatal(err)
		}
		if err := CheckWhole(content); (err != nil) != cut || content["kind"] != "Widget" {
			t.Errorf("%s: got %v", name, err)
		}
	}
}
