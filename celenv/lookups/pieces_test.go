// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package lookups

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/ext"

	"github.com/vtex/cleaner/celenv/library"
)

// A map is made in pieces if each object adds its own keys, whatever the others are.
func TestFindPieces(t *testing.T) {
	env, err := cel.NewEnv(cel.OptionalTypes(), library.Index(), ext.TwoVarComprehensions(), ext.Bindings())
	if err != nil {
		t.Fatal(err)
	}
	read := func(source string) ast.Expr {
		a, issues := env.Parse(source)
		if issues.Err() != nil {
			t.Fatalf("%s: %v", source, issues.Err())
		}
		return a.NativeRep().Expr()
	}
	variables := map[string]ast.Expr{"old": read(`nodes.items.filter(n, n.old)`), "names": read(`nodes.items.map(n, n.name)`), "one": read(`nodes.items[0]`)}
	names := Names{
		IsList:       func(name string) bool { return slices.Contains([]string{"nodes", "pods", "pools"}, name) },
		FindVariable: func(name string) ast.Expr { return variables[name] },
		ListTargets: func(name string) []string {
			if variables[name] != nil {
				return []string{"nodes"}
			}
			return []string{name}
		},
	}
	for source, want := range map[string]string{
		`nodes.items.indexBy(n, n.name)`:                                                   "[nodes] false",
		`nodes.items.groupBy(n, n.name)`:                                                   "[nodes] false",
		`nodes.items.countBy(n, n.name)`:                                                   "[nodes] true",
		`nodes.items.map(n, n.name).toSet()`:                                               "[nodes] true",
		`nodes.items.map(n, n.old, n.name).toSet()`:                                        "[nodes] true",
		`nodes.items.filter(n, n.old).map(n, n.name + setting).toSet()`:                    "[nodes] true",
		`nodes.items.map(n, n.pods.map(p, p.name)).flatten().toSet()`:                      "[nodes] true",
		`(nodes.items + pods.items).map(o, o.name).toSet()`:                                "[nodes pods] true",
		`(nodes.items + nodes.items.filter(n, n.old)).countBy(o, o.name)`:                  "[nodes] true",
		`(pools == null ? [] : pools.items).map(o, o.name).toSet()`:                        "[pools] true",
		`pools == null ? {} : pools.items.indexBy(o, o.name)`:                              "[pools] false",
		`null != pools ? pools.items.indexBy(o, o.name) : {}`:                              "[pools] false",
		`refs([pods, nodes.items.filter(n, n.old)], "Secret").toSet()`:                     "[nodes pods] true",
		`refs(pods, "Secret").toSet()`:                                                     "[pods] true",
		`refs(pods.items, kind).toSet()`:                                                   "[pods] true",
		`refs(old, "Secret").toSet()`:                                                      "[nodes] true",
		`refs([pods, [old]], "Secret").toSet()`:                                            "[nodes pods] true",
		`refs(one, "Secret").toSet()`:                                                      "",
		`old.indexBy(n, n.name)`:                                                           "[nodes] false",
		`(old + pods.items).indexBy(n, n.name)`:                                            "[nodes pods] false",
		`names.toSet()`:                                                                    "[nodes] true",
		`nodes.items.filter(n, pods.items.exists(p, p.node == n.name)).indexBy(n, n.name)`: "[nodes] false",
		`.nodes.items.indexBy(n, n.name)`:                                                  "[nodes] false",
		`nodes.items.indexBy(n, nodes.items.size() + n.age)`:                               "",
		`nodes.items.filter(n, n != one).indexBy(n, n.name)`:                               "",
		`nodes.items.filter(n, nodes.items.exists(m, m.x == n.name)).indexBy(n, n.name)`:   "",
		`pods.items.map(p, names.filter(n, n == p.node)).flatten().toSet() `:               "[pods] true",
		`(pods.items.map(p, names.filter(n, n == p.node)).flatten() + names).toSet()`:      "",
		`nodes.items.map(nodes, nodes.name).toSet()`:                                       "",
		`one.items.indexBy(n, n.name)`:                                                     "",
		`setting.items.indexBy(n, n.name)`:                                                 "",
		`nodes.items.transformList(i, n, string(i) + n.name).toSet()`:                      "",
		`nodes.items.size() > 2 ? {} : nodes.items.indexBy(n, n.name)`:                     "",
		`setting == null ? {} : nodes.items.indexBy(n, n.name)`:                            "",
		`nodes == null ? {"a": true} : nodes.items.map(n, n.name).toSet()`:                 "",
		`nodes == null ? {} : {}`:                                                          "",
		`{}`:                                                                               "",
		`nodes.items.map(n, n.name)`:                                                       "",
		`nodes.items.indexBy(n, n.name).merge({"a": true})`:                                "",
		`nodes.items.map(n, n.name).distinct().toSet()`:                                    "",
		`nodes.items.map(n, n.name).slice(0, 1).toSet()`:                                   "",
		`[1, 2].toSet()`: "",
		`[nodes.items[0]].map(n, n.name).toSet()`:          "",
		`nodes.items.map(n, [n.names]).flatten(2).toSet()`: "",
		`refs([pods, setting], "Secret").toSet()`:          "",
		`nodes.toSet()`:                                                                       "",
		`nodes.items.exists(n, n.old)`:                                                        "",
		`cel.bind(x, nodes.items, x.indexBy(n, n.name))`:                                      "",
		`nodes.items.indexBy(n, pods.items.countBy(p, p.node)[n.name])`:                       "[nodes] false",
		`nodes.items.map(n, names.toSet()).flatten().toSet()`:                                 "",
		`nodes.items.transformMapEntry(i, n, {n.name: true})`:                                 "",
		`nodes.items.map(n, n.old, n.name).map(n, n in pods.items.map(p, p.node), n).toSet()`: "[nodes] true",
	} {
		got := ""
		if p := FindPieces(read(source), names); len(p.Targets) > 0 {
			got = fmt.Sprint(p.Targets, " ", p.Counts)
		}
		if got != want {
			t.Errorf("%s is made of %q, and not of %q", source, got, want)
		}
	}
}

// What some objects alone make says which keys may be other ones of all.
func TestChangesOfPieces(t *testing.T) {
	text := func(value ref.Val, keys ...string) ref.Val {
		all := map[ref.Val]ref.Val{}
		for _, key := range keys {
			all[types.String(key)] = value
		}
		return index(all)
	}
	const one, two = types.Int(1), types.Int(2)
	counts := Pieces{Counts: true}
	for name, tc := range map[string]struct {
		of               Pieces
		all, before, now ref.Val
		want             string // the keys of a, b and all that are concerned
		unknown          bool
	}{
		"Set, new":          {of: counts, all: text(types.True, "b"), before: text(nil), now: text(types.True, "a"), want: "a*"},
		"Set, another":      {of: counts, all: text(types.True, "a", "b"), before: text(nil), now: text(types.True, "a"), want: "*"},
		"Set, removed":      {of: counts, all: text(types.True, "a"), before: text(types.True, "a"), now: text(nil), want: "a*"},
		"Set, moved":        {of: counts, all: text(types.True, "a"), before: text(types.True, "a"), now: text(types.True, "b"), want: "ab*"},
		"Set, same":         {of: counts, all: text(types.True, "a"), before: text(types.True, "a"), now: text(types.True, "a"), want: "*"},
		"Count, new":        {of: counts, all: text(one, "b"), before: text(nil), now: text(one, "a"), want: "a*"},
		"Count, one more":   {of: counts, all: text(one, "a"), before: text(nil), now: text(one, "a"), want: "a*"},
		"Count, same":       {of: counts, all: text(two, "a"), before: text(one, "a"), now: text(one, "a"), want: "*"},
		"Count, more":       {of: counts, all: text(two, "a"), before: text(one, "a"), now: text(two, "a"), want: "a*"},
		"Index, same":       {all: text(one, "a"), before: text(one, "a"), now: text(one, "a"), want: "a*"},
		"Index, of bools":   {all: text(types.True, "a"), before: text(nil), now: text(types.True, "a"), want: "a*"},
		"Number":            {of: counts, all: text(nil), before: text(nil), now: index(map[ref.Val]ref.Val{one: types.True}), want: "*"},
		"Nothing":           {of: counts, all: text(nil), before: text(nil), now: text(nil), want: "*"},
		"No map":            {of: counts, all: types.NullValue, before: text(nil), now: text(nil), unknown: true},
		"No map before":     {of: counts, all: text(nil), before: types.NullValue, now: text(nil), unknown: true},
		"No map now":        {of: counts, all: text(nil), before: text(nil), now: native(map[string]any{}), unknown: true},
		"Other order there": {of: counts, all: ordered("a", "b"), before: ordered("b"), now: ordered("b"), want: "*"},
	} {
		c := NewChanges()
		if c.Knows(5) {
			t.Errorf("%s: it is known before", name)
		}
		if ok := c.AddPieces(5, tc.of, tc.all, tc.before, tc.now); ok == tc.unknown || c.Knows(5) != ok {
			t.Errorf("%s: it is %v that it can be told", name, ok)
		}
		if got := listConcerned(c); got != tc.want {
			t.Errorf("%s: it concerns %q, and not %q", name, got, tc.want)
		}
	}
	many := map[ref.Val]ref.Val{}
	for n := range maxChanged + 1 {
		many[types.String(fmt.Sprint(n))] = types.True
	}
	if NewChanges().AddPieces(1, counts, text(nil), index(many), text(nil)) || NewChanges().AddPieces(1, counts, text(nil), text(nil), index(many)) {
		t.Error("more keys have changed than are remembered, and they are")
	}
	if (*Changes)(nil).Knows(1) {
		t.Error("nothing knows a variable")
	}
}
