// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package library

import (
	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
	"github.com/google/cel-go/parser"
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

// visitElements calls visit with every element and its key. It gives the first error.
func visitElements(name string, list, keys ref.Val, visit func(key, elem ref.Val)) ref.Val {
	elems, ok := list.(traits.Lister)
	if !ok {
		return types.NewErr("%s: this is no list", name)
	}
	elem, key := elems.Iterator(), keys.(traits.Lister).Iterator()
	for elem.HasNext() == types.True && key.HasNext() == types.True {
		e, k := elem.Next(), key.Next()
		if !canBeKey(k) {
			return types.NewErr("%s: a key must be a string, an int or a bool, not %s", name, k.Type().TypeName())
		}
		visit(k, e)
	}
	return nil
}

func indexBy(list, keys ref.Val) ref.Val {
	var order []ref.Val
	entries := map[ref.Val]ref.Val{}
	if err := visitElements("indexBy", list, keys, func(key, elem ref.Val) {
		if _, found := entries[key]; !found {
			order = append(order, key)
			entries[key] = elem
		}
	}); err != nil {
		return err
	}
	return newOrderedMap(order, entries)
}

func groupBy(list, keys ref.Val) ref.Val {
	var order []ref.Val
	groups := map[ref.Val][]ref.Val{}
	if err := visitElements("groupBy", list, keys, func(key, elem ref.Val) {
		if _, found := groups[key]; !found {
			order = append(order, key)
		}
		groups[key] = append(groups[key], elem)
	}); err != nil {
		return err
	}
	entries := make(map[ref.Val]ref.Val, len(groups))
	for key, group := range groups {
		entries[key] = types.NewRefValList(types.DefaultTypeAdapter, group)
	}
	return newOrderedMap(order, entries)
}

func countBy(list, keys ref.Val) ref.Val {
	var order []ref.Val
	counts := map[ref.Val]int64{}
	if err := visitElements("countBy", list, keys, func(key, _ ref.Val) {
		if counts[key] == 0 {
			order = append(order, key)
		}
		counts[key]++
	}); err != nil {
		return err
	}
	entries := make(map[ref.Val]ref.Val, len(counts))
	for key, n := range counts {
		entries[key] = types.Int(n)
	}
	return newOrderedMap(order, entries)
}

func toSet(list ref.Val) ref.Val {
	var order []ref.Val
	entries := map[ref.Val]ref.Val{}
	if err := visitElements("toSet", list, list, func(key, _ ref.Val) {
		if _, found := entries[key]; !found {
			order = append(order, key)
			entries[key] = types.True
		}
	}); err != nil {
		return err
	}
	return newOrderedMap(order, entries)
}

// mergeMaps makes a map of two: the keys of the first in their order, and then the others of the second.
func mergeMaps(first, second ref.Val) ref.Val {
	var order []ref.Val
	entries := map[ref.Val]ref.Val{}
	for _, from := range []ref.Val{first, second} {
		m, ok := from.(traits.Mapper)
		if !ok {
			return types.NewErr("merge: this is no map")
		}
		for it := m.Iterator(); it.HasNext() == types.True; {
			key := it.Next()
			if _, found := entries[key]; !found {
				order = append(order, key)
			}
			entries[key] = m.Get(key)
		}
	}
	return newOrderedMap(order, entries)
}

// orderedMap is a map that iterates in a given order, so that lists made from it are the same each
// time. It is used by pointer: cel-go hashes values.
type orderedMap struct {
	traits.Mapper
	keys []ref.Val
}

func newOrderedMap(keys []ref.Val, entries map[ref.Val]ref.Val) ref.Val {
	return &orderedMap{Mapper: types.NewRefValMap(types.DefaultTypeAdapter, entries), keys: keys}
}

// Iterator visits the keys in the map's order.
func (m *orderedMap) Iterator() traits.Iterator {
	return types.NewRefValList(types.DefaultTypeAdapter, m.keys).Iterator()
}

// IsZeroValue says whether the map is empty, as optional.ofNonZeroValue asks.
func (m *orderedMap) IsZeroValue() bool { return len(m.keys) == 0 }

// canBeKey says whether the value can be a key of a map.
func canBeKey(v ref.Val) bool {
	switch v.(type) {
	case types.String, types.Int, types.Uint, types.Bool:
		return true
	default:
		return false
	}
}
