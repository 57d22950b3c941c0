package main

import (
	"slices"
	"strings"

	"github.com/decamp/decamp/internal/fault"
)

// shellArgument is fault.Quote for a word that a program must not take for a flag.
func shellArgument(s string) string {
	if strings.HasPrefix(s, "-") {
		return "-- " + fault.Quote(s)
	}
	return fault.Quote(s)
}

// commandWith is the command as it was typed, with more flags: a remedy to paste.
func (a *app) commandWith(more ...string) string {
	end := slices.Index(a.argv, "--") // no flags behind it
	if end < 0 {
		end = len(a.argv)
	}
	words := slices.Insert(slices.Clone(a.argv), end, more...)
	for i, w := range words {
		words[i] = fault.Quote(w)
	}
	return strings.Join(words, " ")
}
