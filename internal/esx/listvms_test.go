package esx_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/decamp/decamp/internal/esx"
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/lab"
)

// allFacts are those that can be asked for.
var allFacts = []inventory.Fact{inventory.FactListed, inventory.FactPower, inventory.FactGuest, inventory.FactHardware,
	inventory.FactFirmware, inventory.FactTools, inventory.FactTracking}

// rollOf is the roll, by name, and the size of each page of it.
func rollOf(tb testing.TB, s *esx.Session, facts ...inventory.Fact) (roll []inventory.VM, pages []int) {
	tb.Helper()
	err := s.ListVMs(context.Background(), facts, func(vms []inventory.VM) error {
		roll, pages = append(roll, vms...), append(pages, len(vms))
		return nil
	})
	if err != nil {
		tb.Fatal(err)
	}
	slices.SortFunc(roll, func(a, b inventory.VM) int { return strings.Compare(a.Name, b.Name) })
	return roll, pages
}

// onRoll is what a roll with some facts says of a VM that is described.
func onRoll(vm inventory.VM, facts ...inventory.Fact) inventory.VM {
	r := inventory.VM{Ref: vm.Ref, Name: vm.Name, UUID: vm.UUID, InstanceUUID: vm.InstanceUUID, Host: vm.Host, HostName: vm.HostName, Cluster: vm.Cluster,
		Datacenter: vm.Datacenter, Folder: vm.Folder, VMX: vm.VMX, Template: vm.Template, Disks: make([]inventory.Disk, len(vm.Disks))}
	for _, f := range facts {
		switch f {
		case inventory.FactPower:
			r.Power = vm.Power
		case inventory.FactGuest:
			r.GuestID, r.GuestName = vm.GuestID, vm.GuestName
		case inventory.FactHardware:
			r.CPUs, r.MemoryMiB = vm.CPUs, vm.MemoryMiB
		case inventory.FactFirmware:
			r.Firmware = vm.Firmware
		case inventory.FactTools:
			r.ToolsRunning = vm.ToolsRunning
		case inventory.FactTracking:
			r.ChangeTracking = vm.ChangeTracking
		}
	}
	return r
}

func mixedFleet(vcenter bool, n int) lab.Config {
	cfg := fleetConfig(vcenter, n)
	for i := range cfg.VMs {
		vm := &cfg.VMs[i]
		vm.PoweredOn, vm.Guest.NoTools, vm.ChangeTracking = i%3 == 0, i%2 == 1, i%2 == 0
		vm.CPUs, vm.MemoryMB, vm.GuestID = int32(1+i%4), 512<<(i%3), []string{"debian12_64Guest", "windows9_64Guest"}[i%2]
		vm.Firmware = []string{"bios", "efi"}[i/2%2]
	}
	return cfg
}

// The roll says of each VM what its description does, of what was asked for; what its disks take
// is part of what all of its files do.
func TestRollSaysWhatDescriptionsDo(t *testing.T) {
	for _, vcenter := range []bool{false, true} {
		s := startLab(t, mixedFleet(vcenter, 40)).dial(t)
		all, err := s.VMs(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		for i := range len(allFacts) + 1 {
			facts := allFacts[:i]
			roll, _ := rollOf(t, s, facts...)
			for k, vm := range roll {
				want := onRoll(all[k], facts...)
				want.Used = max(vm.Used, all[k].Used)
				if fmt.Sprintf("%+v", vm) != fmt.Sprintf("%+v", want) || vm.HostName == "" {
					t.Fatalf("vcenter %v, facts %v:\non the roll %+v\nit is        %+v", vcenter, facts, vm, want)
				}
			}
			if len(roll) != len(all) {
				t.Errorf("%d VMs on the roll of %d", len(roll), len(all))
			}
		}
	}
}

// All facts differ from VM to VM, or the test above would see no difference.
func TestMixedFleetIsMixed(t *testing.T) {
	s := startLab(t, mixedFleet(true, 40)).dial(t)
	roll, _ := rollOf(t, s, allFacts...)
	for _, f := range allFacts[1:] {
		seen := map[string]bool{}
		for _, vm := range roll {
			kept := onRoll(vm, f)
			kept.Ref, kept.Name, kept.UUID, kept.InstanceUUID, kept.Host, kept.HostName, kept.VMX, kept.Template = "", "", "", "", "", "", inventory.Path{}, false
			seen[fmt.Sprintf("%+v", kept)] = true
		}
		if len(seen) < 2 {
			t.Errorf("%s is the same of all VMs", f)
		}
	}
}

// A large inventory comes in pages, and whoever has enough of them ends it. Those that are asked for are on the roll as
// they are on that of all, in that order. A session that ends between two pages takes the rest of the answer with it: the
// roll fails for a reason that passes, and is whole when it is asked for again.
func TestRollOfALargeInventory(t *testing.T) {
	if testing.Short() {
		t.Skip("takes more than a second")
	}
	r := startLab(t, mixedFleet(true, 620)) // one for all, as it takes seconds to create
	s := r.dial(t)
	roll, pages := rollOf(t, s, inventory.FactPower)
	if len(roll) != 620 || !slices.Equal(pages, []int{500, 120}) {
		t.Errorf("%d VMs in pages of %v", len(roll), pages)
	}
	enough := errors.New("enough")
	told := 0
	err := s.ListVMs(context.Background(), nil, func([]inventory.VM) error {
		told++
		return enough
	})
	if !errors.Is(err, enough) || told != 1 {
		t.Errorf("a roll that is ended by its reader: %v after %d pages", err, told)
	}

	want := roll[:520]
	var some []inventory.VM
	told = 0
	err = s.ListSelected(context.Background(), slices.Insert(refs(want), 3, "vm-gone"), []inventory.Fact{inventory.FactPower}, func(vms []inventory.VM) error {
		told, some = told+1, append(some, vms...)
		return nil
	})
	if err != nil || told != 2 || !reflect.DeepEqual(some, want) {
		t.Errorf("%d of %d VMs in %d pages, %v; not those of the roll", len(some), len(want), told, err)
	}

	kill := r.KillSessions
	err = s.ListVMs(context.Background(), nil, func([]inventory.VM) error {
		kill()
		kill = func() {}
		return nil
	})
	if err != nil && !fault.Is(err, fault.Transient) {
		t.Errorf("a roll of a session that ended: %v", err)
	}
	if again, _ := rollOf(t, s); len(again) != 620 {
		t.Errorf("%d VMs on the next roll", len(again))
	}
}

// Time to the first page and to all, of as many VMs as a large vCenter has.
func BenchmarkRoll(b *testing.B) {
	s := startLab(b, fleetConfig(true, 10000)).dial(b)
	for b.Loop() {
		first, began := time.Duration(0), time.Now()
		err := s.ListVMs(b.Context(), nil, func([]inventory.VM) error {
			if first == 0 {
				first = time.Since(began)
			}
			return nil
		})
		if err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(first.Seconds(), "s/first")
	}
}
