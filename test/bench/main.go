// Bench measures decamp beside its peers and prints a table of figures, each with its
// limit. The rows also go to a JSON file. A run of one part replaces only the rows of
// that part.
//
//	go run ./test/bench [-only https,engine] [-out build/bench.json]
//
// Each part measures the two ends alone before the pair: the pair cannot beat the
// slower end. Every measured side runs in a separate process, with its own processor
// time and peak memory: the emulated ESXi in one, decamp's code or the peer in another.
// docs/benchmarking.md lists conditions that make the numbers meaningless.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
)

// A part is a group of figures that are measured together.
type part struct {
	name string                              // name for -only and for the table
	run  func(context.Context, *bench) error // measures the figures and adds their rows
}

// parts lists all parts in the order of the table.
var parts = []part{
	{"engine", engineFigures},
	{"writers", writerFigures},
	{"verify", verifyFigures},
	{"https", httpsFigures},
	{"nfc", nfcFigures},
	{"warm", warmFigures},
	{"convert", conversionFigures},
	{"fleet", fleetFigures},
	{"huge", hugeFigures},
	{"formats", formatFigures},
	{"mount", mountFigures},
	{"nbd", nbdFigures},
	{"fanout", fanoutFigures},
	{"landing", landingFigures},
	{"events", eventFigures},
	{"budget", budgetFigures},
	{"plan", planFigures},
	{"overhead", overheadFigures},
	{"hosts", hostFigures},
	{"counts", countFigures},
	{"idle", idleFigures},
	{"waiting", waitingFigures},
	{"takeover", takeoverFigures},
	{"appliance", applianceFigures},
	{"advise", adviseFigures},
	{"simulate", simulateFigures},
	{"matrix", matrixFigures},
	{"trust", trustFigures},
	{"size", sizeFigures},
	{"start", startFigures},
}

// main runs a role if the first argument is "child", else the selected parts.
func main() {
	if len(os.Args) > 1 && os.Args[1] == "child" {
		exitOn(runRole(os.Args[2:]))
		return
	}
	only := flag.String("only", "", "parts to run, separated by commas; default all")
	out := flag.String("out", "build/bench.json", "file for the rows")
	dir := flag.String("dir", "build/bench", "folder for images; its file system is what writers are measured on")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	exitOn(runParts(ctx, *only, *out, *dir))
}

// runParts runs the selected parts, prints the table and writes the rows. A part that
// fails does not prevent the others.
func runParts(ctx context.Context, only, out, dir string) error {
	b, err := newBench(dir)
	if err != nil {
		return err
	}
	chosen, err := chooseParts(only)
	if err != nil {
		return err
	}
	var failed []error // a part that fails does not take the others' figures with it
	for _, p := range chosen {
		b.part = p.name
		fmt.Fprintf(os.Stderr, "\n%s\n", p.name)
		if err := p.run(ctx, b); err != nil {
			failed = append(failed, fmt.Errorf("%s: %w", p.name, err))
		}
	}
	b.report.printTable(os.Stdout)
	return errors.Join(append(failed, b.report.writeJSON(out, chosen))...)
}

// chooseParts returns the parts named in only, in the order of the table. An unknown
// name is an error.
func chooseParts(only string) ([]part, error) {
	if only == "" {
		return parts, nil
	}
	var chosen []part
	wanted := strings.Split(only, ",")
	for _, p := range parts {
		for _, w := range wanted {
			if w == p.name {
				chosen = append(chosen, p)
			}
		}
	}
	if len(chosen) != len(wanted) {
		return nil, fmt.Errorf("unknown part in %q; the parts are %s", only, partNames())
	}
	return chosen, nil
}

// partNames returns the names of all parts for messages.
func partNames() string {
	var names []string
	for _, p := range parts {
		names = append(names, p.name)
	}
	return strings.Join(names, ", ")
}

// exitOn prints an error and ends the program with status 1; it returns if err is nil.
func exitOn(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}
