// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package celenv

import (
	"strings"
	"testing"

	"github.com/vtex/cleaner/celenv/budget"
)

// What a template does not declare nobody can give, however it is asked for.
func TestUndeclaredParameters(t *testing.T) {
	cases := map[string]struct {
		expression string
		declared   []string
		want       string // empty: it is fine
	}{
		"Declared":     {"params.keep > 3", []string{"keep"}, ""},
		"Field":        {"params.kep > 3", []string{"keep"}, `1:8: the template has no parameter "kep"; did you mean "keep"?`},
		"Index":        {`params["kept"] > 3`, []string{"keep"}, `the template has no parameter "kept"`},
		"Has":          {"has(params.kept)", []string{"keep"}, `the template has no parameter "kept"`},
		"Optional":     {"params.?kept.orValue(3) > 3", []string{"keep"}, `the template has no parameter "kept"`},
		"OptionalKey":  {`params[?"kept"].orValue(3) > 3`, []string{"keep"}, `the template has no parameter "kept"`},
		"None":         {"params.keep > 3", []string{}, `the template has no parameter "keep"; add it to the parameters of the template`},
		"NoTemplate":   {"params.kept > 3", nil, ""},
		"Computed":     {"params[svc.metadata.name] > 3", []string{"keep"}, ""},
		"AnotherThing": {"revisions.items.all(params, params.kept > 3)", []string{"keep"}, ""},
		"InAVariable":  {"variables.v > 3", []string{"keep"}, `spec.variables[0].expression`},
	}
	c := newCompiler(t, budget.Limits{})
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			work := variablesSpec(nil, tc.expression)
			if name == "InAVariable" {
				work = variablesSpec([]string{"v: params.kept"}, tc.expression)
			}
			work.Declared = tc.declared
			_, errs := c.Compile(t.Context(), work)
			if got := errs.ToAggregate(); (got == nil) != (tc.want == "") || got != nil && !strings.Contains(got.Error(), tc.want) {
				t.Errorf("got %v, want %q", got, tc.want)
			}
		})
	}
}
