// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package compilecost

import (
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/types"

	"github.com/vtex/cleaner/celenv/budget"
)

// About how many bytes of memory what is compiled takes, and rather more than less.
const (
	footprintOfExpression = 1536 // any, however short: its tree, its program, its explanation, and what is known of its reads
	footprintOfSource     = 8    // a byte of it: cel-go keeps code points, and literals once more
	footprintOfLiteral    = 200  // a literal
	footprintOfNode       = 420  // any other node: its place, its type, and what is planned for it
	footprintOfPattern    = 32   // an instruction of a regular expression
)

// EstimateFootprint estimates the memory that an expression takes once it is compiled.
func (s *Scale) EstimateFootprint(source string, parsed *ast.AST) int64 {
	bytes := footprintOfExpression + budget.MultiplyCapped(footprintOfSource, int64(len(source)))
	ast.PreOrderVisit(parsed.Expr(), ast.NewExprVisitor(func(e ast.Expr) {
		if e.Kind() == ast.LiteralKind {
			bytes += footprintOfLiteral
			return
		}
		bytes += footprintOfNode
		if e.Kind() != ast.CallKind {
			return
		}
		function, args := s.resolveCall(e.AsCall())
		if !s.calls.TakesPattern(function) {
			return
		}
		for _, arg := range args {
			if arg.Kind() != ast.LiteralKind {
				continue
			}
			if text, ok := arg.AsLiteral().(types.String); ok {
				bytes += budget.MultiplyCapped(footprintOfPattern, min(budget.MeasurePattern(string(text)), budget.MaxPatternSize))
			}
		}
	}))
	return bytes
}
