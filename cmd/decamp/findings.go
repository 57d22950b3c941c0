package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/decamp/decamp/internal/doctor"
	"github.com/decamp/decamp/internal/fault"
)

// writeFindings prints findings with at least the status least, the most severe first. Identical
// findings on several objects are printed once.
func writeFindings(w io.Writer, found []doctor.Finding, least doctor.Status) {
	things := map[doctor.Finding][]string{}
	for _, f := range found {
		things[withoutObject(f)] = append(things[withoutObject(f)], f.On)
	}
	for _, f := range found {
		on, first := things[withoutObject(f)]
		if delete(things, withoutObject(f)); first && f.Status >= least {
			writeDoctorFinding(w, f, on)
		}
	}
}

// withoutObject returns a finding without its object.
func withoutObject(f doctor.Finding) doctor.Finding {
	f.On = ""
	return f
}

// writeDoctorFinding prints one finding with the objects on, what is expected, and the remedy.
func writeDoctorFinding(w io.Writer, f doctor.Finding, on []string) {
	what := f.Found
	if names := someOf(on); names != "" {
		what = names + ": " + what
	}
	fmt.Fprintf(w, "%s: %s: %s\n", f.Status, f.Code, fault.Printable(fault.OneLine(what)))
	if f.Status == doctor.OK {
		return
	}
	if f.Want != "" {
		fmt.Fprintf(w, "  Want: %s\n", fault.Printable(fault.OneLine(f.Want)))
	}
	if lines := strings.Split(f.Remedy, "\n"); len(lines) == 1 {
		fmt.Fprintf(w, "  Remedy: %s\n", fault.Printable(f.Remedy))
	} else {
		fmt.Fprintln(w, "  Remedy:")
		for _, line := range lines {
			fmt.Fprintf(w, "    %s\n", fault.Printable(line))
		}
	}
	fmt.Fprintln(w)
}

// maxNamed is the number of objects that a finding lists.
const maxNamed = 4

// someOf returns a list of objects: "VM a, VM b and 12 more".
func someOf(on []string) string {
	if len(on) <= maxNamed {
		return strings.Join(on, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(on[:maxNamed-1], ", "), len(on)-maxNamed+1)
}

// foundOf is the JSON form of a finding before a migration.
type foundOf struct {
	Finding doctor.Finding `json:"finding"`
}

// printFound prints the findings before a migration, from warnings on.
func printFound(out *output, found []doctor.Finding) {
	if !out.json {
		writeFindings(out.screen, found, doctor.Warning)
		return
	}
	for _, f := range found {
		_ = out.printJSON(foundOf{f}) // the standard output remembers that it failed
	}
}
