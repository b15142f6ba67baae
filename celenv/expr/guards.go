// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package expr

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"
)

// Warning is something that compiles and will likely go wrong.
type Warning struct {
	// Path is where the expression stands in the spec: conditions[0], rules[0].when, say.
	Path string
	// Line and Column are the place, counted from 1.
	Line, Column int
	// Message says what can go wrong.
	Message string
	// Snippet is the source line and, below it, a caret under the place.
	Snippet string
	// Hint is what to write instead.
	Hint string
}

// WarnUnchecked warns that fields which expressions read are not known to exist. Why says what to do about it.
func WarnUnchecked(why string) Warning {
	return Warning{Path: "targets", Message: "the fields that expressions read were not all checked", Hint: why}
}

// FieldPath is where the expression stands in a Cleaner: spec.conditions[0], say.
func (w Warning) FieldPath() string { return "spec." + w.Path }

// lookup is an expression that reads one label or annotation of an object, and errs when the object does not have it.
type lookup struct {
	labels string // the labels or annotations, as written: r.metadata.annotations
	key    string // the key, as written: "example.com/owner"
	Hint   string // the expression that gives "" instead of an error
}

// ParseLabelLookup says whether an expression reads one label or annotation: by index, or by field.
func ParseLabelLookup(e ast.Expr) (lookup, bool) {
	var labels ast.Expr
	var key string
	if operand, at, ok := splitIndex(e); ok {
		left := maxPathParts
		text, ok := formatKey(at, &left)
		if !ok {
			return lookup{}, false
		}
		labels, key = operand, text
	} else if e.Kind() == ast.SelectKind && !e.AsSelect().IsTestOnly() {
		labels, key = e.AsSelect().Operand(), strconv.Quote(e.AsSelect().FieldName())
	} else {
		return lookup{}, false
	}
	metadata, ok := findMetadata(labels)
	if !ok {
		return lookup{}, false
	}
	object, ok := FormatPath(metadata)
	if !ok {
		return lookup{}, false
	}
	field := labels.AsSelect().FieldName()
	return lookup{
		labels: object + "." + field,
		key:    key,
		Hint:   fmt.Sprintf("%s.?%s[?%s].orValue(\"\")", object, field, key),
	}, true
}

// findMetadata gives the x.metadata of x.metadata.labels and x.metadata.annotations.
func findMetadata(e ast.Expr) (ast.Expr, bool) {
	if e.Kind() != ast.SelectKind {
		return nil, false
	}
	if field := e.AsSelect().FieldName(); field != "labels" && field != "annotations" {
		return nil, false
	}
	metadata := e.AsSelect().Operand()
	return metadata, metadata.Kind() == ast.SelectKind && metadata.AsSelect().FieldName() == "metadata"
}

// maxUnguarded is how many lookups of one expression are found: who mends these sees the next.
const maxUnguarded = 16

// maxShown is how long a text of a warning may be.
const maxShown = 512

// findUnguarded finds the lookups of labels and annotations that err on an object without them.
//
// A guard is has(x.metadata.labels.key) or key in x.metadata.labels, written the same way as the lookup, beside it in a
// chain of && (on either side: CEL's && does not mind the order), negated beside it in a chain of ||, or as the condition
// of ?:. What it does not see: a guard in a variable, in another condition, or around a loop that filters first
// (x.filter(o, has(o.metadata.labels.key)).map(o, o.metadata.labels.key)), and a lookup of labels that were bound to a
// name before.
//
// What is sure needs no guard: a label that each object of a list has, in a loop over it or what is filtered of it, or as an item of it; and what
// another expression has tested before.
func (t *Tree) findUnguarded(path string, sure SureLookups) []Warning {
	var found []Warning
	loops := sureLoops{sure: sure}
	var visit func(e ast.Expr, guarded map[string]bool)
	visit = func(e ast.Expr, guarded map[string]bool) {
		if len(found) == maxUnguarded {
			return
		}
		if l, ok := ParseLabelLookup(e); ok && !guarded[l.labels+"["+l.key+"]"] && !loops.isSure(l) {
			found = append(found, t.warnAt(e, path, fmt.Sprintf("objects without %s in %s make this an error, and an error never deletes", l.key, l.labels), "write "+l.Hint))
		}
		if e.Kind() == ast.ComprehensionKind {
			loop := e.AsComprehension()
			visit(loop.IterRange(), guarded)
			visit(loop.AccuInit(), guarded)
			loops.bound = append(loops.bound, boundObject{loop.IterVar(), loops.listLookups(loop.IterRange())})
			visit(loop.LoopStep(), guarded)
			loops.bound = loops.bound[:len(loops.bound)-1]
			visit(loop.Result(), guarded)
			return
		}
		parts := ListChildren(e)
		if e.Kind() == ast.CallKind {
			switch e.AsCall().FunctionName() {
			case operators.LogicalAnd:
				guarded = mergeGuards(guarded, collectGuards(e, operators.LogicalAnd))
			case operators.LogicalOr:
				guarded = mergeGuards(guarded, collectGuards(e, operators.LogicalOr))
			case operators.Conditional:
				visit(parts[0], guarded)
				visit(parts[1], mergeGuards(guarded, collectGuards(parts[0], operators.LogicalAnd)))
				visit(parts[2], mergeGuards(guarded, collectGuards(parts[0], operators.LogicalOr)))
				return
			}
		}
		for _, part := range parts {
			visit(part, guarded)
		}
	}
	visit(t.Root, nil)
	return found
}

// SureLookups are the lookups that never err on the objects of a target, by the name of the target, or on the item of a rule, by the name item.
// Each is written as it follows the object: .metadata.labels["x"].
type SureLookups map[string][]string

// LookUpMetadata gives the lookups of labels and of annotations with these keys.
func LookUpMetadata(labels, annotations []string) (lookups []string) {
	for _, key := range labels {
		lookups = append(lookups, ".metadata.labels["+strconv.Quote(key)+"]")
	}
	for _, key := range annotations {
		lookups = append(lookups, ".metadata.annotations["+strconv.Quote(key)+"]")
	}
	return lookups
}

// WithItem is the lookups, and with the name those that are sure on what a list gives: a list of objects of all these targets.
func (s SureLookups) WithItem(name string, targets []string, list *Tree) SureLookups {
	loops := sureLoops{sure: s}
	sure := loops.listLookups(list.Root)
	if len(targets) > 0 {
		for _, lookup := range s[targets[0]] {
			if !slices.ContainsFunc(targets, func(target string) bool { return !slices.Contains(s[target], lookup) }) {
				sure = append(sure, lookup)
			}
		}
	}
	return s.withNames(sure, name)
}

// WithGuards is the lookups, and with names that all stand for one object those that are sure on it where an expression is true: what a chain of && in
// it tests, and what is sure by one of the names.
func (s SureLookups) WithGuards(holds *Tree, names ...string) SureLookups {
	var sure []string
	for _, name := range names {
		sure = append(sure, s[name]...)
	}
	for _, guard := range collectGuards(holds.Root, operators.LogicalAnd) {
		if name, lookup := splitObject(guard); slices.Contains(names, name) {
			sure = append(sure, lookup)
		}
	}
	return s.withNames(sure, names...)
}

// Without is the lookups without those of a name.
func (s SureLookups) Without(name string) SureLookups {
	all := maps.Clone(s)
	delete(all, name)
	return all
}

// withNames is the lookups, and with these names the ones that are given.
func (s SureLookups) withNames(sure []string, names ...string) SureLookups {
	if len(sure) == 0 {
		return s
	}
	all := make(SureLookups, len(s)+len(names))
	maps.Copy(all, s)
	for _, name := range names {
		all[name] = sure
	}
	return all
}

// sureLoops is what is sure within loops: the names that they bind hide others.
type sureLoops struct {
	sure  SureLookups
	bound []boundObject
}

type boundObject struct {
	name    string
	lookups []string
}

// listLookups are the lookups that never err on what a list gives, if that is the list of a target, what is filtered of one, or a sum of such lists.
func (s *sureLoops) listLookups(list ast.Expr) []string {
	switch e := list; e.Kind() {
	case ast.SelectKind:
		if operand := e.AsSelect().Operand(); e.AsSelect().FieldName() == "items" && operand.Kind() == ast.IdentKind {
			return slices.Clip(s.findSure(operand.AsIdent()))
		}
	case ast.CallKind:
		if call := e.AsCall(); call.FunctionName() == operators.Add {
			right := s.listLookups(call.Args()[1])
			return slices.DeleteFunc(slices.Clone(s.listLookups(call.Args()[0])), func(lookup string) bool { return !slices.Contains(right, lookup) })
		}
	case ast.ComprehensionKind:
		if loop := e.AsComprehension(); isFilter(loop) {
			sure := s.listLookups(loop.IterRange())
			for _, guard := range collectGuards(loop.LoopStep().AsCall().Args()[0], operators.LogicalAnd) {
				if name, lookup := splitObject(guard); name == loop.IterVar() {
					sure = append(sure, lookup)
				}
			}
			return sure
		}
	}
	return nil
}

// isSure says that a lookup is of a label or an annotation that is there.
func (s *sureLoops) isSure(l lookup) bool {
	name, lookup := splitObject(l.labels + "[" + l.key + "]")
	return slices.Contains(s.findSure(name), lookup)
}

// findSure gives the lookups that are sure on what a name stands for.
func (s *sureLoops) findSure(name string) []string {
	for _, b := range slices.Backward(s.bound) {
		if b.name == name {
			return b.lookups
		}
	}
	return s.sure[name]
}

// splitObject splits the text of a path into the name with which it begins, and the rest.
func splitObject(path string) (name, rest string) {
	end := strings.IndexAny(path, ".[")
	if end < 0 {
		return path, ""
	}
	return path[:end], path[end:]
}

// collectGuards collects the keys whose presence a chain of && has tested, or a chain of || the absence.
func collectGuards(e ast.Expr, chain string) []string {
	if e.Kind() == ast.CallKind {
		call := e.AsCall()
		switch call.FunctionName() {
		case chain:
			return append(collectGuards(call.Args()[0], chain), collectGuards(call.Args()[1], chain)...)
		case operators.LogicalNot:
			if chain == operators.LogicalOr {
				return collectGuards(call.Args()[0], operators.LogicalAnd)
			}
			return collectGuards(call.Args()[0], operators.LogicalOr)
		}
	}
	if chain == operators.LogicalOr {
		return nil
	}
	if key := parsePresenceTest(e); key != "" {
		return []string{key}
	}
	return nil
}

// parsePresenceTest returns the key whose presence an expression tests; empty if it tests none.
func parsePresenceTest(e ast.Expr) string {
	var in ast.Expr
	var key string
	switch e.Kind() {
	case ast.SelectKind:
		if !e.AsSelect().IsTestOnly() {
			return ""
		}
		in, key = e.AsSelect().Operand(), strconv.Quote(e.AsSelect().FieldName())
	case ast.CallKind:
		call := e.AsCall()
		if call.FunctionName() == "hasValue" && call.IsMemberFunction() {
			return parseOptionalLookup(call.Target())
		}
		if call.FunctionName() != operators.In {
			return ""
		}
		left := maxPathParts
		text, ok := formatKey(call.Args()[0], &left)
		if !ok {
			return ""
		}
		in, key = call.Args()[1], text
	default:
		return ""
	}
	text, ok := FormatPath(in)
	if !ok {
		return ""
	}
	return text + "[" + key + "]"
}

// parseOptionalLookup returns the key that x.?labels[?"key"], x.labels[?"key"] and x.labels.?key look up; empty for what is no such lookup.
func parseOptionalLookup(e ast.Expr) string {
	in, key, ok := splitOptional(e, operators.OptIndex, operators.OptSelect, operators.Index)
	if !ok {
		return ""
	}
	if text, ok := FormatPath(in); ok {
		return text + "[" + key + "]"
	}
	metadata, field, ok := splitOptional(in, operators.OptSelect)
	if !ok {
		return ""
	}
	object, ok := FormatPath(metadata)
	name, err := strconv.Unquote(field)
	if !ok || err != nil {
		return ""
	}
	return object + "." + name + "[" + key + "]"
}

// splitOptional splits what one of some operators looks up, or a field, into what is looked into, and the key as it is written.
func splitOptional(e ast.Expr, by ...string) (in ast.Expr, key string, ok bool) {
	switch {
	case e.Kind() == ast.SelectKind && slices.Contains(by, operators.Index):
		return e.AsSelect().Operand(), strconv.Quote(e.AsSelect().FieldName()), true
	case e.Kind() != ast.CallKind || !slices.Contains(by, e.AsCall().FunctionName()) || len(e.AsCall().Args()) != 2:
		return nil, "", false
	}
	left := maxPathParts
	key, ok = formatKey(e.AsCall().Args()[1], &left)
	return e.AsCall().Args()[0], key, ok
}

func mergeGuards(guarded map[string]bool, more []string) map[string]bool {
	if len(more) == 0 {
		return guarded
	}
	all := make(map[string]bool, len(guarded)+len(more))
	for key := range guarded {
		all[key] = true
	}
	for _, key := range more {
		all[key] = true
	}
	return all
}

// SuggestIndexFix says what to write instead of an index that an error was about; empty for any other expression.
func SuggestIndexFix(e ast.Expr) string {
	operand, key, is := splitIndex(e)
	left := maxPathParts
	text, short := "", false
	if is {
		text, short = formatKey(key, &left)
	}
	if !short {
		return ""
	}
	if of, ok := FormatPath(operand); ok {
		return TruncateText(fmt.Sprintf("write %s[?%s] and .orValue(...) at the end", of, text), maxShown)
	}
	return TruncateText(fmt.Sprintf("write [?%s] for the index and .orValue(...) at the end", text), maxShown) // of what is computed, such as x.indexBy(...)
}

// SuggestTimeFix says what to write where a moment or a span of time meets a string, which is how objects carry them.
func SuggestTimeFix(left, right *types.Type) string {
	for _, pair := range [][2]*types.Type{{left, right}, {right, left}} {
		if pair[1].Kind() != types.StringKind {
			continue
		}
		switch pair[0].Kind() {
		case types.TimestampKind:
			return "date-time fields are strings: wrap in timestamp()"
		case types.DurationKind:
			return "durations are strings until they are read: wrap in duration() or parseDuration()"
		}
	}
	return ""
}
