// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package hoist

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/ext"
)

// Of each expression the fixed parts are found by what they call, and by the loops that they are.
func TestFindFixedParts(t *testing.T) {
	env, err := cel.NewEnv(
		cel.Variable("item", cel.DynType), cel.Variable("pods", cel.DynType), cel.Variable("nodes", cel.DynType), cel.Variable("time", cel.TimestampType),
		cel.OptionalTypes(), ext.Bindings(), cel.EagerlyValidateDeclarations(true),
		cel.Function("f", cel.Overload("f_dyn", []*cel.Type{cel.DynType}, cel.DynType, cel.UnaryBinding(nil))),
		cel.Function("g", cel.Overload("g_dyn_dyn", []*cel.Type{cel.DynType, cel.DynType}, cel.DynType, cel.BinaryBinding(nil))),
	)
	if err != nil {
		t.Fatal(err)
	}
	varies := func(name string) bool { return name == "item" || name == "time" }
	for source, want := range map[string]string{
		`item.a == 1`:                              "",
		`pods.a == 1`:                              "",
		`size(pods) > 1`:                           "",
		`f(pods)`:                                  "f",
		`f(item)`:                                  "",
		`f(time)`:                                  "",
		`f(1)`:                                     "",
		`item.a in f(pods)`:                        "f",
		`g(pods, item)`:                            "",
		`g(f(pods), item)`:                         "f",
		`g(f(pods), f(item))`:                      "f",
		`g(f(pods), nodes)`:                        "g",
		`f(pods).a.b == item`:                      "f",
		`f(pods)[0] == item`:                       "f",
		`[f(pods), item]`:                          "f",
		`[f(pods), 1][item]`:                       "f",
		`{"a": f(pods)}[item]`:                     "f",
		`item ? f(pods) : f(nodes)`:                "f f",
		`pods ? f(pods) : f(nodes)`:                "f f",
		`f(pods) && item`:                          "f",
		`pods.exists(p, p == 1)`:                   "loop",
		`pods.exists(p, p == item)`:                "",
		`pods.exists(p, f(p) == item)`:             "",
		`pods.exists(p, f(nodes) == item)`:         "f",
		`pods.exists(p, f(nodes) == p)`:            "loop f",
		`item.exists(i, nodes.exists(n, n == i))`:  "",
		`item.exists(i, nodes.exists(n, n == 1))`:  "loop",
		`item.exists(p, pods.exists(p, p == 1))`:   "loop",
		`item.exists(p, f(p)) && f(pods)`:          "f",
		`(pods + nodes).exists(p, p == item)`:      "_+_",
		`cel.bind(x, f(pods), x == item)`:          "f",
		`cel.bind(x, item, f(x) == f(pods))`:       "f",
		`cel.bind(pods, item, f(pods))`:            "",
		`pods.map(p, p.a).exists(a, a == item)`:    "loop",
		`optional.of(f(pods)).orValue(item)`:       "optional.of",
		`pods.filter(p, time > p.at)`:              "",
		`item.map(i, pods.filter(p, p == 1))`:      "loop",
		`f(item.map(i, i)) == f(pods.map(p, [p]))`: "f",
	} {
		checked, issues := env.Compile(source)
		if issues.Err() != nil {
			t.Errorf("%s: %v", source, issues.Err())
			continue
		}
		found := FindFixedParts(checked.NativeRep().Expr(), varies)
		var names []string
		ast.PreOrderVisit(checked.NativeRep().Expr(), ast.NewExprVisitor(func(e ast.Expr) {
			switch _, is := slices.BinarySearch(found, e.ID()); {
			case !is:
			case e.Kind() == ast.CallKind:
				names = append(names, e.AsCall().FunctionName())
			case e.Kind() == ast.ComprehensionKind:
				names = append(names, "loop")
			default:
				t.Errorf("%s: a part is no call and no loop", source)
			}
		}))
		if got := strings.Join(names, " "); got != want {
			t.Errorf("%s: got %q, want %q", source, got, want)
		}
	}
}

// Each part is looked at once, however deeply lists and loops stand in one another.
func TestEachPartIsLookedAtOnce(t *testing.T) {
	env, err := cel.NewEnv(cel.Variable("pods", cel.DynType), cel.Variable("item", cel.DynType), ext.Bindings())
	if err != nil {
		t.Fatal(err)
	}
	for _, shape := range [][2]string{{"[cel.bind(a, 1, ", ")]"}, {"[[1].map(a, ", ")]"}, {"[[", "]]"}, {"[pods.a ? dyn(", ") : dyn(1)]"}} {
		const depth = 30
		source := strings.Repeat(shape[0], depth) + "size(pods.filter(p, true))" + strings.Repeat(shape[1], depth) + ".size() == 1 && item"
		checked, issues := env.Compile(source)
		if issues.Err() != nil {
			t.Fatal(issues.Err())
		}
		looks := 0
		FindFixedParts(checked.NativeRep().Expr(), func(string) bool { looks++; return false })
		if looks > 10*depth {
			t.Errorf("%s: names are looked at %d times", shape[0], looks)
		}
	}
}
