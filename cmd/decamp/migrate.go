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

The VM must be powered off, or --power-off must permit decamp to shut the guest down. decamp
waits for the shutdown, and powers the VM off only with --force. It changes nothing else at
the source, except what --warm requires during the migration.

Images are written under a temporary name. They are published, with a libvirt domain and their
manifests, after every byte was read back from the medium and compared. If the command is
interrupted or killed, the same command continues: verified parts are not copied again.
--discard discards the unfinished run and removes its images.

Every byte of the images is compared with the data that decamp read. That does not detect a
byte that was read wrongly. Therefore verify reads a sample of each disk from the source a
second time, over another connection, and compares it: the first and the last MiB, 64 random
MiB, and those with partition tables and file-system structures, at most one MiB in 512 of the
disk (64 to 1024 MiB). For a disk of 100 GiB this takes at most 3 s, in parallel with reading
the image; with --warm it is part of the outage. If a MiB differs, nothing is published, and
the same command copies the disk again. --spot selects another sample; --spot 0 turns it off.
The result states how much was compared.

--source-hash compares the whole disk with the source. While decamp reads the images back, the
host also reads each whole disk and computes its sha256 (or md5). If it differs from that of
the image, nothing is published. This requires SSH to the host: see --ssh-host-key, --ssh-key
and --enable-ssh.

--trial boots the VM before it is published: on temporary overlays, on an isolated network,
with KVM if that works, otherwise emulated. A guest that stops in its initramfs, at a boot
loader's prompt, in a firmware shell or with a panic is reported with its screen and its
serial log, and is not published. decamp trial does the same at any later time.

--start starts the VM at its target after it is published. First decamp checks again that the
source VM is off. It prints how to open the console. A folder cannot start VMs. A VM that does
not start stays published: the same command tries again, also after a run without --start.

--hardware virtio gives the VM virtio-scsi and virtio-net, and changes a Linux guest
accordingly: it appends drivers to each initramfs, replaces names of disks by UUIDs, and binds
network names to MAC addresses. No program of the guest is run. decamp verifies the copy
before these changes and tests them on an overlay (--trial). It changes the image only when it
publishes the VM. vm.json lists each changed file, the reason, and the root hashes before and
after. If a guest cannot be changed safely, the run ends before that; --hardware auto then
keeps the original hardware and prints the reason. This works for most Linux guests. For
Windows and other guests decamp uses virt-v2v, if that is installed: --engine auto selects it
for guests that linux-append does not support. It writes to an overlay for several minutes,
and the run keeps its log. For Windows it requires the virtio-win drivers, which you must
provide: --virtio-win PATH.

With --warm the VM runs while it is copied. decamp creates a snapshot, copies and verifies the
frozen disks, and removes the snapshot. After each --interval it copies the changes in the
same way. Then it shuts the VM down, copies the last changes, and verifies and publishes the
images. This cutover starts with decamp cutover RUN, at the time of --cutover, or when the
expected outage is within --downtime-budget. The expected outage ends when the VM is defined
at its target; it includes the delivery of images, and the boot of the guest if --boot-time is
set. At the end decamp prints the actual outage; with --start it ends when the VM runs at its
target. decamp turns change tracking on if it is off, and off again at the end. Without change
tracking each round reads and compares everything. A disk that grows during the migration is
read and compared once more before the VM is powered off. decamp pause RUN suspends the
rounds. decamp cancel RUN cancels the run and reverts all changes at the source. --transport
nfc works on every host; https works only if the base disk of a running VM can be opened;
landing makes the first copy, and nfc copies the changes.

With a free licence, the API of a host cannot create snapshots or change power states. decamp
then uses vim-cmd over SSH. SSH must be on, because only the user can start it with this
licence. Changes are not tracked: each round compares everything, the last one while the VM is
off. decamp prints the size of a round before the first one.

--map is a file with the names of networks, datastores and VMs at the target. Other names keep
the defaults of the target. A mapping that the target does not support is refused before the
copy.

--dry-run prints the definition of the VM with each disk and network card, and the obstacles.
It reads the source and queries each --to. Its exit code is that of the migration.

With several --to each disk is read once and written to all folders, and each copy is verified
separately. If one fails, the others continue; the same command then continues the failed one.
`

const migrateExamples = `
decamp migrate esxi://root@esx1 web01 --to dir:/srv/vm
decamp migrate esxi://root@esx1 web01 --to dir:/srv/vm --format qcow2 --power-off
decamp migrate esxi://root@esx1 web01 --to dir:/srv/vm --to dir:/mnt/second
decamp migrate esxi://root@esx1 web01 --to libvirt:qemu:///system --staging /srv/stage
decamp migrate esxi://root@esx1 web01 --to libvirt:qemu:///system --staging /srv/stage --start
decamp migrate esxi://root@esx1 web01 --to dir:/srv/vm --map map.yaml
decamp migrate esxi://root@esx1 web01 --to dir:/srv/vm --landing tmpfs:16G
decamp migrate esxi://root@esx1 web01 --to dir:/srv/vm --hardware virtio --trial
decamp migrate esxi://root@esx1 ad01 --to dir:/srv/vm --hardware virtio --virtio-win win.iso
decamp migrate esxi://root@esx1 web01 --to dir:/srv/vm --transport nfc
decamp migrate esxi://root@esx1 db01 --to dir:/srv/vm --warm --transport nfc
decamp migrate vcenter://ops@vsphere.local@vc1 /DC1/vm/prod/db01 --to dir:/srv/vm --spot 100M
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
			exit{fault.Transient, "the host failed repeatedly, or another decamp process has the images; run the command again to continue"})...),
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
	w.Shown = shown.handleEvent
	ends := w.MigrateAll(ctx, preflight.PermitOf(mc.Options), migrate.Environment{})
	shown.close()
	if given, err := givenUp(w); given || err != nil {
		return errors.Join(err, discardRuns(context.WithoutCancel(ctx), mc.out, w))
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
