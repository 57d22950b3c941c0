package selector

import (
	"errors"
	"strings"

	"github.com/decamp/decamp/internal/suggest"
)

// Parse reads an expression. Its errors are *Error.
func Parse(s string) (Expr, error) {
	tokens, err := splitTokens(s)
	if err != nil {
		return Expr{}, err
	}
	p := &parser{tokens: tokens}
	if p.peek().kind == end {
		return Expr{}, newError(1, "there is no expression").withRemedy("write for example: folder=prod && !poweredOn")
	}
	root, err := p.parseOr(0)
	if err != nil {
		return Expr{}, err
	}
	if t := p.peek(); t.kind != end {
		return Expr{}, p.unexpectedError(t)
	}
	return Expr{root}, nil
}

// parser goes through the tokens, one method for each level of binding.
type parser struct {
	tokens []token
	pos    int
}

func (p *parser) peek() token { return p.tokens[p.pos] }

// skipMark goes over the mark if it is the next token.
func (p *parser) skipMark(m string) bool {
	if t := p.peek(); t.kind != mark || t.text != m {
		return false
	}
	p.pos++
	return true
}

func (p *parser) unexpectedError(t token) error {
	switch {
	case t.kind == end:
		return newError(t.column, "the expression ends too early")
	case t.kind == mark && t.text == ")":
		return newError(t.column, "there is a ) without its (")
	case t.kind == mark:
		return newError(t.column, "%s cannot stand here", t.text)
	case strings.EqualFold(t.text, "and"):
		return newError(t.column, "%q is not an operator", t.text).withRemedy("write &&")
	case strings.EqualFold(t.text, "or"):
		return newError(t.column, "%q is not an operator", t.text).withRemedy("write ||")
	}
	return newError(t.column, "%q cannot stand here", t.text).
		withRemedy("join terms with && or ||, and put values with blanks in quotes")
}

func (p *parser) parseOr(depth int) (node, error) {
	parts, err := p.parseList("||", depth, p.parseAnd)
	if len(parts) == 1 {
		return parts[0], err
	}
	return orNode(parts), err
}

func (p *parser) parseAnd(depth int) (node, error) {
	parts, err := p.parseList("&&", depth, p.parseNot)
	if len(parts) == 1 {
		return parts[0], err
	}
	return andNode(parts), err
}

// parseList reads parts with an operator between them.
func (p *parser) parseList(by string, depth int, part func(int) (node, error)) ([]node, error) {
	var parts []node
	for {
		n, err := part(depth)
		if err != nil {
			return nil, err
		}
		parts = append(parts, n)
		if !p.skipMark(by) {
			return parts, nil
		}
	}
}

func (p *parser) parseNot(depth int) (node, error) {
	if depth > maxDepth {
		return nil, newError(p.peek().column, "there are more than %d levels of ( and !", maxDepth)
	}
	switch {
	case p.skipMark("!"):
		n, err := p.parseNot(depth + 1)
		return notNode{n}, err
	case p.skipMark("("):
		n, err := p.parseOr(depth + 1)
		if err == nil && !p.skipMark(")") {
			err = p.missingError(")")
		}
		return n, err
	}
	return p.parseTerm()
}

func (p *parser) missingError(m string) error {
	if t := p.peek(); t.kind != end {
		return p.unexpectedError(t)
	}
	return newError(p.peek().column, "a %s is missing", m)
}

// comparisons are the operators of terms.
var comparisons = map[string]bool{"=": true, "!=": true, "~": true, "<": true, "<=": true, ">": true, ">=": true}

// parseTerm reads a field alone, or with an operator and a value.
func (p *parser) parseTerm() (node, error) {
	t := p.peek()
	if t.kind != word {
		if t.kind == text {
			return nil, newError(t.column, "%q is a value, and a field is wanted", t.text).withRemedy("write for example: name=%s", quoteValue(t.text))
		}
		return nil, p.unexpectedError(t)
	}
	f, err := fieldOf(t)
	if err != nil {
		return nil, err
	}
	p.pos++
	op := p.peek()
	if op.kind != mark || !comparisons[op.text] {
		if f.boolOf == nil {
			return nil, newError(t.column, "%s is not true or false by itself", f.name).withRemedy("compare it: %s", f.example)
		}
		return term{field: f, op: "=", value: value{text: "true", truth: true}}, nil
	}
	p.pos++
	return p.parseComparison(f, op)
}

func (p *parser) parseComparison(f *field, op token) (node, error) {
	t := p.peek()
	if t.kind != word && t.kind != text {
		return nil, newError(t.column, "a value is missing after %s", op.text).withRemedy("write for example: %s", f.example)
	}
	p.pos++
	if !f.acceptsOperator(op.text) {
		return nil, newError(op.column, "%s cannot be compared by %s", f.name, op.text).withRemedy("write for example: %s", f.example)
	}
	v, err := f.parseValue(t, op.text)
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
	err := newError(t.column, "%q is not a field of VMs", t.text)
	if meant, ok := suggest.Word(t.text, names); ok {
		return nil, err.withRemedy("did you mean %s? There are: %s", meant, strings.Join(names, " "))
	}
	return nil, err.withRemedy("there are: %s", strings.Join(names, " "))
}

// RemedyOf returns what to write instead, if err is an *Error that knows.
func RemedyOf(err error) string {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Remedy
	}
	return ""
}
