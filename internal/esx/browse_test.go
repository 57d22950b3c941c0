package esx_test

import (
	"path"
	"slices"
	"testing"

	"github.com/decamp/decamp/internal/esx"
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/lab"
)

func TestBrowsingTheLab(t *testing.T) {
	for name, cfg := range map[string]lab.Config{
		"esxi":    {Datastores: []lab.Datastore{{Name: "a 50% & b"}}},
		"vcenter": {VCenter: true, Datacenters: []lab.Datacenter{{Name: "DC / 1", Folder: "Europa & co", Hosts: []string{"esx1.lab"}}}, Datastores: []lab.Datastore{{Name: "a 50% & b"}}},
	} {
		t.Run(name, func(t *testing.T) {
			for _, vm := range oddNames() {
				cfg.VMs = append(cfg.VMs, lab.VM{Name: vm, Disks: []lab.Disk{{Capacity: 3 << 20, Fill: 10}}})
			}
			s := startLab(t, cfg).dial(t)
			vms, err := s.VMs(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			for _, vm := range vms {
				browseVM(t, s, &vm)
			}
		})
	}
}

// browseVM finds the VM's folder in the root of its datastore, and its disk in the folder.
func browseVM(t *testing.T, s *esx.Session, vm *inventory.VM) {
	t.Helper()
	file := flatFile(vm.Disks[0].Path)
	folder := inventory.Path{Datastore: file.Datastore, File: path.Dir(file.File)}
	root := inventory.Path{Datastore: file.Datastore}
	for at, want := range map[inventory.Path]inventory.File{
		root:   {Name: folder.File, Folder: true},
		folder: {Name: path.Base(file.File)},
	} {
		list, err := s.List(t.Context(), vm.Datacenter, at)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Contains(list, want) {
			t.Errorf("%v: got %+v, want %+v in it", at, list, want)
		}
	}
	for at, want := range map[inventory.Path]inventory.File{root: {Folder: true}, folder: {Folder: true}, file: {Size: 3 << 20}} {
		if got, err := s.Stat(t.Context(), vm.Datacenter, at); err != nil || got != want {
			t.Errorf("%v is %+v (%v), want %+v", at, got, err, want)
		}
	}
	if _, err := s.List(t.Context(), vm.Datacenter, file); !fault.Is(err, fault.Invalid) {
		t.Errorf("listing a file: %v", err)
	}
	file.File += ".none"
	if _, err := s.Stat(t.Context(), vm.Datacenter, file); !fault.Is(err, fault.NotFound) {
		t.Errorf("a missing file: %v", err)
	}
}
