// Audit compares the findings of gosec with those that were triaged. It reads gosec's
// JSON report and the list of triaged findings. It fails if a finding is only in one of
// them:
//
//	audit [-add] LIST REPORT
//
// A line of the list has four fields with tabs between them: rule, file, code and
// reason. The code is the first line that gosec shows, so that a finding stays triaged
// if only its line number changes. With -add, findings that are not triaged are added to
// the list. They have no reason, so the next run fails.
package main

import (
	"bufio"
	"cmp"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// A finding is a finding of gosec with the fields that identify it.
type finding struct {
	rule, file, code string // fields of the list, without the reason
}

// String returns the fields separated by tabs, as in the list.
func (f finding) String() string { return f.rule + "\t" + f.file + "\t" + f.code }

// main parses the flags and compares the files.
func main() {
	add := flag.Bool("add", false, "add findings that are not triaged to the list")
	flag.Parse()
	if err := compareFiles(os.Stdout, *add, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "audit:", err)
		os.Exit(1)
	}
}

// compareFiles compares the list with the report, whose paths are args. It returns an
// error unless they match. If add is true, it appends the new findings to the list
// instead.
func compareFiles(out io.Writer, add bool, args []string) error {
	if len(args) != 2 {
		return errors.New("usage: audit [-add] LIST REPORT")
	}
	list, err := os.ReadFile(args[0])
	if err != nil {
		return err
	}
	report, err := os.ReadFile(args[1])
	if err != nil {
		return err
	}
	here, err := os.Getwd()
	if err != nil {
		return err
	}
	triaged, err := parseList(string(list))
	if err != nil {
		return fmt.Errorf("%s: %w", args[0], err)
	}
	found, err := parseReport(report, here)
	if err != nil {
		return fmt.Errorf("%s: %w", args[1], err)
	}
	untriaged, stale := compareFindings(triaged, found)
	if add {
		return appendTo(args[0], untriaged)
	}
	for _, f := range untriaged {
		fmt.Fprintf(out, "not triaged: %v\n", f)
	}
	for _, f := range stale {
		fmt.Fprintf(out, "triaged, but not found: %v\n", f)
	}
	if len(untriaged)+len(stale) > 0 {
		return fmt.Errorf("%d findings are not triaged, %d lines of %s are stale", len(untriaged), len(stale), args[0])
	}
	fmt.Fprintf(out, "gosec: %d findings, all triaged\n", len(found))
	return nil
}

// parseList parses the list. It fails if a finding has no reason or two lines.
func parseList(text string) (map[finding]string, error) {
	triaged := map[finding]string{}
	number := 0
	for line := range strings.Lines(text) {
		number++
		// Lines that start with # are comments of the list.
		line = strings.TrimRight(line, "\n")
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		fields := strings.Split(line, "\t")
		if len(fields) != 4 || len(strings.Fields(fields[3])) < 2 {
			return nil, fmt.Errorf("line %d: want rule, file, code and a reason, with a tab between them", number)
		}
		f := finding{fields[0], fields[1], fields[2]}
		if triaged[f] != "" {
			return nil, fmt.Errorf("line %d: %v is there twice", number, f)
		}
		triaged[f] = fields[3]
	}
	return triaged, nil
}

// parseReport parses gosec's report. here is the folder to which paths are relative. A
// package that gosec could not load is an error.
func parseReport(text []byte, here string) (map[finding]bool, error) {
	var report struct {
		Errors map[string]any `json:"Golang errors"`
		Issues []struct {
			Rule string `json:"rule_id"`
			File string `json:"file"`
			Code string `json:"code"`
			Line string `json:"line"`
		}
		Stats struct{ Files int }
	}
	if err := json.Unmarshal(text, &report); err != nil {
		return nil, err
	}
	// A report without files would make all triaged findings stale.
	if len(report.Errors) > 0 || report.Stats.Files == 0 {
		return nil, fmt.Errorf("%d files were examined, with errors in %d", report.Stats.Files, len(report.Errors))
	}
	found := map[finding]bool{}
	for _, i := range report.Issues {
		file, err := filepath.Rel(here, i.File)
		if err != nil {
			return nil, err
		}
		// A finding may span several lines, such as "12-15". The first one identifies
		// it.
		line, _, _ := strings.Cut(i.Line, "-")
		found[finding{i.Rule, file, codeAt(i.Code, line)}] = true
	}
	return found, nil
}

// codeAt returns the code of a line from gosec's excerpt, whose lines begin with
// "NUMBER: ". White space is normalized. It returns "?" if the line is missing.
func codeAt(excerpt, line string) string {
	for lines := bufio.NewScanner(strings.NewReader(excerpt)); lines.Scan(); {
		if code, ok := strings.CutPrefix(lines.Text(), line+": "); ok {
			return strings.Join(strings.Fields(code), " ")
		}
	}
	return "?"
}

// compareFindings returns the findings that are only in the report, and those that are
// only in the list, both sorted.
func compareFindings(triaged map[finding]string, found map[finding]bool) (untriaged, stale []finding) {
	for f := range found {
		if triaged[f] == "" {
			untriaged = append(untriaged, f)
		}
	}
	for f := range triaged {
		if !found[f] {
			stale = append(stale, f)
		}
	}
	order := func(a, b finding) int { return cmp.Compare(a.String(), b.String()) }
	slices.SortFunc(untriaged, order)
	slices.SortFunc(stale, order)
	return untriaged, stale
}

// appendTo appends findings without a reason to the list.
func appendTo(list string, untriaged []finding) error {
	f, err := os.OpenFile(list, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return err
	}
	for _, u := range untriaged {
		if _, err := fmt.Fprintf(f, "%v\t\n", u); err != nil {
			return errors.Join(err, f.Close())
		}
	}
	return f.Close()
}
