package lvm

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/decamp/decamp/internal/guest/budget"
)

const (
	maxDepth = 8   // maximum depth of nested sections; lvm2 writes five levels
	maxName  = 128 // bytes of a section's name, as in lvm2

	// What a section, a value and an element of an array take of memory, in bytes, about.
	sectionMemory = 1024
	valueMemory   = 192
	elementMemory = 40
)

// A text is one section of LVM's configuration format: assignments and sections.
type text struct {
	name     string
	values   map[string][]string // an array has several, all else one
	sections map[string]*text
	order    []string // the names of the sections
}

func newText() *text { return &text{values: map[string][]string{}, sections: map[string]*text{}} }

// number returns the integer at key, or -1.
func (t *text) number(key string) int64 {
	if v := t.values[key]; len(v) == 1 {
		if n, err := strconv.ParseInt(v[0], 10, 64); err == nil && n >= 0 {
			return n
		}
	}
	return -1
}

func (t *text) string(key string) string {
	if v := t.values[key]; len(v) == 1 {
		return v[0]
	}
	return ""
}

// section returns the section of that name; an empty one if it does not exist.
func (t *text) section(name string) *text {
	if s := t.sections[name]; s != nil {
		return s
	}
	return newText()
}

// parse reads a text. Its work is linear in the length of s; its memory is charged.
func parse(b *budget.Budget, s string) (*text, error) {
	p := &parser{rest: s, budget: b}
	t, err := p.section(0)
	if err != nil {
		return nil, fmt.Errorf("at byte %d: %w", len(s)-len(p.rest), err)
	}
	return t, nil
}

type parser struct {
	rest   string
	budget *budget.Budget
}

// token returns the next word, string (with its first quote) or sign; "" at the end.
func (p *parser) token() (string, error) {
	for {
		if err := p.budget.Step(1); err != nil {
			return "", err
		}
		p.rest = strings.TrimLeft(p.rest, " \t\r\n")
		if !strings.HasPrefix(p.rest, "#") {
			break
		}
		_, p.rest, _ = strings.Cut(p.rest, "\n")
	}
	switch {
	case p.rest == "":
		return "", nil
	case p.rest[0] == '"':
		return p.quoted()
	case strings.IndexByte("{}[]=,", p.rest[0]) >= 0:
		return p.take(1), nil
	}
	end := strings.IndexAny(p.rest, " \t\r\n{}[]=,#\"")
	if end < 0 {
		end = len(p.rest)
	}
	return p.take(end), nil
}

func (p *parser) take(n int) string {
	taken := p.rest[:n]
	p.rest = p.rest[n:]
	return taken
}

func (p *parser) quoted() (string, error) {
	var b strings.Builder
	for i := 0; i < len(p.rest); i++ {
		switch c := p.rest[i]; {
		case c == '"' && i > 0:
			p.rest = p.rest[i+1:]
			return b.String(), nil
		case c == '\\' && i+1 < len(p.rest):
			i++
			b.WriteByte(p.rest[i])
		default:
			b.WriteByte(c)
		}
	}
	return "", errors.New("a string without an end")
}

// section reads to the brace that ends it, or to the end of the text.
func (p *parser) section(depth int) (*text, error) {
	if depth > maxDepth {
		return nil, fmt.Errorf("more than %d levels of sections", maxDepth)
	}
	t := newText()
	for {
		name, err := p.token()
		if err != nil {
			return nil, err
		}
		if name == "" && depth == 0 || name == "}" && depth > 0 {
			return t, nil
		}
		if name == "" || strings.Contains("{}[]=,", name) {
			return nil, fmt.Errorf("%q where a name is expected", name)
		}
		if err := p.entry(t, name, depth); err != nil {
			return nil, err
		}
	}
}

// entry reads what follows a name: a section or a value.
func (p *parser) entry(t *text, name string, depth int) error {
	sign, err := p.token()
	switch {
	case err != nil:
		return err
	case sign == "{" && len(name) > maxName:
		return fmt.Errorf("a name of %d bytes", len(name))
	case sign == "{":
		if err := p.budget.Hold(sectionMemory); err != nil {
			return err
		}
		inner, err := p.section(depth + 1)
		if err != nil {
			return err
		}
		t.sections[name] = inner
		t.order = append(t.order, name)
		return nil
	case sign == "=":
		if err := p.budget.Hold(valueMemory); err != nil {
			return err
		}
		t.values[name], err = p.value()
		return err
	}
	return fmt.Errorf("%q after %q", sign, name)
}

func (p *parser) value() ([]string, error) {
	v, err := p.token()
	if err != nil || v != "[" {
		return []string{strings.TrimPrefix(v, `"`)}, err
	}
	var all []string
	for {
		switch v, err = p.token(); {
		case err != nil || v == "":
			return nil, errors.Join(err, errors.New("an array without an end"))
		case v == "]":
			return all, nil
		case v != ",":
			if err := p.budget.Hold(elementMemory); err != nil {
				return nil, err
			}
			all = append(all, strings.TrimPrefix(v, `"`))
		}
	}
}
