// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package podallocatableip

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
)

// EventsToRegister are the events after which a Pod that was rejected is worth another try. That a Node gets its ranges is
// none: it was left alone before.
func (p *Plugin) EventsToRegister(context.Context) ([]fwk.ClusterEventWithHint, error) {
	return []fwk.ClusterEventWithHint{
		// A Pod that has ended is deleted too, in the eyes of the scheduler.
		{Event: fwk.ClusterEvent{Resource: fwk.Pod, ActionType: fwk.Delete}, QueueingHintFn: p.hintPodDeleted},
		{Event: fwk.ClusterEvent{Resource: fwk.Node, ActionType: fwk.Add}, QueueingHintFn: p.hintNodeAdded},
	}, nil
}

// hintPodDeleted queues the Pod if the one that is gone has held an address, or one was kept for it.
func (*Plugin) hintPodDeleted(logger klog.Logger, pod *corev1.Pod, gone, _ any) (fwk.QueueingHint, error) {
	deleted, ok := gone.(*corev1.Pod)
	if !ok {
		return fwk.Queue, fmt.Errorf("a Pod was deleted, and it is a %T", gone)
	}
	if deleted.Spec.HostNetwork || deleted.Spec.NodeName == "" && deleted.Status.NominatedNodeName == "" {
		logger.V(5).Info("the deleted pod held no IP of its node and it doesn't make the pod schedulable", "pod", klog.KObj(pod), "deletedPod", klog.KObj(deleted))
		return fwk.QueueSkip, nil
	}
	logger.V(5).Info("a pod that held an IP was deleted, and it may make the pod schedulable", "pod", klog.KObj(pod), "deletedPod", klog.KObj(deleted))
	return fwk.Queue, nil
}

// hintNodeAdded queues the Pod if the Node has an address for anybody.
func (p *Plugin) hintNodeAdded(logger klog.Logger, pod *corev1.Pod, _, added any) (fwk.QueueingHint, error) {
	node, ok := added.(*corev1.Node)
	if !ok {
		return fwk.Queue, fmt.Errorf("a Node was added, and it is a %T", added)
	}
	if usable, limited, err := p.usable(node); err != nil || limited && usable == 0 {
		logger.V(5).Info("the added node has no pod IP and it doesn't make the pod schedulable", "pod", klog.KObj(pod), "node", klog.KObj(node))
		return fwk.QueueSkip, nil //nolint:nilerr // an unreadable range is no reason to try in vain
	}
	logger.V(5).Info("a node was added, and it may make the pod schedulable", "pod", klog.KObj(pod), "node", klog.KObj(node))
	return fwk.Queue, nil
}
