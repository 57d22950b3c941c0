package libvirt

import (
	"context"
	"errors"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	"libvirt.org/go/libvirtxml"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/targets"
	"github.com/decamp/decamp/internal/targets/libvirt/rpc"
	"github.com/decamp/decamp/internal/targets/platform"
)

var _ platform.Starter = (*Platform)(nil)

// A domain is looked at so many times after it was started, with a pause before each look: QEMU that does
// not come to terms with its host or its disks ends in its first moments.
const (
	stateChecks     = 6                      // number of state queries after a start
	stateCheckPause = 500 * time.Millisecond // pause before each query
)

// Start powers on the delivered domain, and returns after it has run for a few seconds.
//
// A running domain is left unchanged. A paused domain is fault.Conflict: a user has paused it, or QEMU
// has after a
// write error, and the cause must be fixed before it is resumed. If the answer to a start is lost, the
// next call
// finds the domain running. Start does not start networks.
func (p *Platform) Start(ctx context.Context, def targets.Definition) (targets.Started, error) {
	c, err := p.connect(ctx)
	if err != nil {
		return targets.Started{}, err
	}
	defer c.Close()
	d, x, err := p.domainFinder().deliveredDomain(ctx, c, def.VM)
	if err == nil {
		err = p.at.wrapError(d, p.newStarter().powerOn(ctx, c, d, x))
	}
	if err != nil {
		return targets.Started{}, err
	}
	return targets.Started{Console: p.at.consoleCommand(d.Name, x)}, nil
}

// newStarter returns the starter for p's domains.
func (p *Platform) newStarter() starter { return starter{p.at, p.wait} }

// starter powers on domains and determines why one does not start.
type starter struct {
	at   address                                    // address for messages
	wait func(context.Context, time.Duration) error // sleeps; replaced by tests
}

// powerOn starts a domain that is off, and verifies that it stays on.
func (s starter) powerOn(ctx context.Context, c *rpc.Client, d rpc.Domain, x *libvirtxml.Domain) error {
	state, reason, err := c.DomainState(ctx, d)
	if err != nil {
		return libvirtFault(err)
	}
	if state != rpc.Off {
		return s.checkRunning(d, state, reason)
	}
	if refused := c.StartDomain(ctx, d); refused != nil {
		if !startedMeanwhile(ctx, c, d) {
			return s.startError(ctx, c, d, x, refused)
		}
	}
	for range stateChecks {
		if err := s.wait(ctx, stateCheckPause); err != nil {
			return err
		}
		if state, reason, err = c.DomainState(ctx, d); err != nil {
			return libvirtFault(err)
		}
		if state == rpc.Off || state == rpc.Crashed {
			return s.exitError(d, reason)
		}
	}
	return s.checkRunning(d, state, reason)
}

// startedMeanwhile reports whether another client has started the domain, so that libvirt rejected this
// start.
func startedMeanwhile(ctx context.Context, c *rpc.Client, d rpc.Domain) bool {
	state, _, err := c.DomainState(ctx, d)
	return err == nil && state != rpc.Off && state != rpc.Crashed
}

// checkRunning returns nil if the domain runs, else the error for its state. A start in progress is
// fault.Transient, any
// other state fault.Conflict.
func (s starter) checkRunning(d rpc.Domain, state rpc.State, reason rpc.Reason) error {
	switch {
	case state == rpc.Running || state == rpc.Blocked:
		return nil
	case state == rpc.Paused && reason == rpc.PausedByIO:
		return fault.New(fault.Conflict, "it is paused, because QEMU cannot read or write its disks").
			WithHint("fix the pool, which may be full, then: %s", s.at.virshCommand("resume", d.Name))
	case state == rpc.Paused && reason == rpc.PausedToStart:
		return fault.New(fault.Transient, "libvirt is still starting it").WithHint("find the cause: %s", s.at.virshCommand("domstate --reason", d.Name))
	case state == rpc.Paused:
		return fault.New(fault.Conflict, "it is paused").WithHint("find the cause, then resume it: %s; %s", s.at.virshCommand("domstate --reason", d.Name), s.at.virshCommand("resume", d.Name))
	case state == rpc.Asleep:
		return fault.New(fault.Conflict, "it is suspended by its guest").WithHint("wake it: %s", s.at.virshCommand("dompmwakeup", d.Name))
	case state == rpc.Stopping:
		return fault.New(fault.Conflict, "it is shutting down").WithHint("wait until it is off, and run the same command again: %s", s.at.virshCommand("domstate", d.Name))
	}
	return fault.New(fault.Conflict, "it has crashed").WithHint("find the cause, end it and run the same command again: %s; %s", s.at.logCommand(d.Name), s.at.virshCommand("destroy", d.Name))
}

// exitError returns the error for a domain that stopped soon after its start.
func (s starter) exitError(d rpc.Domain, reason rpc.Reason) error {
	how := map[rpc.Reason]string{
		rpc.OffByGuest: "its guest powered it off", rpc.OffByClient: "a user destroyed it",
		rpc.OffByCrash: "it crashed", rpc.OffByFailure: "QEMU failed", rpc.OffByDaemon: "libvirt's daemon lost it",
	}[reason]
	if how == "" {
		how = "QEMU ended"
	}
	return fault.New(fault.Unsupported, "it stopped within seconds after its start: %s", how).
		WithHint("read QEMU's log, and watch its display during the next start: %s", s.at.logCommand(d.Name))
}

// startError returns the error for a domain that libvirt does not start. The message is libvirt's; the
// remedy depends on
// the cause if it is known. Missing networks and missing KVM are checked first.
func (s starter) startError(ctx context.Context, c *rpc.Client, d rpc.Domain, x *libvirtxml.Domain, err error) error {
	var said *rpc.Error
	if !errors.As(err, &said) {
		return err // the connection failed
	}
	if missing, _ := missingNetworks(ctx, c, s.at, x); len(missing) > 0 { // the first error is returned below
		return fault.New(fault.Conflict, "%w: %s", err, missing[0].Text).WithHint("%s", missing[0].Remedy)
	}
	if _, none := c.Capabilities(ctx, x.Type); x.Type == "kvm" && none != nil {
		return fault.New(fault.Unsupported, "%w", err).
			WithHint("find out why KVM is missing: virt-host-validate qemu; or migrate with --domain-type qemu, which emulates the VM and is slow")
	}
	for _, cause := range startCauses {
		if errors.Is(said, cause.errno) || strings.Contains(said.Message, cause.words) {
			return fault.New(cause.kind, "%w", err).WithHint(cause.remedy, s.at.virshCommand("edit", d.Name))
		}
	}
	return fault.New(fault.KindOf(libvirtFault(err)), "%w", err).
		WithHint("read QEMU's log, and start the VM: %s; %s", s.at.logCommand(d.Name), s.at.virshCommand("start", d.Name))
}

// startCauses contains causes of failed starts. libvirt reports an errno, or only QEMU's message, which
// contains words. The remedy is a format with the command that edits the domain.
var startCauses = []struct {
	errno  unix.Errno
	words  string
	kind   fault.Kind
	remedy string
}{
	{unix.ENOMEM, "Cannot allocate memory", fault.Full, "free memory on libvirt's machine, or reduce the VM's memory: %s"},
	{unix.EACCES, "Permission denied", fault.Denied, "give QEMU's account access to the pool's files, and check AppArmor and SELinux: journalctl -k | grep -i denied; or edit the domain: %s"},
	{unix.ENODEV, "No such device", fault.NotFound, "create the bridge or device that the domain names, or edit the domain: %s"},
	{unix.ENOENT, "No such file or directory", fault.NotFound, "restore the file that the domain names, or edit the domain: %s"},
}
