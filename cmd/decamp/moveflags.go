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
	wire "github.com/decamp/decamp/internal/nfc"
	"github.com/decamp/decamp/internal/planfile"
)

// moveFlags are the flags that describe a migration, for decamp migrate and decamp doctor. All that migrations know is in Move.
type moveFlags struct {
	assemble.Move
	to      []string
	stage   string // folder of those --to that need one
	mapFile string // value of --map; empty if none

	powerOff, force bool // PowerOff
	warm            bool // Mode
	cutover         string
	boot            time.Duration
	spot            spot
	into            tmpfsFlag // value of --landing

	discard bool
	dryRun  bool
}

// optionUsages are the usages of the flags that set keys of planfile.Options, in the order of the help. A key
// that is not here has its doc of the plan file. A flag without a usage is registered by hand.
var optionUsages = []struct{ flag, usage string }{
	{"format", "of the images: `raw or qcow2`"},
	{"power-off", ""},
	{"force", ""},
	{"shutdown-wait", "with --power-off or --warm: `TIME` the guest may take"},
	{"spot", ""},
	{"source-hash", "in verify, have the host hash each disk (sha256, else md5) and compare: by SSH, and for one more read of the whole disk there"},
	{"trial", "boot the VM on throw-away overlays, with no network, before it is published; one that does not boot is not"},
	{"expect", "with --trial: `TEXT` on its serial port or text screen that means the guest is up, beside a login and its network"},
	{"start", "start the VM at its target once it is published there; the one at the source stays off"},
	{"discard", ""},
	{"dry-run", ""},
	{"hardware", "of the VM at its target: `compat, virtio or auto`; virtio changes a Linux guest, auto only one that can be changed"},
	{"engine", "what changes a guest for virtio, by `NAME`: auto, linux-append or virt-v2v; auto is linux-append, and virt-v2v where that does not take the guest and it is installed"},
	{"virtio-win", "`PATH` of the drivers that virt-v2v installs in Windows: the ISO image virtio-win, or a folder with its contents; default $VIRTIO_WIN"},
	{"key-file", "`[ID=]PATH` of a file with a key, for virt-v2v: a LUKS passphrase or BitLocker's recovery key, in one line, that only you can read; for the volume with that UUID, or device (/dev/sda2), alone; repeated for more"},
	{"appliance-kernel", "image `FILE` of the kernel that mounts XFS and btrfs of guests for --hardware virtio; its modules in lib/modules there (default the newest in /boot)"},
	{"guest-agent", "with --hardware virtio or auto: a Linux without QEMU's guest agent installs it at its first boot, from its own package sources"},
	{"transport", "how the disks come here: `https, nfc or landing`; nfc reads from port 902, landing is an NFS datastore that decamp serves"},
	{"connections", "at most `N` connections to the host, 12 at the most"},
	{"warm", ""},
	{"cutover", ""},
	{"interval", "with warm: `TIME` from the beginning of one round to the next"},
	{"downtime-budget", "with warm: cut over once the outage is expected to be at most this `TIME`"},
	{"boot-time", ""},
	{"paranoid", "with warm: after the last round, while the VM is off, read all of its disks once more and compare"},
	{"advertise", "with landing: `IP` of this machine for the host (default that of the route to it)"},
	{"landing-listen", "with landing: `ADDR` to serve NFS on"},
	{"landing-portmap", "with landing: `ADDR` of the port mapper, which ESXi looks for on 111"},
	{"landing", ""},
	{"landing-allow", "with landing: `HOST` that may mount it too: name, address or network; may be repeated"},
	{"landing-copy", "with landing: how the host is asked to copy: `auto, api or ssh`; auto is by the API, and by SSH where licence or privileges forbid that"},
	{"enable-ssh", ""},
	{"ssh-host-key", ""},
	{"ssh-key", ""},
	{"ssh-user", ""},
	{"ssh-password-file", ""},
	{"ssh-port", ""},
	{"landing-memory", "with landing: bytes held of all disks together, such as 1G"},
	{"nfc-handles", "with nfc: `N` sessions on each disk, 16 at the most"},
	{"nfc-buffer", "with nfc: size of a session's buffers on the host, a multiple of 64K up to 2M (default 1M)"},
	{"nfc-buffers", "with nfc: `N` such buffers; all of a session are 16M at the most"},
	{"network", "with nfc: the host's `VMK` to read from: vmk1, its address, subnet or port group (default the one tagged for backups)"},
	{"nfc-plain", "with nfc: read without encryption: every machine on the path can read the data"},
}

func (o *moveFlags) registerFlags(cmd *cobra.Command) {
	o.Options = planfile.DefaultOptions()
	f := cmd.Flags()
	f.StringArrayVar(&o.to, "to", nil, "`TARGET` where the VM is to live: dir:FOLDER, an existing folder; libvirt:URL, proxmox:URL, openstack:CLOUD?..., kubevirt:FOLDER?..., place:NAME of the access file; repeated, it is read once and lands in each")
	o.registerPlace(f)
	o.registerKeys(cmd, o.extraFlags())
	registerLogin(&o.Login, cmd)
}

// extraFlags returns the flags that are no key of the options, or have another form.
func (o *moveFlags) extraFlags() *pflag.FlagSet {
	f := pflag.NewFlagSet("", pflag.ContinueOnError)
	f.BoolVar(&o.powerOff, "power-off", false, "shut the guest down if the VM runs")
	f.BoolVar(&o.force, "force", false, "with --power-off or --warm: cut the power of a guest that stays up")
	f.Var(&o.spot, "spot", "in verify, read the first SIZE bytes and N random MiB of each disk from the source again, and compare; 0 reads nothing again (default 1M,64)")
	f.BoolVar(&o.discard, "discard", false, "discard the unfinished run of this VM, remove its images, and exit")
	f.BoolVar(&o.dryRun, "dry-run", false, "print the definition of the VM and the obstacles; create, copy and switch off nothing")
	f.BoolVar(&o.warm, "warm", false, "copy while the VM runs, in rounds, and power it off for the last one only")
	f.StringVar(&o.cutover, "cutover", manually, "with warm: `TIME` of the last round, as 2026-12-01T02:00Z, or manual: on decamp cutover")
	f.DurationVar(&o.boot, "boot-time", 0, "with warm: `TIME` the guest takes to boot, counted into the outage; kept when the run is continued")
	f.Var(&o.into, "landing", "land in RAM first, `tmpfs:SIZE` at most, and write it to --to behind that; means --transport landing")
	registerSSH(&o.SSH, f)
	return f
}

// registerPlace has the flags that say more of a --to.
func (o *moveFlags) registerPlace(f *pflag.FlagSet) {
	f.StringVar(&o.stage, "stage", "", "`FOLDER` where VMs are copied to and proven before libvirt, Proxmox or OpenStack takes them")
	f.StringVar(&o.mapFile, "map", "", "YAML `FILE` with the names of networks, datastores and VMs at the target: networks, storages, names (docs/maps.md)")
	f.StringVar((*string)(&o.DomainType), "domain-type", string(o.DomainType), "of the libvirt domain: `kvm or qemu`, which needs no KVM")
}

// registerKeys registers a flag for each key of the options that names one, and those that are registered by hand.
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

// registerKey registers one flag, which writes to the key's field.
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
		f.Var((*sizeFlag)(field), flag.Name, usage)
	case *planfile.IP:
		f.TextVar(&field.Addr, flag.Name, field.Addr, usage)
	case *[]planfile.Text:
		f.Var((*textsFlag)(field), flag.Name, usage)
	default: // a kind of string
		text := reflect.ValueOf(field).Convert(reflect.TypeFor[*string]()).Interface().(*string)
		f.StringVar(text, flag.Name, *text, usage)
	}
}

// checkFlags completes the options, and refuses flags that do not fit, before anything is asked or opened.
func (o *moveFlags) checkFlags(cmd *cobra.Command) error {
	if len(o.to) == 0 {
		return badUsage(cmd, "--to is missing: want dir:FOLDER")
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
		return badUsage(cmd, "--guest-agent changes the guest: it needs --hardware virtio or auto")
	case o.Kernel != "" && !changed:
		return badUsage(cmd, "--appliance-kernel is for guests that are changed: it needs --hardware virtio or auto")
	case len(o.KeyFiles) > 0 && (!changed || o.Engine == "linux-append"):
		return badUsage(cmd, "--key-file is for guests that virt-v2v changes: it needs --hardware virtio or auto, and no --engine linux-append")
	case o.Expect != "" && !o.Trial:
		return badUsage(cmd, "--expect requires --trial: it is the sign of a successful trial boot")
	case o.Start && len(o.to) > 1:
		return badUsage(cmd, "--start and several --to exclude each other: two of one VM would run, with the same addresses")
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

// setOptions sets the keys that flags of other forms set.
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
		o.Mode = planfile.Warmly
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
			return badUsage(cmd, "--landing tmpfs:SIZE and --landing-memory SIZE are two words for the same: give one")
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

// destinationsOf reads what each --to names.
func destinationsOf(cmd *cobra.Command, list []string, stage string) (all []planfile.Destination, err error) {
	seen := map[string]bool{}
	for _, to := range list {
		d, err := assemble.DestinationOf(to, stage)
		switch {
		case err != nil:
			return nil, fmt.Errorf("--to: %w", err)
		case seen[d.Folder()]:
			return nil, badUsage(cmd, "--to %q: its folder is there twice", to)
		}
		seen[d.Folder()] = true
		all = append(all, d)
	}
	return all, nil
}

// checkKeys refuses what no key of a plan takes.
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

const manually = "manual"

// cutoverForms are how times are written: RFC 3339, with or without seconds.
var cutoverForms = []string{time.RFC3339, "2006-01-02T15:04Z07:00"}

// checkWarm refuses flags that do not fit.
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
		return badUsage(cmd, "--warm takes one --to")
	}
	if o.Warm.Interval <= 0 || o.Warm.DowntimeBudget < 0 || o.boot < 0 {
		return badUsage(cmd, "--interval, --downtime-budget and --boot-time: want times above 0")
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
	return badUsage(cmd, "--cutover %q: want manual, or a time with its zone, as 2026-12-01T02:00Z", o.cutover)
}

// mostSession is what a session's buffers may take together: hosts refuse more.
const mostSession = 16 << 20

// checkNFC refuses flags that do not fit.
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
		return badUsage(cmd, "--nfc-buffer %v: want a multiple of 64K up to 2M", (*sizeFlag)(&o.NFC.Buffer))
	case o.NFC.Buffers < 1 || assemble.BuffersOf(o.NFC).Memory() > mostSession:
		return badUsage(cmd, "--nfc-buffers %d: want 1 or more, and all of a session 16M at the most", o.NFC.Buffers)
	}
	return nil
}
