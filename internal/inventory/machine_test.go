package inventory

import "testing"

func TestSerial(t *testing.T) {
	for uuid, want := range map[string]string{
		"564d1234-0000-1111-2222-333344445555": "VMware-56 4d 12 34 00 00 11 11-22 22 33 33 44 44 55 55",
		"":                                     "",
	} {
		if got := (&VM{UUID: uuid}).Serial(); got != want {
			t.Errorf("UUID %q: got %q, want %q", uuid, got, want)
		}
	}
}

func TestTopology(t *testing.T) {
	for vm, want := range map[[2]int][2]int{{8, 4}: {2, 4}, {8, 0}: {8, 1}, {6, 4}: {6, 1}, {1, 1}: {1, 1}} {
		if s, c := (&VM{CPUs: vm[0], CoresPerSocket: vm[1]}).Topology(); s != want[0] || c != want[1] {
			t.Errorf("%d processors, %d per socket: got %d sockets of %d, want %v", vm[0], vm[1], s, c, want)
		}
	}
}
