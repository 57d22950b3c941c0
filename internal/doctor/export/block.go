package export

import (
	"fmt"
	"slices"
	"strings"
)

// A block is a block of nfs-ganesha's configuration: NAME { Key = value, value; BLOCK {
// } }. Names and keys are converted to lower case, because nfs-ganesha compares them
// without regard to case.
type block struct {
	name   string              // name in lower case; empty for the whole file
	at     Position            // position of the name
	values map[string][]string // values by key
	blocks []block             // nested blocks in order
}

// firstValue returns the first value of a key, or "" if it is absent.
func (b block) firstValue(key string) string {
	if v := b.values[key]; len(v) > 0 {
		return v[0]
	}
	return ""
}

// maxDepth is of blocks in blocks, and of files that include files; real ones are 3
// deep. maxFiles bounds what files that include each other come to.
const (
	maxDepth = 16  // limit of nested blocks and of nested includes; real files have up to 3
	maxFiles = 256 // limit of all included files, against files that include each other
)

// parseBlocks parses a configuration. include returns the files that a directive such
// as %include names. They are parsed in place of the directive. Invalid parts are
// Problems, and parsing continues.
func parseBlocks(text, file string, include func(directive, name string) []namedText) (block, []Problem) {
	p := blockParser{include: include}
	top := block{at: Position{File: file}, values: map[string][]string{}}
	p.pushFile(text, file)
	p.parseBody(&top, 0)
	return top, p.problems
}

// namedText is the text of a file with its path.
type namedText struct{ name, text string }

// blockParser is a recursive-descent parser of blocks.
type blockParser struct {
	include  func(directive, name string) []namedText // returns the files of a directive
	files    []*lexer                                 // stack of open files; the last one is read
	read     int                                      // number of included files so far
	problems []Problem                                // invalid parts in the order of the files
}

// pushFile makes text the next input.
func (p *blockParser) pushFile(text, file string) {
	p.files = append(p.files, &lexer{rest: text, at: Position{file, 1, 1}})
}

// nextToken returns the next token and its position, or "" at the end of all files. It
// processes directives.
func (p *blockParser) nextToken() (string, Position) {
	for len(p.files) > 0 {
		l := p.files[len(p.files)-1]
		t := l.nextToken()
		switch {
		case t == "":
			if len(p.files) == 1 {
				return "", l.at
			}
			p.files = p.files[:len(p.files)-1]
		case strings.HasPrefix(t, "%"):
			p.includeFiles(t, l)
		default:
			return t, l.at
		}
	}
	return "", Position{}
}

// includeFiles processes a directive: it pushes the files in reverse order, so that the
// first is read first.
func (p *blockParser) includeFiles(name string, l *lexer) {
	at, arg := l.at, unquote(l.nextToken())
	if len(p.files) >= maxDepth {
		p.addProblem(at, "%s %s: files include each other", name, arg)
		return
	}
	// The last pushed file is read first.
	for _, f := range slices.Backward(p.include(name, arg)) {
		if p.read++; p.read > maxFiles {
			p.addProblem(at, "more than %d included files", maxFiles)
			return
		}
		p.pushFile(f.text, f.name)
	}
}

// addProblem records an invalid part of the configuration.
func (p *blockParser) addProblem(at Position, format string, args ...any) {
	p.problems = append(p.problems, Problem{at, fmt.Sprintf(format, args...), "man 8 ganesha-config"})
}

// parseBody parses the contents of b up to its closing brace. The contents of the file
// itself have depth 0 and no brace.
func (p *blockParser) parseBody(b *block, depth int) {
	for {
		name, at := p.nextToken()
		switch name {
		case "":
			if depth > 0 {
				p.addProblem(b.at, "the block %s has no closing }", b.name)
			}
			return
		case "}":
			if depth > 0 {
				return
			}
			p.addProblem(at, "} without a block")
		case ";", ",", "=", "{":
			// A stray one, which nfs-ganesha refuses with more words than we have.
			p.addProblem(at, "%s instead of a name", name)
		default:
			p.parseItem(b, name, at, depth)
		}
	}
}

// parseItem parses the block or values after a name.
func (p *blockParser) parseItem(b *block, name string, at Position, depth int) {
	name = strings.ToLower(name)
	switch sign, _ := p.nextToken(); {
	case sign == "{" && depth < maxDepth:
		inner := block{name: name, at: at, values: map[string][]string{}}
		p.parseBody(&inner, depth+1)
		b.blocks = append(b.blocks, inner)
	case sign == "=":
		b.values[name] = append(b.values[name], p.parseValues()...)
	default:
		p.addProblem(at, "%q after %s instead of = or {", sign, name)
	}
}

// parseValues returns the values up to the semicolon. If it is missing, a closing brace
// is kept for the block.
func (p *blockParser) parseValues() (values []string) {
	for {
		switch t, at := p.nextToken(); t {
		case ";":
			return values
		case ",":
		case "", "}", "{", "=":
			p.addProblem(at, "a value without ; at its end")
			// The brace belongs to the enclosing block, so it is read again.
			if f := len(p.files) - 1; t == "}" && f >= 0 {
				p.files[f].rest = "}" + p.files[f].rest
			}
			return values
		default:
			values = append(values, unquote(t))
		}
	}
}

// A lexer splits a text into signs, words, and strings with their quotes.
type lexer struct {
	rest string   // text that was not read yet
	at   Position // position of rest
}

// nextToken returns the next token, or "" at the end. An unclosed string extends to the
// end of the text.
func (l *lexer) nextToken() string {
	l.skipSpace()
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
	return l.consume(n)
}

// skipSpace skips white space and comments.
func (l *lexer) skipSpace() {
	for l.rest != "" {
		switch c := l.rest[0]; {
		case c == '#':
			if end := strings.IndexByte(l.rest, '\n'); end >= 0 {
				l.rest = l.rest[end:]
			} else {
				l.rest = ""
			}
		case c == ' ' || c == '\t' || c == '\r' || c == '\n':
			l.consume(1)
		default:
			return
		}
	}
}

// consume removes and returns n bytes, and updates the line number.
func (l *lexer) consume(n int) string {
	t := l.rest[:n]
	l.rest = l.rest[n:]
	l.at.First += strings.Count(t, "\n")
	l.at.Last = l.at.First
	return t
}

// unquote removes one pair of equal quotes around t.
func unquote(t string) string {
	if len(t) >= 2 && (t[0] == '"' || t[0] == '\'') && t[0] == t[len(t)-1] {
		return t[1 : len(t)-1]
	}
	return t
}
