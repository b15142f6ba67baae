// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package podgc

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/test/live"
)

// kube-controller-manager has nothing like terminating-pods, so it is held to what its README says.
func TestTerminatingPods(t *testing.T) {
	t.Cleanup(func() { live.Judge(t, ours, ours.Dir(), ours.audit) })
	const delay = 2 * time.Second
	s, err := stage(t.Context(), ours, &Case{
		Nodes: []Node{{Name: "ready", Ready: "True"}, {Name: "not-ready", Ready: "False"}},
		Pods: []Pod{
			{Name: "stays", Node: "ready", Phase: corev1.PodRunning},
			{Name: "has-time", Node: "ready", Phase: corev1.PodRunning, Deleted: true}, // an hour
			{Name: "nowhere", Phase: corev1.PodPending, Deleted: true},
			{Name: "lost", Node: "lost", Phase: corev1.PodRunning, Deleted: true, Grace: ptr.To[int64](1)},
			{Name: "on-ready", Node: "ready", Phase: corev1.PodRunning, Deleted: true, Grace: ptr.To[int64](1)},
			{Name: "on-not-ready", Node: "not-ready", Phase: corev1.PodRunning, Deleted: true, Grace: ptr.To[int64](1)},
		},
	}, 200)
	if err != nil {
		t.Fatal(err)
	}
	stateful(t, s)
	names := []string{"stays", "has-time", "nowhere", "lost", "on-ready", "on-not-ready", "db-0"}
	due := map[string]time.Time{} // a deletion by force gives a Pod another deletionTimestamp
	live.Eventually(t, "the Pods are seen terminating", func() string {
		for _, name := range names {
			now := s.pod(s.namespace, name)
			switch {
			case now.Pod == nil || name != "stays" && now.DeletionTimestamp == nil:
				return name
			case name != "stays":
				due[name] = now.DeletionTimestamp.Add(delay)
			}
		}
		return ""
	})
	left := func(want ...string) {
		t.Helper()
		live.Eventually(t, fmt.Sprintf("%v are left", want), func() string {
			there := map[string]bool{}
			for _, name := range names {
				if !s.pod(s.namespace, name).gone {
					there[name] = true
				}
			}
			if got := slices.Sorted(maps.Keys(there)); !slices.Equal(got, slices.Sorted(slices.Values(want))) {
				return fmt.Sprintf("%v are", got)
			}
			return ""
		})
	}

	parameters := map[string]any{"additionalGraceDelay": delay.String(), "onReadyNode": false}
	cc := collect(t, "terminating-pods", parameters, func(c *v1alpha1.CommonSpec) { c.Retry = &v1alpha1.Retry{Period: "10s"} })
	left("stays", "has-time", "nowhere", "lost", "on-ready", "db-0")
	live.Evaluates(t, ours, cc)
	left("stays", "has-time", "nowhere", "lost", "on-ready", "db-0")

	change(t, cc, parameters, "onReadyNode", true)
	left("stays", "has-time", "nowhere", "lost", "db-0")
	live.Evaluates(t, ours, cc)
	left("stays", "has-time", "nowhere", "lost", "db-0")

	change(t, cc, parameters, "statelessOnly", false)
	left("stays", "has-time", "nowhere", "lost")

	for _, e := range s.requests(t, func(ns string) bool { return ns == s.namespace }) {
		if due := due[e.ObjectRef.Name]; e.Verb != "delete" || e.RequestReceivedTimestamp.Time.Before(due) {
			t.Errorf("%s at %s, and it was not due before %s", e, e.RequestReceivedTimestamp, due)
		}
	}
}

// Nothing happens to a Pod that hangs. It is taken at its moment all the same, long before the Cleaner would look again.
func TestTerminatingPodsAreTakenAtTheirMoment(t *testing.T) {
	t.Cleanup(func() { live.Judge(t, ours, ours.Dir(), ours.audit) })
	const delay = 15 * time.Second
	s, err := stage(t.Context(), ours, &Case{
		Nodes: []Node{{Name: "ready", Ready: "True"}},
		Pods: []Pod{
			{Name: "stuck", Node: "ready", Phase: corev1.PodRunning, Deleted: true, Grace: ptr.To[int64](1)},
			{Name: "has-time", Node: "ready", Phase: corev1.PodRunning, Deleted: true},
		},
	}, 201)
	if err != nil {
		t.Fatal(err)
	}
	var due time.Time
	live.Eventually(t, "the Pod is seen terminating", func() string {
		now := s.pod(s.namespace, "stuck")
		if now.Pod == nil || now.DeletionTimestamp == nil {
			return "it is not"
		}
		due = now.DeletionTimestamp.Add(delay)
		return ""
	})
	cc := collect(t, "terminating-pods", map[string]any{"additionalGraceDelay": delay.String()}, func(c *v1alpha1.CommonSpec) { c.Retry = &v1alpha1.Retry{Period: "1h"} })
	live.Evaluates(t, ours, cc)
	if last := cc.Status.LastEvaluation; last == nil || last.Reason != v1alpha1.ReasonNothingToDo || !time.Now().Before(due) {
		t.Fatalf("before %s it is to have nothing to do: %+v", due, last)
	}
	live.Eventually(t, "the Pod is gone", func() string {
		if !s.pod(s.namespace, "stuck").gone {
			return "it is not"
		}
		return ""
	})
	if s.pod(s.namespace, "has-time").gone {
		t.Error("another Pod is gone, too")
	}
	requests := s.requests(t, func(ns string) bool { return ns == s.namespace })
	for _, e := range requests {
		if at := e.RequestReceivedTimestamp.Time; e.Verb != "delete" || at.Before(due) || at.After(due.Add(10*time.Second)) {
			t.Errorf("%s at %s, and it was due at %s", e, at, due)
		}
	}
	if len(requests) == 0 {
		t.Error("nobody has deleted it")
	}
}

// stateful makes a StatefulSet, and a Pod of it on the ready Node that is stuck. The set itself wants no Pods, so that none
// takes the place of the one that goes.
func stateful(t *testing.T, s *scene) {
	t.Helper()
	labels := map[string]string{"app": "db"}
	set := &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: "db"},
		Spec: appsv1.StatefulSetSpec{
			Replicas: ptr.To[int32](0), Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "example.com/main"}}},
			},
		},
	}
	if err := s.Create(t.Context(), set); err != nil {
		t.Fatal(err)
	}
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: s.namespace, Name: "db-0", Labels: labels,
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(set, appsv1.SchemeGroupVersion.WithKind("StatefulSet"))},
		},
		Spec: *set.Spec.Template.Spec.DeepCopy(),
	}
	pod.Spec.NodeName = s.nodes + "ready"
	if err := s.Create(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	if err := s.Delete(t.Context(), pod, client.GracePeriodSeconds(1)); err != nil {
		t.Fatal(err)
	}
}

// change gives a parameter of a template another value.
func change(t *testing.T, cc *v1alpha1.ClusterCleaner, parameters map[string]any, name string, value any) {
	t.Helper()
	parameters[name] = value
	patch, err := json.Marshal(map[string]any{"spec": map[string]any{"templateRef": map[string]any{"name": cc.Spec.TemplateRef.Name, "parameters": parameters}}})
	if err != nil {
		t.Fatal(err)
	}
	if err := ours.Patch(t.Context(), cc, client.RawPatch("application/merge-patch+json", patch)); err != nil {
		t.Fatal(err)
	}
}
