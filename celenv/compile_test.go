// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package celenv

import (
	"context"
	"maps"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/vtex/cleaner/api/v1alpha1"
	"github.com/vtex/cleaner/celenv/budget"
	"github.com/vtex/cleaner/celenv/expr"
)

func TestCompileErrors(t *testing.T) {
	cases := map[string]struct {
		expression string
		want       []string
	}{
		"UnknownTarget": {"revison.items.size() == 0", []string{
			"1:1: there is no target or variable \"revison\"; did you mean \"revisions\"?\n" +
				"  | revison.items.size() == 0\n" +
				"  | ^"}},
		"UnknownLoopVariable": {"revisions.items.exists(rev,\n  rve.spec.x == 1)", []string{
			"2:3: there is no target or variable \"rve\"; did you mean \"rev\"?\n" +
				"  |   rve.spec.x == 1)\n" +
				"  |   ^"}},
		"NothingNear": {"quux == 1", []string{
			"1:1: there is no target or variable \"quux\"; add a target of this name, or write params.quux if it is a parameter\n" +
				"  | quux == 1\n" +
				"  | ^"}},
		"ExcludedTarget": {"nginx.metadata.name == 'x'", []string{
			"1:1: the target \"nginx\" has includeWhenEvaluating: false, so expressions do not see it\n" +
				"  | nginx.metadata.name == 'x'\n" +
				"  | ^"}},
		"UnknownMacro": {"revisions.items.exist(r, r.spec.x == 1)", []string{
			"1:17: there is no function \"exist\"; did you mean \"exists\"?\n" +
				"  | revisions.items.exist(r, r.spec.x == 1)\n" +
				"  |                 ^"}},
		"UnknownFunction": {"durration('1h') > age(svc)", []string{
			"1:1: there is no function \"durration\"; did you mean \"duration\"?\n" +
				"  | durration('1h') > age(svc)\n" +
				"  | ^"}},
		"UnknownQualifiedFunction": {"json.unmarshall(svc.x) == 1", []string{
			"1:6: there is no function \"json.unmarshall\"; did you mean \"json.unmarshal\"?\n" +
				"  | json.unmarshall(svc.x) == 1\n" +
				"  |      ^"}},
		"TimestampAndString": {"time - '2024-01-01T00:00:00Z' > duration('1h')", []string{
			"1:6: found no matching overload for '_-_' applied to '(timestamp, string)'; date-time fields are strings: wrap in timestamp()\n" +
				"  | time - '2024-01-01T00:00:00Z' > duration('1h')\n" +
				"  |      ^"}},
		"DurationAndString": {"age(svc) > '360h'", []string{
			"1:10: found no matching overload for '_>_' applied to '(duration, string)'; durations are strings until they are read: wrap in duration() or parseDuration()\n" +
				"  | age(svc) > '360h'\n" +
				"  |          ^"}},
		"NoCondition": {"revisions.items.map(r, r.metadata.name)", []string{
			"1:20: a condition must be true or false, and this is of type list(dyn); ask something of it, with exists, all or size\n" +
				"  | revisions.items.map(r, r.metadata.name)\n" +
				"  |                    ^"}},
		"OptionalCondition": {"optional.of(true)", []string{
			"1:10: a condition must be true or false, and this is of type optional_type(bool); add .orValue(false)\n" +
				"  | optional.of(true)\n" +
				"  |          ^"}},
		"Syntax": {"true &&\n  )", []string{
			"2:3: Syntax error: mismatched input ')' expecting {'[', '{', '(', '.', '-', '!', 'true', 'false', 'null', NUM_FLOAT, NUM_INT, NUM_UINT, STRING, BYTES, IDENTIFIER}\n" +
				"  |   )\n" +
				"  |   ^"}},
		"BadDuration": {"age(svc) > duration('15d')", []string{
			"1:21: invalid duration argument; write it with the units h, m, s and ms; parseDuration(\"15d\") knows days and weeks too\n" +
				"  | age(svc) > duration('15d')\n" +
				"  |                     ^"}},
		"BadPattern": {"svc.metadata.name.matches('(')", []string{
			"1:27: \"(\" is no regular expression: error parsing regexp: missing closing ): `(`\n" +
				"  | svc.metadata.name.matches('(')\n" +
				"  |                           ^"}},
		"BadConstant": {"int('x') == 1", []string{
			"1:1: type conversion error from 'string' to 'int'\n" +
				"  | int('x') == 1\n" +
				"  | ^"}},
		"Nesting": {"[1].all(a, [1].all(b, [1].all(c, [1].all(d, [1].all(e, true)))))", []string{
			"1:52: comprehension exceeds nesting limit; at most 4 loops may stand in one another: make a map with indexBy, groupBy or toSet instead\n" +
				"  | [1].all(a, [1].all(b, [1].all(c, [1].all(d, [1].all(e, true)))))\n" +
				"  |                                                    ^"}},
		"Several": {"svd.x == 1 && revision.y == 2", []string{
			"1:1: there is no target or variable \"svd\"; did you mean \"svc\"?\n" +
				"  | svd.x == 1 && revision.y == 2\n" +
				"  | ^",
			"1:15: there is no target or variable \"revision\"; did you mean \"revisions\"?\n" +
				"  | svd.x == 1 && revision.y == 2\n" +
				"  |               ^"}},
	}
	c := newCompiler(t, budget.Limits{})
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			p, errs := c.Compile(t.Context(), spec("true", tc.expression))
			if p != nil {
				t.Error("there are Programs beside the errors")
			}
			var details []string
			for _, err := range errs {
				if err.Field != "spec.conditions[1]" || err.Type != field.ErrorTypeInvalid {
					t.Errorf("%s at %s", err.Type, err.Field)
				}
				details = append(details, err.Detail)
			}
			if diff := cmp.Diff(tc.want, details); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.expression, diff)
			}
		})
	}
}

func TestExpressionsMayNotBeLarge(t *testing.T) {
	c := newCompiler(t, budget.Limits{})
	for name, expression := range map[string]string{
		"Long":   "true" + strings.Repeat(" ", maxExpressionSize),
		"Deep":   strings.Repeat("(", 300) + "true" + strings.Repeat(")", 300),
		"Select": "svc" + strings.Repeat(".a", 300),
		"Sum":    "1" + strings.Repeat("+1", 4000) + " == 4001",
		"And":    "true" + strings.Repeat("&&true", 2000),
	} {
		t.Run(name, func(t *testing.T) {
			p, errs := c.Compile(t.Context(), spec(expression))
			if p == nil && len(errs) == 0 || p != nil && len(errs) > 0 {
				t.Errorf("got %v and %v", p, errs)
			}
			if (name == "Long" || name == "Deep") && len(errs) == 0 {
				t.Error("it compiled")
			}
		})
	}
}

func TestTargetsOfOtherMeanings(t *testing.T) {
	s := spec("true")
	s.Targets = append(s.Targets, v1alpha1.ClusterTarget{Name: "time"})
	p, errs := newCompiler(t, budget.Limits{}).Compile(t.Context(), s)
	if p != nil || len(errs) != 1 || errs[0].Field != "spec.targets[3].name" {
		t.Errorf("got %v, %v", p, errs)
	}
}

// A target may be called as the namespace of a function.
func TestTargetNamedAsANamespace(t *testing.T) {
	s := spec(`json.valid("1") && json.metadata.name == "x"`)
	s.Targets = append(s.Targets, v1alpha1.ClusterTarget{Name: "json"})
	p, errs := newCompiler(t, budget.Limits{}).Compile(t.Context(), s)
	if len(errs) > 0 {
		t.Fatal(errs.ToAggregate())
	}
	got := p.EvaluateConditions(t.Context(), Input{Targets: map[string]any{"json": map[string]any{"metadata": map[string]any{"name": "x"}}}})
	if !got[0].Value {
		t.Error(got[0].Err)
	}
}

func TestReads(t *testing.T) {
	cases := map[string]struct {
		expression string
		want       []string
	}{
		"None":         {"time > timestamp(params.at)", nil},
		"One":          {"svc.metadata.name == 'x'", []string{"svc"}},
		"Both, sorted": {"svc.x == 1 || revisions.items.all(r, r.y == svc.x)", []string{"revisions", "svc"}},
		"Shadowed":     {"svc.list.all(revisions, revisions == 1)", []string{"svc"}},
		"In its range": {"revisions.items.all(revisions, revisions == 1)", []string{"revisions"}},
		"Bound":        {"cel.bind(revisions, svc.x, revisions == 1)", []string{"svc"}},
		"Presence":     {"has(svc.x)", []string{"svc"}},
		"In a macro":   {"age(svc) > duration('1h')", []string{"svc"}},
	}
	c := newCompiler(t, budget.Limits{})
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, programs(t, c, tc.expression).ListConditionTargets(0)); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.expression, diff)
			}
		})
	}
}

func FuzzCompile(f *testing.F) {
	for _, seed := range []string{
		proposal, "a +", "svc.x.y[0]['k']", "[1].map(x, x)", "cel.bind(x, 1, x) == 1", "'\\x'", "{1: 2}[1] == 2", "svc.?a[?'b'].orValue(1) == 1",
		"\xff", "`", "age()", "[].indexBy(x, x).size() == 0", "'a'.matches('a{1000}{1000}')", "time - 'x'", "Foo{a: 1}", "svc.metadata.labels.x\r\n",
	} {
		f.Add(seed)
	}
	c := newCompiler(f, budget.Limits{Steps: 1000, Growth: 1 << 20})
	in := Input{Targets: map[string]any{"svc": map[string]any{"x": []any{"a"}}, "revisions": list()}, Time: at("2025-01-01T00:00:00Z")}
	f.Fuzz(func(t *testing.T, expression string) {
		p, errs := c.Compile(t.Context(), spec(expression))
		if (p == nil) != (len(errs) > 0) {
			t.Fatalf("got %v and %v", p, errs)
		}
		for _, err := range errs {
			if err.Type == field.ErrorTypeInternal {
				t.Fatal(err)
			}
		}
		if p == nil {
			return
		}
		if got := p.EvaluateConditions(t.Context(), in)[0]; got.Err != nil && got.Err.Kind == expr.Internal {
			t.Fatal(got.Err)
		}
	})
}

// The checker cannot be interrupted, and takes minutes and gigabytes for some texts of a few hundred characters. They are
// refused before.
func TestInvolvedExpressionsDoNotCompile(t *testing.T) {
	nest := func(n int, from, step, to string) string {
		for range n {
			to = "cel.bind(a, " + step + ", " + to + ")"
		}
		return "cel.bind(a, " + from + ", " + to + ")"
	}
	among := func(n int, part string) string { return "[" + strings.Repeat(part+",", n) + "].size() > 0" }
	cases := map[string]string{
		"TypesThatDouble": nest(32, "1", "{a: a}", "a.size() > 0"),
		"TypesThatGrow":   nest(115, "[1]", "[a, a]", "a.size() > 0"),
		"EmptyMaps":       among(4000, "{}"),
		"EmptyLists":      among(5000, "[]"),
		"OptMap":          among(800, "svc.?a.optMap(v, v)"),
		"Indexes":         among(1800, "svc.a[1]"),
		"Patterns":        among(400, "'b'.matches('([ab]{9}){100}')"),
	}
	c := newCompiler(t, budget.Limits{})
	for name, expression := range cases {
		t.Run(name, func(t *testing.T) {
			s := spec()
			for range v1alpha1.MaxExpressionBytes / len(expression) {
				if s.Conditions = append(s.Conditions, expression); len(s.Conditions) == 64 {
					break
				}
			}
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			start := time.Now()
			_, errs := c.Compile(t.Context(), s)
			took := time.Since(start)
			runtime.ReadMemStats(&after)
			if len(errs) == 0 || !strings.Contains(errs[len(errs)-1].Detail, "too involved to be checked") {
				t.Errorf("got %v", errs)
			}
			if allocated := after.TotalAlloc - before.TotalAlloc; allocated > 512<<20 || took > 20*time.Second {
				t.Errorf("it took %s and %d MiB", took, allocated>>20)
			}
		})
	}
}

func TestTooMuchSourceDoesNotCompile(t *testing.T) {
	s := spec()
	for range 9 {
		s.Conditions = append(s.Conditions, "true || '"+strings.Repeat("x", 16000)+"' == ''")
	}
	_, errs := newCompiler(t, budget.Limits{}).Compile(t.Context(), s)
	if want := "the expressions are 144144 bytes long together; at most 131072 are allowed: shorten them, or use several Cleaners"; len(errs) != 1 || errs[0].Field != "spec" || errs[0].Detail != want {
		t.Errorf("got %v", errs)
	}
}

// Only a few specs are compiled at a time; who waits hears of the end of the context.
func TestCompilationsAreFew(t *testing.T) {
	c := newCompiler(t, budget.Limits{})
	for range maxCompilations {
		c.places <- struct{}{}
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if p, errs := c.Compile(ctx, spec("true")); p != nil || len(errs) > 0 {
			t.Errorf("got %v, %v", p, errs)
		}
	}()
	cancel()
	<-done
	<-c.places
	if p, errs := c.Compile(t.Context(), spec("true")); p == nil || len(errs) > 0 {
		t.Errorf("got %v, %v", p, errs)
	}
}

// TestEachExpressionMayBeBroken breaks one expression of a full rule after the other, and all of them: each is an error of its own field.
func TestEachExpressionMayBeBroken(t *testing.T) {
	full := func() *v1alpha1.Rule {
		two := intstr.FromString("2")
		return &v1alpha1.Rule{
			Name: "r", ForEach: "pods.items", When: "true", Unless: "false", Key: "'k'", Reason: "'r'", For: "duration('1h')", ForKey: "'k'", GroupBy: "'g'", Leave: &two,
			Variables: variablesOf([]string{"v: true"}), OrderBy: []v1alpha1.OrderBy{{Expression: "1"}}, Confirm: []v1alpha1.Confirm{{Target: "config", Name: "'n'", Namespace: "'s'"}},
			Actions: []v1alpha1.RuleAction{{When: "true", Object: "config", Patch: &v1alpha1.PatchAction{Expression: "{}"}}},
		}
	}
	fields := map[string]func(*v1alpha1.Rule) *string{
		"forEach": func(r *v1alpha1.Rule) *string { return &r.ForEach }, "when": func(r *v1alpha1.Rule) *string { return &r.When },
		"unless": func(r *v1alpha1.Rule) *string { return &r.Unless }, "key": func(r *v1alpha1.Rule) *string { return &r.Key },
		"reason": func(r *v1alpha1.Rule) *string { return &r.Reason }, "for": func(r *v1alpha1.Rule) *string { return &r.For },
		"forKey": func(r *v1alpha1.Rule) *string { return &r.ForKey }, "groupBy": func(r *v1alpha1.Rule) *string { return &r.GroupBy },
		"variables[0].expression":     func(r *v1alpha1.Rule) *string { return &r.Variables[0].Expression },
		"orderBy[0].expression":       func(r *v1alpha1.Rule) *string { return &r.OrderBy[0].Expression },
		"confirm[0].name":             func(r *v1alpha1.Rule) *string { return &r.Confirm[0].Name },
		"confirm[0].namespace":        func(r *v1alpha1.Rule) *string { return &r.Confirm[0].Namespace },
		"actions[0].when":             func(r *v1alpha1.Rule) *string { return &r.Actions[0].When },
		"actions[0].object":           func(r *v1alpha1.Rule) *string { return &r.Actions[0].Object },
		"actions[0].patch.expression": func(r *v1alpha1.Rule) *string { return &r.Actions[0].Patch.Expression },
		"leave":                       func(r *v1alpha1.Rule) *string { return &r.Leave.StrVal },
	}
	c := newCompiler(t, budget.Limits{})
	if _, errs := c.Compile(t.Context(), podWork(nil, *full())); len(errs) > 0 {
		t.Fatal(errs)
	}
	check := func(t *testing.T, rule *v1alpha1.Rule, want []string) {
		_, errs := c.Compile(t.Context(), podWork(nil, *rule))
		var at []string
		for _, err := range errs {
			at = append(at, strings.TrimPrefix(err.Field, "spec.rules[0]."))
		}
		slices.Sort(at)
		if diff := cmp.Diff(want, at); diff != "" {
			t.Errorf("(-want +got):\n%s\n%v", diff, errs)
		}
	}
	all, names := full(), slices.Sorted(maps.Keys(fields))
	for _, name := range names {
		one := full()
		*fields[name](one), *fields[name](all) = "(", "("
		t.Run(name, func(t *testing.T) { check(t, one, []string{name}) })
	}
	t.Run("All", func(t *testing.T) { check(t, all, names) })
}
