package main

import (
	"os"
	"path/filepath"
	"strings"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/lab"
)

// labConfig returns the configuration of the file, changed by the flags. Without VMs in either it has
// defaultVMs.
func (o *options) labConfig() (cfg lab.Config, err error) {
	if o.config != "" {
		if cfg, err = lab.LoadConfig(o.config); err != nil {
			return cfg, fault.Wrap(fault.Invalid, err)
		}
	}
	setIfGiven(&cfg.Addr, o.listen)
	setIfGiven(&cfg.VCenter, o.vcenter)
	setIfGiven(&cfg.Limits.ConnRate, lab.Bytes(o.connRate))
	setIfGiven(&cfg.Limits.DatastoreRate, lab.Bytes(o.datastoreRate))
	setIfGiven(&cfg.Limits.Latency, lab.Duration(o.latency))
	// fixed ports, so that commands of the documentation can be copied
	if cfg.Addr == "" {
		cfg.Addr = "127.0.0.1:8443"
		if cfg.SSH.Addr == "" {
			cfg.SSH.Addr = "127.0.0.1:8022" // listened on when SSH is started
		}
	}
	if err := addDisks(&cfg, o.disks); err != nil {
		return cfg, err
	}
	if len(cfg.VMs) == 0 {
		cfg.VMs = defaultVMs()
	}
	return cfg, nil
}

// setIfGiven sets v to the value of a flag, unless that is the zero value.
func setIfGiven[T comparable](v *T, flag T) {
	var none T
	if flag != none {
		*v = flag
	}
}

// addDisks adds a disk for each NAME=FILE to the VM of that name. It fails if a file does not exist.
func addDisks(cfg *lab.Config, disks []string) error {
	for _, d := range disks {
		name, file, ok := strings.Cut(d, "=")
		if !ok || name == "" || file == "" {
			return fault.New(fault.Invalid, "--disk %s: want NAME=FILE", d)
		}
		// the printed configuration must be valid in any working directory
		file, err := filepath.Abs(file)
		if err != nil {
			return err
		}
		if _, err := os.Stat(file); err != nil {
			return fault.New(fault.Invalid, "--disk %s: %w", d, err)
		}
		vm := labVM(cfg, name)
		vm.Disks = append(vm.Disks, lab.Disk{File: file})
	}
	return nil
}

// labVM returns the VM of that name, and adds it if necessary. The pointer is valid until the next
// call.
func labVM(cfg *lab.Config, name string) *lab.VM {
	for i := range cfg.VMs {
		if cfg.VMs[i].Name == name {
			return &cfg.VMs[i]
		}
	}
	cfg.VMs = append(cfg.VMs, lab.VM{Name: name, ChangeTracking: true, NICs: []lab.NIC{{}}})
	return &cfg.VMs[len(cfg.VMs)-1]
}

// defaultVMs returns the VMs of an emulator without a configuration: one that decamp migrates without
// options, one with several disks, a running one, and one with a snapshot.
func defaultVMs() []lab.VM {
	return []lab.VM{
		{Name: "web01", ChangeTracking: true, CPUs: 2, MemoryMB: 2048, NICs: []lab.NIC{{}},
			Disks: []lab.Disk{{Capacity: 2 << 30, Fill: 30, Seed: 1}}},
		{Name: "Files & Büro", Firmware: "efi", CPUs: 4, MemoryMB: 8192, NICs: []lab.NIC{{}, {Model: "e1000e"}},
			Disks: []lab.Disk{{Capacity: 4 << 30, Fill: 20, Seed: 2}, {Capacity: 16 << 30, Fill: 5, Seed: 3}}},
		{Name: "db01", PoweredOn: true, CPUs: 8, MemoryMB: 16384, NICs: []lab.NIC{{}},
			Disks: []lab.Disk{{Capacity: 8 << 30, Fill: 40, Seed: 4, Thick: true}}},
		{Name: "old01", Snapshots: []string{"before update"}, NICs: []lab.NIC{{Model: "e1000"}},
			Disks: []lab.Disk{{Capacity: 1 << 30, Fill: 50, Seed: 5, Controller: "lsilogic"}}},
	}
}
