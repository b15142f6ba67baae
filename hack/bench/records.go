// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vtex/cleaner/test/cluster"
	"github.com/vtex/cleaner/test/operator"
	"github.com/vtex/cleaner/test/spiderpool"
)

// perPool is how many addresses a pool has.
const perPool = 250

// recordedAddresses measures what spiderpool-ip takes for the record of each Pod's address in a pool, and how long it takes to free the address of a Pod that is
// deleted.
func recordedAddresses(ctx context.Context, r *rig, s sizes) (figures []figure, err error) {
	f, err := crowded(ctx, r)
	if err != nil {
		return nil, err
	}
	if err := f.installSpiderpool(ctx); err != nil {
		return nil, err
	}
	cc := collector("spiderpool-ip", map[string]any{"observedFor": "0s"})
	if err := r.admin.Create(ctx, cc); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, r.admin.Delete(ctx, cc)) }()
	recorded := 0
	for i, c := range s.recorded {
		switch {
		case f.crowd.pods < c.pods:
			if err := f.grow(ctx, c); err != nil {
				return nil, err
			}
		case f.crowd.pods > c.pods && i < len(s.recorded)-1: // another measurement needed more
			continue
		}
		if err := f.record(ctx, recorded, f.crowd.pods); err != nil {
			return nil, err
		}
		recorded = f.crowd.pods
		got, err := f.measureRecords(ctx)
		if err != nil {
			return nil, err
		}
		figures = append(figures, got...)
	}
	return figures, nil
}

// installSpiderpool installs its kinds, and what the operator may do with their objects.
func (f *field) installSpiderpool(ctx context.Context) error {
	root, err := operator.Root()
	if err != nil {
		return err
	}
	if err := cluster.InstallCRDs(ctx, f.Config(), filepath.Join(root, "test", "spiderpool", "crds", "spiderpool.yaml")); err != nil {
		return err
	}
	return operator.InstallTemplates(ctx, f.Cluster, "spiderpool")
}

// record writes an endpoint for each of these Pods, and the pools with the records of their addresses.
func (f *field) record(ctx context.Context, from, to int) error {
	err := each(to-from, makers, func(i int) error {
		pod, err := f.pod(from + i)
		if err != nil {
			return err
		}
		return f.store.putJSON(ctx, "/registry/"+spiderpool.Group().Group+"/spiderendpoints/"+pod.Namespace+"/"+pod.Name, newEndpoint(pod, poolName((from+i)/perPool)))
	})
	if err != nil {
		return err
	}
	return each((to-from+perPool-1)/perPool, makers, func(i int) error {
		pool, err := f.newPool(from/perPool+i, to)
		if err != nil {
			return err
		}
		return f.store.putJSON(ctx, "/registry/"+spiderpool.Group().Group+"/spiderippools/"+pool.GetName(), pool)
	})
}

func poolName(n int) string { return fmt.Sprintf("pool-%d", n) }

// newEndpoint makes the SpiderEndpoint of a Pod.
func newEndpoint(pod *corev1.Pod, pool string) *unstructured.Unstructured {
	o := &unstructured.Unstructured{Object: map[string]any{
		"status": map[string]any{
			"current": map[string]any{"uid": string(pod.UID), "node": pod.Spec.NodeName, "ips": []any{
				map[string]any{"interface": "eth0", "ipv4": pod.Status.PodIP + "/16", "ipv4Pool": pool, "ipv4Gateway": "10.0.0.1", "vlan": int64(0), "cleanGateway": false},
			}},
			"ownerControllerType": pod.OwnerReferences[0].Kind, "ownerControllerName": pod.OwnerReferences[0].Name,
		},
	}}
	o.SetGroupVersionKind(spiderpool.Group().WithKind("SpiderEndpoint"))
	o.SetNamespace(pod.Namespace)
	o.SetName(pod.Name)
	o.SetUID("e" + pod.UID[1:])
	o.SetCreationTimestamp(pod.CreationTimestamp)
	o.SetGeneration(1)
	o.SetFinalizers([]string{spiderpool.Finalizer})
	return o
}

// newPool makes the pool of a number, with the records of those of its Pods that there are.
func (f *field) newPool(n, pods int) (*unstructured.Unstructured, error) {
	type record struct {
		Interface string `json:"interface"`
		Pod       string `json:"pod"`
		PodUID    string `json:"podUid"`
	}
	all, ips := map[string]record{}, []any{}
	for i := n * perPool; i < min((n+1)*perPool, pods); i++ {
		pod, err := f.pod(i)
		if err != nil {
			return nil, err
		}
		all[pod.Status.PodIP] = record{"eth0", pod.Namespace + "/" + pod.Name, string(pod.UID)}
		ips = append(ips, pod.Status.PodIP)
	}
	text, err := json.Marshal(all)
	if err != nil {
		return nil, fmt.Errorf("cannot write records: %w", err)
	}
	o := &unstructured.Unstructured{Object: map[string]any{
		"spec":   map[string]any{"ipVersion": int64(4), "subnet": "10.0.0.0/8", "ips": ips, "gateway": "10.0.0.1"},
		"status": map[string]any{"allocatedIPs": string(text), "allocatedIPCount": int64(len(all)), "totalIPCount": int64(perPool)},
	}}
	o.SetGroupVersionKind(spiderpool.Group().WithKind("SpiderIPPool"))
	o.SetName(poolName(n))
	first, err := f.pod(n * perPool)
	if err != nil {
		return nil, err
	}
	o.SetUID("a" + first.UID[1:])
	o.SetCreationTimestamp(first.CreationTimestamp)
	o.SetGeneration(1)
	return o, nil
}

// measureRecords measures what the template takes for the records that there are.
func (f *field) measureRecords(ctx context.Context) ([]figure, error) {
	objects := float64(2*f.crowd.pods + f.crowd.nodes + f.crowd.pods/perPool)
	what := fmt.Sprintf("spiderpool-ip with the records of %s: ", f.crowd)
	took, err := f.restart(ctx, what+"an evaluation", func(now map[string]float64) bool {
		waits := 0.0
		for name, value := range now {
			if strings.HasPrefix(name, "cleaner_evaluations_total{") && strings.Contains(name, `"Wait"`) {
				waits += value
			}
		}
		return waits > 0 && sum(now, "cleaner_watched_objects") >= objects
	}, f.listFlags()...)
	if err != nil {
		return nil, err
	}
	resident, err := f.rest(ctx)
	if err != nil {
		return nil, err
	}
	freed, err := f.freeAddress(ctx)
	if err != nil {
		return nil, err
	}
	return []figure{
		{What: what + "from the start of the operator until all are evaluated", Value: took.Round(100 * time.Millisecond).String()},
		{What: what + "resident memory of the operator", Value: fmt.Sprintf("%.0f MiB", resident)},
		{What: what + "from the deletion of a Pod until its address is free", Value: freed.Round(100 * time.Millisecond).String()},
	}, nil
}

// freeAddress deletes a Pod, and returns how long it takes until its pool has no record of it. The Pod stays in the field's numbers: its record as well.
func (f *field) freeAddress(ctx context.Context) (time.Duration, error) {
	pod, err := f.pod(0)
	if err != nil {
		return 0, err
	}
	began := time.Now()
	if err := f.admin.Delete(ctx, pod, client.GracePeriodSeconds(0)); err != nil {
		return 0, fmt.Errorf("cannot delete a Pod: %w", err)
	}
	err = until(ctx, "the free address", func(ctx context.Context) (bool, error) {
		pool := &unstructured.Unstructured{}
		pool.SetGroupVersionKind(spiderpool.Group().WithKind("SpiderIPPool"))
		if err := f.admin.Get(ctx, client.ObjectKey{Name: poolName(0)}, pool); err != nil {
			return false, fmt.Errorf("cannot read a pool: %w", err)
		}
		text, _, err := unstructured.NestedString(pool.Object, "status", "allocatedIPs")
		return !strings.Contains(text, string(pod.UID)), err
	})
	took := time.Since(began)
	return took, errors.Join(err, f.store.putPod(ctx, pod), f.record(ctx, 0, perPool))
}
