package export

import "strings"

// A line is a logical line: a backslash at the end of a line joins it with the next
// one.
type line struct {
	text string   // joined text
	at   Position // first and last line in the file
}

// logicalLines splits a text into logical lines, without empty lines and comments.
func logicalLines(text, file string) []line {
	var all []line
	cur := line{at: Position{file, 1, 1}}
	n := 0
	for raw := range strings.SplitSeq(text, "\n") {
		n++
		cur.at.Last = n
		// A file edited on Windows has carriage returns.
		part, more := strings.CutSuffix(strings.TrimSuffix(raw, "\r"), `\`)
		cur.text += part
		if more {
			cur.text += " "
			continue
		}
		if t := strings.TrimSpace(cur.text); t != "" && t[0] != '#' {
			all = append(all, cur)
		}
		cur = line{at: Position{file, n + 1, n + 1}}
	}
	if strings.TrimSpace(cur.text) != "" {
		all = append(all, cur)
	}
	return all
}

// splitWords splits a line at white space, and processes quotes, escapes and a comment
// at the end. whole is false if a quote is not closed.
func (l line) splitWords() (words []string, whole bool) {
	var word strings.Builder
	quoted, begun := false, false
	end := func() {
		if begun {
			words = append(words, word.String())
			word.Reset()
		}
		begun = false
	}
	for s := l.text; s != ""; {
		switch c := s[0]; {
		case c == '"':
			quoted, begun = !quoted, true
		case c == '\\':
			b, n := parseOctal(s)
			word.WriteByte(b)
			begun, s = true, s[n:]
			continue
		case !quoted && (c == ' ' || c == '\t'):
			end()
		case !quoted && c == '#':
			end()
			return words, true
		default:
			word.WriteByte(c)
			begun = true
		}
		s = s[1:]
	}
	end()
	return words, !quoted
}

// parseOctal parses an escape such as \040, a byte in three octal digits, and returns
// its length. Any other backslash is returned unchanged, with length 1.
func parseOctal(s string) (b byte, n int) {
	const digits = 3
	if len(s) <= digits {
		return s[0], 1
	}
	v := 0
	for _, d := range []byte(s[1 : 1+digits]) {
		if d < '0' || d > '7' {
			return s[0], 1
		}
		v = v<<digits | int(d-'0')
	}
	return byte(v), 1 + digits
}
