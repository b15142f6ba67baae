// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package usage

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"

	"github.com/vtex/cleaner/celenv/expr"
	"github.com/vtex/cleaner/celenv/objectschema"
)

// Kind is the kind of a target.
type Kind struct {
	// Name is the kind, for people, such as Pod.
	Name string
	// Schema says what its objects may be; nil: anything.
	Schema *objectschema.Schema
}

// Problem is a field that does not exist, or a comparison that is never true.
type Problem struct {
	Place
	// Message says what is wrong, and Hint what to write instead. Hint is empty if that is not known.
	Message, Hint string
	// Likely says that it is only likely wrong, because the schema allows it.
	Likely bool
}

const (
	// maxProblems is how many problems of a spec are returned.
	maxProblems = 50
	// maxText is how many bytes of a message or a hint there are at most.
	maxText = 400
	// maxSuggested is how many fields or texts are compared with a mistyped one.
	maxSuggested = 500
	// maxListed is how many of them a hint lists.
	maxListed = 12
	// maxNear is how many fields a hint lists that contain the name.
	maxNear = 3
)

// FindProblems says which fields expressions read that no object of the targets has, behind has() and in optional fields too, and which values they
// compare a field with that it never has. Nothing is said of an expression that may be about other values as well. It is not complete if the
// expressions would take too much work.
func FindProblems(spec *Spec) (found []Problem, complete bool) {
	a := newAnalysis(spec, true)
	if a.exhausted {
		return nil, false
	}
	a.checker = &checker{analysis: a, known: map[string]bool{}}
	a.traceSpec(spec)
	return a.checker.problems, !a.exhausted
}

// checker checks the fields that an analysis goes through, once all is known. A nil one checks nothing.
type checker struct {
	analysis *analysis
	problems []Problem
	// known are the problems, by expression and message: a macro may repeat a part of an expression. found counts the repeated ones too.
	known map[string]bool
	found int
}

// noteProblem notes a problem at the node that is gone through.
func (k *checker) noteProblem(p Problem) {
	k.found++
	p.Place = Place{k.analysis.at, k.analysis.node}
	p.Message, p.Hint = expr.TruncateText(p.Message, maxText), expr.TruncateText(p.Hint, maxText)
	if id := p.Path + "\x00" + p.Message; !k.known[id] {
		k.known[id] = true
		k.problems = append(k.problems, p)
	}
}

// findOnlyParts returns the parts of objects that a value may be; none if it may be something else, or if nothing is known of one of them.
func (k *checker) findOnlyParts(v value) []*part {
	if k == nil || v.other || len(k.problems) == maxProblems || k.found > 10*maxProblems {
		return nil
	}
	k.analysis.spend(len(v.parts) + len(v.mades))
	for m := range v.mades {
		if !m.empty {
			return nil
		}
	}
	parts := make([]*part, 0, len(v.parts))
	for p := range v.parts {
		if p.schema == nil {
			return nil
		}
		parts = append(parts, p)
	}
	return parts
}

// chooseShown returns the part that a message names: the first by what it is called.
func chooseShown(parts []*part) *part {
	return slices.MinFunc(parts, func(a, b *part) int {
		return cmp.Or(cmp.Compare(a.describe(), b.describe()), cmp.Compare(a.findTarget(), b.findTarget()), cmp.Compare(a.schema.Types, b.schema.Types))
	})
}

// checkKey checks that something that a value may be has a field.
func (k *checker) checkKey(v value, key string) {
	parts := k.findOnlyParts(v)
	likely := false
	for _, p := range parts {
		if _, has := p.schema.HasKey(key); has {
			return
		}
		likely = likely || p.schema.Lenient
	}
	if len(parts) > 0 {
		message, hint := chooseShown(parts).describeUnknown(key)
		k.noteProblem(Problem{Message: message, Hint: hint, Likely: likely})
	}
}

// checkMember is checkKey for `"key" in value`, which searches lists too.
func (k *checker) checkMember(v value, key string) {
	for p := range v.parts {
		if p.schema.May(objectschema.List) {
			return
		}
	}
	k.checkKey(v, key)
}

// checkCall checks the comparisons with literals among calls.
func (k *checker) checkCall(c *call) {
	if k == nil || len(c.args) != 2 {
		return
	}
	switch c.node.AsCall().FunctionName() {
	case operators.Equals, operators.NotEquals:
		k.checkLiteral(c.with[0], c.args[1], nil)
		k.checkLiteral(c.with[1], c.args[0], nil)
	case operators.Less, operators.LessEquals, operators.Greater, operators.GreaterEquals:
		k.checkType(c.with[0], c.args[1], false)
		k.checkType(c.with[1], c.args[0], false)
	case operators.In, operators.OldIn:
		if c.args[1].Kind() == ast.ListKind {
			elements := c.args[1].AsList().Elements()
			for _, element := range elements {
				k.checkLiteral(c.with[0], element, elements)
			}
		} else {
			k.checkLiteral(k.analysis.takeElements(c.with[1]), c.args[0], nil)
		}
	}
}

// checkLiteral checks that a value may be equal to a literal, which is one of a list or stands alone. Where another one of the list fits, the
// list may be about several versions of a kind: then a literal is only likely wrong, and only if it resembles a value that the list does not have.
func (k *checker) checkLiteral(v value, with ast.Expr, list []ast.Expr) {
	if with.Kind() != ast.LiteralKind || k == nil {
		return
	}
	literal := with.AsLiteral()
	if !k.checkType(v, with, true) {
		return
	}
	text, ok := literal.(types.String)
	if !ok || text == "" { // which stands for no value
		return
	}
	if _, may := v.literals[string(text)]; may {
		return
	}
	parts := k.findOnlyParts(v)
	known, closed := listKnownTexts(parts)
	if len(known) == 0 || slices.Contains(known, string(text)) {
		return
	}
	shown := expr.TruncateText(string(text), maxText/4)
	others := slices.DeleteFunc(slices.Clone(known), func(one string) bool { return hasText(list, one) })
	hint := suggestNear(string(text), others)
	switch {
	case closed && len(others) == len(known):
		if hint == "" {
			hint = "it is one of " + joinFew(known)
		}
		k.noteProblem(Problem{Message: fmt.Sprintf("%s is never %q", chooseShown(parts).describe(), shown), Hint: hint})
	case hint != "":
		k.noteProblem(Problem{Message: fmt.Sprintf("%s is hardly ever %q", chooseShown(parts).describe(), shown), Hint: hint, Likely: true})
	}
}

// hasText says that one of some expressions is a text.
func hasText(all []ast.Expr, text string) bool {
	return slices.ContainsFunc(all, func(e ast.Expr) bool { is, ok := literalText(e); return ok && is == text })
}

// listKnownTexts returns the texts that parts are, and whether they are no other; none if one of them may be any text.
func listKnownTexts(parts []*part) (known []string, closed bool) {
	closed = true
	for _, p := range parts {
		switch {
		case !p.schema.May(objectschema.String):
		case len(p.schema.Enum) > 0:
			known = append(known, p.schema.Enum...)
		case len(p.schema.Usual) > 0:
			known, closed = append(known, p.schema.Usual...), false
		default:
			return nil, false
		}
	}
	return known, closed
}

// checkType checks that a value may have the type of a literal, and says whether it may. If they are compared for being equal, another literal that
// the value may be does not count: x.orValue(false) == true.
func (k *checker) checkType(v value, with ast.Expr, equal bool) bool {
	if with.Kind() != ast.LiteralKind {
		return true
	}
	wanted, article := typeOfLiteral(with.AsLiteral())
	for literal := range v.literals {
		other := types.DefaultTypeAdapter.NativeToValue(literal)
		if is, _ := typeOfLiteral(other); is == wanted && (!equal || other.Equal(with.AsLiteral()) == types.True) {
			return true
		}
	}
	parts := k.findOnlyParts(v)
	for _, p := range parts {
		if p.schema.May(wanted) {
			return true
		}
	}
	if len(parts) == 0 || wanted == 0 || len(v.mades) > 0 {
		return true
	}
	shown := chooseShown(parts)
	k.noteProblem(Problem{
		Message: fmt.Sprintf("%s is %s, and never %s", shown.describe(), shown.schema.Types, article),
		Hint:    suggestLiteral(shown.schema.Types, with.AsLiteral()),
	})
	return false
}

// typeOfLiteral returns the types of JSON that a literal can be equal to, and what it is, for people; none for null.
func typeOfLiteral(literal ref.Val) (wanted objectschema.Types, article string) {
	switch literal.Type() {
	case types.StringType:
		return objectschema.String, "a string"
	case types.IntType, types.UintType, types.DoubleType:
		return objectschema.Integer | objectschema.Number, "a number"
	case types.BoolType:
		return objectschema.Bool, "a bool"
	default:
		return 0, ""
	}
}

// suggestLiteral says how to write a literal for a value of other types.
func suggestLiteral(is objectschema.Types, literal ref.Val) string {
	switch literal.Type() {
	case types.StringType:
		if is&(objectschema.Integer|objectschema.Number|objectschema.Bool) != 0 {
			return "write it without quotes"
		}
	case types.IntType, types.UintType, types.DoubleType, types.BoolType:
		if is&objectschema.String != 0 {
			return fmt.Sprintf("write %q, in quotes", fmt.Sprint(literal.Value()))
		}
	}
	if is&objectschema.List != 0 {
		return "use exists() to look at its elements, or size()"
	}
	return ""
}

// makeLiteral returns the value of a literal.
func makeLiteral(literal ref.Val) value {
	switch literal.Type() {
	case types.NullType:
		return value{none: true}
	case types.StringType, types.IntType, types.UintType, types.DoubleType, types.BoolType:
		return value{literals: map[any]struct{}{literal.Value(): {}}}
	default:
		return value{}
	}
}

// schemaOfElements says what the elements of a list may be, or the keys of a map.
func schemaOfElements(s *objectschema.Schema) *objectschema.Schema {
	switch {
	case s == nil:
		return nil
	case s.Types == objectschema.Map:
		return &objectschema.Schema{Types: objectschema.String}
	case s.Types == objectschema.List:
		return s.Elements
	default:
		return nil
	}
}

// schemaOfEntries says what the values of any keys of a map may be.
func schemaOfEntries(s *objectschema.Schema) *objectschema.Schema {
	if s == nil || s.Types != objectschema.Map || len(s.Fields) > 0 {
		return nil
	}
	return s.Entries
}

// listSchema says what a target is that is no single object.
func listSchema() *objectschema.Schema {
	return &objectschema.Schema{Types: objectschema.Map, Fields: map[string]*objectschema.Schema{fieldItems: {Types: objectschema.List}}}
}

// stepAny leads to any element of a list, or any value of a map.
const stepAny = "[*]"

// stepKey leads to any key of a map.
const stepKey = "{key}"

// stepOfElements leads to an element of a list, or to a key of a map.
func stepOfElements(s *objectschema.Schema) string {
	if s != nil && s.Types == objectschema.Map {
		return stepKey
	}
	return stepAny
}

// formatStep writes the step to a field.
func formatStep(key string) string {
	for n, r := range key {
		if r != '_' && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (n == 0 || r < '0' || r > '9') {
			return fmt.Sprintf("[%q]", key)
		}
	}
	return "." + key
}

// locate returns the path of a part in its object, and the object.
func (p *part) locate() (path string, object *part) {
	for object = p; object.kind == "" && object.of != nil; object = object.of {
		path = object.step + path
	}
	return strings.TrimPrefix(path, "."), object
}

// findTarget returns the name of the target that has the part.
func (p *part) findTarget() string {
	for p.of != nil {
		p = p.of
	}
	return p.target
}

// describe names the part and the kind that has it, for people.
func (p *part) describe() string {
	path, object := p.locate()
	if path == "" {
		return object.kind
	}
	if strings.Contains(object.kind, " ") { // a target
		return fmt.Sprintf("%s of %s", path, object.kind)
	}
	return fmt.Sprintf("%s of a %s", path, object.kind)
}

// suggestNear asks whether a name among some was meant; empty if none is near, or if there are too many to look at.
func suggestNear(name string, among []string) string {
	if len(among) > maxSuggested || len(name) > maxText/4 {
		return ""
	}
	return expr.SuggestName(name, slices.Clone(among))
}

// joinFew lists the first of some names, and how many more there are.
func joinFew(names []string) string {
	if more := len(names) - maxListed; more > 0 {
		names = append(names[:maxListed:maxListed], fmt.Sprintf("and %d more", more))
	}
	return strings.Join(names, ", ")
}

// filterNear returns the fields that contain a name.
func filterNear(fields []string, name string) (near []string) {
	for _, f := range fields {
		if len(name) > 1 && strings.Contains(strings.ToLower(f), strings.ToLower(name)) {
			near = append(near, strconv.Quote(f))
		}
	}
	return near
}

// describeUnknown says that a part does not have a field, and what to write instead.
func (p *part) describeUnknown(key string) (message, hint string) {
	path, object := p.locate()
	if !p.schema.May(objectschema.Map) {
		message = fmt.Sprintf("%s is %s, and has no field %q", p.describe(), p.schema.Types, expr.TruncateText(key, maxText/4))
		switch {
		case !p.schema.May(objectschema.List):
		case key == "size" || key == "length" || key == "count":
			hint = "call size()"
		default:
			hint = "use exists() or filter() to look at its elements"
		}
		return message, hint
	}
	message = fmt.Sprintf("%s has no field %s", object.kind, strings.TrimPrefix(path+formatStep(expr.TruncateText(key, maxText/4)), "."))
	if hint = p.schema.Hints[key]; hint != "" {
		return message, hint
	}
	fields := p.schema.ListFields()
	if hint = suggestNear(key, fields); hint != "" {
		return message, hint
	}
	for _, around := range object.schema.ListFields() {
		if inner := object.schema.Fields[around]; inner != nil && inner != p.schema && inner.Fields[key] != nil {
			return message, fmt.Sprintf("it is %s.%s", around, key)
		}
	}
	if near := filterNear(fields, key); len(near) > 0 && len(near) <= maxNear {
		return message, "did you mean " + strings.Join(near, " or ") + "?"
	}
	return message, "its fields are " + joinFew(fields)
}
