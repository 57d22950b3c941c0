package platform

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/namemap"
)

// Aspect is a property of a platform that decamp doctor checks without a VM.
type Aspect string

const (
	Login   Aspect = "login"   // the platform answers, has the expected identity, and accepts the credentials
	Parts   Aspect = "parts"   // the required software is installed in a supported version
	Storage Aspect = "storage" // the storages for disks and uploads exist
	Network Aspect = "network" // the networks that cards join exist
	Rights  Aspect = "rights"  // the account has all privileges that a delivery requires
	Clock   Aspect = "clock"   // the platform's clock agrees with the local clock
)

// AspectResult is the result of one check of a platform.
type AspectResult struct {
	Object      string // the checked object, such as "storage local-lvm"; empty for the platform itself
	State       string // state of the object, if it passed the check
	Err         error  // the error that Check would return; nil if the object passed
	WarningOnly bool   // Err does not prevent a delivery and describes the consequences
}

// Examiner is a Platform that can be checked without a VM. The checks cover all objects that the address
// and
// the maps name. They change nothing.
type Examiner interface {
	Platform

	// Examine checks one aspect and returns nothing if the platform has no such aspect. Aspects other than
	// Login may assume that Login has passed. Timeouts are shorter than those of Check.
	Examine(ctx context.Context, a Aspect) []AspectResult
}

// ValueLister is a Platform that lists its storages and networks, for the completion of addresses.
type ValueLister interface {
	Platform

	// ListValues returns the names on the platform that a parameter of its address may have. It returns
	// nothing for parameters that name no storage, network, zone or namespace. It changes nothing.
	ListValues(ctx context.Context, parameter string) ([]string, error)
}

// Examine checks one aspect of the platform. It returns nil if the platform is no Examiner.
func (t *Target) Examine(ctx context.Context, a Aspect) []AspectResult {
	e, ok := t.platform.(Examiner)
	if !ok {
		return nil
	}
	return e.Examine(ctx, a)
}

// NewResult returns the result for one object. If seen is empty and err is nil, the state is "it exists".
func NewResult(on, seen string, err error) AspectResult {
	if err != nil {
		return AspectResult{Object: on, Err: err}
	}
	return AspectResult{Object: on, State: cmp.Or(seen, "it exists")}
}

// WarningResult returns a passed result if w is nil, else one with the warning as an error that does not
// prevent
// a delivery.
func WarningResult(on, seen string, w *inventory.Warning) AspectResult {
	if w == nil {
		return NewResult(on, seen, nil)
	}
	return AspectResult{Object: on, WarningOnly: true, Err: fault.New(fault.Conflict, "%s", w.Text).WithHint("%s", w.Remedy)}
}

// PlaceholderVM returns an artificial VM for checks without a real one: a disk for each datastore and a card
// for each
// network that the map names. The first disk and the first card have an empty name and represent all
// unmapped names. Targets of patterns are not covered if they depend on the matched name.
func PlaceholderVM(m namemap.Map) *inventory.VM {
	vm := &inventory.VM{Name: "decamp-doctor", CPUs: 1, MemoryMiB: 1, Firmware: inventory.BIOS}
	for _, name := range mappedNames(m.Storages, m.Storages[namemap.Wildcard]) {
		d := inventory.Disk{Key: int32(2000 + len(vm.Disks)), Path: inventory.Path{Datastore: name}}
		vm.Disks = append(vm.Disks, d)
	}
	for _, name := range mappedNames(m.Networks, m.Networks[namemap.Wildcard].To) {
		vm.NICs = append(vm.NICs, inventory.NIC{Key: int32(4000 + len(vm.NICs)), Network: name})
	}
	return vm
}

// mappedNames returns the keys of a map in order, without patterns. The first element is "", for names
// without
// an entry, unless others contains the wildcard and so keeps those names.
func mappedNames[V any](m map[string]V, others string) (names []string) {
	if !strings.Contains(others, namemap.Wildcard) {
		names = []string{""}
	}
	return append(names, slices.DeleteFunc(slices.Sorted(maps.Keys(m)), namemap.IsPattern)...)
}

// Cards returns the name of a card's network for results. The card is one of a stand-in.
func Cards(card inventory.NIC) string {
	if card.Network == "" {
		return "networks"
	}
	return "network " + card.Network
}
