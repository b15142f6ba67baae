// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package parts

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
	"github.com/google/cel-go/parser"

	"github.com/vtex/cleaner/celenv/budget"
	"github.com/vtex/cleaner/celenv/expr"
	"github.com/vtex/cleaner/celenv/library"
)

const (
	// maxParts bounds how many parts are listed, and maxDepth how deep parts of parts are.
	maxParts = 64
	maxDepth = 6
	// maxExpression and maxValue bound the texts of a part, in bytes.
	maxExpression = 200
	maxValue      = 120
	// oneLine is a column that no text reaches.
	oneLine = 1 << 30
)

// Part is a part of an expression, with what it gave.
type Part struct {
	// Of is what it belongs to: a field of the rule, or a variable.
	Of string
	// Depth is 0 for the whole expression, and one more for each part of a part.
	Depth int
	// Expression is its text, and Value what it gave, as text. Of a part that was not needed there is no value.
	Expression, Value string
	// NotNeeded says that the result of the whole was known without it.
	NotNeeded bool
	// Failed says that Value is an error.
	Failed bool
}

// LimitParts cuts parts off that are too many to be read.
func LimitParts(all []Part) []Part { return all[:min(len(all), maxParts)] }

// lister lists the parts of an expression.
type lister struct {
	of     string
	info   *ast.SourceInfo
	values map[int64]ref.Val
	listed map[string]bool // by their text
	out    []Part
}

// ListParts lists the parts of an expression that was parsed with its macros: what `&&`, `||`, `!` and `?:` join, and what is compared or
// called there. Parts in loops have a value for each turn, and are not listed; literals are not either.
func ListParts(of string, parsed *ast.AST, values map[int64]ref.Val) []Part {
	l := &lister{of: of, info: parsed.SourceInfo(), values: values, listed: map[string]bool{}}
	if root := parsed.Expr(); root.Kind() != ast.LiteralKind {
		l.addPart(root, 0)
	}
	return LimitParts(l.out)
}

// addPart adds a part, and those of it.
func (l *lister) addPart(e ast.Expr, depth int) {
	if len(l.out) >= maxParts || depth > maxDepth {
		return
	}
	text := l.formatExpression(e)
	part := l.describePart(e, depth, text)
	if !l.listed[text] {
		l.listed[text] = true
		l.out = append(l.out, part)
	}
	if part.NotNeeded {
		return
	}
	for _, child := range l.listOperands(e) {
		if isTelling(child) {
			l.addPart(child, depth+1)
		}
	}
}

// describePart writes down what a part gave.
func (l *lister) describePart(e ast.Expr, depth int, text string) Part {
	p := Part{Of: l.of, Depth: depth, Expression: text}
	value, evaluated := l.values[e.ID()]
	switch failure, failed := value.(*types.Err); {
	case !evaluated:
		p.NotNeeded = true
	case failed:
		p.Value, p.Failed = expr.TruncateText(failure.Error(), maxValue), true
	default:
		p.Value = formatValue(value)
	}
	return p
}

// formatExpression writes a part as its author has, on one line.
func (l *lister) formatExpression(e ast.Expr) string {
	text, err := parser.Unparse(e, l.info, parser.WrapOnColumn(oneLine))
	if err != nil {
		return "…"
	}
	return expr.TruncateText(text, maxExpression)
}

// listOperands returns the parts of an expression, without those that have several values. The terms of a && b && c are of one list.
func (l *lister) listOperands(e ast.Expr) []ast.Expr {
	if macro, is := l.info.GetMacroCall(e.ID()); is {
		return listMacroOperands(e, macro.AsCall())
	}
	if e.Kind() != ast.CallKind {
		return nil
	}
	switch name := e.AsCall().FunctionName(); name {
	case operators.OptSelect, operators.Index, operators.OptIndex:
		return nil // what it gives shows enough
	case operators.LogicalAnd, operators.LogicalOr:
		var terms []ast.Expr
		for _, child := range expr.ListChildren(e) {
			if child.Kind() == ast.CallKind && child.AsCall().FunctionName() == name {
				terms = append(terms, l.listOperands(child)...)
			} else {
				terms = append(terms, child)
			}
		}
		return terms
	default:
		return expr.ListChildren(e)
	}
}

// listMacroOperands returns what a macro was called with. Only what a loop goes through has one value.
func listMacroOperands(e ast.Expr, macro ast.CallExpr) []ast.Expr {
	var out []ast.Expr
	if macro.IsMemberFunction() {
		out = append(out, macro.Target())
	}
	if e.Kind() == ast.CallKind {
		out = append(out, macro.Args()...)
	}
	return out
}

// isTelling says that the value of a part tells a reader something: literals and names of objects and lists do not.
func isTelling(e ast.Expr) bool {
	switch e.Kind() {
	case ast.LiteralKind, ast.IdentKind:
		return false
	case ast.ListKind:
		return e.AsList().Size() > 0 && !isLiteralList(e.AsList())
	default:
		return true
	}
}

func isLiteralList(list ast.ListExpr) bool {
	for _, e := range list.Elements() {
		if e.Kind() != ast.LiteralKind {
			return false
		}
	}
	return true
}

// formatValue writes a value for people, within bounds.
func formatValue(v ref.Val) string {
	switch v := v.(type) {
	case types.String:
		return strconv.Quote(expr.TruncateText(string(v), maxValue))
	case types.Timestamp:
		return v.UTC().Format(time.RFC3339)
	case types.Duration:
		return v.Duration.String()
	case *types.Optional:
		if !v.HasValue() {
			return "optional.none()"
		}
		return "optional.of(" + formatValue(v.GetValue()) + ")"
	}
	if isListOfMaps(v) { // such as the objects of a target
		return describeLarge(v)
	}
	const far = 64 * maxValue // whatever counts for more is longer as JSON
	if budget.MeasureValue(v, far) <= far {
		if text, err := library.EncodeJSON(v); err == nil && len(text) <= maxValue {
			return text
		}
	}
	return describeLarge(v)
}

func isListOfMaps(v ref.Val) bool {
	list, is := v.(traits.Lister)
	if !is || budget.MeasureLength(v) == 0 {
		return false
	}
	_, is = list.Get(types.IntZero).(traits.Mapper)
	return is
}

// describeLarge says what a value is that is too long to be shown.
func describeLarge(v ref.Val) string {
	switch v.(type) {
	case traits.Lister:
		return fmt.Sprintf("a list of %d", budget.MeasureLength(v))
	case traits.Mapper:
		if name := formatObject(v); name != "" {
			return name
		}
		return fmt.Sprintf("a map with %d keys", budget.MeasureLength(v))
	default:
		return "a " + v.Type().TypeName()
	}
}

// formatObject names a Kubernetes object; empty if the value is none.
func formatObject(v ref.Val) string {
	kind, _ := budget.LookupField(v, "kind").(types.String)
	metadata := budget.LookupField(v, "metadata")
	name, _ := budget.LookupField(metadata, "name").(types.String)
	namespace, _ := budget.LookupField(metadata, "namespace").(types.String)
	if kind == "" || name == "" {
		return ""
	}
	full := string(name)
	if namespace != "" {
		full = string(namespace) + "/" + full
	}
	return expr.TruncateText(strings.TrimSpace(string(kind)+" "+full), maxValue)
}
