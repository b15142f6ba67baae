// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/controllers/internal/skew"
	"github.com/vtex/cleaner/controllers/internal/uninstalls"
	"github.com/vtex/cleaner/controllers/plan"
	"github.com/vtex/cleaner/controllers/plan/life"
	"github.com/vtex/cleaner/controllers/plan/observed"
	"github.com/vtex/cleaner/controllers/snapshot"
)

// A refusal is told once, and again when it is another one.
func TestARefusalIsToldOnce(t *testing.T) {
	r := newRig(t, done(v1alpha1.RuleAction{Delete: &v1alpha1.DeleteAction{}}), aPod("a", "Succeeded"))
	refuse := func(why string) {
		refusing(func(_, name string) *apierrors.StatusError { return forbidden(why, name) })(r)
		r.pass()
		r.clock.Step(time.Minute)
		r.pass()
		r.clock.Step(time.Minute)
	}
	refuse("do\nthis")
	refuse("do that")
	same(t, "deeds", []string{
		`done delete Pod shop/a: pods "a" is forbidden: you may not do that`, `done delete Pod shop/a: pods "a" is forbidden: you may not do this`,
	}, r.did())
	refusing(nil)(r)
	r.pass()
	same(t, "the latest deed", "done delete Pod shop/a: deleted: it is done", r.did()[0])
	same(t, "actions", []string{"c shop done done delete 1", "c shop refused done delete 4"}, r.measured("cleaner_actions_total"))
	same(t, "deletions", []string{"pods deleted 1", "pods refused 4"}, r.measured("cleaner_deletions_total"))
}

// What a status shows of tenants' texts is fit for a terminal: of expressions, reasons, errors, keys and names of objects.
func TestStatusIsFitToShow(t *testing.T) {
	const hostile = "\x1b[2J\r\nforged\a\u009b31m\u202eabc\u2066def\u2028"
	c := done(v1alpha1.RuleAction{Report: &v1alpha1.ReportAction{}})
	c.Spec.Conditions = []string{"'''" + hostile + "''' != ''"}
	rule := c.Spec.Rules[0]
	rule.Reason = "'''" + hostile + "'''"
	waits, fails, withheld := rule, rule, rule
	waits.Name, waits.For = "waits", "10m"
	fails.Name, fails.When = "fails", "{'a': true}['''"+hostile+"''']"
	withheld.Name, withheld.Actions = "withheld", []v1alpha1.RuleAction{{Delete: &v1alpha1.DeleteAction{}}}
	c.Spec.Rules = []v1alpha1.Rule{rule, waits, fails, withheld}
	pod := aPod("a"+hostile, "Succeeded")
	pod.SetLabels(map[string]string{v1alpha1.ProtectKey: "true"})
	pod.SetUID("uid")
	r := newRig(t, c, pod)
	r.pass()
	s := r.cleaner().Status
	s.Run = nil // whose rows name objects exactly
	if len(s.LastActions) == 0 || len(s.Pending) == 0 || len(s.Findings) == 0 || len(s.ResolvedTargets) == 0 || len(s.LastEvaluation.Conditions) == 0 || len(s.LastEvaluation.Errors) == 0 || len(s.LastEvaluation.Withheld) == 0 {
		t.Fatalf("the status lacks what is looked at: %+v", s)
	}
	for _, text := range texts(reflect.ValueOf(s)) {
		if strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsGraphic(r) }) {
			t.Errorf("the status shows %q", text)
		}
	}
}

// texts are all that a value holds.
func texts(v reflect.Value) []string {
	var out []string
	switch v.Kind() {
	case reflect.String:
		return []string{v.String()}
	case reflect.Pointer:
		if !v.IsNil() {
			return texts(v.Elem())
		}
	case reflect.Slice:
		for i := range v.Len() {
			out = append(out, texts(v.Index(i))...)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				out = append(out, texts(v.Field(i))...)
			}
		}
	}
	return out
}

func TestWhatFailsAndWaitsIsMeasured(t *testing.T) {
	c := done(v1alpha1.RuleAction{Delete: &v1alpha1.DeleteAction{}})
	c.Spec.Rules[0].For = "10m"
	c.Spec.Rules[0].When = `item.metadata.name == "a" || item.spec.nobody`
	r := newRig(t, c, aPod("a", "Succeeded"), aPod("b", "Running"), aPod("c", "Succeeded"))
	r.pass()
	same(t, "items that fail", []string{"c shop 2"}, r.measured("cleaner_failing_items"))
	same(t, "items that wait", []string{"c shop 1"}, r.measured("cleaner_pending_items"))
	same(t, "evaluations", []string{"Wait 1"}, r.measured("cleaner_evaluations_total"))
}

// The answers of the API server tell how far its clock is from this one, also behind a gateway whose own clock is another one.
func TestTheSkewIsMeasured(t *testing.T) {
	for name, root := range map[string]string{"Direct": "", "BehindAGateway": "/k8s/clusters/c"} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				away := 100 * time.Hour
				if strings.HasPrefix(r.URL.Path, root+"/api/") {
					away = -time.Hour
				}
				w.Header().Set("Date", time.Now().Add(away).UTC().Format(http.TimeFormat))
			}))
			defer server.Close()
			config := &rest.Config{Host: server.URL + root}
			meter := MeasureSkew(config, time.Minute, clock.RealClock{})
			through, err := rest.HTTPClientFor(config)
			must(t, err)
			for range 10 {
				for _, path := range []string{root + "/api/v1/pods", "/gateway"} {
					request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL+path, nil)
					must(t, err)
					answer, err := through.Do(request)
					must(t, err)
					_ = answer.Body.Close()
				}
			}
			if got := meter.ClockAhead(); got < 59*time.Minute || got > 61*time.Minute {
				t.Errorf("a clock that is an hour ahead is measured to be %s ahead", got)
			}
		})
	}
}

// answers is a function that answers requests.
type answers func(*http.Request) (*http.Response, error)

func (f answers) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// A clock that the live reads before a deletion show to be off decides nothing, although it was trusted before.
func TestAClockThatLiveReadsShowToBeOff(t *testing.T) {
	confirmed := done(deletes())
	confirmed.Spec.Rules[0].Confirm = []v1alpha1.Confirm{{Target: "pods", Name: "item.metadata.name"}}
	for name, c := range map[string]*v1alpha1.Cleaner{"Once": once(), "Recurring": confirmed} {
		for _, off := range []bool{false, true} {
			t.Run(fmt.Sprint(name, " ", off), func(t *testing.T) {
				r := newRig(t, c.DeepCopy(), aPod("a", "Succeeded"))
				meter := skew.New(skew.Options{Clock: r.clock, Max: time.Minute})
				r.opts.Skew = meter
				through := meter.WrapTransport(answers(func(*http.Request) (*http.Response, error) {
					now := r.clock.Now()
					if off {
						now = now.Add(time.Hour)
					}
					return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Date": {now.UTC().Format(http.TimeFormat)}}, Body: http.NoBody}, nil
				}))
				read := r.own.Live
				r.own.Live = reads(func(ctx context.Context, q snapshot.Query) observed.Target {
					request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://api.example/api/v1/pods", nil)
					must(t, err)
					answer, err := through.RoundTrip(request)
					must(t, err)
					_ = answer.Body.Close()
					return read.Read(ctx, q)
				})
				r.pass()
				if left := len(r.pods.names()) == 1; left != off {
					t.Errorf("left is %v", r.pods.names())
				}
				if off && r.cleaner().Status.LastEvaluation.Reason != v1alpha1.ReasonClockSkewSuspected {
					t.Errorf("it says %+v", r.cleaner().Status.LastEvaluation)
				}
			})
		}
	}
}

func TestProtectionOfOptions(t *testing.T) {
	o := Options{ProtectedNamespaces: []string{"kube-system"}, Namespace: "cleaner-system", AllowProtectedKinds: []string{"nodes"}}
	if got := o.newProtection(); !slices.Equal(got.Namespaces, o.ProtectedNamespaces) || got.Own != o.Namespace || !slices.Equal(got.AllowedKinds, o.AllowProtectedKinds) {
		t.Errorf("got %+v", got)
	}
}

// A result that could not be written is no result: it is neither told nor forgotten.
func TestAResultThatIsNotWritten(t *testing.T) {
	r := newRig(t, once(), aPod("a", "Succeeded"))
	refusing(forbidden)(r)
	r.pass()
	r.said()
	refusing(nil)(r)
	r.clock.Step(time.Minute)
	broken := errors.New("the API server is busy")
	r.client = interceptor.NewClient(r.store, interceptor.Funcs{
		SubResourcePatch: func(context.Context, client.Client, string, client.Object, client.Patch, ...client.SubResourcePatchOption) error {
			return broken
		},
	})
	if _, err := r.Reconcile(t.Context(), r.request()); !errors.Is(err, broken) {
		t.Errorf("got %v", err)
	}
	same(t, "Events", []string{"Normal Deleted targets.pods: deleted 1: Pod shop/a"}, r.said())
	same(t, "requests", []string{"delete a", "delete a"}, r.pods.took())
	r.client = r.store
	r.clock.Step(time.Minute)
	same(t, "the next pass", "again in 1h0m0s; said Normal Completed run 1: 1 pods/v1 deleted; the Cleaner is gone", r.line())
}

// What goes wrong is not hidden by the report that cannot be written either.
func TestAnErrorOfACleanerThatIsGone(t *testing.T) {
	r := newRig(t, once())
	mem, _ := r.memoryInTenure(r.key())
	p, err := r.beginPass(t.Context(), r.request(), mem)
	must(t, err)
	must(t, r.store.Delete(t.Context(), r.cleaner()))
	why := errors.New("why")
	if _, err := p.sleepUntil(t.Context(), time.Time{}, why); !errors.Is(err, why) || apierrors.IsNotFound(errors.Unwrap(err)) || err.Error() != "why" {
		t.Errorf("got %v", err)
	}
}

// The end of an uninstall is taken once, and only by the run that it is of.
func TestTheEndOfAnUninstallIsTaken(t *testing.T) {
	deed := v1alpha1.Action{Object: "release r", Action: "uninstall", Result: "done"}
	for name, tc := range map[string]struct {
		end         uninstalls.End
		busy, swept bool
		failed      string
		actions     int
	}{
		"Ended":    {end: uninstalls.End{Run: 1, Uninstalled: true, Actions: []v1alpha1.Action{deed}}, swept: true, actions: 1},
		"Failed":   {end: uninstalls.End{Run: 1, Why: "timed out", Actions: []v1alpha1.Action{deed}}, failed: "timed out", actions: 1},
		"OfOthers": {end: uninstalls.End{Run: 2, Uninstalled: true, Actions: []v1alpha1.Action{deed}}, busy: true},
	} {
		t.Run(name, func(t *testing.T) {
			o := ordered(t, 1, unchanged)
			o.executor.pass.mem.run.Busy = true
			o.executor.pass.mem.ended <- tc.end
			for range 2 { // the second finds nothing
				o.executor.pass.openRun.receiveUninstall(t.Context())
			}
			m := &o.executor.pass.mem.run
			if m.Busy != tc.busy || m.Uninstalled != tc.swept || m.Failed != tc.failed || len(o.executor.pass.mem.journal.Actions) != tc.actions {
				t.Errorf("busy %t, swept %t, failed %q, %d actions", m.Busy, m.Uninstalled, m.Failed, len(o.executor.pass.mem.journal.Actions))
			}
		})
	}
}

// A run has no more rows than a batch may have: what is left begins another one.
func TestABatchIsRecordedBeforeItIsDone(t *testing.T) {
	c := done(v1alpha1.RuleAction{Delete: &v1alpha1.DeleteAction{}})
	c.Spec.CloudEventSink = "http://127.0.0.1:1"
	r := newRig(t, c)
	for i := range life.MaxBatch + 1 {
		r.pods.put(aPod(fmt.Sprintf("p-%03d", i), "Succeeded"))
	}
	most := 0
	r.client = interceptor.NewClient(r.store, interceptor.Funcs{
		SubResourcePatch: func(ctx context.Context, to client.Client, sub string, o client.Object, patch client.Patch, opts ...client.SubResourcePatchOption) error {
			if run := o.(*v1alpha1.Cleaner).Status.Run; run != nil {
				most = max(most, len(run.Rows))
			}
			return to.SubResource(sub).Patch(ctx, o, patch, opts...)
		},
	})
	for range 3 {
		r.pass()
		r.clock.Step(time.Minute)
	}
	if most != life.MaxBatch || len(r.pods.took()) != life.MaxBatch+1 || len(r.pods.names()) > 0 {
		t.Errorf("a run has %d rows, and %d Pods are left", most, len(r.pods.names()))
	}
	same(t, "owed", []string{"1", fmt.Sprintf("%d pods/v1 deleted", life.MaxBatch), "Completed"}, runs(r.cleaner().Status.Unsent))
	same(t, "the next run", []string{"2", fmt.Sprintf("shop/p-%03d", life.MaxBatch), ""}, runs(r.cleaner().Status.Run))
}

// What the record of a run calls what each verb has done.
func TestOutcomes(t *testing.T) {
	same(t, "outcomes", map[plan.Verb]v1alpha1.Outcome{
		plan.VerbDelete: "deleted", plan.VerbEvict: "evicted", plan.VerbPatch: "patched", plan.VerbRemoveFinalizer: "patched", plan.VerbHelmUninstall: "uninstalling",
	}, life.OutcomesOfVerbs())
}
