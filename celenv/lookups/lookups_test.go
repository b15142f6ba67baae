// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package lookups

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"

	"github.com/vtex/cleaner/celenv/budget"
	"github.com/vtex/cleaner/celenv/library"
)

func parse(t *testing.T, source string) ast.Expr {
	t.Helper()
	env, err := cel.NewEnv(cel.OptionalTypes())
	if err != nil {
		t.Fatal(err)
	}
	a, issues := env.Parse(source)
	if issues.Err() != nil {
		t.Fatalf("%s: %v", source, issues.Err())
	}
	return a.NativeRep().Expr()
}

// A name is used otherwise wherever no entry of it is looked up, also where it is given to something that may look one up.
func TestFindOtherUses(t *testing.T) {
	for source, want := range map[string][]string{
		`k in m`:                        {"k"},
		`!(x.name in m) && x.name in n`: nil,
		`m[k]`:                          {"k"},
		`m[?k].?name`:                   {"k"},
		`m.k`:                           nil,
		`m.?k`:                          nil,
		`has(m.k)`:                      nil,
		`m.size()`:                      {"m"},
		`size(m) > 1 && k.x in m`:       {"m"},
		`m == n`:                        {"m", "n"},
		`[m, n]`:                        {"m", "n"},
		`{"m": m}.m`:                    {"m"},
		`m in l`:                        {"m"},
		`m[n[k.x]]`:                     nil,
		`(m)["a"]`:                      nil,
		`(m ? n : o)["a"]`:              {"m", "n", "o"},
		`m.exists(k, k == "a")`:         {"@result", "k", "m"},
		`["a"].exists(k, k in m)`:       {"@result", "k"},
		`["a"].all(k, m[k].x) || m`:     {"@result", "k", "m"},
		`f(m)`:                          {"m"},
		`.m.size()`:                     {"m"},
		`x.f(m)`:                        {"m", "x"},
		`m + n`:                         {"m", "n"},
	} {
		found := map[string]bool{}
		FindOtherUses(parse(t, source), nil, func(name string) { found[name] = true })
		if got := slices.Sorted(maps.Keys(found)); !slices.Equal(got, want) {
			t.Errorf("%s uses %q otherwise, and not %q", source, got, want)
		}
	}
}

// What is evaluated once for all items uses all that it names otherwise, and nothing outside of it does.
func TestFindOtherUsesOfParts(t *testing.T) {
	root := parse(t, `"a" in m && "b" in n`)
	second := root.AsCall().Args()[1]
	for name, tc := range map[string]struct {
		fixed []int64
		want  []string
	}{
		"None": {nil, nil}, "Part": {[]int64{second.ID()}, []string{"n"}}, "All": {[]int64{root.ID()}, []string{"m", "n"}},
	} {
		found := map[string]bool{}
		FindOtherUses(root, tc.fixed, func(name string) { found[name] = true })
		if got := slices.Sorted(maps.Keys(found)); !slices.Equal(got, tc.want) {
			t.Errorf("%s: %q are used otherwise, and not %q", name, got, tc.want)
		}
	}
}

func index(entries map[ref.Val]ref.Val) ref.Val {
	return types.NewRefValMap(types.DefaultTypeAdapter, entries)
}

func native(value any) ref.Val { return budget.NewAdapter(nil).NativeToValue(value) }

// Each lookup is recorded by its key, and whatever else is asked of a map by all that it has. The answers are those of the map.
func TestRecord(t *testing.T) {
	const place = 3
	m := index(map[ref.Val]ref.Val{types.String("a"): types.Int(1), types.String("b"): types.Int(2), types.Int(7): types.Int(3)})
	a, all := sumKey(place, "a"), sumAll(place)
	for name, tc := range map[string]struct {
		ask  func(m traits.Mapper) any
		want []Key
	}{
		"Contains":   {func(m traits.Mapper) any { return m.Contains(types.String("a")) }, []Key{a}},
		"Missing":    {func(m traits.Mapper) any { return m.Contains(types.String("z")) }, []Key{sumKey(place, "z")}},
		"Get":        {func(m traits.Mapper) any { return m.Get(types.String("a")) }, []Key{a}},
		"Find":       {func(m traits.Mapper) any { v, _ := m.Find(types.String("a")); return v }, []Key{a}},
		"Twice":      {func(m traits.Mapper) any { m.Get(types.String("a")); return m.Get(types.String("a")) }, []Key{a}},
		"Two":        {func(m traits.Mapper) any { m.Get(types.String("b")); return m.Get(types.String("a")) }, []Key{sumKey(place, "b"), a}},
		"Number":     {func(m traits.Mapper) any { return m.Get(types.Int(7)) }, []Key{all}},
		"Wrong type": {func(m traits.Mapper) any { return m.Contains(types.Double(7)) }, []Key{all}},
		"Size":       {func(m traits.Mapper) any { return m.Size() }, []Key{all}},
		"Iterator":   {func(m traits.Mapper) any { return m.Iterator().HasNext() }, []Key{all}},
		"Equal":      {func(m traits.Mapper) any { return m.Equal(index(nil)) }, []Key{all}},
		"Type":       {func(m traits.Mapper) any { return m.Type() }, nil},
		"Nothing":    {func(traits.Mapper) any { return nil }, nil},
		"Value":      {func(m traits.Mapper) any { return len(m.Value().(map[ref.Val]ref.Val)) }, []Key{all}},
	} {
		t.Run(name, func(t *testing.T) {
			r := &Record{}
			r.BeginAnswer()
			recorded := r.RecordValue(place, m)
			if got, want := tc.ask(recorded.(traits.Mapper)), tc.ask(m.(traits.Mapper)); fmt.Sprint(got) != fmt.Sprint(want) {
				t.Errorf("a recorded map says %v, and the map %v", got, want)
			}
			if !slices.Equal(r.ListKeys(), tc.want) {
				t.Errorf("%v are recorded, and not %v", r.ListKeys(), tc.want)
			}
			if r.RecordValue(place, m) != recorded {
				t.Error("each time it is another map")
			}
			if r.BeginAnswer(); len(r.ListKeys()) > 0 {
				t.Errorf("the next answer has %v", r.ListKeys())
			}
		})
	}
}

// Of what is no index, all is recorded as soon as it is read.
func TestRecordOthers(t *testing.T) {
	for _, v := range []ref.Val{types.True, types.String("a"), types.NewErr("no"), native(map[string]any{"a": 1}), native([]any{"a"})} {
		r := &Record{}
		if got := r.RecordValue(1, v); got != v || !slices.Equal(r.ListKeys(), []Key{sumAll(1)}) {
			t.Errorf("of %v, %v is recorded, and it becomes %v", v, r.ListKeys(), got)
		}
	}
}

// Of an answer that looks up many keys, no more are held than there is room for, and then all of each map that it looks further up in.
func TestManyKeys(t *testing.T) {
	r := &Record{}
	one, other := r.RecordValue(1, index(nil)).(traits.Mapper), r.RecordValue(2, index(nil)).(traits.Mapper)
	for n := range 3 * MaxKeys {
		one.Contains(types.String(fmt.Sprint(n)))
	}
	other.Contains(types.String("a"))
	if n := len(r.ListKeys()); n != MaxKeys+2 {
		t.Errorf("%d keys are held", n)
	}
	for _, want := range []Key{sumKey(1, "0"), sumAll(1), sumAll(2)} {
		if !slices.Contains(r.ListKeys(), want) {
			t.Errorf("%v lacks %v", r.ListKeys(), want)
		}
	}
}

// ordered returns a map that iterates in the order of some keys.
func ordered(keys ...string) ref.Val {
	list := make([]ref.Val, len(keys))
	for i, key := range keys {
		list[i] = types.String(key)
	}
	env, err := cel.NewEnv(library.Index(), cel.Variable("l", cel.DynType))
	if err != nil {
		panic(err)
	}
	a, issues := env.Compile("l.toSet()")
	if issues.Err() != nil {
		panic(issues.Err())
	}
	p, err := env.Program(a)
	if err != nil {
		panic(err)
	}
	out, _, err := p.Eval(map[string]any{"l": types.NewRefValList(types.DefaultTypeAdapter, list)})
	if err != nil {
		panic(err)
	}
	return out
}

func mustTime(text string) types.Timestamp {
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		panic(err)
	}
	return types.Timestamp{Time: at}
}

// listConcerned lists which of a, b and all of variable 5 are concerned.
func listConcerned(c *Changes) (concerned string) {
	for _, key := range []struct {
		name string
		sum  Key
	}{{"a", sumKey(5, "a")}, {"b", sumKey(5, "b")}, {"*", sumAll(5)}} {
		if c.ConcernAny([]Key{key.sum}) {
			concerned += key.name
		}
	}
	return concerned
}

// A change concerns the answers that have looked up what is different, and those that have looked at all.
func TestChanges(t *testing.T) {
	object, other := map[string]any{"a": "b"}, map[string]any{"a": "b"}
	list := []any{"x"}
	text := func(entries ...any) ref.Val {
		all := map[ref.Val]ref.Val{}
		for pair := range slices.Chunk(entries, 2) {
			all[types.String(pair[0].(string))] = native(pair[1])
		}
		return index(all)
	}
	for name, tc := range map[string]struct {
		before, now ref.Val
		want        string // the keys of a, b and all that are concerned
		unknown     bool
	}{
		"Same":           {before: text("a", 1), now: text("a", 1)},
		"Same order":     {before: ordered("b", "a"), now: ordered("b", "a")},
		"Added":          {before: text("b", 1), now: text("a", 1, "b", 1), want: "a*"},
		"Removed":        {before: text("a", 1, "b", 1), now: text("b", 1), want: "a*"},
		"Another":        {before: text("a", 1, "b", 1), now: text("a", 2, "b", 1), want: "a*"},
		"Another type":   {before: text("a", 1), now: text("a", 1.0), want: "a*"},
		"Both":           {before: text("a", 1), now: text("b", 1), want: "ab*"},
		"Same object":    {before: text("a", object), now: text("a", object)},
		"Equal object":   {before: text("a", object), now: text("a", other), want: "a*"},
		"Same list":      {before: text("a", list), now: text("a", list)},
		"Lists":          {before: text("a", types.NewRefValList(types.DefaultTypeAdapter, []ref.Val{native(object)})), now: text("a", types.NewRefValList(types.DefaultTypeAdapter, []ref.Val{native(object)}))},
		"Longer list":    {before: text("a", types.NewRefValList(types.DefaultTypeAdapter, nil)), now: text("a", types.NewRefValList(types.DefaultTypeAdapter, []ref.Val{types.True})), want: "a*"},
		"Null":           {before: text("a", nil), now: text("a", nil)},
		"Number as key":  {before: index(map[ref.Val]ref.Val{types.Int(1): types.True}), now: index(nil), want: "*"},
		"Equal numbers":  {before: index(map[ref.Val]ref.Val{types.Int(1): types.True}), now: index(map[ref.Val]ref.Val{types.Int(1): types.True})},
		"Equal values":   {before: types.Int(1), now: types.Int(1)},
		"Other values":   {before: types.Int(1), now: types.Int(2), want: "*"},
		"Object":         {before: native(object), now: native(other), want: "*"},
		"Very object":    {before: native(object), now: native(object)},
		"Other order":    {before: ordered("a", "b"), now: ordered("b", "a"), want: "*"},
		"Time zones":     {before: text("a", mustTime("2026-01-01T10:00:00Z")), now: text("a", mustTime("2026-01-01T12:00:00+02:00")), want: "a*"},
		"Becomes index":  {before: native(object), now: text("a", 1), want: "*"},
		"No index now":   {before: text("a", 1), now: native(object), unknown: true},
		"No map now":     {before: text("a", 1), now: types.NullValue, unknown: true},
		"Empty and null": {before: types.NullValue, now: text(), want: "*"},
	} {
		c := NewChanges()
		if ok := c.AddVariable(5, tc.before, tc.now); ok == tc.unknown {
			t.Errorf("%s: it is %v that it can be told", name, ok)
		}
		if got := listConcerned(c); got != tc.want {
			t.Errorf("%s: it concerns %q, and not %q", name, got, tc.want)
		}
		if c.ConcernAny([]Key{sumKey(5, "c"), sumKey(4, "a"), sumAll(6)}) || c.ConcernAny(nil) {
			t.Errorf("%s: it concerns what was not there", name)
		}
	}
}

// Values that name others again and again are compared within a bound, and so are large maps, and a variable is compared once. What took too much is taken for
// another one.
func TestComparisonsAreBounded(t *testing.T) {
	deep := func() ref.Val {
		v := ref.Val(types.String("x"))
		for range 60 {
			v = types.NewRefValList(types.DefaultTypeAdapter, []ref.Val{v, v})
		}
		return v
	}
	one := index(map[ref.Val]ref.Val{types.String("a"): deep()})
	c := NewChanges()
	if c.AddVariable(1, one, index(map[ref.Val]ref.Val{types.String("a"): deep()})) {
		t.Error("what grows without end is compared")
	}
	if c.AddVariable(1, types.True, types.True) || c.AddVariable(2, types.True, types.True) {
		t.Error("after too much work, something is compared")
	}
	if c := NewChanges(); !c.AddVariable(1, one, one) || c.compared > 10 {
		t.Errorf("the same map takes %d comparisons", c.compared)
	}
	many := map[ref.Val]ref.Val{}
	for n := range maxChanged + 1 {
		many[types.String(fmt.Sprint(n))] = types.True
	}
	if NewChanges().AddVariable(1, index(nil), index(many)) {
		t.Error("more keys have changed than are remembered, and they are")
	}
	c = NewChanges()
	if c.AddVariable(1, types.True, types.False); !c.ConcernAny([]Key{sumAll(1)}) || !c.AddVariable(1, types.True, types.True) {
		t.Error("a variable is looked at again")
	}
	if (*Changes)(nil).ConcernAny([]Key{1}) || !NewChanges(1, 2).ConcernAny([]Key{2}) {
		t.Error("it is wrong what given keys concern")
	}
}
