package selector

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// A token is a word, a quoted text, a mark, or the end of the expression.
type token struct {
	kind   tokenKind // kind of the token
	text   string    // without its quotes
	column int       // column, from 1, in characters
}

// tokenKind is the kind of a token.
type tokenKind uint8

const (
	end  tokenKind = iota // end of the expression
	word                  // a field or a value
	text                  // a value in quotes
	mark                  // an operator or a parenthesis
)

// marks are all operators and parentheses. Longer ones precede their prefixes, because nextToken takes
// the first match.
var marks = []string{"&&", "||", "!=", "<=", ">=", "=", "<", ">", "~", "!", "(", ")"}

// foreignOperators maps operators of other languages to those of selectors, for remedies.
var foreignOperators = map[string]string{"==": "=", "=~": "~", "!~": "!(field ~ pattern)", "<>": "!=", "&": "&&", "|": "||"}

// splitTokens splits an expression into tokens. The last one is end.
func splitTokens(s string) ([]token, error) {
	if len(s) > maxBytes {
		return nil, newError(1, "the expression is longer than %d bytes", maxBytes)
	}
	var tokens []token
	column := 1
	for {
		blanks := len(s) - len(strings.TrimLeftFunc(s, unicode.IsSpace))
		column += utf8.RuneCountInString(s[:blanks])
		s = s[blanks:]
		if s == "" {
			return append(tokens, token{end, "", column}), nil
		}
		t, n, err := nextToken(s, column)
		if err != nil {
			return nil, err
		}
		tokens = append(tokens, t)
		column += utf8.RuneCountInString(s[:n])
		s = s[n:]
	}
}

// nextToken returns the first token of s, which does not begin with a space, and its length in bytes.
// column is the column of s in the expression.
func nextToken(s string, column int) (token, int, error) {
	for wrote, want := range foreignOperators {
		if len(wrote) == 2 && strings.HasPrefix(s, wrote) {
			return token{}, 0, newError(column, "%s is not an operator", wrote).withRemedy("write %s", want)
		}
	}
	for _, m := range marks {
		if strings.HasPrefix(s, m) {
			return token{mark, m, column}, len(m), nil
		}
	}
	switch s[0] {
	case '"', '\'':
		return readQuoted(s, column)
	case '&', '|':
		return token{}, 0, newError(column, "%s is not an operator", s[:1]).withRemedy("write %s", foreignOperators[s[:1]])
	}
	n := strings.IndexFunc(s, func(r rune) bool { return !isWord(r) })
	if n < 0 {
		n = len(s)
	}
	if n == 0 {
		r, _ := utf8.DecodeRuneInString(s)
		return token{}, 0, newError(column, "unexpected %q", r).withRemedy("put values with such characters in quotes")
	}
	return token{word, s[:n], column}, n, nil
}

// isWord reports whether a character needs no quotes in a word.
func isWord(r rune) bool {
	return unicode.IsLetter(r) || unicode.IsDigit(r) || strings.ContainsRune("_-.*?/:@+%,#[]{}$", r)
}

// readQuoted reads a quoted text at the start of s, and returns its length in bytes. A backslash
// escapes the quote and another backslash; before other characters it is literal.
func readQuoted(s string, column int) (token, int, error) {
	quote, escaped := s[0], false
	var b strings.Builder
	for i := 1; i < len(s); i++ {
		switch c := s[i]; {
		case escaped && c != quote && c != '\\': // a literal backslash
			b.WriteByte('\\')
			b.WriteByte(c)
			escaped = false
		case !escaped && c == '\\':
			escaped = true
		case !escaped && c == quote:
			return token{text, b.String(), column}, i + 1, nil
		default:
			b.WriteByte(c)
			escaped = false
		}
	}
	return token{}, 0, newError(column, "the quote that begins here is not closed").withRemedy("close it with another %c", quote)
}

// quoteValue writes a value so that splitTokens returns it unchanged.
func quoteValue(s string) string {
	if s != "" && strings.IndexFunc(s, func(r rune) bool { return !isWord(r) }) < 0 {
		return s
	}
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(s) + `"`
}
