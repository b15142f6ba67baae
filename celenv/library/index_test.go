// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package library

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"

	"github.com/vtex/cleaner/celenv/compact"
)

// words begin with z, a, m, a and z: an order that is not the one of the alphabet.
const words = `["z1", "a1", "m1", "a2", "z2"]`

func TestIndexBy(t *testing.T) {
	checkExamples(t, Index(), map[string]example{
		"FirstWins":    {words + `.indexBy(w, w.substring(0, 1))`, `{"a": "a1", "m": "m1", "z": "z1"}`},
		"Order":        {words + `.indexBy(w, w.substring(0, 1)).map(k, k)`, `["z", "a", "m"]`},
		"Found":        {`"m" in ` + words + `.indexBy(w, w.substring(0, 1))`, `true`},
		"NotFound":     {`"b" in ` + words + `.indexBy(w, w.substring(0, 1))`, `false`},
		"NoSuchKey":    {words + `.indexBy(w, w.substring(0, 1))["b"]`, `error: no such key: b`},
		"Ints":         {`[3, 1, 3].indexBy(x, x).map(k, k)`, `[3, 1]`},
		"Bools":        {`[3, 1, 4].indexBy(x, x > 2)`, `{false: 1, true: 3}`},
		"Uints":        {`[3u].indexBy(x, x)`, `{3u: 3u}`},
		"OtherTypes":   {`[1, "1", true].indexBy(x, x).map(k, k)`, `[1, "1", true]`},
		"Nulls":        {`[null].indexBy(x, "k")`, `{"k": null}`},
		"Empty":        {`[].indexBy(x, x)`, `{}`},
		"MapKey":       {`[1].indexBy(x, {})`, `error: indexBy: a key must be a string, an int or a bool, not map`},
		"ListKey":      {`[1].indexBy(x, [])`, `error: indexBy: a key must be a string, an int or a bool, not list`},
		"DoubleKey":    {`[1].indexBy(x, 1.0)`, `error: indexBy: a key must be a string, an int or a bool, not double`},
		"LastIsNoKey":  {`["a", null].indexBy(x, x)`, `error: indexBy: a key must be a string, an int or a bool, not null_type`},
		"ErrorInAKey":  {`[object].indexBy(x, x.nope)`, `error: no such key: nope`},
		"OfItsOwn":     {`[[1, 2], [3]].map(l, l.indexBy(x, x))`, `[{1: 1, 2: 2}, {3: 3}]`},
		"OneInAnother": {`[1].indexBy(x, [2].indexBy(y, x + y)[3])`, `{2: 1}`},
	})
}

func TestGroupBy(t *testing.T) {
	checkExamples(t, Index(), map[string]example{
		"Groups":      {words + `.groupBy(w, w.substring(0, 1))`, `{"a": ["a1", "a2"], "m": ["m1"], "z": ["z1", "z2"]}`},
		"Order":       {words + `.groupBy(w, w.substring(0, 1)).map(k, k)`, `["z", "a", "m"]`},
		"Empty":       {`[].groupBy(x, x)`, `{}`},
		"LastIsNoKey": {`["a", 1.5].groupBy(x, x)`, `error: groupBy: a key must be a string, an int or a bool, not double`},
	})
}

func TestCountBy(t *testing.T) {
	checkExamples(t, Index(), map[string]example{
		"Counts":      {words + `.countBy(w, w.substring(0, 1))`, `{"a": 2, "m": 1, "z": 2}`},
		"Order":       {words + `.countBy(w, w.substring(0, 1)).map(k, k)`, `["z", "a", "m"]`},
		"Empty":       {`[].countBy(x, x)`, `{}`},
		"LastIsNoKey": {`["a", []].countBy(x, x)`, `error: countBy: a key must be a string, an int or a bool, not list`},
	})
}

func TestToSet(t *testing.T) {
	checkExamples(t, Index(), map[string]example{
		"Elements":    {`["z", "a", "z"].toSet()`, `{"a": true, "z": true}`},
		"Order":       {`["z", "a", "z"].toSet().map(k, k)`, `["z", "a"]`},
		"Empty":       {`[].toSet()`, `{}`},
		"LastIsNoKey": {`["a", {}].toSet()`, `error: toSet: a key must be a string, an int or a bool, not map`},
	})
}

func TestMerge(t *testing.T) {
	checkExamples(t, Index(), map[string]example{
		"Both":       {`{"a": 1}.merge({"b": 2})`, `{"a": 1, "b": 2}`},
		"SecondWins": {`{"a": 1, "b": 1}.merge({"b": 2})`, `{"a": 1, "b": 2}`},
		"Order":      {`{"z": 1}.merge({"a": 2}).merge({"z": 3}).map(k, k)`, `["z", "a"]`},
		"Empty":      {`{}.merge({})`, `{}`},
		"OfAnObject": {`object.metadata.merge({"name": "db"}).name`, `"db"`},
		"NoMap":      {`dyn([]).merge({})`, `error: no such overload: merge(list, map)`},
	})
}

// Each element has one key.
func TestIndexFunctionsRefuseOtherNumbersOfKeys(t *testing.T) {
	two, three := types.NewStringList(types.DefaultTypeAdapter, []string{"a", "b"}), types.NewStringList(types.DefaultTypeAdapter, []string{"x", "y", "z"})
	for name, f := range map[string]func(list, keys ref.Val) ref.Val{"indexBy": indexBy, "groupBy": groupBy, "countBy": countBy} {
		if err, failed := f(two, three).(*types.Err); !failed || err.Error() != name+": there are 3 keys, and 2 elements" {
			t.Errorf("%s gives %v", name, err)
		}
		if err, failed := f(three, two).(*types.Err); !failed || err.Error() != name+": there are 2 keys, and 3 elements" {
			t.Errorf("%s gives %v", name, err)
		}
	}
}

func TestCanBeKey(t *testing.T) {
	for _, v := range []ref.Val{types.String(""), types.Int(0), types.Uint(0), types.False} {
		if !canBeKey(v) {
			t.Errorf("%T cannot be a key", v)
		}
	}
	for _, v := range []ref.Val{types.Double(1), types.NullValue, types.Bytes("a"), types.Duration{}, types.OptionalNone, toSet(types.NewRefValList(types.DefaultTypeAdapter, nil)), types.NewRefValList(types.DefaultTypeAdapter, nil)} {
		if canBeKey(v) {
			t.Errorf("%T can be a key", v)
		}
	}
}

// onDemand is a list that counts how often an element is made.
type onDemand struct {
	traits.Lister
	made int
}

func (l *onDemand) MakesOnDemand() {}

func (l *onDemand) Get(i ref.Val) ref.Val {
	l.made++
	return l.Lister.Get(i)
}

// Elements of a list that makes them on demand are made when they are looked up. Where a key is there twice, the map keeps the first ones, and nothing of
// the list.
func TestIndexesMakeElementsOnDemand(t *testing.T) {
	for name, tc := range map[string]struct {
		keys       []string
		first, all int // made at once, and with all lookups
	}{"EachOnce": {[]string{"z", "a", "y", "m"}, 0, 3}, "OneTwice": {[]string{"z", "a", "z", "m"}, 0, 0}} {
		list := &onDemand{Lister: types.NewStringList(types.DefaultTypeAdapter, []string{"z1", "a1", "z2", "m1"})}
		m := indexBy(list, types.NewStringList(types.DefaultTypeAdapter, tc.keys)).(traits.Mapper)
		if m.Contains(types.String("z")) != types.True || list.made != tc.first {
			t.Errorf("%s: %v keys, %d elements were made", name, m.Size(), list.made)
		}
		for key, want := range map[types.String]types.String{"z": "z1", "a": "a1", "m": "m1"} {
			if got := m.Get(key); got != want {
				t.Errorf("%s: %s: got %v", name, key, got)
			}
		}
		if list.made != tc.all {
			t.Errorf("%s: %d elements were made", name, list.made)
		}
	}
}

// A set of a list that has no values keeps each key once, and says what it keeps.
func TestSetsKeepKeysOnce(t *testing.T) {
	texts := make([]string, 10_000)
	for i := range texts {
		texts[i] = fmt.Sprint(i % 10)
	}
	n, ok := compact.CountBytes(toSet(types.NewStringList(types.DefaultTypeAdapter, texts)))
	if !ok || n < 10*32 || n > 2000 {
		t.Errorf("ten keys take %d bytes", n)
	}
}

// FindKey finds what each macro makes of an element, and nothing in other calls.
func TestFindKey(t *testing.T) {
	env, err := cel.NewEnv(Index(), cel.Variable("x", cel.DynType))
	if err != nil {
		t.Fatal(err)
	}
	for expression, want := range map[string]string{
		`[1].indexBy(y, 2)`: "indexBy", `[1].groupBy(y, 2)`: "groupBy", `[1].countBy(y, 2)`: "countBy", `[1].map(y, 2)`: "", `[1].toSet()`: "", `{}.merge({})`: "",
	} {
		parsed, issues := env.Parse(expression)
		if issues.Err() != nil {
			t.Fatal(issues.Err())
		}
		found := ""
		ast.PostOrderVisit(parsed.NativeRep().Expr(), ast.NewExprVisitor(func(e ast.Expr) {
			if e.Kind() != ast.CallKind {
				return
			}
			if function, key, ok := FindKey(e.AsCall()); ok {
				found = function
				if key.Kind() != ast.ListKind || key.AsList().Elements()[0].AsLiteral() != types.Int(2) {
					t.Errorf("%s: the key is %v", expression, key)
				}
			}
		}))
		if found != want {
			t.Errorf("%s: found %q", expression, found)
		}
	}
}

// CEL checks that the functions are called on a list. They check it too.
func TestIndexFunctionsRefuseWhatIsNoList(t *testing.T) {
	keys := types.NewStringList(types.DefaultTypeAdapter, []string{"a"})
	for name, got := range map[string]ref.Val{
		"indexBy": indexBy(types.Int(1), keys), "groupBy": groupBy(types.Int(1), keys), "countBy": countBy(types.Int(1), keys), "toSet": toSet(types.Int(1)),
	} {
		if err, failed := got.(*types.Err); !failed || err.Error() != name+": this is no list" {
			t.Errorf("%s gives %v", name, got)
		}
	}
}

// Diagnoses find a node, and what is around it, by its ID.
func TestKeyedMacrosGiveEachNodeAnID(t *testing.T) {
	env, err := cel.NewEnv(Index())
	if err != nil {
		t.Fatal(err)
	}
	parsed, issues := env.Parse(`[1].indexBy(x, x)`)
	if issues.Err() != nil {
		t.Fatal(issues.Err())
	}
	ids, nodes := map[int64]bool{}, 0
	ast.PostOrderVisit(parsed.NativeRep().Expr(), ast.NewExprVisitor(func(e ast.Expr) {
		nodes++
		ids[e.ID()] = true
	}))
	if nodes == 0 || len(ids) != nodes {
		t.Errorf("%d nodes have %d IDs", nodes, len(ids))
	}
}

// A mistake is said where the expression has it.
func TestKeyedMacrosNeedAVariable(t *testing.T) {
	for _, expression := range []string{`[1].indexBy(1, 2)`, `[1].groupBy(x.y, 2)`, `[1].countBy("x", 2)`} {
		if _, err := compileExpression(t, Index(), expression); err == nil || !strings.Contains(err.Error(), "argument is not an identifier") {
			t.Errorf("%s: got %v", expression, err)
		}
	}
}

// A list may take long to make: it is made once, for the elements and for their keys.
func TestKeyedMacrosMakeTheListOnce(t *testing.T) {
	for _, macro := range []string{"indexBy", "groupBy", "countBy"} {
		made := 0
		list := func(...ref.Val) ref.Val {
			made++
			return types.NewStringList(types.DefaultTypeAdapter, []string{"a", "b"})
		}
		library := cel.Lib(listMaker{list})
		program, err := compileExpression(t, library, `makeList().`+macro+`(x, x).size()`)
		if err != nil {
			t.Fatal(err)
		}
		if got, _, err := program.Eval(map[string]any{}); err != nil || got != types.Int(2) || made != 1 {
			t.Errorf("%s gives %v, %v, and made the list %d times", macro, got, err, made)
		}
	}
}

// listMaker is Index, with a function that makes a list.
type listMaker struct{ make func(...ref.Val) ref.Val }

func (l listMaker) CompileOptions() []cel.EnvOption {
	return append(indexLibrary{}.CompileOptions(),
		cel.Function("makeList", cel.Overload("make_list", nil, cel.ListType(cel.StringType), cel.FunctionBinding(l.make))))
}

func (listMaker) ProgramOptions() []cel.ProgramOption { return nil }
