package export

import (
	"fmt"
	"slices"
	"strings"
)

// A block is one of nfs-ganesha's configuration: NAME { Key = value, value; BLOCK { } }. Names
// and keys are in lower case, as they are compared.
type block struct {
	name   string
	at     Place
	values map[string][]string
	blocks []block
}

// value returns a key's first value, "" if it is not there.
func (b block) value(key string) string {
	if v := b.values[key]; len(v) > 0 {
		return v[0]
	}
	return ""
}

// maxDepth is of blocks in blocks, and of files that include files; real ones are 3 deep.
// maxFiles bounds what files that include each other come to.
const (
	maxDepth = 16
	maxFiles = 256
)

// parseBlocks reads a configuration. include returns the text of the files that a directive
// takes in; they are read as if they stood there.
func parseBlocks(text, file string, include func(directive, name string) []namedText) (block, []Problem) {
	p := blockParser{include: include}
	top := block{at: Place{File: file}, values: map[string][]string{}}
	p.push(text, file)
	p.body(&top, 0)
	return top, p.problems
}

type namedText struct{ name, text string }

type blockParser struct {
	include  func(directive, name string) []namedText
	files    []*lexer // the last one is being read
	read     int      // files that were taken in
	problems []Problem
}

// push has a text read next.
func (p *blockParser) push(text, file string) {
	p.files = append(p.files, &lexer{rest: text, at: Place{file, 1, 1}})
}

// next returns a token and where it is; "" at the end of all files.
func (p *blockParser) next() (string, Place) {
	for len(p.files) > 0 {
		l := p.files[len(p.files)-1]
		t := l.token()
		switch {
		case t == "":
			if len(p.files) == 1 {
				return "", l.at
			}
			p.files = p.files[:len(p.files)-1]
		case strings.HasPrefix(t, "%"):
			p.directive(t, l)
		default:
			return t, l.at
		}
	}
	return "", Place{}
}

func (p *blockParser) directive(name string, l *lexer) {
	at, arg := l.at, unquote(l.token())
	if len(p.files) >= maxDepth {
		p.problem(at, "%s %s: files take in each other", name, arg)
		return
	}
	for _, f := range slices.Backward(p.include(name, arg)) {
		if p.read++; p.read > maxFiles {
			p.problem(at, "more than %d files", maxFiles)
			return
		}
		p.push(f.text, f.name)
	}
}

func (p *blockParser) problem(at Place, format string, args ...any) {
	p.problems = append(p.problems, Problem{at, fmt.Sprintf(format, args...), "see man 8 ganesha-config"})
}

// body parses the content of b, to its closing brace.
func (p *blockParser) body(b *block, depth int) {
	for {
		name, at := p.next()
		switch name {
		case "":
			if depth > 0 {
				p.problem(b.at, "the block %s is not closed", b.name)
			}
			return
		case "}":
			if depth > 0 {
				return
			}
			p.problem(at, "a } closes nothing")
		case ";", ",", "=", "{":
			// A stray one, which nfs-ganesha refuses with more words than we have.
			p.problem(at, "%s stands where a name should", name)
		default:
			p.item(b, name, at, depth)
		}
	}
}

// item reads what follows a name: a block or a value.
func (p *blockParser) item(b *block, name string, at Place, depth int) {
	name = strings.ToLower(name)
	switch sign, _ := p.next(); {
	case sign == "{" && depth < maxDepth:
		inner := block{name: name, at: at, values: map[string][]string{}}
		p.body(&inner, depth+1)
		b.blocks = append(b.blocks, inner)
	case sign == "=":
		b.values[name] = append(b.values[name], p.list()...)
	default:
		p.problem(at, "after %s there is %q, and no = or {", name, sign)
	}
}

// list reads values to the semicolon.
func (p *blockParser) list() (values []string) {
	for {
		switch t, at := p.next(); t {
		case ";":
			return values
		case ",":
		case "", "}", "{", "=":
			p.problem(at, "a value does not end in ;")
			if f := len(p.files) - 1; t == "}" && f >= 0 {
				p.files[f].rest = "}" + p.files[f].rest
			}
			return values
		default:
			values = append(values, unquote(t))
		}
	}
}

// A lexer divides a text into signs, words, and strings with their quotes.
type lexer struct {
	rest string
	at   Place
}

func (l *lexer) token() string {
	l.skip()
	if l.rest == "" {
		return ""
	}
	n := 1
	switch c := l.rest[0]; {
	case c == '"' || c == '\'':
		if end := strings.IndexByte(l.rest[1:], c); end >= 0 {
			n = end + 2
		} else {
			n = len(l.rest)
		}
	case !strings.ContainsRune("{}=;,", rune(c)):
		if n = strings.IndexAny(l.rest, " \t\r\n{}=;,#\"'"); n < 0 {
			n = len(l.rest)
		}
	}
	return l.take(n)
}

// skip passes white space and comments.
func (l *lexer) skip() {
	for l.rest != "" {
		switch c := l.rest[0]; {
		case c == '#':
			if end := strings.IndexByte(l.rest, '\n'); end >= 0 {
				l.rest = l.rest[end:]
			} else {
				l.rest = ""
			}
		case c == ' ' || c == '\t' || c == '\r' || c == '\n':
			l.take(1)
		default:
			return
		}
	}
}

func (l *lexer) take(n int) string {
	t := l.rest[:n]
	l.rest = l.rest[n:]
	l.at.First += strings.Count(t, "\n")
	l.at.Last = l.at.First
	return t
}

func unquote(t string) string {
	if len(t) >= 2 && (t[0] == '"' || t[0] == '\'') && t[0] == t[len(t)-1] {
		return t[1 : len(t)-1]
	}
	return t
}
