// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"

	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vtex/cleaner/test/operator"
)

// fillManagedFields fills managedFields of an object of ours as deep as the API server stores them, which it is asked for directly:
// no client could read the object back in a list.
func (e *env) fillManagedFields(t *testing.T, u client.Object, resource string) {
	t.Helper()
	const deepest = 9995
	config := e.Config()
	web, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	patch := `{"metadata":{"managedFields":[{"manager":"x","operation":"Apply","apiVersion":"cleaner.vtex.dev/v1alpha1","time":"2026-01-01T00:00:00Z","fieldsType":"FieldsV1","fieldsV1":{"f:zzz":` +
		strings.Repeat(`{"f:a":`, deepest-1) + "{}" + strings.Repeat("}", deepest-1) + `}}]}}`
	path := "/apis/cleaner.vtex.dev/v1alpha1/namespaces/" + u.GetNamespace() + "/" + resource + "/" + u.GetName()
	for tries := 3; ; tries-- { // the API server needs many seconds for it, and gives up after 34
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPatch, config.Host+path, strings.NewReader(patch))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", "application/merge-patch+json")
		resp, err := web.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err == nil && resp.StatusCode == http.StatusOK && strings.Contains(string(text), strings.Repeat(`{"f:a":`, 1000)) {
			return
		}
		if resp.StatusCode != http.StatusGatewayTimeout || tries == 1 {
			t.Fatalf("the API server does not store it: %s %.300s %v", resp.Status, text, err)
		}
	}
}

// An API server stores managedFields that no decoder can read in a list or an event, and asks no webhook. A user who fills his own
// Cleaner with them stops no other: the operator hears of each change, also after a restart, and the webhook lists what uses a template.
func TestACleanerThatIsTooDeepStopsNoOther(t *testing.T) {
	e := shared
	mine, theirs := e.namespace(t), e.namespace(t)
	e.stored(t, "deep", keepNewest)
	poison := cleaner(t, mine, "poison", "{lifecycle: Recurring, suspend: true, rules: [{name: a, forEach: '[1]', when: 'true', actions: [{report: {}}]}]}")
	if err := e.Create(t.Context(), poison); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { // other tests list
		if err := e.Delete(context.Background(), poison); err != nil {
			t.Error(err)
		}
	})
	e.fillManagedFields(t, poison, "cleaners")
	lives := func(name string) {
		t.Helper()
		u := cleaner(t, theirs, name, "{lifecycle: Recurring, rules: [{name: a, forEach: '[1]', when: 'true', actions: [{report: {}}]}]}")
		if err := e.Create(t.Context(), u); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the operator hears of "+name, func(ctx context.Context) string {
			ready, err := e.ready(ctx, client.ObjectKeyFromObject(u))
			if err != nil {
				return err.Error()
			}
			if ready == "" {
				return "it has no status"
			}
			return ""
		})
	}
	lives("watched")
	t.Run("Template", func(t *testing.T) {
		template := object(t, "CleanerTemplate", "deep", strings.Replace(keepNewest, "default: 3", "default: 4", 1))
		if err := e.Patch(t.Context(), template, client.Merge); err != nil {
			t.Errorf("an administrator cannot change a template: %v", err)
		}
	})
	t.Run("Restart", func(t *testing.T) {
		if err := e.manager.Kill(); err != nil {
			t.Fatal(err)
		}
		var err error
		if e.manager, err = operator.Run(context.WithoutCancel(t.Context()), e.Cluster, operator.Options{Binary: e.binary, Name: "again", Webhook: e.gate, Args: []string{"--min-interval=100ms"}}); err != nil {
			t.Fatal(err)
		}
		lives("listed")
	})
}
