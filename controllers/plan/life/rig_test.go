// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package life

import (
	"fmt"
	"strings"
	"testing"
	"time"
	"unsafe"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/controllers/plan"
	"github.com/vtex/cleaner/controllers/plan/observed"
	"github.com/vtex/cleaner/test/celtest"
)

var (
	// born is when every Cleaner of these tests was created.
	born  = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	pods  = schema.GroupVersionResource{Version: "v1", Resource: "pods"}
	nodes = schema.GroupVersionResource{Version: "v1", Resource: "nodes"}
	pools = schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "pools"}

	coreEvents  = schema.GroupVersionResource{Version: "v1", Resource: "events"}
	groupEvents = schema.GroupVersionResource{Group: "events.k8s.io", Version: "v1", Resource: "events"}
)

// pod is an object with metadata and a value.
func pod(name string, change ...func(*observed.Object)) observed.Object {
	o := observed.Object{
		Ref:   observed.Ref{Resource: pods, Kind: "Pod", Namespace: "shop", Name: name, UID: types.UID("uid-" + name), ResourceVersion: "7"},
		Value: map[string]any{"metadata": map[string]any{"name": name}, "status": map[string]any{"phase": "Succeeded"}},
	}
	for _, c := range change {
		c(&o)
	}
	return o
}

// seen is a target that was read completely.
func seen(objects ...observed.Object) observed.Target {
	return observed.Target{State: observed.Complete, Resource: pods, Namespaced: true, Objects: objects}
}

// podTarget is a target over all Pods.
func podTarget(name string, change ...func(*v1alpha1.ClusterTarget)) v1alpha1.ClusterTarget {
	t := v1alpha1.ClusterTarget{Name: name, Reference: v1alpha1.ClusterReference{Reference: v1alpha1.Reference{Version: "v1", Kind: "Pod", MatchLabels: map[string]string{}}}}
	for _, c := range change {
		c(&t)
	}
	return t
}

func deleted(t *v1alpha1.ClusterTarget) { t.Delete = true }
func quiet(t *v1alpha1.ClusterTarget)   { t.IncludeWhenEvaluating = new(false) }

func named(name string) func(*v1alpha1.ClusterTarget) {
	return func(t *v1alpha1.ClusterTarget) { t.Reference.MatchLabels, t.Reference.Name = nil, name }
}

// input is what is decided on: a day after the Cleaner was created.
func input(t testing.TB, spec *v1alpha1.Work, s ...observed.Target) plan.Input {
	t.Helper()
	programs := celtest.CompileWork(t, spec)
	return plan.Input{
		Owner: plan.Owner{Namespace: "shop", Name: "c", UID: "cleaner", Created: born},
		Spec:  spec, Programs: programs, Snapshot: s, Now: born.Add(24 * time.Hour),
	}
}

// event is one Event, as it is served by one of the two groups that serve Events.
func event(by schema.GroupVersionResource, change ...func(*observed.Object)) observed.Object {
	o := object(by, "Event", "shop", "a")
	if by == groupEvents {
		o.Value["regarding"] = map[string]any{"kind": "Pod"}
	} else {
		o.Value["involvedObject"] = map[string]any{"kind": "Pod"}
	}
	for _, c := range change {
		c(&o)
	}
	return o
}

func eventsSeen(by schema.GroupVersionResource, objects ...observed.Object) observed.Target {
	return observed.Target{State: observed.Complete, Resource: by, Namespaced: true, Objects: objects}
}

func eventTarget(name string, by schema.GroupVersionResource, change ...func(*v1alpha1.ClusterTarget)) v1alpha1.ClusterTarget {
	return target(name, "Event", append([]func(*v1alpha1.ClusterTarget){func(t *v1alpha1.ClusterTarget) {
		t.Reference.APIGroup, t.Reference.MatchLabels = by.Group, map[string]string{}
	}}, change...)...)
}

// object is an object as a watch shows it, with labels given as "key=value" and fields of its spec as "key:value".
func object(resource schema.GroupVersionResource, kind, namespace, name string, words ...string) observed.Object {
	meta := map[string]any{"name": name, "uid": "uid-" + name, "resourceVersion": "7"}
	if namespace != "" {
		meta["namespace"] = namespace
	}
	labels, spec := map[string]string{}, map[string]any{}
	for _, w := range words {
		if k, v, ok := strings.Cut(w, "="); ok {
			labels[k] = v
		} else if k, v, ok := strings.Cut(w, ":"); ok {
			spec[k] = v
		}
	}
	shown := map[string]any{}
	for k, v := range labels {
		shown[k] = v
	}
	meta["labels"] = shown
	return observed.Object{
		Ref:    observed.Ref{Resource: resource, Kind: kind, Namespace: namespace, Name: name, UID: types.UID("uid-" + name), ResourceVersion: "7"},
		Labels: labels, Protected: labels[v1alpha1.ProtectKey] == "true",
		Value: map[string]any{"apiVersion": resource.GroupVersion().String(), "kind": kind, "metadata": meta, "spec": spec},
	}
}

// p is a Pod in the Cleaner's namespace.
func p(name string, words ...string) observed.Object {
	return object(pods, "Pod", "shop", name, words...)
}

func nodesSeen(names ...string) observed.Target {
	t := observed.Target{State: observed.Complete, Resource: nodes}
	for _, n := range names {
		t.Objects = append(t.Objects, object(nodes, "Node", "", n))
	}
	return t
}

func poolsSeen(objects ...observed.Object) observed.Target {
	return observed.Target{State: observed.Complete, Resource: pools, Objects: objects}
}

func target(name, kind string, change ...func(*v1alpha1.ClusterTarget)) v1alpha1.ClusterTarget {
	t := v1alpha1.ClusterTarget{Name: name, Reference: v1alpha1.ClusterReference{Reference: v1alpha1.Reference{Version: "v1", Kind: kind}}}
	for _, c := range change {
		c(&t)
	}
	return t
}

// cluster is the work of a ClusterCleaner that stays, over Pods, Nodes and pools.
func cluster(rules ...v1alpha1.Rule) *v1alpha1.Work {
	return &v1alpha1.Work{
		CommonSpec: v1alpha1.CommonSpec{Lifecycle: v1alpha1.LifecycleRecurring, Rules: rules},
		Targets:    []v1alpha1.ClusterTarget{target("pods", "Pod"), target("nodes", "Node"), target("pools", "Pool")},
		Cluster:    true,
	}
}

// over is the input of a ClusterCleaner over these Pods, the Node n1 and no pool.
func over(t testing.TB, work *v1alpha1.Work, objects ...observed.Object) plan.Input {
	t.Helper()
	in := input(t, work, seen(objects...), nodesSeen("n1"), poolsSeen())
	in.Owner = plan.Owner{Name: "c", UID: "cleaner", Created: born}
	return in
}

func deletes(grace ...int64) v1alpha1.RuleAction {
	a := v1alpha1.RuleAction{Delete: &v1alpha1.DeleteAction{}}
	if len(grace) > 0 {
		a.Delete.GracePeriodSeconds = &grace[0]
	}
	return a
}

func patches(expression string) v1alpha1.RuleAction {
	return v1alpha1.RuleAction{Patch: &v1alpha1.PatchAction{Type: v1alpha1.PatchMerge, Expression: expression}}
}

// rule deletes all Pods, but for what is changed of it.
func rule(change ...func(*v1alpha1.Rule)) v1alpha1.Rule {
	r := v1alpha1.Rule{Name: "r", ForEach: "pods.items", When: "true", Actions: []v1alpha1.RuleAction{deletes()}}
	for _, c := range change {
		c(&r)
	}
	return r
}

// onPod is a step on a Pod.
func onPod(name string, after ...int) plan.Step {
	return plan.Step{Rule: "orphans", Object: pod(name), Verb: plan.VerbDelete, After: after}
}

func stepsOf(p plan.Plan) (out []string) {
	for i := range p.Steps {
		out = append(out, fmt.Sprint(p.Steps[i].Verb, " ", p.Steps[i].Object.Name, p.Steps[i].After))
	}
	return out
}

// asleep is a moment after the machine has slept: the time of day went on, and the clock that time.Time subtracts by stood
// still. No function of package time makes one.
func asleep(t time.Time, d time.Duration) time.Time {
	*(*uint64)(unsafe.Pointer(&t)) += uint64(d/time.Second) << 30 //nolint:gosec // the seconds of the time of day
	return t
}

// version is an object at a version.
func version(o observed.Object, version string) observed.Object {
	o.ResourceVersion = version
	return o
}
