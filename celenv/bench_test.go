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
)

// BenchmarkProposal evaluates the proposal's condition over 1,000 Revisions, in turn with our meter and as plain cel-go
// does, and reports how many times as long the first takes.
func BenchmarkProposal(b *testing.B) {
	c := newCompiler(b, Limits{})
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
	variables := in.variables()

	var ours, theirs time.Duration
	b.ReportAllocs()
	for b.Loop() {
		start := time.Now()
		if got := p.Conditions(b.Context(), in); !got[0].Value {
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
	c := newCompiler(b, Limits{})
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
