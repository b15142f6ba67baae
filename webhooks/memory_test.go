// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package webhooks

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/utils/clock"
)

// reviewOf is a review of an object of a kind, as the API server sends it. Without an object as it was, it is a creation.
func reviewOf(kind, object, old string) string {
	operation := "CREATE"
	if old != "" {
		operation, object = "UPDATE", object+`,"oldObject":`+old
	}
	return review(fmt.Sprintf(`{"uid":"1","kind":{"group":"cleaner.vtex.dev","version":"v1alpha1","kind":%q},"name":"a","namespace":"shop","operation":%q,"userInfo":{"username":"alice"},"object":%s}`, kind, operation, object))
}

// objectOf is an object with a spec, and with more of its own, such as a status.
func objectOf(kind, spec, more string) string {
	return fmt.Sprintf(`{"apiVersion":"cleaner.vtex.dev/v1alpha1","kind":%q,"metadata":{"name":"a","namespace":"shop","uid":"1"},"spec":%s%s}`, kind, spec, more)
}

// send sends a review to a handler, and gives its answer.
func send(ctx context.Context, handler http.Handler, body string) *httptest.ResponseRecorder {
	req := httptest.NewRequestWithContext(ctx, http.MethodPost, "/", strings.NewReader(body))
	req.Header.Set("Content-Type", "application/json")
	w := httptest.NewRecorder()
	handler.ServeHTTP(w, req)
	return w
}

// measureHeap returns by how much the heap grows while something is done: all that is allocated and not yet collected, with a
// collector that works as hard as it does near its limit.
func measureHeap(do func()) int64 {
	defer debug.SetGCPercent(debug.SetGCPercent(10))
	runtime.GC()
	var before runtime.MemStats
	runtime.ReadMemStats(&before)
	stop, most := make(chan struct{}), make(chan uint64)
	go func() {
		high := before.HeapAlloc
		tick := time.NewTicker(5 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-stop:
				most <- high
				return
			case <-tick.C:
				var now runtime.MemStats
				runtime.ReadMemStats(&now)
				high = max(high, now.HeapAlloc)
			}
		}
	}()
	do()
	close(stop)
	return int64(<-most - before.HeapAlloc)
}

// TestReviewsTakeBoundedMemory holds the webhook to what eight reviews at a time, the most of one address, may take, whatever
// is in them: 64 MiB.
func TestReviewsTakeBoundedMemory(t *testing.T) {
	const callers, most, whole = 8, 64 << 20, 6900 << 10
	list := func(bytes int, entry string) string {
		return "[" + strings.Repeat(entry+",", bytes/(len(entry)+1)) + entry + "]"
	}
	labels := func(bytes int) string {
		var out strings.Builder
		for i := 0; out.Len() < bytes; i++ {
			fmt.Fprintf(&out, `"k%d":"",`, i)
		}
		return "{" + out.String() + `"k":""}`
	}
	const accepted = 250 << 10 // what a spec may have
	for name, c := range map[string]struct{ path, kind, spec, more, old string }{
		"rules that are empty":    {Path, "Cleaner", `{"rules":` + list(whole, "{}") + `}`, "", ""},
		"rules that are null":     {Path, "Cleaner", `{"rules":` + list(accepted, "null") + `}`, "", ""},
		"rules that are numbers":  {Path, "Cleaner", `{"rules":` + list(accepted, "1") + `}`, "", ""},
		"targets, to be signed":   {AuthorPath, "Cleaner", `{"targets":` + list(2800<<10, "{}") + `}`, "", ""},
		"actions, to be signed":   {AuthorPath, "Cleaner", `{"rules":[{"actions":` + list(accepted, "{}") + `}]}`, "", ""},
		"maps in parameters":      {AuthorPath, "Cleaner", `{"parameters":{"a":` + list(accepted, `{"":0}`) + `}}`, "", ""},
		"labels of a target":      {AuthorPath, "Cleaner", `{"targets":[{"reference":{"matchLabels":` + labels(accepted) + `}}]}`, "", ""},
		"a status":                {AuthorPath, "Cleaner", `{"ttl":"1d"}`, `,"status":{"runs":` + list(whole, "{}") + `}`, ""},
		"an object as it was":     {AuthorPath, "Cleaner", `{"ttl":"1d"}`, "", `{"rules":` + list(whole, "{}") + `}`},
		"two ClusterCleaners":     {ClusterPath, "ClusterCleaner", `{"rules":` + list(whole/2, "{}") + `}`, "", `{"rules":` + list(whole/2, "[]") + `}`},
		"a template":              {TemplatePath, "CleanerTemplate", `{"template":{"rules":` + list(whole, "{}") + `}}`, "", ""},
		"parameters of templates": {TemplatePath, "CleanerTemplate", `{"parameters":` + list(accepted, "{}") + `}`, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			old := ""
			if c.old != "" {
				old = objectOf(c.kind, c.old, "")
			}
			handler, body := newHandlers(town(t, nil), clock.RealClock{})[c.path], reviewOf(c.kind, objectOf(c.kind, c.spec, c.more), old)
			var answers [callers]*httptest.ResponseRecorder
			took := measureHeap(func() {
				var all sync.WaitGroup
				for i := range callers {
					all.Go(func() { answers[i] = send(t.Context(), handler, body) })
				}
				all.Wait()
			})
			for _, w := range answers {
				checkAnswer(t, w, nil)
			}
			t.Logf("%d reviews of %d KiB took %d MiB: %.200s", callers, len(body)>>10, took>>20, bytes.TrimSpace(answers[0].Body.Bytes()))
			if took > most {
				t.Errorf("%d reviews of %d KiB took %d MiB of heap, more than %d", callers, len(body)>>10, took>>20, most>>20)
			}
		})
	}
}

// marshal is an object as JSON.
func marshal(t *testing.T, object any) string {
	t.Helper()
	text, err := json.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
