package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"text/tabwriter"
	"time"
)

// A Row is one figure with its limit.
type Row struct {
	Part   string  `json:"part"`            // part of the program
	Figure string  `json:"figure"`          // description, unique within the part
	Value  float64 `json:"value"`           // measured value
	Unit   string  `json:"unit"`            // unit of the value
	Must   string  `json:"must,omitempty"`  // limit, such as ">= 97" or "<= 0.75"; empty without one
	Holds  *bool   `json:"holds,omitempty"` // whether the limit holds; nil without a limit
	Peers  []Peer  `json:"peers,omitempty"` // other programs or limits for comparison
	Note   string  `json:"note,omitempty"`  // conditions and further values

	Commit  string    `json:"commit"`  // version of the sources
	Machine Machine   `json:"machine"` // machine of the measurement
	Time    time.Time `json:"time"`    // end of the measurement
}

// Peer is the value of another program in the same run, in the unit of the row.
type Peer struct {
	Name  string  `json:"name"`           // name of the program
	Value float64 `json:"value"`          // measured value; 0 if the program failed
	Note  string  `json:"note,omitempty"` // its settings, or why it has no value
}

// Report contains the rows of one run.
type Report struct{ rows []Row }

// writeJSON writes the rows. Rows of parts that did not run are kept from the existing
// file.
func (r *Report) writeJSON(path string, ran []part) error {
	before, err := loadRows(path)
	if err != nil {
		return err
	}
	// Parts that ran replace all of their rows, also those that no longer exist.
	kept := slices.DeleteFunc(before, func(row Row) bool {
		return slices.ContainsFunc(ran, func(p part) bool { return p.name == row.Part })
	})
	text, err := json.MarshalIndent(append(kept, r.rows...), "", "  ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, append(text, '\n'), 0o644)
}

// loadRows reads the rows of an earlier run. A missing file has none.
func loadRows(path string) ([]Row, error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var rows []Row
	if err := json.Unmarshal(text, &rows); err != nil {
		return nil, fmt.Errorf("%s: %w (remove it to start afresh)", path, err)
	}
	return rows, nil
}

// printTable writes the rows as a table for people.
func (r *Report) printTable(w io.Writer) {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tw, "\nPART\tFIGURE\tVALUE\tUNIT\tMUST\tHOLDS\tNOTE")
	for _, row := range r.rows {
		fmt.Fprintf(tw, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", row.Part, row.Figure, formatNumber(row.Value), row.Unit, row.Must, row.verdictText(), row.Note)
		for _, p := range row.Peers {
			fmt.Fprintf(tw, "\t    %s\t%s\t%s\t\t\t%s\n", p.Name, formatNumber(p.Value), row.Unit, p.Note)
		}
	}
	tw.Flush()
}

// verdictText returns whether the limit holds: "yes", "NO", or "".
func (r Row) verdictText() string {
	switch {
	case r.Holds == nil:
		return ""
	case *r.Holds:
		return "yes"
	}
	return "NO"
}

// formatNumber formats a value with three significant digits, and without decimals from
// 100.
func formatNumber(v float64) string {
	if v >= 100 {
		return fmt.Sprintf("%.0f", v)
	}
	return fmt.Sprintf("%.3g", v)
}
