package main

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/decamp/decamp/internal/inventory"
)

// warningCodes lists warnings by their codes, blocking ones first and marked.
func warningCodes(warnings []inventory.Warning) string {
	var blocking, others []string
	for _, w := range warnings {
		switch {
		case w.Blocks && !slices.Contains(blocking, w.Code+"!"):
			blocking = append(blocking, w.Code+"!")
		case !w.Blocks && !slices.Contains(others, w.Code):
			others = append(others, w.Code)
		}
	}
	return cmp.Or(strings.Join(append(blocking, others...), " "), "-")
}

func writeWarningList(w io.Writer, warnings []inventory.Warning) {
	for _, warning := range warnings {
		fmt.Fprintf(w, "  %s: %s\n", warningCodes([]inventory.Warning{warning}), printable(warning.Text))
		if warning.Remedy != "" {
			fmt.Fprintf(w, "    Remedy: %s\n", printable(warning.Remedy))
		}
	}
}
