// Copyright The Cleaner Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package main

import (
	"bytes"
	"go/ast"
	"go/constant"
	"go/token"
	"go/types"
	"slices"
	"strings"
)

// finder collects the mutants of a declaration.
type finder struct {
	code *code
	file *file
	in   declaration
	out  []*mutant
}

// enter finds out which declaration a node stands in.
func (v *finder) enter(n ast.Node) {
	at := v.code.offset(n.Pos())
	for _, d := range v.file.declarations {
		if d.start <= at && at < d.end {
			v.in = d
		}
	}
}

// replace adds the mutant in which text stands for a node.
func (v *finder) replace(operator string, n ast.Node, text string) {
	v.change(operator, n.Pos(), n.End(), text)
}

func (v *finder) change(operator string, from, to token.Pos, text string) {
	m := &mutant{code: v.code, file: v.file, in: v.in, operator: operator, start: v.code.offset(from), end: v.code.offset(to), text: text}
	if string(v.file.source[m.start:m.end]) != text {
		v.out = append(v.out, m)
	}
}

// text is the source of a node.
func (v *finder) text(n ast.Node) string {
	return string(v.file.source[v.code.offset(n.Pos()):v.code.offset(n.End())])
}

// visit applies all operators to one node. False says that nothing below it is of interest.
func (v *finder) visit(n ast.Node) bool {
	switch n := n.(type) {
	case *ast.IfStmt:
		v.negate(n.Cond)
		v.skipReturn(n)
	case *ast.ForStmt:
		v.negate(n.Cond)
	case *ast.BinaryExpr:
		v.swapOperator(n)
		v.dropOperand(n)
	case *ast.UnaryExpr:
		if n.Op == token.NOT {
			v.replace("drop !", n, v.text(n.X))
		}
	case *ast.BlockStmt:
		v.dropStatements(n.List)
	case *ast.CaseClause:
		v.dropStatements(n.Body)
		v.dropCase(n)
	case *ast.CommClause:
		v.dropStatements(n.Body)
	case *ast.ReturnStmt:
		for _, r := range n.Results {
			v.zero(r)
		}
	case *ast.AssignStmt:
		v.swapAssignment(n)
	case *ast.IncDecStmt:
		v.change("swap ++ and --", n.TokPos, n.End(), map[token.Token]string{token.INC: "--", token.DEC: "++"}[n.Tok])
	case *ast.BranchStmt:
		if text := map[token.Token]string{token.BREAK: "continue", token.CONTINUE: "break"}[n.Tok]; text != "" && n.Label == nil {
			v.replace("swap break and continue", n, text)
		}
	case *ast.CallExpr:
		return v.visitCall(n)
	case *ast.CompositeLit:
		v.dropEach("drop an element", n.Elts, n.Rbrace)
	case *ast.Ident:
		v.swapConstant(n)
	case *ast.BasicLit:
		if n.Kind == token.INT && (n.Value == "0" || n.Value == "1") {
			v.replace("swap 0 and 1", n, map[string]string{"0": "1", "1": "0"}[n.Value])
		}
	}
	return true
}

// visitCall drops what is appended, and calls that give back a value of the type they are given. What a log line says,
// and how much room a slice is made with, is nothing that a test should hold.
func (v *finder) visitCall(n *ast.CallExpr) bool {
	name := types.ExprString(n.Fun)
	switch {
	case name == "make", v.code.logs(n):
		return false
	case name == "min" || name == "max":
		v.replace("swap min and max", n.Fun, map[string]string{"min": "max", "max": "min"}[name])
	case name == "append":
		v.dropEach("drop an element", n.Args[1:], n.Rparen)
	case len(n.Args) == 1:
		of, given := v.code.info.TypeOf(n), v.code.info.TypeOf(n.Args[0])
		if of != nil && given != nil && types.Identical(of, given) && !v.code.info.Types[n.Fun].IsType() {
			v.replace("drop a call", n, v.text(n.Args[0]))
		}
	}
	return true
}

// negate turns a condition round.
func (v *finder) negate(cond ast.Expr) {
	if cond != nil && !negated(cond) {
		v.replace("negate", cond, "!("+v.text(cond)+")")
	}
}

// negated says that another operator makes the opposite of a condition.
func negated(cond ast.Expr) bool {
	switch n := cond.(type) {
	case *ast.Ident:
		return n.Name == "true" || n.Name == "false"
	case *ast.UnaryExpr:
		return n.Op == token.NOT
	case *ast.BinaryExpr:
		return n.Op == token.EQL || n.Op == token.NEQ
	}
	return false
}

// skipReturn empties an if that does nothing but leave.
func (v *finder) skipReturn(n *ast.IfStmt) {
	if n.Else != nil || len(n.Body.List) == 0 {
		return
	}
	switch n.Body.List[len(n.Body.List)-1].(type) {
	case *ast.ReturnStmt, *ast.BranchStmt:
		v.replace("drop an early leave", n.Body, "{\n}")
	}
}

func (v *finder) swapOperator(n *ast.BinaryExpr) {
	swaps := map[token.Token]token.Token{
		token.LSS: token.LEQ, token.LEQ: token.LSS, token.GTR: token.GEQ, token.GEQ: token.GTR,
		token.EQL: token.NEQ, token.NEQ: token.EQL, token.LAND: token.LOR, token.LOR: token.LAND,
		token.ADD: token.SUB, token.SUB: token.ADD, token.MUL: token.QUO, token.QUO: token.MUL, token.REM: token.MUL,
	}
	if to, ok := swaps[n.Op]; ok {
		v.change("swap operators", n.OpPos, n.OpPos+token.Pos(len(n.Op.String())), to.String())
	}
}

// dropOperand leaves one side of && and ||.
func (v *finder) dropOperand(n *ast.BinaryExpr) {
	if n.Op == token.LAND || n.Op == token.LOR {
		v.replace("drop an operand", n, v.text(n.X))
		v.replace("drop an operand", n, v.text(n.Y))
	}
}

// swapAssignment makes x += y of x -= y, and drops what x was.
func (v *finder) swapAssignment(n *ast.AssignStmt) {
	swaps := map[token.Token]token.Token{
		token.ADD_ASSIGN: token.SUB_ASSIGN, token.SUB_ASSIGN: token.ADD_ASSIGN,
		token.MUL_ASSIGN: token.QUO_ASSIGN, token.QUO_ASSIGN: token.MUL_ASSIGN,
		token.OR_ASSIGN: token.AND_ASSIGN, token.AND_ASSIGN: token.OR_ASSIGN,
	}
	if to, ok := swaps[n.Tok]; ok {
		end := n.TokPos + token.Pos(len(n.Tok.String()))
		v.change("swap operators", n.TokPos, end, to.String())
		v.change("assign", n.TokPos, end, "=")
	}
}

// dropStatements drops one statement. Locks stay: only the race detector sees that one is missing.
func (v *finder) dropStatements(list []ast.Stmt) {
	for _, s := range list {
		call := ""
		switch s := s.(type) {
		case *ast.ExprStmt:
			c, is := s.X.(*ast.CallExpr)
			if !is || v.code.logs(c) {
				continue
			}
			call = types.ExprString(c.Fun)
		case *ast.DeferStmt:
			call = types.ExprString(s.Call.Fun)
		case *ast.AssignStmt:
			if s.Tok == token.DEFINE || types.ExprString(s.Lhs[0]) == "_" {
				continue
			}
		case *ast.IncDecStmt, *ast.GoStmt, *ast.SendStmt, *ast.BranchStmt:
		default:
			continue
		}
		if i := strings.LastIndexByte(call, '.'); !slices.Contains([]string{"Lock", "Unlock", "RLock", "RUnlock", "Grow"}, call[i+1:]) {
			v.replace("drop a statement", s, "")
		}
	}
}

// dropCase drops a case, and each expression of one that has several. The default stays.
func (v *finder) dropCase(n *ast.CaseClause) {
	if len(n.List) == 0 {
		return
	}
	if len(n.List) > 1 {
		v.dropEach("drop of a case", n.List, n.Colon)
	}
	v.replace("drop a case", n, "")
	if t, ok := v.code.info.TypeOf(n.List[0]).Underlying().(*types.Basic); ok && t.Info()&types.IsBoolean != 0 {
		v.negate(n.List[0])
	}
}

// dropEach drops one of a list that ends before a bracket or a colon.
func (v *finder) dropEach(operator string, list []ast.Expr, end token.Pos) {
	for i, e := range list {
		if v.code.saysZero(e) {
			continue
		}
		from, to := e.Pos(), end
		switch {
		case i+1 < len(list):
			to = list[i+1].Pos()
		case i > 0:
			from = list[i-1].End()
		case operator == "drop an element":
			// The last comma goes with the only element.
			from = v.afterLast(e)
		}
		if i+1 == len(list) && bytes.IndexByte(v.file.source[v.code.offset(from):v.code.offset(to)], '\n') >= 0 && i > 0 {
			// In a literal that ends on a line of its own, the last comma stays.
			to = e.End()
		}
		v.change(operator, from, to, "")
	}
}

// afterLast is where an only element begins, with the comma before it if it is an argument.
func (v *finder) afterLast(e ast.Expr) token.Pos {
	at := v.code.offset(e.Pos())
	before := bytes.TrimRight(v.file.source[:at], " \t\n")
	if bytes.HasSuffix(before, []byte(",")) {
		return e.Pos() - token.Pos(at-len(before)+1)
	}
	return e.Pos()
}

// zero gives back nothing instead of a result: no error, false for true, none instead of some.
func (v *finder) zero(r ast.Expr) {
	value := v.code.info.Types[r]
	if value.Type == nil || value.IsNil() {
		return
	}
	text := ""
	switch t := value.Type.Underlying().(type) {
	case *types.Basic:
		switch info := t.Info(); {
		case info&types.IsBoolean != 0:
			if !negated(r) {
				text = "!(" + v.text(r) + ")"
			}
		case info&types.IsString != 0:
			text = "\"\""
		case info&types.IsNumeric != 0:
			text = "0"
		}
	case *types.Pointer, *types.Slice, *types.Map, *types.Interface, *types.Signature, *types.Chan:
		text = "nil"
	case *types.Struct:
		if _, literal := r.(*ast.CompositeLit); literal {
			return // its elements are dropped
		}
	}
	if text != "" {
		v.replace("return nothing", r, text)
	}
}

// swapConstant puts the next constant of the same type in the place of one: true for false, one outcome for another.
func (v *finder) swapConstant(n *ast.Ident) {
	c, is := v.code.info.Uses[n].(*types.Const)
	if !is {
		return
	}
	if c.Parent() == types.Universe {
		if text := map[string]string{"true": "false", "false": "true"}[c.Name()]; text != "" {
			v.replace("swap constants", n, text)
		}
		return
	}
	if _, named := c.Type().(*types.Named); !named || c.Pkg() == nil || c.Pkg().Path() == "time" || c.Parent() != c.Pkg().Scope() {
		return
	}
	var others []*types.Const
	scope := c.Pkg().Scope()
	for _, name := range scope.Names() {
		o, is := scope.Lookup(name).(*types.Const)
		if is && types.Identical(o.Type(), c.Type()) && (o.Pkg() == v.code.types || o.Exported()) {
			others = append(others, o)
		}
	}
	for i, o := range others {
		if next := others[(i+1)%len(others)]; o == c && !constant.Compare(next.Val(), token.EQL, c.Val()) {
			v.replace("swap constants", n, next.Name())
		}
	}
}
