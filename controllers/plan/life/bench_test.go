// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package life

import (
	"fmt"
	"testing"
	"time"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/controllers/plan"
	"github.com/vtex/cleaner/controllers/plan/observed"
)

// BenchmarkRun carries a run from its decision to its result. A tenth of its rows is deleted between one re-check and the
// next, so that what is spent on a row may not depend on how many there are.
func BenchmarkRun(b *testing.B) {
	for _, rows := range []int{500, plan.MaxRows} {
		b.Run(fmt.Sprint(rows), func(b *testing.B) {
			spec := &v1alpha1.Work{
				CommonSpec: v1alpha1.CommonSpec{Conditions: []string{`pods.items.all(p, p.status.phase == "Succeeded")`}},
				Targets:    []v1alpha1.ClusterTarget{podTarget("pods", deleted)},
			}
			objects := make([]observed.Object, rows)
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
func carry(b *testing.B, in plan.Input, rows int) int {
	b.Helper()
	c := &v1alpha1.Cleaner{Spec: v1alpha1.CleanerSpec{CommonSpec: in.Spec.CommonSpec}}
	decides, err := FingerprintWork(in.Spec)
	if err != nil {
		b.Fatal(err)
	}
	run, m, _ := CommitRun(&c.Status, in, decides, plan.ComputePlan(b.Context(), in))
	c.Status.Run, c.Status.Runs = run, 1
	left, gone := in.Snapshot[0].Objects, 0
	for now := in.Now; ; {
		req := Next(View{Cleaner: c, Helm: c.Spec.Helm, Decides: decides, Now: now, SettleFor: time.Minute}, m)
		switch req.Kind {
		case Act:
			for _, i := range req.Rows[:min(len(req.Rows), rows/10)] {
				m.RecordAnswer(i, RowAnswer{Did: v1alpha1.OutcomeDeleted}, now)
				gone++
			}
			left, now = left[min(len(left), rows/10):], now.Add(ConfirmationServes)
		case Recheck:
			in.Now, in.Snapshot = now, observed.Snapshot{seen(left...)}
			m.RecordJudgement(JudgeRun(b.Context(), in, run, m), now)
		case Settle:
			sights := map[int]Sight{}
			for _, i := range req.Rows {
				sights[i] = Sight{Missing: true}
			}
			m.RecordSights(run, sights, now)
			m.RecordSettleLook(now)
		case WriteResult:
			FinishRun(run, m, req.Result, req.Message, now)
			return gone
		default:
			b.Fatalf("the run wants %s", req.Kind)
		}
	}
}
