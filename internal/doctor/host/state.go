package host

import (
	"context"
	"fmt"
	"time"

	"github.com/decamp/decamp/internal/doctor"
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/inventory"
)

// connected looks at all hosts; the other checks only at those that are.
func (g *group) connected(context.Context) (found []doctor.Finding) {
	for _, h := range g.Hosts {
		f := fine("it is connected")
		if !h.Connected {
			f = doctor.Finding{
				Status: doctor.Failure, Seen: "the vCenter has lost it", Want: "it is connected",
				Remedy: fmt.Sprintf("govc host.reconnect -host %s\n# or log in to the host itself:\ndecamp doctor esxi://root@HOST", fault.Quote(h.Name)),
			}
		}
		f.On = onHost(h)
		found = append(found, f)
	}
	return found
}

// maintenance: NFC does not answer in maintenance mode (virt-v2v's manual, on VDDK), and powered-off
// VMs stay off.
func (g *group) maintenance(ctx context.Context) []doctor.Finding {
	return g.each(ctx, func(_ context.Context, h inventory.Host) doctor.Finding {
		if !h.MaintenanceMode {
			return fine("it is not in maintenance mode")
		}
		f := doctor.Finding{
			Status: doctor.Warning, Seen: "it is in maintenance mode: its VMs cannot be switched on again", Want: "it is at work",
			Remedy: "esxcli system maintenanceMode set --enable false",
		}
		if g.Use.byNFC() {
			f.Status, f.Seen = doctor.Failure, "it is in maintenance mode, in which NFC reads no disk"
		}
		return f
	})
}

// bySSH reports whether a login by SSH is needed.
func (g *group) bySSH(ctx context.Context) bool {
	return g.Use.SSH || g.Use.changes() && g.free(ctx)
}

func (g *group) ssh(ctx context.Context) []doctor.Finding {
	needed := g.bySSH(ctx)
	free := needed && g.free(ctx) // and starts nothing by its API
	return g.each(ctx, func(ctx context.Context, h inventory.Host) doctor.Finding {
		runs, err := g.Source.SSHRuns(ctx, h.Ref)
		switch {
		case !needed && err != nil:
			return fine("it is not needed")
		case err != nil:
			return unknown(err)
		case runs:
			return fine("it is on")
		case !needed:
			return fine("it is off, and not needed")
		case g.Use.StartSSH && !free:
			return fine("it is off; decamp starts it, and stops it in the end")
		}
		f := doctor.Finding{Status: doctor.Failure, Seen: "SSH is needed, and it is off", Want: "the service TSM-SSH runs"}
		f.Remedy = fmt.Sprintf("# add --enable-ssh, or start it:\ngovc host.service -host %s start TSM-SSH", fault.Quote(h.Name))
		if free {
			f.Remedy = "# at the host's console (F2, Troubleshooting Options), or in its shell:\nvim-cmd hostsvc/start_ssh"
		}
		return f
	})
}

// Lockdown modes permit only exception users, over SSH and at the host's API (vSphere Security,
// "Lockdown Mode").
const unlocked = "lockdownDisabled"

func (g *group) lockdown(ctx context.Context) []doctor.Finding {
	needed := g.bySSH(ctx)
	return g.each(ctx, func(ctx context.Context, h inventory.Host) doctor.Finding {
		c, err := g.Source.Condition(ctx, h.Ref)
		switch {
		case err != nil:
			return unknown(err)
		case c.Lockdown == "" || c.Lockdown == unlocked:
			return fine("lockdown mode is off")
		case !needed:
			return fine(c.Lockdown + ", and no login at the host is needed")
		}
		return doctor.Finding{
			Status: doctor.Warning, Seen: c.Lockdown + ": SSH lets in exception users only", Want: "the account of SSH is one of them",
			Remedy: "vSphere Client > host > Configure > Security Profile > Lockdown Mode > Edit > Exception Users: add it, with an administrator's role",
		}
	})
}

// highPerformance is the policy's short name.
const highPerformance = "static"

var policyNames = map[string]string{"dynamic": "Balanced", "low": "Low Power", "custom": "Custom"}

// power: TLS, deflate and the storage stack of a host are bound by the speed of one core each.
func (g *group) power(ctx context.Context) []doctor.Finding {
	return g.each(ctx, func(ctx context.Context, h inventory.Host) doctor.Finding {
		c, err := g.Source.Condition(ctx, h.Ref)
		switch {
		case err != nil:
			return unknown(err)
		case c.Power == "":
			return fine("the host does not tell its policy: the firmware decides")
		case c.Power == highPerformance:
			return fine("High Performance")
		}
		name := policyNames[c.Power]
		if name == "" {
			name = c.Power
		}
		return doctor.Finding{
			Status: doctor.Advice, Seen: "the power policy is " + name, Want: "High Performance, for as long as VMs are moved",
			Remedy: `esxcli system settings advanced set -o /Power/CpuPolicy -s "High Performance"`,
		}
	})
}

// mostSkew is how far clocks may be apart: what NTP keeps is some milliseconds.
const mostSkew = time.Minute

// clock compares a host's with ours, at the middle of the time that asking took.
func (g *group) clock(ctx context.Context) []doctor.Finding {
	return g.each(ctx, func(ctx context.Context, h inventory.Host) doctor.Finding {
		asked := g.Now()
		shown, err := g.Source.HostTime(ctx, h.Ref)
		if err != nil {
			return unknown(err)
		}
		took := g.Now().Sub(asked)
		ahead := shown.Sub(asked.Add(took / 2)).Round(time.Second)
		if ahead.Abs() <= mostSkew {
			return fine("its clock is right within a minute")
		}
		word := "ahead of"
		if ahead < 0 {
			word = "behind"
		}
		return doctor.Finding{
			Status: doctor.Warning, Seen: fmt.Sprintf("its clock is %v %s ours: one of them is wrong", ahead.Abs(), word), Want: "clocks within a minute",
			Remedy: "# here:\ndate -u; timedatectl\n# on the host:\nesxcli system time get\nesxcli system ntp set --enabled=true --server=pool.ntp.org",
		}
	})
}
