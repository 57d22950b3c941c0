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

// A Row is one figure.
type Row struct {
	Part   string  `json:"part"`
	Figure string  `json:"figure"`
	Value  float64 `json:"value"`
	Unit   string  `json:"unit"`
	Must   string  `json:"must,omitempty"` // ">= 97" or "<= 0.75"; empty where nothing is asked
	Holds  *bool   `json:"holds,omitempty"`
	Peers  []Peer  `json:"peers,omitempty"`
	Note   string  `json:"note,omitempty"`

	Commit  string    `json:"commit"`
	Machine Machine   `json:"machine"`
	Time    time.Time `json:"time"`
}

// Peer is what another program reached in the same run, in the row's unit.
type Peer struct {
	Name  string  `json:"name"`
	Value float64 `json:"value"`
	Note  string  `json:"note,omitempty"` // its settings, or why it has no value
}

// Report is the rows of one run.
type Report struct{ rows []Row }

// writeJSON writes the rows, keeping those of parts that did not run from the file before.
func (r *Report) writeJSON(path string, ran []part) error {
	before, err := loadRows(path)
	if err != nil {
		return err
	}
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

// printTable writes the table that people read.
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

func (r Row) verdictText() string {
	switch {
	case r.Holds == nil:
		return ""
	case *r.Holds:
		return "yes"
	}
	return "NO"
}

func formatNumber(v float64) string {
	if v >= 100 {
		return fmt.Sprintf("%.0f", v)
	}
	return fmt.Sprintf("%.3g", v)
}
