package main

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/decamp/decamp/internal/assemble"
	"github.com/decamp/decamp/internal/flaghelp"
	wire "github.com/decamp/decamp/internal/nfc"
	"github.com/decamp/decamp/internal/planfile"
)

// moveFlags are the flags that describe a migration, for decamp migrate and decamp doctor. setOptions
// copies their values to Move.
type moveFlags struct {
	assemble.Move
	to      []string // values of --to
	stage   string   // folder of those --to that need one
	mapFile string   // value of --map; empty if none

	powerOff, force bool           // PowerOff
	warm            bool           // Mode
	cutover         string         // value of --cutover
	boot            time.Duration  // value of --boot-time
	spot            spot           // value of --spot
	into            flaghelp.Tmpfs // value of --landing

	discard bool // discard the unfinished run
	dryRun  bool // only print the definition and the obstacles
}

// optionUsages are the usages of the flags that set keys of planfile.Options, in the order of the help.
// A flag that is not listed has the doc of its key. An empty usage is the place of a flag of
// extraFlags.
var optionUsages = []struct{ flag, usage string }{
	{"format", "format of the images: `raw or qcow2`"},
	{"power-off", ""},
	{"force", ""},
	{"shutdown-wait", "with --power-off or --warm: `TIME` limit of the guest's shutdown"},
	{"spot", ""},
	{"source-hash", "in verify, compare each disk with a hash (sha256, otherwise md5) that the host computes over SSH; the host reads the whole disk for it"},
	{"trial", "boot the VM on temporary overlays, without a network, before it is published; a VM that does not boot is not published"},
	{"expect", "with --trial: `TEXT` on the serial port or text screen that means that the guest has booted, in addition to a login prompt and its network"},
	{"start", "start the VM at its target after it is published; the source VM stays off"},
	{"discard", ""},
	{"dry-run", ""},
	{"hardware", "hardware of the VM at its target: `compat, virtio or auto`; virtio requires changes to the guest; auto is virtio if the guest can be changed"},
	{"engine", "tool that changes a guest for virtio, by `NAME`: auto, linux-append or virt-v2v; auto is linux-append, or virt-v2v if that is installed and linux-append does not support the guest"},
	{"virtio-win", "`PATH` of the drivers that virt-v2v installs in Windows: the ISO image virtio-win, or a folder with its contents (default $VIRTIO_WIN)"},
	{"key-file", "`[ID=]PATH` of a file that only you can read, for virt-v2v, with a LUKS passphrase or a BitLocker recovery key in one line; ID limits it to the volume with that UUID or device (/dev/sda2); may be repeated"},
	{"appliance-kernel", "kernel image `FILE` of the appliance that changes XFS and btrfs of guests for --hardware virtio; its modules are in lib/modules beside it (default the newest kernel in /boot)"},
	{"guest-agent", "with --hardware virtio or auto: a Linux guest without QEMU's guest agent installs it at its first boot, from its package sources"},
	{"transport", "transport of the disks: `https, nfc or landing`; nfc reads from port 902, landing is an NFS datastore that decamp serves"},
	{"connections", "maximum number `N` of connections to the host, up to 12"},
	{"warm", ""},
	{"cutover", ""},
	{"interval", "with --warm: `TIME` from the start of one round to the start of the next"},
	{"downtime-budget", "with --warm: cut over when the expected outage is at most `TIME`"},
	{"boot-time", ""},
	{"paranoid", "with --warm: after the last round, while the VM is off, read all of its disks again and compare"},
	{"advertise", "with landing: `IP` of this machine for the host (default the address of the route to it)"},
	{"landing-listen", "with landing: `ADDR` to serve NFS on"},
	{"landing-portmap", "with landing: `ADDR` of the port mapper; ESXi expects port 111"},
	{"landing", ""},
	{"landing-allow", "with landing: another `HOST` that may mount the datastore: name, address or network; may be repeated"},
	{"landing-copy", "with landing: method of the host's copy: `auto, api or ssh`; auto is the API, or SSH if licence or privileges forbid the API"},
	{"enable-ssh", ""},
	{"ssh-host-key", ""},
	{"ssh-key", ""},
	{"ssh-user", ""},
	{"ssh-password-file", ""},
	{"ssh-port", ""},
	{"landing-memory", "with landing: memory for the data of all disks together, such as 1G"},
	{"nfc-handles", "with nfc: `N` sessions for each disk, up to 16"},
	{"nfc-buffer", "with nfc: size of a session's buffers on the host, a multiple of 64K up to 2M (default 1M)"},
	{"nfc-buffers", "with nfc: `N` buffers of a session, at most 16M together"},
	{"network", "with nfc: VMkernel NIC `VMK` of the host to read from: vmk1, its address, subnet or port group (default the NIC with the backup tag)"},
	{"nfc-plain", "with nfc: read without encryption: every machine on the path can read the data"},
}

// registerFlags registers all flags of decamp migrate.
func (o *moveFlags) registerFlags(cmd *cobra.Command) {
	o.Options = planfile.DefaultOptions()
	f := cmd.Flags()
	f.StringArrayVar(&o.to, "to", nil, "`TARGET` of the VM: dir:FOLDER, an existing folder; libvirt:URL, proxmox:URL, openstack:CLOUD?..., kubevirt:FOLDER?..., place:NAME of the access file, or the name of a target in a config file; with several, each disk is read once and written to all")
	o.registerPlace(f)
	o.registerKeys(cmd, o.extraFlags())
	registerLogin(&o.Login, cmd)
	for _, g := range flagGroups {
		for _, name := range g.flags {
			if flag := f.Lookup(name); flag != nil {
				flag.Annotations = map[string][]string{groupNote: {g.title}}
			}
		}
	}
}

// extraFlags returns the flags that set no key of the options, or have another form than their key.
func (o *moveFlags) extraFlags() *pflag.FlagSet {
	f := pflag.NewFlagSet("", pflag.ContinueOnError)
	f.BoolVar(&o.powerOff, "power-off", false, "shut the guest down if the VM runs")
	f.BoolVar(&o.force, "force", false, "with --power-off or --warm: power the VM off if the guest does not shut down")
	f.Var(&o.spot, "spot", "in verify, read the first SIZE bytes and N random MiB of each disk from the source again, and compare; 0 turns it off (default 1M,64)")
	f.BoolVar(&o.discard, "discard", false, "discard the unfinished run of this VM, remove its images, and exit")
	f.BoolVar(&o.dryRun, "dry-run", false, "print the definition of the VM and the obstacles, and change nothing")
	f.BoolVar(&o.warm, "warm", false, "copy the VM in rounds while it runs, and power it off only for the last one")
	f.StringVar(&o.cutover, "cutover", manually, "with --warm: `TIME` of the cutover, such as 2026-12-01T02:00Z, or manual: with decamp cutover")
	f.DurationVar(&o.boot, "boot-time", 0, "with --warm: boot `TIME` of the guest, which is added to the outage; kept when the run continues")
	f.Var(&o.into, "landing", "receive the data in memory first, `tmpfs:SIZE` at most, and write it to --to from there; implies --transport landing")
	registerSSH(&o.SSH, f)
	return f
}

// registerPlace registers the flags that describe targets.
func (o *moveFlags) registerPlace(f *pflag.FlagSet) {
	f.StringVar(&o.stage, "staging", "", "staging `FOLDER` in which VMs are copied and verified before their delivery to libvirt, Proxmox or OpenStack")
	f.StringVar(&o.mapFile, "map", "", "YAML `FILE` with the names of networks, datastores and VMs at the target: networks, storages, names (docs/maps.md)")
	f.StringVar((*string)(&o.DomainType), "domain-type", string(o.DomainType), "type of the libvirt domain: `kvm or qemu`; qemu works without KVM")
}

// registerKeys registers a flag for each key of the options that has one, and the extra flags at their
// places.
func (o *moveFlags) registerKeys(cmd *cobra.Command, byHand *pflag.FlagSet) {
	all := map[string]planfile.Flag{}
	for _, flag := range o.Flags() {
		all[flag.Name] = flag
	}
	for _, u := range optionUsages {
		if u.usage == "" {
			cmd.Flags().AddFlag(byHand.Lookup(u.flag))
			continue
		}
		registerKey(cmd, all[u.flag], u.usage)
		delete(all, u.flag)
	}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if cmd.Flags().Lookup(name) == nil {
			registerKey(cmd, all[name], all[name].Doc)
		}
	}
	for _, flag := range o.Flags() {
		if flag.Words != nil {
			_ = cmd.RegisterFlagCompletionFunc(flag.Name, cobra.FixedCompletions(flag.Words, cobra.ShellCompDirectiveNoFileComp)) // fails for unknown flags only
		}
	}
}

// registerKey registers a flag that writes to the field of its key.
func registerKey(cmd *cobra.Command, flag planfile.Flag, usage string) {
	f := cmd.Flags()
	switch field := flag.Field.(type) {
	case *int:
		f.IntVar(field, flag.Name, *field, usage)
	case *bool:
		f.BoolVar(field, flag.Name, *field, usage)
	case *planfile.Duration:
		f.DurationVar((*time.Duration)(field), flag.Name, time.Duration(*field), usage)
	case *planfile.Size:
		f.Var((*flaghelp.Size)(field), flag.Name, usage)
	case *planfile.IP:
		f.TextVar(&field.Addr, flag.Name, field.Addr, usage)
	case *[]planfile.Text:
		f.Var((*textsFlag)(field), flag.Name, usage)
	default: // a kind of string
		text := reflect.ValueOf(field).Convert(reflect.TypeFor[*string]()).Interface().(*string)
		f.StringVar(text, flag.Name, *text, usage)
	}
}

// checkFlags sets the options, and refuses flags that contradict each other. It opens no file and no
// connection, except the file of --map.
func (o *moveFlags) checkFlags(cmd *cobra.Command) error {
	if len(o.to) == 0 {
		return badUsage(cmd, "--to is missing: want a target such as dir:FOLDER")
	}
	if err := o.setOptions(cmd); err != nil {
		return err
	}
	if err := o.checkKeys(cmd); err != nil {
		return err
	}
	changed := o.ChangesGuest()
	switch {
	case o.GuestAgent && !changed:
		return badUsage(cmd, "--guest-agent requires --hardware virtio or auto, because it changes the guest")
	case o.Kernel != "" && !changed:
		return badUsage(cmd, "--appliance-kernel requires --hardware virtio or auto")
	case len(o.KeyFiles) > 0 && (!changed || o.Engine == "linux-append"):
		return badUsage(cmd, "--key-file requires --hardware virtio or auto, and excludes --engine linux-append")
	case o.Expect != "" && !o.Trial:
		return badUsage(cmd, "--expect requires --trial: it is the sign of a successful trial boot")
	case o.Start && len(o.to) > 1:
		return badUsage(cmd, "--start and several --to exclude each other: several copies would run with the same addresses")
	case o.dryRun && o.discard:
		return badUsage(cmd, "--dry-run and --discard exclude each other: --discard removes the copy")
	case o.Trial && o.warm:
		return badUsage(cmd, "--trial and --warm exclude each other: the VM would be off for as long as its copy boots; decamp rehearse boots it before")
	case o.force && !o.powerOff && !o.warm:
		return badUsage(cmd, "--force requires --power-off or --warm")
	}
	if err := o.checkWarm(cmd); err != nil {
		return err
	}
	if o.Transport == "landing" {
		if err := assemble.FitsMemory(int64(o.Landing.Memory)); err != nil {
			return err
		}
	}
	return o.checkNFC(cmd)
}

// setOptions sets the keys of flags that have another form than their key.
func (o *moveFlags) setOptions(cmd *cobra.Command) (err error) {
	if o.To, err = destinationsOf(cmd, o.to, o.stage); err != nil {
		return err
	}
	switch {
	case o.force:
		o.PowerOff = planfile.ForceOff
	case o.powerOff:
		o.PowerOff = planfile.GuestOff
	}
	if o.warm {
		o.Mode = planfile.WarmMode
	}
	o.Spot = planfile.Spot{First: planfile.Size(o.spot.First), Ranges: o.spot.Random, Off: o.spot.None}
	if flag := cmd.Flags().Lookup("boot-time"); flag != nil && flag.Changed {
		o.Warm.Boot = planfile.Boot{Known: true, Time: o.boot}
	}
	if o.into > 0 {
		switch flag := cmd.Flags().Lookup("landing-memory"); {
		case cmd.Flags().Changed("transport") && o.Transport != "landing":
			return badUsage(cmd, "--landing requires --transport landing, not %s", o.Transport)
		case flag != nil && flag.Changed:
			return badUsage(cmd, "--landing tmpfs:SIZE and --landing-memory SIZE exclude each other")
		}
		o.Transport, o.Landing.Memory, o.Tmpfs = "landing", planfile.Size(o.into), int64(o.into)
	}
	if o.mapFile == "" {
		return nil
	}
	if o.Maps, err = planfile.LoadMap(o.mapFile); err != nil {
		return fmt.Errorf("--map: %w", err)
	}
	return nil
}

// destinationsOf parses the values of --to. Two with one folder are an error.
func destinationsOf(cmd *cobra.Command, list []string, stage string) (all []planfile.Destination, err error) {
	seen := map[string]bool{}
	for _, to := range list {
		d, err := assemble.DestinationOf(to, stage)
		switch {
		case err != nil:
			return nil, fmt.Errorf("--to: %w", err)
		case seen[d.Folder()]:
			return nil, badUsage(cmd, "--to %q: another --to has the same folder", to)
		}
		seen[d.Folder()] = true
		all = append(all, d)
	}
	return all, nil
}

// checkKeys refuses values that no key of a plan accepts.
func (o *moveFlags) checkKeys(cmd *cobra.Command) error {
	for _, flag := range o.Flags() {
		if text := fmt.Sprint(reflect.ValueOf(flag.Field).Elem()); flag.Words != nil && !slices.Contains(flag.Words, text) {
			last := len(flag.Words) - 1
			return badUsage(cmd, "--%s %q: want %s or %s", flag.Name, text, strings.Join(flag.Words[:last], ", "), flag.Words[last])
		}
		if n, is := flag.Field.(*int); is && flag.Name != "nfc-buffers" && flag.Max > 0 && (*n < flag.Min || *n > flag.Max) {
			return badUsage(cmd, "--%s %d: want %d to %d", flag.Name, *n, flag.Min, flag.Max)
		}
	}
	return nil
}

// manually is the default of --cutover.
const manually = "manual"

// cutoverForms are the layouts of a time: RFC 3339, with or without seconds.
var cutoverForms = []string{time.RFC3339, "2006-01-02T15:04Z07:00"}

// checkWarm checks the flags of warm migrations, and sets the time of the cutover.
func (o *moveFlags) checkWarm(cmd *cobra.Command) error {
	if !o.warm {
		for _, name := range []string{"cutover", "interval", "downtime-budget", "boot-time", "paranoid"} {
			if cmd.Flags().Changed(name) {
				return badUsage(cmd, "--%s requires --warm", name)
			}
		}
		return nil
	}
	if len(o.to) > 1 {
		return badUsage(cmd, "--warm requires a single --to")
	}
	if o.Warm.Interval <= 0 || o.Warm.DowntimeBudget < 0 || o.boot < 0 {
		return badUsage(cmd, "--interval, --downtime-budget and --boot-time: want durations above 0")
	}
	if o.cutover == manually {
		return nil
	}
	for _, form := range cutoverForms {
		if at, err := time.Parse(form, o.cutover); err == nil {
			o.Warm.Cutover.At = at
			return nil
		}
	}
	return badUsage(cmd, "--cutover %q: want manual, or a time with its zone, such as 2026-12-01T02:00Z", o.cutover)
}

// mostSession is the limit of a session's buffers in bytes: hosts refuse more.
const mostSession = 16 << 20

// checkNFC checks the flags of transport nfc.
func (o *moveFlags) checkNFC(cmd *cobra.Command) error {
	const largest = wire.LargestUnits * wire.BufferUnit
	n, given := int64(o.NFC.Buffer), ""
	cmd.Flags().Visit(func(f *pflag.Flag) {
		if strings.HasPrefix(f.Name, "nfc-") || f.Name == "network" {
			given = f.Name
		}
	})
	switch {
	case o.Transport != "nfc" && given != "":
		return badUsage(cmd, "--%s is for --transport nfc, not %s", given, o.Transport)
	case cmd.Flags().Changed("nfc-buffer") && (n < wire.BufferUnit || n > largest || n%wire.BufferUnit != 0):
		return badUsage(cmd, "--nfc-buffer %v: want a multiple of 64K up to 2M", (*flaghelp.Size)(&o.NFC.Buffer))
	case o.NFC.Buffers < 1 || assemble.BuffersOf(o.NFC).Memory() > mostSession:
		return badUsage(cmd, "--nfc-buffers %d: want 1 or more, and at most 16M for a session", o.NFC.Buffers)
	}
	return nil
}
