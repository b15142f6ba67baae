// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

package celenv

import (
	"fmt"

	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/types"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/vtex/cleaner/celenv/expr"
	"github.com/vtex/cleaner/celenv/meter"
)

// maxFootprint is how many bytes of memory the compiled expressions of one spec may take together.
const maxFootprint = 8 << 20

// About how many bytes of memory what is compiled takes, and rather more than less.
const (
	footprintOfSource  = 8        // a byte of it: cel-go keeps code points, and literals once more
	footprintOfLiteral = 200      // a literal
	footprintOfNode    = 420      // any other node: its place, its type, and what is planned for it
	footprintOfPattern = 32       // an instruction of a regular expression
	footprintOfSpec    = 24 << 10 // its environment, above all
	footprintOfName    = 256      // a target or a variable that the environment declares
	footprintOfError   = 512
)

// estimateFootprint estimates the memory that an expression takes once it is compiled.
func (c *Compiler) estimateFootprint(source string, parsed *ast.AST) int64 {
	bytes := meter.MultiplyCapped(footprintOfSource, int64(len(source)))
	ast.PreOrderVisit(parsed.Expr(), ast.NewExprVisitor(func(e ast.Expr) {
		if e.Kind() == ast.LiteralKind {
			bytes += footprintOfLiteral
			return
		}
		bytes += footprintOfNode
		if e.Kind() != ast.CallKind || !c.calls.TakesPattern(e.AsCall().FunctionName()) {
			return
		}
		for _, arg := range expr.ListChildren(e) {
			if arg.Kind() != ast.LiteralKind {
				continue
			}
			if text, ok := arg.AsLiteral().(types.String); ok {
				bytes += meter.MultiplyCapped(footprintOfPattern, min(meter.MeasurePattern(string(text)), meter.MaxPatternSize))
			}
		}
	}))
	return bytes
}

// reserveRoom takes bytes off what the spec has left. It is an error if that is too little.
func (s *scope) reserveRoom(t *expr.Tree, bytes int64) *expr.Error {
	if bytes > *s.room {
		return t.LocateError(&expr.Error{
			Kind:    expr.Invalid,
			Message: fmt.Sprintf("the expressions up to this one would take more than %d MiB of memory once they are compiled", maxFootprint>>20),
			Hint:    "write shorter expressions: take long lists from an object or a parameter, put what occurs often into a variable, or use several Cleaners",
		}, t.Root.ID())
	}
	*s.room -= bytes
	return nil
}

// sumFootprint adds up about how much memory programs and errors take while they are remembered.
func sumFootprint(p *Programs, errs field.ErrorList) int64 {
	bytes := int64(footprintOfSpec)
	if p != nil {
		bytes += p.footprint
	}
	for _, err := range errs {
		bytes += footprintOfError + int64(len(err.Field)+len(err.Detail))
	}
	return bytes
}
