// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vtex/cleaner/test/cluster"
	"github.com/vtex/cleaner/test/operator"
	"github.com/vtex/cleaner/test/spiderpool"
)

// pool is the pool of addresses of the third act.
const pool = "worker-172"

// leaks is the ClusterCleaner of the third act.
const leaks = `apiVersion: cleaner.vtex.dev/v1alpha1
kind: ClusterCleaner
metadata: {name: spiderpool-ip}
spec:
  lifecycle: Recurring
  mode: DryRun
  templateRef:
    name: spiderpool-ip
    parameters: {observedFor: 5s}         # default 60s
  limits: {maxActions: 100, per: 1h}      # records
`

// poolAct is the third act: the Pods that were lost with their Node had addresses, and no kubelet is left to give them back.
type poolAct struct{ story *story }

func (a poolAct) tell(ctx context.Context) error {
	a.story.chapter("A pool of Spiderpool")
	root, err := operator.Root()
	if err != nil {
		return err
	}
	if err := cluster.InstallCRDs(ctx, a.story.cluster.Config(), filepath.Join(root, "test", "spiderpool", "crds", "spiderpool.yaml")); err != nil {
		return err
	}
	if err := operator.InstallTemplates(ctx, a.story.cluster, "spiderpool"); err != nil {
		return err
	}
	if err := a.fill(ctx); err != nil {
		return err
	}
	a.story.chapter("Another ClusterCleaner")
	if err := a.story.firstInDryRun(ctx, leaks, func() error { return nil }, a.isAsItWas); err != nil {
		return err
	}
	return a.tellOfPatches(ctx)
}

// fill makes the pool, with the addresses of a Pod that runs and of the two that went with their Node. What Spiderpool would
// write is written here.
func (a poolAct) fill(ctx context.Context) error {
	records := map[string]map[string]string{
		"172.31.199.180": {"pod": shop + "/web-1", "podUid": string(a.story.pods["web-1"])},
		"172.31.199.181": {"pod": shop + "/web-2", "podUid": string(a.story.pods["web-2"])},
		"172.31.199.182": {"pod": shop + "/report-7", "podUid": string(a.story.pods["report-7"])},
	}
	text, err := json.Marshal(records)
	if err != nil {
		return err
	}
	u := of("SpiderIPPool", "", pool)
	u.Object["spec"] = map[string]any{"ipVersion": int64(4), "subnet": "172.31.192.0/20", "ips": []any{"172.31.199.180-172.31.199.189"}}
	if err := a.story.client.Create(ctx, u); err != nil {
		return fmt.Errorf("cannot create the pool: %w", err)
	}
	u.Object["status"] = map[string]any{"totalIPCount": int64(10), "allocatedIPCount": int64(len(records)), "allocatedIPs": string(text)}
	if err := a.story.client.Status().Update(ctx, u); err != nil {
		return fmt.Errorf("cannot write the status of the pool: %w", err)
	}
	for _, e := range []struct{ pod, node, ip string }{{"web-1", otherNode, "172.31.199.180/20"}, {"web-2", lostNode, "172.31.199.181/20"}} {
		endpoint := of("SpiderEndpoint", shop, e.pod)
		endpoint.Object["status"] = map[string]any{
			"ownerControllerType": "Deployment", "ownerControllerName": "web",
			"current": map[string]any{"uid": string(a.story.pods[e.pod]), "node": e.node, "ips": []any{map[string]any{"interface": "eth0", "ipv4": e.ip, "ipv4Pool": pool}}},
		}
		if err := a.story.client.Create(ctx, endpoint); err != nil {
			return fmt.Errorf("cannot create the endpoint: %w", err)
		}
	}
	a.story.say("The Pods that went with %s had addresses. What would give them back went with it.", lostNode)
	return a.tellOfRecords(ctx)
}

// of is an object of Spiderpool.
func of(kind, namespace, name string) *unstructured.Unstructured {
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(spiderpool.Group().WithKind(kind))
	u.SetNamespace(namespace)
	u.SetName(name)
	u.SetFinalizers([]string{spiderpool.Finalizer})
	return u
}

// tellOfRecords tells which addresses the pool has given away.
func (a poolAct) tellOfRecords(ctx context.Context) error {
	records, err := a.read(ctx)
	if err != nil {
		return err
	}
	for _, ip := range slices.Sorted(maps.Keys(records)) {
		a.story.say("SpiderIPPool %s: %s is of %s", pool, ip, records[ip].Pod)
	}
	return nil
}

func (a poolAct) read(ctx context.Context) (map[string]spiderpool.Record, error) {
	u := of("SpiderIPPool", "", pool)
	if err := a.story.client.Get(ctx, client.ObjectKeyFromObject(u), u); err != nil {
		return nil, fmt.Errorf("cannot read the pool: %w", err)
	}
	return spiderpool.Records(u)
}

// poolIsAsItWas tells that a dry run has changed nothing.
func (a poolAct) isAsItWas(ctx context.Context) error {
	records, err := a.read(ctx)
	if err != nil {
		return err
	}
	if len(records) != 3 {
		return fmt.Errorf("a dry run must change nothing, and %d records are left", len(records))
	}
	a.story.say("Nothing was: the pool has %d records still. kubectl edit, mode: Enforce.", len(records))
	return nil
}

// tellOfPatches shows how the pool was patched.
func (a poolAct) tellOfPatches(ctx context.Context) error {
	a.story.chapter("What was done to the pool, from the API server's audit log")
	events, err := a.story.audit.Events()
	if err != nil {
		return err
	}
	for _, e := range events {
		if !e.By(operator.User) || e.ObjectRef == nil || e.ObjectRef.APIGroup != spiderpool.Group().Group || e.Verb != "patch" && e.Verb != "delete" || dryRun(e) {
			continue
		}
		if err := a.story.request(e); err != nil {
			return err
		}
	}
	if err := a.tellOfRecords(ctx); err != nil {
		return err
	}
	endpoint := of("SpiderEndpoint", shop, "web-2")
	switch err := a.story.client.Get(ctx, client.ObjectKeyFromObject(endpoint), endpoint); {
	case err == nil:
		return errors.New("the endpoint of a Pod that is gone must be gone")
	case client.IgnoreNotFound(err) != nil:
		return fmt.Errorf("cannot read the endpoint: %w", err)
	default:
		return nil
	}
}
