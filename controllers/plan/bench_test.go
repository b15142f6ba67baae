// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"testing"

	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/controllers/plan/observed"
	"github.com/vtex/cleaner/controllers/plan/reuse"
)

// BenchmarkComputeRules decides about many Pods: none of them matches, all of them wait, all of them are deleted oldest
// first but for a few, all of them are patched and deleted after a look at their Nodes, and all of them leave one pool.
func BenchmarkComputeRules(b *testing.B) {
	release := patches(`{"spec": {"release": items.map(i, i.metadata.name)}}`)
	release.Object = "pools.items[0]"
	rules := map[string]v1alpha1.Rule{
		"None": rule(func(r *v1alpha1.Rule) { r.When = `!(item.spec.node in variables.byName)` }),
		"Hold": rule(func(r *v1alpha1.Rule) { r.For, r.ForKey = "40s", "item.spec.node" }),
		"Order": rule(func(r *v1alpha1.Rule) {
			r.OrderBy, r.Keep = []v1alpha1.OrderBy{{Expression: "item.spec.age"}}, new(intstr.FromInt32(100))
		}),
		"Acts": rule(func(r *v1alpha1.Rule) {
			r.Reason = `"node " + item.spec.node`
			r.Confirm = []v1alpha1.Confirm{{Target: "nodes", Name: "item.spec.node"}}
			r.Actions = []v1alpha1.RuleAction{patches(`{"status": {"phase": "Failed"}}`), deletes(0)}
		}),
		"Fold": rule(func(r *v1alpha1.Rule) { r.Actions = []v1alpha1.RuleAction{release} }),
	}
	for _, name := range []string{"None", "Hold", "Order", "Acts", "Fold"} {
		for _, n := range []int{20_000, 100_000} {
			b.Run(fmt.Sprintf("%s/%d", name, n), func(b *testing.B) {
				objects := make([]observed.Object, n)
				for i := range objects {
					objects[i] = p(fmt.Sprintf("pod-%06d", i), "node:n1", fmt.Sprintf("age:%06d", i*7919%n))
				}
				work := cluster(rules[name])
				work.Variables = []v1alpha1.Variable{{Name: "byName", Expression: "nodes.items.indexBy(n, n.metadata.name)"}}
				work.Limits = &v1alpha1.Limits{MaxActions: 1_000_000, MaxPercent: 100}
				in := over(b, work, objects...)
				in.Snapshot[2] = poolsSeen(pool("p1"))
				in.Batch = 500
				b.ReportAllocs()
				for b.Loop() {
					if plan := ComputePlan(b.Context(), in); len(plan.Errors) > 0 {
						b.Fatalf("%+v", plan.Errors)
					}
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(n), "ns/item")
			})
		}
	}
}

// BenchmarkComputeChange decides about many Pods after one of them has changed.
func BenchmarkComputeChange(b *testing.B) {
	for _, n := range []int{20_000, 100_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			objects := make([]observed.Object, n)
			for i := range objects {
				objects[i] = p(fmt.Sprintf("pod-%06d", i), "node:n1")
				objects[i].Content = uint64(i) + 1
			}
			work := cluster(rule(func(r *v1alpha1.Rule) { r.When = `!(item.spec.node in variables.byName)` }))
			work.Variables = []v1alpha1.Variable{{Name: "byName", Expression: "nodes.items.indexBy(n, n.metadata.name)"}}
			in := over(b, work, objects...)
			for i := range in.Snapshot[1].Objects {
				in.Snapshot[1].Objects[i].Content = uint64(n + i + 1)
			}
			for t := range in.Snapshot {
				in.Snapshot[t].At = t
			}
			in.Results = &reuse.Results{}
			whole := in.Snapshot
			plan, last := ComputePlan(b.Context(), in), uint64(2*n)
			b.ReportAllocs()
			for b.Loop() {
				last++
				o := &objects[last*7919%uint64(n)]
				change := observed.Change{Was: true, Before: o.Content, Now: o}
				o.Content = last
				in.Results, in.Snapshot = plan.Results, observed.Snapshot{{State: observed.Complete, At: last, IsChange: true, Changes: []observed.Change{change}}, {State: observed.Complete, At: last, IsChange: true}, {State: observed.Complete, At: last, IsChange: true}}
				var ok bool
				if plan, ok = ComputeChange(b.Context(), &in, plan.Base); ok {
					if plan.Evaluated != 1 {
						b.Fatalf("%d items were evaluated", plan.Evaluated)
					}
					continue
				}
				in.Snapshot = whole // from time to time, all are
				if plan = ComputePlan(b.Context(), in); plan.Base == nil {
					b.Fatal("there is no Base")
				}
			}
		})
	}
}

// BenchmarkChangeOfNode decides about many Pods after a Node has come or gone that none of them is on.
func BenchmarkChangeOfNode(b *testing.B) {
	const n, ofNodes = 100_000, 5_000
	objects := make([]observed.Object, n)
	for i := range objects {
		objects[i] = content(p(fmt.Sprintf("pod-%06d", i), fmt.Sprintf("node:n%04d", i%ofNodes)), i+1)
	}
	work := cluster(rule(func(r *v1alpha1.Rule) { r.When = `!(item.spec.node in variables.byName)` }))
	work.Variables = []v1alpha1.Variable{{Name: "byName", Expression: "nodes.items.indexBy(n, n.metadata.name)"}}
	in := over(b, work, objects...)
	in.Snapshot[1].Objects = nil
	for i := range ofNodes {
		in.Snapshot[1].Objects = append(in.Snapshot[1].Objects, content(object(nodes, "Node", "", fmt.Sprintf("n%04d", i)), n+i+1))
	}
	for t := range in.Snapshot {
		in.Snapshot[t].At = t
	}
	in.Results = &reuse.Results{}
	plan, last := ComputePlan(b.Context(), in), uint64(2*n)
	extra, here := content(object(nodes, "Node", "", "o"), 0), false
	b.ReportAllocs()
	for b.Loop() {
		last++
		change := observed.Change{Name: extra.Name, Was: here, Before: extra.Content}
		if here = !here; here {
			now := extra
			now.Content, extra.Content, change.Now = last, last, &now
		}
		in.Results = plan.Results
		in.Snapshot = observed.Snapshot{{State: observed.Complete, At: last, IsChange: true}, {State: observed.Complete, At: last, IsChange: true, Changes: []observed.Change{change}}, {State: observed.Complete, At: last, IsChange: true}}
		var ok bool
		if plan, ok = ComputeChange(b.Context(), &in, plan.Base); !ok || plan.Evaluated > 0 {
			b.Fatalf("%t: %d items were evaluated", ok, plan.Evaluated)
		}
	}
}
