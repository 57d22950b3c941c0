// Package selector is the language in which VMs are chosen:
//
//	folder=prod && !poweredOn && (size < 500GiB || name ~ "db*")
//
// A term is a boolean field alone (poweredOn), or a field, an operator and a value. Terms are joined by &&
// and ||, negated by ! and grouped by (); && binds tighter than ||. fields lists the fields; their values
// are those that decamp ls prints.
//
//	=  !=             text, numbers, sizes; text without regard to case
//	~                 text against a pattern: * is any text, ? any one character
//	<  <=  >  >=      numbers and sizes
//
// A value is a word, or text in " or ' quotes. A field with several values, such as the networks of a VM,
// matches if one of them does; != matches if none is equal. Sizes have a unit: 100GiB.
//
// A syntax error is an *Error with its column. The package makes no requests to hosts.
package selector

import (
	"fmt"
	"slices"
	"strings"

	"github.com/decamp/decamp/internal/inventory"
)

// Bounds on input: expressions come from untrusted files.
const (
	maxBytes = 4 << 10 // bytes of an expression
	maxDepth = 100     // nesting of parentheses and negations
)

// Expr selects VMs. The zero value selects none. An Expr is immutable, and safe for concurrent use.
type Expr struct {
	root node // parsed expression; nil for the zero value
}

// Match reports whether the expression selects vm.
func (e Expr) Match(vm *inventory.VM) bool { return e.root != nil && e.root.matchVM(vm) }

// Facts returns the properties that Match requires. enough is false if they do not suffice: the VM must
// then have its full description.
func (e Expr) Facts() (facts []inventory.Fact, enough bool) {
	enough = true
	if e.root == nil {
		return nil, true
	}
	e.root.visitFields(func(f *field) {
		switch {
		case f.fact == inventory.NoFact:
			enough = false
		case !slices.Contains(facts, f.fact):
			facts = append(facts, f.fact)
		}
	})
	return facts, enough
}

// IsZero reports whether e is the zero value.
func (e Expr) IsZero() bool { return e.root == nil }

// String returns the expression in its normal form, which Parse accepts and which has the same meaning.
func (e Expr) String() string {
	if e.root == nil {
		return ""
	}
	return e.root.String()
}

// Error is a syntax error with its position.
type Error struct {
	Column int    // first character of the error, from 1
	Text   string // description of the error
	Remedy string // correct form; may be empty
}

// Error returns the column and the text, without the remedy.
func (e *Error) Error() string { return fmt.Sprintf("column %d: %s", e.Column, e.Text) }

// newError returns an Error without a remedy.
func newError(column int, format string, args ...any) *Error {
	return &Error{Column: column, Text: fmt.Sprintf(format, args...)}
}

// withRemedy sets the remedy and returns e.
func (e *Error) withRemedy(format string, args ...any) *Error {
	e.Remedy = fmt.Sprintf(format, args...)
	return e
}

// A node is a part of a parsed expression.
type node interface {
	matchVM(vm *inventory.VM) bool  // matchVM reports whether the node is true for vm.
	visitFields(visit func(*field)) // visitFields calls the function for each field of the node, also repeatedly.
	String() string                 // String returns the node in its normal form.
}

type (
	// true if all parts are
	andNode []node
	// true if one part is
	orNode []node
	// true if the part is not
	notNode struct{ node }
)

// matchVM stops at the first part that is false.
func (n andNode) matchVM(vm *inventory.VM) bool {
	for _, part := range n {
		if !part.matchVM(vm) {
			return false
		}
	}
	return true
}

// matchVM stops at the first part that is true.
func (n orNode) matchVM(vm *inventory.VM) bool {
	for _, part := range n {
		if part.matchVM(vm) {
			return true
		}
	}
	return false
}

// matchVM negates the part.
func (n notNode) matchVM(vm *inventory.VM) bool { return !n.node.matchVM(vm) }

// visitFields visits the parts in the order of the expression.
func (n andNode) visitFields(visit func(*field)) {
	for _, part := range n {
		part.visitFields(visit)
	}
}

// visitFields visits the parts as an andNode does.
func (n orNode) visitFields(visit func(*field)) { andNode(n).visitFields(visit) }

func (n notNode) visitFields(visit func(*field)) { n.node.visitFields(visit) }

func (n andNode) String() string { return joinParts(n, " && ") }
func (n orNode) String() string  { return joinParts(n, " || ") }
func (n notNode) String() string { return "!" + parenthesize(n.node) }

// joinParts returns the parts with an operator between them.
func joinParts(parts []node, by string) string {
	texts := make([]string, len(parts))
	for i, p := range parts {
		texts[i] = parenthesize(p)
	}
	return strings.Join(texts, by)
}

// parenthesize returns the text of an operand. Operands with && or || get parentheses, so that
// precedence does not matter.
func parenthesize(n node) string {
	switch n.(type) {
	case andNode, orNode:
		return "(" + n.String() + ")"
	}
	return n.String()
}
