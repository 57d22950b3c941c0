// Package namemap maps names of the source to names of a target: networks, datastores and VMs. It is plain
// data with pure functions; package planfile parses it, and targets receive it as a value.
//
// A key with one * is a pattern for all names without an exact key. The pattern with the most letters wins.
// The text that matched * replaces the * of the value:
//
//	names: {db01: database, "prod-*": "*", "*": "vmw-*"}    prod-web becomes web, and test vmw-test
package namemap

import (
	"maps"
	"slices"
	"strings"

	"github.com/decamp/decamp/internal/inventory"
)

// Map maps names for one VM, or for all VMs of a plan. For a name without an entry, the target uses its
// default network, its default storage, or the name of the VM. The zero value has no entries.
type Map struct {
	Networks map[string]Network `json:"networks,omitempty"` // networks by the name of VMware's network
	Storages map[string]string  `json:"storages,omitempty"` // storages by the name of the datastore
	Names    map[string]string  `json:"names,omitempty"`    // names by the VM's name
}

// Network is the target network for NICs of one source network. The target determines the syntax of To.
type Network struct {
	To    string `json:"to,omitempty"`    // empty: the target's usual one
	VLAN  int    `json:"vlan,omitempty"`  // tag, 1 to 4094; 0: none
	Model string `json:"model,omitempty"` // model of the cards; empty keeps the model, or uses that of the guest's hardware
}

// Wildcard makes a key a pattern.
const Wildcard = "*"

// Network returns the target network for NICs of a source network; the zero Network if the map has no
// entry.
func (m Map) Network(name string) Network {
	n, matched := lookUp(m.Networks, name)
	n.To = replaceWildcard(n.To, matched)
	return n
}

// Storage returns the target storage for disks of a datastore; empty if the map has no entry.
func (m Map) Storage(datastore string) string {
	to, matched := lookUp(m.Storages, datastore)
	return replaceWildcard(to, matched)
}

// Name returns the name of a VM at the target: the name vm itself if the map has no entry.
func (m Map) Name(vm string) string {
	to, matched := lookUp(m.Names, vm)
	if to == "" {
		return vm
	}
	return replaceWildcard(to, matched)
}

// Has reports whether a map has an entry for name, exactly or by a pattern.
func Has[V any](m map[string]V, name string) bool {
	_, ok := m[name]
	if !ok {
		_, ok = findPattern(m, name)
	}
	return ok
}

// Of returns the entries for vm, with the names of its networks and datastores as keys and without
// patterns. A run stores them, to find its networks and disks at the target again.
func (m Map) Of(vm *inventory.VM) Map {
	var own Map
	for _, n := range vm.NICs {
		if Has(m.Networks, n.Network) {
			setEntry(&own.Networks, n.Network, m.Network(n.Network))
		}
	}
	for _, d := range datastoresOf(vm) {
		if Has(m.Storages, d) {
			setEntry(&own.Storages, d, m.Storage(d))
		}
	}
	if to := m.Name(vm.Name); to != vm.Name {
		setEntry(&own.Names, vm.Name, to)
	}
	return own
}

// setEntry sets an entry, and creates the map if necessary.
func setEntry[V any](m *map[string]V, key string, value V) {
	if *m == nil {
		*m = map[string]V{}
	}
	(*m)[key] = value
}

// datastoresOf returns the datastores of vm and of its disks, sorted, each once. Of a disk with
// snapshots only the datastore of its base counts.
func datastoresOf(vm *inventory.VM) []string {
	names := []string{Home(vm)}
	for _, d := range vm.Disks {
		names = append(names, Datastore(d))
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// Home returns the datastore with the files of vm itself. It determines the storage of data that
// belongs to no disk: EFI variables and the state of a TPM.
func Home(vm *inventory.VM) string { return vm.VMX.Datastore }

// Datastore returns the datastore of a disk: that of its base, if it has snapshots on other datastores.
func Datastore(d inventory.Disk) string {
	if d.Base.Datastore != "" {
		return d.Base.Datastore
	}
	return d.Path.Datastore
}

// Targets returns the storages that the map names, each once, sorted. Patterns with a * in their value
// are left out, because they name no particular storage.
func (m Map) Targets() []string {
	var all []string
	for key, to := range m.Storages {
		if !IsPattern(key) || !strings.Contains(to, Wildcard) {
			all = append(all, to)
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// IsPattern reports whether a key has exactly one wildcard.
func IsPattern(key string) bool { return strings.Count(key, Wildcard) == 1 }

// lookUp returns the value for a name, and the text that the * of its key matched. matched is nil if
// the key has no *.
func lookUp[V any](m map[string]V, name string) (value V, matched *string) {
	if v, ok := m[name]; ok {
		return v, nil
	}
	key, ok := findPattern(m, name)
	if !ok {
		return value, nil
	}
	before, after, _ := strings.Cut(key, Wildcard)
	middle := name[len(before) : len(name)-len(after)]
	return m[key], &middle
}

// findPattern returns the pattern that a name matches: the longest one, and among equally long ones the
// first in alphabetical order.
func findPattern[V any](m map[string]V, name string) (found string, ok bool) {
	for _, key := range slices.Sorted(maps.Keys(m)) {
		before, after, _ := strings.Cut(key, Wildcard)
		matches := IsPattern(key) && len(name) >= len(before)+len(after) && strings.HasPrefix(name, before) && strings.HasSuffix(name, after)
		if matches && (!ok || len(key) > len(found)) {
			found, ok = key, true
		}
	}
	return found, ok
}

// replaceWildcard replaces the * of a value by the matched text. A nil text leaves the value unchanged.
func replaceWildcard(value string, matched *string) string {
	if matched == nil {
		return value
	}
	return strings.Replace(value, Wildcard, *matched, 1)
}
