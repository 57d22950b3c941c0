// Package vm has the checks of the VMs to migrate: for problems that would otherwise
// appear late, during the copy or at the first boot. Package migrate refuses VMs with
// the texts of the inventory; the checks here group those, and add checks that require
// several VMs, the guest or the target.
//
// Properties that only the disks contain (dynamic disks, a hibernated Windows, LUKS,
// drivers) are read from VMs that are off, by Options.Inspect.
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

// Source is an ESXi host or a vCenter with a session.
type Source interface {
	// Volumes returns the file systems of guests that run VMware Tools.
	Volumes(ctx context.Context, vms []inventory.MoRef) (map[inventory.MoRef][]inventory.Volume, error)
}

// Target is a target for VMs.
type Target interface {
	// Plan returns the images of a VM, or an error if the target cannot accept the VM.
	Plan(ctx context.Context, vm *inventory.VM) ([]targets.Image, error)

	// Folder returns the folder of a VM at the target. VMs with equal names may have
	// the same folder.
	Folder(vm *inventory.VM) string

	// Holds reports whether the target already contains the VM.
	Holds(vm *inventory.VM) bool
}

// Options select the objects of the checks, and their purpose.
type Options struct {
	Source   Source         // session with the source; may be nil
	VMs      []inventory.VM // VMs to migrate
	All      []inventory.VM // all known VMs of the source
	AtTarget []inventory.VM // VMs at the target, migrated earlier
	Targets  []Target       // targets of the VMs
	Inspect  InspectFunc    // reads disks; nil leaves those checks out

	Transport transport.Transport // selected transport; nil if none
	Permit    migrate.Permit      // obstacles that the user has permitted
	Warm      bool                // VMs are migrated warm

	// Survey means that the user selected no VMs. Obstacles are then warnings, and the
	// power state is ignored.
	Survey bool

	// Refused means that package migrate reports its refusals itself. They are omitted
	// here.
	Refused bool
}

// Checks returns the checks of VMs. The list does not depend on o.
func Checks(o Options) []doctor.Check {
	g := &group{o}
	var checks []doctor.Check
	for _, k := range kinds {
		checks = append(checks, doctor.Check{Code: k.code, Title: k.title, Run: func(context.Context) []doctor.Finding { return g.checkWarnings(k) }})
	}
	checks = append(checks,
		doctor.Check{Code: "vm-bitlocker", Title: "BitLocker requests no recovery key", Run: g.checkBitLocker},
		doctor.Check{Code: "vm-fast-startup", Title: "Windows does not hibernate at shutdown", Run: g.checkFastStartup},
		doctor.Check{Code: "vm-guest", Title: "guests can boot on other hardware", Slow: true, Run: g.checkInside},
		doctor.Check{Code: "vm-warm", Title: "VMs can be migrated while they run", Run: g.checkWarm},
		doctor.Check{Code: "vm-tracking", Title: "change tracking is available", Run: g.checkTracking},
		doctor.Check{Code: "vm-guest-space", Title: "enough free space in guests for the first boot", Run: g.checkGuestSpace},
		doctor.Check{Code: "vm-size", Title: "KVM supports the size of the VM without extra settings", Run: g.checkSize},
		doctor.Check{Code: "vm-mac", Title: "MAC addresses are unique", Run: g.checkMACs},
		doctor.Check{Code: "vm-target", Title: "each VM has its own free folder at the target", Run: g.checkTargets},
	)
	if o.Survey {
		for i := range checks {
			checks[i].Run = withWarnings(checks[i].Run)
		}
	}
	return checks
}

// withWarnings returns a check whose failures are warnings.
func withWarnings(run func(context.Context) []doctor.Finding) func(context.Context) []doctor.Finding {
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

// group contains the options that all checks share.
type group struct{ Options }

// onVM returns the object of a finding about a VM. A VM without a name has its
// reference.
func onVM(vm *inventory.VM) string { return "VM " + cmp.Or(vm.Name, string(vm.Ref)) }

// forEachVM calls look for each VM and completes its findings. A finding without Seen
// is omitted.
func (g *group) forEachVM(look func(*inventory.VM) doctor.Finding) (found []doctor.Finding) {
	for i := range g.VMs {
		if f := look(&g.VMs[i]); f.Found != "" {
			f.On = onVM(&g.VMs[i])
			found = append(found, f)
		}
	}
	return found
}

// kind is a group of related warnings of the inventory.
type kind struct {
	code, title string   // code and title of the check
	warnings    []string // codes of the warnings
}

// kinds lists all warnings of the inventory; a test compares the list with the source.
// An obstacle that is not a warning concerns disks (migrate.Obstacles).
var kinds = []kind{
	{"vm-state", "a powered-off VM with a readable configuration and disks", []string{"inaccessible", "invalid", "system-vm", "no-disks", "running", "suspended", "template"}},
	{"vm-snapshots", "a VM without snapshots", []string{"snapshots", "consolidation", "linked-clone"}},
	{disks, "disks with readable files", []string{"rdm", "rdm-physical", "vsan", "vvol", "unknown-backing"}},
	{"vm-independent", "disks that snapshots include and that keep writes", []string{"independent", "nonpersistent"}},
	{"vm-shared", "disks and buses that no other VM uses", []string{"shared-disk", "shared-bus"}},
	{"vm-encrypted", "disks that vSphere does not encrypt", []string{"encrypted"}},
	{"vm-controller", "controllers that KVM supports", []string{"unknown-controller", "buslogic"}},
	{"vm-tpm", "no secrets in a virtual TPM", []string{vTPM}},
	{"vm-secure-boot", "a boot loader that the target's secure boot accepts", []string{"secure-boot"}},
	{"vm-device", "only devices that can be migrated", []string{"passthrough", "port", "cdrom"}},
	{"vm-name", "a unique name", []string{"duplicate-name"}},
	{"vm-tags", "readable tags and custom attributes", []string{"tags", "attributes"}},
}

const (
	disks = "vm-disks" // code of obstacles that are not warnings of the inventory
	vTPM  = "vtpm"     // the warning's code
)

// passing lists warnings about the current state of a VM, and general ones. They matter
// only if the user selected the VM.
var passing = []string{"running", "suspended", "system-vm", "no-disks", "template"}

// notes lists warnings that need no action.
var notes = []string{"template", "independent", "nonpersistent", "cdrom", "duplicate-name", "unknown-controller", "tags", "attributes"}

// checkWarnings reports the warnings of one kind for all VMs. A VM without one has an
// OK finding.
func (g *group) checkWarnings(k kind) (found []doctor.Finding) {
	for i := range g.VMs {
		vm := &g.VMs[i]
		// A VM without a finding of this kind gets an OK finding below.
		before := len(found)
		found = append(found, g.findObstacles(vm, k)...)
		for _, w := range vm.Warnings {
			ofWindows := w.Code == vTPM && isWindows(vm) // vm-bitlocker reports it
			if !w.Blocks && slices.Contains(k.warnings, w.Code) && !ofWindows && !g.isIgnored(w) {
				found = append(found, toFinding(vm, w, k, statusOf(w)))
			}
		}
		if len(found) == before {
			found = append(found, doctor.Finding{On: onVM(vm), Found: "no problems"})
		}
	}
	return found
}

// findObstacles returns what prevents the migration of a VM, and neither the transport
// nor the permit resolves.
func (g *group) findObstacles(vm *inventory.VM, k kind) (found []doctor.Finding) {
	if g.Refused {
		return nil
	}
	for _, w := range migrate.Obstacles(vm, g.Transport, g.permitOf()) {
		if kindOf(w.Code) == k.code && !g.isIgnored(w) {
			found = append(found, toFinding(vm, w, k, doctor.Failure))
		}
	}
	return found
}

// isIgnored reports whether a warning concerns a state that does not matter in a
// survey.
func (g *group) isIgnored(w inventory.Warning) bool {
	return g.Survey && slices.Contains(passing, w.Code)
}

// permitOf returns the permit. A warm migration may power VMs off, because its cutover
// does so.
func (g *group) permitOf() migrate.Permit {
	p := g.Permit
	p.PowerOff = p.PowerOff || g.Warm
	return p
}

// kindOf returns the code of the kind of a warning.
func kindOf(warning string) string {
	for _, k := range kinds {
		if slices.Contains(k.warnings, warning) {
			return k.code
		}
	}
	return disks
}

// statusOf returns the severity of a warning that does not prevent the migration.
func statusOf(w inventory.Warning) doctor.Status {
	if slices.Contains(notes, w.Code) {
		return doctor.Advice
	}
	return doctor.Warning
}

// toFinding converts a warning. The remedy of a suspended VM also names the option of
// decamp that resolves it.
func toFinding(vm *inventory.VM, w inventory.Warning, k kind, s doctor.Status) doctor.Finding {
	f := doctor.Finding{On: onVM(vm), Status: s, Found: w.Text, Want: k.title, Remedy: w.Remedy}
	// The remedy of a running VM already names options; see migrate.Obstacles.
	if w.Code == "suspended" {
		f.Remedy += ", or add --power-off --force, which discards its memory"
	}
	return f
}

// unknownFinding returns the finding for an object that could not be examined.
func unknownFinding(err error) []doctor.Finding {
	return []doctor.Finding{{
		Status: doctor.Unknown, Found: err.Error(), Want: "a successful query",
		Remedy: cmp.Or(fault.HintOf(err), "# to check the inventory, if the error persists:\ndecamp ls"),
	}}
}
