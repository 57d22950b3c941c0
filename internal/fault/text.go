package fault

import (
	"strings"
	"unicode"
)

// MaxLine is how much of foreign words Line repeats, in bytes.
const MaxLine = 1000

// Line makes foreign words, such as what a server answers, one line of bounded length and of printable
// characters.
func Line(s string) string {
	s = s[:min(len(s), 4*MaxLine)]
	s = strings.Join(strings.Fields(strings.Map(toPrintable, strings.ToValidUTF8(s, "?"))), " ")
	if len(s) > MaxLine {
		s = strings.ToValidUTF8(s[:MaxLine], "") + "…"
	}
	return s
}

func toPrintable(r rune) rune {
	if !unicode.IsPrint(r) {
		return ' '
	}
	return r
}

// Quote writes a word so that a shell reads it back as it is: for the commands in
// remedies.
func Quote(s string) string {
	plain := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("-_./:@%+=,", r)
	}
	if s != "" && strings.IndexFunc(s, func(r rune) bool { return !plain(r) }) < 0 {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}
