// Package appliance mounts a guest's file systems in a VM of its own, to be written by those
// who know how: the kernel of a distribution, which is found on this machine.
//
// The VM has that kernel, the modules that it needs, and this program for its whole user
// space (package inside). It has no network, no disk of this machine's and no clock to set:
// its disks are volumes of the guest, served from the overlays of the conversion (package
// nbd). Files are asked for through a serial port (package wire), so the conversion runs out
// here, at full speed, and only the file system's code runs emulated.
//
//	conversion ── wire ──> inside ── mount ──> kernel's XFS ──> virtio-scsi ──> QEMU ── nbd ──> overlay
//
// # What is promised
//
//   - A file system that is made to harm who mounts it harms the VM. What the VM answers is
//     bounded, and trusted no more than the file system was.
//   - Nothing is written but to the devices that Mount is given. Where one of them failed once,
//     Unmount fails.
//   - The VM is gone after Close, and after the deadline, and when this process dies.
//
// # What is not
//
// That a kernel knows every file system: one of Red Hat's has no btrfs.
package appliance

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/decamp/decamp/internal/convert"
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/guest"
	"github.com/decamp/decamp/internal/kvm"
)

// Options say what the VM is made of. The zero value takes what this machine has.
type Options struct {
	Kernel   string                      // image of a distribution's kernel, its modules beside it or in lib/modules there; "": the newest in /boot that has the modules
	Program  string                      // static program that begins with inside.Run; default this one
	QEMU     string                      // default the one that is found
	Root     string                      // where kernels are looked for; default /
	Deadline time.Duration               // from power-on to unmounted; default 10 minutes, of which an emulated VM takes half of one
	KVM      func(context.Context) error // whether a vCPU runs; default kvm.Run on /dev/kvm
}

// An Appliance is a convert.Appliance.
type Appliance struct{ o Options }

// New returns an appliance, and starts nothing.
func New(o Options) *Appliance {
	o.Root, o.Deadline = cmp.Or(o.Root, "/"), cmp.Or(o.Deadline, 10*time.Minute)
	if o.KVM == nil {
		o.KVM = func(ctx context.Context) error { return kvm.Run(ctx, "/dev/kvm") }
	}
	return &Appliance{o}
}

// Check says whether the kernel that is named can be used at all: it is one, and its modules for
// the VM's hardware are found. It is for those who name one, before hours of copying.
func (a *Appliance) Check() error {
	_, err := a.o.named(nil)
	return err
}

// Mount boots the VM and mounts the volumes. The error is fault.NotFound where there is no
// kernel, no QEMU or no module for a file system, and fault.Transient after the deadline.
func (a *Appliance) Mount(ctx context.Context, volumes []convert.Volume) (_ convert.Mounted, err error) {
	k, err := a.o.kernel(volumes)
	if err != nil {
		return nil, err
	}
	initrd, err := a.o.initramfs(k, volumes)
	if err != nil {
		return nil, err
	}
	defer initrd.Close() // which start may have closed
	disks, numbers := shared(volumes)
	vm, err := a.start(ctx, k, initrd, disks)
	if err != nil {
		return nil, err
	}
	for i, v := range volumes {
		if err := vm.mount(v, numbers[i]); err != nil {
			return nil, errors.Join(fmt.Errorf("%s on %s: %w", v.Kind, v.Name, err), vm.Close())
		}
	}
	return vm, nil
}

// shared lists each device once, and for each volume which it is on.
func shared(volumes []convert.Volume) (disks []convert.Device, numbers []int) {
	index := map[convert.Device]int{}
	for _, v := range volumes {
		if _, there := index[v.Device]; !there {
			index[v.Device] = len(disks)
			disks = append(disks, v.Device)
		}
		numbers = append(numbers, index[v.Device])
	}
	return disks, numbers
}

// driver is the kernel's file system for a kind. That of ext4 has the older two, too.
func driver(kind guest.FileSystem) (string, error) {
	switch kind {
	case guest.Ext2, guest.Ext3, guest.Ext4:
		return "ext4", nil
	case guest.XFS, guest.Btrfs:
		return string(kind), nil
	}
	return "", fault.New(fault.Unsupported, "%s is not mounted here", kind).WithHint("use the compat profile, which changes nothing in the guest")
}

// program opens what the VM runs.
func (o Options) program() (path string, err error) {
	if o.Program != "" {
		return o.Program, nil
	}
	return os.Executable()
}
