// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

// Package podallocatableip is a plugin of kube-scheduler that keeps Pods from Nodes whose spec.podCIDRs have no address left for them.
//
// It needs nothing of k8s.io/kubernetes, so that you can add it to a scheduler of your own: app.WithPlugin(Name, New).
package podallocatableip

import (
	"context"
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/vtex/cleaner/celenv/addresses"
)

// Name is the plugin's name in a KubeSchedulerConfiguration.
const Name = "PodAllocatableIP"

// Why a Node is no place for a Pod. The scheduler counts the Nodes of each reason, so that none names its Node.
const (
	// ReasonNoneFree can change when a Pod goes, and by preemption.
	ReasonNoneFree = "node(s) didn't have a free pod IP in their podCIDRs"
	// ReasonNone cannot: all addresses are reserved.
	ReasonNone = "node(s) had podCIDRs without a pod IP that is not reserved"
	// ReasonUnreadable is for what no range can be read from.
	ReasonUnreadable = "node(s) had podCIDRs that cannot be read"
)

// Plugin counts, for each Node, the addresses of its ranges against the Pods that hold one. It has no state: what the scheduler
// is about to bind is among the Pods of a NodeInfo, so that a burst of Pods is counted one by one.
type Plugin struct{ reserved Arguments }

var (
	_ fwk.FilterPlugin      = &Plugin{}
	_ fwk.EnqueueExtensions = &Plugin{}
	_ fwk.SignPlugin        = &Plugin{}
)

// New makes the plugin with its arguments of a KubeSchedulerConfiguration.
func New(_ context.Context, args runtime.Object, _ fwk.Handle) (fwk.Plugin, error) {
	reserved, err := readArguments(args)
	if err != nil {
		return nil, err
	}
	return &Plugin{reserved: reserved}, nil
}

// Name is that in logs, metrics and configurations.
func (*Plugin) Name() string { return Name }

// Filter rejects a Node that has no address for the Pod. A Node without ranges has its addresses elsewhere, and is left alone.
func (p *Plugin) Filter(_ context.Context, _ fwk.CycleState, pod *corev1.Pod, info fwk.NodeInfo) *fwk.Status {
	if !holdsAddress(pod) {
		return nil
	}
	usable, limited, err := p.usable(info.Node())
	switch {
	case err != nil:
		return fwk.NewStatus(fwk.UnschedulableAndUnresolvable, ReasonUnreadable)
	case !limited:
		return nil
	case usable == 0:
		return fwk.NewStatus(fwk.UnschedulableAndUnresolvable, ReasonNone)
	case hasRoom(info.GetPods(), usable):
		return nil
	}
	return fwk.NewStatus(fwk.Unschedulable, ReasonNoneFree)
}

// SignPod says what of a Pod the answers depend on: the scheduler decides once for many Pods that are alike.
func (*Plugin) SignPod(_ context.Context, pod *corev1.Pod) ([]fwk.SignFragment, *fwk.Status) {
	return []fwk.SignFragment{{Key: "v1.Pod.Spec.HostNetwork", Value: pod.Spec.HostNetwork}}, nil
}

// usable is how many Pods get an address on a Node, if its ranges say so. Of several ranges each Pod needs one of each, and so
// the scarcest one decides.
func (p *Plugin) usable(node *corev1.Node) (usable int64, limited bool, err error) {
	for i, text := range node.Spec.PodCIDRs {
		r, err := netip.ParsePrefix(text)
		if err != nil {
			return 0, true, err
		}
		if n := addresses.CountUsable(r, p.reserved.of(r)); i == 0 || n < usable {
			usable = n
		}
	}
	return usable, len(node.Spec.PodCIDRs) > 0, nil
}

// hasRoom tells whether fewer Pods hold an address than there are. On most Nodes it need not look at one of them.
func hasRoom(pods []fwk.PodInfo, usable int64) bool {
	if int64(len(pods)) < usable {
		return true
	}
	for _, pod := range pods {
		if !holdsAddress(pod.GetPod()) {
			continue
		}
		if usable--; usable <= 0 {
			return false
		}
	}
	return true
}

// holdsAddress tells whether a Pod holds an address of its Node's ranges, or is going to. One that is terminating does until it
// has ended.
func holdsAddress(pod *corev1.Pod) bool {
	return !pod.Spec.HostNetwork && pod.Status.Phase != corev1.PodSucceeded && pod.Status.Phase != corev1.PodFailed
}
