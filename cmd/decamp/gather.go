package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/decamp/decamp/internal/assemble"
	"github.com/decamp/decamp/internal/buildinfo"
	"github.com/decamp/decamp/internal/doctor"
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/fleetdb"
	"github.com/decamp/decamp/internal/gather"
	"github.com/decamp/decamp/internal/server"
	"github.com/decamp/decamp/internal/units"
)

const gatherHelp = `
Write one archive for support: versions, the doctor's report on this machine, plans with their
VMs, limits and workers, journals of runs, changes on hosts, the logs of --log and of the
systemd units decamp-server and decamp-worker, and with --server its metrics. The files of
the archive are listed before it is written; on a terminal the user confirms it.

Passwords, tokens and hooks are left out. Names and addresses are replaced: the same name by
the same pseudonym in all files, such as <vm3>. --keep-names keeps them. Read the archive
before you send it: free text may contain names that decamp does not know.
`

const gatherExamples = `
decamp gather
decamp gather --log decamp.log --output case-17.tar.gz
`

// gatherCommand is decamp gather.
type gatherCommand struct {
	p         *program
	fleet     fleetFlags // flags of the fleet
	output    string     // path of the archive; empty: a name with the time
	logs      []string   // paths of logs
	keepNames bool       // replace no names
}

// newGather returns the command decamp gather.
func newGather(p *program) *cobra.Command {
	gc := &gatherCommand{p: p, fleet: fleetFlags{assembler: p.assembler}}
	cmd := &cobra.Command{
		Use: "gather", Short: "Write an archive for support, without secrets and names", Long: trimHelp(gatherHelp), Example: trimHelp(gatherExamples),
		Args: exactArgs(), ValidArgsFunction: cobra.NoFileCompletions,
		Annotations: exitCodes(exit{fault.NotFound, "a log does not exist"}, exit{fault.Conflict, "the file of --output exists"}, exit{fault.Canceled, "the archive was not confirmed, or the command was stopped by a signal"}),
		RunE:        p.withLog(func(cmd *cobra.Command, _ []string) error { return gc.runGather(cmd.Context()) }),
	}
	f := cmd.Flags()
	f.StringVar(&gc.output, "output", "", "`FILE` to write (default decamp-support-TIME.tar.gz)")
	f.StringArrayVar(&gc.logs, "log", nil, "`FILE` with a log of decamp, as text; may be repeated")
	f.BoolVar(&gc.keepNames, "keep-names", false, "keep names and addresses; secrets are removed in any case")
	gc.fleet.registerFlags(cmd)
	return cmd
}

// runGather collects the files, lists them, and writes the archive.
func (gc *gatherCommand) runGather(ctx context.Context) error {
	gc.p.assembler.ReadsState = true
	state, err := gc.p.assembler.StateDir()
	if err != nil {
		return err
	}
	o := gather.Options{State: state, Logs: gc.logs, Units: []string{"decamp-server.service", "decamp-worker.service"}, KeepNames: gc.keepNames, Documents: map[string]any{
		"versions.json": map[string]any{"decamp": buildinfo.Current(), "schema": fleetdb.SchemaVersion()},
		"doctor.json":   doctor.Examine(ctx, (&assemble.Diagnosis{Parts: &assemble.Parts{}}).Groups(), doctor.Options{Short: true}),
	}}
	if err := gc.addFleet(ctx, o.Documents); err != nil {
		o.Documents["fleet-error.json"] = gc.p.out.problemOf(err)
	}
	gc.addKnown(&o)
	archive, err := gather.Collect(ctx, o)
	if err != nil {
		return err
	}
	name, at := gc.output, time.Now()
	if name == "" {
		name = "decamp-support-" + at.Format("20060102-150405") + ".tar.gz"
	}
	if err := gc.confirm(ctx, archive, name); err != nil {
		return err
	}
	if err := archive.Create(name, at); err != nil {
		return err
	}
	if gc.p.out.json {
		return gc.p.out.printJSON(map[string]any{"archive": name, "files": archive.Entries(), "left": append([]string{}, archive.Left...)})
	}
	_, err = fmt.Fprintf(gc.p.out, "Written: %s\n", fault.Printable(name))
	return err
}

// addKnown adds the secrets and the names that the environment contains.
func (gc *gatherCommand) addKnown(o *gather.Options) {
	files := append(gc.p.assembler.Settings.SecretFiles(), gc.p.assembler.Env(assemble.PasswordEnv), gc.p.assembler.Env(tokenFileEnv), gc.fleet.tokenFile)
	for _, file := range files {
		if text, err := os.ReadFile(file); err == nil {
			o.Secrets = append(o.Secrets, string(text))
		}
	}
	host, _ := os.Hostname() // otherwise empty, and not a name
	home, _ := os.UserHomeDir()
	here, _ := os.Getwd()
	o.Names = [][2]string{{"host", host}, {"user", localUser()}, {"folder", here}, {"folder", o.State}}
	if home != "/root" { // the same on all machines, and a part of esxi://root@
		o.Names = append(o.Names, [2]string{"folder", home})
	}
	for _, url := range quietCompleter(gc.p).Sources() {
		o.Names = append(o.Names, [2]string{"host", url})
	}
}

// addFleet adds plans, VMs, limits, workers and metrics of the fleet, if there is one.
func (gc *gatherCommand) addFleet(ctx context.Context, documents map[string]any) (err error) {
	if !gc.fleet.exists() {
		return nil // without plans
	}
	c, closeControl, err := gc.fleet.openControl(ctx)
	if err != nil {
		return err
	}
	defer joinClose(&err, closeControl)
	return server.Documents(ctx, c, documents)
}

// confirm lists the files, and prompts on a terminal before they are written.
func (gc *gatherCommand) confirm(ctx context.Context, a *gather.Archive, name string) error {
	out := gc.p.out
	if out.json {
		return nil
	}
	t := newTable("FILE", "SIZE", "NOTE")
	t.alignRight(1)
	for _, e := range a.Entries() {
		t.addRow(fault.Printable(e.Name), units.Binary(e.Size), e.Note)
	}
	t.writeTo(out)
	for _, left := range a.Left {
		out.note("Left out: %s", left)
	}
	if !out.screen.IsTerminal() {
		return nil
	}
	term, err := gc.p.terminal()
	if err != nil {
		return nil // without a terminal for questions
	}
	defer term.Close()
	answer, err := term.Ask(ctx, fmt.Sprintf("Write these files to %s? Type yes to continue: ", fault.Printable(name)))
	if err == nil && answer != "yes" {
		err = fault.New(fault.Canceled, "nothing was written")
	}
	return err
}
