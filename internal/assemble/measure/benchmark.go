// Package measure carries out a matrix of measurements on a source: it logs in by one link at a time, opens what a row
// needs, and reads what the hosts count meanwhile.
package measure

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime/debug"
	"time"

	"github.com/decamp/decamp/internal/assemble"
	"github.com/decamp/decamp/internal/bench"
	"github.com/decamp/decamp/internal/bench/matrix"
	"github.com/decamp/decamp/internal/childenv"
	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/esx"
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/fleet"
	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/planfile"
	"github.com/decamp/decamp/internal/transport"
)

// Benchmark measures the cells of a matrix. It is logged in over one link at a time, and not safe for
// concurrent use.
type Benchmark struct {
	Assembler *assemble.Assembler // state of this machine, and prompts
	Spec      *planfile.Matrix    // the measurements
	Folder    string              // folder of the spec, for its relative paths
	Login     assemble.Login      // login to the source
	Top       bool                // count reads of hosts with esxtop
	SSHPort   uint16              // port of SSH on the hosts; 0: the port of the spec

	link   planfile.Link            // the current link
	source *assemble.SourceParts    // source of the measurements; nil before the first link
	nic    string                   // name of the interface on the route to the source
	vms    map[string]*inventory.VM // VMs of the spec by their names in it
}

// Enter leaves the current link, prepares another one, and logs in to the source over it. link is an
// index of Spec.Links.
func (b *Benchmark) Enter(ctx context.Context, link int) error {
	if err := b.Leave(); err != nil {
		return err
	}
	b.link = b.Spec.Links[link]
	if err := b.runPrepare(ctx); err != nil {
		return err
	}
	// a plan with nothing but the source, for the functions that log in with plans
	plan := &planfile.File{Source: b.Spec.Source}
	plan.Source.URL = cmp.Or(b.link.URL, plan.Source.URL)
	p := &assemble.SourceParts{Assembler: b.Assembler, Parts: &assemble.Parts{}, Login: b.Login}
	var err error
	if p.URL, err = esx.ParseURL(string(plan.Source.URL)); err != nil {
		return err
	}
	if b.nic, err = interfaceTo(ctx, fleet.Endpoint(p.URL), b.link.MTU); err != nil {
		return err
	}
	if err := b.Assembler.PlanLogin(&p.Login, plan, b.Folder, planfile.Local); err != nil {
		return err
	}
	if p.SSH, err = b.Assembler.PlanSSH(plan, b.Folder, planfile.Local); err != nil {
		return err
	}
	p.SSH.Port = cmp.Or(b.SSHPort, p.SSH.Port)
	b.source = p
	if err := b.Assembler.OpenSource(ctx, p); err != nil {
		return err
	}
	b.Assembler.RevertLeftovers(ctx, p.Shells) // a landing of a matrix that was killed
	return b.findVMs(ctx)
}

// Leave logs out of the current link. It does nothing without one.
func (b *Benchmark) Leave() error {
	if b.source == nil {
		return nil
	}
	err := b.source.Close()
	b.source = nil
	return err
}

// prepareTimeout limits the command that prepares a link.
const prepareTimeout = 10 * time.Minute

// runPrepare runs the command of the link, if it has one, in the folder of the spec.
func (b *Benchmark) runPrepare(ctx context.Context) error {
	if len(b.link.Prepare) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, prepareTimeout)
	defer cancel()
	var words []string
	for _, w := range b.link.Prepare {
		words = append(words, string(w))
	}
	cmd := exec.CommandContext(ctx, words[0], words[1:]...)
	said := &assemble.OutputTail{}
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = b.Folder, childenv.Of(os.Environ()), said, said
	if err := cmd.Run(); err != nil {
		return fault.New(fault.Conflict, "prepare link %s, MTU %d: %q: %w: %s", b.link.NIC, b.link.MTU, words, err, fault.OneLine(said.String())).
			WithHint("run it manually in %s to see the cause", fault.Quote(b.Folder))
	}
	return nil
}

// interfaceTo returns the interface on the route to addr. It returns fault.Conflict if the MTU of the
// interface differs from mtu: rows would have a wrong name.
func interfaceTo(ctx context.Context, addr string, mtu int) (string, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, "udp", addr) // sends nothing, and returns the route's local address
	if err != nil {
		return "", fault.New(fault.Unreachable, "find the route to %s: %w", addr, err)
	}
	defer conn.Close()
	own := conn.LocalAddr().(*net.UDPAddr).IP
	all, err := net.Interfaces()
	if err != nil {
		return "", err
	}
	for _, i := range all {
		if !hasAddress(i, own) {
			continue
		}
		if i.MTU != mtu {
			return "", fault.New(fault.Conflict, "the spec has MTU %d for the link, and interface %s on the route to %s has %d", mtu, i.Name, addr, i.MTU).
				WithHint("run on both ends: ip link set dev %s mtu %d; or set it in prepare of the link, or correct mtu", i.Name, mtu)
		}
		return i.Name, nil
	}
	return "", fault.New(fault.Internal, "no interface has the address %s, from which %s is reached", own, addr)
}

// hasAddress reports whether an interface has an IP address.
func hasAddress(i net.Interface, ip net.IP) bool {
	addrs, err := i.Addrs()
	if err != nil {
		return false
	}
	for _, a := range addrs {
		if n, ok := a.(*net.IPNet); ok && n.IP.Equal(ip) {
			return true
		}
	}
	return false
}

// findVMs looks up all VMs of the spec. A running VM is refused, because its disks would change between
// rows.
func (b *Benchmark) findVMs(ctx context.Context) error {
	b.vms = map[string]*inventory.VM{}
	for _, d := range b.Spec.Disks {
		for _, name := range d.VMs {
			vm, err := b.source.Session.VM(ctx, string(name))
			switch {
			case err != nil:
				return err
			case vm.Power != inventory.PoweredOff:
				return fault.New(fault.Conflict, "VM %s is %s", vm.Name, vm.Power).WithHint("power it off on the host, or name a powered-off VM with disks for the measurement")
			case len(vm.Disks) == 0:
				return fault.New(fault.Invalid, "VM %s has no disk", vm.Name).WithHint("name a VM with disks")
			}
			b.vms[string(name)] = vm
		}
	}
	return nil
}

// Measure measures one cell over the current link, and returns its row.
func (b *Benchmark) Measure(ctx context.Context, c matrix.Cell) (row bench.Row, err error) {
	rig := matrix.Resources{Computed: disk.NewSparsePattern(int64(b.Spec.Computed.Size), float64(b.Spec.Computed.Fill), uint64(b.Spec.Computed.Seed))}
	for _, name := range c.VMs {
		rig.VMs = append(rig.VMs, b.vms[name])
	}
	switch {
	case c.Source == bench.Pattern:
		// the data is generated, so no source is opened
	case c.Transport == bench.OverNFS:
		// the host clones the disk to an export that it has mounted
		rig.Clone = func(ctx context.Context, d transport.Disk, file string) error {
			return b.source.Session.CopyDisk(ctx, esx.DiskCopy{Datacenter: d.VM.Datacenter, From: d.Disk.Path, To: inventory.Path{Datastore: c.Datastore, File: file}})
		}
	default:
		// a transport of decamp reads the disk
		if rig.Transport, err = b.source.Mover(ctx, b.optionsFor(c)); err != nil {
			return row, err
		}
		defer func() { err = errors.Join(err, rig.Transport.Close()) }()
	}
	rig.Source = func(ctx context.Context, began, ended time.Time) (bench.Device, error) {
		return b.countReads(ctx, rig.VMs, began, ended)
	}
	if b.Top && c.Source != bench.Pattern {
		w, err := b.startWatch(ctx, rig.VMs)
		if err != nil {
			return row, err
		}
		defer w.stop()
		rig.Source = w.meanReads
	}
	if row, err = matrix.Measure(ctx, c, rig); err != nil {
		return row, err
	}
	on := &row.On
	on.Version, on.Commit, on.Host, on.NIC = b.Assembler.Version, buildCommit(), productName(b.source.Session.About()), fmt.Sprintf("%s, MTU %d", b.nic, b.link.MTU)
	if c.Source == bench.Pattern {
		// neither a host nor the network took part
		on.Host, on.NIC, on.Seed = "", "", uint64(b.Spec.Computed.Seed)
	}
	return row, matrix.Describe(on, c)
}

// countReads returns the disk reads per second that the hosts of VMs have counted between two times.
// Samples have the time of the host, whose clock must be correct.
func (b *Benchmark) countReads(ctx context.Context, vms []*inventory.VM, began, ended time.Time) (sum bench.Device, err error) {
	// several VMs may be on one host, which counts the reads of all its disks
	asked := map[inventory.MoRef]bool{}
	for _, vm := range vms {
		if asked[vm.Host] {
			continue
		}
		asked[vm.Host] = true
		r, err := b.source.Session.DiskReads(ctx, vm.Host, began, ended)
		if err != nil {
			return bench.Device{}, err
		}
		sum.IOPS += r.PerSecond
		sum.MiBs += r.Bytes / bench.MiB
	}
	return sum, nil
}

// optionsFor returns the options of a plan's VM that correspond to a cell.
func (b *Benchmark) optionsFor(c matrix.Cell) planfile.Options {
	o := planfile.Options{Transport: planfile.Transport(c.Transport), Format: "raw", NFC: b.Spec.NFC, Landing: b.Spec.Landing, Connections: defaultConnections}
	if b.link.Advertise.IsValid() {
		o.Landing.Advertise = b.link.Advertise
	}
	if c.Streams > 0 { // connections for https, sessions for nfc
		o.Connections, o.NFC.Handles = c.Streams, c.Streams
	}
	return o
}

// defaultConnections is the default of --connections.
const defaultConnections = 8

// productName returns the name and version of the source.
func productName(a inventory.About) string { return fmt.Sprintf("%s %s", a.Name, a.Version) }

// buildCommit returns the first digits of the commit from which this program was built; empty if Go did
// not record it.
func buildCommit() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	// enough digits to be unique in the repository
	const digits = 12
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			return s.Value[:min(len(s.Value), digits)]
		}
	}
	return ""
}
