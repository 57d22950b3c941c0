package main

import (
	"bytes"
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/decamp/decamp/internal/atomicfile"
	"github.com/decamp/decamp/internal/bench"
	"github.com/decamp/decamp/internal/bench/report"
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/units"
)

const benchReportHelp = `
Report rows of measurements: the rows of each file, and the published ones.

ROWS are files of decamp bench matrix or of your own: a JSON list of rows, or one row after
the other. Each file is a separate set. Without files the report has only the published rows.

--html writes one self-contained page: the matrix, rates, the effect of each variable alone
with the pairs that show it, the cost of sync, operations per second, and the number of
streams above which more streams do not help. --json, --csv and --gobench print all rows;
--gobench is input for benchstat. All rates are in MiB/s (2^20 bytes) of allocated bytes.
`

const benchReportExamples = `
decamp bench report rows.jsonl --html report.html
decamp bench report before.jsonl after.jsonl --gobench | benchstat -col /set -
decamp bench report --csv > published.csv
`

// benchReportCommand is decamp bench report.
type benchReportCommand struct {
	out    *output // output and messages
	html   string  // path of the page; empty for none
	csv    bool    // print CSV
	goform bool    // print the format of Go benchmarks
}

// newBenchReport returns the command decamp bench report.
func newBenchReport(p *program) *cobra.Command {
	br := &benchReportCommand{out: p.out}
	cmd := &cobra.Command{
		Use: "report [ROWS...]", Short: "Show measurements as HTML, JSON, CSV or Go benchmarks", Long: trimHelp(benchReportHelp), Example: trimHelp(benchReportExamples),
		Annotations: exitCodes(exit{fault.NotFound, "a named file does not exist"}, exit{fault.Full, "no space for the report"}),
		RunE: func(cmd *cobra.Command, files []string) error {
			if br.csv && br.goform || br.out.json && (br.csv || br.goform) {
				return badUsage(cmd, "--json, --csv and --gobench exclude each other")
			}
			return br.runReport(files)
		},
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.StringVar(&br.html, "html", "", "write one self-contained page to `FILE`")
	f.BoolVar(&br.csv, "csv", false, "print the rows as CSV")
	f.BoolVar(&br.goform, "gobench", false, "print the rows in the format of Go benchmarks, for benchstat")
	_ = cmd.MarkFlagFilename("html", "html") // fails for unknown flags only
	return cmd
}

// runReport writes the page, and prints the report in the selected format.
func (br *benchReportCommand) runReport(files []string) error {
	r, err := reportOf(files)
	if err != nil {
		return err
	}
	if br.html != "" {
		if err := writePage(br.html, r); err != nil {
			return err
		}
	}
	switch {
	case br.out.json:
		return br.out.printJSON(r)
	case br.csv:
		return report.WriteCSV(br.out, r)
	case br.goform:
		return report.WriteGo(br.out, r)
	case br.html != "":
		return nil
	}
	writeReport(br.out, r)
	return nil
}

// reportOf returns a report on the rows of files and on the published rows. A file without rows is an
// error.
func reportOf(files []string) (report.Report, error) {
	var sets []report.Set
	for _, path := range files {
		rows, err := bench.LoadRows(path)
		switch {
		case err != nil:
			return report.Report{}, err
		case len(rows) == 0:
			return report.Report{}, fault.New(fault.Invalid, "%s has no rows", path).WithHint("measure rows with decamp bench matrix --spec matrix.yaml --rows %s", path)
		}
		sets = append(sets, report.NewSet(setName(path), rows))
	}
	return report.New(append(sets, report.Published())...), nil
}

// setName returns the name of a file without its extension.
func setName(path string) string {
	name := filepath.Base(path)
	return strings.TrimSuffix(name, filepath.Ext(name))
}

// writePage writes the report as an HTML page, which replaces an existing file.
func writePage(path string, r report.Report) error {
	var page bytes.Buffer
	if err := report.WriteHTML(&page, r); err != nil {
		return err
	}
	const mode = 0o644 // the report is meant to be shared
	if err := atomicfile.Replace(path, page.Bytes(), mode); err != nil {
		return fault.New(fault.Invalid, "write the report: %w", err).WithHint("name a file in an existing folder to which you may write")
	}
	return nil
}

// writeReport prints the rows of each set, then the effect of each variable.
func writeReport(w io.Writer, r report.Report) {
	fmt.Fprintf(w, "Rates are in %s.\n", r.Unit)
	for _, s := range r.Sets {
		fmt.Fprintln(w)
		t := newTable(strings.ToUpper(s.Name), "RATE", "LASTED", "READ IOPS", "WRITE IOPS", "BUSY")
		t.alignRight(1, 2, 3, 4, 5)
		for _, row := range s.Rows {
			t.addRow(row.Name(), fmt.Sprintf("%.1f", row.Rate()), units.Duration(row.Duration()), formatCount(row.Read.IOPS), formatCount(row.Written.IOPS), formatShare(row.Written.Busy))
		}
		t.writeTo(w)
		writeEffects(w, s.Effects)
		for _, c := range s.Curves {
			fmt.Fprintf(w, "%s\n", c)
		}
	}
}

// formatCount formats a number without decimals; a missing measurement is empty.
func formatCount(v float64) string {
	if v == 0 {
		return ""
	}
	return fmt.Sprintf("%.0f", v)
}

// formatShare formats a fraction as a percentage; a missing measurement is empty.
func formatShare(v float64) string {
	if v == 0 {
		return ""
	}
	return fmt.Sprintf("%.0f %%", 100*v)
}

// writeEffects prints the effect of each variable alone, as factors between pairs of rows.
func writeEffects(w io.Writer, effects []bench.Effect) {
	fmt.Fprintln(w)
	if len(effects) == 0 {
		return
	}
	t := newTable("ALONE", "", "MEDIAN", "LEAST", "MOST", "PAIRS")
	t.alignRight(2, 3, 4, 5)
	for _, e := range effects {
		t.addRow(string(e.Variable), e.From+" -> "+e.To, fmt.Sprintf("x%.2f", e.MedianFactor()), fmt.Sprintf("x%.2f", e.MinFactor()), fmt.Sprintf("x%.2f", e.MaxFactor()), fmt.Sprint(len(e.Pairs)))
	}
	t.writeTo(w)
	fmt.Fprintln(w)
}
