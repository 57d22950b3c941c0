// Mutate measures how many changes of a package its tests detect.
//
// It compiles a package once, with all mutants: each mutant changes one operator. An
// environment variable selects the mutant at run time. Mutate first runs each test alone
// and records the mutants that it reaches. Then it runs, for each mutant, the tests that
// reach it, the fastest first, until one fails.
//
//	go run ./test/mutate [-short] [-skip TESTS] [-workers N] PACKAGE [FILE]...
//
// The exit code is 0 if all mutants were run, even if some survived.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"syscall"
)

// main parses the flags and measures one package.
func main() {
	var o options
	flag.BoolVar(&o.short, "short", false, "run tests with -test.short")
	flag.StringVar(&o.skip, "skip", "", "regular expression of tests to skip")
	flag.IntVar(&o.workers, "workers", runtime.NumCPU(), "number of mutants that run at the same time")
	flag.Parse()
	if flag.NArg() == 0 {
		flag.Usage()
		os.Exit(2)
	}
	o.pkg, o.files = flag.Arg(0), flag.Args()[1:]
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := measurePackage(ctx, o, os.Stdout); err != nil {
		fmt.Fprintf(os.Stderr, "mutate: %v\n", err)
		os.Exit(1)
	}
}
