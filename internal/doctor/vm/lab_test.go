package vm_test

import (
	"context"
	"net/url"
	"testing"

	"github.com/decamp/decamp/internal/doctor/vm"
	"github.com/decamp/decamp/internal/esx"
	"github.com/decamp/decamp/internal/lab"
)

// The checks find each problem of the VMs of a lab, and none of a good VM.
func TestVMsOfAHost(t *testing.T) {
	disk := lab.Disk{Capacity: 1 << 20}
	l, err := lab.Start(context.Background(), lab.Config{VMs: []lab.VM{
		{Name: "good", Disks: []lab.Disk{disk}, NICs: []lab.NIC{{}}},
		{
			Name: "bad", PoweredOn: true, GuestID: "windows9_64Guest", Firmware: "efi", SecureBoot: true, TPM: true, Snapshots: []string{"old"},
			Disks:   []lab.Disk{disk, {Capacity: 1 << 20, Mode: "independent_persistent"}, {Capacity: 1 << 20, RDM: "physicalMode"}, {Capacity: 1 << 20, Controller: "buslogic", Bus: 1}},
			Devices: []string{"floppy", "serial", "parallel", "usb", "pci"}, KeyID: "k",
			NICs:  []lab.NIC{{MAC: "00:50:56:00:00:01"}, {MAC: "00:50:56:00:00:01"}},
			Guest: lab.Guest{Volumes: []lab.Volume{{Path: "/boot", Capacity: 1 << 30, Free: 1 << 20}}},
		},
		{Name: "cluster", Disks: []lab.Disk{{Capacity: 1 << 20, Sharing: "sharingMultiWriter"}}},
		{Name: "twin", Disks: []lab.Disk{disk}, NICs: []lab.NIC{{MAC: "00:50:56:00:00:01"}}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	s, err := esx.Dial(t.Context(), esx.Config{
		URL:         &url.URL{Scheme: "esxi", User: url.User(l.User()), Host: l.Addr()},
		Password:    func(context.Context) (esx.Secret, error) { return esx.Secret(l.Password()), nil },
		Fingerprint: l.Fingerprint(),
	})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	all, err := s.VMs(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]int{
		"vm-state": 1, "vm-snapshots": 1, "vm-disks": 1, "vm-independent": 1, "vm-shared": 1, "vm-encrypted": 1, "vm-controller": 1,
		"vm-secure-boot": 1, "vm-device": 5, "vm-bitlocker": 1, "vm-fast-startup": 1, "vm-guest-space": 1, "vm-mac": 2,
	}
	for code, found := range examine(t, vm.Options{Source: s, VMs: all, All: all}) {
		if len(found) != want[code] {
			t.Errorf("%s: got %d findings, want %d: %+v", code, len(found), want[code], found)
		}
		delete(want, code)
		for _, f := range found {
			if f.On == "VM good" {
				t.Errorf("a good VM: got finding %+v", f)
			}
		}
	}
	if len(want) > 0 {
		t.Errorf("not found: %v", want)
	}
	if warm := examine(t, vm.Options{VMs: all, Warm: true})["vm-warm"]; len(warm) != 1 || warm[0].On != "VM bad" {
		t.Errorf("warm: got findings %+v", warm)
	}
}
