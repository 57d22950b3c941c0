// Package testboot boots a VM and reports how far it gets.
//
// It runs the VM of a libvirt domain in a separate QEMU: disks are temporary overlays,
// so no image changes; each network card is in a hub without other members; memory and
// processors are limited. It observes the VM from outside: the serial port, the screen
// (its text if it has one, and always a picture), the packets of the cards, QEMU's
// events, and the answers of QEMU's guest agent if the VM has a channel for it. The
// guest is unchanged and requires no software.
//
// Terms: a Sign is an observation that shows how far a guest has booted; a Verdict is
// the result of the signs. A sign of failure counts only after it has lasted for a
// while: firmware reports that one disk is not bootable, and boots the next.
package testboot

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"libvirt.org/go/libvirtxml"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/kvm"
)

// Options configure a trial. The zero value uses KVM if possible and keeps no files.
type Options struct {
	Deadline time.Duration // limit without any sign; default 5 minutes, emulated 15
	Settle   time.Duration // time that a sign of failure must last, and time for the agent of a booted guest; default 10 s
	Expect   string        // text on the serial port or the screen that means the guest is up, in addition to the known signs

	Accel   Accel  // Any for KVM if a vCPU runs, else emulation
	Memory  int64  // limit of the VM's memory in bytes; default 4 GiB
	CPUs    int    // maximum number of processors; default 4
	Keep    string // folder for serial.log and screen.png; not kept if empty
	Scratch string // folder for the guest's writes during the trial; default /var/tmp, which is on a disk

	// Static contains the expected addresses of the guest. Those that its agent does
	// not report are in Report.Missing.
	Static []Static

	// Served contains the disks without a file, by their names in the domain. Each
	// function serves NBD on a connection until it ends, and may be called again
	// later. Disks are only read.
	Served map[string]func(conn net.Conn)

	QEMU string // path of QEMU; default qemu-system-x86_64 or qemu-kvm
	Root string // root for firmware and fonts; default /

	KVM   func(ctx context.Context) error      // tests whether a vCPU runs; default kvm.Run on /dev/kvm
	Now   func() time.Time                     // clock; default time.Now
	After func(time.Duration) <-chan time.Time // timer; default time.After
}

// Accel is the way in which guest instructions are executed.
type Accel string

const (
	Any Accel = ""    // KVM if it works, else TCG
	KVM Accel = "kvm" // hardware virtualization
	TCG Accel = "tcg" // emulation, 10 to 100 times slower
)

// Report is the result of a trial.
type Report struct {
	Verdict     Verdict       `json:"verdict"`           // how far the guest booted
	Reason      string        `json:"reason"`            // observation that decided the verdict
	Remedy      string        `json:"remedy,omitempty"`  // remedy for a guest that did not boot
	Accel       Accel         `json:"accel"`             // KVM or TCG
	NoKVM       string        `json:"noKVM,omitempty"`   // reason of an emulation that was not requested
	Elapsed     time.Duration `json:"elapsed"`           // time from power-on to the verdict
	Network     []Sender      `json:"network,omitempty"` // senders on the cards
	Agent       *Agent        `json:"agent,omitempty"`   // answers of the guest's agent; nil without any
	Missing     []Static      `json:"missing,omitempty"` // addresses of Options.Static that the agent did not report
	Differences []string      `json:"less,omitempty"`    // differences between the VM and its definition
	Serial      string        `json:"serial,omitempty"`  // file with the output of the serial port
	Screen      string        `json:"screen,omitempty"`  // picture of the screen at the end
}

// Booted reports whether the guest came up.
func (r Report) Booted() bool { return r.Verdict == Booted }

// Summary returns the reason of the verdict, and the answers of the guest's agent.
func (r Report) Summary() string {
	switch {
	case r.Agent == nil:
		return r.Reason
	case strings.HasPrefix(r.Reason, agentAnswers):
		return r.Reason
	}
	return r.Reason + "; " + r.Agent.describe()
}

// withDefaults returns o with defaults for all optional fields.
func (o Options) withDefaults() Options {
	o.Settle = cmp.Or(o.Settle, 10*time.Second)
	o.Memory, o.CPUs = cmp.Or(o.Memory, 4<<30), cmp.Or(o.CPUs, 4)
	o.Root, o.Scratch = cmp.Or(o.Root, "/"), cmp.Or(o.Scratch, "/var/tmp")
	if o.KVM == nil {
		o.KVM = func(ctx context.Context) error { return kvm.Run(ctx, "/dev/kvm") }
	}
	if o.Now == nil {
		o.Now, o.After = time.Now, time.After
	}
	return o
}

// Boot starts the VM of a libvirt domain in XML, and observes it until there is a
// verdict. When it returns, QEMU has ended and the writes of the guest are removed. A
// guest that does not boot is not an error. An unsupported domain is fault.Unsupported,
// and a machine without QEMU is fault.NotFound.
func Boot(ctx context.Context, domain string, o Options) (Report, error) {
	o = o.withDefaults()
	var d libvirtxml.Domain
	if err := d.Unmarshal(domain); err != nil {
		return Report{}, fault.New(fault.Invalid, "read the domain: %w", err).WithHint("find its errors with virt-xml-validate")
	}
	dir, err := os.MkdirTemp(o.Scratch, "trial-")
	if err != nil {
		return Report{}, err
	}
	r, err := bootWithFallback(ctx, &d, dir, o)
	return r, errors.Join(err, os.RemoveAll(dir))
}

// bootWithFallback chooses the accelerator and boots the VM. KVM may run a vCPU and
// still not this VM; the VM is then emulated unless KVM was requested.
func bootWithFallback(ctx context.Context, d *libvirtxml.Domain, dir string, o Options) (Report, error) {
	accel, why := o.Accel, ""
	if accel == Any {
		accel, why = o.chooseAccel(ctx)
	}
	r, err := bootOnce(ctx, d, dir, accel, o)
	// The report of the second attempt contains the reason of the first failure.
	if err != nil && accel == KVM && o.Accel == Any && ctx.Err() == nil {
		why = err.Error()
		r, err = bootOnce(ctx, d, dir, TCG, o)
	}
	r.NoKVM = why
	return r, err
}

// chooseAccel tests KVM for at most 2 seconds. It returns the reason if it chooses
// emulation.
func (o Options) chooseAccel(ctx context.Context) (Accel, string) {
	const limit = 2 * time.Second
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	if err := o.KVM(ctx); err != nil {
		return TCG, err.Error()
	}
	return KVM, ""
}

// bootOnce boots the VM with one accelerator.
func bootOnce(ctx context.Context, d *libvirtxml.Domain, dir string, accel Accel, o Options) (Report, error) {
	m, err := newMachine(d, dir, accel, o)
	if err != nil {
		return Report{}, err
	}
	defer m.closeSets()
	q, err := m.start(ctx)
	if err != nil {
		return Report{}, err
	}
	report, err := newObserver(q, m, o).run(ctx)
	report.Accel, report.Differences = accel, m.less
	return report, err
}

// keepPath returns the path of a file that is kept after the trial, or "" if files are
// not kept. It creates the folder.
func (o Options) keepPath(name string) (string, error) {
	if o.Keep == "" {
		return "", nil
	}
	if err := os.MkdirAll(o.Keep, 0o755); err != nil {
		return "", fmt.Errorf("store the screenshot and the log of the trial boot: %w", err)
	}
	return filepath.Join(o.Keep, name), nil
}
