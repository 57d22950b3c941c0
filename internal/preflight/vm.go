package preflight

import (
	"context"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/migrate"
	"github.com/decamp/decamp/internal/migrate/warm"
	"github.com/decamp/decamp/internal/planfile"
	"github.com/decamp/decamp/internal/transport"
)

// checkVM looks at one VM by itself: its state, its build, its host.
func (c *check) checkVM(ctx context.Context, i int) error {
	m := c.moves[i]
	t, err := c.openTransport(ctx, m.Options)
	if err != nil {
		c.addTransportError(i, err)
		return ctx.Err()
	}
	for _, w := range Obstacles(m.VM, t, PermitOf(m.Options)) {
		kind := fault.Unsupported
		if migrate.Passing(w) {
			kind = fault.Conflict
		}
		c.addFinding(i, planfile.Found(w.Code, m.Pos, m.VM.Name, fault.New(kind, "%s", w.Text).WithHint("%s", w.Remedy)))
	}
	if h, ok := c.hosts[m.VM.Host]; ok && !h.Connected {
		c.addFinding(i, planfile.Found("host-down", m.Pos, m.VM.Name, fault.New(fault.Unreachable, "its host %s is not connected to the vCenter", h.Name).
			WithHint("connect the host again, or have the VM moved to another")))
	}
	if m.Options.Mode == planfile.Warmly {
		c.checkWarm(i)
	}
	if err := c.checkLicence(m); err != nil {
		c.addFinding(i, planfile.Found("licence", m.Pos, m.VM.Name, err))
	}
	return nil
}

// checkLicence looks for what a free ESXi does not do, be it by its API or by SSH.
func (c *check) checkLicence(m planfile.Move) error {
	if o := m.Options; c.freeLicence && o.Transport == "landing" && o.Landing.Copy == "api" {
		return fault.New(fault.Unsupported, "the host's licence (free ESXi) lets its API copy nothing").
			WithHint("say landing: {copy: auto}, which copies by SSH there")
	}
	return nil
}

// needsSSH reports whether a move takes a login to its host by SSH. What the API of a free ESXi
// does not do is done by SSH there: land a disk, freeze a VM, switch it.
func (c *check) needsSSH(m planfile.Move) bool {
	o := m.Options
	lands := o.Transport == "landing" && (o.Landing.Copy == "ssh" || c.freeLicence)
	switches := o.PowerOff != planfile.NeverOff && m.VM.Power != inventory.PoweredOff
	return o.SourceHash || lands || c.freeLicence && (o.Mode == planfile.Warmly || switches)
}

// addTransportError reports an unavailable transport once, not for each VM.
func (c *check) addTransportError(i int, err error) {
	m := c.moves[i]
	c.blocked[i] = true
	if key := transportKey(m.Options); !c.reported[key] {
		c.reported[key] = true
		c.addFinding(i, planfile.Found("transport", m.Pos, "", err))
	}
}

// Obstacles are those of package migrate. What a plan can say about one is part of its remedy.
func Obstacles(vm *inventory.VM, t transport.Transport, p migrate.Permit) []inventory.Warning {
	obstacles := migrate.Obstacles(vm, t, p)
	for i := range obstacles {
		switch w := &obstacles[i]; w.Code {
		case "running":
			w.Remedy = "shut it down, or write in the plan: powerOff: guest, or mode: warm"
		case "suspended":
			w.Remedy += "; or write in the plan: powerOff: force"
		}
	}
	return obstacles
}

// checkWarm looks for what keeps a VM from being copied while it runs.
func (c *check) checkWarm(i int) {
	m := c.moves[i]
	frozen := func(format string, args ...any) {
		c.addFinding(i, planfile.Found("no-snapshot", m.Pos, m.VM.Name, fault.New(fault.Unsupported, format, args...).WithHint("move it powered off: mode: cold")))
	}
	for _, why := range warm.Thawed(m.VM) {
		frozen("%s", why)
	}
	if v := m.VM.HardwareVersion; v > 0 && v < warm.OldestTracked {
		c.addFinding(i, planfile.Noted("no-cbt", m.Pos, m.VM.Name, "upgrade its virtual hardware, or expect each round to take as long as the first",
			"hardware version %d has no change tracking: every round reads and compares all of it", v))
	}
	if c.freeLicence && !m.VM.ChangeTracking {
		c.addFinding(i, planfile.Noted("no-cbt", m.Pos, m.VM.Name, "give the host an evaluation or paid licence for as long as it takes, or expect each round, and the one in the outage, to take as long as the first",
			"a host with a free licence tracks no changes: every round reads and compares all of it, %s", warm.FullPass(m.VM)))
	}
	c.checkWarmHTTPS(i)
	if at := m.Options.Warm.Cutover.At; !at.IsZero() && at.Before(c.rig.Now()) {
		c.addFinding(i, planfile.Noted("cutover-passed", m.Pos, m.VM.Name, "give a time that is still to come, or window, or manual",
			"the time of its cutover, %s, is over: it would be cut over as soon as it is copied", at.Format("2006-01-02T15:04Z07:00")))
	}
}
