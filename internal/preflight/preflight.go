// Package preflight examines a whole plan before it starts: missing VMs and VMs that cannot be migrated,
// folders without space or with the name in use, hosts that do not answer. It is read-only: it changes
// nothing on hosts and creates nothing at targets.
//
// Package migrate performs the checks of a single VM's run. preflight calls the same functions, and adds
// checks that need all VMs of the plan: two VMs with one name, the space of one file system for all.
//
// A plan that passes may still fail: a VM may change later, a disk may need more space than allocated,
// a network may break.
package preflight

import (
	"context"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/migrate"
	"github.com/decamp/decamp/internal/planfile"
	"github.com/decamp/decamp/internal/targets"
	"github.com/decamp/decamp/internal/targets/recall"
	"github.com/decamp/decamp/internal/transport"
)

// Source is the ESXi or vCenter of the plan, logged in to.
type Source interface {
	Hosts(ctx context.Context) ([]inventory.Host, error)
	Datastores(ctx context.Context) ([]inventory.Datastore, error)
	VMs(ctx context.Context) ([]inventory.VM, error)

	// FreeLicence reports whether the host's licence is known to let its API change nothing.
	FreeLicence(ctx context.Context) bool

	// SSHRuns reports whether a host takes logins by SSH.
	SSHRuns(ctx context.Context, host inventory.MoRef) (bool, error)
}

// Place is where VMs of the plan are to live.
type Place interface {
	// Plan names the images of a VM, or returns why the target cannot take it.
	Plan(ctx context.Context, vm *inventory.VM) ([]targets.Image, error)

	// Folder is where a VM will stand. It is another's if their names come to the same.
	Folder(vm *inventory.VM) string

	// Holds reports whether the VM stands there already.
	Holds(vm *inventory.VM) bool

	// Need returns how many bytes a VM takes there, at least and at most.
	Need(vm *inventory.VM) (least, most int64)

	// Room returns the bytes that are free, and the device they are on.
	Room() (free int64, device uint64, err error)
}

// Rig is what a plan is checked with.
type Rig struct {
	Source    Source
	Names     func([]inventory.VM) planfile.Finder
	Place     func(context.Context, planfile.Destination, planfile.Options) (Place, error) // one that answers
	Transport func(context.Context, planfile.Options) (transport.Transport, error)
	Reach     func(ctx context.Context, host inventory.Host) error // whether it answers from here
	Now       func() time.Time

	// Settled, if not nil, is called for each migration that a target was checked for, with the result.
	// The calls are in the order of the plan, destination by destination.
	Settled func(ctx context.Context, m planfile.Move, to planfile.Destination, p Place, err error)

	// Examine, if not nil, returns further findings on the plan's migrations and their hosts. It does
	// not repeat findings of this package.
	Examine func(context.Context, Sight) planfile.Findings
}

// Sight is a plan with the data read from its source.
type Sight struct {
	Hosts      []inventory.Host
	Datastores []inventory.Datastore
	VMs        []inventory.VM // all there are
	Moves      []planfile.Move
}

// Report is what a plan amounts to.
type Report struct {
	VMs      int               `json:"vms"`
	Disks    int               `json:"disks"`
	Bytes    int64             `json:"bytes"` // bytes of all disks
	Places   []Space           `json:"places"`
	Findings planfile.Findings `json:"findings"`
}

// Space is what VMs of the plan take of one file system.
type Space struct {
	Folders []string `json:"folders"`
	VMs     int      `json:"vms"`
	Least   int64    `json:"least"` // bytes: what thin disks take at the source
	Most    int64    `json:"most"`  // bytes: all of the disks
	Free    int64    `json:"free"`  // bytes
}

// check is one look at a plan.
type check struct {
	rig            Rig
	file           *planfile.File
	hosts          map[inventory.MoRef]inventory.Host
	datastoreTypes map[datastoreName]string // types
	freeLicence    bool                     // the host's API changes nothing
	inspection     Sight
	moves          []planfile.Move
	found          planfile.Findings

	places     map[string]Place
	transports map[string]transport.Transport
	reported   map[string]bool // transports that cannot be had
	blocked    map[int]bool    // moves that something stands in the way of
}

// Check examines a whole plan. It returns an error if the source could not be queried.
func Check(ctx context.Context, f *planfile.File, rig Rig) (Report, error) {
	c := &check{rig: rig, file: f, hosts: map[inventory.MoRef]inventory.Host{}, datastoreTypes: map[datastoreName]string{}, places: map[string]Place{}, transports: map[string]transport.Transport{}, reported: map[string]bool{}, blocked: map[int]bool{}}
	defer c.close()
	if err := c.readInventory(ctx); err != nil {
		return Report{Findings: c.found}, err
	}
	for i := range c.moves {
		if err := c.checkVM(ctx, i); err != nil {
			return Report{Findings: c.found}, err
		}
	}
	asking, asked := recall.Begin(ctx)
	defer asked()
	r := Report{Places: c.checkTargets(asking)}
	c.checkHosts(ctx)
	if err := c.probeTransports(ctx); err != nil {
		return Report{Findings: c.found}, err
	}
	if c.rig.Examine != nil && len(c.moves) > 0 {
		c.found = append(c.found, c.rig.Examine(ctx, c.inspection)...)
	}
	for _, m := range c.moves {
		r.VMs, r.Disks, r.Bytes = r.VMs+1, r.Disks+len(m.VM.Disks), r.Bytes+m.VM.Provisioned
	}
	c.found.Sort()
	r.Findings = append(planfile.Findings{}, c.found...)
	return r, ctx.Err()
}

func (c *check) close() {
	for _, t := range c.transports {
		_ = t.Close() // nothing was moved
	}
}

// readInventory reads the inventory, once for all VMs.
func (c *check) readInventory(ctx context.Context) error {
	var hosts []inventory.Host
	var stores []inventory.Datastore
	var vms []inventory.VM
	g, gctx := errgroup.WithContext(ctx)
	g.Go(func() (err error) { hosts, err = c.rig.Source.Hosts(gctx); return err })
	g.Go(func() (err error) { stores, err = c.rig.Source.Datastores(gctx); return err })
	g.Go(func() (err error) { vms, err = c.rig.Source.VMs(gctx); return err })
	if err := g.Wait(); err != nil {
		return err
	}
	for _, h := range hosts {
		c.hosts[h.Ref] = h
	}
	for _, d := range stores {
		c.datastoreTypes[datastoreName{d.Datacenter, d.Name}] = d.Type
	}
	c.freeLicence = c.rig.Source.FreeLicence(ctx)
	c.moves, c.found = c.file.Resolve(vms, c.rig.Names(vms))
	c.inspection = Sight{hosts, stores, vms, c.moves}
	c.checkMaps(vms, stores)
	return nil
}

// addFinding records a finding on a migration; a blocking one ends further checks of it.
func (c *check) addFinding(i int, f planfile.Finding) {
	c.blocked[i] = c.blocked[i] || f.Blocks
	c.found = append(c.found, f)
}

// PermitOf returns what a VM's options permit. The check, the commands and the workers all take it from here.
func PermitOf(o planfile.Options) migrate.Permit {
	warm := o.Mode == planfile.Warmly
	p := migrate.Permit{
		PowerOff: o.PowerOff != planfile.NeverOff || warm, Warm: warm, Force: o.PowerOff == planfile.ForceOff, Wait: time.Duration(o.ShutdownWait),
		Cutover:  migrate.Cutover{At: o.Warm.Cutover.At, Budget: time.Duration(o.Warm.DowntimeBudget), Interval: time.Duration(o.Warm.Interval)},
		Paranoid: o.Warm.Paranoid,
		Spot:     migrate.Spot{None: o.Spot.Off, First: int64(o.Spot.First), Random: o.Spot.Ranges}, SourceHash: o.SourceHash,
		Trial: o.Trial, Start: o.Start,
	}
	if o.Warm.Boot.Known {
		p.Cutover.Boot = &o.Warm.Boot.Time
	}
	if o.Warm.Cutover.Window {
		p.Cutover.Open = o.Warm.Window.At
	}
	return p
}

// hostsOf lists the hosts of the moves that a condition holds for, with one move of each.
func (c *check) hostsOf(wanted func(planfile.Move) bool) (hosts []inventory.Host, of map[inventory.MoRef]int) {
	of = map[inventory.MoRef]int{}
	for i, m := range c.moves {
		h, known := c.hosts[m.VM.Host]
		if _, seen := of[h.Ref]; known && !seen && wanted(m) {
			hosts, of[h.Ref] = append(hosts, h), i
		}
	}
	slices.SortFunc(hosts, func(a, b inventory.Host) int { return of[a.Ref] - of[b.Ref] })
	return hosts, of
}
