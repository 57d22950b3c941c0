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

// allFacts are the facts that ListVMs can return.
var allFacts = []inventory.Fact{inventory.FactListed, inventory.FactPower, inventory.FactGuest, inventory.FactHardware,
	inventory.FactFirmware, inventory.FactTools, inventory.FactTracking}

// listByName returns the VMs of ListVMs, sorted by name, and the size of each page.
func listByName(tb testing.TB, s *esx.Session, facts ...inventory.Fact) (listed []inventory.VM, pages []int) {
	tb.Helper()
	err := s.ListVMs(context.Background(), facts, func(vms []inventory.VM) error {
		listed, pages = append(listed, vms...), append(pages, len(vms))
		return nil
	})
	if err != nil {
		tb.Fatal(err)
	}
	slices.SortFunc(listed, func(a, b inventory.VM) int { return strings.Compare(a.Name, b.Name) })
	return listed, pages
}

// reduceToFacts returns the part of a described VM that ListVMs returns for those facts.
func reduceToFacts(vm inventory.VM, facts ...inventory.Fact) inventory.VM {
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

// ListVMs returns the same values as the description of each VM, for the requested facts. Its
// Used is at least that of the description, since it includes files other than disks.
func TestListedVMsMatchDescribedVMs(t *testing.T) {
	for _, vcenter := range []bool{false, true} {
		s := startLab(t, mixedFleet(vcenter, 40)).dial(t)
		all, err := s.VMs(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		for i := range len(allFacts) + 1 {
			facts := allFacts[:i]
			listed, _ := listByName(t, s, facts...)
			for k, vm := range listed {
				want := reduceToFacts(all[k], facts...)
				want.Used = max(vm.Used, all[k].Used)
				if fmt.Sprintf("%+v", vm) != fmt.Sprintf("%+v", want) || vm.HostName == "" {
					t.Fatalf("vcenter %v, facts %v:\nlisted    %+v\ndescribed %+v", vcenter, facts, vm, want)
				}
			}
			if len(listed) != len(all) {
				t.Errorf("%d VMs are listed, want %d", len(listed), len(all))
			}
		}
	}
}

// Each fact has several values in the fleet. Otherwise the test above could not fail.
func TestMixedFleetHasDifferentFacts(t *testing.T) {
	s := startLab(t, mixedFleet(true, 40)).dial(t)
	listed, _ := listByName(t, s, allFacts...)
	for _, f := range allFacts[1:] {
		seen := map[string]bool{}
		for _, vm := range listed {
			kept := reduceToFacts(vm, f)
			kept.Ref, kept.Name, kept.UUID, kept.InstanceUUID, kept.Host, kept.HostName, kept.VMX, kept.Template = "", "", "", "", "", "", inventory.Path{}, false
			seen[fmt.Sprintf("%+v", kept)] = true
		}
		if len(seen) < 2 {
			t.Errorf("%s has the same value for all VMs", f)
		}
	}
}

// ListVMs returns a large inventory in pages, and ends early if the callback returns an error. ListSelected returns the
// selected VMs in the given order. If the session ends between two pages, the server drops the other pages. ListVMs then
// fails with a transient error, unless it has already read them. The next call returns all VMs.
func TestListLargeInventory(t *testing.T) {
	if testing.Short() {
		t.Skip("takes more than a second")
	}
	r := startLab(t, mixedFleet(true, 620)) // shared by all parts of the test, since it takes seconds to create
	s := r.dial(t)
	listed, pages := listByName(t, s, inventory.FactPower)
	if len(listed) != 620 || !slices.Equal(pages, []int{500, 120}) {
		t.Errorf("%d VMs in pages of %v", len(listed), pages)
	}
	enough := errors.New("enough")
	pageCount := 0
	err := s.ListVMs(context.Background(), nil, func([]inventory.VM) error {
		pageCount++
		return enough
	})
	if !errors.Is(err, enough) || pageCount != 1 {
		t.Errorf("with an error of the callback: %v after %d pages", err, pageCount)
	}

	want := listed[:520]
	var some []inventory.VM
	pageCount = 0
	err = s.ListSelected(context.Background(), slices.Insert(refsOf(want), 3, "vm-gone"), []inventory.Fact{inventory.FactPower}, func(vms []inventory.VM) error {
		pageCount, some = pageCount+1, append(some, vms...)
		return nil
	})
	if err != nil || pageCount != 2 || !reflect.DeepEqual(some, want) {
		t.Errorf("%d of %d VMs in %d pages, %v; not equal to those of ListVMs", len(some), len(want), pageCount, err)
	}

	kill, count := r.KillSessions, 0
	err = s.ListVMs(context.Background(), nil, func(vms []inventory.VM) error {
		kill()
		kill = func() {}
		count += len(vms)
		return nil
	})
	switch {
	case err == nil && count == 620: // the second page was read before the session ended
	case fault.Is(err, fault.Transient) && fault.HintOf(err) == "try again" && count == 500:
	default:
		t.Errorf("after the session ended: %d VMs, %v; want all VMs, or the first page and a transient error", count, err)
	}
	if again, _ := listByName(t, s); len(again) != 620 {
		t.Errorf("%d VMs in the next list", len(again))
	}
}

// BenchmarkListVMs measures the time to the first page and to all pages, with the number of VMs of a large vCenter.
func BenchmarkListVMs(b *testing.B) {
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
