package namemap_test

import (
	"reflect"
	"strings"
	"testing"

	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/namemap"
)

var testMap = namemap.Map{
	Networks: map[string]namemap.Network{
		"VM Network": {To: "vmbr0"}, "dv-*": {To: "multus:vms/*", Model: "virtio"}, "dv-*-lan": {To: "lan", VLAN: 20}, "odd*": {To: "odd"},
	},
	Storages: map[string]string{"ssd1": "fast", "*": "slow"},
	Names:    map[string]string{"db01": "database", "prod-*": "*", "*": "vmw-*", "a*b*": "never"},
}

func TestLookUp(t *testing.T) {
	for name, want := range map[string]namemap.Network{
		"VM Network": {To: "vmbr0"}, "dv-dmz": {To: "multus:vms/dmz", Model: "virtio"}, "dv-x-lan": {To: "lan", VLAN: 20},
		"dv-": {To: "multus:vms/", Model: "virtio"}, "odd*": {To: "odd"}, "other": {}, "": {},
	} {
		if got := testMap.Network(name); got != want {
			t.Errorf("network %q: %+v, want %+v", name, got, want)
		}
	}
	for name, want := range map[string]string{"ssd1": "fast", "ssd2": "slow", "": "slow"} {
		if got := testMap.Storage(name); got != want {
			t.Errorf("storage %q: %q, want %q", name, got, want)
		}
	}
	for name, want := range map[string]string{"db01": "database", "prod-web": "web", "test": "vmw-test", "a1b2": "vmw-a1b2", "*": "vmw-*"} {
		if got := testMap.Name(name); got != want {
			t.Errorf("name %q: %q, want %q", name, got, want)
		}
	}
	if got := (namemap.Map{}).Name("x*"); got != "x*" {
		t.Errorf("an empty map changes x* to %q", got)
	}
}

// A pattern does not match a name in which its prefix and suffix overlap.
func TestPatternEndsMustNotOverlap(t *testing.T) {
	m := namemap.Map{Names: map[string]string{"aba*ba": "x"}}
	for name, want := range map[string]string{"aba": "aba", "ababa": "x", "aba-ba": "x"} {
		if got := m.Name(name); got != want {
			t.Errorf("%q: %q, want %q", name, got, want)
		}
	}
}

// Of returns a map with only the entries of a VM. It maps the VM like the whole map.
func TestOf(t *testing.T) {
	vm := &inventory.VM{
		Name: "prod-web", VMX: inventory.Path{Datastore: "ssd1"},
		NICs: []inventory.NIC{{Network: "dv-dmz"}, {Network: "other"}},
		Disks: []inventory.Disk{
			{Path: inventory.Path{Datastore: "nfs"}, Base: inventory.Path{Datastore: "ssd1"}}, {Path: inventory.Path{Datastore: "hdd"}},
		},
	}
	want := namemap.Map{
		Networks: map[string]namemap.Network{"dv-dmz": {To: "multus:vms/dmz", Model: "virtio"}},
		Storages: map[string]string{"ssd1": "fast", "hdd": "slow"},
		Names:    map[string]string{"prod-web": "web"},
	}
	got := testMap.Of(vm)
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if again := got.Of(vm); !reflect.DeepEqual(again, want) {
		t.Errorf("of itself: %+v", again)
	}
	if none := (namemap.Map{}).Of(vm); !reflect.DeepEqual(none, namemap.Map{}) {
		t.Errorf("of an empty map: %+v", none)
	}
}

func TestTargets(t *testing.T) {
	m := namemap.Map{Storages: map[string]string{"a": "x", "b": "x", "c*": "y", "d*": "pool-*", "e": "z*"}}
	if got, want := strings.Join(m.Targets(), " "), "x y z*"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
