// Package libvirt delivers VMs to a host that libvirt manages. Images become volumes of a pool. The VM becomes
// a domain, which is defined and stays off until Start powers it on.
//
// If the staging folder and the pool are in the same file system, images are linked into the pool. Otherwise
// they are uploaded over libvirt's connection without their holes, read back and compared. A logical volume
// of LVM contains old data; libvirt writes zeros to it for holes, and the comparison verifies this.
//
// Volume names and the domain's metadata contain the source VM's identity. Other volumes and domains are never
// changed. The domain is defined last, so an existing domain is complete.
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

// Options contain settings that are not in the address.
type Options struct {
	// Staging is the staging folder. Check requires no space in pools of the same file system, because the
	// images are linked. Empty if not known.
	Staging string

	// Type is the domain type, "kvm" or "qemu". Check verifies that libvirt supports it. Empty skips the
	// check.
	Type string

	// Maps assign pools to disks by datastore, instead of the address's pool, and new names to VMs.
	Maps namemap.Map
}

// Platform implements platform.Platform for a libvirt and some of its pools.
type Platform struct {
	at   address                                          // address with the default pool
	opts Options                                          // fixed after New
	dial func(context.Context, address) (net.Conn, error) // connects to libvirt; replaced by tests
	wait func(context.Context, time.Duration) error       // sleeps; replaced by tests

	linked atomic.Bool // all images of the last checked VM can be linked instead of uploaded
}

var _ platform.Platform = (*Platform)(nil)

// New returns the platform at an address such as qemu:///system?pool=default or
// qemu+ssh://root@kvm1/system?pool=vms. It does not connect. An invalid address is fault.Invalid.
func New(url string, o Options) (*Platform, error) {
	at, err := parseAddress(url)
	if err != nil {
		return nil, err
	}
	return &Platform{at: at, opts: o, dial: dial, wait: sleep.For}, nil
}

// poolFinder returns the finder of the address's and the map's pools.
func (p *Platform) poolFinder() poolFinder { return poolFinder{p.at, p.opts.Maps} }

// domainFinder returns the finder of delivered domains.
func (p *Platform) domainFinder() domainFinder { return domainFinder{p.at} }

// Check verifies that vm can be delivered. A pool must have as much free space as thin disks use on
// their
// datastores, or the whole capacity if volumes are block devices.
func (p *Platform) Check(ctx context.Context, vm *inventory.VM) error {
	c, release, err := recall.Keep(ctx, p, p.connect, func(c *rpc.Client) { _ = c.Close() }) // only queries
	if err != nil {
		return err
	}
	defer release()
	into, err := p.poolFinder().forDisks(ctx, c, vm.Disks)
	if err != nil {
		return err
	}
	if _, err = p.domainFinder().findDomain(ctx, c, vm, dir.DomainName(p.opts.Maps.Name(vm.Name))); err != nil {
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

// checkType verifies that libvirt supports the domain type. Without KVM, libvirt refuses to define
// domains of
// type kvm; the check finds this before the copy.
func (p *Platform) checkType(ctx context.Context, c *rpc.Client) error {
	if p.opts.Type == "" {
		return nil
	}
	_, err := c.Capabilities(ctx, p.opts.Type)
	var refused *rpc.Error
	if !errors.As(err, &refused) {
		return err
	}
	return fault.New(fault.Unsupported, "libvirt at %s does not support domains of type %s: %w", p.at, p.opts.Type, err).
		WithHint("find the cause: virt-host-validate qemu; or use emulation, which is slow: --domain-type qemu")
}

// countLeft adds the volumes of an earlier delivery of vm to the available space of pools with devices.
// The next
// delivery removes these volumes first.
func (p *Platform) countLeft(ctx context.Context, c *rpc.Client, vm *inventory.VM, into []pool) error {
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

// checkRoom returns fault.Full if a pool has less space than the disks need. into contains the pool of
// each disk. Pools in
// the file system of the staging folder are skipped, because their images are linked.
func (p *Platform) checkRoom(vm *inventory.VM, into []pool) error {
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
		if !pool.block && p.at.transport == "unix" && p.opts.Staging != "" && sameDevice(p.opts.Staging, pool.folder) {
			continue
		}
		p.linked.Store(false)
		if need := need[pool.Name]; need > pool.available {
			return fault.New(fault.Full, "VM %s requires %d MiB in pool %s, %d MiB are free", vm.Name, need>>20, pool.Name, pool.available>>20).
				WithHint("free %d MiB, or choose another pool: virsh -c %s pool-list", (need-pool.available)>>20+1, fault.Quote(p.at.String()))
		}
	}
	return nil
}

// Sends implements platform.Sender. It returns 0 after a Check of a VM whose images can all be linked.
func (p *Platform) Sends(held, _ int64) int64 {
	if p.linked.Load() {
		return 0
	}
	return held
}

// sameDevice reports whether two folders of this host are in the same file system.
func sameDevice(a, b string) bool {
	var s, t unix.Stat_t
	return unix.Stat(a, &s) == nil && unix.Stat(b, &t) == nil && s.Dev == t.Dev
}

// Deliver creates the volumes and then the domain. A complete VM is left unchanged. After an error it
// removes
// what it created, and joins errors of the removal to the cause.
func (p *Platform) Deliver(ctx context.Context, d platform.Delivery) (platform.Receipt, error) {
	j := &job{Delivery: d, at: p.at, maps: p.opts.Maps, connect: p.connect, finder: p.poolFinder(), domains: p.domainFinder()}
	r, err := j.run(ctx)
	if err == nil {
		return r, nil
	}
	if j.mayHaveCreated {
		err = errors.Join(err, j.cleanUp(ctx))
	}
	return platform.Receipt{}, fmt.Errorf("deliver VM %s to %s: %w", d.VM.Name, p.at.displayName(), libvirtFault(err))
}

// Withdraw removes the domain with its EFI variables, TPM state and volumes. A running domain is
// fault.Conflict.
func (p *Platform) Withdraw(ctx context.Context, vm *inventory.VM) error {
	c, err := p.connect(ctx)
	if err != nil {
		return err
	}
	defer c.Close()
	pools, err := p.poolFinder().allPools(ctx, c)
	if err != nil {
		return err
	}
	err = p.domainFinder().undefineOwn(ctx, c, vm)
	if err == nil {
		err = removeVolumes(ctx, c, pools, vm)
	}
	if err != nil {
		return fmt.Errorf("withdraw VM %s from %s: %w", vm.Name, p.at.displayName(), libvirtFault(err))
	}
	return nil
}

// cleanupTimeout limits the removal of what a failed delivery created.
const cleanupTimeout = 2 * time.Minute

// withCleanupTimeout returns a context that is not canceled with ctx and ends after cleanupTimeout.
func withCleanupTimeout(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), cleanupTimeout)
}

// libvirtFault gives an error of libvirt its kind and a remedy: fault.Full for a full pool,
// fault.Denied for missing
// permission, else fault.Unsupported. Other errors are returned unchanged.
func libvirtFault(err error) error {
	var said *rpc.Error
	if err == nil || fault.KindOf(err) != fault.Internal || !errors.As(err, &said) {
		return err
	}
	switch {
	case errors.Is(said, unix.ENOSPC), errors.Is(said, unix.EDQUOT):
		return fault.New(fault.Full, "%w", err).WithHint("free space in the pool and run the same command again")
	case errors.Is(said, unix.EACCES), errors.Is(said, unix.EPERM), errors.Is(said, unix.EROFS), said.Code == rpc.AccessDenied:
		return fault.New(fault.Denied, "%w", err).WithHint("give libvirt write access to the pool's folder, and the account the permission to manage VMs and volumes")
	}
	return fault.New(fault.Unsupported, "%w", err).WithHint("read libvirt's log: journalctl -u libvirtd -u virtqemud; then run the same command again, or migrate to a folder and define domain.xml manually")
}

var _ platform.Outliner = (*Platform)(nil)

// Outline returns the outline of the staging folder with the disks in their pools. It assumes that
// images are
// uploaded as raw volumes. The delivery may link them in their own format instead.
func (p *Platform) Outline(def targets.Definition, stage targets.Outline) (targets.Outline, error) {
	o := stage
	o.Target = "libvirt " + p.at.String()
	o.Disks = slices.Clone(stage.Disks)
	for at := range o.Disks {
		i := slices.IndexFunc(def.VM.Disks, func(d inventory.Disk) bool { return d.Key == o.Disks[at].Key })
		o.Disks[at].On = "pool " + cmp.Or(p.opts.Maps.Storage(namemap.Datastore(def.VM.Disks[i])), p.at.pool)
		o.Disks[at].As = volumeName(p.opts.Maps, def.VM, i, targets.Raw)
	}
	return o, nil
}
