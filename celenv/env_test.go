// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package celenv

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/celenv/budget"
)

var update = flag.Bool("update", false, "write what is found into testdata")

func newCompiler(t testing.TB, limits budget.Limits) *Compiler {
	t.Helper()
	c, err := NewCompiler(Options{Limits: limits})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// spec has the conditions, and as targets the list "revisions", the object "svc", and "nginx", which is not included.
func spec(conditions ...string) *v1alpha1.Work {
	hidden := false
	return &v1alpha1.Work{
		CommonSpec: v1alpha1.CommonSpec{Conditions: conditions},
		Targets:    []v1alpha1.ClusterTarget{{Name: "revisions"}, {Name: "svc"}, {Name: "nginx", IncludeWhenEvaluating: &hidden}},
	}
}

func programs(t testing.TB, c *Compiler, conditions ...string) *Programs {
	t.Helper()
	p, errs := c.Compile(t.Context(), spec(conditions...))
	if len(errs) > 0 {
		t.Fatal(errs.ToAggregate())
	}
	return p
}

func at(text string) time.Time {
	moment, err := time.Parse(time.RFC3339, text)
	if err != nil {
		panic(err)
	}
	return moment
}

func list(items ...any) map[string]any {
	if items == nil {
		items = []any{}
	}
	return map[string]any{"items": items}
}

func TestFunctionsArePinned(t *testing.T) {
	c := newCompiler(t, budget.Limits{})
	var lines []string
	for name, function := range c.env.Functions() {
		for _, overload := range function.OverloadDecls() {
			member := ""
			if overload.IsMemberFunction() {
				member = " member"
			}
			lines = append(lines, fmt.Sprintf("function %s %s%s", name, overload.ID(), member))
		}
	}
	for _, macro := range c.env.Macros() {
		lines = append(lines, "macro "+macro.MacroKey())
	}
	slices.Sort(lines)
	got := strings.Join(slices.Compact(lines), "\n") + "\n"
	const file = "testdata/functions.txt"
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("the functions of a released version never change; a library must be pinned (-want +got):\n%s", diff)
	}
}

func TestEveryFunctionIsCharged(t *testing.T) {
	c := newCompiler(t, budget.Limits{})
	functions := slices.Sorted(maps.Keys(c.env.Functions()))
	charged := slices.Sorted(maps.Keys(c.calls.Charges))
	if diff := cmp.Diff(functions, charged); diff != "" {
		t.Errorf("say in charges() what each function costs (-functions of the environment +functions with a charge):\n%s", diff)
	}
}
