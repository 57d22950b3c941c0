package main

import (
	"strings"

	"github.com/decamp/decamp/internal/assemble"
	"github.com/decamp/decamp/internal/progress"
)

// newProgress returns the display of events: bars on a terminal, lines otherwise, and JSON objects with
// --json.
func newProgress(out *output, names progress.Names) progress.Display {
	o := progress.Output{Screen: out.screen, Warn: out.warn}
	if out.json {
		o.Print = out.printJSON
	}
	return progress.New(o, names)
}

// runNamesOf returns the name of each run by its destination; nil if there is only one.
func runNamesOf(w *assemble.Parts) progress.Names {
	if len(w.To) == 1 {
		return nil
	}
	names := progress.Names{}
	for _, d := range w.To {
		names[d.Plan.ID] = strings.TrimRight(d.Name, "/")
	}
	return names
}
