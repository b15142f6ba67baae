// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package podgc

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/test/cases"
	"github.com/vtex/cleaner/test/live"
	"github.com/vtex/cleaner/test/operator"
)

const (
	orphaned     = "podgc-orphaned"
	outOfService = "podgc-out-of-service"
	terminated   = "podgc-terminated"
	unscheduled  = "podgc-unscheduled-terminating"
	// hold is a finalizer by which Pods stay that nobody would see terminating else.
	hold = "example.com/hold"
	// quarantine is that of the template here; kube-controller-manager's cannot be chosen.
	quarantine = "6s"
)

// notLive are the cases that are not played here, and why.
func notLive() map[string]string {
	return map[string]string{
		"the quarantine is not over":                     "there is no end to wait for",
		"a node that cannot be read is not gone":         "the two differ",
		"a node that returns ends the quarantine":        "the two differ",
		"a node that was repaired meanwhile":             "the two differ",
		"a phase of another time is marked failed first": "an API server gives each Pod a phase",
	}
}

// load are the cases of all files that can be played, by file.
func load(t *testing.T) map[string][]Case {
	t.Helper()
	root, err := operator.Root()
	if err != nil {
		t.Fatal(err)
	}
	files, err := cases.Load[Case](filepath.Join(root, "config", "templates", "testdata", "podgc"))
	if err != nil {
		t.Fatal(err)
	}
	left, all, played := notLive(), 0, 0
	for file, cases := range files {
		all += len(cases)
		files[file] = slices.DeleteFunc(cases, func(tc Case) bool {
			_, not := notLive()[tc.Name]
			delete(left, tc.Name)
			return not
		})
		played += len(files[file])
	}
	if len(left) > 0 || played*2 < all {
		t.Fatalf("%d cases of %d are played; there are none with these names: %v", played, all, slices.Collect(maps.Keys(left)))
	}
	return files
}

// scene is a case on a control plane.
type scene struct {
	*plane
	*Case
	namespace string
	nodes     string // what the names of its Nodes begin with
}

// both plays something on both control planes at the same time.
func both(t *testing.T, do func(p *plane) error) {
	t.Helper()
	done := make(chan error)
	for _, p := range planes() {
		go func() { done <- do(p) }()
	}
	if err := errors.Join(<-done, <-done); err != nil {
		t.Fatal(err)
	}
}

// stage makes the Nodes and the Pods of a case as they are at its start. A Node that a case shows in one view alone is in
// both here.
func stage(ctx context.Context, p *plane, tc *Case, number int) (*scene, error) {
	ns, err := p.Namespace(ctx, "case")
	if err != nil {
		return nil, err
	}
	s := &scene{plane: p, Case: tc, namespace: ns, nodes: fmt.Sprintf("case-%d-", number)}
	for i := range tc.Nodes {
		if n := &tc.Nodes[i]; n.In == nil || len(n.In) > 0 {
			if err := s.appear(ctx, n.Name); err != nil {
				return nil, err
			}
		}
	}
	if tc.Templates != nil && !slices.Contains(tc.Templates, orphaned) { // nothing else runs in the case, and here it does
		for i := range tc.Pods {
			if err := s.appear(ctx, tc.Pods[i].Node); tc.Pods[i].Node != "" && client.IgnoreAlreadyExists(err) != nil {
				return nil, err
			}
		}
	}
	ages := map[int][]*Pod{}
	for i := range tc.Pods {
		if pod := &tc.Pods[i]; pod.From == "" {
			ages[pod.Created] = append(ages[pod.Created], pod)
		}
	}
	for _, age := range slices.Backward(slices.Sorted(maps.Keys(ages))) {
		if err := s.sameAge(ctx, ages[age]); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// sameAge makes Pods. Where their age counts, they are made in one second, and no others are.
func (s *scene) sameAge(ctx context.Context, pods []*Pod) error {
	const tries = 5
	for try := 1; ; try++ {
		if s.Threshold != nil {
			if err := nextSecond(ctx); err != nil {
				return err
			}
		}
		made := map[time.Time]bool{}
		for _, p := range pods {
			at, err := s.make(ctx, p)
			if err != nil {
				return err
			}
			made[at] = true
		}
		if s.Threshold == nil || len(made) == 1 {
			break
		}
		if try == tries {
			return fmt.Errorf("cannot make %d Pods in one second", len(pods))
		}
		for _, p := range pods {
			if err := s.Delete(ctx, s.bare(p), client.GracePeriodSeconds(0)); err != nil {
				return err
			}
		}
	}
	for _, p := range pods {
		if err := s.bring(ctx, p); err != nil {
			return err
		}
	}
	return nil
}

// nextSecond waits until the next second has begun: the times at which objects were made are in whole seconds.
func nextSecond(ctx context.Context) error {
	now := time.Now().Truncate(time.Second)
	return wait.PollUntilContextCancel(ctx, 5*time.Millisecond, true, func(context.Context) (bool, error) {
		return time.Since(now) >= time.Second, nil
	})
}

// bare is a Pod by its name.
func (s *scene) bare(p *Pod) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: p.Name}}
}

// make makes a Pod, and returns when it was made.
func (s *scene) make(ctx context.Context, p *Pod) (time.Time, error) {
	pod := s.bare(p)
	pod.Finalizers, pod.Spec.Containers = p.Finalizers, []corev1.Container{{Name: "main", Image: "example.com/main"}}
	if p.Node != "" {
		pod.Spec.NodeName = s.nodes + p.Node
	}
	if p.Deleted && p.Node == "" && p.Finalizers == nil {
		pod.Finalizers = []string{hold}
	}
	err := s.Create(ctx, pod)
	return pod.CreationTimestamp.Time, err
}

// bring brings a Pod into the state that the case wants. It terminates before its phase is set: one that has ended, or has
// no Node, would be gone.
func (s *scene) bring(ctx context.Context, p *Pod) error {
	pod := s.bare(p)
	if p.Deleted {
		grace := int64(3600)
		if p.Grace != nil {
			grace = *p.Grace
		}
		if err := s.Delete(ctx, pod, client.GracePeriodSeconds(grace)); err != nil {
			return err
		}
	}
	status := map[string]any{"phase": p.Phase}
	if p.Reason != "" {
		status["reason"] = p.Reason
	}
	if p.Conditions != nil {
		status["conditions"] = p.Conditions
	}
	patch, err := json.Marshal(map[string]any{"status": status})
	if err != nil {
		return err
	}
	return s.Status().Patch(ctx, pod, client.RawPatch("application/merge-patch+json", patch))
}

// appear makes a Node of the case.
func (s *scene) appear(ctx context.Context, name string) error {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: s.nodes + name}}
	for _, n := range s.Nodes {
		if n.Name != name {
			continue
		}
		node.Spec.Taints = n.Taints
		if n.Ready != "" {
			node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionStatus(n.Ready)}}
		}
	}
	return s.Create(ctx, node)
}

// turn changes what the case changes in time.
func (s *scene) turn(ctx context.Context) error {
	for _, step := range s.Steps {
		for _, name := range step.Vanish {
			if err := s.Delete(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: s.nodes + name}}); err != nil {
				return err
			}
		}
		for _, name := range step.Appear {
			if err := s.appear(ctx, name); err != nil {
				return err
			}
		}
	}
	for i := range s.Pods {
		p := &s.Pods[i]
		if p.From == "" {
			continue
		}
		if _, err := s.make(ctx, p); err != nil {
			return err
		}
		if err := s.bring(ctx, p); err != nil {
			return err
		}
	}
	return nil
}

// returns says that a Node of the case is missing at first and comes.
func (s *scene) returns() (node string, yes bool) {
	for _, step := range s.Steps {
		if len(step.Appear) > 0 {
			return s.nodes + step.Appear[0], true
		}
	}
	return "", false
}

// gone are the Pods that the case says are deleted.
func (s *scene) gone() map[string]bool {
	out := map[string]bool{}
	for _, step := range s.Steps {
		for _, name := range step.Gone {
			out[strings.TrimPrefix(name, "default/")] = true
		}
	}
	return out
}

// missing says what the collector has yet to do.
func (s *scene) missing() string {
	gone := s.gone()
	for _, p := range s.Pods {
		now := s.pod(s.namespace, p.Name)
		switch {
		case !gone[p.Name]:
		case now.Pod == nil || !now.gone && len(now.Finalizers) == 0:
			return fmt.Sprintf("%q: %s is there", s.Name, p.Name)
		case !now.gone && slices.Contains(s.Failed, "default/"+p.Name) && now.Status.Phase != corev1.PodFailed:
			return fmt.Sprintf("%q: %s is not marked failed", s.Name, p.Name)
		case !now.gone && *now.DeletionGracePeriodSeconds > 0:
			return fmt.Sprintf("%q: %s is not deleted by force", s.Name, p.Name)
		}
	}
	return ""
}

// fate is what became of a Pod, as far as it does not depend on when and where.
type fate struct {
	Gone  bool
	Grace int64 // -1 without a deletion
	// Generation and Status are those that were seen last.
	Generation int64
	Status     corev1.PodStatus
	// Since is the time of DisruptionTarget, if the case says which it is; else whether it has one.
	Since string
	// Patched is how often its status was patched, and with what Phase.
	Patched int
}

// fates are what became of the Pods of a case.
func (s *scene) fates(t *testing.T) map[string]fate {
	t.Helper()
	out := map[string]fate{}
	for _, p := range s.Pods {
		now := s.pod(s.namespace, p.Name)
		f := fate{Gone: now.gone, Grace: -1, Generation: now.Generation, Status: *now.Status.DeepCopy()}
		if now.DeletionGracePeriodSeconds != nil {
			f.Grace = *now.DeletionGracePeriodSeconds
		}
		for i := range f.Status.Conditions {
			c := &f.Status.Conditions[i]
			if c.Type == corev1.DisruptionTarget {
				f.Since = fmt.Sprint(!c.LastTransitionTime.IsZero())
				if s.Since != "" {
					f.Since = c.LastTransitionTime.UTC().Format(time.RFC3339)
				}
			}
			c.LastTransitionTime = metav1.Time{}
		}
		slices.SortFunc(f.Status.Conditions, func(a, b corev1.PodCondition) int { return cmp.Compare(a.Type, b.Type) })
		out[p.Name] = f
	}
	for _, e := range s.requests(t, func(ns string) bool { return ns == s.namespace }) {
		f := out[e.ObjectRef.Name]
		switch {
		case e.Code() >= 300: // tried again, or too late
		case e.Verb == "patch" && e.ObjectRef.Subresource == "status":
			f.Patched++
		case e.Verb == "patch":
			t.Errorf("%s: nothing but the status of a Pod is patched", e)
		case !bytes.Contains(e.RequestObject.Raw, []byte(`"gracePeriodSeconds":0`)):
			t.Errorf("%s: without the grace period 0, but %s", e, e.RequestObject.Raw)
		}
		out[e.ObjectRef.Name] = f
	}
	return out
}

// compare holds what became of the Pods against the case, and against what kube-controller-manager made of them.
func compare(t *testing.T, mine, theirs *scene) {
	t.Helper()
	got, want := mine.fates(t), theirs.fates(t)
	if diff := gocmp.Diff(want, got); diff != "" {
		t.Errorf("the templates have done something else than kube-controller-manager (-kube-controller-manager +templates):\n%s", diff)
	}
	gone := mine.gone()
	for _, p := range mine.Pods {
		f := got[p.Name]
		if deleted := f.Gone || f.Grace == 0; deleted != gone[p.Name] && p.Grace == nil {
			t.Errorf("%s is deleted: %t, want %t", p.Name, deleted, gone[p.Name])
		}
		failed := 0
		if slices.Contains(mine.Failed, "default/"+p.Name) {
			failed = 1
		}
		if f.Patched != failed {
			t.Errorf("the status of %s was patched %d times, want %d", p.Name, f.Patched, failed)
		}
		for _, c := range p.Conditions {
			if !slices.ContainsFunc(f.Status.Conditions, func(now corev1.PodCondition) bool { return now.Type == c.Type && now.Status == c.Status }) {
				t.Errorf("%s has lost its condition %s: %v", p.Name, c.Type, f.Status.Conditions)
			}
		}
		if mine.Disrupted && failed == 1 && f.Since != cmp.Or(mine.Since, "true") {
			t.Errorf("%s is disrupted since %q, want %q", p.Name, f.Since, cmp.Or(mine.Since, "true"))
		}
	}
}

// purge deletes Pods, whoever holds them.
func (p *plane) purge(ctx context.Context, in ...client.ListOption) error {
	list := &corev1.PodList{}
	if err := p.List(ctx, list, in...); err != nil {
		return err
	}
	for i := range list.Items {
		pod := &list.Items[i]
		free := client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"finalizers":null}}`))
		if err := p.Patch(ctx, pod.DeepCopy(), free); client.IgnoreNotFound(err) != nil {
			return err
		}
		if err := p.Delete(ctx, pod, client.GracePeriodSeconds(0)); client.IgnoreNotFound(err) != nil {
			return err
		}
	}
	return nil
}

// collect makes a ClusterCleaner of a template, which goes with the test.
func collect(t *testing.T, template string, parameters map[string]any, also ...func(*v1alpha1.CommonSpec)) *v1alpha1.ClusterCleaner {
	t.Helper()
	text, err := json.Marshal(parameters)
	if err != nil {
		t.Fatal(err)
	}
	cc := &v1alpha1.ClusterCleaner{
		ObjectMeta: metav1.ObjectMeta{Name: template},
		Spec: v1alpha1.ClusterCleanerSpec{
			CommonSpec: v1alpha1.CommonSpec{
				Lifecycle: v1alpha1.LifecycleRecurring, TemplateRef: &v1alpha1.TemplateRef{Name: template, Parameters: &runtime.RawExtension{Raw: text}},
			},
			IncludeProtected: true,
		},
	}
	for _, change := range also {
		change(&cc.Spec.CommonSpec)
	}
	if err := ours.Create(t.Context(), cc); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := ours.Delete(context.WithoutCancel(t.Context()), cc); err != nil {
			t.Error(err)
		}
	})
	return cc
}

// passes is a run of kube-controller-manager's pod garbage collector.
type passes struct {
	t         *testing.T
	namespace string
	count     int
	stop      func()
}

// runUpstream runs kube-controller-manager's pod garbage collector until the test ends or stops it.
func runUpstream(t *testing.T, name string, threshold int64) *passes {
	t.Helper()
	ns, err := upstream.Namespace(t.Context(), "passes")
	if err != nil {
		t.Fatal(err)
	}
	p := &passes{t: t, namespace: ns}
	p.mark()
	kcm, err := upstream.RunControllers(t.Context(), name, []string{"pod-garbage-collector-controller"}, fmt.Sprintf("--terminated-pod-gc-threshold=%d", threshold))
	if err != nil {
		t.Fatal(err)
	}
	p.stop = func() {
		if err := kcm.Kill(); err != nil {
			t.Error(err)
		}
	}
	t.Cleanup(p.stop)
	return p
}

// mark makes a Pod that the last rule of a pass changes.
func (p *passes) mark() {
	p.t.Helper()
	p.count++
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: p.namespace, Name: fmt.Sprintf("pass-%d", p.count), Finalizers: []string{hold}},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "example.com/main"}}},
	}
	if err := upstream.Create(p.t.Context(), pod); err != nil {
		p.t.Fatal(err)
	}
	if err := upstream.Delete(p.t.Context(), pod); err != nil {
		p.t.Fatal(err)
	}
}

// next waits until a pass has ended that began after the one before.
func (p *passes) next() {
	p.t.Helper()
	live.Eventually(p.t, "the end of a pass of kube-controller-manager", func() string {
		if now := upstream.pod(p.namespace, fmt.Sprintf("pass-%d", p.count)); now.Pod == nil || now.Status.Phase != corev1.PodFailed {
			return "its last rule has done nothing"
		}
		return ""
	})
	p.mark()
}

// The threshold counts the Pods of the whole cluster, so these cases are played one after the other.
func TestTerminated(t *testing.T) {
	for i, tc := range load(t)["terminated.yaml"] {
		t.Run(tc.Name, func(t *testing.T) {
			t.Cleanup(func() { live.Judge(t, ours, ours.Dir(), ours.audit) })
			scenes := map[*plane]*scene{ours: {}, upstream: {}}
			both(t, func(p *plane) error {
				if err := p.purge(t.Context()); err != nil {
					return err
				}
				s, err := stage(t.Context(), p, &tc, i)
				if err == nil {
					*scenes[p] = *s
				}
				return err
			})
			cc := collect(t, terminated, map[string]any{"threshold": *tc.Threshold})
			kcm := runUpstream(t, fmt.Sprintf("podgc-%d", i), *tc.Threshold)
			live.Eventually(t, "the Pods beyond the threshold go", scenes[ours].missing)
			live.Evaluates(t, ours, cc)
			kcm.next()
			kcm.stop()
			live.Eventually(t, "kube-controller-manager deletes them too", scenes[upstream].missing)
			compare(t, scenes[ours], scenes[upstream])
		})
	}
}

// All other cases are played at the same time, each with Nodes and a namespace of its own: kube-controller-manager waits
// 40 s before it takes orphans.
func TestNodesAndTermination(t *testing.T) {
	t.Cleanup(func() { live.Judge(t, ours, ours.Dir(), ours.audit) })
	var cases []Case
	for file, of := range load(t) {
		if file != "terminated.yaml" {
			cases = append(cases, of...)
		}
	}
	scenes := map[*plane][]*scene{ours: make([]*scene, len(cases)), upstream: make([]*scene, len(cases))}
	both(t, func(p *plane) error {
		if err := p.purge(t.Context()); err != nil {
			return err
		}
		for i := range cases {
			var err error
			if scenes[p][i], err = stage(t.Context(), p, &cases[i], 100+i); err != nil {
				return fmt.Errorf("%q: %w", cases[i].Name, err)
			}
		}
		return nil
	})
	turn := func(p *plane) {
		for _, s := range scenes[p] {
			if err := s.turn(t.Context()); err != nil {
				t.Fatalf("%q: %s", s.Name, err)
			}
		}
	}
	missing := func(p *plane) func() string {
		return func() string {
			for _, s := range scenes[p] {
				if m := s.missing(); m != "" {
					return m
				}
			}
			return ""
		}
	}

	kcm := runUpstream(t, "podgc", 0)
	cc := collect(t, orphaned, map[string]any{"quarantine": quarantine})
	others := []*v1alpha1.ClusterCleaner{collect(t, outOfService, nil), collect(t, unscheduled, nil), collect(t, terminated, map[string]any{"threshold": -1})}
	waitsForNodes(t, cc, scenes[ours])
	turn(ours)
	last := scene{plane: ours, Case: &Case{Name: "the last of all", Pods: []Pod{{Name: "last", Node: "lost", Phase: corev1.PodFailed}}, Steps: []Step{{Gone: []string{"last"}}}}, namespace: metav1.NamespaceDefault}
	if err := last.sameAge(t.Context(), []*Pod{&last.Pods[0]}); err != nil {
		t.Fatal(err)
	}
	kcm.next()
	turn(upstream)

	live.Eventually(t, "the templates delete", missing(ours))
	live.Eventually(t, "a quarantine is over that began when all was as it is in the end", last.missing)
	for _, cc := range append(others, cc) {
		live.Evaluates(t, ours, cc)
	}
	const enough = 6 // passes come every 20 s
	for pass := 1; missing(upstream)() != "" && pass < enough; pass++ {
		kcm.next()
	}
	if m := missing(upstream)(); m != "" {
		t.Fatalf("kube-controller-manager has not deleted all: %s", m)
	}
	kcm.stop()
	for i, tc := range cases {
		t.Run(tc.Name, func(t *testing.T) { compare(t, scenes[ours][i], scenes[upstream][i]) })
	}
}

// waitsForNodes waits until a ClusterCleaner has seen that the Nodes are missing which come later.
func waitsForNodes(t *testing.T, cc *v1alpha1.ClusterCleaner, scenes []*scene) {
	t.Helper()
	live.Eventually(t, "the quarantines begin", func() string {
		if err := ours.Get(t.Context(), client.ObjectKeyFromObject(cc), cc); err != nil && !apierrors.IsNotFound(err) {
			return err.Error()
		}
		for _, s := range scenes {
			node, yes := s.returns()
			if yes && !slices.ContainsFunc(cc.Status.Pending, func(p v1alpha1.Pending) bool { return p.Key == node }) {
				return fmt.Sprintf("that of %s: %+v", node, cc.Status)
			}
		}
		return ""
	})
}
