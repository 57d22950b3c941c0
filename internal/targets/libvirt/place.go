// Package libvirt is the place for VMs on a host or cluster node that libvirt manages: images become
// volumes of a pool, and the VM a domain that is defined and off, until Start powers it on.
//
// Images that wait on the pool's own file system get a name there instead of a copy. All others are uploaded
// over libvirt's connection, without their holes, and read back and compared. A volume of LVM's is a device that
// holds what was there before: libvirt writes zeros to it where there are holes, and the comparison proves that.
//
// What is made carries the source VM's identity: volumes in their names, the domain in its metadata.
// Nothing else is ever changed. The domain is defined last, so one that is there is whole.
package libvirt

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/namemap"
	"github.com/decamp/decamp/internal/sleep"
	"github.com/decamp/decamp/internal/targets"
	"github.com/decamp/decamp/internal/targets/dir"
	"github.com/decamp/decamp/internal/targets/libvirt/rpc"
	"github.com/decamp/decamp/internal/targets/platform"
	"github.com/decamp/decamp/internal/targets/recall"
)

// Options are what an address does not say.
type Options struct {
	// Stage is the folder in which images wait. What a pool on the same file system will take is
	// there already, and Check asks for no more room. Empty if it is not known.
	Stage string

	// Type is that of the domains, "kvm" or "qemu": Check asks whether there can be any. Empty if
	// that is not to be asked.
	Type string

	// Maps say which pool disks of some datastores go to, in place of the address's, and what VMs are called.
	Maps namemap.Map
}

// A Place is a libvirt, with the pools that images go to. It satisfies platform.Place.
type Place struct {
	at   address
	opts Options
	dial func(context.Context, address) (net.Conn, error) // replaced by tests
	wait func(context.Context, time.Duration) error       // by the clock, but in tests

	linked atomic.Bool // the last VM that was checked has its images on its pools' file systems
}

var _ platform.Place = (*Place)(nil)

// New returns the place at an address such as qemu:///system?pool=default or
// qemu+ssh://root@kvm1/system?pool=vms. It connects to nobody yet. An address that makes no sense is
// fault.Invalid.
func New(url string, o Options) (*Place, error) {
	at, err := parseAddress(url)
	if err != nil {
		return nil, err
	}
	return &Place{at: at, opts: o, dial: dial, wait: sleep.For}, nil
}

func (p *Place) pools() poolFinder { return poolFinder{p.at, p.opts.Maps} }

func (p *Place) domains() domains { return domains{p.at} }

// Check finds out whether vm could be delivered. What thin disks take on their datastores has to be
// free in the pool, and all of a disk where volumes are devices.
func (p *Place) Check(ctx context.Context, vm *inventory.VM) error {
	c, release, err := recall.Keep(ctx, p, p.connect, func(c *rpc.Client) { _ = c.Close() }) // asked only
	if err != nil {
		return err
	}
	defer release()
	into, err := p.pools().forDisks(ctx, c, vm.Disks)
	if err != nil {
		return err
	}
	if _, err = p.domains().find(ctx, c, vm, dir.DomainName(p.opts.Maps.Name(vm.Name))); err != nil {
		return err
	}
	if err := p.checkType(ctx, c); err != nil {
		return err
	}
	if err := p.countLeft(ctx, c, vm, into); err != nil {
		return err
	}
	return p.checkRoom(vm, into)
}

// checkType asks whether libvirt can run domains of the type they will be. It is asked before the copy,
// as it refuses to define others.
func (p *Place) checkType(ctx context.Context, c *rpc.Client) error {
	if p.opts.Type == "" {
		return nil
	}
	_, err := c.Capabilities(ctx, p.opts.Type)
	var refused *rpc.Error
	if !errors.As(err, &refused) {
		return err
	}
	return fault.New(fault.Unsupported, "libvirt at %s has no domains of type %s: %w", p.at, p.opts.Type, err).
		WithHint("see what is missing: virt-host-validate qemu; or have the VM emulated, which is slow: --domain-type qemu")
}

// countLeft counts as free in the pools of into that have devices what an earlier delivery of vm left in them: the next
// one takes it away first.
func (p *Place) countLeft(ctx context.Context, c *rpc.Client, vm *inventory.VM, into []pool) error {
	devices := slices.DeleteFunc(slices.Clone(into), func(in pool) bool { return !in.block })
	left, err := ownVolumes(ctx, c, devices, vm, diskVolumes)
	if err != nil {
		return libvirtFault(err)
	}
	for _, v := range left {
		size, err := c.VolumeSize(ctx, v)
		if err != nil {
			return libvirtFault(err)
		}
		for i := range into {
			if into[i].Name == v.Pool {
				into[i].available += size
			}
		}
	}
	return nil
}

// checkRoom compares what each pool has with what the disks take of it for certain. into are their
// pools.
func (p *Place) checkRoom(vm *inventory.VM, into []pool) error {
	need := map[string]int64{}
	for i, d := range vm.Disks {
		switch {
		case into[i].block:
			need[into[i].Name] += d.Capacity
		case d.Thin && d.Used > 0:
			need[into[i].Name] += d.Used
		}
	}
	p.linked.Store(len(into) > 0)
	for _, pool := range into {
		if !pool.block && p.at.transport == "unix" && p.opts.Stage != "" && sameDevice(p.opts.Stage, pool.folder) {
			continue
		}
		p.linked.Store(false)
		if need := need[pool.Name]; need > pool.available {
			return fault.New(fault.Full, "VM %s needs %d MiB in pool %s, %d MiB are free", vm.Name, need>>20, pool.Name, pool.available>>20).
				WithHint("free %d MiB, or choose another pool: virsh -c %s pool-list", (need-pool.available)>>20+1, fault.Quote(p.at.String()))
		}
	}
	return nil
}

// Sends is part of platform.Sender: images on a pool's own file system get a name there. That is known once a
// VM was checked.
func (p *Place) Sends(held, _ int64) int64 {
	if p.linked.Load() {
		return 0
	}
	return held
}

// sameDevice reports whether two folders of this machine are of one file system.
func sameDevice(a, b string) bool {
	var s, t unix.Stat_t
	return unix.Stat(a, &s) == nil && unix.Stat(b, &t) == nil && s.Dev == t.Dev
}

// Deliver makes the VM: its volumes, then its domain. A VM that is there is left as it is.
func (p *Place) Deliver(ctx context.Context, d platform.Delivery) (platform.Receipt, error) {
	j := &job{Delivery: d, at: p.at, maps: p.opts.Maps, connect: p.connect, finder: p.pools(), domains: p.domains()}
	r, err := j.run(ctx)
	if err == nil {
		return r, nil
	}
	if j.begun {
		err = errors.Join(err, j.tidy(ctx))
	}
	return platform.Receipt{}, fmt.Errorf("deliver VM %s to %s: %w", d.VM.Name, p.at.name(), libvirtFault(err))
}

// Withdraw removes the domain with its EFI variables and TPM, and its volumes. A domain that runs is a
// fault.Conflict.
func (p *Place) Withdraw(ctx context.Context, vm *inventory.VM) error {
	c, err := p.connect(ctx)
	if err != nil {
		return err
	}
	defer c.Close()
	pools, err := p.pools().all(ctx, c)
	if err != nil {
		return err
	}
	err = p.domains().forget(ctx, c, vm)
	if err == nil {
		err = removeVolumes(ctx, c, pools, vm)
	}
	if err != nil {
		return fmt.Errorf("withdraw VM %s from %s: %w", vm.Name, p.at.name(), libvirtFault(err))
	}
	return nil
}

// tidyPatience is for taking away what a failed delivery made.
const tidyPatience = 2 * time.Minute

// outlive is a context for taking things away, of those who were asked to stop.
func outlive(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), tidyPatience)
}

// libvirtFault gives what libvirt says its kind.
func libvirtFault(err error) error {
	var said *rpc.Error
	if err == nil || fault.KindOf(err) != fault.Internal || !errors.As(err, &said) {
		return err
	}
	switch {
	case errors.Is(said, unix.ENOSPC), errors.Is(said, unix.EDQUOT):
		return fault.New(fault.Full, "%w", err).WithHint("make room in the pool and run the same command again")
	case errors.Is(said, unix.EACCES), errors.Is(said, unix.EPERM), errors.Is(said, unix.EROFS), said.Code == rpc.AccessDenied:
		return fault.New(fault.Denied, "%w", err).WithHint("let libvirt write to the pool's folder, and the account manage VMs and volumes")
	}
	return fault.New(fault.Unsupported, "%w", err).WithHint("see what libvirt makes of it: journalctl -u libvirtd -u virtqemud; then run the same command again, or migrate to a folder and define domain.xml by hand")
}

var _ platform.Outliner = (*Place)(nil)

// Outline is the stage's domain, with its disks in their pools. Those that are uploaded are raw, and
// called so: which are is known when they are delivered.
func (p *Place) Outline(def targets.Definition, stage targets.Outline) (targets.Outline, error) {
	o := stage
	o.Place = "libvirt " + p.at.String()
	o.Disks = slices.Clone(stage.Disks)
	for at := range o.Disks {
		i := slices.IndexFunc(def.VM.Disks, func(d inventory.Disk) bool { return d.Key == o.Disks[at].Key })
		o.Disks[at].On = "pool " + cmp.Or(p.opts.Maps.Storage(namemap.Datastore(def.VM.Disks[i])), p.at.pool)
		o.Disks[at].As = volumeName(p.opts.Maps, def.VM, i, targets.Raw)
	}
	return o, nil
}
