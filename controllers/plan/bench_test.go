// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/vtex/cleaner/api/v1alpha1"
)

// BenchmarkRun carries a run from its decision to its result. A tenth of its rows is deleted between one re-check and the
// next, so that what is spent on a row may not depend on how many there are.
func BenchmarkRun(b *testing.B) {
	for _, rows := range []int{500, MaxRows} {
		b.Run(fmt.Sprint(rows), func(b *testing.B) {
			spec := &v1alpha1.Work{
				CommonSpec: v1alpha1.CommonSpec{Conditions: []string{`pods.items.all(p, p.status.phase == "Succeeded")`}},
				Targets:    []v1alpha1.ClusterTarget{podTarget("pods", deleted)},
			}
			objects := make([]Object, rows)
			for i := range objects {
				objects[i] = pod(fmt.Sprintf("pod-%05d", i))
			}
			in := input(b, spec, seen(objects...))
			b.ReportAllocs()
			for b.Loop() {
				if n := carry(b, in, rows); n != rows {
					b.Fatalf("%d rows were deleted, want %d", n, rows)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N)/float64(rows), "µs/row")
		})
	}
}

// carry carries out one run, and says how many rows it deleted.
func carry(b *testing.B, in Input, rows int) int {
	b.Helper()
	c := &v1alpha1.Cleaner{Spec: v1alpha1.CleanerSpec{CommonSpec: in.Spec.CommonSpec}}
	decides, err := FingerprintWork(in.Spec)
	if err != nil {
		b.Fatal(err)
	}
	run, m, _ := CommitRun(&c.Status, in, decides, ComputePlan(b.Context(), in))
	c.Status.Run, c.Status.Runs = run, 1
	left, gone := in.Snapshot[0].Objects, 0
	for now := in.Now; ; {
		req := Next(View{Cleaner: c, Helm: c.Spec.Helm, Decides: decides, Now: now, SettleFor: time.Minute}, m)
		switch req.Kind {
		case Act:
			for _, i := range req.Rows[:min(len(req.Rows), rows/10)] {
				m.TakeAnswer(i, RowAnswer{Did: v1alpha1.OutcomeDeleted}, now)
				gone++
			}
			left, now = left[min(len(left), rows/10):], now.Add(ConfirmationServes)
		case Recheck:
			in.Now, in.Snapshot = now, Snapshot{seen(left...)}
			m.TakeJudgement(JudgeRun(b.Context(), in, run, m), now)
		case Settle:
			sights := map[int]Sight{}
			for _, i := range req.Rows {
				sights[i] = Sight{Missing: true}
			}
			m.TakeSights(run, sights, now)
			m.TakeSettled(now)
		case WriteResult:
			FinishRun(run, m, req.Result, req.Message, now)
			return gone
		default:
			b.Fatalf("the run wants %s", req.Kind)
		}
	}
}

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
				objects := make([]Object, n)
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
