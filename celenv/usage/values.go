// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package usage

import (
	"maps"
	"slices"

	"github.com/vtex/cleaner/celenv/objectschema"
	"github.com/vtex/cleaner/celenv/projection"
)

const (
	// maxDepth is how deep a part may be in an object. The part at that depth is read as a whole.
	maxDepth = 32
	// maxParts is how many parts a spec may have.
	maxParts = 20_000
	// maxKept is how many parts of the objects of its targets a spec may name. If there are more, it reads all.
	maxKept = 500
	// maxSteps bounds the work of an analysis: in nodes of expressions, and in parts that these may stand for.
	maxSteps = 500_000
)

// graph is the parts of objects that are known, and what is read of them.
type graph struct {
	// at is the expression that is gone through, and node the part of it.
	at   Expression
	node int64
	// missing is where a part is read first that objects are read without.
	missing *Place
	// grown says that more was found in this turn. exhausted says that the analysis has done all that it may.
	grown, exhausted bool
	parts, steps     int
	// typed says that the schemas of parts matter, and not what is read of them.
	typed bool
}

// spend counts work.
func (g *graph) spend(steps int) {
	if g.steps += steps; g.steps > maxSteps {
		g.exhausted = true
	}
}

// Place is a node of an expression.
type Place struct {
	Expression
	Node int64
}

// role says which part of an object a part is, as far as that matters.
type role int8

const (
	roleOther role = iota
	roleObject
	roleMetadata
)

// part is a part of the objects of a target, and what is read of it. It only grows.
type part struct {
	depth                int
	role                 role
	whole, scalar, shape bool
	fields               map[string]*part
	elements, entries    *part
	// byType are elements of a list, by their field type.
	byType map[string]*part
	// references are the kinds that refs searches for in it. merged says that it may be merged with other maps: then it does not show alone what a
	// search depends on.
	references map[string]bool
	merged     bool
	// wholeFor is the expression for which the part is read as a whole.
	wholeFor string

	// schema says what the part may be; nil: anything. kind names the object's kind, if the part is one; step leads to the part from the one that
	// has it.
	schema *objectschema.Schema
	kind   string
	of     *part
	step   string
	// target is the name of the target, if the part is all of it.
	target string
}

// made is a list or a map that one place in the expressions makes, and what may be in it.
type made struct {
	elements, entries value
	fields            map[string]*value
	// escaped says that all that is in it is read, also what comes into it later.
	escaped bool
	// empty says that it is a map without keys.
	empty bool
	// references are the kinds that refs searches for in it.
	references map[string]bool
}

// value is what an expression may give: these parts of objects, and what is in these lists and maps. The value of an expression that gives
// neither, such as a number or a new text, is empty. An optional is what it holds.
type value struct {
	parts map[*part]struct{}
	mades map[*made]struct{}
	// literals are what it may be as well, other says that it may be anything else, and none that there may be no value. Only the analysis of
	// types knows them.
	literals    map[any]struct{}
	other, none bool
}

// isUnknown says that nothing is known of what a value may be.
func (v *value) isUnknown() bool {
	return len(v.parts)+len(v.mades)+len(v.literals) == 0 && !v.other && !v.none
}

// addPart adds a part to a value.
func (g *graph) addPart(v *value, p *part) {
	if _, known := v.parts[p]; known {
		return
	}
	if v.parts == nil {
		v.parts = map[*part]struct{}{}
	}
	v.parts[p] = struct{}{}
	g.grown = true
}

// addValue adds all that another value may be.
func (g *graph) addValue(v *value, other value) {
	g.spend(len(other.parts) + len(other.mades))
	for p := range other.parts {
		g.addPart(v, p)
	}
	for m := range other.mades {
		if _, known := v.mades[m]; known {
			continue
		}
		if v.mades == nil {
			v.mades = map[*made]struct{}{}
		}
		v.mades[m] = struct{}{}
		g.grown = true
	}
	g.addRest(v, other)
}

// addRest is addValue for what only the analysis of types knows.
func (g *graph) addRest(v *value, more value) {
	other, none := v.other || more.other, v.none || more.none
	g.grown = g.grown || other != v.other || none != v.none
	v.other, v.none = other, none
	for literal := range more.literals {
		if _, known := v.literals[literal]; known {
			continue
		}
		if v.literals == nil {
			v.literals = map[any]struct{}{}
		}
		v.literals[literal] = struct{}{}
		g.grown = true
	}
}

// putInto adds a value to what is in a list or map.
func (g *graph) putInto(m *made, at *value, v value) {
	g.addValue(at, v)
	if m.escaped {
		g.readAll(v)
	}
	for kind := range m.references {
		if at == &m.elements {
			readReferences(g, v, kind)
		} else {
			g.readAll(v)
		}
	}
}

// fieldOf returns a part of a part: the value of a key.
func (g *graph) fieldOf(p *part, key string) *part {
	metadata := p.role == roleObject && key == "metadata"
	if p.role == roleMetadata && key == "managedFields" && g.missing == nil {
		g.missing = &Place{g.at, g.node}
	}
	if p.whole && !metadata {
		return p
	}
	if p.fields[key] == nil {
		child := g.newPart(p, formatStep(key))
		if child == nil {
			return p
		}
		child.schema, _ = p.schema.HasKey(key)
		if metadata {
			child.role, child.whole, child.wholeFor = roleMetadata, p.whole, p.wholeFor
		}
		if p.fields == nil {
			p.fields = map[string]*part{}
		}
		p.fields[key] = child
	}
	return p.fields[key]
}

// elementOf returns a part of a part: any element of a list.
func (g *graph) elementOf(p *part) *part {
	if p.whole {
		return p
	}
	if p.elements == nil {
		child := g.newPart(p, stepOfElements(p.schema))
		if child == nil {
			return p
		}
		child.schema = schemaOfElements(p.schema)
		p.elements = child
	}
	return p.elements
}

// elementOfType returns a part of a part: the element of a list whose field type is known. Of lists that are no conditions of an object it is any
// element: a list of objects, say, that an expression has put into a map.
func elementOfType(g *graph, p *part, kind string) *part {
	if p.whole {
		return p
	}
	if !p.isConditions() {
		return g.elementOf(p)
	}
	if p.byType[kind] == nil {
		child := g.newPart(p, stepOfElements(p.schema))
		if child == nil {
			return p
		}
		if p.byType == nil {
			p.byType = map[string]*part{}
		}
		p.byType[kind] = child
	}
	return p.byType[kind]
}

// isConditions says that a part is status.conditions of an object.
func (p *part) isConditions() bool {
	status := p.of
	return p.step == formatStep("conditions") && status != nil && status.step == formatStep("status") && status.of != nil && status.of.role == roleObject
}

// entryOf returns a part of a part: the value of any key.
func (g *graph) entryOf(p *part) *part {
	if p.whole {
		return p
	}
	if p.entries == nil {
		child := g.newPart(p, stepAny)
		if child == nil {
			return p
		}
		child.schema = schemaOfEntries(p.schema)
		p.entries = child
	}
	return p.entries
}

// newPart returns a new part of a part. It is nil where there are too many, or where it would be too deep: then the part that has it is read
// as a whole.
func (g *graph) newPart(of *part, step string) *part {
	if g.parts++; g.parts > maxParts {
		g.exhausted = true
	}
	if g.exhausted || of.depth >= maxDepth {
		g.readWhole(of)
		of.schema = nil // it stands for its parts too
		return nil
	}
	g.grown = true
	return &part{depth: of.depth + 1, of: of, step: step}
}

// readWhole notes that a part is read as a whole.
func (g *graph) readWhole(p *part) {
	if !p.whole && !g.typed { // a part that is read as a whole stands for its parts, which have other schemas
		p.whole, p.wholeFor = true, g.at.Path
		g.grown = true
	}
}

// readAll notes that all of a value is read.
func (g *graph) readAll(v value) {
	g.spend(len(v.parts) + len(v.mades))
	for p := range v.parts {
		g.readWhole(p)
	}
	for m := range v.mades {
		if m.escaped {
			continue
		}
		m.escaped, g.grown = true, true
		g.readAll(m.elements)
		g.readAll(m.entries)
		for _, f := range m.fields {
			g.readAll(*f)
		}
	}
}

// readScalar notes that a value is read if it is no list and no map, and otherwise that it is one.
func (g *graph) readScalar(v value) {
	g.spend(len(v.parts))
	for p := range v.parts {
		if !p.scalar {
			p.scalar, g.grown = true, true
		}
	}
}

// readShape notes that the keys of a map are read, or the number of elements of a list.
func (g *graph) readShape(v value) {
	g.spend(len(v.parts))
	for p := range v.parts {
		if !p.shape {
			p.shape, g.grown = true, true
		}
	}
}

// readReferences notes that refs searches for a kind in objects, in targets, or in lists of these.
func readReferences(g *graph, v value, kind string) {
	g.spend(len(v.parts) + len(v.mades))
	if g.typed {
		return
	}
	for p := range v.parts {
		if p = objectsOf(g, p); p.whole || p.references[kind] {
			continue
		}
		if p.references == nil {
			p.references = map[string]bool{}
		}
		if p.references[kind], g.grown = true, true; p.merged {
			g.readWhole(p)
		}
	}
	for m := range v.mades {
		if m.references[kind] {
			continue
		}
		if m.references == nil {
			m.references = map[string]bool{}
		}
		m.references[kind], g.grown = true, true
		readReferences(g, m.elements, kind)
		g.readAll(m.entries) // a map that an expression makes is copied
		for _, f := range m.fields {
			g.readAll(*f)
		}
	}
}

// objectsOf returns the part that is each object of a target, if p is the target or its list of objects; otherwise p.
func objectsOf(g *graph, p *part) *part {
	if p.target != "" && p.role != roleObject {
		p = g.fieldOf(p, fieldItems)
	}
	root := p.of
	if root != nil && root.target != "" && root.role != roleObject && (p.step == formatStep(fieldItems) || p == root.entries) {
		return g.elementOf(p)
	}
	return p
}

// noteMerged notes that maps are merged.
func noteMerged(g *graph, v value) {
	g.spend(len(v.parts))
	if g.typed {
		return
	}
	for p := range v.parts {
		if p = objectsOf(g, p); p.merged {
			continue
		}
		if p.merged, g.grown = true, true; len(p.references) > 0 {
			g.readWhole(p)
		}
	}
}

// selectField returns the value of a key of a map. That there is one is read.
func (g *graph) selectField(v value, key string) value {
	g.spend(len(v.parts) + len(v.mades))
	out := value{other: v.other}
	for p := range v.parts {
		g.appendPart(&out, g.fieldOf(p, key))
	}
	for m := range v.mades {
		if f := m.fields[key]; f != nil {
			g.appendValue(&out, *f)
		}
		g.appendValue(&out, m.entries)
	}
	return out
}

// selectPath is selectField for each key of a path.
func (g *graph) selectPath(v value, path ...string) value {
	for _, key := range path {
		v = g.selectField(v, key)
	}
	return v
}

// takeElements returns what the elements of a list may be. How many there are is read.
func (g *graph) takeElements(v value) value {
	g.spend(len(v.parts) + len(v.mades))
	out := value{other: v.other}
	for p := range v.parts {
		g.appendPart(&out, g.elementOf(p))
	}
	for m := range v.mades {
		g.appendValue(&out, m.elements)
	}
	return out
}

// takeElementOfType returns what the element of a list may be whose field type is known. How many others there are is not read.
func takeElementOfType(g *graph, v value, kind string) value {
	g.spend(len(v.parts) + len(v.mades))
	out := value{other: v.other}
	for p := range v.parts {
		g.appendPart(&out, elementOfType(g, p, kind))
	}
	for m := range v.mades {
		g.appendValue(&out, m.elements)
	}
	return out
}

// takeIndexed returns what an element of a list or a value of a map may be. Which elements or keys there are is read.
func takeIndexed(g *graph, v value) value {
	if !g.typed {
		return g.joinValues(g.takeElements(v), g.takeEntries(v))
	}
	lists, maps := v, v
	lists.parts, maps.parts = map[*part]struct{}{}, map[*part]struct{}{}
	for p := range v.parts {
		if p.schema.May(objectschema.List) {
			lists.parts[p] = struct{}{}
		}
		if p.schema.May(objectschema.Map) { // its elements would be its keys
			maps.parts[p] = struct{}{}
		}
	}
	return g.joinValues(g.takeElements(lists), g.takeEntries(maps))
}

// takeEntries returns what the values of a map may be. Which keys there are is read.
func (g *graph) takeEntries(v value) value {
	g.spend(len(v.parts) + len(v.mades))
	out := value{other: v.other}
	for p := range v.parts {
		g.appendPart(&out, g.entryOf(p))
	}
	for m := range v.mades {
		g.appendValue(&out, m.entries)
		for _, f := range m.fields {
			g.appendValue(&out, *f)
		}
	}
	return out
}

// appendPart is addPart for a value that only this turn of the analysis knows: it is no growth.
func (g *graph) appendPart(v *value, p *part) {
	grown := g.grown
	g.addPart(v, p)
	g.grown = grown
}

// appendValue is addValue for a value that only this turn of the analysis knows.
func (g *graph) appendValue(v *value, other value) {
	grown := g.grown
	g.addValue(v, other)
	g.grown = grown
}

// joinValues returns a value that may be any of these.
func (g *graph) joinValues(all ...value) value {
	g.spend(len(all[0].parts) + len(all[0].mades))
	out := all[0]
	out.parts, out.mades, out.literals = maps.Clone(out.parts), maps.Clone(out.mades), maps.Clone(out.literals)
	for _, v := range all[1:] {
		g.appendValue(&out, v)
	}
	return out
}

// export returns what is read of a part.
func (p *part) export() *projection.Projection {
	if p == nil {
		return nil
	}
	if p.whole {
		return projection.All()
	}
	out := &projection.Projection{Scalar: p.scalar, Shape: p.shape, Elements: p.elements.export(), Entries: p.entries.export()}
	out.Fields, out.ByType = exportKeyed(p.fields), exportKeyed(p.byType)
	out.References = slices.Sorted(maps.Keys(p.references))
	return out
}

// exportKeyed returns what is read of the part of each key.
func exportKeyed(parts map[string]*part) map[string]*projection.Projection {
	if len(parts) == 0 {
		return nil
	}
	out := make(map[string]*projection.Projection, len(parts))
	for key, p := range parts {
		out[key] = p.export()
	}
	return out
}
