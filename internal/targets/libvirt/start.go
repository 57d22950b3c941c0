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

var _ platform.Starter = (*Place)(nil)

// A domain is looked at so many times after it was started, with a pause before each look: QEMU that does
// not come to terms with its host or its disks ends in its first moments.
const (
	looks     = 6
	lookPause = 500 * time.Millisecond
)

// Start powers on the domain that Deliver made of the VM, and returns once it has run for a few seconds.
//
// One that runs is left as it is. So is one that is paused, which is a fault.Conflict: somebody paused it, or
// QEMU did as it could not write, and who resumes it has to know why. A start whose answer was lost is found
// done by the next. Networks are not started: they are not ours.
func (p *Place) Start(ctx context.Context, def targets.Definition) (targets.Started, error) {
	c, err := p.connect(ctx)
	if err != nil {
		return targets.Started{}, err
	}
	defer c.Close()
	d, x, err := p.domains().delivered(ctx, c, def.VM)
	if err == nil {
		err = p.at.named(d, p.starter().power(ctx, c, d, x))
	}
	if err != nil {
		return targets.Started{}, err
	}
	return targets.Started{Console: p.at.console(d.Name, x)}, nil
}

func (p *Place) starter() starter { return starter{p.at, p.wait} }

// A starter powers on domains, and explains why one does not start.
type starter struct {
	at   address
	wait func(context.Context, time.Duration) error
}

// power starts a domain that is off, and sees that it stays on.
func (s starter) power(ctx context.Context, c *rpc.Client, d rpc.Domain, x *libvirtxml.Domain) error {
	state, reason, err := c.DomainState(ctx, d)
	if err != nil {
		return libvirtFault(err)
	}
	if state != rpc.Off {
		return s.running(d, state, reason)
	}
	if refused := c.StartDomain(ctx, d); refused != nil {
		if !startedMeanwhile(ctx, c, d) {
			return s.refusal(ctx, c, d, x, refused)
		}
	}
	for range looks {
		if err := s.wait(ctx, lookPause); err != nil {
			return err
		}
		if state, reason, err = c.DomainState(ctx, d); err != nil {
			return libvirtFault(err)
		}
		if state == rpc.Off || state == rpc.Crashed {
			return s.died(d, reason)
		}
	}
	return s.running(d, state, reason)
}

// startedMeanwhile reports whether somebody else was first, which libvirt refuses us for.
func startedMeanwhile(ctx context.Context, c *rpc.Client, d rpc.Domain) bool {
	state, _, err := c.DomainState(ctx, d)
	return err == nil && state != rpc.Off && state != rpc.Crashed
}

// running is nil for a domain that runs, or else says what it does.
func (s starter) running(d rpc.Domain, state rpc.State, reason rpc.Reason) error {
	switch {
	case state == rpc.Running || state == rpc.Blocked:
		return nil
	case state == rpc.Paused && reason == rpc.PausedByIO:
		return fault.New(fault.Conflict, "it is paused, as QEMU cannot read or write its disks").
			WithHint("see what is wrong with the pool, such as that it is full, then: %s", s.at.virsh("resume", d.Name))
	case state == rpc.Paused && reason == rpc.PausedToStart:
		return fault.New(fault.Transient, "libvirt still starts it").WithHint("see what it waits for: %s", s.at.virsh("domstate --reason", d.Name))
	case state == rpc.Paused:
		return fault.New(fault.Conflict, "it is paused").WithHint("see why, then resume it: %s; %s", s.at.virsh("domstate --reason", d.Name), s.at.virsh("resume", d.Name))
	case state == rpc.Asleep:
		return fault.New(fault.Conflict, "it sleeps").WithHint("wake it: %s", s.at.virsh("dompmwakeup", d.Name))
	case state == rpc.Stopping:
		return fault.New(fault.Conflict, "it is shutting down").WithHint("wait until it is off, and run the same command again: %s", s.at.virsh("domstate", d.Name))
	}
	return fault.New(fault.Conflict, "it has crashed").WithHint("see why, end it and run the same command again: %s; %s", s.at.log(d.Name), s.at.virsh("destroy", d.Name))
}

// died is the error of a domain that was on for a moment.
func (s starter) died(d rpc.Domain, reason rpc.Reason) error {
	how := map[rpc.Reason]string{
		rpc.OffByGuest: "its guest powered it off", rpc.OffBySomebody: "somebody destroyed it",
		rpc.OffByCrash: "it crashed", rpc.OffByFailure: "QEMU failed", rpc.OffByItsDaemon: "libvirt's daemon lost it",
	}[reason]
	if how == "" {
		how = "QEMU ended"
	}
	return fault.New(fault.Unsupported, "it was started, and went off within moments: %s", how).
		WithHint("see what QEMU said, and what its screen shows when it is started again: %s", s.at.log(d.Name))
}

// refusal is the error of a domain that libvirt does not start, in libvirt's words, with a remedy for the cause
// where that can be told.
func (s starter) refusal(ctx context.Context, c *rpc.Client, d rpc.Domain, x *libvirtxml.Domain, err error) error {
	var said *rpc.Error
	if !errors.As(err, &said) {
		return err // it is the connection
	}
	if missing, _ := missingNetworks(ctx, c, s.at, x); len(missing) > 0 { // what went wrong first is told
		return fault.New(fault.Conflict, "%w: %s", err, missing[0].Text).WithHint("%s", missing[0].Remedy)
	}
	if _, none := c.Capabilities(ctx, x.Type); x.Type == "kvm" && none != nil {
		return fault.New(fault.Unsupported, "%w", err).
			WithHint("see why there is no KVM: virt-host-validate qemu; a VM that is migrated with --domain-type qemu is emulated, which is slow")
	}
	for _, cause := range startCauses {
		if errors.Is(said, cause.errno) || strings.Contains(said.Message, cause.words) {
			return fault.New(cause.kind, "%w", err).WithHint(cause.remedy, s.at.virsh("edit", d.Name))
		}
	}
	return fault.New(fault.KindOf(libvirtFault(err)), "%w", err).
		WithHint("see what QEMU said, and start it: %s; %s", s.at.log(d.Name), s.at.virsh("start", d.Name))
}

// startCauses are those of which libvirt has a number of the operating system's or, where QEMU found out, only
// words. A remedy may name the command by which the domain is changed.
var startCauses = []struct {
	errno  unix.Errno
	words  string
	kind   fault.Kind
	remedy string
}{
	{unix.ENOMEM, "Cannot allocate memory", fault.Full, "free memory on libvirt's machine, or give the VM less: %s"},
	{unix.EACCES, "Permission denied", fault.Denied, "let QEMU's account read and write the pool's files, and see whether AppArmor or SELinux is in the way: journalctl -k | grep -i denied; or change what the domain uses: %s"},
	{unix.ENODEV, "No such device", fault.NotFound, "make the bridge or device that it names, or have it use another: %s"},
	{unix.ENOENT, "No such file or directory", fault.NotFound, "bring the file back that it names, or take it out: %s"},
}
