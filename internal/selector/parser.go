package selector

import (
	"errors"
	"strings"

	"github.com/decamp/decamp/internal/suggest"
)

// Parse reads an expression. Its errors are *Error.
func Parse(s string) (Expr, error) {
	tokens, err := lex(s)
	if err != nil {
		return Expr{}, err
	}
	p := &parser{tokens: tokens}
	if p.peek().kind == end {
		return Expr{}, wrong(1, "there is no expression").remedy("write for example: folder=prod && !poweredOn")
	}
	root, err := p.or(0)
	if err != nil {
		return Expr{}, err
	}
	if t := p.peek(); t.kind != end {
		return Expr{}, p.unexpected(t)
	}
	return Expr{root}, nil
}

// parser goes through the tokens, one method for each level of binding.
type parser struct {
	tokens []token
	at     int
}

func (p *parser) peek() token { return p.tokens[p.at] }

// take goes over the mark if it is the next token.
func (p *parser) take(m string) bool {
	if t := p.peek(); t.kind != mark || t.text != m {
		return false
	}
	p.at++
	return true
}

func (p *parser) unexpected(t token) error {
	switch {
	case t.kind == end:
		return wrong(t.column, "the expression ends too early")
	case t.kind == mark && t.text == ")":
		return wrong(t.column, "there is a ) without its (")
	case t.kind == mark:
		return wrong(t.column, "%s cannot stand here", t.text)
	case strings.EqualFold(t.text, "and"):
		return wrong(t.column, "%q is not an operator", t.text).remedy("write &&")
	case strings.EqualFold(t.text, "or"):
		return wrong(t.column, "%q is not an operator", t.text).remedy("write ||")
	}
	return wrong(t.column, "%q cannot stand here", t.text).
		remedy("join terms with && or ||, and put values with blanks in quotes")
}

func (p *parser) or(depth int) (node, error) {
	parts, err := p.list("||", depth, p.and)
	if len(parts) == 1 {
		return parts[0], err
	}
	return or(parts), err
}

func (p *parser) and(depth int) (node, error) {
	parts, err := p.list("&&", depth, p.not)
	if len(parts) == 1 {
		return parts[0], err
	}
	return and(parts), err
}

// list reads parts with an operator between them.
func (p *parser) list(by string, depth int, part func(int) (node, error)) ([]node, error) {
	var parts []node
	for {
		n, err := part(depth)
		if err != nil {
			return nil, err
		}
		parts = append(parts, n)
		if !p.take(by) {
			return parts, nil
		}
	}
}

func (p *parser) not(depth int) (node, error) {
	if depth > deepest {
		return nil, wrong(p.peek().column, "there are more than %d levels of ( and !", deepest)
	}
	switch {
	case p.take("!"):
		n, err := p.not(depth + 1)
		return not{n}, err
	case p.take("("):
		n, err := p.or(depth + 1)
		if err == nil && !p.take(")") {
			err = p.missing(")")
		}
		return n, err
	}
	return p.term()
}

func (p *parser) missing(m string) error {
	if t := p.peek(); t.kind != end {
		return p.unexpected(t)
	}
	return wrong(p.peek().column, "a %s is missing", m)
}

// comparisons are the operators of terms.
var comparisons = map[string]bool{"=": true, "!=": true, "~": true, "<": true, "<=": true, ">": true, ">=": true}

// term reads a field alone, or with an operator and a value.
func (p *parser) term() (node, error) {
	t := p.peek()
	if t.kind != word {
		if t.kind == text {
			return nil, wrong(t.column, "%q is a value, and a field is wanted", t.text).remedy("write for example: name=%s", quote(t.text))
		}
		return nil, p.unexpected(t)
	}
	f, err := fieldOf(t)
	if err != nil {
		return nil, err
	}
	p.at++
	op := p.peek()
	if op.kind != mark || !comparisons[op.text] {
		if f.truth == nil {
			return nil, wrong(t.column, "%s is not true or false by itself", f.name).remedy("compare it: %s", f.example)
		}
		return term{field: f, op: "=", value: value{text: "true", truth: true}}, nil
	}
	p.at++
	return p.compared(f, op)
}

func (p *parser) compared(f *field, op token) (node, error) {
	t := p.peek()
	if t.kind != word && t.kind != text {
		return nil, wrong(t.column, "a value is missing after %s", op.text).remedy("write for example: %s", f.example)
	}
	p.at++
	if !f.takes(op.text) {
		return nil, wrong(op.column, "%s cannot be compared by %s", f.name, op.text).remedy("write for example: %s", f.example)
	}
	v, err := f.read(t, op.text)
	if err != nil {
		return nil, err
	}
	return term{field: f, op: op.text, value: v}, nil
}

func fieldOf(t token) (*field, error) {
	for i := range fields {
		if strings.EqualFold(fields[i].name, t.text) {
			return &fields[i], nil
		}
	}
	names := make([]string, len(fields))
	for i, f := range fields {
		names[i] = f.name
	}
	err := wrong(t.column, "%q is not a field of VMs", t.text)
	if meant, ok := suggest.Word(t.text, names); ok {
		return nil, err.remedy("did you mean %s? There are: %s", meant, strings.Join(names, " "))
	}
	return nil, err.remedy("there are: %s", strings.Join(names, " "))
}

// RemedyOf returns what to write instead, if err is an *Error that knows.
func RemedyOf(err error) string {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Remedy
	}
	return ""
}
