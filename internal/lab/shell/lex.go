package shell

import (
	"errors"
	"fmt"
	"strings"
)

// A token is a word, or an operator.
type token struct {
	op   string // empty for a word
	word word
	fd   int // before < and >: the number written there, or -1
}

// A word expands to one or more fields.
type word []part

// A part is a stretch of a word.
type part struct {
	text   string
	quoted bool // is not split into fields
	param  bool // text is a parameter's name
	subst  list // $(...), if not nil
}

// isReserved reports whether the word is this reserved word: unquoted, in one piece.
func (w word) isReserved(s string) bool {
	return len(w) == 1 && !w[0].quoted && !w[0].param && w[0].subst == nil && w[0].text == s
}

var (
	errQuote = errors.New("unterminated quoted string")
	errDeep  = errors.New("nested too deeply")
)

// maxDepth bounds what a hostile command can make the parser recurse into.
const maxDepth = 50

// operators, longest first.
var operators = []string{"&&", "||", ">>", ">&", ";", "&", "|", "(", ")", "<", ">", "\n"}

type lexer struct {
	s     string
	i     int
	depth int
}

// allTokens splits the input into tokens.
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

func (x *lexer) skipBlanks() {
	for x.i < len(x.s) {
		switch c := x.s[x.i]; {
		case c == ' ' || c == '\t' || c == '\r':
			x.i++
		case strings.HasPrefix(x.s[x.i:], "\\\n"):
			x.i += 2
		case c == '#':
			for x.i < len(x.s) && x.s[x.i] != '\n' {
				x.i++
			}
		default:
			return
		}
	}
}

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
		case '\\':
			x.i++
			if x.i < len(x.s) {
				flush()
				if x.s[x.i] != '\n' {
					w = append(w, part{text: x.s[x.i : x.i+1], quoted: true})
				}
				x.i++
			}
		case '\'':
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

// readDoubleQuoted takes a "..." string: $ keeps its meaning, and \ before $ ` " \ and a newline.
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
			x.i--
		default:
			lit.WriteByte(c)
		}
	}
	return nil, errQuote
}

// readDollar takes what follows a $.
func (x *lexer) readDollar(quoted bool) (part, error) {
	x.i++
	rest := x.s[x.i:]
	switch {
	case strings.HasPrefix(rest, "("):
		return x.readSubstitution(quoted)
	case strings.HasPrefix(rest, "{"):
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
	if n == 0 {
		return part{text: "$", quoted: quoted}, nil
	}
	return part{text: rest[:n], param: true, quoted: quoted}, nil
}

// readSubstitution takes $(...): it finds the end by lexing, so that quotes inside count.
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
		if t.op == "(" {
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

func isName(s string) bool {
	for i, c := range []byte(s) {
		letter := c == '_' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
		if !letter && (i == 0 || c < '0' || c > '9') {
			return false
		}
	}
	return s != ""
}
