package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/mapping"
	"github.com/decamp/decamp/internal/migrate"
	"github.com/decamp/decamp/internal/plan"
	"github.com/decamp/decamp/internal/planfile"
	"github.com/decamp/decamp/internal/preflight"
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

// migrateOptions are the flags of decamp migrate.
type migrateOptions struct {
	login
	to           []string
	stage        string // folder of those --to that need one
	format       string
	powerOff     bool
	force        bool
	shutdownWait time.Duration
	transport    string
	connections  int
	landing      landingOptions
	warm         warmOptions
	nfc          nfcOptions
	domainType   string
	hardware     string
	engine       engineOptions
	guestAgent   bool
	mapFile      string      // of --map; empty: none
	maps         mapping.Map // what names of the source become
	spot         spot
	sourceHash   bool
	trial        bool
	expect       string // of a trial boot
	start        bool
	discard      bool
	dryRun       bool
}

// transports are the words of --transport.
var transports = []string{"https", "nfc", "landing"}

// hardwares are the words of --hardware.
var hardwares = []string{string(plan.Compat), string(plan.Virtio), string(plan.AutoHardware)}

// usualConnections is what --connections is if nobody says otherwise.
const usualConnections = 8

func newMigrate(a *app) *cobra.Command {
	var o migrateOptions
	cmd := &cobra.Command{
		Use:     "migrate URL VM --to TARGET [--to TARGET ...]",
		Short:   "Move one VM",
		Long:    text(migrateHelp) + "\n\n" + text(sourceHelp),
		Example: text(migrateExamples),
		Args:    takes("URL", "VM"),
		Annotations: exits(append(slices.Clone(sourceExits),
			exit{fault.Conflict, "something is in the way: the VM runs, the folder exists, another decamp works here"},
			exit{fault.Unsupported, "the VM has something decamp cannot move; the remedy says what to do"},
			exit{fault.Corrupt, "an image does not hold what was copied; nothing was published"},
			exit{fault.Full, "no space left; make room and run the command again"},
			exit{fault.Transient, "the host failed again and again, or another decamp has the images; run the command again to continue"})...),
		ValidArgsFunction: cobra.NoFileCompletions, // names would have to be asked of the host
		RunE: a.logged(func(cmd *cobra.Command, args []string) error {
			if err := o.check(cmd); err != nil {
				return err
			}
			if err := o.readMap(); err != nil {
				return err
			}
			if o.dryRun {
				return a.dryRun(cmd.Context(), o, args[0], args[1])
			}
			return a.migrate(cmd.Context(), o, args[0], args[1])
		}),
	}
	o.register(cmd)
	return cmd
}

func (o *migrateOptions) register(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringArrayVar(&o.to, "to", nil, "`TARGET` where the VM is to live: dir:FOLDER, an existing folder; libvirt:URL, proxmox:URL, openstack:CLOUD?..., kubevirt:FOLDER?..., place:NAME of the access file; repeated, it is read once and lands in each")
	o.registerPlace(f)
	f.StringVar(&o.format, "format", "raw", "of the images: `raw or qcow2`")
	f.BoolVar(&o.powerOff, "power-off", false, "shut the guest down if the VM runs")
	f.BoolVar(&o.force, "force", false, "with --power-off or --warm: cut the power of a guest that stays up")
	f.DurationVar(&o.shutdownWait, "shutdown-wait", 5*time.Minute, "with --power-off or --warm: `TIME` the guest may take")
	f.Var(&o.spot, "spot", "in verify, read the first SIZE bytes and N random MiB of each disk from the source again, and compare; 0 reads nothing again (default 1M,64)")
	f.BoolVar(&o.sourceHash, "source-hash", false, "in verify, have the host hash each disk (sha256, else md5) and compare: by SSH, and for one more read of the whole disk there")
	f.BoolVar(&o.trial, "trial", false, "boot the VM on throw-away overlays, with no network, before it is published; one that does not boot is not")
	f.StringVar(&o.expect, "expect", "", "with --trial: `TEXT` on its serial port or text screen that means the guest is up, beside a login and its network")
	f.BoolVar(&o.start, "start", false, "start the VM at its target once it is published there; the one at the source stays off")
	f.BoolVar(&o.discard, "discard", false, "give up the unfinished run of this VM, remove what it copied, and exit")
	f.BoolVar(&o.dryRun, "dry-run", false, "say what would be defined, and what stands in the way; make, copy and switch off nothing")
	f.StringVar(&o.hardware, "hardware", string(plan.Compat), "of the VM at its target: `compat, virtio or auto`; virtio changes a Linux guest, auto only one that can be changed")
	o.engine.register(f)
	f.BoolVar(&o.guestAgent, "guest-agent", false, "with --hardware virtio or auto: a Linux without QEMU's guest agent installs it at its first boot, from its own package sources")
	f.StringVar(&o.transport, "transport", "https", "how the disks come here: `https, nfc or landing`; nfc reads from port 902, landing is an NFS datastore that decamp serves")
	f.IntVar(&o.connections, "connections", usualConnections, "at most `N` connections to the host, 12 at the most")
	o.warm.register(f)
	o.landing.register(f)
	o.nfc.register(f)
	o.login.register(cmd)
	for flag, words := range map[string][]string{"format": {"raw", "qcow2"}, "domain-type": {"kvm", "qemu"}, "hardware": hardwares, "engine": engines, "transport": transports} {
		_ = cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(words, cobra.ShellCompDirectiveNoFileComp)) // fails for unknown flags only
	}
}

// registerPlace has the flags that say more of a --to.
func (o *migrateOptions) registerPlace(f *pflag.FlagSet) {
	f.StringVar(&o.stage, "stage", "", "`FOLDER` where VMs are copied to and proven before libvirt, Proxmox or OpenStack takes them")
	f.StringVar(&o.mapFile, "map", "", "YAML `FILE` that says what networks, datastores and VMs are called there: networks, storages, names (docs/maps.md)")
	f.StringVar(&o.domainType, "domain-type", "kvm", "of the libvirt domain: `kvm or qemu`, which needs no KVM")
}

// check refuses flags that do not fit, before anything is asked or opened.
func (o *migrateOptions) check(cmd *cobra.Command) error {
	if err := o.checkTo(cmd); err != nil {
		return err
	}
	switch {
	case o.format != "raw" && o.format != "qcow2":
		return badUsage(cmd, "--format %q: want raw or qcow2", o.format)
	case !slices.Contains(transports, o.transport):
		return badUsage(cmd, "--transport %q: want https, nfc or landing", o.transport)
	case o.domainType != "kvm" && o.domainType != "qemu":
		return badUsage(cmd, "--domain-type %q: want kvm or qemu", o.domainType)
	case !slices.Contains(hardwares, o.hardware):
		return badUsage(cmd, "--hardware %q: want compat, virtio or auto", o.hardware)
	case !slices.Contains(engines, o.engine.name):
		return badUsage(cmd, "--engine %q: want auto, linux-append or virt-v2v", o.engine.name)
	case o.guestAgent && o.hardware == string(plan.Compat):
		return badUsage(cmd, "--guest-agent changes the guest: it needs --hardware virtio or auto")
	case o.connections < 1 || o.connections > 12:
		return badUsage(cmd, "--connections %d: want 1 to 12", o.connections)
	case o.engine.kernel != "" && o.hardware == string(plan.Compat):
		return badUsage(cmd, "--appliance-kernel is for guests that are changed: it needs --hardware virtio or auto")
	case len(o.engine.keys) > 0 && (o.hardware == string(plan.Compat) || o.engine.name == string(plan.LinuxAppend)):
		return badUsage(cmd, "--key-file is for guests that virt-v2v changes: it needs --hardware virtio or auto, and no --engine linux-append")
	case o.expect != "" && !o.trial:
		return badUsage(cmd, "--expect says when a trial boot is up: it needs --trial")
	case o.start && len(o.to) > 1:
		return badUsage(cmd, "--start and several --to exclude each other: two of one VM would run, with the same addresses")
	case o.dryRun && o.discard:
		return badUsage(cmd, "--dry-run and --discard exclude each other: --discard removes what was copied")
	case o.trial && o.warm.on:
		return badUsage(cmd, "--trial and --warm exclude each other: the VM would be off for as long as its copy boots; decamp rehearse boots it before")
	case o.force && !o.powerOff && !o.warm.on:
		return badUsage(cmd, "--force says how to power off: it needs --power-off or --warm")
	}
	if err := o.warm.check(cmd, len(o.to)); err != nil {
		return err
	}
	if err := o.landing.check(cmd, &o.transport); err != nil {
		return err
	}
	return o.nfc.check(cmd, o.transport)
}

func (o *migrateOptions) checkTo(cmd *cobra.Command) error {
	if len(o.to) == 0 {
		return badUsage(cmd, "--to is missing: want dir:FOLDER")
	}
	seen := map[string]bool{}
	for _, to := range o.to {
		d, err := destinationOf(to, o.stage)
		switch {
		case err != nil:
			return fmt.Errorf("--to: %w", err)
		case seen[d.Folder()]:
			return badUsage(cmd, "--to %q: its folder is there twice", to)
		}
		seen[d.Folder()] = true
	}
	return nil
}

// readMap reads the file of --map.
func (o *migrateOptions) readMap() (err error) {
	if o.mapFile == "" {
		return nil
	}
	if o.maps, err = planfile.LoadMap(o.mapFile); err != nil {
		return fmt.Errorf("--map: %w", err)
	}
	return nil
}

// permit is what is allowed this time; it is not part of the plan.
func (o *migrateOptions) permit() migrate.Permit {
	options := planfile.Options{
		Mode: planfile.Cold, PowerOff: planfile.NeverOff, ShutdownWait: planfile.Duration(o.shutdownWait), SourceHash: o.sourceHash, Trial: o.trial, Start: o.start,
		Warm: planfile.Warm{Interval: planfile.Duration(o.warm.interval), DowntimeBudget: planfile.Duration(o.warm.budget), Paranoid: o.warm.paranoid},
		Spot: planfile.Spot{First: planfile.Size(o.spot.First), Ranges: o.spot.Random, Off: o.spot.None},
	}
	options.Warm.Cutover.At = o.warm.time
	if o.warm.on {
		options.Mode = planfile.Warmly
	}
	switch {
	case o.force:
		options.PowerOff = planfile.ForceOff
	case o.powerOff:
		options.PowerOff = planfile.GuestOff
	}
	p := preflight.PermitOf(options)
	if o.warm.bootSaid {
		p.Cutover.Boot = &o.warm.boot
	}
	return p
}

func (a *app) migrate(ctx context.Context, o migrateOptions, rawURL, name string) (err error) {
	if err := o.engine.checkFiles("--key-file", "--appliance-kernel"); err != nil {
		return err
	}
	w, err := a.openWorks(ctx, o, rawURL)
	if err != nil {
		return err
	}
	defer closing(&err, w.Close)
	vm, err := w.session.VM(ctx, name)
	if err != nil {
		return err
	}
	w.plan(vm, o)
	if o.discard {
		return a.discard(ctx, w)
	}
	if err := w.checkEngine(ctx, o, vm); err != nil {
		return err
	}
	if o.sourceHash { // what it needs is to be missed now, not after hours of copying
		if _, err := w.shells.Open(ctx, vm.Host); err != nil {
			return fmt.Errorf("--source-hash: %w", err)
		}
	}
	for _, d := range w.to {
		if err := a.announceRun(ctx, w, d, vm); err != nil {
			return err
		}
	}
	w.forewarn(ctx, a, o, vm)
	w.shown = a.newProgress(w.names())
	ends := w.migrateAll(ctx, o.permit(), migrate.Rig{})
	w.shown.close()
	if given, err := w.givenUp(); given || err != nil {
		return errors.Join(err, a.discard(context.WithoutCancel(ctx), w))
	}
	return a.writeEnds(vm, ends)
}

// givenUp reports whether a warm run ended because decamp cancel said so.
func (w *works) givenUp() (bool, error) {
	d := w.to[0] // a warm run has no other
	if !d.plan.Warm {
		return false, nil
	}
	order, err := w.store.Order(d.plan.ID)
	if err != nil || order != plan.GiveUp {
		return false, err
	}
	run, err := w.store.Run(d.plan.ID)
	return err == nil && run.State != plan.Done, err
}

// discard gives up the runs to all destinations.
func (a *app) discard(ctx context.Context, w *works) error {
	w.shown = a.newProgress(w.names())
	defer w.shown.close()
	var errs []error
	for _, d := range w.to {
		errs = append(errs, a.discardRun(ctx, w, d))
	}
	return errors.Join(errs...)
}

func (a *app) discardRun(ctx context.Context, w *works, d *destination) error {
	if err := w.migrator.Discard(ctx, d.plan.ID, w.rigOf(d)); err != nil {
		return err
	}
	if a.json {
		return a.print(map[string]plan.ID{"discarded": d.plan.ID})
	}
	_, err := fmt.Fprintf(a.out, "Run %s is given up; what it copied is removed.\n", d.plan.ID)
	return err
}
