// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package celenv

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/celenv/budget"
)

// BenchmarkProposal evaluates the proposal's condition over 1,000 Revisions, in turn with our meter and as plain cel-go
// does, and reports how many times as long the first takes.
func BenchmarkProposal(b *testing.B) {
	c := newCompiler(b, budget.Limits{})
	p := programs(b, c, proposal)
	items := make([]any, 1000)
	for i := range items {
		items[i] = revision(fmt.Sprint("r", i), "sfj-a,preview-b", "False", "2024-01-01T00:00:00Z")
	}
	in := Input{Targets: map[string]any{"revisions": list(items...)}, Time: at("2025-01-01T00:00:00Z")}

	// The plain program has cel-go's own adapter: ours is part of what is measured.
	env, err := c.env.Extend(cel.Variable("revisions", cel.DynType), cel.CustomTypeAdapter(types.DefaultTypeAdapter))
	if err != nil {
		b.Fatal(err)
	}
	ast, issues := env.Compile(proposal)
	if issues.Err() != nil {
		b.Fatal(issues.Err())
	}
	plain, err := env.Program(ast, cel.EvalOptions(cel.OptOptimize))
	if err != nil {
		b.Fatal(err)
	}
	variables := in.collectVariables()

	var ours, theirs time.Duration
	b.ReportAllocs()
	for b.Loop() {
		start := time.Now()
		if got := p.EvaluateConditions(b.Context(), in); !got[0].Value {
			b.Fatal(got[0].Err)
		}
		middle := time.Now()
		if out, _, err := plain.Eval(variables); err != nil || out.Value() != true {
			b.Fatal(out, err)
		}
		ours, theirs = ours+middle.Sub(start), theirs+time.Since(middle)
	}
	b.ReportMetric(float64(ours)/float64(theirs), "x-plain")
	b.ReportMetric(float64(ours.Microseconds())/float64(b.N), "µs/metered")
}

// BenchmarkCompile compiles what many Cleaners of one kind differ in by the names of their objects only, and reports what
// is held of each.
func BenchmarkCompile(b *testing.B) {
	c := newCompiler(b, budget.Limits{})
	var held []*Programs
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	b.ReportAllocs()
	for b.Loop() {
		held = append(held, programs(b, c, proposal))
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/float64(len(held)), "held-B/op")
}

// BenchmarkOrphaned asks for each Pod whether its Node is gone, and reports what that takes for one. It must not depend on
// how many there are.
func BenchmarkOrphaned(b *testing.B) {
	for _, size := range []struct{ pods, nodes int }{{20_000, 1_000}, {100_000, 5_000}} {
		b.Run(fmt.Sprintf("%dx%d", size.pods, size.nodes), func(b *testing.B) {
			p := compileWork(b, budget.Limits{}, podWork([]string{nodesByName}, orphaned()))
			nodes, pods := make([]any, size.nodes), make([]any, size.pods)
			for i := range nodes {
				nodes[i] = clusterNode(fmt.Sprint("node-", i))
			}
			for i := range pods {
				pods[i] = pod(fmt.Sprint("pod-", i), fmt.Sprint("node-", i%(size.nodes+1)), "Running")
			}
			in := Input{Time: at("2025-01-01T00:00:00Z"), Targets: map[string]any{"pods": list(pods...), "nodes": list(nodes...), "config": nil}}
			var all, when time.Duration
			b.ReportAllocs()
			for b.Loop() {
				start := time.Now()
				e, problem := p.BeginEvaluation(b.Context(), in)
				if problem != nil {
					b.Fatal(problem)
				}
				found, gone := items(b, e.SelectRule(0)), 0
				middle := time.Now()
				for _, item := range found {
					answer, problem := item.EvaluateWhen()
					if problem != nil {
						b.Fatal(problem)
					}
					if answer {
						gone++
					}
				}
				when, all = when+time.Since(middle), all+time.Since(start)
				e.Close()
				if want := size.pods / (size.nodes + 1); gone != want {
					b.Fatalf("%d are orphaned, and not %d", gone, want)
				}
			}
			perItem := float64(b.N) * float64(size.pods)
			b.ReportMetric(float64(all)/perItem, "ns/item")
			b.ReportMetric(float64(when)/perItem, "ns/when")
		})
	}
}

// BenchmarkForesight asks 1,000 items for their age, and how much longer it takes to foresee when the answers change.
func BenchmarkForesight(b *testing.B) {
	for name, when := range map[string]string{
		"Time":   `age(item) > duration("360h")`,
		"NoTime": `item.metadata.creationTimestamp > "2024-12-17T00:00:00Z"`,
	} {
		b.Run(name, func(b *testing.B) {
			w := podWork(nil, v1alpha1.Rule{Name: "r", ForEach: "pods.items", When: when})
			foreseeing, plain := compileWork(b, budget.Limits{}, w), compileWork(b, budget.Limits{}, w)
			if x := plain.rules[0].when; x.ahead != nil {
				x.ahead.planned = true // and there is no program
			}
			pods := make([]any, 1000)
			for i := range pods {
				pods[i] = map[string]any{"metadata": map[string]any{"name": fmt.Sprint(i), "creationTimestamp": at("2024-12-01T00:00:00Z").Add(time.Duration(i) * time.Hour).Format(time.RFC3339)}}
			}
			in := Input{Time: at("2025-01-01T00:00:00Z"), Targets: map[string]any{"pods": list(pods...), "nodes": list(), "config": nil}}
			ask := func(p *Programs) (Foresight, time.Duration) {
				start := time.Now()
				e, problem := p.BeginEvaluation(b.Context(), in)
				if problem != nil {
					b.Fatal(problem)
				}
				defer e.Close()
				for _, item := range items(b, e.SelectRule(0)) {
					if _, problem := item.EvaluateWhen(); problem != nil {
						b.Fatal(problem)
					}
				}
				return e.Foresight(), time.Since(start)
			}
			var with, without time.Duration
			for b.Loop() {
				foresight, took := ask(foreseeing)
				if foresight.Unknown || foresight.Until.IsZero() == (name == "Time") {
					b.Fatal(foresight)
				}
				with += took
				_, took = ask(plain)
				without += took
			}
			b.ReportMetric(float64(with)/float64(without), "x-without")
			b.ReportMetric(float64(with.Nanoseconds())/float64(b.N*len(pods)), "ns/item")
		})
	}
}
