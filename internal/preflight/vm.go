package preflight

import (
	"context"
	"slices"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/migrate"
	"github.com/decamp/decamp/internal/migrate/warm"
	"github.com/decamp/decamp/internal/planfile"
	"github.com/decamp/decamp/internal/transport"
)

// checkVM checks one VM: its state, its hardware, its transport and its host. The only error is that of
// ctx.
func (c *check) checkVM(ctx context.Context, i int) error {
	m := c.moves[i]
	t, err := c.openTransport(ctx, m.Options)
	if err != nil {
		c.addTransportError(i, err)
		return ctx.Err()
	}
	for _, w := range Obstacles(m.VM, t, PermitOf(m.Options)) {
		kind := fault.Unsupported
		if migrate.IsTemporary(w) {
			kind = fault.Conflict
		}
		c.addFinding(i, planfile.ErrorFinding(w.Code, m.Pos, m.VM.Name, fault.New(kind, "%s", w.Text).WithHint("%s", w.Remedy)))
	}
	if h, ok := c.hosts[m.VM.Host]; ok && !h.Connected {
		c.addFinding(i, planfile.ErrorFinding("host-down", m.Pos, m.VM.Name, fault.New(fault.Unreachable, "host %s is not connected to the vCenter", h.Name).
			WithHint("reconnect the host, or relocate the VM to another host")))
	}
	if m.Options.Mode == planfile.WarmMode {
		c.checkWarm(i)
	}
	if err := c.checkLicence(m); err != nil {
		c.addFinding(i, planfile.ErrorFinding("licence", m.Pos, m.VM.Name, err))
	}
	return nil
}

// checkLicence returns an error for options that a host with a free licence supports neither by its API
// nor by SSH.
func (c *check) checkLicence(m planfile.Move) error {
	if o := m.Options; c.freeLicence && o.Transport == "landing" && o.Landing.Copy == "api" {
		return fault.New(fault.Unsupported, "the host has the free licence, whose API cannot copy").
			WithHint("set landing: {copy: auto}, which copies by SSH on such hosts")
	}
	return nil
}

// needsSSH reports whether a migration logs in to the host by SSH. With a free licence the API is
// read-only, so SSH replaces it: for the copy of a landing, for snapshots, and for power changes. A
// landing copies disks without a data file by SSH only.
func (c *check) needsSSH(m planfile.Move) bool {
	o := m.Options
	objects := slices.ContainsFunc(m.VM.Disks, func(d inventory.Disk) bool { return d.Backing.IsObject() })
	lands := o.Transport == "landing" && (o.Landing.Copy == "ssh" || o.Landing.Copy == "auto" && objects || c.freeLicence)
	switches := o.PowerOff != planfile.NeverOff && m.VM.Power != inventory.PoweredOff
	return o.SourceHash || lands || c.freeLicence && (o.Mode == planfile.WarmMode || switches)
}

// addTransportError adds a finding for a transport that cannot be opened, once for all VMs that use it.
func (c *check) addTransportError(i int, err error) {
	m := c.moves[i]
	c.blocked[i] = true
	if key := transportKey(m.Options); !c.reported[key] {
		c.reported[key] = true
		c.addFinding(i, planfile.ErrorFinding("transport", m.Pos, "", err))
	}
}

// Obstacles returns the obstacles of package migrate. Their remedies also contain the keys of a plan.
func Obstacles(vm *inventory.VM, t transport.Transport, p migrate.Permit) []inventory.Warning {
	obstacles := migrate.Obstacles(vm, t, p)
	for i := range obstacles {
		switch w := &obstacles[i]; w.Code {
		case "running":
			w.Remedy = "shut the VM down, or set powerOff: guest or mode: warm in the plan"
		case "suspended":
			w.Remedy += ", or set powerOff: force in the plan"
		}
	}
	return obstacles
}

// checkWarm checks whether the VM can be copied while it runs, and notes what makes that slow.
func (c *check) checkWarm(i int) {
	m := c.moves[i]
	frozen := func(format string, args ...any) {
		c.addFinding(i, planfile.ErrorFinding("no-snapshot", m.Pos, m.VM.Name, fault.New(fault.Unsupported, format, args...).WithHint("set mode: cold")))
	}
	for _, why := range warm.Obstacles(m.VM) {
		frozen("%s", why)
	}
	if v := m.VM.HardwareVersion; v > 0 && v < warm.OldestTracked {
		c.addFinding(i, planfile.NoteFinding("no-cbt", m.Pos, m.VM.Name, "upgrade the VM's virtual hardware, or set mode: cold; otherwise each round takes as long as the first",
			"hardware version %d has no change tracking: each round reads and compares all disks", v))
	}
	if c.freeLicence && !m.VM.ChangeTracking {
		c.addFinding(i, planfile.NoteFinding("no-cbt", m.Pos, m.VM.Name, "assign an evaluation or paid licence to the host during the migration; otherwise each round, also the cutover, takes as long as the first",
			"the free licence of the host has no change tracking: each round reads and compares all disks, %s", warm.FullPass(m.VM)))
	}
	c.checkWarmHTTPS(i)
	if at := m.Options.Warm.Cutover.At; !at.IsZero() && at.Before(c.rig.Now()) {
		c.addFinding(i, planfile.NoteFinding("cutover-passed", m.Pos, m.VM.Name, "set the cutover to a time in the future, a window or manual",
			"the cutover time %s is in the past: the cutover starts as soon as the VM is copied", at.Format("2006-01-02T15:04Z07:00")))
	}
}
