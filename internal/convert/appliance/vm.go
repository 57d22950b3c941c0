package appliance

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/decamp/decamp/internal/confine"
	"github.com/decamp/decamp/internal/convert"
	"github.com/decamp/decamp/internal/convert/appliance/inside"
	"github.com/decamp/decamp/internal/convert/appliance/wire"
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/kvm"
)

// A vm is a running appliance. It implements convert.Mounted.
type vm struct {
	ctx      context.Context    // ends at the deadline, which kills the VM
	cancel   context.CancelFunc // kills the VM
	cmd      *confine.Command   // QEMU; nil if it could not be prepared
	port     net.Conn           // connection to the program in the VM
	console  *console           // output of the VM and of QEMU
	disks    *diskServer        // devices that are served to the VM
	mounts   int                // mounted volumes
	replayed []string           // names of volumes whose journals were replayed
	ended    bool               // Close was called
}

// kernelMemory is the memory of the VM besides its user space, in bytes. It is sufficient to replay a
// journal.
const kernelMemory = 512 << 20

// startVM boots the VM and waits until it accepts requests.
func (a *Appliance) startVM(ctx context.Context, k *kernel, initrd *os.File, disks []convert.Device) (_ *vm, err error) {
	program := a.o.QEMU
	if program == "" {
		if program, err = kvm.QEMU(); err != nil {
			return nil, err
		}
	}
	m := &vm{console: &console{}, disks: newDiskServer()}
	// The deadline covers boot, conversion and unmount.
	m.ctx, m.cancel = context.WithTimeout(ctx, a.o.Deadline)
	defer func() {
		if err != nil {
			err = errors.Join(err, m.Close())
		}
	}()
	if m.cmd, err = confine.New(m.ctx, program, machineArgs...); err != nil {
		return nil, err
	}
	m.addAccelerators(a.o.runsKVM(ctx))
	m.cmd.Stdout, m.cmd.Stderr = m.console, m.console
	m.cmd.WaitDelay = time.Minute // time for the remaining output
	if err := errors.Join(m.addKernel(k, initrd), m.addDevices(disks)); err != nil {
		return nil, err
	}
	if err := m.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", program, m.explainError(err))
	}
	// The appliance sends an empty reply when it is ready.
	if _, err := m.receiveReply(0); err != nil {
		return nil, fmt.Errorf("the appliance did not start: %w", err)
	}
	return m, nil
}

// addKernel sets the kernel, the initramfs and the memory of the VM. The initramfs is in memory twice
// while the kernel unpacks it.
func (m *vm) addKernel(k *kernel, initrd *os.File) error {
	info, err := initrd.Stat()
	if err != nil {
		return err
	}
	image, err := os.ReadFile(k.image) // QEMU's user may not be allowed to read it
	if err != nil {
		return err
	}
	copied, err := memoryFile("kernel", image)
	if err != nil {
		return err
	}
	kernelPath, err := m.cmd.PassOwned(copied)
	if err != nil {
		return err
	}
	initrdPath, err := m.cmd.PassOwned(initrd)
	if err != nil {
		return err
	}
	m.cmd.Add("-m", fmt.Sprintf("size=%dM", (kernelMemory+2*info.Size())>>20), "-kernel", kernelPath, "-initrd", initrdPath)
	m.cmd.Add("-append", kernelParameters+" "+inside.KernelArgument)
	return nil
}

// machineArgs are the arguments of QEMU without devices.
var machineArgs = []string{"-nodefaults", "-no-user-config", "-display", "none", "-name", "appliance", "-no-reboot", "-machine", "pc", "-cpu", "max", "-smp", "1",
	"-serial", "stdio"}

// kernelParameters make the start cheap, most of all for an emulated VM. no_timer_check: the timer of an
// emulated VM is late on a busy machine, and the kernel would panic. The self-tests of ciphers and the
// mitigations protect nothing here: one program runs in the VM, and it is trusted. no5lvl: QEMU emulates
// each step of a translation of addresses.
const kernelParameters = "console=ttyS0 quiet loglevel=5 panic=-1 selinux=0 apparmor=0 audit=0 random.trust_cpu=on" +
	" no_timer_check cryptomgr.notests mitigations=off no5lvl"

// runsKVM reports whether KVM runs a vCPU on this machine.
func (o Options) runsKVM(ctx context.Context) bool {
	const limit = 2 * time.Second
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	return o.KVM(ctx) == nil
}

// addAccelerators selects KVM, if it works, with emulation as the fallback.
func (m *vm) addAccelerators(kvm bool) {
	if kvm {
		m.cmd.UseKVM()
		m.cmd.Add("-accel", "kvm")
	}
	m.cmd.Add("-accel", "tcg")
}

// addDevices adds the serial port and the disks to the VM. Each is one end of a socket pair.
func (m *vm) addDevices(disks []convert.Device) error {
	port, remote, err := socketPair()
	if err != nil {
		return err
	}
	m.port = port
	m.cmd.Add("-device", "virtio-serial-pci", "-chardev", fmt.Sprintf("socket,id=port,fd=%d", m.cmd.Inherit(remote)), "-device", "virtserialport,chardev=port,name="+inside.Port)
	// The SCSI ID is the index of the device, by which the appliance finds it.
	m.cmd.Add("-device", "virtio-scsi-pci,id=scsi")
	for i, d := range disks {
		local, remote, err := socketPair()
		if err != nil {
			return err
		}
		id := strconv.Itoa(i)
		m.cmd.Add("-blockdev", fmt.Sprintf("driver=nbd,node-name=disk%s,server.type=fd,server.str=%d", id, m.cmd.Inherit(remote)))
		// Without werror, QEMU would pause a VM whose disk is full.
		m.cmd.Add("-device", "scsi-hd,bus=scsi.0,scsi-id="+id+",drive=disk"+id+",werror=report,rerror=report")
		m.disks.serve(local, d)
	}
	return nil
}

// socketPair returns both ends of a new socket pair.
func socketPair() (net.Conn, *os.File, error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("a socket pair: %w", err)
	}
	local := os.NewFile(uintptr(fds[0]), "appliance")
	defer local.Close()
	remote := os.NewFile(uintptr(fds[1]), "appliance")
	conn, err := net.FileConn(local)
	if err != nil {
		return nil, nil, errors.Join(err, remote.Close())
	}
	return conn, remote, nil
}

// receiveReply waits for a reply whose data has at most limit bytes.
func (m *vm) receiveReply(limit int64) (response, error) {
	// A deadline in the past ends a blocked read.
	stop := context.AfterFunc(m.ctx, func() { _ = m.port.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	var r wire.Reply
	data, err := wire.Receive(m.port, &r, limit)
	if err != nil {
		return response{}, m.explainError(err)
	}
	return response{r, data}, nil
}

// explainError returns the reason why the connection failed, with the end of the console output.
func (m *vm) explainError(err error) error {
	switch text := m.console.lastLines(); {
	case errors.Is(m.ctx.Err(), context.Canceled):
		return m.ctx.Err()
	case m.ctx.Err() != nil:
		return fault.New(fault.Transient, "it did not end within its time limit; its console output: %s", text).
			WithHint("try again when this machine is less busy, or use the compat profile, which changes nothing in the guest")
	// The VM has ended: the kernel panicked or powered off.
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, unix.ECONNRESET), errors.Is(err, unix.EPIPE):
		return fault.New(fault.Unsupported, "it ended early; its console output: %s", text).
			WithHint("use the compat profile, which changes nothing in the guest")
	default:
		return fmt.Errorf("%w; its console output: %s", err, text)
	}
}

// Close kills the VM and waits until the devices are unused. It may be called more than once.
func (m *vm) Close() error {
	if m.ended {
		return nil
	}
	m.ended = true
	m.cancel() // kills it
	if m.port != nil {
		_ = m.port.Close() // its output is complete
	}
	if m.cmd != nil {
		m.cmd.Close()
	}
	if m.cmd != nil && m.cmd.Process != nil && m.cmd.ProcessState == nil {
		_ = m.cmd.Wait() // fails if it was killed or stopped on request
	}
	m.disks.closeAll()
	return nil
}
