package host

import (
	"context"
	"fmt"
	"time"

	"github.com/decamp/decamp/internal/doctor"
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/inventory"
)

// checkConnected reports disconnected hosts. The other checks skip them.
func (g *group) checkConnected(context.Context) (found []doctor.Finding) {
	for _, h := range g.Hosts {
		f := okFinding("connected")
		if !h.Connected {
			f = doctor.Finding{
				Status: doctor.Failure, Found: "not connected to the vCenter", Want: "a connected host",
				Remedy: fmt.Sprintf("govc host.reconnect -host %s\n# or log in to the host directly:\ndecamp doctor esxi://root@HOST", fault.Quote(h.Name)),
			}
		}
		f.On = onHost(h)
		found = append(found, f)
	}
	return found
}

// checkMaintenance reports hosts in maintenance mode. NFC does not work there
// (virt-v2v's manual, about VDDK), and VMs cannot be powered on.
func (g *group) checkMaintenance(ctx context.Context) []doctor.Finding {
	return g.forEachHost(ctx, func(_ context.Context, h inventory.Host) doctor.Finding {
		if !h.MaintenanceMode {
			return okFinding("not in maintenance mode")
		}
		f := doctor.Finding{
			Status: doctor.Warning, Found: "maintenance mode is on: VMs cannot be powered on", Want: "maintenance mode off",
			Remedy: "esxcli system maintenanceMode set --enable false",
		}
		if g.Use.usesNFC() {
			f.Status, f.Found = doctor.Failure, "maintenance mode is on: NFC cannot read disks"
		}
		return f
	})
}

// needsSSH reports whether the migration needs SSH.
func (g *group) needsSSH(ctx context.Context) bool {
	return g.Use.SSH || g.Use.needsChanges() && g.isFree(ctx)
}

// checkSSH reports hosts without SSH if the migration needs it.
func (g *group) checkSSH(ctx context.Context) []doctor.Finding {
	needed := g.needsSSH(ctx)
	free := needed && g.isFree(ctx) // and starts nothing by its API
	return g.forEachHost(ctx, func(ctx context.Context, h inventory.Host) doctor.Finding {
		runs, err := g.Source.SSHRuns(ctx, h.Ref)
		switch {
		case !needed && err != nil:
			return okFinding("SSH is not required")
		case err != nil:
			return unknownFinding(err)
		case runs:
			return okFinding("SSH is on")
		case !needed:
			return okFinding("SSH is off, and not required")
		case g.Use.StartSSH && !free:
			return okFinding("SSH is off; decamp starts it for the migration")
		}
		f := doctor.Finding{Status: doctor.Failure, Found: "SSH is off, and the migration requires it", Want: "a running service TSM-SSH"}
		f.Remedy = fmt.Sprintf("# add --enable-ssh, or start it:\ngovc host.service -host %s start TSM-SSH", fault.Quote(h.Name))
		if free {
			f.Remedy = "# at the host's console (F2, Troubleshooting Options, Enable SSH), or in its shell:\nvim-cmd hostsvc/start_ssh"
		}
		return f
	})
}

// unlocked is the API's value for "no lockdown". Other modes permit only exception
// users, over SSH and at the host's API (vSphere Security, "Lockdown Mode").
const unlocked = "lockdownDisabled"

// checkLockdown reports hosts in lockdown mode if the migration needs SSH.
func (g *group) checkLockdown(ctx context.Context) []doctor.Finding {
	needed := g.needsSSH(ctx)
	return g.forEachHost(ctx, func(ctx context.Context, h inventory.Host) doctor.Finding {
		c, err := g.Source.Condition(ctx, h.Ref)
		switch {
		case err != nil:
			return unknownFinding(err)
		case c.Lockdown == "" || c.Lockdown == unlocked:
			return okFinding("lockdown mode is off")
		case !needed:
			return okFinding(c.Lockdown + "; the migration requires no login to the host")
		}
		return doctor.Finding{
			Status: doctor.Warning, Found: c.Lockdown + ": only exception users can log in by SSH", Want: "the SSH user in the list of exception users",
			Remedy: "add the SSH user in the vSphere Client: host > Configure > Security Profile > Lockdown Mode > Edit > Exception Users; the user requires the role Administrator",
		}
	})
}

// highPerformance is the short name of the policy High Performance.
const highPerformance = "static"

// policyNames contains the names in the user interface by short name.
var policyNames = map[string]string{"dynamic": "Balanced", "low": "Low Power", "custom": "Custom"}

// checkPower reports hosts that save power. TLS, compression and the storage stack of a
// host depend on the speed of single cores.
func (g *group) checkPower(ctx context.Context) []doctor.Finding {
	return g.forEachHost(ctx, func(ctx context.Context, h inventory.Host) doctor.Finding {
		c, err := g.Source.Condition(ctx, h.Ref)
		switch {
		case err != nil:
			return unknownFinding(err)
		case c.Power == "":
			return okFinding("the firmware controls the power policy")
		case c.Power == highPerformance:
			return okFinding("power policy High Performance")
		}
		name := policyNames[c.Power]
		if name == "" {
			name = c.Power
		}
		return doctor.Finding{
			Status: doctor.Advice, Found: "power policy " + name, Want: "power policy High Performance during the migration",
			Remedy: `esxcli system settings advanced set -o /Power/CpuPolicy -s "High Performance"`,
		}
	})
}

// mostSkew is the largest acceptable difference of clocks. NTP keeps it at some
// milliseconds.
const mostSkew = time.Minute

// checkClock compares the clocks of hosts with the local clock, at the middle of the
// time of the query.
func (g *group) checkClock(ctx context.Context) []doctor.Finding {
	return g.forEachHost(ctx, func(ctx context.Context, h inventory.Host) doctor.Finding {
		asked := g.Now()
		shown, err := g.Source.HostTime(ctx, h.Ref)
		if err != nil {
			return unknownFinding(err)
		}
		// The host's clock was read at about the middle of this time.
		took := g.Now().Sub(asked)
		ahead := shown.Sub(asked.Add(took / 2)).Round(time.Second)
		if ahead.Abs() <= mostSkew {
			return okFinding("the clock agrees with this machine's within a minute")
		}
		word := "ahead of"
		if ahead < 0 {
			word = "behind"
		}
		return doctor.Finding{
			Status: doctor.Warning, Found: fmt.Sprintf("the clock is %v %s this machine's", ahead.Abs(), word), Want: "a difference of at most one minute",
			Remedy: "# on this machine:\ndate -u; timedatectl\n# on the host:\nesxcli system time get\nesxcli system ntp set --enabled=true --server=pool.ntp.org",
		}
	})
}
