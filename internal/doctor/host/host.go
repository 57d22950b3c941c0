// Package host has the checks of the source of a migration: ESXi hosts, the account of decamp's login,
// and datastores. Package vm has the checks of VMs.
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

// Source is the ESXi or vCenter, logged in to.
type Source interface {
	// FreeLicence reports whether the host's licence is known to let its API change nothing.
	FreeLicence(ctx context.Context) bool

	// EvaluationEnds is when the host's evaluation licence ends; zero if it has none that is known.
	EvaluationEnds(ctx context.Context) time.Time

	// SSHRuns reports whether a host takes logins by SSH.
	SSHRuns(ctx context.Context, host inventory.MoRef) (bool, error)

	// Condition returns the settings and state of a host.
	Condition(ctx context.Context, host inventory.MoRef) (inventory.Condition, error)

	// Settings returns those of a host's advanced settings that it has and that are numbers.
	Settings(ctx context.Context, host inventory.MoRef, names ...string) (map[string]int64, error)

	// HostTime is what a host's clock shows.
	HostTime(ctx context.Context, host inventory.MoRef) (time.Time, error)

	// Sessions returns how many sessions the server has.
	Sessions(ctx context.Context) (int, error)

	// Lacking returns the privileges that the user lacks, with the objects.
	Lacking(ctx context.Context, kind inventory.Kind, on []inventory.MoRef, privileges []string) (map[string][]inventory.MoRef, error)
}

// Use is what a move takes of its source.
type Use struct {
	Transport string // https, nfc or landing
	Warm      bool   // warm: in rounds from snapshots, while VMs run
	PowerOff  bool   // VMs that run are shut down
	SSH       bool   // a login by SSH is needed, whatever the licence
	StartSSH  bool   // decamp may start SSH where it is off
	NFCMemory int64  // bytes of a host's NFC memory that each disk is wanted to have
}

// changes reports whether the API of hosts is asked to change something.
func (u Use) changes() bool { return u.Warm || u.PowerOff || u.Transport == "landing" }

// byNFC reports whether disks, or what changed of them, are read from port 902.
func (u Use) byNFC() bool { return u.Transport == "nfc" || u.Transport == "landing" && u.Warm }

// Options select the objects of the checks, and their purpose.
type Options struct {
	Source     Source
	User       string // user of the login
	VCenter    bool
	Hosts      []inventory.Host
	Datastores []inventory.Datastore
	VMs        []inventory.VM // VMs to migrate
	Use        Use
	Now        func() time.Time // current time; time.Now if nil
}

// Checks returns those of hosts, account and datastores. Which there are does not depend on o.
func Checks(o Options) []doctor.Check {
	if o.Now == nil {
		o.Now = time.Now
	}
	g := &group{Options: o}
	return []doctor.Check{
		{Code: "host-connected", Title: "hosts are connected", Run: g.connected},
		{Code: "host-maintenance", Title: "hosts are at work", Run: g.maintenance},
		{Code: "host-version", Title: "the version is supported, and moves from it are known to be right", Run: g.version},
		{Code: "host-licence", Title: "the licence permits the required API calls", Run: g.licence},
		{Code: "host-privilege", Title: "the account has the required privileges", Run: g.privilege},
		{Code: "host-lockdown", Title: "logins at the host are let in", Run: g.lockdown},
		{Code: "host-lockout", Title: "the account does not lock early", Run: g.lockout},
		{Code: "host-sessions", Title: "there is room for more sessions", Run: g.sessions},
		{Code: "host-nfc-memory", Title: "the NFC memory holds all of a VM's disks at once", Run: g.nfcMemory},
		{Code: "host-power", Title: "the processor runs at its speed", Run: g.power},
		{Code: "host-ssh", Title: "SSH is on where it is needed", Run: g.ssh},
		{Code: "host-clock", Title: "clocks agree", Run: g.clock},
		{Code: "datastore-reached", Title: "datastores are reached", Run: g.reached},
		{Code: "datastore-maintenance", Title: "datastores are at work", Run: g.resting},
		{Code: "datastore-map", Title: "areas that hold nothing need not be read", Run: g.allocationMap},
		{Code: "datastore-space", Title: "there is room for snapshots to grow", Run: g.space},
	}
}

// group is what the checks share.
type group struct {
	Options

	ask     sync.Once
	limited bool // the licence lets the API change nothing
}

// free reports whether the licence lets the API change nothing; it is asked once. Hosts of a
// vCenter are never free ones.
func (g *group) free(ctx context.Context) bool {
	g.ask.Do(func() { g.limited = !g.VCenter && g.Source.FreeLicence(ctx) })
	return g.limited
}

// atOnce is the number of hosts that one check queries at a time.
const atOnce = 4

// each examines all connected hosts in parallel, and reports the findings in their order. A finding
// without Seen is left out.
func (g *group) each(ctx context.Context, look func(context.Context, inventory.Host) doctor.Finding) []doctor.Finding {
	found := make([]doctor.Finding, len(g.Hosts))
	var hosts errgroup.Group
	hosts.SetLimit(atOnce)
	for i, h := range g.Hosts {
		if h.Connected {
			hosts.Go(func() error {
				found[i] = look(ctx, h)
				found[i].On = onHost(h)
				return nil
			})
		}
	}
	_ = hosts.Wait() // nothing in it fails
	return slices.DeleteFunc(found, func(f doctor.Finding) bool { return f.Seen == "" })
}

func onHost(h inventory.Host) string { return "host " + cmp.Or(h.Name, string(h.Ref)) }

// first returns a connected host; false without one.
func (g *group) first() (inventory.Host, bool) {
	for _, h := range g.Hosts {
		if h.Connected {
			return h, true
		}
	}
	return inventory.Host{}, false
}

// unknown is a finding of what could not be looked at.
func unknown(err error) doctor.Finding {
	return doctor.Finding{
		Status: doctor.Unknown, Seen: err.Error(), Want: "an answer",
		Remedy: cmp.Or(fault.HintOf(err), "try again; if it stays, look into the host's log: tail -n 50 /var/log/hostd.log"),
	}
}

func fine(seen string) doctor.Finding { return doctor.Finding{Seen: seen} }
