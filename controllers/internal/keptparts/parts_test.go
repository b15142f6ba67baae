// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package keptparts

import (
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/vtex/cleaner/celenv/projection"
	"github.com/vtex/cleaner/controllers/snapshot"
)

// readsOf reads the values at some paths.
func readsOf(paths ...[]string) *snapshot.Reads {
	merged := &projection.Projection{}
	for _, path := range paths {
		merged = projection.Merge(merged, projection.KeepPath(path...))
	}
	return snapshot.NewReads(merged)
}

var (
	phase = readsOf([]string{"status", "phase"})
	node  = readsOf([]string{"spec", "nodeName"})
	both  = readsOf([]string{"status", "phase"}, []string{"spec", "nodeName"})
)

// pathsOf lists what Parts keep.
func pathsOf(p *Parts) []string { return p.Reads().Projection().ListPaths() }

func TestWantsCountQueries(t *testing.T) {
	var w Wants
	w.DropQuery(phase) // which nothing wants
	if len(w.ListReads()) != 0 || !w.AreCoveredBy(MergeReads(nil)) {
		t.Error("something is wanted of nothing")
	}
	w.AddQuery(phase)
	w.AddQuery(readsOf([]string{"status", "phase"}))
	w.AddQuery(node)
	if got := w.ListReads(); len(got) != 2 {
		t.Errorf("%d reads are told apart", len(got))
	}
	w.DropQuery(phase)
	if !slices.Contains(w.ListReads(), phase) {
		t.Error("a query is left, and its reads are not")
	}
	w.DropQuery(phase)
	if got := w.ListReads(); len(got) != 1 || got[0] != node {
		t.Errorf("left are %v", got)
	}
	w.AddQuery(nil)
	if !slices.Contains(w.ListReads(), nil) {
		t.Error("who reads all is not there")
	}
	w.DropQuery(nil)
	if len(w.ListReads()) != 1 {
		t.Error("who reads all is still there")
	}
}

func TestMergedPartsCoverWhatIsWanted(t *testing.T) {
	for name, tc := range map[string]struct {
		merged   []*snapshot.Reads
		want     []string
		covers   []*snapshot.Reads
		leaveOut []*snapshot.Reads
	}{
		"Nothing": {nil, nil, nil, []*snapshot.Reads{phase, nil}},
		"One":     {[]*snapshot.Reads{phase}, []string{"status.phase"}, []*snapshot.Reads{phase, readsOf([]string{"status", "phase", "a"})}, []*snapshot.Reads{node, both, nil}},
		"Several": {[]*snapshot.Reads{phase, node, readsOf([]string{"a"})}, []string{"a", "spec.nodeName", "status.phase"}, []*snapshot.Reads{phase, node, both}, []*snapshot.Reads{readsOf([]string{"b"}), nil}},
		"All":     {[]*snapshot.Reads{phase, nil}, []string{"*"}, []*snapshot.Reads{phase, node, nil}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			p := MergeReads(tc.merged)
			if diff := cmp.Diff(tc.want, pathsOf(p)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			for range 2 { // the second answer is remembered
				for _, r := range tc.covers {
					if !p.Covers(r) {
						t.Errorf("%v are not covered", r.Projection().ListPaths())
					}
				}
				for _, r := range tc.leaveOut {
					if p.Covers(r) {
						t.Errorf("%v are covered", r.Projection().ListPaths())
					}
				}
			}
		})
	}
	if !KeepAll().Covers(nil) || !(*Parts)(nil).Covers(nil) || (*Parts)(nil).Reads() != nil {
		t.Error("all does not cover all")
	}
	if !MergeReads([]*snapshot.Reads{phase, node}).IsSameAs(MergeReads([]*snapshot.Reads{node, phase})) || MergeReads([]*snapshot.Reads{phase}).IsSameAs(KeepAll()) {
		t.Error("Parts that are the same are told apart, or others are not")
	}
	var w Wants
	w.AddQuery(phase)
	w.AddQuery(node)
	if w.AreCoveredBy(MergeReads([]*snapshot.Reads{phase})) || !w.AreCoveredBy(MergeReads([]*snapshot.Reads{both})) {
		t.Error("not all wants are asked")
	}
}

func TestWantsAreLessThanParts(t *testing.T) {
	kept := MergeReads([]*snapshot.Reads{phase, node})
	many := make([]*snapshot.Reads, 2000)
	for n := range many {
		many[n] = readsOf([]string{"status", "phase", fmt.Sprint(n)})
	}
	for name, tc := range map[string]struct {
		reads []*snapshot.Reads
		kept  *Parts
		want  bool
	}{
		"Nothing":     {nil, kept, true},
		"Less":        {[]*snapshot.Reads{phase}, kept, true},
		"LessDeeper":  {[]*snapshot.Reads{node, readsOf([]string{"status", "phase", "a"})}, kept, true},
		"TheSame":     {[]*snapshot.Reads{node, phase}, kept, false},
		"TheSameOnce": {[]*snapshot.Reads{both}, kept, false},
		"Other":       {[]*snapshot.Reads{readsOf([]string{"a"})}, kept, false},
		"More":        {[]*snapshot.Reads{both, readsOf([]string{"a"})}, kept, false},
		"All":         {[]*snapshot.Reads{nil}, kept, false},
		"PartsOfAll":  {[]*snapshot.Reads{both}, KeepAll(), true},
		"AllOfAll":    {[]*snapshot.Reads{both, nil}, KeepAll(), false},
		"TooMany":     {many, kept, false},
	} {
		t.Run(name, func(t *testing.T) {
			var w Wants
			for _, r := range tc.reads {
				w.AddQuery(r)
			}
			if got := w.AreLessThan(tc.kept); got != tc.want {
				t.Errorf("they are less: %t, want %t", got, tc.want)
			}
		})
	}
}

// However much is read: what a store tells apart is bounded, and so are the answers that it remembers.
func TestPartsAreBounded(t *testing.T) {
	var all []*snapshot.Reads
	for n := range maxParts + 1 {
		all = append(all, readsOf([]string{"spec", fmt.Sprint("f", n)}))
	}
	if got := pathsOf(MergeReads(all[:maxParts-1])); len(got) != maxParts-1 {
		t.Errorf("of %d, %d are kept", maxParts-1, len(got))
	}
	if p := MergeReads(all); p.Reads() != nil {
		t.Errorf("%d parts are told apart", p.Reads().Projection().CountParts())
	}
	p := MergeReads([]*snapshot.Reads{phase})
	for n := range maxAnswers + 10 {
		if p.Covers(readsOf([]string{fmt.Sprint("f", n)})) {
			t.Fatal("it is covered")
		}
	}
	if len(p.answers) > maxAnswers {
		t.Errorf("%d answers are remembered", len(p.answers))
	}
	if !p.Covers(phase) || p.Covers(node) {
		t.Error("what was forgotten is answered otherwise")
	}
}

// Readers ask at the same time.
func TestPartsAreAskedAtOnce(t *testing.T) {
	p := MergeReads([]*snapshot.Reads{phase})
	var asking sync.WaitGroup
	for n := range 8 {
		asking.Go(func() {
			for i := range 100 {
				if !p.Covers(phase) || p.Covers(readsOf([]string{fmt.Sprint(n, i)})) {
					t.Error("a wrong answer")
				}
			}
		})
	}
	asking.Wait()
}
