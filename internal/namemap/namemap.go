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

// Map is one VM's, or that of all VMs of a plan. What it does not name is as the target has it by
// itself: its usual network, its usual storage, the VM's own name.
type Map struct {
	Networks map[string]Network `json:"networks,omitempty"` // networks by the name of VMware's network
	Storages map[string]string  `json:"storages,omitempty"` // storages by the name of the datastore
	Names    map[string]string  `json:"names,omitempty"`    // names by the VM's name
}

// Network is what cards of a network of VMware's join, and as what. How it is written is the target's.
type Network struct {
	To    string `json:"to,omitempty"`    // empty: the target's usual one
	VLAN  int    `json:"vlan,omitempty"`  // tag, 1 to 4094; 0: none
	Model string `json:"model,omitempty"` // model of the cards; empty keeps the model, or uses that of the guest's hardware
}

// Wildcard is the sign that makes a key a pattern.
const Wildcard = "*"

// Network returns what cards of a network join; the zero Network if the map does not say.
func (m Map) Network(name string) Network {
	n, stood := lookUp(m.Networks, name)
	n.To = replaceWildcard(n.To, stood)
	return n
}

// Storage returns where disks of a datastore go; "" if the map does not say.
func (m Map) Storage(datastore string) string {
	to, stood := lookUp(m.Storages, datastore)
	return replaceWildcard(to, stood)
}

// Name returns what a VM of that name is called at the target.
func (m Map) Name(vm string) string {
	to, stood := lookUp(m.Names, vm)
	if to == "" {
		return vm
	}
	return replaceWildcard(to, stood)
}

// Has reports whether a map has a key for name, exactly or by a pattern.
func Has[V any](m map[string]V, name string) bool {
	_, ok := m[name]
	if !ok {
		_, ok = findPattern(m, name)
	}
	return ok
}

// Of returns the entries of the map for vm, with its names as keys and no patterns. They must be stored
// to find its networks and disks at the target again.
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

func setEntry[V any](m *map[string]V, key string, value V) {
	if *m == nil {
		*m = map[string]V{}
	}
	(*m)[key] = value
}

// datastoresOf are those that vm and its disks are on. A disk with snapshots may be on several: where its
// base is counts.
func datastoresOf(vm *inventory.VM) []string {
	names := []string{Home(vm)}
	for _, d := range vm.Disks {
		names = append(names, Datastore(d))
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// Home is the datastore that vm's own files are on, from which go what belongs to no disk: EFI
// variables, the state of a TPM.
func Home(vm *inventory.VM) string { return vm.VMX.Datastore }

// Datastore is the one that a disk counts as being on.
func Datastore(d inventory.Disk) string {
	if d.Base.Datastore != "" {
		return d.Base.Datastore
	}
	return d.Path.Datastore
}

// Targets lists the storages that the map names, each once, sorted. A pattern whose value has a * in
// it names none.
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

// IsPattern reports whether a key stands for more than itself.
func IsPattern(key string) bool { return strings.Count(key, Wildcard) == 1 }

// lookUp finds the value for a name, and what the * of its key stood for; none where the key has no *.
func lookUp[V any](m map[string]V, name string) (value V, stood *string) {
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

// findPattern finds the key that a name matches: the longest, and of those the first by the alphabet.
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

// replaceWildcard puts what a * stood for where a value has one.
func replaceWildcard(value string, stood *string) string {
	if stood == nil {
		return value
	}
	return strings.Replace(value, Wildcard, *stood, 1)
}
