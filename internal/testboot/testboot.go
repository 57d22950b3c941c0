// Package testboot boots a VM and reports how far it gets.
//
// It runs the VM of a libvirt domain in a separate QEMU: disks are temporary overlays, so no image changes;
// each network card is in a hub without other members; memory and processors are limited. It observes the
// VM from outside: the serial port, the screen (its text if it has one, and always a picture), the packets of
// the cards, QEMU's events, and the answers of QEMU's guest agent if the VM has a channel for it. The guest
// is unchanged and requires no software.
//
// Terms: a Sign is an observation that shows how far a guest has booted; a Verdict is the result of the
// signs. A sign of failure counts only after it has lasted for a while: firmware reports that one disk is not
// bootable, and boots the next.
package testboot

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"libvirt.org/go/libvirtxml"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/kvm"
)

// Options say how a trial is made. The zero value boots as it is best here, and keeps nothing.
type Options struct {
	Deadline time.Duration // after which a guest that showed no sign is unclear; default 5 minutes, emulated 15
	Settle   time.Duration // how long a sign of failure has to stand, and a guest that is up to be asked by its agent; default 10 s
	Expect   string        // text on the serial port or the screen that means the guest is up, beside the known ones

	Accel   Accel  // Any: KVM where a vCPU really runs, else emulated
	Memory  int64  // bytes that the VM gets at most; default 4 GiB
	CPUs    int    // maximum number of processors; default 4
	Keep    string // folder for serial.log and screen.png; "": they are not kept
	Scratch string // folder for what the guest writes, for as long as it runs; default /var/tmp, which is no memory

	// Static are the addresses that the guest is to have. Those that its agent does not tell of are
	// missing in the Report.
	Static []Static

	// Served are disks that are no files, by what the domain calls them: each answers QEMU by NBD
	// at the other end of a socket, until it is closed. It may be asked again after that. It is
	// only read, as all disks are.
	Served map[string]func(conn io.ReadWriter)

	QEMU string // program; default the qemu-system-x86_64 or qemu-kvm that is found
	Root string // where firmware and fonts are looked for; default /

	KVM   func(ctx context.Context) error      // whether a vCPU runs; default kvm.Run on /dev/kvm
	Now   func() time.Time                     // default time.Now
	After func(time.Duration) <-chan time.Time // default time.After
}

// Accel is what runs the guest's instructions.
type Accel string

const (
	Any Accel = ""
	KVM Accel = "kvm"
	TCG Accel = "tcg" // emulated: 10 to 100 times slower
)

// Report is what a trial found out.
type Report struct {
	Verdict Verdict       `json:"verdict"`
	Why     string        `json:"why"`              // observed text of the guest
	Remedy  string        `json:"remedy,omitempty"` // remedy for a guest that did not boot
	Accel   Accel         `json:"accel"`
	NoKVM   string        `json:"noKVM,omitempty"`   // reason of an emulation that was not requested
	Elapsed time.Duration `json:"elapsed"`           // time from power-on to the verdict
	Network []Talker      `json:"network,omitempty"` // senders on the cards
	Agent   *Agent        `json:"agent,omitempty"`   // answers of the guest's agent; nil without any
	Missing []Static      `json:"missing,omitempty"` // addresses of Options.Static that the agent did not tell of
	Less    []string      `json:"less,omitempty"`    // how the VM differed from its definition
	Serial  string        `json:"serial,omitempty"`  // file with the output of the serial port
	Screen  string        `json:"screen,omitempty"`  // picture of the screen at the end
}

// Booted reports whether the guest came up.
func (r Report) Booted() bool { return r.Verdict == Booted }

// Seen returns the reason of the verdict, and the answers of the guest's agent.
func (r Report) Seen() string {
	switch {
	case r.Agent == nil:
		return r.Why
	case strings.HasPrefix(r.Why, agentAnswers):
		return r.Why
	}
	return r.Why + "; " + r.Agent.answers()
}

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

// Boot starts the VM of a libvirt domain in XML, and observes it until there is a verdict. When it
// returns, the VM and its writes are removed. A guest that does not boot is not an error; an
// unsupported domain is fault.Unsupported, a machine without QEMU fault.NotFound.
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
	r, err := try(ctx, &d, dir, o)
	return r, errors.Join(err, os.RemoveAll(dir))
}

// try finds the accelerator. KVM that runs a vCPU may still refuse this VM: then it is emulated.
func try(ctx context.Context, d *libvirtxml.Domain, dir string, o Options) (Report, error) {
	accel, why := o.Accel, ""
	if accel == Any {
		accel, why = o.accel(ctx)
	}
	r, err := attempt(ctx, d, dir, accel, o)
	if err != nil && accel == KVM && o.Accel == Any && ctx.Err() == nil {
		why = err.Error()
		r, err = attempt(ctx, d, dir, TCG, o)
	}
	r.NoKVM = why
	return r, err
}

func (o Options) accel(ctx context.Context) (Accel, string) {
	const limit = 2 * time.Second
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	if err := o.KVM(ctx); err != nil {
		return TCG, err.Error()
	}
	return KVM, ""
}

// attempt boots the VM once.
func attempt(ctx context.Context, d *libvirtxml.Domain, dir string, accel Accel, o Options) (Report, error) {
	m, err := newMachine(d, dir, accel, o)
	if err != nil {
		return Report{}, err
	}
	defer m.closeSets()
	q, err := m.start(ctx)
	if err != nil {
		return Report{}, err
	}
	report, err := newWatch(q, m, o).run(ctx)
	report.Accel, report.Less = accel, m.less
	return report, err
}

// keep is the path of a file that outlives the trial, or "".
func (o Options) keep(name string) (string, error) {
	if o.Keep == "" {
		return "", nil
	}
	if err := os.MkdirAll(o.Keep, 0o755); err != nil {
		return "", fmt.Errorf("keep what the trial saw: %w", err)
	}
	return filepath.Join(o.Keep, name), nil
}
