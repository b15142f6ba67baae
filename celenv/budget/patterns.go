// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package budget

import (
	"fmt"
	"regexp/syntax"
	"strings"

	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"

	"github.com/vtex/cleaner/celenv/expr"
)

const (
	// maxDynamicPattern is the longest pattern that an object may supply, in bytes: it is compiled at each call.
	maxDynamicPattern = 256
	// MaxPatternSize is how large a pattern may become once its repetitions are written out. Larger ones take seconds and
	// gigabytes to compile.
	MaxPatternSize = 8192
)

// PatternArgument is which argument of a function with charge.forPattern is a regular expression.
const PatternArgument = 1

// CheckPattern says what is wrong with a regular expression, without compiling one that is too large for that.
func CheckPattern(pattern string) error {
	parsed, err := syntax.Parse(pattern, syntax.Perl)
	if err != nil {
		return fmt.Errorf("%q is no regular expression: %w", expr.TruncateText(pattern, 64), err)
	}
	if n := countInstructions(parsed); n > MaxPatternSize {
		return fmt.Errorf("the regular expression %q is too large: repetitions count as often as they repeat", expr.TruncateText(pattern, 64))
	}
	return nil
}

// countInstructions counts about how many instructions a pattern becomes.
func countInstructions(re *syntax.Regexp) int64 {
	n := int64(1)
	switch re.Op {
	case syntax.OpLiteral, syntax.OpCharClass:
		n += int64(len(re.Rune))
	}
	for _, sub := range re.Sub {
		n = AddCapped(n, countInstructions(sub))
	}
	if re.Op == syntax.OpRepeat {
		n = MultiplyCapped(n, int64(max(re.Min, re.Max, 1)))
	}
	return n
}

// checkDynamicPattern refuses a pattern that no object may supply.
func checkDynamicPattern(pattern string) error {
	if len(pattern) > maxDynamicPattern {
		return fmt.Errorf("a regular expression that is not a literal may have %d bytes, and this one has %d", maxDynamicPattern, len(pattern))
	}
	return CheckPattern(pattern)
}

// chargeMatch pays for a function that looks for one match: each place of the text against each part of the pattern.
func chargeMatch(m *Meter, pattern int64, args []ref.Val) {
	tries := MultiplyCapped(pattern, MeasureLength(args[0])+ValueSize)
	step := int64(patternStep)
	if tries > maxBacktracked {
		step = simulatedStep
	}
	m.PaySteps(tries / step)
}

// chargeMatches pays for a function that looks for all matches, which may read the rest of the text for each.
func chargeMatches(m *Meter, pattern int64, args []ref.Val) {
	n := MeasureLength(args[0])
	m.PaySteps(MultiplyCapped(pattern, MultiplyCapped(n, n)+ValueSize) / (4 * patternStep))
}

// chargeReplaceMatches pays also for the longest text that replacing can give: a match at every place, and each
// reference to a group standing for all of the text.
func chargeReplaceMatches(m *Meter, pattern int64, args []ref.Val) {
	chargeMatches(m, pattern, args)
	replacement, _ := args[2].(types.String)
	n := MeasureLength(args[0])
	references := int64(strings.Count(string(replacement), "\\"))
	m.payBuilding(AddCapped(n, MultiplyCapped(n+1, int64(len(replacement))), MultiplyCapped(n, references)))
}

const (
	// patternStep is how many tries of a part of a pattern at a place of a text are one step, and simulatedStep how many are that are too
	// many for package regexp to remember which it has made: then each takes about eight times as long.
	patternStep, simulatedStep = 64, 8
	// maxBacktracked is how many tries package regexp remembers, in bits.
	maxBacktracked = 256 << 10
)

// MeasurePattern says about how many instructions a pattern becomes, and 1 for what is none: the function says so itself.
func MeasurePattern(pattern string) int64 {
	parsed, err := syntax.Parse(pattern, syntax.Perl)
	if err != nil {
		return 1
	}
	return countInstructions(parsed)
}

// CheckPatterns finds the literal regular expressions that are none, or too large to be compiled.
func (c *Calls) CheckPatterns(t *expr.Tree) []*expr.Error {
	var problems []*expr.Error
	ast.PreOrderVisit(t.Root, ast.NewExprVisitor(func(e ast.Expr) {
		if e.Kind() != ast.CallKind || !c.TakesPattern(e.AsCall().FunctionName()) {
			return
		}
		args := expr.ListChildren(e)
		if len(args) <= PatternArgument || args[PatternArgument].Kind() != ast.LiteralKind {
			return
		}
		pattern, ok := args[PatternArgument].AsLiteral().(types.String)
		if !ok {
			return
		}
		if err := CheckPattern(string(pattern)); err != nil {
			problems = append(problems, t.LocateError(&expr.Error{Kind: expr.Invalid, Message: err.Error()}, args[PatternArgument].ID()))
		}
	}))
	return problems
}
