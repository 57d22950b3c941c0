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
	maxDepth = 100     // levels of ( and !
)

// Expr chooses VMs. The zero value chooses none. It is read once and may then be used
// concurrently.
type Expr struct {
	root node
}

// Match reports whether vm is chosen.
func (e Expr) Match(vm *inventory.VM) bool { return e.root != nil && e.root.matchVM(vm) }

// Facts lists the properties that are required to match a VM; false means that only a full description
// suffices.
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

// IsZero reports whether there is no expression.
func (e Expr) IsZero() bool { return e.root == nil }

// String returns the expression in one fixed form, which Parse reads as the same.
func (e Expr) String() string {
	if e.root == nil {
		return ""
	}
	return e.root.String()
}

// Error is an invalid expression, with the position.
type Error struct {
	Column int    // first character of the error, from 1
	Text   string // description of the error
	Remedy string // correct form; may be empty
}

func (e *Error) Error() string { return fmt.Sprintf("column %d: %s", e.Column, e.Text) }

func newError(column int, format string, args ...any) *Error {
	return &Error{Column: column, Text: fmt.Sprintf(format, args...)}
}

func (e *Error) withRemedy(format string, args ...any) *Error {
	e.Remedy = fmt.Sprintf(format, args...)
	return e
}

// A node is a part of an expression.
type node interface {
	matchVM(vm *inventory.VM) bool
	visitFields(tell func(*field)) // the fields in it
	String() string
}

type (
	andNode []node
	orNode  []node
	notNode struct{ node }
)

func (n andNode) matchVM(vm *inventory.VM) bool {
	for _, part := range n {
		if !part.matchVM(vm) {
			return false
		}
	}
	return true
}

func (n orNode) matchVM(vm *inventory.VM) bool {
	for _, part := range n {
		if part.matchVM(vm) {
			return true
		}
	}
	return false
}

func (n notNode) matchVM(vm *inventory.VM) bool { return !n.node.matchVM(vm) }

func (n andNode) visitFields(tell func(*field)) {
	for _, part := range n {
		part.visitFields(tell)
	}
}

func (n orNode) visitFields(tell func(*field)) { andNode(n).visitFields(tell) }

func (n notNode) visitFields(tell func(*field)) { n.node.visitFields(tell) }

func (n andNode) String() string { return joinParts(n, " && ") }
func (n orNode) String() string  { return joinParts(n, " || ") }
func (n notNode) String() string { return "!" + parenthesize(n.node) }

func joinParts(parts []node, by string) string {
	texts := make([]string, len(parts))
	for i, p := range parts {
		texts[i] = parenthesize(p)
	}
	return strings.Join(texts, by)
}

// parenthesize adds parentheses around an operand that binds less tightly than its operator.
func parenthesize(n node) string {
	switch n.(type) {
	case andNode, orNode:
		return "(" + n.String() + ")"
	}
	return n.String()
}
