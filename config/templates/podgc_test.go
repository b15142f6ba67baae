// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package templates_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/celenv"
	"github.com/vtex/cleaner/config/templates"
	"github.com/vtex/cleaner/controllers/liveconfirm"
	"github.com/vtex/cleaner/controllers/plan"
	"github.com/vtex/cleaner/controllers/plan/fortimers"
	"github.com/vtex/cleaner/controllers/plan/observed"
	"github.com/vtex/cleaner/controllers/snapshot"
	"github.com/vtex/cleaner/test/cases"
	"github.com/vtex/cleaner/test/podgc"
)

// start is when each case begins.
var start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// The views of the cluster: what the watches know, and what a live read finds.
const (
	cache = "cache"
	live  = "live"
)

func TestPodGC(t *testing.T) {
	files, err := cases.Load[podgc.Case]("testdata/podgc")
	if err != nil || len(files) < 4 {
		t.Fatalf("the cases are not where they should be: %v, %v", slices.Collect(maps.Keys(files)), err)
	}
	for file, cases := range files {
		for i := range cases {
			t.Run(file+"/"+cases[i].Name, func(t *testing.T) { play(t, &cases[i]) })
		}
	}
}

// world is a cluster with two views, and what the templates did to it.
type world struct {
	t       *testing.T
	views   map[string][]podgc.Node
	pods    []podgc.Pod
	failing bool
	patched map[string]corev1.Pod
}

// collector is a ClusterCleaner that uses a template.
type collector struct {
	work     *v1alpha1.Work
	programs *celenv.Programs
	holds    fortimers.Holds
}

func play(t *testing.T, tc *podgc.Case) {
	w := &world{t: t, views: map[string][]podgc.Node{}, pods: tc.Pods, patched: map[string]corev1.Pod{}}
	for _, n := range tc.Nodes {
		if n.In == nil {
			n.In = []string{cache, live}
		}
		for _, view := range n.In {
			w.views[view] = append(w.views[view], n)
		}
	}
	all := collectors(t, tc)
	for i, step := range tc.Steps {
		at, err := step.At.Parse(0)
		if err != nil {
			t.Fatal(err)
		}
		w.turn(tc, &step)
		gone := map[string]bool{}
		for _, name := range slices.Sorted(maps.Keys(all)) {
			w.pass(all[name], start.Add(at), at, gone)
		}
		if diff := cmp.Diff(slices.Sorted(slices.Values(step.Gone)), slices.Sorted(maps.Keys(gone))); diff != "" {
			t.Errorf("step %d, at %s: deleted (-want +got):\n%s", i, step.At, diff)
		}
	}
	w.judge(tc)
}

// turn changes the world as a step says.
func (w *world) turn(tc *podgc.Case, step *podgc.Step) {
	for _, view := range step.In {
		for _, name := range step.Appear {
			n := slices.IndexFunc(tc.Nodes, func(n podgc.Node) bool { return n.Name == name })
			w.views[view] = append(w.views[view], tc.Nodes[n])
		}
		w.views[view] = slices.DeleteFunc(w.views[view], func(n podgc.Node) bool { return slices.Contains(step.Vanish, n.Name) })
	}
	if step.Fail != nil {
		w.failing = *step.Fail
	}
}

func collectors(t *testing.T, tc *podgc.Case) map[string]*collector {
	t.Helper()
	names := tc.Templates
	if names == nil {
		names = []string{"podgc-orphaned", "podgc-out-of-service", "podgc-terminated", "podgc-unscheduled-terminating"}
	}
	threshold := int64(-1)
	if tc.Threshold != nil {
		threshold = *tc.Threshold
	}
	out := map[string]*collector{}
	for _, name := range names {
		parameters := map[string]any{}
		switch {
		case name == "podgc-terminated":
			parameters["threshold"] = threshold
		case name == "podgc-orphaned" && tc.Quarantine != nil:
			parameters["quarantine"] = *tc.Quarantine
		}
		out[name] = using(t, name, parameters)
	}
	return out
}

// compiler is one for all cases.
var compiler = sync.OnceValues(func() (*celenv.Compiler, error) { return celenv.NewCompiler(celenv.Options{}) })

// using is a ClusterCleaner that uses a template with these parameters.
func using(t *testing.T, name string, parameters map[string]any) *collector {
	t.Helper()
	c, err := compiler()
	if err != nil {
		t.Fatal(err)
	}
	return compiled(t, c, name, parameters)
}

// compiled is the same, with a compiler of its own.
func compiled(t *testing.T, compiler *celenv.Compiler, name string, parameters map[string]any) *collector {
	t.Helper()
	text, err := json.Marshal(parameters)
	if err != nil {
		t.Fatal(err)
	}
	owner := &v1alpha1.ClusterCleaner{Spec: v1alpha1.ClusterCleanerSpec{CommonSpec: v1alpha1.CommonSpec{
		Lifecycle: v1alpha1.LifecycleRecurring, TemplateRef: &v1alpha1.TemplateRef{Name: name, Parameters: &runtime.RawExtension{Raw: text}},
	}}}
	template, err := templates.Load(name)
	if err != nil {
		t.Fatal(err)
	}
	work, errs := templates.Expand(owner, template)
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	programs, wrong := compiler.Compile(t.Context(), work)
	if len(wrong) > 0 {
		t.Fatal(wrong)
	}
	return &collector{work: work, programs: programs}
}

// pass is one evaluation of one template: decided on the cache, confirmed live, decided again, and carried out.
func (w *world) pass(c *collector, now time.Time, at time.Duration, gone map[string]bool) {
	ctx := w.t.Context()
	readers := map[string]snapshot.Reader{cache: w.reader(cache, at), live: w.reader(live, at)}
	in := plan.Input{
		Owner: plan.Owner{Name: "podgc", UID: "podgc", Created: start.Add(-time.Hour)}, Spec: c.work, Programs: c.programs,
		Snapshot: snapshot.ReadTargets(ctx, readers[cache], "", c.work), Now: now, Holds: c.holds,
		Batch: 1000, Confirmed: map[observed.Read]bool{}, Unreadable: map[observed.Read]string{},
	}
	first := plan.ComputePlan(ctx, in)
	c.holds = first.Holds
	last := first
	for len(last.Confirm) > 0 {
		if w.failing {
			for _, r := range last.Confirm {
				in.Unreadable[r] = "the server is on fire"
			}
		} else {
			liveconfirm.ReadLive(ctx, readers[live], &in, last.Confirm, liveconfirm.Never)
		}
		last = plan.ComputePlan(ctx, in)
	}
	c.holds = last.Holds
	if len(last.Errors) > 0 && !w.failing {
		w.t.Errorf("errors: %v", last.Errors)
	}
	acting := plan.IntersectPlans(first, last)
	for i := range acting.Steps {
		w.act(&acting.Steps[i], gone)
	}
}

// act carries a step out: a patch is remembered, a deletion too, and the views stay.
func (w *world) act(s *plan.Step, gone map[string]bool) {
	name := s.Object.Namespace + "/" + s.Object.Name
	switch s.Verb {
	case plan.VerbPatch:
		if s.Patch.Type != v1alpha1.PatchStrategic || s.Patch.Subresource != "status" {
			w.t.Errorf("%s: patched %q by %s", name, s.Patch.Subresource, s.Patch.Type)
		}
		before, err := json.Marshal(s.Object.Value)
		if err != nil {
			w.t.Fatal(err)
		}
		after, err := strategicpatch.StrategicMergePatch(before, s.Patch.Body, &corev1.Pod{})
		if err != nil {
			w.t.Fatal(err)
		}
		var pod corev1.Pod
		if err := json.Unmarshal(after, &pod); err != nil {
			w.t.Fatal(err)
		}
		w.patched[name] = pod
	case plan.VerbDelete:
		if s.Grace == nil || *s.Grace != 0 {
			w.t.Errorf("%s: deleted with grace %v", name, s.Grace)
		}
		_, patched := w.patched[name]
		phase, _, _ := unstructured.NestedString(s.Object.Value, "status", "phase")
		if ended := phase == "Failed" || phase == "Succeeded"; !ended && !patched {
			w.t.Errorf("%s: deleted before it was marked failed", name)
		}
		gone[name] = true
	default:
		w.t.Errorf("%s: %s", name, s.Verb)
	}
}

// judge looks at what was patched.
func (w *world) judge(tc *podgc.Case) {
	if diff := cmp.Diff(slices.Sorted(slices.Values(tc.Failed)), slices.Sorted(maps.Keys(w.patched))); diff != "" {
		w.t.Errorf("marked failed (-want +got):\n%s", diff)
	}
	for i := range tc.Pods {
		before := podOf(&tc.Pods[i])
		after, ok := w.patched[before.Namespace+"/"+before.Name]
		if !ok {
			continue
		}
		want := before.DeepCopy()
		want.Status.Phase, want.Status.ObservedGeneration = corev1.PodFailed, before.Generation
		if tc.Disrupted {
			since := metav1.NewTime(start) // those that are disrupted later say so by a case of their own
			if tc.Since != "" {
				at, err := time.Parse(time.RFC3339, tc.Since)
				if err != nil {
					w.t.Fatal(err)
				}
				since = metav1.NewTime(at)
			}
			disrupted := corev1.PodCondition{
				Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: "DeletionByPodGC", Message: "PodGC: node no longer exists",
				LastTransitionTime: since, ObservedGeneration: before.Generation,
			}
			want.Status.Conditions = slices.DeleteFunc(want.Status.Conditions, func(c corev1.PodCondition) bool { return c.Type == corev1.DisruptionTarget })
			want.Status.Conditions = append(want.Status.Conditions, disrupted)
		}
		moved := cmp.FilterPath(func(p cmp.Path) bool { return tc.Since == "" && p.Last().String() == ".LastTransitionTime" },
			cmp.Comparer(func(a, b metav1.Time) bool { return !a.IsZero() == !b.IsZero() }))
		// Their order says nothing.
		sorted := cmpopts.SortSlices(func(a, b corev1.PodCondition) bool { return a.Type < b.Type })
		if diff := cmp.Diff(want.Status, after.Status, moved, sorted); diff != "" {
			w.t.Errorf("%s: status (-want +got):\n%s", before.Name, diff)
		}
	}
}

// reader is a view. Pods are in both; a case may make them later.
func (w *world) reader(view string, at time.Duration) snapshot.Reader {
	w.t.Helper()
	objects := snapshot.NewObjects()
	core := corev1.SchemeGroupVersion
	objects.AddKind(core, metav1.APIResource{Name: "pods", SingularName: "pod", Kind: "Pod", Namespaced: true})
	objects.AddKind(core, metav1.APIResource{Name: "nodes", SingularName: "node", Kind: "Node"})
	add := func(o runtime.Object) {
		content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
		if err != nil {
			w.t.Fatal(err)
		}
		if err := objects.AddObject(&unstructured.Unstructured{Object: content}); err != nil {
			w.t.Fatal(err)
		}
	}
	for i := range w.pods {
		from, err := w.pods[i].From.Parse(0)
		if err != nil {
			w.t.Fatal(err)
		}
		if from <= at {
			add(podOf(&w.pods[i]))
		}
	}
	for i := range w.views[view] {
		add(nodeOf(&w.views[view][i]))
	}
	if err := objects.SortObjects(); err != nil {
		w.t.Fatal(err)
	}
	return objects
}

func podOf(p *podgc.Pod) *corev1.Pod {
	pod := &corev1.Pod{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{
			Name: p.Name, Namespace: p.Namespace, Finalizers: p.Finalizers, UID: types.UID("uid-of-" + p.Name), ResourceVersion: "1", Generation: 1,
			CreationTimestamp: metav1.NewTime(start.Add(-time.Duration(p.Created) * time.Hour)),
		},
		Spec:   corev1.PodSpec{NodeName: p.Node, Containers: []corev1.Container{{Name: "main", Image: "example.com/main"}}},
		Status: corev1.PodStatus{Phase: p.Phase, Reason: p.Reason, Conditions: p.Conditions},
	}
	if p.Namespace == "" {
		pod.Namespace = metav1.NamespaceDefault
	}
	if p.Deleted {
		deleted, grace := metav1.NewTime(start.Add(-10*time.Minute)), int64(30)
		if p.Grace != nil {
			grace = *p.Grace
		}
		pod.DeletionTimestamp, pod.DeletionGracePeriodSeconds, pod.Generation = &deleted, &grace, 2
	}
	return pod
}

func nodeOf(n *podgc.Node) *corev1.Node {
	node := &corev1.Node{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Node"},
		ObjectMeta: metav1.ObjectMeta{Name: n.Name, UID: types.UID(fmt.Sprintf("uid-of-node-%s", n.Name)), ResourceVersion: "1"},
		Spec:       corev1.NodeSpec{Taints: n.Taints},
	}
	if n.Ready != "" {
		node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionStatus(n.Ready)}}
	}
	return node
}
