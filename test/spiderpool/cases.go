// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

// Package spiderpool has the tables of what becomes of leaked addresses in pools of Spiderpool. Its tests play them on a real API server
// with the templates that are shipped, and let another client allocate meanwhile. It has the CRDs of the kinds in the templates. It never
// touches a cluster that it has not started, and has nothing of Spiderpool itself.
package spiderpool

import (
	"encoding/json"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/vtex/cleaner/api/v1alpha1"
)

// Group returns the group of Spiderpool's kinds.
func Group() schema.GroupVersion {
	return schema.GroupVersion{Group: "spiderpool.spidernet.io", Version: "v2beta1"}
}

// KubeVirt returns the group of KubeVirt's kinds.
func KubeVirt() schema.GroupVersion { return schema.GroupVersion{Group: "kubevirt.io", Version: "v1"} }

const (
	// Finalizer is what holds pools and endpoints.
	Finalizer = "spiderpool.spidernet.io"
	// Pool is the pool of a case.
	Pool = "p4"
	// Namespace is where the Pods of a case are.
	Namespace = "shop"
)

// Case is one of the tables in config/templates/testdata/spiderpool, whose README says what its fields mean.
type Case struct {
	Name         string            `json:"name"`
	Parameters   map[string]any    `json:"parameters"`
	KubeVirt     bool              `json:"kubeVirt"`
	Records      []Record          `json:"records"`
	Nodes        map[string]string `json:"nodes"`
	Pods         []Pod             `json:"pods"`
	Endpoints    []Endpoint        `json:"endpoints"`
	StatefulSets []StatefulSet     `json:"statefulSets"`
	Machines     []Virtual         `json:"machines"`
	Instances    []Virtual         `json:"instances"`
	Safe         Outcome           `json:"safe"`
	Parity       Outcome           `json:"parity"`
}

// Record is an allocated address.
type Record struct {
	IP  string `json:"ip"`
	Pod string `json:"pod"`
	UID string `json:"uid"`
}

// Pod is a Pod of a case.
type Pod struct {
	Name        string            `json:"name"`
	UID         string            `json:"uid"`
	Owner       string            `json:"owner"`
	Node        string            `json:"node"`
	HostNetwork bool              `json:"hostNetwork"`
	Mirror      bool              `json:"mirror"`
	Phase       string            `json:"phase"`
	IPs         []string          `json:"ips"`
	Deleted     v1alpha1.Duration `json:"deleted"`
	Ended       v1alpha1.Duration `json:"ended"`
	Evicted     v1alpha1.Duration `json:"evicted"`
}

// Endpoint is a SpiderEndpoint of a case.
type Endpoint struct {
	Name        string   `json:"name"`
	UID         string   `json:"uid"`
	Owner       string   `json:"owner"`
	IPs         []string `json:"ips"`
	Pool        string   `json:"pool"`
	Terminating bool     `json:"terminating"`
	Finalizers  []string `json:"finalizers"`
}

// StatefulSet is a StatefulSet of a case.
type StatefulSet struct {
	Name     string `json:"name"`
	Replicas int32  `json:"replicas"`
	Start    int32  `json:"start"`
}

// Virtual is a VirtualMachine or a VirtualMachineInstance of a case.
type Virtual struct {
	Name        string `json:"name"`
	Terminating bool   `json:"terminating"`
	Machine     bool   `json:"machine"`
}

// Outcome is what becomes of the objects of a case.
type Outcome struct {
	Released  []string `json:"released"`
	Endpoints []string `json:"endpoints"`
	Held      []string `json:"held"`
	Outdated  []string `json:"outdated"`
}

// Of is the outcome in a profile.
func (c *Case) Of(profile string) Outcome {
	if profile == "parity" {
		return c.Parity
	}
	return c.Safe
}

// record is a Record as it stands in a pool.
type record struct {
	Pod string `json:"pod"`
	UID string `json:"podUid"`
}

// Records are those of a pool, by address. It is an error if they are not as Spiderpool writes them: no field for no
// records, and their number beside them.
func Records(pool *unstructured.Unstructured) (map[string]Record, error) {
	text, there, err := unstructured.NestedString(pool.Object, "status", "allocatedIPs")
	if err != nil {
		return nil, err
	}
	count, _, err := unstructured.NestedInt64(pool.Object, "status", "allocatedIPCount")
	if err != nil {
		return nil, err
	}
	read, out := map[string]record{}, map[string]Record{}
	if there {
		if err := json.Unmarshal([]byte(text), &read); err != nil {
			return nil, fmt.Errorf("cannot read the records %q: %w", text, err)
		}
	}
	for ip, r := range read {
		out[ip] = Record{IP: ip, Pod: r.Pod, UID: r.UID}
	}
	switch {
	case there && len(out) == 0:
		return nil, fmt.Errorf("no records are written as %q", text)
	case int(count) != len(out):
		return nil, fmt.Errorf("there are %d records, and the pool counts %d", len(out), count)
	}
	return out, nil
}
