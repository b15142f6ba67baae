// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package celenv

import (
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/celenv/budget"
)

// macroForms are, for each macro of the language, expressions with it around V: one for each place that another expression can be in.
// A loop over the empty list may be nested as deep as the text allows, others may not.
func macroForms() map[string][]string {
	return map[string][]string{
		"age:1:false":              {"age(V)"},
		"all:2:true":               {"V.all(x, x)", "[].all(x, V)"},
		"all:3:true":               {"V.all(x, y, y)", "[].all(x, y, V)"},
		"bind:3:true":              {"cel.bind(x, V, x)", "cel.bind(x, V, x + x)", "cel.bind(x, 1, V)", "cel.bind(x, V, V)"},
		"countBy:2:true":           {"V.countBy(x, x)", "[].countBy(x, V)"},
		"exists:2:true":            {"V.exists(x, x)", "[].exists(x, V)"},
		"exists:3:true":            {"V.exists(x, y, y)", "[].exists(x, y, V)"},
		"existsOne:3:true":         {"V.existsOne(x, y, y)", "[].existsOne(x, y, V)"},
		"exists_one:2:true":        {"V.exists_one(x, x)", "[].exists_one(x, V)"},
		"exists_one:3:true":        {"V.exists_one(x, y, y)", "[].exists_one(x, y, V)"},
		"filter:2:true":            {"V.filter(x, x)", "[].filter(x, V)"},
		"glob:1:true":              {"V.glob('a*')"},
		"greatest:*:true":          {"math.greatest(V)", "math.greatest(V, 1)", "math.greatest(1, 2, V)"},
		"groupBy:2:true":           {"V.groupBy(x, x)", "[].groupBy(x, V)"},
		"has:1:false":              {"has(V.a)"},
		"indexBy:2:true":           {"V.indexBy(x, x)", "[].indexBy(x, V)"},
		"least:*:true":             {"math.least(V)", "math.least(V, 1)", "math.least(1, 2, V)"},
		"map:2:true":               {"V.map(x, x)", "[].map(x, V)", "V.map(x, V)"},
		"map:3:true":               {"V.map(x, x, x)", "[].map(x, V, x)", "[].map(x, x, V)"},
		"maxBy:2:true":             {"V.maxBy(x, x)", "[].maxBy(x, V)"},
		"minBy:2:true":             {"V.minBy(x, x)", "[].minBy(x, V)"},
		"optFlatMap:2:true":        {"optional.of(V).optFlatMap(x, optional.of(x))", "V.optFlatMap(x, x)", "optional.none().optFlatMap(x, optional.of(V))"},
		"optMap:2:true":            {"optional.of(V).optMap(x, x)", "V.optMap(x, x)", "optional.none().optMap(x, V)"},
		"sortBy:2:true":            {"V.sortBy(x, x)", "[].sortBy(x, V)"},
		"take:1:true":              {"V.take(1)", "[1].take(V)"},
		"transformList:3:true":     {"V.transformList(x, y, y)", "[].transformList(x, y, V)"},
		"transformList:4:true":     {"V.transformList(x, y, true, y)", "[].transformList(x, y, V, y)", "[].transformList(x, y, true, V)"},
		"transformMap:3:true":      {"V.transformMap(x, y, y)", "{}.transformMap(x, y, V)"},
		"transformMap:4:true":      {"V.transformMap(x, y, true, y)", "{}.transformMap(x, y, V, y)", "{}.transformMap(x, y, true, V)"},
		"transformMapEntry:3:true": {"V.transformMapEntry(x, y, {x: y})", "{}.transformMapEntry(x, y, {x: V})", "{}.transformMapEntry(x, y, V)"},
		"transformMapEntry:4:true": {"V.transformMapEntry(x, y, true, {x: y})", "{}.transformMapEntry(x, y, V, {x: y})", "{}.transformMapEntry(x, y, true, {x: V})"},
	}
}

// syntaxForms are the forms of what is neither a macro nor a function with a name.
func syntaxForms() map[string][]string {
	return map[string][]string{
		"list":           {"[V]", "[1, V]", "[?V]"},
		"map":            {"{'a': V}", "{V: 1}", "{'a': V, 'b': V}", "{?'a': V}"},
		"field":          {"V.a", "V.metadata.labels", "V.metadata.labels.a", "V.metadata.annotations['a']", "{'a': V}.a"},
		"optional field": {"V.?a", "V.?a.b"},
		"index":          {"V[0]", "V['a']", "[1][V]", "V.a[V.b]"},
		"optional index": {"V[?0]", "[1][?V]"},
		"choice":         {"V ? 1 : 2", "true ? V : 1", "true ? 1 : V", "has(t.metadata.labels.a) ? V : t.metadata.labels.a"},
		"membership":     {"V in [1]", "1 in V", "'a' in V"},
		"and":            {"V && true", "true && V", "has(t.metadata.labels.a) && V && t.metadata.labels.a"},
		"or":             {"V || true", "true || V", "!has(t.metadata.labels.a) || V || t.metadata.labels.a"},
		"not":            {"!V", "!(V && has(t.metadata.labels.a))"},
		"minus":          {"-V"},
		"parentheses":    {"(V)"},
	}
}

// sampleOf is an expression of a type.
func sampleOf(kind *cel.Type) string {
	switch kind.Kind() {
	case types.BoolKind:
		return "true"
	case types.BytesKind:
		return "b'a'"
	case types.DoubleKind:
		return "1.0"
	case types.DurationKind:
		return "duration('1s')"
	case types.IntKind:
		return "1"
	case types.ListKind:
		return "[" + sampleOf(kind.Parameters()[0]) + "]"
	case types.MapKind:
		return "{" + sampleOf(kind.Parameters()[0]) + ": " + sampleOf(kind.Parameters()[1]) + "}"
	case types.StringKind:
		return "'a'"
	case types.TimestampKind:
		return "time"
	case types.UintKind:
		return "1u"
	default:
		return "dyn(1)"
	}
}

// languageForms are the forms of all that the language has, by what it is.
func languageForms(t *testing.T, c *Compiler) map[string][]string {
	t.Helper()
	all := map[string][]string{}
	for name, forms := range syntaxForms() {
		all["syntax "+name] = forms
	}
	known := macroForms()
	for _, macro := range c.env.Macros() {
		forms, ok := known[macro.MacroKey()]
		if !ok {
			t.Errorf("say in macroForms how expressions with the macro %s are nested", macro.MacroKey())
		}
		all["macro "+macro.MacroKey()] = forms
	}
	for name, function := range c.env.Functions() {
		var forms []string
		for _, overload := range function.OverloadDecls() {
			for at := range overload.ArgTypes() {
				args := make([]string, len(overload.ArgTypes()))
				for i, kind := range overload.ArgTypes() {
					if args[i] = sampleOf(kind); i == at {
						args[i] = "V"
					}
				}
				forms = append(forms, formatCall(name, overload.IsMemberFunction(), args)...)
			}
		}
		slices.Sort(forms)
		if forms = slices.Compact(forms); len(forms) > 0 {
			all["function "+name] = forms
		}
	}
	return all
}

// formatCall writes a call; nothing if nobody can write it.
func formatCall(name string, member bool, args []string) []string {
	if symbol, ok := operators.FindReverseBinaryOperator(name); ok && symbol != "" {
		return []string{args[0] + " " + symbol + " " + args[1]}
	}
	switch {
	case strings.ContainsAny(name, "@?[!-") || strings.HasPrefix(name, "_"):
		return nil
	case member:
		return []string{args[0] + "." + name + "(" + strings.Join(args[1:], ", ") + ")"}
	default:
		return []string{name + "(" + strings.Join(args, ", ") + ")"}
	}
}

// put writes what is named so many times into the place V of a form.
func put(form, name string, times int, typed bool) string {
	of := name
	if times > 1 {
		of = "[" + strings.Repeat(name+", ", times-1) + name + "]"
	}
	if !typed {
		of = "dyn(" + of + ")"
	}
	return strings.ReplaceAll(form, "V", of)
}

// first is what each chain begins with: something that moves, and reads a target.
const first = "(t.items + [time])"

// chains make specs in which each expression is made of the one before it by a form, with so many links or as many as the text allows.
var chains = map[string]func(step func(of string) string, links int) *v1alpha1.Work{
	"text": func(step func(string) string, links int) *v1alpha1.Work {
		return finalWork(nil, nest(first, step, links))
	},
	"text of a target": func(step func(string) string, links int) *v1alpha1.Work {
		return finalWork(nil, nest("t", step, links))
	},
	"variables": func(step func(string) string, links int) *v1alpha1.Work {
		variables := []v1alpha1.Variable{{Name: "v0", Expression: first}}
		for i := range links {
			variables = append(variables, v1alpha1.Variable{Name: fmt.Sprint("v", i+1), Expression: step(fmt.Sprint("variables.v", i))})
		}
		return finalWork(variables, fmt.Sprint("variables.v", links))
	},
	"cel.bind": func(step func(string) string, links int) *v1alpha1.Work {
		text := fmt.Sprint("v", links)
		for i := links; i > 0; i-- {
			text = fmt.Sprintf("cel.bind(v%d, %s, %s)", i, step(fmt.Sprint("v", i-1)), text)
		}
		return finalWork(nil, fmt.Sprintf("cel.bind(v0, %s, %s)", first, text))
	},
	"cel.bind in cel.bind": func(step func(string) string, links int) *v1alpha1.Work {
		text := first
		for i := range links {
			text = fmt.Sprintf("cel.bind(v%d, %s, %s)", i, text, step(fmt.Sprint("v", i)))
		}
		return finalWork(nil, text)
	},
}

// nest writes an expression into the next, so many times or as often as the text allows.
func nest(text string, step func(of string) string, links int) string {
	for range links {
		longer := step(text)
		if len(longer) > maxExpressionSize-len("[].size() > 0") {
			break
		}
		text = longer
	}
	return text
}

// finalWork is a spec that has an expression for each of what is computed from one.
func finalWork(variables []v1alpha1.Variable, text string) *v1alpha1.Work {
	w := oneTarget()
	w.Variables = variables
	w.Rules = []v1alpha1.Rule{{Name: "r", ForEach: text, When: "[" + text + "].size() > 0", Actions: []v1alpha1.RuleAction{{Delete: &v1alpha1.DeleteAction{}}}}}
	return w
}

// spent is what a spec took, and what was made of it.
type spent struct {
	bytes   int64 // allocated to compile it, and to find out all that is asked of what is compiled
	shown   int64 // of text for people
	refused bool
}

// spend compiles a spec, and finds out all that can be asked of it.
func spend(t *testing.T, c *Compiler, w *v1alpha1.Work) spent {
	t.Helper()
	var s spent
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	p, errs := c.Compile(t.Context(), w)
	for _, err := range errs {
		s.refused, s.shown = true, s.shown+int64(len(err.Error()))
		if err.Detail == "" {
			t.Errorf("it is refused without a word: %v", err)
		}
	}
	if p != nil {
		for _, warning := range p.Warnings() {
			s.shown += int64(len(warning.Message) + len(warning.Hint) + len(warning.Snippet))
		}
		for i := range p.conditions {
			p.ListConditionTargets(i)
		}
		for i, rule := range p.rules {
			p.ListRuleTargets(i)
			for _, x := range rule.listExpressions() {
				if x == nil {
					continue
				}
				if x.readsTime {
					x.ahead.ensureProgram()
				}
				if err := x.explanation.planProgram(); err != nil {
					t.Error(err)
				}
			}
		}
		for _, x := range p.variables {
			if err := x.expression.explanation.planProgram(); err != nil {
				t.Error(err)
			}
		}
	}
	SumFootprint(p, errs)
	runtime.ReadMemStats(&after)
	s.bytes = int64(after.TotalAlloc - before.TotalAlloc)
	return s
}

// within gives what f gives. It fails if that takes for ever.
func within(t *testing.T, what string, f func() spent) spent {
	t.Helper()
	done := make(chan spent, 1)
	go func() { done <- f() }()
	select {
	case s := <-done:
		return s
	case <-time.After(20 * time.Second):
		t.Fatalf("%s takes for ever", what)
		return spent{}
	}
}

// What a spec may take: so much for each byte of its expressions, and in all; and how much text it may give people to read.
const (
	mostPerByte = 128 << 10
	mostInAll   = 1 << 30
	mostShown   = 64 << 10
)

// TestNothingMultiplies builds chains of all that the language has, in which each link names the one before it once or twice. What
// doubles with each link would take for ever. All of them compile at a cost that goes with their length, or are refused at one.
func TestNothingMultiplies(t *testing.T) {
	c := newCompiler(t, budget.Limits{})
	type variant struct {
		chain        string
		links, times int
		typed        bool
	}
	thorough := []variant{{"text", 100, 1, true}, {"text", 50, 1, false}, {"variables", 63, 2, false}, {"cel.bind", 32, 2, false}, {"cel.bind", 64, 2, true}, {"cel.bind in cel.bind", 64, 2, true}}
	longest := append(slices.Clone(thorough), variant{"text of a target", 120, 1, true})
	quick := []variant{{"text", 24, 1, true}, {"cel.bind", 24, 2, true}}
	all := languageForms(t, c)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		t.Run(name, func(t *testing.T) {
			variants := thorough
			switch {
			case strings.HasPrefix(name, "function "):
				variants = quick // a function copies nothing: what grows is its type
			case strings.HasPrefix(name, "syntax "):
				variants = longest
			}
			for _, form := range all[name] {
				for _, v := range variants {
					w := chains[v.chain](func(of string) string { return put(form, of, v.times, v.typed) }, v.links)
					what := fmt.Sprintf("%s: %d links of %s, each naming the last %d times (typed: %v)", v.chain, v.links, form, v.times, v.typed)
					s := within(t, what, func() spent { return spend(t, c, w) })
					length := int64(w.ExpressionBytes())
					if s.bytes > 1<<20+mostPerByte*length || s.bytes > mostInAll || s.shown > mostShown {
						t.Errorf("%s, %d bytes long (refused: %v), take %d KiB and show %d bytes", what, length, s.refused, s.bytes>>10, s.shown)
					}
				}
			}
		})
	}
}

// TestManyErrorsAreTold shows that an expression with many errors at the end of a long line takes little to be refused, and that the
// first ones are told.
func TestManyErrorsAreTold(t *testing.T) {
	wrong := oneTarget()
	wrong.Conditions = []string{"[" + strings.Repeat("1, ", 5000) + strings.Repeat("u, ", 120) + "1].size() > 0"}
	s := spend(t, newCompiler(t, budget.Limits{}), wrong)
	if !s.refused || s.bytes > 64<<20 || s.shown > mostShown {
		t.Errorf("it takes %d KiB to be refused (%v), and shows %d bytes", s.bytes>>10, s.refused, s.shown)
	}
}
