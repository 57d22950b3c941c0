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

// A vm is an appliance that runs.
type vm struct {
	ctx      context.Context // ends at the deadline, and takes the VM with it
	cancel   context.CancelFunc
	cmd      *confine.Command
	port     net.Conn
	console  *console
	disks    *served
	mounts   int
	replayed []string
	ended    bool // waited for
}

// memory is what the VM has beside its user space, in bytes: a kernel that replays a journal.
const memory = 512 << 20

// start boots the VM, and waits until it can be asked.
func (a *Appliance) start(ctx context.Context, k *kernel, initrd *os.File, disks []convert.Device) (_ *vm, err error) {
	program := a.o.QEMU
	if program == "" {
		if program, err = kvm.QEMU(); err != nil {
			return nil, err
		}
	}
	m := &vm{console: &console{}, disks: &served{}}
	m.ctx, m.cancel = context.WithTimeout(ctx, a.o.Deadline)
	defer func() {
		if err != nil {
			err = errors.Join(err, m.Close())
		}
	}()
	if m.cmd, err = confine.New(m.ctx, program, machineArgs...); err != nil {
		return nil, err
	}
	m.accelerate(a.o.runsKVM(ctx))
	m.cmd.Stdout, m.cmd.Stderr = m.console, m.console
	m.cmd.WaitDelay = time.Minute // time for the remaining output
	if err := errors.Join(m.load(k, initrd), m.plug(disks)); err != nil {
		return nil, err
	}
	if err := m.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", program, m.lost(err))
	}
	if _, err := m.receive(0); err != nil {
		return nil, fmt.Errorf("the appliance did not start: %w", err)
	}
	return m, nil
}

// load sets the VM's kernel, archive and memory: the archive is there twice during unpacking.
func (m *vm) load(k *kernel, initrd *os.File) error {
	info, err := initrd.Stat()
	if err != nil {
		return err
	}
	image, err := os.ReadFile(k.image) // QEMU's user may not be allowed to read it
	if err != nil {
		return err
	}
	copied, err := inMemory("kernel", image)
	if err != nil {
		return err
	}
	kernelPath, err := m.cmd.Own(copied)
	if err != nil {
		return err
	}
	initrdPath, err := m.cmd.Own(initrd)
	if err != nil {
		return err
	}
	m.cmd.Add("-m", fmt.Sprintf("size=%dM", (memory+2*info.Size())>>20), "-kernel", kernelPath, "-initrd", initrdPath)
	m.cmd.Add("-append", "console=ttyS0 quiet loglevel=5 panic=-1 selinux=0 apparmor=0 audit=0 random.trust_cpu=on "+inside.Told)
	return nil
}

// machineArgs are the arguments of the VM without its disks.
var machineArgs = []string{"-nodefaults", "-no-user-config", "-display", "none", "-name", "appliance", "-no-reboot", "-machine", "pc", "-cpu", "max", "-smp", "1",
	"-serial", "stdio"}

// runsKVM reports whether KVM runs a vCPU here.
func (o Options) runsKVM(ctx context.Context) bool {
	const limit = 2 * time.Second
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	return o.KVM(ctx) == nil
}

// accelerate chooses what runs the VM. If KVM refuses, the VM is emulated.
func (m *vm) accelerate(kvm bool) {
	if kvm {
		m.cmd.UseKVM()
		m.cmd.Add("-accel", "kvm")
	}
	m.cmd.Add("-accel", "tcg")
}

// plug gives the VM its port and its disks, each at the other end of a socket pair.
func (m *vm) plug(disks []convert.Device) error {
	port, theirs, err := pair()
	if err != nil {
		return err
	}
	m.port = port
	m.cmd.Add("-device", "virtio-serial-pci", "-chardev", fmt.Sprintf("socket,id=port,fd=%d", m.cmd.Inherit(theirs)), "-device", "virtserialport,chardev=port,name="+inside.Port)
	m.cmd.Add("-device", "virtio-scsi-pci,id=scsi")
	for i, d := range disks {
		ours, theirs, err := pair()
		if err != nil {
			return err
		}
		id := strconv.Itoa(i)
		m.cmd.Add("-blockdev", fmt.Sprintf("driver=nbd,node-name=disk%s,server.type=fd,server.str=%d", id, m.cmd.Inherit(theirs)))
		// Without werror, QEMU would pause a VM whose disk is full.
		m.cmd.Add("-device", "scsi-hd,bus=scsi.0,scsi-id="+id+",drive=disk"+id+",werror=report,rerror=report")
		m.disks.serve(ours, d)
	}
	return nil
}

// pair returns the two ends of a socket.
func pair() (net.Conn, *os.File, error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("a socket pair: %w", err)
	}
	ours := os.NewFile(uintptr(fds[0]), "appliance")
	defer ours.Close()
	theirs := os.NewFile(uintptr(fds[1]), "appliance")
	conn, err := net.FileConn(ours)
	if err != nil {
		return nil, nil, errors.Join(err, theirs.Close())
	}
	return conn, theirs, nil
}

// receive waits for an answer.
func (m *vm) receive(limit int64) (answer, error) {
	stop := context.AfterFunc(m.ctx, func() { _ = m.port.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	var r wire.Reply
	data, err := wire.Receive(m.port, &r, limit)
	if err != nil {
		return answer{}, m.lost(err)
	}
	return answer{r, data}, nil
}

// lost returns why the appliance is not usable any more, with its last output.
func (m *vm) lost(err error) error {
	switch said := m.console.end(); {
	case errors.Is(m.ctx.Err(), context.Canceled):
		return m.ctx.Err()
	case m.ctx.Err() != nil:
		return fault.New(fault.Transient, "it did not end within its time; its console's last words: %s", said).
			WithHint("try again when this machine is less busy, or use the compat profile, which changes nothing in the guest")
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, unix.ECONNRESET), errors.Is(err, unix.EPIPE):
		return fault.New(fault.Unsupported, "it ended early; its console's last words: %s", said).
			WithHint("use the compat profile, which changes nothing in the guest")
	default:
		return fmt.Errorf("%w; its console's last words: %s", err, said)
	}
}

// Close ends the VM at once, and waits until the devices are unused.
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
	m.disks.wait()
	return nil
}
