// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"time"

	jsonpatch "github.com/evanphx/json-patch/v5"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	clocktesting "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/controllers/internal/contain"
	"github.com/vtex/cleaner/controllers/plan"
)

// TestAWriteNamesOnlyWhatItIsFor keeps the report from touching the record, and the record from touching the report.
func TestAWriteNamesOnlyWhatItIsFor(t *testing.T) {
	var path, body string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		text, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		path, body = r.URL.Path, string(text)
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"apiVersion":"cleaner.vtex.dev/v1alpha1","kind":"Cleaner","metadata":{"namespace":"shop","name":"c","uid":"uid","resourceVersion":"8"},`+
			`"spec":{"ttl":"1h"},"status":{"runs":1}}`)
	}))
	defer server.Close()
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	mapper := meta.NewDefaultRESTMapper(nil)
	mapper.Add(v1alpha1.GroupVersion.WithKind("Cleaner"), meta.RESTScopeNamespace)
	to, err := client.New(&rest.Config{Host: server.URL}, client.Options{Scheme: scheme, Mapper: mapper})
	if err != nil {
		t.Fatal(err)
	}
	const cleaner = "/apis/cleaner.vtex.dev/v1alpha1/namespaces/shop/cleaners/c"
	cases := map[string]struct {
		write      func(p *openRun) error
		path, body string
	}{
		"Finalizer": {
			write: func(p *openRun) error {
				return p.writeMetadata(t.Context(), func(c v1alpha1.Owner) { controllerutil.AddFinalizer(c, v1alpha1.Finalizer) })
			},
			path: cleaner, body: `{"metadata":{"finalizers":["cleaner.vtex.dev/run"],"resourceVersion":"7"}}`,
		},
		"Record": {
			write: func(p *openRun) error {
				return p.writeStatus(t.Context(), func(s *v1alpha1.CleanerStatus) { s.Run.Rows, s.Run.Result = nil, v1alpha1.ResultPartial })
			},
			path: cleaner + "/status", body: `{"metadata":{"resourceVersion":"7"},"status":{"recordedAt":"…","run":{"result":"Partial","rows":null},"signature":"…"}}`,
		},
		"Report": {
			write: func(p *openRun) error {
				_, err := p.sendReport(t.Context(), time.Now())
				return err
			},
			path: cleaner + "/status", body: `{"metadata":{"uid":"uid"},"status":{"observedGeneration":3}}`,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			o := ordered(t, 2, unchanged)
			o.r.client = to
			o.read.SetManagedFields([]metav1.ManagedFieldsEntry{{Manager: "kubectl"}})
			o.c.State().ObservedGeneration = 3 // a draft of the report
			o.c.State().Runs, o.c.State().Run = 9, nil
			if err := tc.write(o.openRun); err != nil {
				t.Fatal(err)
			}
			body = regexp.MustCompile(`("(?:signature|recordedAt)":)"[^"]+"`).ReplaceAllString(body, `$1"…"`)
			if path != tc.path || body != tc.body {
				t.Errorf("sent to %s:\n%s\nwant to %s:\n%s", path, body, tc.path, tc.body)
			}
			if name != "Report" && (o.read.GetResourceVersion() != "8" || o.read.Common().TTL != "1h" || o.c.State().Runs != 1 || o.c.State().ObservedGeneration != 3) {
				t.Errorf("the answer was not taken: read %+v, draft %+v", o.read, o.c.State())
			}
		})
	}
}

// Who asks for an evaluation is answered by the first one that has seen the targets.
func TestLastRequestedAt(t *testing.T) {
	for reason, want := range map[string]string{
		v1alpha1.ReasonNotSynced: "before", v1alpha1.ReasonNothingToDo: "now", v1alpha1.ReasonReadFailed: "now", v1alpha1.ReasonWaitingForTTL: "now",
	} {
		t.Run(reason, func(t *testing.T) {
			o := ordered(t, 0, unchanged)
			o.c.SetAnnotations(map[string]string{v1alpha1.AnnotationRequestedAt: "now"})
			o.c.State().LastRequestedAt = "before"
			o.newReport().setEvaluated(plan.Input{Now: time.Now()}, plan.Plan{Verdict: v1alpha1.VerdictWait, Reason: reason})
			if got := o.c.State().LastRequestedAt; got != want {
				t.Errorf("got %q, want %q", got, want)
			}
		})
	}
}

// The answer to a request is a part of the signed record, so nobody can take it back; any other report leaves the record alone.
func TestAnAnswerIsSigned(t *testing.T) {
	for name, request := range map[string]string{"Answer": "now", "AReport": ""} {
		t.Run(name, func(t *testing.T) {
			o := ordered(t, 1, unchanged)
			o.c.SetAnnotations(map[string]string{v1alpha1.AnnotationRequestedAt: request})
			o.newReport().setEvaluated(plan.Input{Now: time.Now()}, plan.Plan{Verdict: v1alpha1.VerdictWait, Reason: v1alpha1.ReasonNothingToDo})
			patch, err := o.reportPatch()
			if err != nil {
				t.Fatal(err)
			}
			change, err := patch.Data(nil)
			if err != nil {
				t.Fatal(err)
			}
			before, err := json.Marshal(o.read)
			if err != nil {
				t.Fatal(err)
			}
			text, err := jsonpatch.MergePatch(before, change)
			if err != nil {
				t.Fatal(err)
			}
			after := &v1alpha1.Cleaner{}
			if err := json.Unmarshal(text, after); err != nil {
				t.Fatal(err)
			}
			if _, err := verifyRecord(o.ring, after); err != nil || after.Status.LastRequestedAt != request || len(after.Status.Run.Rows) != 1 {
				t.Errorf("%v: the status is %+v", err, after.Status)
			}
			if signs := strings.Contains(string(change), "signature"); signs != (request != "") || signs != strings.Contains(string(change), `"resourceVersion":"7"`) {
				t.Errorf("the patch is %s", change)
			}
		})
	}
}

// Ready is False, and Stalled there, while somebody has to do something, wherever in a pass that was found.
func TestReady(t *testing.T) {
	for reason, want := range map[string]metav1.ConditionStatus{
		v1alpha1.ReasonAccessDenied: metav1.ConditionFalse, v1alpha1.ReasonAuthorLacksRights: metav1.ConditionFalse,
		v1alpha1.ReasonAuthorMissing: metav1.ConditionFalse, v1alpha1.ReasonNothingToDo: metav1.ConditionTrue, v1alpha1.ReasonWaitingForTTL: metav1.ConditionTrue,
	} {
		t.Run(reason, func(t *testing.T) {
			o := ordered(t, 0, unchanged)
			o.newReport().setEvaluated(plan.Input{Now: time.Now()}, plan.Plan{Verdict: v1alpha1.VerdictWait, Reason: reason, Message: "m"})
			conditions := o.c.State().Conditions
			if !meta.IsStatusConditionPresentAndEqual(conditions, v1alpha1.ConditionReady, want) {
				t.Errorf("Ready is not %s: %+v", want, conditions)
			}
			if stalled := meta.IsStatusConditionTrue(conditions, v1alpha1.ConditionStalled); stalled != (want == metav1.ConditionFalse) {
				t.Errorf("Stalled is %t", stalled)
			}
		})
	}
}

// It comes back when an item may be due. A decision that is said again has had its look: nobody looks again and again for it.
func TestAskAgain(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	cases := map[string]struct{ look, tick, want time.Duration }{
		"AtNext":      {want: time.Hour},
		"AtLook":      {look: time.Minute, want: time.Minute},
		"AtOldLook":   {look: -time.Minute, want: time.Hour},
		"AtTick":      {tick: time.Second, look: time.Minute, want: time.Second},
		"BeforeATick": {tick: time.Minute, look: time.Second, want: time.Second},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			p := newPass(&CleanerReconciler{clock: clocktesting.NewFakeClock(now)}, &v1alpha1.Cleaner{}, types.NamespacedName{}, assignment{}, newMemory("uid"))
			p.mem.evaluated = now
			d := plan.Plan{Next: now.Add(time.Hour)}
			if tc.look != 0 {
				d.Look = now.Add(tc.look)
			}
			if tc.tick != 0 {
				p.nextTick = now.Add(tc.tick)
			}
			if got := p.askAgain(d).Sub(now); got != tc.want {
				t.Errorf("it comes back after %s, want %s", got, tc.want)
			}
		})
	}
}

// TestAPanicIsAnErrorOfItsCleaner shows that a panic in a pass is said in the status, and that what the pass may have left
// half done is found out by looking.
func TestAPanicIsAnErrorOfItsCleaner(t *testing.T) {
	var reported string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		text, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		if reported = string(text); r.Method != http.MethodPatch {
			t.Errorf("it sends a %s", r.Method)
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"apiVersion":"cleaner.vtex.dev/v1alpha1","kind":"Cleaner","metadata":{"namespace":"shop","name":"c","uid":"uid"}}`)
	}))
	defer server.Close()
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	mapper := meta.NewDefaultRESTMapper(nil)
	mapper.Add(v1alpha1.GroupVersion.WithKind("Cleaner"), meta.RESTScopeNamespace)
	o := ordered(t, 1, unchanged)
	to, err := client.New(&rest.Config{Host: server.URL}, client.Options{
		Scheme: scheme, Mapper: mapper, Cache: &client.CacheOptions{Reader: o.r.client},
	})
	if err != nil {
		t.Fatal(err)
	}
	o.r.client = to
	*o.r.memories.memoryOf(o.key) = *o.mem // the sender is missing: who hands something over to it panics
	_, err = o.r.Reconcile(t.Context(), ctrl.Request{NamespacedName: o.key})
	var p *contain.Panic
	if !errors.As(err, &p) || !strings.Contains(p.Stack, "handOver") {
		t.Errorf("it returns %v", err)
	}
	if !strings.Contains(reported, `"reason":"Failed"`) || !strings.Contains(reported, "panic: ") {
		t.Errorf("the status says %s", reported)
	}
	if got := o.r.memories.memoryOf(o.key).run; got.Number != 0 {
		t.Errorf("it remembers %+v", got)
	}
}

// notServed is an API server that does not serve Cleaners for a moment: while their definition is changed.
type notServed struct{ client.Reader }

func (notServed) Get(_ context.Context, key client.ObjectKey, _ client.Object, _ ...client.GetOption) error {
	return apierrors.NewGenericServerResponse(http.StatusNotFound, "get", resourceOf(key), key.Name, "404 page not found", 0, true)
}

// TestACleanerThatIsNotServedIsNotGone shows that only the API server's word about this Cleaner makes the operator forget it.
func TestACleanerThatIsNotServedIsNotGone(t *testing.T) {
	o := ordered(t, 1, unchanged)
	mem := o.r.memories.memoryOf(o.key)
	mem.uid, mem.written = o.read.GetUID(), "8" // the cache does not have the last write yet
	o.r.live = notServed{}
	if c, err := o.r.readCleaner(t.Context(), o.key, mem); c != nil || err == nil {
		t.Errorf("got %v and the error %v, want an error, which has it tried again", c, err)
	}
	if o.r.memories.memoryOf(o.key) != mem {
		t.Error("what is known of the Cleaner is forgotten")
	}
}
