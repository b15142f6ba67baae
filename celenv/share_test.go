// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package celenv

import (
	"strings"
	"testing"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/celenv/expr"
)

// sharedMemory lets so many bytes be held, and remembers the most that was asked for, and what is kept.
type sharedMemory struct{ most, asked, kept int64 }

func (m *sharedMemory) HoldBytes(bytes int64) bool {
	m.asked = max(m.asked, bytes)
	return bytes <= m.most
}

func (m *sharedMemory) KeepBytes(bytes int64) { m.kept += bytes }

// What variables build, and what is retained, is asked for before it is held; what is built for an item is let go of with it. Once it is
// refused nothing more is answered.
func TestEvaluationsAskForMemory(t *testing.T) {
	const mib = 1 << 20
	large := v1alpha1.Variable{Name: "large", Expression: "lists.range(100000).map(x, [x])"}
	items := []v1alpha1.Rule{{
		Name: "r", ForEach: "lists.range(100)", When: "true", Key: "lists.range(4000).map(x, [x]).size() > 0 ? string(item) : ''",
		Actions: []v1alpha1.RuleAction{{Report: &v1alpha1.ReportAction{}}},
	}}
	for name, tc := range map[string]struct {
		spec     *v1alpha1.Work
		retained int
		most     int64
		atLeast  int64
		refused  bool
	}{
		"Variable":        {spec: &v1alpha1.Work{CommonSpec: v1alpha1.CommonSpec{Variables: []v1alpha1.Variable{large}, Conditions: []string{"variables.large.size() > 0"}}}, most: 100 * mib, atLeast: 4 * mib},
		"VariableRefused": {spec: &v1alpha1.Work{CommonSpec: v1alpha1.CommonSpec{Variables: []v1alpha1.Variable{large}, Conditions: []string{"variables.large.size() > 0", "true"}}}, most: 2 * mib, atLeast: 3 * mib, refused: true},
		"Items":           {spec: &v1alpha1.Work{CommonSpec: v1alpha1.CommonSpec{Rules: items}}, most: 2 * mib, atLeast: mib / 2},
		"Retained":        {spec: &v1alpha1.Work{CommonSpec: v1alpha1.CommonSpec{Conditions: []string{"true"}}}, retained: 3 * mib, most: 4 * mib, atLeast: 3 * mib},
		"RetainedRefused": {spec: &v1alpha1.Work{CommonSpec: v1alpha1.CommonSpec{Conditions: []string{"true"}}}, retained: 3 * mib, most: 2 * mib, atLeast: 3 * mib, refused: true},
		"None":            {spec: &v1alpha1.Work{CommonSpec: v1alpha1.CommonSpec{Conditions: []string{"true"}}}, most: -1, refused: true},
	} {
		t.Run(name, func(t *testing.T) {
			compiler, err := NewCompiler(Options{})
			if err != nil {
				t.Fatal(err)
			}
			programs, errs := compiler.Compile(t.Context(), tc.spec)
			if len(errs) > 0 {
				t.Fatal(errs)
			}
			m := &sharedMemory{most: tc.most}
			e, problem := programs.BeginEvaluation(t.Context(), Input{Memory: m})
			if problem == nil {
				e.EvaluateConditions()
				for i := range tc.spec.Rules {
					all, err := e.SelectRule(i).EvaluateItems()
					if err != nil {
						t.Fatal(err)
					}
					for _, item := range listItems(all) {
						if _, err := item.EvaluateKey(); err != nil {
							t.Fatal(err)
						}
					}
				}
				if tc.retained > 0 {
					e.RetainBytes("here", tc.retained)
				}
				problem = e.AbortReason()
				if e.Close(); !tc.refused && m.kept < int64(tc.retained) {
					t.Errorf("%d bytes are kept", m.kept)
				}
			}
			if refused := problem != nil; refused != tc.refused || refused && (problem.Kind != expr.Exhausted || !strings.Contains(problem.Message, "waits for its turn")) {
				t.Errorf("got %v, want refused %t", problem, tc.refused)
			}
			if m.asked < tc.atLeast {
				t.Errorf("%d bytes were asked for at most, want at least %d", m.asked, tc.atLeast)
			}
			if e, again := programs.BeginEvaluation(t.Context(), Input{}); again != nil {
				t.Errorf("no other evaluation begins: %v", again)
			} else {
				e.Close()
			}
		})
	}
}
