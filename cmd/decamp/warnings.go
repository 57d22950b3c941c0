package main

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/inventory"
)

// warningCodes returns the codes of warnings, each once. Blocking ones come first and have an
// exclamation mark.
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

// writeWarningList prints warnings with their remedies.
func writeWarningList(w io.Writer, warnings []inventory.Warning) {
	for _, warning := range warnings {
		fmt.Fprintf(w, "  %s: %s\n", warningCodes([]inventory.Warning{warning}), fault.Printable(warning.Text))
		if warning.Remedy != "" {
			fmt.Fprintf(w, "    Remedy: %s\n", fault.Printable(warning.Remedy))
		}
	}
}
