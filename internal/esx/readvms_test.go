package esx_test

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/lab"
)

func fleetConfig(vcenter bool, n int) lab.Config {
	cfg := lab.Config{VCenter: vcenter}
	for i := range n {
		cfg.VMs = append(cfg.VMs, lab.VM{
			Name: fmt.Sprintf("web/%d%%", i), Disks: []lab.Disk{{Capacity: 1 << 20, Seed: uint64(i)}}, NICs: []lab.NIC{{}},
		})
	}
	return cfg
}

// VMs, EachVM and VMByRef return the same description of a VM.
func TestVMsAreDescribedEqually(t *testing.T) {
	if testing.Short() {
		t.Skip("takes more than a second")
	}
	for vcenter, n := range map[bool]int{false: 160, true: 310} { // more than one page, and more than two pages
		s := startLab(t, fleetConfig(vcenter, n)).dial(t)
		all, err := s.VMs(context.Background())
		if err != nil || len(all) < n {
			t.Fatalf("%d VMs, %v", len(all), err)
		}
		pages, paged := 0, []inventory.VM{}
		err = s.EachVM(context.Background(), slices.Insert(refsOf(all), 155, "vm-gone"), func(vms []inventory.VM) error {
			pages, paged = pages+1, append(paged, vms...)
			return nil
		})
		if err != nil || pages < 1+n/150 || !reflect.DeepEqual(all, paged) {
			t.Errorf("vcenter %v: %d VMs in %d pages, %v; not equal to the VMs in one list", vcenter, len(paged), pages, err)
		}
		for _, want := range []inventory.VM{all[0], all[149], all[len(all)-1]} {
			got, err := s.VMByRef(context.Background(), want.Ref)
			if err != nil || !reflect.DeepEqual(*got, want) {
				t.Errorf("vcenter %v: %v\n%+v, in the list\n%+v", vcenter, err, got, want)
			}
		}
		if _, err := s.VMByRef(context.Background(), "vm-nothing"); !fault.Is(err, fault.NotFound) {
			t.Errorf("a missing VM: %v", err)
		}
	}
}

func refsOf(vms []inventory.VM) []inventory.MoRef {
	var list []inventory.MoRef
	for _, vm := range vms {
		list = append(list, vm.Ref)
	}
	return list
}

// BenchmarkEachVM measures the time to the first page and to all pages, with up to the number of VMs of a large vCenter.
func BenchmarkEachVM(b *testing.B) {
	for _, n := range []int{1000, 10000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			s := startLab(b, fleetConfig(true, n)).dial(b)
			for b.Loop() {
				first, began := time.Duration(0), time.Now()
				listed, _ := listByName(b, s)
				err := s.EachVM(b.Context(), refsOf(listed), func([]inventory.VM) error {
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
		})
	}
}

func BenchmarkVMByRef(b *testing.B) {
	s := startLab(b, fleetConfig(true, 10000)).dial(b)
	vms, err := s.VMs(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if _, err := s.VMByRef(b.Context(), vms[5000].Ref); err != nil {
			b.Fatal(err)
		}
	}
}
