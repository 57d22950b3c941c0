package main

import (
	"fmt"
	"go/ast"
	"go/token"
	"go/types"
	"sort"
	"strings"
)

// A Mutant is one changed operator.
type Mutant struct {
	ID   int            // number of the mutant, from 1
	Pos  token.Position // position of the operator
	Kind string         // such as "< to <="
}

// A rewriter adds mutants to the files of a package. It collects all of them.
type rewriter struct {
	fset    *token.FileSet // positions of all files
	info    *types.Info    // types of all expressions
	mutants []Mutant       // mutants so far
}

// An insertion is a text to insert at an offset of a file; it replaces skip bytes.
type insertion struct {
	offset, skip int    // position, and number of bytes to replace
	text         string // text to insert
	order        int    // order of insertions at the same offset; large values close what small ones open
}

// negations maps comparisons to their opposites.
var negations = map[token.Token]token.Token{
	token.EQL: token.NEQ, token.NEQ: token.EQL, token.LSS: token.GEQ, token.GEQ: token.LSS, token.GTR: token.LEQ, token.LEQ: token.GTR,
}

// boundaries maps comparisons to those that differ for equal operands, with the
// function of the runtime that selects one of them.
var boundaries = map[token.Token]struct {
	function string
	to       token.Token
}{
	token.LSS: {"Less", token.LEQ}, token.LEQ: {"LessEqual", token.LSS}, token.GTR: {"Greater", token.GEQ}, token.GEQ: {"GreaterEqual", token.GTR},
}

// arithmetic maps operators on numbers to their replacements.
var arithmetic = map[token.Token]struct {
	function string
	to       token.Token
}{
	token.ADD: {"Add", token.SUB}, token.SUB: {"Sub", token.ADD}, token.MUL: {"Mul", token.QUO}, token.QUO: {"Quo", token.MUL}, token.REM: {"Rem", token.MUL},
}

// logic maps logical operators to their replacements.
var logic = map[token.Token]struct {
	function string
	to       token.Token
}{token.LAND: {"And", token.LOR}, token.LOR: {"Or", token.LAND}}

// rewriteFile returns the text of a file with its mutants. Line numbers do not change.
func (r *rewriter) rewriteFile(file *ast.File, src []byte) string {
	var edits []insertion
	offset := func(p token.Pos) int { return r.fset.Position(p).Offset }
	insert := func(p token.Pos, skip, order int, text string) {
		edits = append(edits, insertion{offset(p), skip, text, order})
	}
	add := func(p token.Pos, from, to token.Token) int {
		r.mutants = append(r.mutants, Mutant{len(r.mutants) + 1, r.fset.Position(p), from.String() + " to " + to.String()})
		return len(r.mutants)
	}
	depth := 0
	visit := func(n ast.Node) {
		// At the same offset, outer expressions open first and close last.
		depth++
		opens, closes := depth, 1_000_000-depth
		call := func(x, y ast.Expr, op token.Pos, opLen int, function string, id int, lazy bool) {
			insert(x.Pos(), 0, opens, fmt.Sprintf("mutant.%s(%d, ", function, id))
			if lazy {
				insert(op, opLen, 0, ", func() bool { return (")
				insert(y.End(), 0, closes, ") })")
				return
			}
			insert(op, opLen, 0, ", ")
			insert(y.End(), 0, closes, ")")
		}
		switch n := n.(type) {
		case *ast.BinaryExpr:
			// The compiler evaluates constants, so a mutant of one cannot be
			// selected at run time.
			if r.isConstant(n) {
				break
			}
			width := len(n.Op.String())
			if to, ok := negations[n.Op]; ok {
				// A comparison is negated by comparing it with the state of its mutant.
				insert(n.Pos(), 0, opens, fmt.Sprintf("(mutant.On(%d) != (", add(n.OpPos, n.Op, to)))
				// The mutant of the boundary is a call within the negation.
				if b, ok := boundaries[n.Op]; ok && r.isInferable(n) {
					depth++
					opens, closes = depth, 1_000_000-depth
					call(n.X, n.Y, n.OpPos, width, b.function, add(n.OpPos, n.Op, b.to), false)
					depth--
				}
				insert(n.End(), 0, 1_000_000-depth, "))")
			} else if a, ok := arithmetic[n.Op]; ok && r.isNumber(n) && r.isInferable(n) {
				call(n.X, n.Y, n.OpPos, width, a.function, add(n.OpPos, n.Op, a.to), false)
			} else if l, ok := logic[n.Op]; ok && types.Identical(r.info.TypeOf(n).Underlying(), r.info.TypeOf(n)) {
				call(n.X, n.Y, n.OpPos, width, l.function, add(n.OpPos, n.Op, l.to), true)
			}
		case *ast.UnaryExpr:
			if n.Op == token.SUB && !r.isConstant(n) && r.isNumber(n) {
				insert(n.Pos(), 1, opens, fmt.Sprintf("mutant.Neg(%d, ", add(n.OpPos, token.SUB, token.ADD)))
				insert(n.End(), 0, closes, ")")
			}
		case *ast.IncDecStmt:
			text := string(src[offset(n.X.Pos()):offset(n.X.End())])
			if strings.ContainsAny(text, "(\n") {
				break // evaluating it twice might differ
			}
			// x++ becomes x = mutant.Add(id, x, 1), whose mutant subtracts.
			function, to := "Add", token.DEC
			if n.Tok == token.DEC {
				function, to = "Sub", token.INC
			}
			insert(n.TokPos, 2, 0, fmt.Sprintf(" = mutant.%s(%d, %s, 1)", function, add(n.TokPos, n.Tok, to), text))
		}
	}
	var stack []ast.Node
	ast.Inspect(file, func(n ast.Node) bool {
		if n == nil {
			stack = stack[:len(stack)-1]
			return true
		}
		stack = append(stack, n)
		// Each node of the syntax tree may insert at two depths.
		depth = 2 * len(stack)
		switch n := n.(type) {
		case *ast.GenDecl:
			if n.Tok == token.CONST || n.Tok == token.IMPORT {
				stack = stack[:len(stack)-1]
				return false
			}
		}
		visit(n)
		return true
	})
	// The import is on the line of the package clause, so that line numbers do not
	// change.
	insert(file.Name.End(), 0, 0, "; import mutant \""+runtimePath+"\"")
	sort.SliceStable(edits, func(i, j int) bool {
		a, b := edits[i], edits[j]
		if a.offset != b.offset {
			return a.offset < b.offset
		}
		// Texts that close come before texts that open.
		if aEnds, bEnds := a.order > 500_000, b.order > 500_000; aEnds != bEnds {
			return aEnds
		}
		return a.order < b.order
	})
	var out strings.Builder
	at := 0
	for _, e := range edits {
		out.Write(src[at:e.offset])
		out.WriteString(e.text)
		at = e.offset + e.skip
	}
	out.Write(src[at:])
	out.WriteString("\nvar _ = mutant.On\n")
	return out.String()
}

// isConstant reports whether the compiler evaluates e.
func (r *rewriter) isConstant(e ast.Expr) bool { return r.info.Types[e].Value != nil }

// isNumber reports whether e is an integer or a floating-point number.
func (r *rewriter) isNumber(e ast.Expr) bool {
	b, ok := r.info.TypeOf(e).Underlying().(*types.Basic)
	return ok && b.Info()&(types.IsInteger|types.IsFloat) != 0
}

// isInferable reports whether a generic function infers its type argument from the
// operands of n: both have a basic type, and neither is a shift of a constant, whose
// type depends on its context.
func (r *rewriter) isInferable(n *ast.BinaryExpr) bool {
	for _, e := range []ast.Expr{n.X, n.Y} {
		t := r.info.TypeOf(e)
		if _, ok := t.(*types.TypeParam); ok {
			return false
		}
		if _, ok := t.Underlying().(*types.Basic); !ok {
			return false
		}
		shifts := false
		ast.Inspect(e, func(n ast.Node) bool {
			b, ok := n.(*ast.BinaryExpr)
			shifts = shifts || ok && (b.Op == token.SHL || b.Op == token.SHR) && r.isConstant(b.X) && !r.isConstant(b)
			return true
		})
		if shifts {
			return false
		}
	}
	return true
}
