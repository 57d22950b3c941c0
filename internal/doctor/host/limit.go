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
	lockFailures = "Security.AccountLockFailures"                  // number of wrong passwords that lock an account; 0 for never
	unlockTime   = "Security.AccountUnlockTime"                    // seconds until a locked account is unlocked
	maxSessions  = "Config.HostAgent.vmacore.soap.maxSessionCount" // limit of sessions; 0 for none
)

// fewFailures is the smallest acceptable value of AccountLockFailures. decamp sends up
// to two wrong passwords, and a user at the console needs one attempt.
const fewFailures = 4

// checkLockout reports hosts that lock an account after few wrong passwords.
func (g *group) checkLockout(ctx context.Context) []doctor.Finding {
	return g.forEachHost(ctx, func(ctx context.Context, h inventory.Host) doctor.Finding {
		have, err := g.Source.Settings(ctx, h.Ref, lockFailures, unlockTime)
		if err != nil {
			return unknownFinding(err)
		}
		failures, known := have[lockFailures]
		switch {
		case !known:
			return okFinding("the host does not have this setting")
		case failures == 0:
			return okFinding("wrong passwords do not lock accounts")
		case failures >= fewFailures:
			return okFinding(fmt.Sprintf("wrong passwords lock an account for %d s after %d attempts; decamp tries at most 2", have[unlockTime], failures))
		}
		return doctor.Finding{
			Status: doctor.Warning, Found: fmt.Sprintf("wrong passwords lock an account for %d s after %d attempts; decamp tries up to 2", have[unlockTime], failures),
			Want:   "a limit of 5 attempts, the default of ESXi",
			Remedy: "esxcli system settings advanced set -o /Security/AccountLockFailures -i 5\n# or avoid mistyped passwords: add --password-file FILE",
		}
	})
}

// fewSessions is the required number of free sessions. decamp needs one or two; other
// clients come and go.
const fewSessions = 20

// checkSessions compares the sessions of a host with its limit. A vCenter permits at
// least 3000 and does not report their number.
func (g *group) checkSessions(ctx context.Context) []doctor.Finding {
	h, ok := g.firstConnected()
	if g.VCenter || !ok {
		return nil
	}
	f := g.sessionsOf(ctx, h)
	f.On = onHost(h)
	return []doctor.Finding{f}
}

// sessionsOf returns the finding about the sessions of the host.
func (g *group) sessionsOf(ctx context.Context, h inventory.Host) doctor.Finding {
	have, err := g.Source.Settings(ctx, h.Ref, maxSessions)
	if err != nil {
		return unknownFinding(err)
	}
	// 0 means that the host has no such setting, or no limit.
	most := have[maxSessions]
	if most == 0 {
		return okFinding("no limit of sessions")
	}
	n, err := g.Source.Sessions(ctx)
	if err != nil {
		return unknownFinding(err)
	}
	seen := fmt.Sprintf("%d of %d sessions are in use", n, most)
	if most-int64(n) >= fewSessions {
		return okFinding(seen)
	}
	return doctor.Finding{
		Status: doctor.Warning, Found: seen + "; at the limit the host refuses logins", Want: fmt.Sprintf("at least %d free sessions", fewSessions),
		Remedy: "# list the sessions, and end unused ones:\ngovc session.ls\ngovc session.rm KEY",
	}
}

// checkNFCMemory compares the NFC memory that a VM's disks need with the host's, which
// all clients share.
func (g *group) checkNFCMemory(ctx context.Context) []doctor.Finding {
	if !g.Use.usesNFC() || g.Use.NFCMemory == 0 {
		return nil
	}
	// The disks of one VM are read at the same time.
	disks := map[inventory.MoRef]int64{} // largest disk bytes of a VM by host
	for i := range g.VMs {
		disks[g.VMs[i].Host] = max(disks[g.VMs[i].Host], int64(len(g.VMs[i].Disks)))
	}
	return g.forEachHost(ctx, func(_ context.Context, h inventory.Host) doctor.Finding {
		have, want := nfc.MemoryOf(h.Version), disks[h.Ref]*g.Use.NFCMemory
		seen := fmt.Sprintf("NFC memory: %d MiB available, %d MiB required for all disks of one VM (%d)", have>>20, want>>20, disks[h.Ref])
		if want <= have {
			return okFinding(seen)
		}
		return doctor.Finding{
			Status: doctor.Advice, Found: seen + "; some disks wait or use small buffers", Want: "smaller NFC buffers",
			Remedy: "add --nfc-handles 2 --nfc-buffer 512K, and do not migrate VMs with many disks during a backup",
		}
	})
}
