// Package vm has the checks of the VMs to migrate: for problems that would otherwise appear late,
// during the copy or at the first boot. Package migrate refuses VMs with the texts of the inventory;
// the checks here group those, and add checks that require several VMs, the guest or the target.
//
// Properties that only the disks contain (dynamic disks, a hibernated Windows, LUKS, drivers) are read
// from VMs that are off, by Options.Look.
package vm

import (
	"cmp"
	"context"
	"slices"

	"github.com/decamp/decamp/internal/doctor"
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/migrate"
	"github.com/decamp/decamp/internal/targets"
	"github.com/decamp/decamp/internal/transport"
)

// Source is the ESXi or vCenter, logged in to.
type Source interface {
	// Volumes returns the file systems of guests that run with VMware Tools.
	Volumes(ctx context.Context, vms []inventory.MoRef) (map[inventory.MoRef][]inventory.Volume, error)
}

// Place is where VMs are to live.
type Place interface {
	// Plan names the images of a VM, or returns why the target cannot take it.
	Plan(ctx context.Context, vm *inventory.VM) ([]targets.Image, error)

	// Folder is where a VM will stand. It is another's if their names come to the same.
	Folder(vm *inventory.VM) string

	// Holds reports whether the VM stands there already.
	Holds(vm *inventory.VM) bool
}

// Options select the objects of the checks, and their purpose.
type Options struct {
	Source Source
	VMs    []inventory.VM // VMs to migrate
	All    []inventory.VM // all known VMs of the source
	There  []inventory.VM // VMs at the target, migrated earlier
	Places []Place
	Look   Look // reads disks; nil leaves those checks out

	Transport transport.Transport // selected transport; nil if none
	Permit    migrate.Permit
	Warm      bool // moved in rounds, while they run

	// Survey reports that the user selected no VMs: obstacles are warnings then, and the current power
	// state is ignored.
	Survey bool

	// Refused reports that package migrate will report its refusals: they are left out here.
	Refused bool
}

// Checks returns those of VMs. Which there are does not depend on o.
func Checks(o Options) []doctor.Check {
	g := &group{o}
	var checks []doctor.Check
	for _, k := range kinds {
		checks = append(checks, doctor.Check{Code: k.code, Title: k.title, Run: func(context.Context) []doctor.Finding { return g.warned(k) }})
	}
	checks = append(checks,
		doctor.Check{Code: "vm-bitlocker", Title: "no Windows requests a recovery key", Run: g.bitLocker},
		doctor.Check{Code: "vm-fast-startup", Title: "no Windows hibernates when it is shut down", Run: g.fastStartup},
		doctor.Check{Code: "vm-guest", Title: "guests come up on other hardware", Slow: true, Run: g.inside},
		doctor.Check{Code: "vm-warm", Title: "VMs can be moved while they run", Run: g.warm},
		doctor.Check{Code: "vm-tracking", Title: "changes are tracked", Run: g.tracking},
		doctor.Check{Code: "vm-guest-space", Title: "guests have room for their first boot", Run: g.guestSpace},
		doctor.Check{Code: "vm-size", Title: "VMs are not larger than KVM takes by itself", Run: g.size},
		doctor.Check{Code: "vm-mac", Title: "each MAC address is there once", Run: g.macs},
		doctor.Check{Code: "vm-place", Title: "each VM has a separate folder at the target", Run: g.place},
	)
	if o.Survey {
		for i := range checks {
			checks[i].Run = milder(checks[i].Run)
		}
	}
	return checks
}

// milder turns failures of a check into warnings, for features that were not requested.
func milder(run func(context.Context) []doctor.Finding) func(context.Context) []doctor.Finding {
	return func(ctx context.Context) []doctor.Finding {
		found := run(ctx)
		for i := range found {
			if found[i].Status == doctor.Failure {
				found[i].Status = doctor.Warning
			}
		}
		return found
	}
}

// group is what the checks share.
type group struct{ Options }

func onVM(vm *inventory.VM) string { return "VM " + cmp.Or(vm.Name, string(vm.Ref)) }

// each examines all VMs. A finding without Seen is left out.
func (g *group) each(look func(*inventory.VM) doctor.Finding) (found []doctor.Finding) {
	for i := range g.VMs {
		if f := look(&g.VMs[i]); f.Seen != "" {
			f.On = onVM(&g.VMs[i])
			found = append(found, f)
		}
	}
	return found
}

// kind is a family of warnings of the inventory.
type kind struct {
	code, title string
	warnings    []string // their codes
}

// kinds cover all warnings; a test reads the source for others. An obstacle without a warning is a
// disk's (migrate.Obstacles).
var kinds = []kind{
	{"vm-state", "VMs are in a state to be moved in", []string{"inaccessible", "invalid", "system-vm", "no-disks", "running", "suspended", "template"}},
	{"vm-snapshots", "VMs stand on no snapshots", []string{"snapshots", "consolidation", "linked-clone"}},
	{disks, "disks are files that can be read", []string{"rdm", "rdm-physical", "vsan", "vvol", "unknown-backing"}},
	{"vm-independent", "snapshots include all disks, and disks keep writes", []string{"independent", "nonpersistent"}},
	{"vm-shared", "disks are of one VM alone", []string{"shared-disk", "shared-bus"}},
	{"vm-encrypted", "disks are not encrypted by vSphere", []string{"encrypted"}},
	{"vm-controller", "controllers are ones that KVM has", []string{"unknown-controller", "buslogic"}},
	{"vm-tpm", "no secrets are in a virtual TPM", []string{vTPM}},
	{"vm-secure-boot", "boot loaders are let in at the target", []string{"secure-boot"}},
	{"vm-device", "no device stays behind", []string{"passthrough", "port", "cdrom"}},
	{"vm-name", "names are of one VM alone", []string{"duplicate-name"}},
	{"vm-tags", "tags and attributes can be read", []string{"tags", "attributes"}},
}

const (
	disks = "vm-disks" // code of obstacles that are not warnings of the inventory
	vTPM  = "vtpm"     // the warning's code
)

// passing are warnings about the current state of a VM, or general ones: they matter only for a
// selected VM.
var passing = []string{"running", "suspended", "system-vm", "no-disks", "template"}

// notes are warnings that are good to know and need nothing done.
var notes = []string{"template", "independent", "nonpersistent", "cdrom", "duplicate-name", "unknown-controller", "tags", "attributes"}

// warned reports the warnings of a kind.
func (g *group) warned(k kind) (found []doctor.Finding) {
	for i := range g.VMs {
		vm := &g.VMs[i]
		before := len(found)
		found = append(found, g.obstacles(vm, k)...)
		for _, w := range vm.Warnings {
			ofWindows := w.Code == vTPM && windows(vm) // vm-bitlocker reports it
			if !w.Blocks && slices.Contains(k.warnings, w.Code) && !ofWindows && !g.passes(w) {
				found = append(found, finding(vm, w, k, harmless(w)))
			}
		}
		if len(found) == before {
			found = append(found, doctor.Finding{On: onVM(vm), Seen: "nothing of the kind"})
		}
	}
	return found
}

// obstacles are those of the kind: what blocks, and neither the transport nor the permit lifts.
func (g *group) obstacles(vm *inventory.VM, k kind) (found []doctor.Finding) {
	if g.Refused {
		return nil
	}
	for _, w := range migrate.Obstacles(vm, g.Transport, g.permit()) {
		if kindOf(w.Code) == k.code && !g.passes(w) {
			found = append(found, finding(vm, w, k, doctor.Failure))
		}
	}
	return found
}

// passes reports whether a warning is of a state that does not matter here.
func (g *group) passes(w inventory.Warning) bool { return g.Survey && slices.Contains(passing, w.Code) }

// permit has a warm move switch VMs off: it does so by itself.
func (g *group) permit() migrate.Permit {
	p := g.Permit
	p.PowerOff = p.PowerOff || g.Warm
	return p
}

// kindOf is the code of the kind that a warning belongs to.
func kindOf(warning string) string {
	for _, k := range kinds {
		if slices.Contains(k.warnings, warning) {
			return k.code
		}
	}
	return disks
}

func harmless(w inventory.Warning) doctor.Status {
	if slices.Contains(notes, w.Code) {
		return doctor.Advice
	}
	return doctor.Warning
}

func finding(vm *inventory.VM, w inventory.Warning, k kind, s doctor.Status) doctor.Finding {
	f := doctor.Finding{On: onVM(vm), Status: s, Seen: w.Text, Want: k.title, Remedy: w.Remedy}
	switch w.Code {
	case "running":
		f.Remedy += "; or add --power-off, or --warm, and decamp does it"
	case "suspended":
		f.Remedy += "; or add --power-off --force, which discards its memory"
	}
	return f
}

// unknown is a finding of what could not be looked at.
func unknown(err error) []doctor.Finding {
	return []doctor.Finding{{
		Status: doctor.Unknown, Seen: err.Error(), Want: "an answer",
		Remedy: cmp.Or(fault.HintOf(err), "try again; if it stays, list the inventory: decamp ls"),
	}}
}
