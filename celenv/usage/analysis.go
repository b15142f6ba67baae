// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package usage

import (
	"strings"

	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/types"

	"github.com/vtex/cleaner/celenv/expr"
	"github.com/vtex/cleaner/celenv/projection"
)

// Expression is an expression of a spec, and what its result is for.
type Expression struct {
	// Path says where it is in the spec, for people.
	Path string
	Tree *expr.Tree
	AST  *ast.AST
	For  Purpose
}

// Purpose is what is read of the result of an expression.
type Purpose int

const (
	// ForAll reads all of it. It is the zero value.
	ForAll Purpose = iota
	// ForScalar reads it if it is no list and no map.
	ForScalar
	// ForObject reads what identifies an object.
	ForObject
)

// Variable is an expression that others read by a name.
type Variable struct {
	// Name is the name, such as variables.x.
	Name string
	Expression
}

// Rule is the expressions of a rule.
type Rule struct {
	// ForEach gives the items.
	ForEach Expression
	// Variables are those of the rule. Each sees those before it.
	Variables []Variable
	// Others see the item, and the items of a group.
	Others []Expression
	// Patches see besides the object that an action is about, which is one of any target.
	Patches []Expression
}

// Spec is the expressions of a spec.
type Spec struct {
	// Targets are the names of the targets that expressions see, and whether each is one object. The others are lists.
	Targets map[string]bool
	// Variables are those of the spec. Each sees those before it.
	Variables []Variable
	// Others are the expressions outside the rules.
	Others []Expression
	Rules  []Rule
	// Kinds are the kinds of the targets whose schemas are known. FindReadings does not need them.
	Kinds map[string]Kind
}

// Names that expressions read in a rule.
const (
	nameItem   = "item"
	nameItems  = "items"
	nameObject = "object"
	fieldItems = "items" // of a target that is a list
)

// Reading is what is read of an object of a target.
type Reading struct {
	Projection *projection.Projection
	// WholeFor is the path of an expression for which all is read. It is empty if less is read.
	WholeFor string
}

// FindReadings says for each target what the expressions of a spec read of an object, and where they read metadata.managedFields first, which
// objects are read without; nil if they do not, or if that does not show.
func FindReadings(spec *Spec) (map[string]Reading, *Place) {
	a := newAnalysis(spec, false)
	out := make(map[string]Reading, len(spec.Targets))
	kept := 0
	for name, single := range spec.Targets {
		out[name] = a.readingOf(name, single)
		kept += out[name].Projection.CountParts()
	}
	if kept > maxKept {
		for name := range out {
			out[name] = wholeReadingFor(a.at.Path)
		}
	}
	return out, a.missing
}

// newAnalysis makes an analysis of what is read or, typed, of what values may be. It goes through all expressions until nothing more is found.
func newAnalysis(spec *Spec, typed bool) *analysis {
	a := &analysis{graph: graph{typed: typed}, targets: map[string]*part{}, objects: value{}, accumulators: map[site]*value{}, mades: map[site]*made{}, variables: map[string]*value{}, items: map[int]*value{}}
	for name, single := range spec.Targets {
		root := &part{target: name}
		a.targets[name] = root
		object := root
		if !single {
			object = a.elementOf(a.fieldOf(root, fieldItems))
		}
		object.role = roleObject
		if !single {
			root.schema, root.kind = listSchema(), "target "+name
			object.of.schema = root.schema.Fields[fieldItems]
		}
		if kind := spec.Kinds[name]; kind.Schema != nil {
			object.schema, object.kind = kind.Schema, kind.Name
		}
		a.addPart(&a.objects, object)
	}
	for a.grown = true; a.grown && !a.exhausted; {
		a.grown = false
		a.traceSpec(spec)
	}
	return a
}

// wholeReadingFor is what is read of each object where it takes too much to find out: all, for the last expression.
func wholeReadingFor(path string) Reading {
	return Reading{Projection: projection.All(), WholeFor: path}
}

// analysis follows values through the expressions of a spec until nothing more is found: as a whole, because loops in loops, each gone
// through until that by itself, would be gone through too often.
type analysis struct {
	graph
	targets map[string]*part
	// objects are those of all targets.
	objects value
	// accumulators are the values of loops, mades what expressions make, and variables what variables hold, as far as is known.
	accumulators map[site]*value
	mades        map[site]*made
	variables    map[string]*value
	items        map[int]*value

	// tree is the expression that is gone through, and rule the names that it reads of its rule.
	tree *ast.AST
	rule map[string]value
	// checker checks fields. It is nil until all is known, and in an analysis of readings.
	checker *checker
}

// site is a place in an expression that makes a list or a map, or collects something.
type site struct {
	tree *ast.AST
	id   int64
	nth  int
}

// readingOf returns what is read of an object of a target.
func (a *analysis) readingOf(name string, single bool) Reading {
	root := a.targets[name]
	if a.exhausted {
		return wholeReadingFor(a.at.Path)
	}
	path := []*part{root}
	if !single {
		items := root.fields[fieldItems]
		path = append(path, items)
		if items != nil {
			path = append(path, items.elements)
		}
		// Whatever goes through all fields of a target reaches its objects.
		if root.entries != nil {
			path = append([]*part{root.entries, root.entries.elements}, path...)
		}
	}
	var last *part
	for _, p := range path {
		if p != nil && p.whole {
			return Reading{Projection: projection.All(), WholeFor: p.wholeFor}
		}
		last = p
	}
	p := last.export()
	if root.entries != nil && !single {
		p = projection.Merge(p, root.entries.elements.export())
	}
	return Reading{Projection: p}
}

// traceSpec goes through all expressions once.
func (a *analysis) traceSpec(spec *Spec) {
	a.rule = nil
	a.traceVariables(spec.Variables)
	for _, x := range spec.Others {
		a.traceUse(x)
	}
	for n := range spec.Rules {
		a.traceRule(n, &spec.Rules[n])
	}
}

// traceRule goes through the expressions of a rule.
func (a *analysis) traceRule(n int, r *Rule) {
	a.rule = nil
	list := a.traceTree(r.ForEach)
	a.readScalar(list)
	items := a.takeElements(list)
	a.readIdentity(items)
	known := a.items[n]
	if known == nil {
		known = &value{}
		a.items[n] = known
	}
	a.addValue(known, items)
	all := a.makeAt(site{tree: r.ForEach.AST, nth: 3})
	a.putInto(all, &all.elements, *known)
	a.rule = map[string]value{nameItem: *known, nameItems: {mades: map[*made]struct{}{all: {}}}, nameObject: *known}
	for _, x := range r.Others {
		a.traceUse(x)
	}
	a.rule[nameObject] = a.joinValues(*known, a.objects)
	a.traceVariables(r.Variables) // a patch may be the first to read one
	for _, x := range r.Patches {
		a.traceUse(x)
	}
	a.rule = nil
}

// traceVariables goes through variables, in their order.
func (a *analysis) traceVariables(all []Variable) {
	for _, v := range all {
		key := v.Name
		known := a.variables[key]
		if known == nil {
			known = &value{}
			a.variables[key] = known
		}
		a.addValue(known, a.traceTree(v.Expression))
	}
}

// traceUse goes through an expression, and reads of its result what it is for.
func (a *analysis) traceUse(x Expression) {
	result := a.traceTree(x)
	switch x.For {
	case ForScalar:
		a.readScalar(result)
	case ForObject:
		a.readIdentity(result)
	default:
		a.readAll(result)
	}
}

func (a *analysis) traceTree(x Expression) value {
	a.at, a.tree = x, x.AST
	return a.trace(x.AST.Expr(), nil)
}

// readIdentity reads what identifies objects among values.
func (a *analysis) readIdentity(v value) {
	for _, path := range [][]string{{"apiVersion"}, {"kind"}, {"metadata", "name"}, {"metadata", "namespace"}, {"metadata", "uid"}} {
		a.readScalar(a.selectPath(v, path...))
	}
	for m := range v.mades { // all of what may be an object is copied
		if m.fields["apiVersion"] != nil || len(m.entries.parts)+len(m.entries.mades) > 0 {
			a.readAll(value{mades: map[*made]struct{}{m: {}}})
		}
	}
}

// local is a variable of a loop.
type local struct {
	name  string
	value value
	outer *local
}

// trace returns what an expression may give, and notes what it reads.
func (a *analysis) trace(e ast.Expr, locals *local) value {
	v := a.traceNode(e, locals)
	if a.typed && v.isUnknown() {
		v.other = true
	}
	return v
}

// traceNode is trace, and its result may be empty because nothing is known.
func (a *analysis) traceNode(e ast.Expr, locals *local) value {
	if a.spend(1); a.exhausted {
		return value{}
	}
	switch e.Kind() {
	case ast.LiteralKind:
		if a.typed {
			return makeLiteral(e.AsLiteral())
		}
	case ast.IdentKind:
		return a.traceName(e.AsIdent(), locals)
	case ast.SelectKind:
		s := e.AsSelect()
		operand := a.trace(s.Operand(), locals)
		a.node = e.ID()
		a.checker.checkKey(operand, s.FieldName())
		found := a.selectField(operand, s.FieldName())
		if s.IsTestOnly() {
			return value{}
		}
		return found
	case ast.ListKind:
		m := a.makeAt(a.siteOf(e, 0))
		for _, element := range e.AsList().Elements() {
			a.putInto(m, &m.elements, a.trace(element, locals))
		}
		return value{mades: map[*made]struct{}{m: {}}}
	case ast.MapKind:
		return a.traceMap(e, locals)
	case ast.CallKind:
		return a.traceCall(e, locals)
	case ast.ComprehensionKind:
		return a.traceLoop(e, locals)
	case ast.StructKind: // this language has no messages
		for _, part := range expr.ListChildren(e) {
			a.readAll(a.trace(part, locals))
		}
	}
	return value{}
}

// traceName returns what a name stands for.
func (a *analysis) traceName(text string, locals *local) value {
	name, global := strings.CutPrefix(text, ".") // as in tree.CollectReads
	for l := locals; l != nil && !global; l = l.outer {
		if l.name == name {
			return l.value
		}
	}
	if v, known := a.rule[name]; known {
		return v
	}
	if v := a.variables[name]; v != nil {
		return *v
	}
	if root := a.targets[name]; root != nil {
		return value{parts: map[*part]struct{}{root: {}}}
	}
	return value{} // parameters, the time, and types have nothing of a target
}

func (a *analysis) traceMap(e ast.Expr, locals *local) value {
	m := a.makeAt(a.siteOf(e, 0))
	m.empty = len(e.AsMap().Entries()) == 0
	for _, entry := range e.AsMap().Entries() {
		key := entry.AsMapEntry().Key()
		a.readScalar(a.trace(key, locals))
		v := a.trace(entry.AsMapEntry().Value(), locals)
		if name, ok := literalText(key); ok {
			a.putInto(m, a.fieldIn(m, name), v)
		} else {
			a.putInto(m, &m.entries, v)
		}
	}
	return value{mades: map[*made]struct{}{m: {}}}
}

// fieldIn returns what is in a map under a key.
func (a *analysis) fieldIn(m *made, key string) *value {
	if m.fields == nil {
		m.fields = map[string]*value{}
	}
	if m.fields[key] == nil {
		m.fields[key] = &value{}
		a.grown = true
	}
	return m.fields[key]
}

// siteOf is the place of a node. One node may make several things.
func (a *analysis) siteOf(e ast.Expr, nth int) site { return site{a.tree, e.ID(), nth} }

// makeAt returns the list or map that a place makes.
func (a *analysis) makeAt(s site) *made {
	if a.mades[s] == nil {
		a.mades[s] = &made{}
	}
	return a.mades[s]
}

// traceLoop goes through a loop once. What it collects is known when nothing grows.
func (a *analysis) traceLoop(e ast.Expr, locals *local) value {
	loop := e.AsComprehension()
	over := a.trace(loop.IterRange(), locals)
	a.readShape(over)
	s := a.siteOf(e, 0)
	collected := a.accumulators[s]
	if collected == nil {
		collected = &value{}
		a.accumulators[s] = collected
	}
	a.addValue(collected, a.trace(loop.AccuInit(), locals))
	each := a.takeElements(over)
	inside := &local{name: loop.IterVar(), value: each, outer: locals} // a key of a map is no part of an object
	if loop.HasIterVar2() {
		inside = &local{name: loop.IterVar(), outer: locals}
		inside = &local{name: loop.IterVar2(), value: takeIndexed(&a.graph, over), outer: inside}
	}
	inside = &local{name: loop.AccuVar(), value: *collected, outer: inside}
	a.readScalar(a.trace(loop.LoopCondition(), inside))
	a.addValue(collected, a.trace(loop.LoopStep(), inside))
	return a.trace(loop.Result(), &local{name: loop.AccuVar(), value: *collected, outer: locals})
}

// literalText returns the text of a literal that is one.
func literalText(e ast.Expr) (string, bool) {
	if e.Kind() != ast.LiteralKind {
		return "", false
	}
	text, ok := e.AsLiteral().(types.String)
	return string(text), ok
}
