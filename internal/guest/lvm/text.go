package lvm

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/decamp/decamp/internal/guest/budget"
)

const (
	maxDepth = 8   // levels of sections; lvm2 writes five
	maxName  = 128 // bytes of a section's name, as in lvm2

	// approximate memory of a section, in bytes
	sectionMemory = 1024
	valueMemory   = 192 // approximate memory of a value, in bytes
	elementMemory = 40  // approximate memory of an element of an array, in bytes
)

// A text is one section in LVM's configuration format: values and subsections.
type text struct {
	name     string              // name of a volume group; empty for other sections
	values   map[string][]string // values by key; only arrays have other than one element
	sections map[string]*text    // subsections by name
	order    []string            // names of the subsections in the order of the text
}

// newText returns an empty section.
func newText() *text { return &text{values: map[string][]string{}, sections: map[string]*text{}} }

// numberValue returns the integer of a key; -1 if it does not exist or is negative.
func (t *text) numberValue(key string) int64 {
	if v := t.values[key]; len(v) == 1 {
		if n, err := strconv.ParseInt(v[0], 10, 64); err == nil && n >= 0 {
			return n
		}
	}
	return -1
}

// textValue returns the value of a key; empty if it does not exist or is an array.
func (t *text) textValue(key string) string {
	if v := t.values[key]; len(v) == 1 {
		return v[0]
	}
	return ""
}

// subsection returns the subsection of a name; an empty one if it does not exist.
func (t *text) subsection(name string) *text {
	if s := t.sections[name]; s != nil {
		return s
	}
	return newText()
}

// parseText parses s. The time is linear in the length of s, and the memory is charged to b.
func parseText(b *budget.Budget, s string) (*text, error) {
	p := &parser{rest: s, budget: b}
	t, err := p.parseSection(0)
	if err != nil {
		return nil, fmt.Errorf("at byte %d: %w", len(s)-len(p.rest), err)
	}
	return t, nil
}

// A parser parses one text.
type parser struct {
	rest   string         // part that was not parsed yet
	budget *budget.Budget // budget for tokens and memory
}

// nextToken returns the next word, string (with its first quote) or sign; empty at the end of the text.
// It skips spaces and comments.
func (p *parser) nextToken() (string, error) {
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
		return p.parseQuoted()
	case strings.IndexByte("{}[]=,", p.rest[0]) >= 0:
		return p.takeBytes(1), nil
	}
	end := strings.IndexAny(p.rest, " \t\r\n{}[]=,#\"")
	if end < 0 {
		end = len(p.rest)
	}
	return p.takeBytes(end), nil
}

// takeBytes returns the next n bytes.
func (p *parser) takeBytes(n int) string {
	taken := p.rest[:n]
	p.rest = p.rest[n:]
	return taken
}

// parseQuoted returns a string without its last quote; a backslash escapes the next character.
func (p *parser) parseQuoted() (string, error) {
	var b strings.Builder
	for i := 0; i < len(p.rest); i++ {
		switch c := p.rest[i]; {
		// Index 0 is the opening quote.
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

// parseSection parses a section up to its closing brace, or the whole text at depth 0.
func (p *parser) parseSection(depth int) (*text, error) {
	if depth > maxDepth {
		return nil, fmt.Errorf("more than %d levels of sections", maxDepth)
	}
	t := newText()
	for {
		name, err := p.nextToken()
		if err != nil {
			return nil, err
		}
		if name == "" && depth == 0 || name == "}" && depth > 0 {
			return t, nil
		}
		if name == "" || strings.Contains("{}[]=,", name) {
			return nil, fmt.Errorf("%q where a name is expected", name)
		}
		if err := p.parseEntry(t, name, depth); err != nil {
			return nil, err
		}
	}
}

// parseEntry parses the subsection or value that follows a name, and adds it to t.
func (p *parser) parseEntry(t *text, name string, depth int) error {
	sign, err := p.nextToken()
	switch {
	case err != nil:
		return err
	case sign == "{" && len(name) > maxName:
		return fmt.Errorf("a name of %d bytes", len(name))
	case sign == "{":
		if err := p.budget.Hold(sectionMemory); err != nil {
			return err
		}
		inner, err := p.parseSection(depth + 1)
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
		t.values[name], err = p.parseValue()
		return err
	}
	return fmt.Errorf("%q after %q", sign, name)
}

// parseValue parses a value; an array has several elements, others one.
func (p *parser) parseValue() ([]string, error) {
	v, err := p.nextToken()
	if err != nil || v != "[" {
		return []string{strings.TrimPrefix(v, `"`)}, err
	}
	var all []string
	for {
		switch v, err = p.nextToken(); {
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
