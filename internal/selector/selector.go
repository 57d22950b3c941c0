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
	longest = 4 << 10 // bytes of an expression
	deepest = 100     // levels of ( and !
)

// Expr chooses VMs. The zero value chooses none. It is read once and may then be used
// concurrently.
type Expr struct {
	root node
}

// Match reports whether vm is chosen.
func (e Expr) Match(vm *inventory.VM) bool { return e.root != nil && e.root.match(vm) }

// Facts lists the properties that are required to match a VM; false means that only a full description
// suffices.
func (e Expr) Facts() (facts []inventory.Fact, enough bool) {
	enough = true
	if e.root == nil {
		return nil, true
	}
	e.root.each(func(f *field) {
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

func wrong(column int, format string, args ...any) *Error {
	return &Error{Column: column, Text: fmt.Sprintf(format, args...)}
}

func (e *Error) remedy(format string, args ...any) *Error {
	e.Remedy = fmt.Sprintf(format, args...)
	return e
}

// A node is a part of an expression.
type node interface {
	match(vm *inventory.VM) bool
	each(tell func(*field)) // the fields in it
	String() string
}

type (
	and []node
	or  []node
	not struct{ node }
)

func (n and) match(vm *inventory.VM) bool {
	for _, part := range n {
		if !part.match(vm) {
			return false
		}
	}
	return true
}

func (n or) match(vm *inventory.VM) bool {
	for _, part := range n {
		if part.match(vm) {
			return true
		}
	}
	return false
}

func (n not) match(vm *inventory.VM) bool { return !n.node.match(vm) }

func (n and) each(tell func(*field)) {
	for _, part := range n {
		part.each(tell)
	}
}

func (n or) each(tell func(*field)) { and(n).each(tell) }

func (n not) each(tell func(*field)) { n.node.each(tell) }

func (n and) String() string { return join(n, " && ") }
func (n or) String() string  { return join(n, " || ") }
func (n not) String() string { return "!" + group(n.node) }

func join(parts []node, by string) string {
	texts := make([]string, len(parts))
	for i, p := range parts {
		texts[i] = group(p)
	}
	return strings.Join(texts, by)
}

// group adds parentheses around an operand that binds less tightly than its operator.
func group(n node) string {
	switch n.(type) {
	case and, or:
		return "(" + n.String() + ")"
	}
	return n.String()
}
