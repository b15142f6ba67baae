// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package podallocatableip

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/feature"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/noderesources"
)

// How large the cluster of the benchmark is.
const (
	benchNodes = 5000
	benchPods  = 100
)

// BenchmarkFilter asks of 5,000 Nodes with 100 Pods each whether they take one more, as the scheduler does for one Pod. Beside
// it stands what the plugin NodeResourcesFit takes for the same.
func BenchmarkFilter(b *testing.B) {
	requests := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("10m"), corev1.ResourceMemory: resource.MustParse("10Mi")}
	sized := func(p *corev1.Pod) {
		p.Spec.Containers = []corev1.Container{{Name: "c", Resources: corev1.ResourceRequirements{Requests: requests}}}
	}
	// Each Node has Pods of its own, as in a cluster: most of them are in no cache of the processor.
	var nodes []fwk.NodeInfo
	for range benchNodes {
		nodes = append(nodes, info(node(), pods(benchPods, sized)))
	}
	cluster := func(ranges ...string) {
		for _, info := range nodes {
			n := node(ranges...)
			n.Status.Allocatable = corev1.ResourceList{
				corev1.ResourceCPU: resource.MustParse("64"), corev1.ResourceMemory: resource.MustParse("256Gi"), corev1.ResourcePods: resource.MustParse("250"),
			}
			info.SetNode(n)
		}
	}
	ours := plugin(b, "{}")
	for _, bc := range []struct {
		name   string
		ranges []string
		fits   bool
	}{
		{"free", []string{"10.0.0.0/24"}, true},
		{"free, dual stack", []string{"10.0.0.0/24", "fd00::/64"}, true},
		{"full", []string{"10.0.0.0/26"}, false}, // 61 addresses: all of them are counted
		{"without ranges", nil, true},
	} {
		cluster(bc.ranges...)
		b.Run(fmt.Sprintf("%s/%s", Name, bc.name), func(b *testing.B) {
			filter(b, nodes, bc.fits, func(pod *corev1.Pod, n fwk.NodeInfo) *fwk.Status { return ours.Filter(b.Context(), nil, pod, n) }, pod(sized))
		})
	}
	cluster("10.0.0.0/24")
	b.Run(noderesources.Name, func(b *testing.B) {
		made, err := noderesources.NewFit(b.Context(), &config.NodeResourcesFitArgs{ScoringStrategy: &config.ScoringStrategy{
			Type: config.LeastAllocated, Resources: []config.ResourceSpec{{Name: "cpu", Weight: 1}, {Name: "memory", Weight: 1}},
		}}, nil, feature.Features{})
		if err != nil {
			b.Fatal(err)
		}
		fit, state := made.(*noderesources.Fit), framework.NewCycleState()
		if _, status := fit.PreFilter(b.Context(), state, pod(sized), nodes); !status.IsSuccess() {
			b.Fatal(status)
		}
		filter(b, nodes, true, func(pod *corev1.Pod, n fwk.NodeInfo) *fwk.Status { return fit.Filter(b.Context(), state, pod, n) }, pod(sized))
	})
}

// filter asks of all Nodes, and holds each answer to what is wanted.
func filter(b *testing.B, nodes []fwk.NodeInfo, fits bool, ask func(*corev1.Pod, fwk.NodeInfo) *fwk.Status, p *corev1.Pod) {
	b.ReportAllocs()
	for b.Loop() {
		for _, n := range nodes {
			if ask(p, n).IsSuccess() != fits {
				b.Fatalf("%s: that it fits is not %t", n.Node().Spec.PodCIDR, fits)
			}
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(len(nodes)), "ns/node")
}
