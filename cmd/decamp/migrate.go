package main

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/decamp/decamp/internal/assemble"
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/guest"
	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/journal"
	"github.com/decamp/decamp/internal/migrate"
	"github.com/decamp/decamp/internal/planfile"
	"github.com/decamp/decamp/internal/preflight"
	"github.com/decamp/decamp/internal/transport/https"
)

const migrateHelp = `
Migrate one VM in five steps: copy -> detect -> convert -> verify -> commit.

The VM must be powered off, unless --power-off or --warm is given. decamp copies its disks,
reads the images back from the medium, compares every byte with the data that it read, and
then publishes the VM: until then the target shows nothing of it. --source-hash also compares
whole disks with the source.

If the command is interrupted or killed, run it again: it continues, and does not copy verified
data again. --discard discards the unfinished run and removes its images.

More: decamp help sources, targets, transports, verification, conversion, trial, warm.
`

const migrateExamples = `
decamp migrate esxi://root@esx1 web01 --to dir:/srv/vm --power-off
decamp migrate esxi://root@esx1 web01 --to libvirt:qemu:///system --staging /srv/stage --start
decamp migrate esxi://root@esx1 web01 --to dir:/srv/vm --map map.yaml --dry-run
decamp migrate esxi://root@esx1 web01 --to dir:/srv/vm --hardware virtio --trial
decamp migrate esxi://root@esx1 db01 --to dir:/srv/vm --warm --transport nfc
decamp migrate vcenter://ops@vsphere.local@vc1 /DC1/vm/prod/db01 --to dir:/srv/vm
`

// migrateCommand is decamp migrate.
type migrateCommand struct {
	moveFlags
	out       *output             // output and messages
	assembler *assemble.Assembler // state directory, access file and prompts
}

// newMigrate returns the command decamp migrate.
func newMigrate(p *program) *cobra.Command {
	mc := &migrateCommand{out: p.out, assembler: p.assembler}
	cmd := &cobra.Command{
		Use:     "migrate URL VM --to TARGET [--to TARGET ...]",
		Short:   "Migrate one VM",
		Long:    trimHelp(migrateHelp) + "\n\n" + trimHelp(sourceHelp),
		Example: trimHelp(migrateExamples),
		Args:    exactArgs("URL", "VM"),
		Annotations: exitCodes(append(slices.Clone(sourceExits),
			exit{fault.Conflict, "the VM runs, the folder exists, or another decamp process uses the state directory"},
			exit{fault.Unsupported, "decamp cannot migrate the VM; the error has a remedy"},
			exit{fault.Corrupt, "an image differs from the copied data; nothing was published"},
			exit{fault.Full, "no space left; free space and run the command again"},
			exit{fault.Transient, "the host failed repeatedly, or another decamp process has the images; run the command again to continue"},
			exit{fault.Canceled, "stopped by a signal, or canceled by decamp cancel"})...),
		ValidArgsFunction: cobra.NoFileCompletions, // names would have to be asked of the host
		RunE: p.withLog(func(cmd *cobra.Command, args []string) error {
			if err := mc.checkFlags(cmd); err != nil {
				return err
			}
			if mc.dryRun {
				return mc.runDry(cmd.Context(), args[0], args[1])
			}
			return mc.runMigrate(cmd.Context(), args[0], args[1])
		}),
	}
	mc.registerFlags(cmd)
	return cmd
}

// runMigrate migrates a VM to all destinations and prints the result.
func (mc *migrateCommand) runMigrate(ctx context.Context, rawURL, name string) (err error) {
	if err := assemble.EngineOf(mc.Move).CheckFiles("--key-file", "--appliance-kernel"); err != nil {
		return err
	}
	w, err := mc.assembler.Open(ctx, mc.Move, rawURL)
	if err != nil {
		return err
	}
	defer joinClose(&err, w.Close)
	vm, err := w.Session.VM(ctx, name)
	if err != nil {
		return err
	}
	w.Plan(vm, mc.Move)
	if mc.discard {
		return discardRuns(ctx, mc.out, w)
	}
	if err := w.CheckEngine(ctx, mc.Move, vm); err != nil {
		return err
	}
	if mc.SourceHash { // a missing requirement must appear now, not after hours of copying
		if _, err := w.Shells.Open(ctx, vm.Host); err != nil {
			return fmt.Errorf("--source-hash: %w", err)
		}
	}
	for _, d := range w.To {
		if err := announceRun(ctx, mc.out, w, d, vm); err != nil {
			return err
		}
	}
	mc.assembler.WarnBeforeVM(ctx, w, mc.Move, vm)
	shown := newProgress(mc.out, runNamesOf(w))
	w.Shown = shown.HandleEvent
	ends := w.MigrateAll(ctx, preflight.PermitOf(mc.Options), migrate.Environment{})
	shown.Close()
	if given, err := givenUp(w); given || err != nil {
		if err := errors.Join(err, discardRuns(context.WithoutCancel(ctx), mc.out, w)); err != nil {
			return err
		}
		return fault.New(fault.Canceled, "VM %s is not migrated: decamp cancel ended run %s", vm.Name, w.To[0].Plan.ID)
	}
	return writeEnds(mc.out, vm, ends)
}

// givenUp reports whether a warm run ended because of decamp cancel. Its changes must then be reverted.
func givenUp(w *assemble.Parts) (bool, error) {
	d := w.To[0] // a warm run has no other
	if !d.Plan.Warm {
		return false, nil
	}
	order, err := w.Store.Command(d.Plan.ID)
	if err != nil || order != journal.GiveUp {
		return false, err
	}
	run, err := w.Store.Run(d.Plan.ID)
	return err == nil && run.State != journal.Done, err
}

// runDry prints the definition of the VM and the obstacles. It reads the source, queries the targets,
// and changes nothing.
func (mc *migrateCommand) runDry(ctx context.Context, rawURL, name string) (err error) {
	if err := assemble.EngineOf(mc.Move).CheckFiles("--key-file", "--appliance-kernel"); err != nil {
		return err
	}
	p := &assemble.SourceParts{Assembler: mc.assembler, Parts: &assemble.Parts{}, Login: mc.Login, SSH: mc.SSH}
	if err := mc.assembler.OpenTargets(p.Parts, mc.Move, planfile.Local); err != nil {
		return err
	}
	defer joinClose(&err, p.Close)
	if err := mc.assembler.OpenURL(ctx, p, rawURL); err != nil {
		return err
	}
	p.Reader = https.New(p.Session, https.Options{MaxConnections: mc.Connections, Log: mc.out.log})
	if p.Transport, err = mc.assembler.NewTransport(ctx, p.Parts, mc.Options); err != nil {
		return err
	}
	vm, err := p.Session.VM(ctx, name)
	if err != nil {
		return err
	}
	def, r := mc.assembler.PreviewDefinition(ctx, p.Parts, vm, mc.Options)
	obstacles := migrate.Obstacles(vm, p.Transport, preflight.PermitOf(mc.Options))
	refused := mc.CheckEngine(ctx, vm, func() []guest.Report { return def.Guest })
	for _, d := range p.To {
		r.Destinations = append(r.Destinations, assemble.Outline(ctx, d, def, obstacles, refused))
	}
	if err := mc.printDryRun(def.VM, r); err != nil {
		return err
	}
	return r.Err()
}

// printDryRun prints the result of a dry run.
func (mc *migrateCommand) printDryRun(vm *inventory.VM, r assemble.DryRun) error {
	if mc.out.json {
		return mc.out.printJSON(r)
	}
	writeDryRun(mc.out, &r, vm)
	_, err := fmt.Fprintln(mc.out, "This was a dry run: nothing was created, copied or powered off.")
	return err
}
