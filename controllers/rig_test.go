// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"fmt"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	clocktesting "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/celenv"
	"github.com/vtex/cleaner/celenv/speccache"
	"github.com/vtex/cleaner/controllers/internal/actuate"
	"github.com/vtex/cleaner/controllers/internal/clients"
	"github.com/vtex/cleaner/controllers/internal/events"
	"github.com/vtex/cleaner/controllers/internal/fair"
	"github.com/vtex/cleaner/controllers/internal/identity"
	"github.com/vtex/cleaner/controllers/internal/memoryquota"
	"github.com/vtex/cleaner/controllers/internal/metrics"
	"github.com/vtex/cleaner/controllers/internal/outbox"
	"github.com/vtex/cleaner/controllers/internal/skew"
	"github.com/vtex/cleaner/controllers/internal/uninstallpool"
	"github.com/vtex/cleaner/controllers/internal/watches"
	"github.com/vtex/cleaner/controllers/plan/observed"
	"github.com/vtex/cleaner/controllers/shards"
	"github.com/vtex/cleaner/controllers/snapshot"
)

// epoch is when the Cleaners of a rig are created.
var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// rig is a Reconciler of one Cleaner, c in the namespace shop, without a control plane: the Cleaner is in a store, and
// Pods and the Namespace are behind a server.
type rig struct {
	*CleanerReconciler
	t      *testing.T
	name   string // of the Cleaner
	clock  *clocktesting.FakeClock
	store  client.WithWatch
	events *heard
	pods   *podServer
	// lease says that this process owns the Cleaner.
	lease    bool
	registry *prometheus.Registry
	// schemas are what fields are checked with, once something runs r.fields.
	schemas *knownSchemas
}

// newRig makes a rig of a Cleaner, which was created at epoch, and of Pods.
func newRig(t *testing.T, c *v1alpha1.Cleaner, pods ...*unstructured.Unstructured) *rig {
	t.Helper()
	r := &rig{t: t, name: "c", clock: clocktesting.NewFakeClock(epoch.Add(time.Hour)), events: &heard{}, lease: true, schemas: &knownSchemas{}}
	r.pods = &podServer{t: t, clock: r.clock, objects: map[string]*unstructured.Unstructured{}}
	r.pods.put(&unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": "shop", "uid": "uid-shop"}}})
	for _, p := range pods {
		r.pods.put(p)
	}
	c.Namespace, c.Name, c.UID, c.Generation, c.CreationTimestamp = "shop", r.name, "uid", 1, metav1.NewTime(epoch)

	server := httptest.NewServer(r.pods)
	t.Cleanup(server.Close)
	config := &rest.Config{Host: server.URL, QPS: -1}
	compiler, err := celenv.NewCompiler(celenv.Options{})
	must(t, err)
	r.registry = prometheus.NewRegistry()
	count, err := metrics.New(r.registry)
	must(t, err)
	engine, err := watches.New(watches.Options{Config: config, Clock: r.clock, Discovery: r.pods})
	must(t, err)
	factory, err := clients.NewFactory(clients.Config{Operator: config, Watches: engine, Access: identity.NewAccess(nil, r.clock), Metrics: count, Slots: fair.NewSlots(changesAtATime, r.clock), Ahead: func() time.Duration { return 0 }, Clock: r.clock})
	must(t, err)
	actuator, err := actuate.New(config, fair.NewSlots(changesAtATime, r.clock))
	must(t, err)
	sender, err := outbox.NewSender(outbox.Options{Clock: r.clock, Policy: outbox.Policy{AllowLoopback: true}, DeliveryChanged: func(types.NamespacedName) {}})
	must(t, err)
	opts := Options{
		Clock: r.clock, Shards: owner{rig: r}, Skew: skew.New(skew.Options{Clock: r.clock}), ActWithoutAuthor: true,
		MinInterval: DefaultMinInterval, Settle: DefaultSettle, FinishGrace: DefaultFinishGrace, ProtectedNamespaces: []string{"kube-system"},
	}
	r.CleanerReconciler = &CleanerReconciler{
		compiler: speccache.NewCache(compiler), watches: engine, resolver: engine.Resolver(), clients: factory, keys: newTestKeys(t),
		own:  &clients.Set{Watched: reads(r.pods.readWatched), Live: reads(r.pods.readLive), Actuator: actuator},
		pool: uninstallpool.NewPool(fair.NewSlots(1, r.clock), func(types.NamespacedName) {}), sender: sender, recorder: r.events, clock: r.clock, wake: &fair.Waker{}, turns: memoryquota.NewTurns(r.clock, func(types.NamespacedName) {}), metrics: count, opts: opts,
		slots: fair.NewSlots(mostEvaluations, r.clock), readings: fair.NewSlots(readingsAtATime, r.clock),
	}
	r.fields = r.newFieldChecker(r.schemas)
	r.keepCleaner(c)
	return r
}

// keepCleaner makes a store that has this Cleaner, and nothing else.
func (r *rig) keepCleaner(c *v1alpha1.Cleaner) {
	r.t.Helper()
	scheme := runtime.NewScheme()
	must(r.t, v1alpha1.AddToScheme(scheme))
	r.store = fake.NewClientBuilder().WithScheme(scheme).WithObjects(c).WithStatusSubresource(c).Build()
	r.client, r.live = r.store, r.store
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// aPod is one of a phase.
func aPod(name, phase string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Pod", "metadata": map[string]any{"namespace": "shop", "name": name, "uid": "uid-" + name},
		"status": map[string]any{"phase": phase},
	}}
}

// done is a Cleaner that stays, and does this to Pods that have succeeded.
func done(actions ...v1alpha1.RuleAction) *v1alpha1.Cleaner {
	return &v1alpha1.Cleaner{Spec: v1alpha1.CleanerSpec{
		CommonSpec: v1alpha1.CommonSpec{Lifecycle: v1alpha1.LifecycleRecurring, Rules: []v1alpha1.Rule{{Name: "done", ForEach: "pods.items", When: `item.status.phase == "Succeeded"`, Reason: `"it is done"`, Actions: actions}}},
		Targets:    []v1alpha1.Target{{Name: "pods", Reference: v1alpha1.Reference{Version: "v1", Kind: "Pod", MatchLabels: map[string]string{}}}},
	}}
}

// once is a Cleaner that deletes all Pods when all have succeeded, and itself then.
func once() *v1alpha1.Cleaner {
	return &v1alpha1.Cleaner{Spec: v1alpha1.CleanerSpec{
		CommonSpec: v1alpha1.CommonSpec{Conditions: []string{`pods.items.all(p, p.status.phase == "Succeeded")`}},
		Targets:    []v1alpha1.Target{{Name: "pods", Delete: true, Reference: v1alpha1.Reference{Version: "v1", Kind: "Pod", MatchLabels: map[string]string{}}}},
	}}
}

// owner owns the Cleaner of a rig as long as the rig says so.
type owner struct {
	shards.Alone
	*rig
}

// FindTenure returns the tenure of the Cleaner.
func (o owner) FindTenure(types.NamespacedName) shards.Tenure {
	return shards.NewTenure(1, func() bool { return o.lease })
}

// line has the Reconciler look at the Cleaner once, and says what came of it in one line: when it comes back, what it has
// sent, which Pods are left, which Events and conditions say so, and what is recorded.
func (r *rig) line() string {
	r.t.Helper()
	result := r.pass()
	parts := []string{fmt.Sprint("again in ", result.RequeueAfter)}
	add := func(what string, list ...string) {
		if len(list) > 0 {
			parts = append(parts, what+" "+strings.Join(list, ", "))
		}
	}
	add("sent", r.pods.took()...)
	add("left", r.pods.names()...)
	add("said", r.said()...)
	c := r.cleaner()
	if c == nil {
		return strings.Join(append(parts, "the Cleaner is gone"), "; ")
	}
	slices.SortFunc(c.Status.Conditions, func(a, b metav1.Condition) int { return strings.Compare(a.Type, b.Type) })
	for _, condition := range c.Status.Conditions {
		if condition.Reason != v1alpha1.ReasonValid {
			add(condition.Type, fmt.Sprintf("%s %s", condition.Status, condition.Reason))
		}
	}
	st := &c.Status
	if st.ResolvedTargetCount > 0 {
		add("resolved", fmt.Sprint(st.ResolvedTargetCount))
	}
	for _, p := range st.Pending {
		add("pending", fmt.Sprintf("%s at %s", p.Key, p.Until.UTC().Format(time.TimeOnly)))
	}
	for _, f := range st.Findings {
		add("found", fmt.Sprintf("%s %d: %s (%s)", f.Rule, f.Count, strings.Join(f.Items, " "), f.Message))
	}
	if st.NextScheduledEvaluation != nil {
		add("next", st.NextScheduledEvaluation.UTC().Format(time.TimeOnly))
	}
	if st.LastScheduleTime != nil {
		add("scheduled", st.LastScheduleTime.UTC().Format(time.TimeOnly))
	}
	if st.LastRequestedAt != "" {
		add("requested", st.LastRequestedAt)
	}
	if st.Counters != nil {
		add("counted", fmt.Sprintf("%d acted, %d failed", st.Counters.Acted, st.Counters.Failed))
	}
	if len(c.Finalizers) > 0 {
		add("held by", c.Finalizers...)
	}
	add("run", runs(st.Run)...)
	add("owed", runs(st.Unsent)...)
	return strings.Join(parts, "; ")
}

// runs says in words what is recorded of a run.
func runs(run *v1alpha1.Run) []string {
	if run == nil {
		return nil
	}
	out := []string{fmt.Sprintf("%d", run.Number)}
	for _, row := range run.Rows {
		out = append(out, strings.Fields(row)[2])
	}
	for _, c := range run.Counts {
		out = append(out, fmt.Sprintf("%d %s %s", c.Count, c.Resource, c.Outcome))
	}
	return append(out, strings.TrimSpace(fmt.Sprint(run.Result, " ", run.Message)))
}

// measured are the series of a metric, as the values of their labels and of themselves.
func (r *rig) measured(name string) []string {
	r.t.Helper()
	all, err := r.registry.Gather()
	must(r.t, err)
	var out []string
	for _, family := range all {
		for _, m := range family.GetMetric() {
			if family.GetName() != name {
				continue
			}
			var words []string
			for _, l := range m.GetLabel() {
				words = append(words, l.GetValue())
			}
			out = append(out, strings.TrimSpace(fmt.Sprint(strings.Join(words, " "), " ", m.GetGauge().GetValue()+m.GetCounter().GetValue())))
		}
	}
	return out
}

// did are the latest deeds that the status shows, newest first.
func (r *rig) did() []string {
	r.t.Helper()
	var out []string
	for _, a := range r.cleaner().Status.LastActions {
		out = append(out, fmt.Sprintf("%s %s %s: %s", a.Rule, a.Action, a.Object, a.Result))
	}
	return out
}

// said are the Events since the last time that it was asked.
func (r *rig) said() []string {
	var out []string
	for _, e := range r.events.list {
		out = append(out, fmt.Sprintf("%s %s %s", e.Type, e.Reason, e.Note))
	}
	r.events.list = nil
	slices.Sort(out)
	return out
}

// heard are the Events that were recorded.
type heard struct{ list []events.Event }

// RecordEvent takes an Event.
func (h *heard) RecordEvent(e events.Event) { h.list = append(h.list, e) }

// pass has the Reconciler look at the Cleaner once.
func (r *rig) pass() ctrl.Result {
	r.t.Helper()
	result, err := r.Reconcile(r.t.Context(), r.request())
	if err != nil {
		r.t.Fatal(err)
	}
	return result
}

func (r *rig) request() ctrl.Request { return ctrl.Request{NamespacedName: r.key()} }

func (r *rig) key() types.NamespacedName {
	return types.NamespacedName{Namespace: "shop", Name: r.name}
}

// cleaner is the Cleaner as it is stored; nil if it is gone.
func (r *rig) cleaner() *v1alpha1.Cleaner {
	r.t.Helper()
	c := &v1alpha1.Cleaner{}
	err := r.store.Get(r.t.Context(), r.key(), c)
	if apierrors.IsNotFound(err) {
		return nil
	}
	must(r.t, err)
	return c
}

// edit changes the Cleaner, as its author does.
func (r *rig) edit(change func(c *v1alpha1.Cleaner)) {
	r.t.Helper()
	c := r.cleaner()
	change(c)
	c.Generation++
	must(r.t, r.store.Update(r.t.Context(), c))
}

// reads is a function that reads.
type reads func(ctx context.Context, q snapshot.Query) observed.Target

func (f reads) Read(ctx context.Context, q snapshot.Query) observed.Target { return f(ctx, q) }
