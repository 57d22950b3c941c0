package main

import (
	"strings"
)

// shellQuote writes a word so that a shell reads it back as it is.
func shellQuote(s string) string {
	plain := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("-_./:@%+=,", r)
	}
	if s != "" && strings.IndexFunc(s, func(r rune) bool { return !plain(r) }) < 0 {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

// shellArgument is shellQuote for a word that a program must not take for a flag.
func shellArgument(s string) string {
	if strings.HasPrefix(s, "-") {
		return "-- " + shellQuote(s)
	}
	return shellQuote(s)
}

// command is the command as it was typed, with more flags: a remedy to paste.
func (a *app) command(more ...string) string {
	words := make([]string, 0, len(a.argv)+len(more))
	for _, w := range append(append([]string{}, a.argv...), more...) {
		words = append(words, shellQuote(w))
	}
	return strings.Join(words, " ")
}
