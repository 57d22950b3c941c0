package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/decamp/decamp/internal/doctor"
	"github.com/decamp/decamp/internal/fault"
)

// writeFindings prints findings of at least that severity, the most severe first. Identical findings on
// several objects are combined.
func writeFindings(w io.Writer, found []doctor.Finding, least doctor.Status) {
	things := map[doctor.Finding][]string{}
	for _, f := range found {
		things[alike(f)] = append(things[alike(f)], f.On)
	}
	for _, f := range found {
		on, first := things[alike(f)]
		if delete(things, alike(f)); first && f.Status >= least {
			writeDoctorFinding(w, f, on)
		}
	}
}

// alike returns a finding without its object.
func alike(f doctor.Finding) doctor.Finding {
	f.On = ""
	return f
}

func writeDoctorFinding(w io.Writer, f doctor.Finding, on []string) {
	what := f.Seen
	if names := someOf(on); names != "" {
		what = names + ": " + what
	}
	fmt.Fprintf(w, "%s: %s: %s\n", f.Status, f.Code, plain(fault.OneLine(what)))
	if f.Status == doctor.OK {
		return
	}
	if f.Want != "" {
		fmt.Fprintf(w, "  Want: %s\n", plain(fault.OneLine(f.Want)))
	}
	if lines := strings.Split(f.Remedy, "\n"); len(lines) == 1 {
		fmt.Fprintf(w, "  Remedy: %s\n", plain(f.Remedy))
	} else {
		fmt.Fprintln(w, "  Remedy:")
		for _, line := range lines {
			fmt.Fprintf(w, "    %s\n", plain(line))
		}
	}
	fmt.Fprintln(w)
}

// mostNamed is how many things a finding names.
const mostNamed = 4

// someOf names things: "VM a, VM b and 12 more".
func someOf(on []string) string {
	if len(on) <= mostNamed {
		return strings.Join(on, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(on[:mostNamed-1], ", "), len(on)-mostNamed+1)
}

// foundOf is what --json prints of a finding beforehand.
type foundOf struct {
	Finding doctor.Finding `json:"finding"`
}

// tellFound prints the findings before a migration begins.
func tellFound(out *output, found []doctor.Finding) {
	if !out.json {
		writeFindings(out.screen, found, doctor.Warning)
		return
	}
	for _, f := range found {
		_ = out.print(foundOf{f}) // the standard output remembers that it failed
	}
}
