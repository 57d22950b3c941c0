package main

import (
	"strings"

	"github.com/decamp/decamp/internal/fault"
)

// shellArgument quotes a word for a shell, and protects it from being read as a flag.
func shellArgument(s string) string {
	if strings.HasPrefix(s, "-") {
		return "-- " + fault.Quote(s)
	}
	return fault.Quote(s)
}
