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

var _ platform.Consoler = (*Platform)(nil)

// Console attaches to the serial console of the delivered domain. If another client uses the console,
// or if the
// VM is off, the error is fault.Conflict. If the VM has no serial port, it is fault.Unsupported. ctx
// limits
// the attaching only.
//
// Read returns io.EOF when the VM is off. If libvirt ends the console of a running VM, as after
// virsh console --force, Read returns fault.Conflict.
func (p *Platform) Console(ctx context.Context, def targets.Definition) (io.ReadWriteCloser, error) {
	c, err := p.connect(ctx)
	if err != nil {
		return nil, err
	}
	d, x, err := p.domainFinder().deliveredDomain(ctx, c, def.VM)
	if err == nil {
		var open *rpc.Console
		if open, err = attachConsole(ctx, c, p.at, d, x); err == nil {
			late, cancel := context.WithCancel(context.WithoutCancel(ctx))
			return &console{Console: open, ctx: late, cancel: cancel, at: p.at, wait: p.wait, client: c, domain: d, closed: make(chan struct{})}, nil
		}
		err = p.at.wrapError(d, err)
	}
	return nil, errors.Join(err, ignoreClosed(c.Close()))
}

// attachConsole opens the console of a domain.
func attachConsole(ctx context.Context, c *rpc.Client, at address, d rpc.Domain, x *libvirtxml.Domain) (*rpc.Console, error) {
	if !hasSerial(x) {
		return nil, noSerial(at, d, x)
	}
	on, err := isOn(ctx, c, d)
	if err != nil {
		return nil, err
	}
	if !on {
		return nil, fault.New(fault.Conflict, "it is off").WithHint("start it: %s", at.virshCommand("start", d.Name))
	}
	open, err := c.OpenConsole(ctx, d)
	switch {
	case rpc.IsCode(err, rpc.OperationFailed):
		return nil, fault.New(fault.Conflict, "its console is in use by another client: %w", err).
			WithHint("end the other session, or replace it: %s", at.virshCommand("console --force", d.Name))
	case rpc.IsCode(err, rpc.InternalError): // the serial port is connected to a file or to the network
		return nil, noSerial(at, d, x)
	}
	return open, libvirtFault(err)
}

// noSerial returns the error for a domain without a usable serial port. Its remedy is the VM's display
// if there is one.
func noSerial(at address, d rpc.Domain, x *libvirtxml.Domain) error {
	err := fault.New(fault.Unsupported, "it has no serial console that libvirt can open")
	if screen := at.viewerCommand(d.Name, x); screen != "" {
		return err.WithHint("open its display: %s", screen)
	}
	return err.WithHint("add one, <serial type='pty'/>: %s", at.virshCommand("edit", d.Name))
}

// isOn reports whether a domain has a QEMU process, in any state. It returns false for a removed
// domain.
func isOn(ctx context.Context, c *rpc.Client, d rpc.Domain) (bool, error) {
	state, _, err := c.DomainState(ctx, d)
	if rpc.IsCode(err, rpc.NoDomain) {
		return false, nil
	}
	return state != rpc.Off && state != rpc.Crashed, libvirtFault(err)
}

// console is the console of a domain with its own connection to libvirt.
type console struct {
	*rpc.Console
	ctx    context.Context                            // canceled by Close
	cancel context.CancelFunc                         // cancels ctx
	at     address                                    // address for messages
	wait   func(context.Context, time.Duration) error // sleeps; replaced by tests
	client *rpc.Client                                // connection, closed by Close
	domain rpc.Domain                                 // domain of the console

	readErr error         // result of further Reads; used by Read only
	once    sync.Once     // makes Close idempotent
	closed  chan struct{} // closed by Close
}

// Read reads the guest's output. Errors contain the reason for the end of the console.
func (k *console) Read(p []byte) (int, error) {
	if k.readErr != nil {
		return 0, k.readErr
	}
	n, err := k.Console.Read(p)
	if err != nil {
		k.readErr = k.endError(err)
	}
	return n, k.readErr
}

// Write sends input to the guest.
func (k *console) Write(p []byte) (int, error) {
	n, err := k.Console.Write(p)
	return n, k.at.wrapError(k.domain, err)
}

// endError returns the error for the end of the console. libvirt reports the same end for any cause,
// and
// sometimes before it has noticed that QEMU has ended. So endError polls the domain's state.
func (k *console) endError(err error) error {
	var said *rpc.Error
	if k.isClosed() {
		return net.ErrClosed
	}
	if err != io.EOF && !errors.As(err, &said) {
		return k.at.wrapError(k.domain, err)
	}
	for range stateChecks {
		on, lost := isOn(k.ctx, k.client, k.domain)
		switch {
		case lost != nil:
			return k.at.wrapError(k.domain, lost)
		case !on:
			return io.EOF
		}
		if k.wait(k.ctx, stateCheckPause) != nil {
			return net.ErrClosed
		}
	}
	return k.at.wrapError(k.domain, fault.New(fault.Conflict, "libvirt ended its console, and the VM still runs: another client may have taken the console over (%w)", err).
		WithHint("run the same command again when the other session has ended"))
}

// isClosed reports whether Close was called.
func (k *console) isClosed() bool {
	select {
	case <-k.closed:
		return true
	default:
		return false
	}
}

// Close releases the console. The VM keeps its state.
func (k *console) Close() error {
	var err error
	k.once.Do(func() {
		close(k.closed)
		k.cancel()
		err = errors.Join(k.Console.Close(), ignoreClosed(k.client.Close()))
	})
	return err
}
