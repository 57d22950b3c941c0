// Package selector is the language in which VMs are chosen:
//
//	folder=prod && !poweredOn && (size < 500GiB || name ~ "db*")
//
// A term is a field alone, where it is true or false (poweredOn), or a field, an operator and
// a value. Terms are joined by && and ||, negated by ! and grouped by (); && binds tighter
// than ||. fields lists the fields, in which people find the words of decamp ls.
//
//	=  !=             text, numbers, sizes; text without regard to case
//	~                 text against a pattern: * is any text, ? any one character
//	<  <=  >  >=      numbers and sizes
//
// A value is a word, or text in " or ' quotes. A field with several values, such as the
// networks of a VM, is what one of them is; != says that none is. Sizes have a unit: 100GiB.
//
// What cannot be read is an *Error that knows the column. Nothing here asks a host.
package selector

import (
	"fmt"
	"slices"
	"strings"

	"github.com/decamp/decamp/internal/inventory"
)

// Bounds on what is read: expressions come from files that anybody may have written.
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

// Facts lists what must be known of a VM to match it; false: that is more than facts, and it has
// to be described.
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

// Error is what is wrong with an expression, and where.
type Error struct {
	Column int    // of the first character of what is wrong, from 1
	Text   string // what is wrong
	Remedy string // what to write instead; may be empty
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

// group puts parentheses around what binds less tightly than what it stands in.
func group(n node) string {
	switch n.(type) {
	case and, or:
		return "(" + n.String() + ")"
	}
	return n.String()
}
