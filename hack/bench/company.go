// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/test/realistic"
)

// hosts is how many namespaces many Cleaners are in.
const hosts = 100

// crowdedCleaners measures what more and more Cleaners cost beside the four podgc templates on a large cluster, and how soon a Cleaner reacts there
// while Pods change.
func crowdedCleaners(ctx context.Context, r *rig, s sizes) (figures []figure, err error) {
	f, err := crowded(ctx, r)
	if err != nil {
		return nil, err
	}
	if err := f.grow(ctx, s.crowds[len(s.crowds)-1]); err != nil {
		return nil, err
	}
	end, err := startPodgc(ctx, r)
	defer func() { err = errors.Join(err, end()) }()
	if err != nil {
		return nil, err
	}
	namespaces := make([]string, hosts)
	for i := range namespaces {
		if namespaces[i], err = r.Namespace(ctx, "host"); err != nil {
			return nil, err
		}
		if err := r.fixtures.gate(ctx, namespaces[i], "gate"); err != nil {
			return nil, err
		}
	}
	there := 0
	for _, n := range s.hosted {
		err := each(n-there, makers, func(i int) error {
			name := member(there + i)
			return r.admin.Create(ctx, gated(namespaces[(there+i)%hosts], name, "gate", name))
		})
		if err != nil {
			return nil, err
		}
		there = n
		began := time.Now()
		took, err := f.restartOverCrowd(ctx, n+len(podgc()))
		if err != nil {
			return nil, err
		}
		made, err := countRequests(r, began)
		if err != nil {
			return nil, err
		}
		resident, err := r.rest(ctx)
		if err != nil {
			return nil, err
		}
		what := fmt.Sprintf("%d Cleaners and four podgc templates over %s: ", n, f.crowd)
		figures = append(figures,
			figure{What: what + "from the start of the operator until all are evaluated", Value: took.Round(100 * time.Millisecond).String()},
			figure{What: what + "resident memory of the operator", Value: fmt.Sprintf("%.0f MiB", resident)}.on("memory-cleaners", "Cleaner", float64(n), resident),
			figure{What: what + "requests until then, beyond watches", Value: counted(made)})
	}
	reacted, err := f.reactBesideChanges(ctx, s)
	return append(figures, reacted...), err
}

// reactBesideChanges measures how soon Cleaners react while Pods change.
func (f *field) reactBesideChanges(ctx context.Context, s sizes) ([]figure, error) {
	v, err := newVictim(ctx, f.rig, "amid", s.beside)
	if err != nil {
		return nil, err
	}
	changing, stop := context.WithCancel(ctx)
	defer stop()
	const rate = 50
	done := make(chan error, 1)
	go func() {
		_, err := f.change(changing, rate, patience)
		done <- err
	}()
	var took []time.Duration
	meanwhile, err := f.measureInterval(ctx, func() (err error) {
		took, err = v.react(ctx)
		return err
	})
	if err != nil {
		return nil, err
	}
	stop()
	if err := <-done; err != nil {
		return nil, err
	}
	what := fmt.Sprintf("%d Cleaners and four podgc templates over %s, %d changes of Pods per second: ", s.hosted[len(s.hosted)-1], f.crowd, rate)
	return []figure{
		{What: fmt.Sprintf("%sreaction, median of %d", what, s.beside), Value: percentile(took, 0.5).Round(100 * time.Microsecond).String()},
		{What: what + "reaction, 99th percentile", Value: percentile(took, 0.99).Round(100 * time.Microsecond).String()},
		{What: what + "CPU time of the operator per second", Value: fmt.Sprintf("%.0f ms", meanwhile.cpu())},
		{What: what + "resident memory of the operator", Value: fmt.Sprintf("%.0f MiB", meanwhile.resident())},
	}, nil
}

// confirmedPods is how many Pods each Cleaner confirms: more than it would list for itself.
const confirmedPods = 1000

// confirmations measures with which requests many Cleaners that are all due confirm the same kind.
func confirmations(ctx context.Context, r *rig, s sizes) ([]figure, error) {
	ns, err := r.Namespace(ctx, "confirmed")
	if err != nil {
		return nil, err
	}
	store := newStore(r.EtcdURL())
	err = each(confirmedPods, makers, func(i int) error {
		pod, err := realistic.Pod(ns, i, 0)
		if err != nil {
			return err
		}
		return store.putPod(ctx, pod)
	})
	if err != nil {
		return nil, err
	}
	if err := r.fixtures.configMaps(ctx, ns, "old", s.confirming, member); err != nil {
		return nil, err
	}
	if err := each(s.confirming, makers, func(i int) error { return r.admin.Create(ctx, confirming(ns, i)) }); err != nil {
		return nil, err
	}
	if err := r.fixtures.waits(ctx, ns, s.confirming); err != nil {
		return nil, err
	}
	before, err := r.requests(ns, "configmaps")
	if err != nil {
		return nil, err
	}
	began := time.Now()
	first, err := realistic.Pod(ns, 0, 0)
	if err != nil {
		return nil, err
	}
	open := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"open":"yes"}}}`))
	if err := r.admin.Patch(ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: first.Name}}, open); err != nil {
		return nil, err
	}
	if err := r.fixtures.gone(ctx, ns); err != nil {
		return nil, err
	}
	after, err := r.requests(ns, "configmaps")
	if err != nil {
		return nil, err
	}
	all, err := countRequests(r, began)
	if err != nil {
		return nil, err
	}
	what := fmt.Sprintf("%d Cleaners, all due at once, that confirm the same %d Pods: ", s.confirming, confirmedPods)
	return []figure{
		{What: what + "lists of Pods", Value: fmt.Sprint(all["list pods"])},
		{What: what + "requests for each Cleaner", Value: fmt.Sprintf("%.2f", float64(total(all))/float64(s.confirming))},
		{What: what + "deletions per second", Value: fmt.Sprintf("%.0f", float64(after.deletes-before.deletes)/after.last.Sub(after.first).Seconds())},
	}, nil
}

// confirming is a Cleaner that deletes a ConfigMap when one of all Pods of its namespace says so.
func confirming(namespace string, i int) *v1alpha1.Cleaner {
	included := false
	return &v1alpha1.Cleaner{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: member(i)},
		Spec: v1alpha1.CleanerSpec{
			CommonSpec: v1alpha1.CommonSpec{Conditions: []string{`pods.items.exists(p, p.metadata.?labels.open.orValue("") == "yes")`}},
			Targets: []v1alpha1.Target{
				{Name: "pods", Reference: v1alpha1.Reference{Version: "v1", Kind: "Pod", MatchLabels: map[string]string{}}},
				{Name: "old", Reference: v1alpha1.Reference{Version: "v1", Kind: "ConfigMap", Name: fmt.Sprintf("old-%d", i)}, Delete: true, IncludeWhenEvaluating: &included},
			},
		},
	}
}

func total(count map[string]int) int {
	all := 0
	for _, n := range count {
		all += n
	}
	return all
}
