// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package library

import (
	"reflect"
	"slices"
	"strings"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
	"github.com/google/cel-go/parser"

	"github.com/vtex/cleaner/celenv/compact"
)

// Index makes maps of lists, in one pass, for looking up what a loop would have to search for. The maps iterate in the
// order in which their keys came first in the list. Keys are strings, ints or bools.
//
//	<list>.indexBy(x, <key>) -> <map>      // nodes.items.indexBy(n, n.metadata.name)["node-1"]; the first with a key wins
//	<list>.groupBy(x, <key>) -> <map>      // pods.items.groupBy(p, p.spec.nodeName)["node-1"].size(): lists, in the list's order
//	<list>.countBy(x, <key>) -> <map>      // pods.items.countBy(p, p.status.phase)["Failed"]: how many
//	<list>.toSet() -> <map>                // x in list.toSet(): each element is a key, with the value true
//	<map>.merge(<map>) -> <map>            // labels.merge({"a": "b"}): the entries of both; the second map wins. Any keys of maps do
func Index() cel.EnvOption { return cel.Lib(indexLibrary{}) }

// keyedMacros are the macros that give their function the key of each element.
var keyedMacros = []string{"indexBy", "groupBy", "countBy"} //nolint:gochecknoglobals // they never change

type indexLibrary struct{}

func (indexLibrary) LibraryName() string { return "cleaner.index" }

func (indexLibrary) CompileOptions() []cel.EnvOption {
	elem, key := cel.TypeParamType("T"), cel.TypeParamType("K")
	elems, keys, entries := cel.ListType(elem), cel.ListType(key), cel.MapType(key, elem)
	return []cel.EnvOption{
		cel.Macros(
			cel.ReceiverMacro("indexBy", 2, newKeyedMacro("@indexBy")),
			cel.ReceiverMacro("groupBy", 2, newKeyedMacro("@groupBy")),
			cel.ReceiverMacro("countBy", 2, newKeyedMacro("@countBy"))),
		cel.Function("@indexBy",
			cel.MemberOverload("list_index_by_keys", []*cel.Type{elems, keys}, cel.MapType(key, elem), cel.BinaryBinding(indexBy))),
		cel.Function("@groupBy",
			cel.MemberOverload("list_group_by_keys", []*cel.Type{elems, keys}, cel.MapType(key, elems), cel.BinaryBinding(groupBy))),
		cel.Function("@countBy",
			cel.MemberOverload("list_count_by_keys", []*cel.Type{elems, keys}, cel.MapType(key, cel.IntType), cel.BinaryBinding(countBy))),
		cel.Function("toSet",
			cel.MemberOverload("list_to_set", []*cel.Type{elems}, cel.MapType(elem, cel.BoolType), cel.UnaryBinding(toSet))),
		cel.Function("merge",
			cel.MemberOverload("map_merge_map", []*cel.Type{entries, entries}, entries, cel.BinaryBinding(mergeMaps))),
	}
}

func (indexLibrary) ProgramOptions() []cel.ProgramOption { return nil }

// newKeyedMacro expands list.f(x, key) to function(list, list.map(x, key)), with the list evaluated once.
func newKeyedMacro(function string) cel.MacroFactory {
	const input = "@keyed_input"
	return func(f cel.MacroExprFactory, target ast.Expr, args []ast.Expr) (ast.Expr, *cel.Error) {
		list := f.NewIdent(input)
		keys, err := parser.MakeMap(f, f.Copy(list), args)
		if err != nil {
			return nil, err
		}
		call := f.NewMemberCall(function, f.Copy(list), keys)
		return f.NewComprehension(f.NewList(), "#unused", input, target, f.NewLiteral(types.False), list, call), nil
	}
}

// FindKey finds the list of one key that a macro of this library makes of each element, and the function that gets all of them. It is not ok for other
// calls.
func FindKey(call ast.CallExpr) (function string, key ast.Expr, ok bool) {
	name, isInner := strings.CutPrefix(call.FunctionName(), "@")
	if !isInner || !slices.Contains(keyedMacros, name) || len(call.Args()) != 1 || call.Args()[0].Kind() != ast.ComprehensionKind {
		return "", nil, false
	}
	step := call.Args()[0].AsComprehension().LoopStep() // all + [key]
	if step.Kind() != ast.CallKind || len(step.AsCall().Args()) != 2 {
		return "", nil, false
	}
	return name, step.AsCall().Args()[1], true
}

// CheckKey returns an error of a function, by its name, if the value cannot be a key of a map; else nil.
func CheckKey(function string, v ref.Val) ref.Val {
	if !canBeKey(v) {
		return types.NewErr("%s: a key must be a string, an int or a bool, not %s", function, v.Type().TypeName())
	}
	return nil
}

// listKeys returns the keys of a list, which keeps them too, or an error.
func listKeys(function string, v ref.Val) (keys []ref.Val, err ref.Val) {
	list, ok := v.(traits.Lister)
	if !ok {
		return nil, types.NewErr("%s: this is no list", function)
	}
	keys, isKept := keepValues(list)
	for it := list.Iterator(); it.HasNext() == types.True; {
		key := it.Next()
		if err := CheckKey(function, key); err != nil {
			return nil, err
		}
		if !isKept {
			keys = append(keys, key)
		}
	}
	return keys, nil
}

// listOfValues is the type of lists that loops make.
var listOfValues = reflect.TypeOf(types.NewRefValList(types.DefaultTypeAdapter, nil)) //nolint:gochecknoglobals // it never changes

// keepValues returns the slice of a list. It is not ok for a list that has none: other lists would make one each time.
func keepValues(list traits.Lister) (values []ref.Val, ok bool) {
	if reflect.TypeOf(list) == listOfValues {
		values, ok = list.Value().([]ref.Val)
	}
	return values, ok
}

// MeasureElements returns how many bytes of memory an element of a list takes in another list: its place, and itself where the list makes it when it is asked for.
func MeasureElements(v ref.Val) int {
	const madeBytes = 32
	if list, ok := v.(traits.Lister); ok {
		if _, isKept := keepValues(list); isKept {
			return compact.ValueBytes
		}
	}
	return compact.ValueBytes + madeBytes
}

// OnDemand is a list that keeps no values of expressions: it makes each when it is asked for, in little time.
type OnDemand interface {
	traits.Lister
	MakesOnDemand()
}

func indexBy(list, keys ref.Val) ref.Val {
	table, err := newTableOfKeys("indexBy", list, keys)
	if err != nil {
		return err
	}
	for !table.IsComplete() {
		table.AddNext()
	}
	if source, is := list.(OnDemand); is && !table.HasRepeated() { // else the list would keep what no key has
		return compact.NewIndex(table, 0, func(place int) ref.Val { return source.Get(types.Int(table.FirstAt(place))) })
	}
	values := make([]ref.Val, 0, table.CountKeys())
	for n, it := 0, list.(traits.Lister).Iterator(); len(values) < table.CountKeys(); n++ {
		if elem := it.Next(); n == table.FirstAt(len(values)) {
			values = append(values, elem)
		}
	}
	return compact.NewIndex(table, MeasureElements(list)*len(values), func(place int) ref.Val { return values[place] })
}

// newTableOfKeys makes a table for the keys of the elements of a list, or an error.
func newTableOfKeys(function string, list, keys ref.Val) (table *compact.Table, err ref.Val) {
	elems, ok := list.(traits.Lister)
	if !ok {
		return nil, types.NewErr("%s: this is no list", function)
	}
	all, err := listKeys(function, keys)
	if err != nil {
		return nil, err
	}
	if n := elems.Size(); n != types.Int(len(all)) {
		return nil, types.NewErr("%s: there are %d keys, and %v elements", function, len(all), n)
	}
	return compact.NewTable(all), nil
}

func groupBy(list, keys ref.Val) ref.Val {
	table, err := newTableOfKeys("groupBy", list, keys)
	if err != nil {
		return err
	}
	groups, n := [][]ref.Val{}, 0
	for it := list.(traits.Lister).Iterator(); !table.IsComplete(); {
		place, isNew := table.AddNext()
		if isNew {
			groups = append(groups, nil)
		}
		groups[place] = append(groups[place], it.Next())
		n++
	}
	const groupBytes = 128 // of a list of cel-go
	values := make([]ref.Val, len(groups))
	for i, group := range groups {
		values[i] = types.NewRefValList(types.DefaultTypeAdapter, compact.TrimSlice(group))
	}
	return compact.NewIndex(table, (groupBytes+compact.ValueBytes)*len(groups)+MeasureElements(list)*n, func(place int) ref.Val { return values[place] })
}

func countBy(list, keys ref.Val) ref.Val {
	table, err := newTableOfKeys("countBy", list, keys)
	if err != nil {
		return err
	}
	var counts []int64
	for !table.IsComplete() {
		place, isNew := table.AddNext()
		if isNew {
			counts = append(counts, 0)
		}
		counts[place]++
	}
	const countBytes = 8
	return compact.NewIndex(table, countBytes*len(counts), func(place int) ref.Val { return types.Int(counts[place]) })
}

func toSet(v ref.Val) ref.Val {
	list, ok := v.(traits.Lister)
	if !ok {
		return types.NewErr("toSet: this is no list")
	}
	var table *compact.Table
	var err ref.Val
	if _, isKept := keepValues(list); isKept {
		table, err = newTableOfKeys("toSet", list, list)
	} else {
		table, err = newTableOfElements("toSet", list)
	}
	if err != nil {
		return err
	}
	for !table.IsComplete() {
		table.AddNext()
	}
	return compact.NewIndex(table, 0, func(int) ref.Val { return types.True })
}

// newTableOfElements makes a table of the elements of a list that makes them when they are asked for, or an error.
func newTableOfElements(function string, list traits.Lister) (table *compact.Table, err ref.Val) {
	table = compact.NewOwnTable(func(visit func(ref.Val) bool) {
		for it := list.Iterator(); it.HasNext() == types.True; {
			key := it.Next()
			if err = CheckKey(function, key); err != nil || !visit(key) {
				return
			}
		}
	})
	return table, err
}

// mergeMaps makes a map of two: the keys of the first in their order, and then the others of the second.
func mergeMaps(first, second ref.Val) ref.Val {
	var keys, all []ref.Val
	for _, from := range []ref.Val{first, second} {
		m, ok := from.(traits.Mapper)
		if !ok {
			return types.NewErr("merge: this is no map")
		}
		for it := m.Iterator(); it.HasNext() == types.True; {
			key := it.Next()
			keys, all = append(keys, key), append(all, m.Get(key))
		}
	}
	return compact.NewMap(keys, all)
}

// canBeKey says whether the value can be a key of a map.
func canBeKey(v ref.Val) bool {
	switch v.(type) {
	case types.String, types.Int, types.Uint, types.Bool:
		return true
	default:
		return false
	}
}
