// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package usage

import (
	"maps"
	"slices"

	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"

	"github.com/vtex/cleaner/celenv/expr"
	"github.com/vtex/cleaner/celenv/library"
	"github.com/vtex/cleaner/celenv/objectschema"
	"github.com/vtex/cleaner/celenv/references"
)

// call is a call, and what its arguments may be. What it is called on is the first.
type call struct {
	node ast.Expr
	args []ast.Expr
	with []value
}

// follower says what a call gives, and notes what it reads of its arguments.
type follower func(a *analysis, c *call) value

// findFollower returns what is known of a function; nil: nothing.
func findFollower(function string) follower {
	switch function {
	case operators.Conditional:
		return followConditional
	case operators.LogicalAnd, operators.LogicalOr, operators.LogicalNot, operators.NotStrictlyFalse:
		return followScalars
	case operators.Equals, operators.NotEquals:
		return followComparison
	case operators.Index, operators.OptIndex:
		return followIndex
	case operators.OptSelect:
		return followOptionalSelect
	case operators.In, operators.OldIn:
		return followSearch
	case operators.Add:
		return followSum
	default:
		return findNamedFollower(function)
	}
}

// findNamedFollower is findFollower for functions that are no operators.
func findNamedFollower(function string) follower {
	switch function {
	case "dyn", "optional.of", "value", "or", "orValue":
		return followThrough
	case "optional.ofNonZeroValue":
		return followNonZero
	case "hasValue", "type":
		return followNothing
	case "optional.none":
		return followNone
	case "size":
		return followSize
	case "first", "last":
		return followElement
	case "reverse", "slice", "optional.unwrap", "unwrapOpt":
		return followList
	case "flatten":
		return followFlatten
	case "@sortByAssociatedKeys":
		return followSort
	default:
		return findMapFollower(function)
	}
}

// findMapFollower is findFollower for functions that make maps.
func findMapFollower(function string) follower {
	switch function {
	case "cel.@mapInsert":
		return followInsert
	case "merge":
		return followMerge
	case "@indexBy":
		return followIndexBy
	case "@groupBy":
		return followGroupBy
	case "@countBy", "toSet":
		return followKeys
	default:
		return findLibraryFollower(function)
	}
}

// findLibraryFollower is findFollower for functions that look at parts of objects.
func findLibraryFollower(function string) follower {
	switch function {
	case "key":
		return followKey
	case "condition":
		return followCondition
	case "controller":
		return followController
	case "podSpec":
		return followPodSpec
	case "podLabels":
		return followPodLabels
	case "podRefs":
		return followPodRefs
	case "refs":
		return followRefs
	default:
		return nil
	}
}

// traceCall goes through a call.
func (a *analysis) traceCall(e ast.Expr, locals *local) value {
	c := &call{node: e, args: expr.ListChildren(e)}
	for _, arg := range c.args {
		c.with = append(c.with, a.trace(arg, locals))
	}
	a.node = e.ID()
	a.checker.checkCall(c)
	if follow := findFollower(e.AsCall().FunctionName()); follow != nil {
		return follow(a, c)
	}
	for _, v := range c.with {
		a.readAll(v)
	}
	return value{} // what it gives may be of its arguments, and all of these is read
}

// makeList returns a list that the call makes of elements.
func (a *analysis) makeList(c *call, nth int, elements value) value {
	m := a.makeAt(a.siteOf(c.node, nth))
	a.putInto(m, &m.elements, elements)
	return value{mades: map[*made]struct{}{m: {}}}
}

// makeMap returns a map that the call makes of values.
func (a *analysis) makeMap(c *call, entries value) value {
	m := a.makeAt(a.siteOf(c.node, 0))
	a.putInto(m, &m.entries, entries)
	return value{mades: map[*made]struct{}{m: {}}}
}

func followConditional(a *analysis, c *call) value {
	a.readScalar(c.with[0])
	return a.joinValues(c.with[1:]...)
}

func followScalars(a *analysis, c *call) value {
	for _, v := range c.with {
		a.readScalar(v)
	}
	return value{}
}

// followComparison reads both sides. A list or a map is never equal to a literal, whatever is in it.
func followComparison(a *analysis, c *call) value {
	for n, v := range c.with {
		if c.args[1-n].Kind() == ast.LiteralKind {
			a.readScalar(v)
		} else {
			a.readAll(v)
		}
	}
	return value{}
}

func followIndex(a *analysis, c *call) value {
	if key, ok := literalText(c.args[1]); ok {
		a.checker.checkKey(c.with[0], key)
		return a.selectField(c.with[0], key)
	}
	a.readScalar(c.with[1])
	found := a.takeElements(c.with[0])
	if number := c.args[1]; number.Kind() == ast.LiteralKind && number.AsLiteral().Type() == types.IntType {
		for m := range c.with[0].mades {
			a.appendValue(&found, m.entries)
		}
		return found
	}
	a.readShape(c.with[0])
	return takeIndexed(&a.graph, c.with[0])
}

func followOptionalSelect(a *analysis, c *call) value {
	key, ok := literalText(c.args[1])
	if !ok {
		return followIndex(a, c)
	}
	a.checker.checkKey(c.with[0], key)
	return a.selectField(c.with[0], key)
}

// followSearch reads the keys of a map, and compares the elements of a list.
func followSearch(a *analysis, c *call) value {
	what, in := c.with[0], c.with[1]
	a.readScalar(in)
	elements := a.takeElements(in)
	if c.args[0].Kind() == ast.LiteralKind {
		a.readScalar(elements)
	} else {
		a.readAll(what)
		a.readAll(elements)
	}
	if key, ok := literalText(c.args[0]); ok {
		a.checker.checkMember(in, key)
		a.selectField(in, key)
	} else {
		a.readShape(in)
	}
	return value{}
}

// followSum adds lists, and otherwise reads both.
func followSum(a *analysis, c *call) value {
	for _, v := range c.with {
		a.readScalar(v)
		a.readShape(v)
	}
	return a.makeList(c, 0, a.joinValues(a.takeElements(c.with[0]), a.takeElements(c.with[1])))
}

func followThrough(a *analysis, c *call) value { return a.joinValues(c.with...) }

func followNonZero(a *analysis, c *call) value {
	a.readScalar(c.with[0])
	a.readShape(c.with[0])
	return c.with[0]
}

func followNothing(*analysis, *call) value { return value{} }

func followNone(*analysis, *call) value { return value{none: true} }

func followSize(a *analysis, c *call) value {
	followNonZero(a, c)
	return value{}
}

func followElement(a *analysis, c *call) value {
	followNonZero(a, c)
	return a.takeElements(c.with[0])
}

// followList gives some of the elements of a list, or a text made of one.
func followList(a *analysis, c *call) value {
	followNonZero(a, c)
	for _, v := range c.with[1:] {
		a.readScalar(v)
	}
	return a.makeList(c, 0, a.takeElements(c.with[0]))
}

// followFlatten gives the elements of the lists in a list, and those of its elements that are no lists.
func followFlatten(a *analysis, c *call) value {
	if len(c.args) > 1 {
		for _, v := range c.with {
			a.readAll(v)
		}
		return value{}
	}
	followNonZero(a, c)
	elements := a.takeElements(c.with[0])
	a.readScalar(elements)
	flat := a.joinValues(elements)
	maps.DeleteFunc(flat.parts, func(p *part, _ struct{}) bool { return p.schema != nil && p.schema.Types == objectschema.List })
	return a.makeList(c, 0, a.joinValues(flat, a.takeElements(elements)))
}

// followInsert gives a map with another entry, or with those of another map.
func followInsert(a *analysis, c *call) value {
	into := a.joinValues(c.with[0])
	if len(c.with) == 3 {
		a.readScalar(c.with[1])
		a.appendValue(&into, a.makeMap(c, c.with[2]))
		return into
	}
	a.readShape(c.with[1])
	a.appendValue(&into, a.makeMap(c, a.takeEntries(c.with[1])))
	return into
}

// followMerge gives a map with the entries of two.
func followMerge(a *analysis, c *call) value {
	for _, v := range c.with {
		a.readScalar(v)
		a.readShape(v)
		noteMerged(&a.graph, v)
	}
	return a.joinValues(c.with...)
}

// readKeys reads the list of keys that a macro has made of a list.
func (a *analysis) readKeys(keys value) {
	a.readScalar(keys)
	a.readShape(keys)
	a.readScalar(a.takeElements(keys))
}

func followSort(a *analysis, c *call) value {
	a.readKeys(c.with[1])
	return a.makeList(c, 0, followElement(a, &call{with: c.with[:1]}))
}

func followIndexBy(a *analysis, c *call) value {
	a.readKeys(c.with[1])
	return a.makeMap(c, followElement(a, &call{with: c.with[:1]}))
}

func followGroupBy(a *analysis, c *call) value {
	a.readKeys(c.with[1])
	return a.makeMap(c, a.makeList(c, 1, followElement(a, &call{with: c.with[:1]})))
}

func followKeys(a *analysis, c *call) value {
	for _, v := range c.with {
		a.readKeys(v)
	}
	return value{}
}

func followKey(a *analysis, c *call) value {
	a.readScalar(a.selectPath(c.with[0], "metadata", "name"))
	a.readScalar(a.selectPath(c.with[0], "metadata", "namespace"))
	return value{}
}

func followCondition(a *analysis, c *call) value {
	a.readAll(c.with[1])
	conditions := a.selectPath(c.with[0], "status", "conditions")
	if kind, ok := literalText(c.args[1]); ok && !a.typed {
		found := takeElementOfType(&a.graph, conditions, kind)
		a.readScalar(a.selectField(found, "type"))
		return found
	}
	a.checker.checkLiteral(a.selectField(a.takeElements(conditions), "type"), c.args[1], nil)
	return a.findFirst(conditions, "type")
}

func followController(a *analysis, c *call) value {
	return a.findFirst(a.selectPath(c.with[0], "metadata", "ownerReferences"), "controller")
}

// findFirst returns the element of a list that has something in a field.
func (a *analysis) findFirst(list value, field string) value {
	each := a.takeElements(list)
	a.readScalar(a.selectField(each, field))
	return each
}

func followPodSpec(a *analysis, c *call) value {
	var found value
	for _, path := range library.ListPodSpecPaths() {
		spec := a.selectPath(c.with[0], path...)
		a.selectField(spec, "containers")
		a.appendValue(&found, spec)
	}
	return found
}

func followPodLabels(a *analysis, c *call) value {
	followPodSpec(a, c)
	var found value
	for _, path := range library.ListPodSpecPaths() {
		a.appendValue(&found, a.selectPath(a.selectPath(c.with[0], path[:len(path)-1]...), "metadata", "labels"))
	}
	return found
}

func followPodRefs(a *analysis, c *call) value {
	kind, _ := literalText(c.args[1])
	a.readScalar(c.with[1])
	for m := range c.with[0].mades { // it would be copied
		a.readAll(value{mades: map[*made]struct{}{m: {}}})
	}
	for _, path := range library.ListPodRefPaths(kind) {
		v := c.with[0]
		for _, key := range path {
			if key == library.AnyElement {
				v = a.takeElements(v)
			} else {
				v = a.selectField(v, key)
			}
		}
		a.readScalar(v)
	}
	return value{}
}

// followRefs reads of objects what the search depends on.
func followRefs(a *analysis, c *call) value {
	kind, ok := literalText(c.args[1])
	a.readScalar(c.with[1])
	if !ok || !slices.Contains(references.Kinds(), kind) {
		a.readAll(c.with[0])
		return value{}
	}
	readReferences(&a.graph, c.with[0], kind)
	return value{}
}
