package shell

import (
	"errors"
	"fmt"
	"strings"
)

// A token is a word or an operator of a script.
type token struct {
	op   string // operator; empty for a word
	word word   // parts of a word; nil for an operator
	fd   int    // file descriptor in front of < or >; -1 if none is given
}

// A word is a sequence of parts that expands to zero or more fields.
type word []part

// A part is a piece of a word with one kind of quoting and expansion.
type part struct {
	text   string // literal text, or the name of a parameter
	quoted bool   // whether the value is protected from field splitting and patterns
	param  bool   // whether text is the name of a parameter
	subst  list   // commands of $(...); nil for other parts
}

// isReserved reports whether the word is the reserved word s: unquoted and in one piece.
func (w word) isReserved(s string) bool {
	return len(w) == 1 && !w[0].quoted && !w[0].param && w[0].subst == nil && w[0].text == s
}

var (
	errQuote = errors.New("unterminated quoted string") // a quoted string without an end
	errDeep  = errors.New("nested too deeply")          // nesting beyond maxDepth
)

// maxDepth limits the recursion of the parser, so that hostile commands cannot exhaust the stack.
const maxDepth = 50

// operators lists the operators of the shell. An operator comes before its prefixes, so that the
// longest one is found.
var operators = []string{"&&", "||", ">>", ">&", ";", "&", "|", "(", ")", "<", ">", "\n"}

// A lexer splits a script into tokens.
type lexer struct {
	s     string // the whole script
	i     int    // offset of the next byte
	depth int    // nesting of $(...)
}

// allTokens returns all tokens of the script.
func (x *lexer) allTokens() (tokens []token, err error) {
	for {
		x.skipBlanks()
		if x.i >= len(x.s) {
			return tokens, nil
		}
		t, err := x.nextToken()
		if err != nil {
			return nil, err
		}
		tokens = append(tokens, t)
	}
}

// skipBlanks skips white space, comments and escaped newlines. A newline is a token and stays.
func (x *lexer) skipBlanks() {
	for x.i < len(x.s) {
		switch c := x.s[x.i]; {
		case c == ' ' || c == '\t' || c == '\r': // white space within a line
			x.i++
		case strings.HasPrefix(x.s[x.i:], "\\\n"): // continuation line
			x.i += 2
		case c == '#': // comment up to the end of the line
			for x.i < len(x.s) && x.s[x.i] != '\n' {
				x.i++
			}
		default:
			return
		}
	}
}

// nextToken returns the token at the offset, which must not be the end of the script.
func (x *lexer) nextToken() (token, error) {
	fd := -1
	if rest := x.s[x.i:]; len(rest) > 1 && rest[0] >= '0' && rest[0] <= '9' && (rest[1] == '<' || rest[1] == '>') {
		fd = int(rest[0] - '0')
		x.i++
	}
	for _, op := range operators {
		if strings.HasPrefix(x.s[x.i:], op) {
			x.i += len(op)
			return token{op: op, fd: fd}, nil
		}
	}
	w, err := x.readWord()
	return token{word: w, fd: -1}, err
}

// readWord reads a word up to an unquoted blank or operator.
func (x *lexer) readWord() (w word, err error) {
	var lit strings.Builder
	flush := func() {
		if lit.Len() > 0 {
			w = append(w, part{text: lit.String()})
			lit.Reset()
		}
	}
	for x.i < len(x.s) && !strings.ContainsRune(" \t\r\n;&|()<>", rune(x.s[x.i])) {
		switch x.s[x.i] {
		case '\\': // the next character is literal; a newline is removed
			x.i++
			if x.i < len(x.s) {
				flush()
				if x.s[x.i] != '\n' {
					w = append(w, part{text: x.s[x.i : x.i+1], quoted: true})
				}
				x.i++
			}
		case '\'': // everything up to the next quote is literal
			end := strings.IndexByte(x.s[x.i+1:], '\'')
			if end < 0 {
				return nil, errQuote
			}
			flush()
			w = append(w, part{text: x.s[x.i+1 : x.i+1+end], quoted: true})
			x.i += end + 2
		case '"':
			flush()
			parts, err := x.readDoubleQuoted()
			if err != nil {
				return nil, err
			}
			w = append(w, parts...)
		case '$':
			p, err := x.readDollar(false)
			if err != nil {
				return nil, err
			}
			flush()
			w = append(w, p)
		case '`':
			return nil, errors.New("backquotes are not supported")
		default:
			lit.WriteByte(x.s[x.i])
			x.i++
		}
	}
	flush()
	return w, nil
}

// readDoubleQuoted reads a string in double quotes. Inside, $ expands, and a backslash escapes only $ `
// " \ and a newline (POSIX shell, section 2.2.3).
func (x *lexer) readDoubleQuoted() (w word, err error) {
	x.i++
	w = word{{quoted: true}} // "" is a field
	var lit strings.Builder
	for ; x.i < len(x.s); x.i++ {
		switch c := x.s[x.i]; {
		case c == '"':
			x.i++
			return append(w, part{text: lit.String(), quoted: true}), nil
		case c == '\\' && x.i+1 < len(x.s) && strings.IndexByte("$`\"\\\n", x.s[x.i+1]) >= 0:
			x.i++
			if x.s[x.i] != '\n' {
				lit.WriteByte(x.s[x.i])
			}
		case c == '$':
			w = append(w, part{text: lit.String(), quoted: true})
			lit.Reset()
			p, err := x.readDollar(true)
			if err != nil {
				return nil, err
			}
			w = append(w, p)
			x.i-- // the loop advances again
		default:
			lit.WriteByte(c)
		}
	}
	return nil, errQuote
}

// readDollar reads an expansion: a parameter or $(...). A $ without a name after it is literal.
func (x *lexer) readDollar(quoted bool) (part, error) {
	x.i++
	rest := x.s[x.i:]
	switch {
	case strings.HasPrefix(rest, "("): // $(...)
		return x.readSubstitution(quoted)
	case strings.HasPrefix(rest, "{"): // ${NAME}
		end := strings.IndexByte(rest, '}')
		if end < 0 || !isName(rest[1:end]) {
			return part{}, fmt.Errorf("bad substitution: ${%.20s", rest[1:])
		}
		x.i += end + 1
		return part{text: rest[1:end], param: true, quoted: quoted}, nil
	case rest != "" && strings.IndexByte("?!$@*#0123456789", rest[0]) >= 0:
		x.i++
		return part{text: rest[:1], param: true, quoted: quoted}, nil
	}
	n := 0
	for n < len(rest) && isName(rest[:n+1]) {
		n++
	}
	x.i += n
	if n == 0 { // no name: a literal $
		return part{text: "$", quoted: quoted}, nil
	}
	return part{text: rest[:n], param: true, quoted: quoted}, nil
}

// readSubstitution reads $(...). It finds the end by splitting the content into tokens, so that quoted
// parentheses do not count.
func (x *lexer) readSubstitution(quoted bool) (part, error) {
	if x.depth++; x.depth > maxDepth {
		return part{}, errDeep
	}
	defer func() { x.depth-- }()
	x.i++
	inner := &lexer{s: x.s, i: x.i, depth: x.depth}
	var tokens []token
	for open := 1; ; {
		inner.skipBlanks()
		if inner.i >= len(inner.s) {
			return part{}, errors.New("unterminated $(")
		}
		t, err := inner.nextToken()
		if err != nil {
			return part{}, err
		}
		if t.op == "(" { // nested parentheses
			open++
		}
		if t.op == ")" {
			if open--; open == 0 {
				break
			}
		}
		tokens = append(tokens, t)
	}
	x.i = inner.i
	body, err := parseTokens(tokens, x.depth)
	if body == nil {
		body = list{}
	}
	return part{subst: body, quoted: quoted}, err
}

// isName reports whether s is a valid name of a variable.
func isName(s string) bool {
	for i, c := range []byte(s) {
		letter := c == '_' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
		if !letter && (i == 0 || c < '0' || c > '9') {
			return false
		}
	}
	return s != ""
}
