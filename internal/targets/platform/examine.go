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

// An Aspect is a side of a place that has to be right for any VM.
type Aspect string

const (
	Login   Aspect = "login"   // it answers, is who it should be, and lets us in
	Parts   Aspect = "parts"   // it has what VMs are made with, in a version that does
	Storage Aspect = "storage" // there is where disks go, now and on their way
	Network Aspect = "network" // there is what cards join
	Rights  Aspect = "rights"  // the account may do all that a delivery does
	Clock   Aspect = "clock"   // its clock and ours agree
)

// A Look is what was seen of one thing of a place.
type Look struct {
	On   string // the thing, such as "storage local-lvm"; empty: the place
	Seen string // how it is, if it is right
	Err  error  // what Check would say of it; nil: it is right
	Mild bool   // a VM is delivered all the same, and Err says what comes of that
}

// An Examiner is a Place that can be looked at before there is a VM for it. It asks what Check asks, of all
// that its address and its maps name, and changes nothing.
type Examiner interface {
	Place

	// Examine looks at one aspect. There is nothing of the kind where it returns nothing. All but Login
	// may rely on Login being right. It gives up on who does not answer sooner than Check, whose caller
	// has hours.
	Examine(ctx context.Context, a Aspect) []Look
}

// Examine looks at one aspect of the place; at nothing, if the place is none that can be looked at.
func (t *Target) Examine(ctx context.Context, a Aspect) []Look {
	e, ok := t.place.(Examiner)
	if !ok {
		return nil
	}
	return e.Examine(ctx, a)
}

// See is a Look at one thing, which is seen if there is no error.
func See(on, seen string, err error) Look {
	if err != nil {
		return Look{On: on, Err: err}
	}
	return Look{On: on, Seen: cmp.Or(seen, "it is there")}
}

// Warned is a Look at one thing that is wrong if w is not nil, and no reason to refuse a VM.
func Warned(on, seen string, w *inventory.Warning) Look {
	if w == nil {
		return See(on, seen, nil)
	}
	return Look{On: on, Mild: true, Err: fault.New(fault.Conflict, "%s", w.Text).WithHint("%s", w.Remedy)}
}

// StandIn is a VM with one of all that maps name: a disk on each datastore, and a card on each network. The
// first of both is on one without a name, and stands for all others. What patterns make of names is known
// only once there are some.
func StandIn(m namemap.Map) *inventory.VM {
	vm := &inventory.VM{Name: "decamp-doctor", CPUs: 1, MemoryMiB: 1, Firmware: inventory.BIOS}
	for _, name := range named(m.Storages, m.Storages[namemap.Wildcard]) {
		d := inventory.Disk{Key: int32(2000 + len(vm.Disks)), Path: inventory.Path{Datastore: name}}
		vm.Disks = append(vm.Disks, d)
	}
	for _, name := range named(m.Networks, m.Networks[namemap.Wildcard].To) {
		vm.NICs = append(vm.NICs, inventory.NIC{Key: int32(4000 + len(vm.NICs)), Network: name})
	}
	return vm
}

// named are the keys of a map that are no patterns, in order. In front of them is "" for all others, unless
// they become what their names say.
func named[V any](m map[string]V, others string) (names []string) {
	if !strings.Contains(others, namemap.Wildcard) {
		names = []string{""}
	}
	return append(names, slices.DeleteFunc(slices.Sorted(maps.Keys(m)), namemap.IsPattern)...)
}

// Cards names the network of a stand-in's card.
func Cards(card inventory.NIC) string {
	if card.Network == "" {
		return "networks"
	}
	return "network " + card.Network
}
