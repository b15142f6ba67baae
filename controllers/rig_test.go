// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	jsonpatch "github.com/evanphx/json-patch/v5"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	clocktesting "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/celenv"
	"github.com/vtex/cleaner/controllers/internal/actuate"
	"github.com/vtex/cleaner/controllers/internal/clients"
	"github.com/vtex/cleaner/controllers/internal/events"
	"github.com/vtex/cleaner/controllers/internal/fair"
	"github.com/vtex/cleaner/controllers/internal/identity"
	"github.com/vtex/cleaner/controllers/internal/jobs"
	"github.com/vtex/cleaner/controllers/internal/memoryquota"
	"github.com/vtex/cleaner/controllers/internal/metrics"
	"github.com/vtex/cleaner/controllers/internal/outbox"
	"github.com/vtex/cleaner/controllers/internal/skew"
	"github.com/vtex/cleaner/controllers/internal/watches"
	"github.com/vtex/cleaner/controllers/plan"
	"github.com/vtex/cleaner/controllers/snapshot"
)

// epoch is when the Cleaners of a rig are created.
var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// rig is a Reconciler of one Cleaner, c in the namespace shop, without a control plane: the Cleaner is in a store, and
// Pods and the Namespace are behind a server that deletes and patches them, as far as the tests need, as an API server does.
type rig struct {
	*CleanerReconciler
	t      *testing.T
	name   string // of the Cleaner
	clock  *clocktesting.FakeClock
	store  client.WithWatch
	events *heard

	mu      sync.Mutex
	objects map[string]*unstructured.Unstructured // by name
	// stale are what the watches know; nil: what there is.
	stale map[string]*unstructured.Unstructured
	// syncing says that the watches have not begun.
	syncing bool
	// listed is called when all Pods were read live, unless it is nil.
	listed func()
	// gets is how many Pods were read live, one at a time.
	gets int
	// trouble is what reads of Pods fail with.
	trouble plan.Target
	// answer is what requests that change something are answered with, unless it is nil.
	answer func(verb, name string) *apierrors.StatusError
	// sent are the requests that change something.
	sent []string
	// lease says that this process leads.
	lease    bool
	registry *prometheus.Registry
}

// newRig makes a rig of a Cleaner, which was created at epoch, and of Pods.
func newRig(t *testing.T, c *v1alpha1.Cleaner, pods ...*unstructured.Unstructured) *rig {
	t.Helper()
	r := &rig{t: t, name: "c", clock: clocktesting.NewFakeClock(epoch.Add(time.Hour)), events: &heard{}, objects: map[string]*unstructured.Unstructured{}, lease: true}
	r.put(&unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": "shop", "uid": "uid-shop"}}})
	for _, p := range pods {
		r.put(p)
	}
	c.Namespace, c.Name, c.UID, c.Generation, c.CreationTimestamp = "shop", r.name, "uid", 1, metav1.NewTime(epoch)

	server := httptest.NewServer(r)
	t.Cleanup(server.Close)
	config := &rest.Config{Host: server.URL, QPS: -1}
	compiler, err := celenv.NewCompiler(celenv.Options{})
	must(t, err)
	r.registry = prometheus.NewRegistry()
	count, err := metrics.New(r.registry)
	must(t, err)
	engine, err := watches.New(watches.Options{Config: config, Clock: r.clock, Discovery: r})
	must(t, err)
	actuator, err := actuate.New(config, fair.NewSlots(deedsAtATime, r.clock))
	must(t, err)
	sender, err := outbox.NewSender(outbox.Options{Clock: r.clock, Policy: outbox.Policy{AllowLoopback: true}, DeliveryChanged: func(types.NamespacedName) {}})
	must(t, err)
	opts := Options{
		Clock: r.clock, Lease: r, Skew: skew.New(skew.Options{Clock: r.clock}), ActWithoutAuthor: true,
		MinInterval: DefaultMinInterval, Settle: DefaultSettle, FinishGrace: DefaultFinishGrace, ProtectedNamespaces: []string{"kube-system"},
	}
	r.CleanerReconciler = &CleanerReconciler{
		compiler: celenv.NewCache(compiler), watches: engine, resolver: engine.Resolver(), clients: clients.NewFactory(clients.Config{Operator: config, Watches: engine, Access: identity.NewAccess(nil, r.clock), Slots: fair.NewSlots(deedsAtATime, r.clock), Ahead: func() time.Duration { return 0 }, Clock: r.clock}), keys: newTestKeys(t),
		own:  &clients.Set{Watched: reads(r.readWatched), Live: reads(r.readLive), Actuator: actuator},
		pool: jobs.NewPool(fair.NewSlots(1, r.clock), func(types.NamespacedName) {}), sender: sender, recorder: r.events, clock: r.clock, wake: &fair.Waker{}, turns: memoryquota.NewTurns(r.clock, func(types.NamespacedName) {}), metrics: count, opts: opts,
		slots: fair.NewSlots(mostEvaluations, r.clock), readings: fair.NewSlots(readingsAtATime, r.clock),
	}
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

// Fresh says that this process leads.
func (r *rig) Fresh() bool { return r.lease }

// put stores an object at a new version.
func (r *rig) put(o *unstructured.Unstructured) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.keep(o)
}

func (r *rig) keep(o *unstructured.Unstructured) {
	version := 1
	if before := r.objects[o.GetName()]; before != nil {
		version, _ = strconv.Atoi(before.GetResourceVersion())
		version++
	}
	o.SetResourceVersion(strconv.Itoa(version))
	r.objects[o.GetName()] = o
}

// freeze has the watches know what there is now, until they are told otherwise.
func (r *rig) freeze() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stale = map[string]*unstructured.Unstructured{}
	for name, o := range r.objects {
		r.stale[name] = o.DeepCopy()
	}
}

// thaw has the watches know what there is.
func (r *rig) thaw() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stale = nil
}

// names are those of the Pods that there are.
func (r *rig) names() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []string
	for name, o := range r.objects {
		if o.GetKind() == "Pod" {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
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
	add("sent", r.took()...)
	add("left", r.names()...)
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

// took are the requests that were sent since the last time that it was asked.
func (r *rig) took() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := r.sent
	r.sent = nil
	slices.Sort(out)
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
type reads func(ctx context.Context, q snapshot.Query) plan.Target

func (f reads) Read(ctx context.Context, q snapshot.Query) plan.Target { return f(ctx, q) }

func (r *rig) readLive(_ context.Context, q snapshot.Query) plan.Target {
	r.mu.Lock()
	defer r.mu.Unlock()
	if q.Kind != "Namespace" && r.trouble.State != plan.Unknown {
		return r.trouble
	}
	seen := readOf(r.t, r.objects, q)
	if q.Kind == "Pod" && q.Name != "" {
		r.gets++
	}
	if r.listed != nil && q.Name == "" {
		r.listed()
	}
	return seen
}

func (r *rig) readWatched(_ context.Context, q snapshot.Query) plan.Target {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.syncing {
		return plan.Target{State: plan.Unsynced, Detail: "the watch is beginning"}
	}
	if r.stale != nil {
		return readOf(r.t, r.stale, q)
	}
	return readOf(r.t, r.objects, q)
}

// readOf reads as an API server would that has these objects.
func readOf(t *testing.T, objects map[string]*unstructured.Unstructured, q snapshot.Query) plan.Target {
	all := snapshot.NewObjects()
	core := schema.GroupVersion{Version: "v1"}
	for _, kind := range kinds() {
		all.AddKind(core, kind)
	}
	for _, name := range slices.Sorted(maps.Keys(objects)) {
		if q.Name != "" && q.Name != name {
			continue
		}
		if err := all.AddObject(objects[name].DeepCopy()); err != nil {
			t.Error(err)
		}
	}
	if err := all.SortObjects(); err != nil {
		t.Error(err)
	}
	if q.Kind == "pods" { // a row names the resource
		q.Kind = "Pod"
	}
	return all.Read(t.Context(), q)
}

func kinds() []metav1.APIResource {
	verbs := metav1.Verbs{"get", "list", "watch", "delete", "patch"}
	return []metav1.APIResource{
		{Name: "pods", SingularName: "pod", Kind: "Pod", Namespaced: true, Verbs: verbs},
		{Name: "namespaces", SingularName: "namespace", Kind: "Namespace", Verbs: verbs},
	}
}

// ServerResourcesForGroupVersionWithContext says what is served.
func (r *rig) ServerResourcesForGroupVersionWithContext(_ context.Context, groupVersion string) (*metav1.APIResourceList, error) {
	if groupVersion != "v1" {
		return nil, apierrors.NewNotFound(schema.GroupResource{}, groupVersion)
	}
	return &metav1.APIResourceList{GroupVersion: "v1", APIResources: kinds()}, nil
}

// ServeHTTP deletes, evicts and patches Pods.
func (r *rig) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	r.mu.Lock()
	defer r.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	name, subresource, _ := strings.Cut(strings.TrimPrefix(req.URL.Path, "/api/v1/namespaces/shop/pods/"), "/")
	body, err := io.ReadAll(req.Body)
	if err != nil {
		r.t.Error(err)
	}
	answer, failed := r.serve(req, name, subresource, body)
	if failed != nil {
		failed.ErrStatus.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}
		w.WriteHeader(int(failed.ErrStatus.Code))
		answer = failed.ErrStatus
	}
	if err := json.NewEncoder(w).Encode(answer); err != nil {
		r.t.Error(err)
	}
}

func (r *rig) serve(req *http.Request, name, subresource string, body []byte) (any, *apierrors.StatusError) {
	gr := schema.GroupResource{Resource: "pods"}
	o := r.objects[name]
	if req.Method == http.MethodGet {
		if o == nil {
			return nil, apierrors.NewNotFound(gr, name)
		}
		return o.Object, nil
	}
	verb := map[string]string{http.MethodDelete: "delete", http.MethodPatch: "patch", http.MethodPost: "evict"}[req.Method]
	var options metav1.DeleteOptions
	switch {
	case verb == "delete":
		must(r.t, json.Unmarshal(body, &options))
	case subresource == "eviction":
		var eviction struct{ DeleteOptions metav1.DeleteOptions }
		must(r.t, json.Unmarshal(body, &eviction))
		options = eviction.DeleteOptions
	}
	dry := len(options.DryRun) > 0 || req.URL.Query().Get("dryRun") != ""
	r.sent = append(r.sent, strings.TrimSpace(fmt.Sprintf("%s %s %s", verb, name, map[bool]string{true: "dry run"}[dry])))
	if r.answer != nil {
		if failed := r.answer(verb, name); failed != nil {
			return nil, failed
		}
		o = r.objects[name] // it may have been changed
	}
	if o == nil {
		return nil, apierrors.NewNotFound(gr, name)
	}
	if p := options.Preconditions; verb != "patch" && (p == nil || *p.UID != o.GetUID() || *p.ResourceVersion != o.GetResourceVersion()) {
		return nil, apierrors.NewConflict(gr, name, fmt.Errorf("the precondition does not hold"))
	}
	if verb == "patch" {
		return r.patch(o, body, dry)
	}
	if !dry && len(o.GetFinalizers()) > 0 {
		held := o.DeepCopy()
		held.SetDeletionTimestamp(&metav1.Time{Time: r.clock.Now()})
		held.SetDeletionGracePeriodSeconds(new(int64))
		r.keep(held)
		return held.Object, nil
	}
	if !dry {
		delete(r.objects, name)
	}
	return metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusSuccess, Details: &metav1.StatusDetails{Name: name, UID: o.GetUID()}}, nil
}

// patch merges.
func (r *rig) patch(o *unstructured.Unstructured, body []byte, dry bool) (any, *apierrors.StatusError) {
	var asked metav1.PartialObjectMetadata
	must(r.t, json.Unmarshal(body, &asked))
	if asked.UID != o.GetUID() || asked.ResourceVersion != o.GetResourceVersion() {
		return nil, apierrors.NewConflict(schema.GroupResource{Resource: "pods"}, o.GetName(), fmt.Errorf("it has changed"))
	}
	before, err := json.Marshal(o.Object)
	must(r.t, err)
	after, err := jsonpatch.MergePatch(before, body)
	must(r.t, err)
	now := &unstructured.Unstructured{}
	must(r.t, now.UnmarshalJSON(after))
	if !dry && !equality.Semantic.DeepEqual(o, now) {
		r.keep(now)
	}
	return now.Object, nil
}
