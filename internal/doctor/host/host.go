// Package host has the checks of the source of a migration: ESXi hosts, the account of
// decamp's login, and datastores. Package vm has the checks of VMs.
//
// A disconnected host is reported once, and left out by all other checks.
package host

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/decamp/decamp/internal/doctor"
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/inventory"
)

// Source is a session with an ESXi host or a vCenter.
type Source interface {
	// FreeLicence reports whether the host has a free licence, which makes its API
	// read-only.
	FreeLicence(ctx context.Context) bool

	// EvaluationEnds returns the end of the host's evaluation licence, or the zero time
	// if it is unknown or there is none.
	EvaluationEnds(ctx context.Context) time.Time

	// SSHRuns reports whether the SSH server of a host runs.
	SSHRuns(ctx context.Context, host inventory.MoRef) (bool, error)

	// Condition returns the settings and state of a host.
	Condition(ctx context.Context, host inventory.MoRef) (inventory.Condition, error)

	// Settings returns the numeric advanced settings that the host has.
	Settings(ctx context.Context, host inventory.MoRef, names ...string) (map[string]int64, error)

	// HostTime returns the time of a host's clock.
	HostTime(ctx context.Context, host inventory.MoRef) (time.Time, error)

	// Sessions returns the number of sessions of the server.
	Sessions(ctx context.Context) (int, error)

	// Lacking returns the privileges that the user lacks, with the objects.
	Lacking(ctx context.Context, kind inventory.Kind, on []inventory.MoRef, privileges []string) (map[string][]inventory.MoRef, error)
}

// Use describes how a migration uses its source.
type Use struct {
	Transport string // name of the transport: https, nfc or landing
	Warm      bool   // VMs run during the copy, in rounds with snapshots
	PowerOff  bool   // decamp shuts down running VMs
	SSH       bool   // SSH is required, regardless of the licence
	StartSSH  bool   // decamp may start SSH on hosts
	NFCMemory int64  // bytes of the host's NFC memory per disk
}

// needsChanges reports whether the migration changes the source.
func (u Use) needsChanges() bool { return u.Warm || u.PowerOff || u.Transport == "landing" }

// usesNFC reports whether disks, or their changes, are read from port 902.
func (u Use) usesNFC() bool { return u.Transport == "nfc" || u.Transport == "landing" && u.Warm }

// Options select the objects of the checks, and their purpose.
type Options struct {
	Source     Source                // session with the source
	User       string                // user of the login
	VCenter    bool                  // the source is a vCenter
	Hosts      []inventory.Host      // hosts of the VMs
	Datastores []inventory.Datastore // datastores of the VMs
	VMs        []inventory.VM        // VMs to migrate
	Use        Use                   // what the migration needs
	Now        func() time.Time      // current time; time.Now if nil
}

// Checks returns the checks of hosts, account and datastores. The list does not depend
// on o.
func Checks(o Options) []doctor.Check {
	if o.Now == nil {
		o.Now = time.Now
	}
	g := &group{Options: o}
	return []doctor.Check{
		{Code: "host-connected", Title: "vCenter is connected to the hosts", Run: g.checkConnected},
		{Code: "host-maintenance", Title: "hosts are not in maintenance mode", Run: g.checkMaintenance},
		{Code: "host-version", Title: "the ESXi version is supported", Run: g.checkVersion},
		{Code: "host-licence", Title: "the licence permits the required API calls", Run: g.checkLicence},
		{Code: "host-privilege", Title: "the user has the required privileges", Run: g.checkPrivileges},
		{Code: "host-lockdown", Title: "lockdown mode permits the required logins", Run: g.checkLockdown},
		{Code: "host-lockout", Title: "wrong passwords do not lock the account early", Run: g.checkLockout},
		{Code: "host-sessions", Title: "free sessions on the host", Run: g.checkSessions},
		{Code: "host-nfc-memory", Title: "enough NFC memory for all disks of a VM", Run: g.checkNFCMemory},
		{Code: "host-power", Title: "power policy High Performance", Run: g.checkPower},
		{Code: "host-ssh", Title: "SSH runs if the migration requires it", Run: g.checkSSH},
		{Code: "host-clock", Title: "the clocks of the host and this machine agree", Run: g.checkClock},
		{Code: "datastore-access", Title: "hosts can access the datastores", Run: g.checkReached},
		{Code: "datastore-maintenance", Title: "datastores are not in maintenance mode", Run: g.checkStoreMaintenance},
		{Code: "datastore-allocation", Title: "the allocated areas of thin disks are known", Run: g.checkAllocationMap},
		{Code: "datastore-space", Title: "enough free space for snapshots", Run: g.checkSpace},
	}
}

// group contains the options and the state that all checks share.
type group struct {
	Options

	licenceOnce sync.Once // runs the query for the licence
	limited     bool      // true if the licence makes the API read-only; set by licenceOnce
}

// isFree reports whether the licence makes the API read-only. The first call queries
// the host. Hosts of a vCenter never have a free licence.
func (g *group) isFree(ctx context.Context) bool {
	g.licenceOnce.Do(func() { g.limited = !g.VCenter && g.Source.FreeLicence(ctx) })
	return g.limited
}

// atOnce is the number of hosts that one check queries concurrently.
const atOnce = 4

// forEachHost calls look for all connected hosts concurrently, and returns the findings
// in the order of the hosts. A finding without Seen is omitted.
func (g *group) forEachHost(ctx context.Context, look func(context.Context, inventory.Host) doctor.Finding) []doctor.Finding {
	found := make([]doctor.Finding, len(g.Hosts))
	var hosts errgroup.Group
	hosts.SetLimit(atOnce)
	for i, h := range g.Hosts {
		if h.Connected {
			hosts.Go(func() error {
				found[i] = look(ctx, h)
				// Each goroutine writes its own element.
				found[i].On = onHost(h)
				return nil
			})
		}
	}
	_ = hosts.Wait() // nothing in it fails
	return slices.DeleteFunc(found, func(f doctor.Finding) bool { return f.Found == "" })
}

// onHost returns the object of a finding about a host. A host without a name has its
// reference.
func onHost(h inventory.Host) string { return "host " + cmp.Or(h.Name, string(h.Ref)) }

// firstConnected returns a connected host, or false if all are disconnected.
func (g *group) firstConnected() (inventory.Host, bool) {
	for _, h := range g.Hosts {
		if h.Connected {
			return h, true
		}
	}
	return inventory.Host{}, false
}

// unknownFinding returns the finding for an object that could not be examined.
func unknownFinding(err error) doctor.Finding {
	return doctor.Finding{
		Status: doctor.Unknown, Found: err.Error(), Want: "a successful query of the host",
		Remedy: cmp.Or(fault.HintOf(err), "# on the host, if the error persists:\ntail -n 50 /var/log/hostd.log"),
	}
}

// okFinding returns a finding without a problem.
func okFinding(seen string) doctor.Finding { return doctor.Finding{Found: seen} }
