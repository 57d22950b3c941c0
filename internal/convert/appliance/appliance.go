// Package appliance mounts a guest's file systems in a separate VM with the kernel of a distribution, found on
// this machine, to write file systems that decamp cannot write.
//
// The VM consists of that kernel, its required modules, and this program as its whole user space (package
// inside). It has no network, no disk of this machine and no clock: its disks are volumes of the guest,
// served from the overlays of the conversion (package nbd). Requests for files pass through a serial port
// (package wire). Therefore the conversion runs on this machine at full speed, and only the file system's
// code is emulated.
//
//	conversion ── wire ──> inside ── mount ──> kernel's XFS ──> virtio-scsi ──> QEMU ── nbd ──> overlay
//
// # Guarantees
//
//   - A malicious file system can attack only the VM. The VM's answers are bounded and untrusted.
//   - Only the devices passed to Mount are written. After an error of one of them, Unmount fails.
//   - The VM ends with Close, at the deadline, and when this process dies.
//
// # Limits
//
// Some kernels lack file systems: Red Hat's have no btrfs.
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

// Options determine how the VM is built. The zero value uses what is installed on this machine.
type Options struct {
	// image of a distribution's kernel with its modules in the same folder or in lib/modules there;
	// default: the newest in /boot that has the modules
	Kernel   string
	Program  string                      // static program that imports package inside; default: this program
	QEMU     string                      // path of QEMU; default: the installed one
	Root     string                      // folder in which kernels are searched; default /
	Deadline time.Duration               // limit from power-on to unmount; default 10 minutes. An emulated VM needs half a minute
	KVM      func(context.Context) error // returns nil if KVM runs a vCPU; default kvm.Run on /dev/kvm
}

// An Appliance implements convert.Appliance.
type Appliance struct{ o Options }

// New returns an appliance. Mount starts the VM.
func New(o Options) *Appliance {
	o.Root, o.Deadline = cmp.Or(o.Root, "/"), cmp.Or(o.Deadline, 10*time.Minute)
	if o.KVM == nil {
		o.KVM = func(ctx context.Context) error { return kvm.Run(ctx, "/dev/kvm") }
	}
	return &Appliance{o}
}

// Check returns an error if the configured kernel is invalid or its modules for the VM's hardware are
// missing. It is called before the copy, which takes hours.
func (a *Appliance) Check() error {
	_, err := a.o.namedKernel(nil)
	return err
}

// Mount boots the VM and mounts the volumes. The error is fault.NotFound if there is no kernel, no QEMU
// or no module for a file system, and fault.Transient after the deadline.
func (a *Appliance) Mount(ctx context.Context, volumes []convert.Volume) (_ convert.Mounted, err error) {
	k, err := a.o.findKernel(volumes)
	if err != nil {
		return nil, err
	}
	initrd, err := a.o.buildInitramfs(k, volumes)
	if err != nil {
		return nil, err
	}
	defer initrd.Close() // start may have closed it
	disks, numbers := uniqueDevices(volumes)
	vm, err := a.startVM(ctx, k, initrd, disks)
	if err != nil {
		return nil, err
	}
	// The order of the mounts is that of the volumes, so the numbers match FileSystem.
	for i, v := range volumes {
		if err := vm.mountVolume(v, numbers[i]); err != nil {
			return nil, errors.Join(fmt.Errorf("%s on %s: %w", v.Kind, v.Name, err), vm.Close())
		}
	}
	return vm, nil
}

// uniqueDevices returns each device once, and for each volume the index of its device.
func uniqueDevices(volumes []convert.Volume) (disks []convert.Device, numbers []int) {
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

// driverOf returns the name of the kernel's file system for a kind. ext4 also supports ext2 and ext3.
func driverOf(kind guest.FileSystem) (string, error) {
	switch kind {
	case guest.Ext2, guest.Ext3, guest.Ext4:
		return "ext4", nil
	case guest.XFS, guest.Btrfs:
		return string(kind), nil
	}
	return "", fault.New(fault.Unsupported, "%s is not mounted here", kind).WithHint("use the compat profile, which changes nothing in the guest")
}

// programPath returns the path of the program that runs in the VM.
func (o Options) programPath() (path string, err error) {
	if o.Program != "" {
		return o.Program, nil
	}
	return os.Executable()
}
