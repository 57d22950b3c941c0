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
Move one VM: copy -> detect -> convert -> verify -> commit.

The VM must be powered off, or be powered off by --power-off: decamp asks the guest to
shut down and waits; only with --force does it then cut the power. Nothing else about
the source ever changes, but what --warm needs while it goes on.

The images grow under a temporary name. They are published, with a libvirt domain and
the manifests that prove them, once every byte was read back from the medium and found
right. Interrupted or killed, the same command continues: what is proven is not copied
again. --discard gives the unfinished run up and removes what it copied.

Every byte of the images is compared with what decamp read. That does not find a byte that
was wrong when it was read. So verify reads a sample of each disk from the source a second
time, over another connection, and compares it: the first and the last MiB, 64 random MiB, and
those with partition tables and file-system structures, at most one MiB in 512 of the disk (64
to 1024 MiB). For a disk of 100 GiB this takes 3 s at the most, beside the reading of the image;
with --warm it is part of the outage. If a MiB differs, nothing is published, and the same
command copies the disk again. --spot chooses another sample; --spot 0 turns it off. The
result states how much was compared.

--source-hash compares all of each disk with the source: while decamp reads the images back,
the host reads each disk once more, whole, and its sha256 (or md5) has to be that of the image,
or nothing is published. That takes SSH to the host: see --ssh-host-key,
--ssh-key and --enable-ssh.

--trial boots the VM before anything is published: on overlays that are thrown away, on a
network with nobody else, by KVM where it really runs and else emulated. A guest that stops
in its initramfs, at a boot loader's prompt, in a firmware's shell or with a panic is told,
with its screen and what its serial port said, and is not published. decamp trial does the
same any time later.

--start starts the VM at its target once it is published there, after one more look that it is
off at its source, and says how to see its console. A folder starts nothing. A VM that does
not start stays published: the same command tries again, also after a run without --start.

--hardware virtio gives the VM virtio-scsi and virtio-net, and changes a Linux guest for them:
drivers appended to each initramfs, UUIDs for names of disks, network names pinned to MACs.
Nothing of the guest's is run. The copy is proven as it was at the source, tried (--trial) with
the changes on an overlay, and changed only when it is published; vm.json lists each file, with
the reason, and the root hashes of before and after. A guest that cannot be changed safely ends
the run before that; with --hardware auto it keeps the hardware it had, and is told why.
What is changed in this way is most Linux. Windows and the rest are for virt-v2v, where it
is installed: --engine auto takes it where linux-append does not do. It writes to an overlay
for minutes, and its log is kept with the run. For a Windows it needs the drivers of
virtio-win, which are yours to get: --virtio-win PATH.

With --warm the VM runs on while it is copied. A snapshot of ours freezes its disks, they
are copied and read back, and the snapshot is removed; at every --interval what changed
since is copied in the same way. Then the VM is shut down, what changed last is copied,
proven and published: when decamp cutover RUN says so, at --cutover, or once the outage
is expected to fit --downtime-budget. The outage that is told ends with the VM defined at its
target, the delivery of its images included; what its guest takes to boot counts if --boot-time
says it. In the end it is told how long it was: with --start, until the VM ran at its target.
Change tracking is turned on if it is off, and off again in the end; where it cannot be
had every round reads and compares everything. A disk that grows meanwhile is read and
compared once, before the VM is switched off. decamp pause RUN holds the rounds; decamp
cancel RUN gives up, and leaves the VM as it was found. --transport nfc works on every
host; https only where a running VM's base can be opened; landing brings the first copy,
and nfc what changes.

The API of a host with a free licence takes no snapshots and switches no VMs. vim-cmd there
does, so decamp asks it by SSH, which has to be on: its licence lets nobody but you start
it. Changes are not tracked then: every round compares everything, the last one while the VM
is off. How much that is, is said before the first.

--map names a file that says what networks, datastores and VMs are called at the target; what
it does not name is as the target has it by itself. What a target cannot do of it is refused
before anything is copied.

--dry-run says what would be defined, disk by disk and card by card, and what stands in the way:
it reads the source, asks each --to, and ends with the exit code that the migration would.

With several --to the VM is read once and lands in each folder, proven for itself. One
that fails does not stop the others; the same command then continues with it alone.
`

const migrateExamples = `
decamp migrate esxi://root@esx1 web01 --to dir:/srv/vm
decamp migrate esxi://root@esx1 web01 --to dir:/srv/vm --format qcow2 --power-off
decamp migrate esxi://root@esx1 web01 --to dir:/srv/vm --to dir:/mnt/second
decamp migrate esxi://root@esx1 web01 --to libvirt:qemu:///system --stage /srv/stage
decamp migrate esxi://root@esx1 web01 --to libvirt:qemu:///system --stage /srv/stage --start
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
	out       *output
	assembler *assemble.Assembler
}

func newMigrate(p *program) *cobra.Command {
	mc := &migrateCommand{out: p.out, assembler: p.assembler}
	cmd := &cobra.Command{
		Use:     "migrate URL VM --to TARGET [--to TARGET ...]",
		Short:   "Move one VM",
		Long:    trimHelp(migrateHelp) + "\n\n" + trimHelp(sourceHelp),
		Example: trimHelp(migrateExamples),
		Args:    exactArgs("URL", "VM"),
		Annotations: exitCodes(append(slices.Clone(sourceExits),
			exit{fault.Conflict, "something is in the way: the VM runs, the folder exists, another decamp works here"},
			exit{fault.Unsupported, "decamp cannot migrate the VM; the error has a remedy"},
			exit{fault.Corrupt, "an image differs from the copied data; nothing was published"},
			exit{fault.Full, "no space left; make room and run the command again"},
			exit{fault.Transient, "the host failed again and again, or another decamp has the images; run the command again to continue"})...),
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
	mc.assembler.ForewarnVM(ctx, w, mc.Move, vm)
	shown := newProgress(mc.out, runNamesOf(w))
	w.Shown = shown.handleEvent
	ends := w.MigrateAll(ctx, preflight.PermitOf(mc.Options), migrate.Rig{})
	shown.close()
	if given, err := givenUp(w); given || err != nil {
		return errors.Join(err, discardRuns(context.WithoutCancel(ctx), mc.out, w))
	}
	return writeEnds(mc.out, vm, ends)
}

// givenUp reports whether a warm run ended because of decamp cancel.
func givenUp(w *assemble.Parts) (bool, error) {
	d := w.To[0] // a warm run has no other
	if !d.Plan.Warm {
		return false, nil
	}
	order, err := w.Store.Order(d.Plan.ID)
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
	def, r := mc.assembler.Foresee(ctx, p.Parts, vm, mc.Options)
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

func (mc *migrateCommand) printDryRun(vm *inventory.VM, r assemble.DryRun) error {
	if mc.out.json {
		return mc.out.printJSON(r)
	}
	writeDryRun(mc.out, &r, vm)
	_, err := fmt.Fprintln(mc.out, "This was a dry run: nothing was made, copied or switched off.")
	return err
}
