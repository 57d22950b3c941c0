// Command decamp-lab runs an emulated ESXi host or vCenter (internal/lab). The demo, tests and
// users who try decamp run it; release builds of decamp do not contain it.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/pflag"

	"github.com/decamp/decamp/internal/buildinfo"
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/flaghelp"
	"github.com/decamp/decamp/internal/lab"
	"github.com/decamp/decamp/internal/tuning"
)

// helpText is the help; %s is the list of flags.
const helpText = `decamp-lab runs an emulated ESXi host or vCenter, to try decamp without a real host.

It serves the vSphere API and the datastores' /folder over HTTPS until it is interrupted.
The disks of its VMs are generated, or are raw images that it opens read-only. Flags slow it
down to the speed of a real host. The control URL that it prints accepts faults to inject.

--disk may be repeated; a repeated name adds a disk to that VM. A --config file can describe
all settings; --print-config prints the configuration that results from the other flags.
With --json it prints one line of JSON with all addresses when it is ready.

Usage:
  decamp-lab [FLAGS]
  decamp-lab version [--json]

Flags:
%s
Examples:
  decamp-lab
  decamp-lab --listen 127.0.0.1:8443 --conn-rate 55M --datastore-rate 300M --latency 20ms
  decamp-lab --disk web01=debian.raw --disk web01=data.raw
  decamp-lab --vcenter --print-config > lab.json && decamp-lab --config lab.json

Exit codes:
    0  interrupted, or the configuration or the version was printed
    1  internal error of decamp-lab; please report it
    2  invalid usage or input
    5  cannot listen on the address
`

// helpWidth is the column at which descriptions of flags are wrapped.
const helpWidth = 100

// options are the values of the flags.
type options struct {
	config        string        // path of the configuration; empty for none
	listen        string        // address to listen on
	vcenter       bool          // emulate a vCenter with two hosts
	connRate      flaghelp.Rate // bytes per second of one connection; 0 is unlimited
	datastoreRate flaghelp.Rate // bytes per second of one datastore; 0 is unlimited
	latency       time.Duration // delay of each response of /folder
	disks         []string      // values NAME=FILE of --disk
	printConfig   bool          // print the configuration and exit
	version       bool          // print the version and exit
	json          bool          // print JSON instead of text
	verbose       bool          // log everything to the standard error
	logFile       string        // path of the full log; empty for none
}

// newFlags returns the flags, which set the fields of o.
func newFlags(o *options) *pflag.FlagSet {
	f := pflag.NewFlagSet("decamp-lab", pflag.ContinueOnError)
	f.SortFlags = false
	f.StringVar(&o.config, "config", "", "JSON `FILE` with the configuration")
	f.StringVar(&o.listen, "listen", "", "`ADDR` to serve on (default 127.0.0.1:8443)")
	f.BoolVar(&o.vcenter, "vcenter", false, "emulate a vCenter with two hosts instead of an ESXi host")
	f.Var(&o.connRate, "conn-rate", "bytes per second of one connection, such as 55M")
	f.Var(&o.datastoreRate, "datastore-rate", "bytes per second of one datastore, such as 300M")
	f.DurationVar(&o.latency, "latency", 0, "`TIME` before each response of /folder, such as 20ms")
	f.StringArrayVar(&o.disks, "disk", nil, "add a disk to the VM NAME, from a raw image: `NAME=FILE`")
	f.BoolVar(&o.printConfig, "print-config", false, "print the configuration and exit")
	f.BoolVar(&o.version, "version", false, "print the version and exit")
	f.BoolVar(&o.json, "json", false, "print one JSON object: all addresses, the version or the error")
	f.BoolVarP(&o.verbose, "verbose", "v", false, "log everything to the standard error")
	f.StringVar(&o.logFile, "log-file", "", "append a full log to `FILE`")
	f.Usage = func() {}
	return f
}

func main() {
	tuning.Apply()
	signals := []os.Signal{os.Interrupt, syscall.SIGTERM}
	if !signal.Ignored(syscall.SIGHUP) { // nohup ignores it
		signals = append(signals, syscall.SIGHUP)
	}
	ctx, stop := signal.NotifyContext(context.Background(), signals...)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// run runs the emulator until ctx ends, and returns the exit code.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	var o options
	flags := newFlags(&o)
	err := flags.Parse(args)
	switch {
	case errors.Is(err, pflag.ErrHelp):
		fmt.Fprintf(stdout, helpText, flaghelp.Usages(flags, helpWidth))
		return 0
	case err != nil:
		err = fault.New(fault.Invalid, "%w", err).WithHint("run: decamp-lab --help")
	case o.version || flags.NArg() == 1 && flags.Arg(0) == "version":
		err = o.printVersion(stdout)
	case flags.NArg() > 0:
		err = fault.New(fault.Invalid, "unexpected argument %q", flags.Arg(0)).WithHint("run: decamp-lab --help")
	default:
		err = o.runLab(ctx, stdout, stderr)
	}
	if err != nil {
		o.json = o.json || slices.Contains(args, "--json") // flags after a wrong one are not read
		o.reportError(err, stdout, stderr)
	}
	return fault.ExitCode(err)
}

// printVersion prints the version, as decamp does.
func (o *options) printVersion(stdout io.Writer) error {
	build := buildinfo.Current()
	if o.json {
		return json.NewEncoder(stdout).Encode(build)
	}
	_, err := io.WriteString(stdout, build.Line("decamp-lab"))
	return err
}

// runLab prints the configuration or runs the emulator, with the flags in o.
func (o *options) runLab(ctx context.Context, stdout, stderr io.Writer) (err error) {
	cfg, err := o.labConfig()
	if err != nil {
		return err
	}
	if o.printConfig {
		text, err := json.MarshalIndent(cfg, "", "  ")
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(stdout, "%s\n", text)
		return err
	}
	stop, err := o.openLog(&cfg, stderr)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stop()) }()
	return o.serveLab(ctx, cfg, stdout)
}

// openLog sets the log of cfg: warnings to stderr, everything with --verbose, and everything to the
// file of --log-file. stop closes the file.
func (o *options) openLog(cfg *lab.Config, stderr io.Writer) (stop func() error, err error) {
	level := slog.LevelWarn
	if o.verbose {
		level = slog.LevelDebug
	}
	handler := slog.Handler(slog.NewTextHandler(stderr, &slog.HandlerOptions{Level: level}))
	stop = func() error { return nil }
	if o.logFile != "" {
		f, err := os.OpenFile(o.logFile, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
		if err != nil {
			return nil, fault.New(fault.Invalid, "open log file: %w", err)
		}
		handler = slog.NewMultiHandler(handler, slog.NewTextHandler(f, &slog.HandlerOptions{Level: slog.LevelDebug}))
		stop = f.Close
	}
	cfg.Log = slog.New(handler)
	return stop, nil
}

// reportError prints the error and its remedy, as decamp does: as text to stderr, or with --json as one
// object to stdout.
func (o *options) reportError(err error, stdout, stderr io.Writer) {
	message := strings.ReplaceAll(err.Error(), "\n", "; ") // errors.Join separates errors by newlines
	if o.json {
		_ = json.NewEncoder(stdout).Encode(map[string]any{"error": map[string]string{
			"kind": fault.KindOf(err).String(), "message": message, "remedy": fault.HintOf(err),
		}})
		return
	}
	fmt.Fprintf(stderr, "decamp-lab: %s\n", message)
	if remedy := fault.HintOf(err); remedy != "" {
		fmt.Fprintf(stderr, "Remedy: %s\n", remedy)
	}
}
