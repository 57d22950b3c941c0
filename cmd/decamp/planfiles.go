package main

import (
	"cmp"
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"github.com/decamp/decamp/internal/assemble"
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/planfile"
	"github.com/decamp/decamp/internal/preflight"
	"github.com/decamp/decamp/internal/server"
	"github.com/decamp/decamp/internal/units"
)

// writeCheck prints the result of a check. f may be nil if the file could not be parsed.
func writeCheck(out *output, path string, f *planfile.File, r preflight.Report, o *assemble.Outlines) error {
	name := ""
	if f != nil {
		name = string(f.Name)
	}
	if out.json {
		r.Findings = append(planfile.Findings{}, r.Findings...) // a list, if an empty one
		return out.printJSON(struct {
			Plan string `json:"plan"`
			preflight.Report
			Outlines []assemble.DryRun `json:"outlines,omitempty"` // definitions; only with --dry-run
		}{name, r, o.Reports()})
	}
	if r.VMs > 0 {
		fmt.Fprintf(out, "Plan %s: %s with %s, %s in all\n", name, units.Count(r.VMs, "VM"), units.Count(r.Disks, "disk"), units.Binary(r.Bytes))
	}
	for _, s := range r.FileSystems {
		fmt.Fprintf(out, "%s: %s, %s to %s required, %s free\n", strings.Join(s.Folders, ", "), units.Count(s.VMs, "VM"), units.Binary(s.Least), units.Binary(s.Most), units.Binary(s.Free))
	}
	writeOutlines(out, o)
	for _, finding := range r.Findings {
		writeFinding(out, path, finding)
	}
	if r.Findings.Blocking() == 0 {
		fmt.Fprintln(out, "\nNo blocking findings.")
	}
	return nil
}

// writeFinding prints a finding with its position. An exclamation mark means that it blocks.
func writeFinding(w io.Writer, path string, f planfile.Finding) {
	mark := cmp.Or(f.Code, "file")
	if f.Blocks {
		mark += "!"
	}
	place := path
	if f.Line > 0 {
		place += fmt.Sprintf(":%d", f.Line)
	}
	if f.Column > 0 {
		place += fmt.Sprintf(":%d", f.Column)
	}
	what := f.Text
	if f.VM != "" {
		what = f.VM + ": " + what
	}
	fmt.Fprintf(w, "\n%s: %s: %s\n", fault.Printable(place), mark, fault.Printable(fault.OneLine(what)))
	if f.Remedy != "" {
		fmt.Fprintf(w, "  Remedy: %s\n", fault.Printable(fault.OneLine(f.Remedy)))
	}
}

// readSubmission reads and parses a plan file for its submission. It prints all findings if the plan is
// invalid.
func readSubmission(out *output, path string) (s server.Submission, f *planfile.File, err error) {
	text, err := planfile.Read(path)
	if err != nil {
		return s, nil, err
	}
	f, found := planfile.Parse(text)
	if len(found) > 0 {
		if err := writeCheck(out, path, f, preflight.Report{FileSystems: []preflight.Space{}, Findings: found}, nil); err != nil {
			return s, nil, err
		}
		return s, nil, fmt.Errorf("read %s: %w", path, found.Err())
	}
	folder, err := filepath.Abs(filepath.Dir(path))
	return server.Submission{Text: string(text), Folder: folder, By: localUser(), Role: server.Admin}, f, err
}
