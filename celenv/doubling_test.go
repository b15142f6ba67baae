// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package celenv

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/vtex/cleaner/api/v1alpha1"
)

// oneTarget is a spec with one target, "t".
func oneTarget() *v1alpha1.Work {
	w := &v1alpha1.Work{Targets: []v1alpha1.ClusterTarget{{Name: "t"}}}
	w.Targets[0].Reference.Version, w.Targets[0].Reference.Kind = "v1", "ConfigMap"
	return w
}

// TestNamesThatDoubleAreFollowedOnce shows that variables and bindings that name others twice each are read once each: 60 of them
// would take for ever.
func TestNamesThatDoubleAreFollowedOnce(t *testing.T) {
	const n = 60
	variables := oneTarget()
	variables.Variables = []v1alpha1.Variable{{Name: "v0", Expression: "t.items"}}
	for i := range n {
		variables.Variables = append(variables.Variables, v1alpha1.Variable{Name: fmt.Sprint("v", i+1), Expression: fmt.Sprintf("variables.v%d + variables.v%d", i, i)})
	}
	bound := oneTarget()
	in := "t.items"
	for i := range 7 { // of as many as may be nested
		in = fmt.Sprintf("cel.bind(b%d, %s, b%d + b%d)", i, in, i, i)
	}
	for name, tc := range map[string]struct {
		work    *v1alpha1.Work
		forEach string
	}{"Variables": {variables, fmt.Sprint("variables.v", n)}, "Bindings": {bound, in}} {
		t.Run(name, func(t *testing.T) {
			tc.work.Rules = []v1alpha1.Rule{{Name: "r", ForEach: tc.forEach, When: "true", Actions: []v1alpha1.RuleAction{{Delete: &v1alpha1.DeleteAction{}}}}}
			c, err := NewCompiler(Options{})
			if err != nil {
				t.Fatal(err)
			}
			p, errs := c.Compile(t.Context(), tc.work)
			if len(errs) > 0 {
				t.Fatal(errs)
			}
			if got := p.rules[0].joinedTargets; slices.Contains(got, "t") {
				t.Errorf("the items are of t, and it takes for joined: %v", got)
			}
		})
	}
}

// TestMacrosThatCopyAreBounded shows that a macro that copies what it is called on is not called on what it has copied over and over.
func TestMacrosThatCopyAreBounded(t *testing.T) {
	c, err := NewCompiler(Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, call := range []string{".optMap(v, v)", ".optFlatMap(v, optional.of(v))"} {
		few, many := oneTarget(), oneTarget()
		few.Conditions = []string{"t.?a" + strings.Repeat(call, 2) + ".hasValue()"}
		if _, errs := c.Compile(t.Context(), few); len(errs) > 0 {
			t.Errorf("a few are refused: %v", errs)
		}
		many.Conditions = []string{"t.?a" + strings.Repeat(call, 40) + ".hasValue()"}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, errs := c.Compile(t.Context(), many)
		runtime.ReadMemStats(&after)
		if len(errs) == 0 || !strings.Contains(errs[0].Error(), "is called on too large an expression: write that into a variable") {
			t.Errorf("many give %v", errs)
		}
		if taken := (after.TotalAlloc - before.TotalAlloc) >> 20; taken > 64 {
			t.Errorf("many take %d MiB to be refused", taken)
		}
	}
}
