// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/test/cluster"
)

// fixtures are what measurements make in the cluster and wait for: ConfigMaps, gates, Cleaners and Pods.
type fixtures struct {
	cluster *cluster.Cluster
	admin   client.Client
}

// configMaps makes ConfigMaps with a label.
func (f *fixtures) configMaps(ctx context.Context, namespace, prefix string, n int, group func(i int) string) error {
	return each(n, makers, func(i int) error {
		return f.admin.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: fmt.Sprintf("%s-%d", prefix, i), Labels: map[string]string{"group": group(i)},
		}})
	})
}

// gate is a ConfigMap that Cleaners wait for.
func (f *fixtures) gate(ctx context.Context, namespace, name string) error {
	return f.admin.Create(ctx, &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Data: map[string]string{"open": "no"},
	})
}

// open lets the Cleaners go that wait for a gate.
func (f *fixtures) open(ctx context.Context, namespace, name string) error {
	return f.admin.Patch(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}},
		client.RawPatch("application/merge-patch+json", []byte(`{"data":{"open":"yes"}}`)))
}

// gated is a Cleaner that deletes the ConfigMaps of a group when its gate is open.
func gated(namespace, name, gate, group string) *v1alpha1.Cleaner {
	included := false
	reference := v1alpha1.Reference{Version: "v1", Kind: "ConfigMap"}
	named, selected := reference, reference
	named.Name, selected.MatchLabels = gate, map[string]string{"group": group}
	return &v1alpha1.Cleaner{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: v1alpha1.CleanerSpec{
			CommonSpec: v1alpha1.CommonSpec{Conditions: []string{`gate.data.open == "yes"`}},
			Targets: []v1alpha1.Target{
				{Name: "gate", Reference: named},
				{Name: "old", Reference: selected, Delete: true, IncludeWhenEvaluating: &included},
			},
		},
	}
}

// waits returns when n Cleaners of a namespace say that they wait for their conditions.
func (f *fixtures) waits(ctx context.Context, namespace string, n int) error {
	return until(ctx, fmt.Sprintf("%d Cleaners that wait", n), func(ctx context.Context) (bool, error) {
		var list v1alpha1.CleanerList
		if err := f.admin.List(ctx, &list, client.InNamespace(namespace)); err != nil {
			return false, err
		}
		ready := 0
		for i := range list.Items {
			if e := list.Items[i].Status.LastEvaluation; e != nil && e.Reason == v1alpha1.ReasonConditionsNotMet {
				ready++
			}
		}
		return ready == n, nil
	})
}

// gone returns when a namespace has no Cleaner. It asks for what the API server has in memory: to read a Cleaner with a
// large run from etcd once a second would cost as much as a dozen deletions.
func (f *fixtures) gone(ctx context.Context, namespace string) error {
	return until(ctx, "the Cleaners gone", func(ctx context.Context) (bool, error) {
		list := metav1.PartialObjectMetadataList{}
		list.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("CleanerList"))
		err := f.admin.List(ctx, &list, client.InNamespace(namespace), &client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: "0"}})
		return len(list.Items) == 0, err
	})
}

func node(i int) string { return fmt.Sprintf("node-%d", i) }

// pod is a Pod that runs on one of the Nodes.
func pod(namespace string, i int, c crowd) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: namespace, Name: fmt.Sprintf("pod-%d", i), Labels: map[string]string{"app": fmt.Sprintf("app-%d", i%50)},
	}}
	p.Spec.NodeName = node(i % c.nodes)
	p.Spec.Containers = []corev1.Container{{Name: "main", Image: "example.com/main:1", Env: []corev1.EnvVar{{Name: "LEVEL", Value: "info"}, {Name: "PORT", Value: "8080"}}}}
	p.Status.Phase = corev1.PodRunning
	p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}, {Type: corev1.PodScheduled, Status: corev1.ConditionTrue}}
	return p
}

// patchStatus changes the status of a Pod.
func (f *fixtures) patchStatus(ctx context.Context, namespace, name, change string) error {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	return f.admin.Status().Patch(ctx, p, client.RawPatch(types.MergePatchType, []byte(`{"status":`+change+`}`)))
}

// pods makes a namespace with Pods, and the Nodes that they are on.
func (f *fixtures) pods(ctx context.Context, prefix string, c crowd, phase corev1.PodPhase) (string, error) {
	ns, err := f.cluster.Namespace(ctx, prefix)
	if err != nil {
		return "", err
	}
	err = each(c.nodes, makers, func(i int) error {
		return client.IgnoreAlreadyExists(f.admin.Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node(i)}}))
	})
	if err != nil {
		return "", err
	}
	return ns, each(c.pods, makers, func(i int) error {
		p := pod(ns, i, c)
		if err := f.admin.Create(ctx, p); err != nil {
			return err
		}
		return f.patchStatus(ctx, ns, p.Name, fmt.Sprintf(`{"phase":%q}`, phase))
	})
}

// left returns when a namespace has no more than so many Pods.
func (f *fixtures) left(ctx context.Context, namespace string, n int64) error {
	return until(ctx, "the Pods gone", func(ctx context.Context) (bool, error) {
		list := metav1.PartialObjectMetadataList{}
		list.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("PodList"))
		err := f.admin.List(ctx, &list, client.InNamespace(namespace), client.Limit(1))
		there := int64(len(list.Items))
		if list.RemainingItemCount != nil {
			there += *list.RemainingItemCount
		}
		return there <= n, err
	})
}
