// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/vtex/cleaner/cmd/kubectl-cleaner/internal/forecast"
	"github.com/vtex/cleaner/test/screen"
)

// failedPods is a Cleaner over Pods.
const failedPods = `apiVersion: cleaner.vtex.dev/v1alpha1
kind: Cleaner
metadata: {name: failed, namespace: web}
spec:
  lifecycle: Recurring
  targets: [{name: pods, reference: {version: v1, kind: Pod}}]
  rules: [{name: failed, forEach: pods.items, when: age(item) > duration("24h"), actions: [{delete: {}}]}]
`

// serveSlowly serves Pods in two pages. The second one is reached, and waits.
func serveSlowly(t *testing.T, reached chan<- struct{}, wait <-chan struct{}) *httptest.Server {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		pods := func(first, last int, more string, remaining int) string {
			var items []string
			for i := first; i < last; i++ {
				items = append(items, fmt.Sprintf(`{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "pod-%d", "namespace": "web", "uid": "%[1]d", "resourceVersion": "1", "creationTimestamp": "2026-01-01T00:00:00Z"}}`, i))
			}
			return fmt.Sprintf(`{"kind": "PodList", "apiVersion": "v1", "metadata": {"resourceVersion": "1", "continue": %q, "remainingItemCount": %d}, "items": [%s]}`, more, remaining, strings.Join(items, ","))
		}
		w.Header().Set("Content-Type", "application/json")
		switch {
		case r.URL.Path == "/api/v1":
			fmt.Fprint(w, `{"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": "v1", "resources": [{"name": "pods", "kind": "Pod", "namespaced": true, "verbs": ["list"]}]}`)
		case r.URL.Path == "/api/v1/namespaces/web/pods" && r.URL.Query().Get("continue") == "":
			fmt.Fprint(w, pods(0, 500, "more", 3))
		case r.URL.Path == "/api/v1/namespaces/web/pods":
			reached <- struct{}{}
			select {
			case <-wait:
			case <-t.Context().Done():
			}
			fmt.Fprint(w, pods(500, 503, "", 0))
		default:
			w.WriteHeader(http.StatusNotFound)
			_ = json.NewEncoder(w).Encode(map[string]any{"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 404, "reason": "NotFound"})
		}
	}))
	t.Cleanup(server.Close)
	return server
}

// A command that takes long says on the terminal what it does, and nothing of that stays there.
func TestProgressOfReading(t *testing.T) {
	for _, args := range [][]string{{"plan"}, {"forecast"}, {"explain", "--object", "pod/web/pod-1"}} {
		t.Run(args[0], func(t *testing.T) {
			reached, wait, shown := make(chan struct{}, 1), make(chan struct{}), screen.Open(t, 80)
			server := serveSlowly(t, reached, wait)
			file := filepath.Join(t.TempDir(), "cleaner.yaml")
			write(t, file, failedPods)
			clock := clocktesting.NewFakeClock(time.Date(2026, 1, 2, 0, 0, 0, 0, time.UTC))
			var out strings.Builder
			ended := make(chan int, 1)
			go func() {
				ended <- run(t.Context(), clock, append(args, "-f", file, "--server", server.URL, "--kubeconfig", os.DevNull), strings.NewReader(""), &out, shown.Writer)
			}()
			<-reached
			clock.Step(3 * time.Second)
			shown.WaitForLine(`Reading pods in namespace "web": 500 of 503, 3s`)
			close(wait)
			if code := <-ended; code != 0 {
				t.Errorf("it ends with %d", code)
			}
			shown.WaitForLine("")
			for _, line := range shown.ListLines() {
				if strings.Contains(line, "Reading") {
					t.Errorf("at the end the screen still shows %q", line)
				}
			}
			if !strings.Contains(out.String(), "2026-01-0") {
				t.Errorf("it prints no result:\n%s", out.String())
			}
		})
	}
}

// waitingClock calls a function before it says what time it is.
type waitingClock struct {
	*clocktesting.FakeClock
	before func()
}

func (c waitingClock) Now() time.Time {
	c.before()
	return c.FakeClock.Now()
}

// The line gives way to what a command prints meanwhile.
func TestProgressOfTest(t *testing.T) {
	shown, reached, wait, calls := screen.Open(t, 80), make(chan struct{}), make(chan struct{}), 0
	clock := waitingClock{FakeClock: clocktesting.NewFakeClock(time.Date(2026, 1, 2, 0, 0, 0, 0, time.UTC)), before: func() {
		if calls++; calls == 3 { // the first one is of the line, and each other one of a case that begins
			close(reached)
			<-wait
		}
	}}
	ended := make(chan int, 1)
	go func() {
		ended <- run(t.Context(), clock, []string{"test", "../../config/templates/podgc-orphaned", "--color", "never"}, strings.NewReader(""), shown.Writer, shown.Writer)
	}()
	<-reached
	clock.Step(2 * time.Second)
	total := strings.Count(casesOf(t), "\n") - 1 // the last line is the sum
	shown.WaitForLine(fmt.Sprintf("Running cases: 1 of %d, 2s", total))
	close(wait)
	if code := <-ended; code != 0 {
		t.Errorf("it ends with %d", code)
	}
	if err := shown.Writer.Close(); err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(shown.ReadLines(), "\n"); got != casesOf(t) {
		t.Errorf("the screen shows\n%s\nand into a pipe it writes\n%s", got, casesOf(t))
	}
}

// casesOf returns what the same command writes into a pipe.
func casesOf(t *testing.T) string {
	t.Helper()
	out, errs := command(t, "test", "../../config/templates/podgc-orphaned")
	if errs != "" {
		t.Fatal(errs)
	}
	return out
}

// A forecast says how far it has come, and a plan how many items it has evaluated.
func TestProgressOfEvaluation(t *testing.T) {
	dir := t.TempDir()
	var pods []string
	for i := range 250 {
		pods = append(pods, fmt.Sprintf(`{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "pod-%d", "namespace": "web", "uid": "%[1]d", "creationTimestamp": "2026-01-01T00:00:00Z"}}`, i))
	}
	write(t, filepath.Join(dir, "cleaner.yaml"), failedPods)
	write(t, filepath.Join(dir, "objects.json"), `{"apiVersion": "v1", "kind": "List", "items": [`+strings.Join(pods, ",")+`]}`)
	p := planCommand{terminal: newTool(clocktesting.NewFakeClock(time.Now()), strings.NewReader(""), &strings.Builder{}, &strings.Builder{}).terminal}
	p.flags.file, p.flags.objects = filepath.Join(dir, "cleaner.yaml"), []string{filepath.Join(dir, "objects.json")}
	cleaners, err := p.loadCleaners(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	times, err := p.flags.parseTimes(time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC))
	if err != nil {
		t.Fatal(err)
	}
	d, world, err := p.prepareDecision(t.Context(), cleaners[0], times)
	if err != nil {
		t.Fatal(err)
	}
	var seen []string
	d.Progress = func(rule string, done, total int) { seen = append(seen, fmt.Sprintf("%s %d of %d", rule, done, total)) }
	d.ComputePlan(t.Context(), world)
	if want := []string{"failed 0 of 250", "failed 100 of 250", "failed 200 of 250"}; !cmp.Equal(seen[:min(len(seen), 3)], want) {
		t.Errorf("a plan says %q, not %q", seen, want)
	}
	var moments []string
	d.Progress = nil
	forecast.Predict(t.Context(), forecast.Input{
		Decision: d, Objects: world, Until: times.At.Add(24 * time.Hour), IsLate: func() bool { return false },
		OnMoment: func(at time.Time) { moments = append(moments, at.Format(time.TimeOnly)) },
	})
	if len(moments) < 2 || moments[0] != "12:00:00" {
		t.Errorf("a forecast looks at %q", moments)
	}
}
