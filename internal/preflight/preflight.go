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

// Source is a session with the ESXi host or vCenter of the plan.
type Source interface {
	Hosts(ctx context.Context) ([]inventory.Host, error)           // Hosts returns all hosts.
	Datastores(ctx context.Context) ([]inventory.Datastore, error) // Datastores returns all datastores.
	VMs(ctx context.Context) ([]inventory.VM, error)               // VMs returns all VMs with their full descriptions.

	// FreeLicence reports whether the host has the free licence, with which its API is read-only. It is
	// false if the licence is unknown.
	FreeLicence(ctx context.Context) bool

	// SSHRuns reports whether the SSH service of a host runs.
	SSHRuns(ctx context.Context, host inventory.MoRef) (bool, error)
}

// Target is a target to which VMs of the plan are delivered.
type Target interface {
	// Plan returns the images of a VM, or an error if the target cannot accept the VM.
	Plan(ctx context.Context, vm *inventory.VM) ([]targets.Image, error)

	// Folder returns the folder of the VM. Two VMs have the same folder if their names are converted to
	// the same file name.
	Folder(vm *inventory.VM) string

	// Holds reports whether the VM is already published there.
	Holds(vm *inventory.VM) bool

	// Need returns how many bytes the VM requires there: at least, and at most.
	Need(vm *inventory.VM) (least, most int64)

	// Room returns the free bytes, and the number of the device that has them.
	Room() (free int64, device uint64, err error)
}

// Dependencies has the functions with which a plan is checked.
type Dependencies struct {
	Source Source                               // session with the source
	Names  func([]inventory.VM) planfile.Finder // returns a Finder for the VMs of the source
	// opens a destination; fails if it does not answer
	OpenTarget func(context.Context, planfile.Destination, planfile.Options) (Target, error)
	// opens a transport; Check closes it
	Transport func(context.Context, planfile.Options) (transport.Transport, error)
	Reach     func(ctx context.Context, host inventory.Host) error // fails if the host does not answer from this machine
	Now       func() time.Time                                     // returns the current time

	// Settled, if not nil, is called for each migration that a target was checked for, with the result.
	// The calls are in the order of the plan, destination by destination.
	Settled func(ctx context.Context, m planfile.Move, to planfile.Destination, p Target, err error)

	// Examine, if not nil, returns further findings on the plan's migrations and their hosts. It does
	// not repeat findings of this package.
	Examine func(context.Context, PlanInventory) planfile.Findings
}

// PlanInventory is a plan with the data that was read from its source.
type PlanInventory struct {
	Hosts      []inventory.Host      // all hosts of the source
	Datastores []inventory.Datastore // all datastores of the source
	VMs        []inventory.VM        // all VMs of the source
	Moves      []planfile.Move       // migrations of the plan
}

// Report is the result of a check. The JSON form is the output of decamp plan check --json.
type Report struct {
	VMs         int               `json:"vms"`         // number of VMs in the plan
	Disks       int               `json:"disks"`       // number of their disks
	Bytes       int64             `json:"bytes"`       // bytes of all disks
	FileSystems []Space           `json:"fileSystems"` // use of each file system at the targets
	Findings    planfile.Findings `json:"findings"`    // findings in the order of the plan; not nil
}

// Space is the space that VMs of the plan require on one file system.
type Space struct {
	Folders []string `json:"folders"` // folders of destinations on the file system
	VMs     int      `json:"vms"`     // number of VMs
	Least   int64    `json:"least"`   // bytes that thin disks have allocated at the source
	Most    int64    `json:"most"`    // bytes of all disks if they were full
	Free    int64    `json:"free"`    // free bytes
}

// check is one run of Check. It is not safe for concurrent use, except in probes.
type check struct {
	rig            Dependencies                       // functions of the caller
	file           *planfile.File                     // the plan
	hosts          map[inventory.MoRef]inventory.Host // hosts of the source by reference
	datastoreTypes map[datastoreName]string           // type of each datastore, such as VMFS
	freeLicence    bool                               // the host's API changes nothing
	inspection     PlanInventory                      // data for Environment.Examine
	moves          []planfile.Move                    // migrations of the plan; other fields refer to them by index
	found          planfile.Findings                  // findings so far

	places     map[string]Target              // open targets by destination and options
	transports map[string]transport.Transport // open transports by transportKey
	reported   map[string]bool                // transportKeys of transports that cannot be opened; reported already
	blocked    map[int]bool                   // migrations with a blocking finding, by index
}

// Check examines a whole plan. It returns an error if the source could not be queried or ctx ended.
// Problems of the plan are in the report.
func Check(ctx context.Context, f *planfile.File, rig Dependencies) (Report, error) {
	c := &check{rig: rig, file: f, hosts: map[inventory.MoRef]inventory.Host{}, datastoreTypes: map[datastoreName]string{}, places: map[string]Target{}, transports: map[string]transport.Transport{}, reported: map[string]bool{}, blocked: map[int]bool{}}
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
	r := Report{FileSystems: c.checkTargets(asking)}
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

// close closes all transports.
func (c *check) close() {
	for _, t := range c.transports {
		_ = t.Close() // nothing was moved
	}
}

// readInventory reads the inventory once for all VMs, resolves the plan and checks its maps.
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
	c.inspection = PlanInventory{hosts, stores, vms, c.moves}
	c.checkMaps(vms, stores)
	return nil
}

// addFinding adds a finding about the migration i. A blocking one ends further checks of that
// migration.
func (c *check) addFinding(i int, f planfile.Finding) {
	c.blocked[i] = c.blocked[i] || f.Blocks
	c.found = append(c.found, f)
}

// PermitOf converts the options of a VM to the permissions of its migration. The check, commands and
// workers all use this function.
func PermitOf(o planfile.Options) migrate.Permit {
	warm := o.Mode == planfile.WarmMode
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

// hostsOf returns the hosts of the migrations for which wanted is true, in the order of the plan. of
// has the index of one migration for each host.
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
