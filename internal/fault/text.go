package fault

import (
	"strconv"
	"strings"
	"unicode"
)

// MaxLine is the largest length of the result of Line in bytes, without the ellipsis.
const MaxLine = 1000

// Line converts foreign text, such as the answer of a server, to one line of limited length and
// printable characters.
func Line(s string) string {
	s = s[:min(len(s), 4*MaxLine)]
	s = strings.Join(strings.Fields(strings.Map(toPrintable, strings.ToValidUTF8(s, "?"))), " ")
	if len(s) > MaxLine {
		s = strings.ToValidUTF8(s[:MaxLine], "") + "…"
	}
	return s
}

// toPrintable returns r, or a blank if r cannot be printed.
func toPrintable(r rune) rune {
	if !unicode.IsPrint(r) {
		return ' '
	}
	return r
}

// Printable replaces control characters by question marks. Names of VMs may contain escape sequences
// and newlines.
func Printable(s string) string {
	return strings.Map(func(r rune) rune {
		if !strconv.IsPrint(r) {
			return '?'
		}
		return r
	}, s)
}

// Quote quotes a word for a shell. Commands in remedies use it.
func Quote(s string) string {
	plain := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("-_./:@%+=,", r)
	}
	if s != "" && strings.IndexFunc(s, func(r rune) bool { return !plain(r) }) < 0 {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}
