package host

import (
	"context"
	"fmt"

	"github.com/decamp/decamp/internal/doctor"
	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/transport/nfc"
)

// Names of advanced settings (dumps of those of ESXi 6.0U3 to 9.0.1).
const (
	lockFailures = "Security.AccountLockFailures"
	unlockTime   = "Security.AccountUnlockTime" // seconds
	maxSessions  = "Config.HostAgent.vmacore.soap.maxSessionCount"
)

// fewFailures is the smallest acceptable number of wrong passwords that lock an account: decamp sends
// two, and one remains for a user at a console.
const fewFailures = 4

func (g *group) lockout(ctx context.Context) []doctor.Finding {
	return g.each(ctx, func(ctx context.Context, h inventory.Host) doctor.Finding {
		have, err := g.Source.Settings(ctx, h.Ref, lockFailures, unlockTime)
		if err != nil {
			return unknown(err)
		}
		failures, known := have[lockFailures]
		switch {
		case !known:
			return fine("the host has no such setting")
		case failures == 0:
			return fine("accounts never lock")
		case failures >= fewFailures:
			return fine(fmt.Sprintf("accounts lock for %d s after %d wrong passwords; decamp stops after 2", have[unlockTime], failures))
		}
		return doctor.Finding{
			Status: doctor.Warning, Seen: fmt.Sprintf("an account locks for %d s after %d wrong passwords, and decamp may send 2", have[unlockTime], failures),
			Want:   "5, as hosts are installed",
			Remedy: "esxcli system settings advanced set -o /Security/AccountLockFailures -i 5\n# or have no password mistyped: add --password-file FILE",
		}
	})
}

// fewSessions is how many should be free: decamp takes one or two, and others come and go.
const fewSessions = 20

// sessions counts those of a host. A vCenter has 3000 and more, and keeps its count to itself.
func (g *group) sessions(ctx context.Context) []doctor.Finding {
	h, ok := g.first()
	if g.VCenter || !ok {
		return nil
	}
	f := g.sessionsOf(ctx, h)
	f.On = onHost(h)
	return []doctor.Finding{f}
}

func (g *group) sessionsOf(ctx context.Context, h inventory.Host) doctor.Finding {
	have, err := g.Source.Settings(ctx, h.Ref, maxSessions)
	if err != nil {
		return unknown(err)
	}
	most := have[maxSessions]
	if most == 0 {
		return fine("the host has no limit")
	}
	n, err := g.Source.Sessions(ctx)
	if err != nil {
		return unknown(err)
	}
	seen := fmt.Sprintf("%d of %d sessions are taken", n, most)
	if most-int64(n) >= fewSessions {
		return fine(seen)
	}
	return doctor.Finding{
		Status: doctor.Warning, Seen: seen + ": logins will be refused soon", Want: fmt.Sprintf("%d free ones", fewSessions),
		Remedy: "# list them, and end unused ones:\ngovc session.ls\ngovc session.rm KEY",
	}
}

// nfcMemory compares what a VM's disks want with what the host has for all its clients.
func (g *group) nfcMemory(ctx context.Context) []doctor.Finding {
	if !g.Use.byNFC() || g.Use.NFCMemory == 0 {
		return nil
	}
	disks := map[inventory.MoRef]int64{} // largest disk bytes of a VM by host
	for i := range g.VMs {
		disks[g.VMs[i].Host] = max(disks[g.VMs[i].Host], int64(len(g.VMs[i].Disks)))
	}
	return g.each(ctx, func(_ context.Context, h inventory.Host) doctor.Finding {
		have, want := nfc.MemoryOf(h.Version), disks[h.Ref]*g.Use.NFCMemory
		seen := fmt.Sprintf("%d disks at once want %d MiB, the host has %d MiB for all", disks[h.Ref], want>>20, have>>20)
		if want <= have {
			return fine(seen)
		}
		return doctor.Finding{
			Status: doctor.Advice, Seen: seen + ": some wait, or are read with small buffers", Want: "less for each disk",
			Remedy: "add --nfc-handles 2 --nfc-buffer 512K, and move VMs with many disks when no backup runs",
		}
	})
}
