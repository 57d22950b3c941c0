package libvirt

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"time"

	"libvirt.org/go/libvirtxml"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/targets"
	"github.com/decamp/decamp/internal/targets/libvirt/rpc"
	"github.com/decamp/decamp/internal/targets/platform"
)

var _ platform.Consoler = (*Place)(nil)

// Console attaches to the serial console of the domain that Deliver made of the VM. One that somebody else has is
// a fault.Conflict, and so is a VM that is off; a VM without a serial port is fault.Unsupported. ctx bounds the
// attaching only.
//
// Reading ends with io.EOF once the VM is off. It is a fault.Conflict where libvirt ends the console of a VM that runs,
// as it does for whoever takes it by force.
func (p *Place) Console(ctx context.Context, def targets.Definition) (io.ReadWriteCloser, error) {
	c, err := p.connect(ctx)
	if err != nil {
		return nil, err
	}
	d, x, err := p.domains().delivered(ctx, c, def.VM)
	if err == nil {
		var open *rpc.Console
		if open, err = attachConsole(ctx, c, p.at, d, x); err == nil {
			late, cancel := context.WithCancel(context.WithoutCancel(ctx))
			return &console{Console: open, ctx: late, cancel: cancel, at: p.at, wait: p.wait, client: c, domain: d, closed: make(chan struct{})}, nil
		}
		err = p.at.named(d, err)
	}
	return nil, errors.Join(err, ignoreClosed(c.Close()))
}

// attachConsole opens a domain's console.
func attachConsole(ctx context.Context, c *rpc.Client, at address, d rpc.Domain, x *libvirtxml.Domain) (*rpc.Console, error) {
	if !hasSerial(x) {
		return nil, noSerial(at, d, x)
	}
	on, err := isOn(ctx, c, d)
	if err != nil {
		return nil, err
	}
	if !on {
		return nil, fault.New(fault.Conflict, "it is off").WithHint("start it: %s", at.virsh("start", d.Name))
	}
	open, err := c.OpenConsole(ctx, d)
	switch {
	case rpc.IsCode(err, rpc.OperationFailed):
		return nil, fault.New(fault.Conflict, "somebody else has its console: %w", err).
			WithHint("have them leave it; or take it from them: %s", at.virsh("console --force", d.Name))
	case rpc.IsCode(err, rpc.InternalError): // a serial port that leads into a file, or over the network
		return nil, noSerial(at, d, x)
	}
	return open, libvirtFault(err)
}

// noSerial is the error of a domain whose serial port cannot be had, with the way to its screen.
func noSerial(at address, d rpc.Domain, x *libvirtxml.Domain) error {
	err := fault.New(fault.Unsupported, "it has no serial console that libvirt passes on")
	if screen := at.screen(d.Name, x); screen != "" {
		return err.WithHint("look at its screen: %s", screen)
	}
	return err.WithHint("give it one, <serial type='pty'/>: %s", at.virsh("edit", d.Name))
}

// isOn reports whether a domain has a QEMU, whatever that does. One that nobody has any more has none.
func isOn(ctx context.Context, c *rpc.Client, d rpc.Domain) (bool, error) {
	state, _, err := c.DomainState(ctx, d)
	if rpc.IsCode(err, rpc.NoDomain) {
		return false, nil
	}
	return state != rpc.Off && state != rpc.Crashed, libvirtFault(err)
}

// A console is that of a domain, on a connection of its own.
type console struct {
	*rpc.Console
	ctx    context.Context // until Close
	cancel context.CancelFunc
	at     address
	wait   func(context.Context, time.Duration) error
	client *rpc.Client
	domain rpc.Domain

	over   error // what every further Read returns; Read's
	once   sync.Once
	closed chan struct{} // by Close
}

// Read says why the console ended, too.
func (k *console) Read(p []byte) (int, error) {
	if k.over != nil {
		return 0, k.over
	}
	n, err := k.Console.Read(p)
	if err != nil {
		k.over = k.why(err)
	}
	return n, k.over
}

func (k *console) Write(p []byte) (int, error) {
	n, err := k.Console.Write(p)
	return n, k.at.named(k.domain, err)
}

// why looks at the domain, as libvirt ends a console in the same way for whatever reason, and a moment before
// it knows that QEMU has ended.
func (k *console) why(err error) error {
	var said *rpc.Error
	if k.isClosed() {
		return net.ErrClosed
	}
	if err != io.EOF && !errors.As(err, &said) {
		return k.at.named(k.domain, err)
	}
	for range looks {
		on, lost := isOn(k.ctx, k.client, k.domain)
		switch {
		case lost != nil:
			return k.at.named(k.domain, lost)
		case !on:
			return io.EOF
		}
		if k.wait(k.ctx, lookPause) != nil {
			return net.ErrClosed
		}
	}
	return k.at.named(k.domain, fault.New(fault.Conflict, "libvirt ended its console, and it runs on: somebody may have taken it by force (%w)", err).
		WithHint("run the same command again once they have left it"))
}

func (k *console) isClosed() bool {
	select {
	case <-k.closed:
		return true
	default:
		return false
	}
}

// Close leaves the console to others. The VM runs on.
func (k *console) Close() error {
	var err error
	k.once.Do(func() {
		close(k.closed)
		k.cancel()
		err = errors.Join(k.Console.Close(), ignoreClosed(k.client.Close()))
	})
	return err
}
