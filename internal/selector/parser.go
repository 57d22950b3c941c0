package selector

import (
	"errors"
	"strings"

	"github.com/decamp/decamp/internal/suggest"
)

// Parse parses an expression. Its errors are of type *Error.
func Parse(s string) (Expr, error) {
	tokens, err := splitTokens(s)
	if err != nil {
		return Expr{}, err
	}
	p := &parser{tokens: tokens}
	if p.peek().kind == end {
		return Expr{}, newError(1, "the expression is empty").withRemedy("write for example: folder=prod && !poweredOn")
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

// A parser parses tokens by recursive descent, with one method for each level of precedence.
type parser struct {
	tokens []token // tokens; the last one is end
	pos    int     // index of the next token
}

// peek returns the next token without consuming it.
func (p *parser) peek() token { return p.tokens[p.pos] }

// skipMark consumes the next token if it is the mark m, and reports whether it was.
func (p *parser) skipMark(m string) bool {
	if t := p.peek(); t.kind != mark || t.text != m {
		return false
	}
	p.pos++
	return true
}

// unexpectedError returns the error for a token that is not valid at its position.
func (p *parser) unexpectedError(t token) error {
	switch {
	case t.kind == end:
		return newError(t.column, "the expression ends too early")
	case t.kind == mark && t.text == ")":
		return newError(t.column, "there is a ) without a (")
	case t.kind == mark:
		return newError(t.column, "unexpected %s", t.text)
	case strings.EqualFold(t.text, "and"):
		return newError(t.column, "%q is not an operator", t.text).withRemedy("write &&")
	case strings.EqualFold(t.text, "or"):
		return newError(t.column, "%q is not an operator", t.text).withRemedy("write ||")
	}
	return newError(t.column, "unexpected %q", t.text).
		withRemedy("join terms with && or ||, and put values with spaces in quotes")
}

// parseOr parses operands of ||. depth counts enclosing parentheses and negations.
func (p *parser) parseOr(depth int) (node, error) {
	parts, err := p.parseList("||", depth, p.parseAnd)
	if len(parts) == 1 {
		return parts[0], err
	}
	return orNode(parts), err
}

// parseAnd parses operands of &&.
func (p *parser) parseAnd(depth int) (node, error) {
	parts, err := p.parseList("&&", depth, p.parseNot)
	if len(parts) == 1 {
		return parts[0], err
	}
	return andNode(parts), err
}

// parseList parses one or more operands with the operator by between them.
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

// parseNot parses a negation, a group in parentheses, or a term. It fails if they are nested deeper
// than maxDepth.
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

// missingError returns the error for a missing mark m.
func (p *parser) missingError(m string) error {
	if t := p.peek(); t.kind != end {
		return p.unexpectedError(t)
	}
	return newError(p.peek().column, "a %s is missing", m)
}

// comparisons are the operators of terms.
var comparisons = map[string]bool{"=": true, "!=": true, "~": true, "<": true, "<=": true, ">": true, ">=": true}

// parseTerm parses a boolean field alone, or a field with an operator and a value.
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
			return nil, newError(t.column, "%s is not a boolean field", f.name).withRemedy("compare it: %s", f.example)
		}
		return term{field: f, op: "=", value: value{text: "true", boolean: true}}, nil
	}
	p.pos++
	return p.parseComparison(f, op)
}

// parseComparison parses the value after the operator op.
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

// fieldOf returns the field with the name of a token. The error suggests the nearest name.
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
		return nil, err.withRemedy("did you mean %s? The fields are: %s", meant, strings.Join(names, " "))
	}
	return nil, err.withRemedy("the fields are: %s", strings.Join(names, " "))
}

// RemedyOf returns the remedy of err if it is an *Error; otherwise an empty text.
func RemedyOf(err error) string {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Remedy
	}
	return ""
}
