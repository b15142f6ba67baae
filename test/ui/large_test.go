// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package ui

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/util/workqueue"
)

const (
	// manyCleaners are as many as a page must stay usable with, and manySteps as many entries of a forecast.
	manyCleaners = 10_000
	manySteps    = 100_000
	// waiting is how many Cleaners predict these steps: each lists at most 5,000.
	waiting = 20
	// usable is how long a page may take to open, and a change to arrive, on a busy machine; docs/ui.md says how long they do take.
	usable = 10 * time.Second
)

// createMany creates so many objects, several at a time.
func (l *lab) createMany(resource schema.GroupVersionResource, n int, object func(i int) map[string]any) {
	l.t.Helper()
	workqueue.ParallelizeUntil(l.t.Context(), 16, n, func(i int) {
		u := &unstructured.Unstructured{Object: object(i)}
		if _, err := l.client.Resource(resource).Namespace(u.GetNamespace()).Create(l.t.Context(), u, metav1.CreateOptions{}); err != nil {
			l.t.Error(err)
		}
	})
}

// makeCleaner returns a Cleaner with a field of its spec beside its rule.
func makeCleaner(namespace, name, field string, value any, wait string) map[string]any {
	return map[string]any{
		"apiVersion": "cleaner.vtex.dev/v1alpha1", "kind": "Cleaner", "metadata": map[string]any{"namespace": namespace, "name": name},
		"spec": map[string]any{
			"lifecycle": "Recurring", field: value,
			"targets": []any{map[string]any{"name": "maps", "reference": map[string]any{"version": "v1", "kind": "ConfigMap", "matchLabels": map[string]any{"app": "many"}}}},
			"rules":   []any{map[string]any{"name": "idle", "forEach": "maps.items", "when": "true", "for": wait, "actions": []any{map[string]any{"delete": map[string]any{}}}}},
		},
	}
}

// takes says how long something takes.
func (b *tab) takes(what string, limit time.Duration, do func()) {
	b.t.Helper()
	began := time.Now()
	do()
	took := time.Since(began).Round(10 * time.Millisecond)
	if b.t.Logf("%s takes %s", what, took); took > limit {
		b.t.Errorf("%s takes %s, more than %s", what, took, limit)
	}
}

// TestLarge opens the pages in a browser, in a cluster with 10,000 Cleaners, and a forecast of 100,000 steps.
func TestLarge(t *testing.T) {
	if testing.Short() {
		t.Skip("needs a control plane: not with -short")
	}
	chromium := findChromium()
	if chromium == "" {
		t.Skip("NOT CHECKED: there is no Chromium on this machine, and CHROMIUM does not name one")
	}
	l := newLab(t)
	l.create("apiVersion: v1\nkind: Namespace\nmetadata: {name: many}\n")
	l.createMany(schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}, manySteps/waiting, func(i int) map[string]any {
		return map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"namespace": "many", "name": fmt.Sprintf("settings-%04d", i), "labels": map[string]any{"app": "many"}}}
	})
	l.createMany(cleanersResource, waiting, func(i int) map[string]any {
		return makeCleaner("many", fmt.Sprintf("waiting-%02d", i), "mode", "DryRun", fmt.Sprintf("%dh", i+1))
	})
	l.createMany(cleanersResource, manyCleaners-waiting, func(i int) map[string]any {
		return makeCleaner("team", fmt.Sprintf("suspended-%05d", i), "suspend", true, "1h")
	})
	l.setReady("True", "NothingToDo", "Nothing to clean up.")
	_, address := l.serve(t, "ui-of-many", l.plane.Config())
	b := newTab(browser(t, chromium), t, address)
	b.reads("10,003 Cleaners", "Live")

	b.takes("the list", usable, func() {
		b.open("/")
		b.has("table", "Cleaners 1–100 of 10,003")
	})
	b.takes("the last page of the list", usable, func() {
		b.open("/?page=101")
		b.has("table", "Cleaners 10,001–10,003 of 10,003")
	})
	b.takes("a filter", usable, func() {
		b.open("/?text=suspended-00042")
		b.has("table", "Cleaners 1–1 of 1")
	})
	b.open("/")
	b.reads("Live")
	b.takes("a change of a Cleaner", usable, func() {
		l.setReady("False", "AccessDenied", "You may not list pods.")
		b.reads("10,003 Cleaners, 1 needs attention", "You may not list pods.")
	})
	b.takes("the forecast", time.Minute, func() {
		ctx, cancel := context.WithTimeout(b.ctx, time.Minute)
		defer cancel()
		if err := chromedp.Do(ctx, chromedp.Navigate(b.address+"/forecast?until=7d&namespace=many")); err != nil {
			t.Fatal(err)
		}
		b.reads("100000 steps of 20 Cleaners", "98000 more steps are not in the table")
	})
	b.takes("a jump to the end of the forecast", usable, func() {
		b.has("heading", "Timeline")
		if !evaluate[bool](b, "(window.scrollTo(0, document.body.scrollHeight), window.scrollY > 0)") {
			t.Error("the page does not scroll")
		}
	})
}
