package esx_test

import (
	"context"
	"strings"
	"testing"

	"github.com/decamp/decamp/internal/esx"
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/inventory"
)

// dialNamesakes dials a vCenter where the name of a VM equals the reference of another VM.
func dialNamesakes(t *testing.T) (s *esx.Session, twin string) {
	t.Helper()
	cfg := fleetConfig(true, 6)
	cfg.VMs[2].Folder = "a"
	before, err := startLab(t, cfg).dial(t).VMs(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	twin = string(before[3].Ref) // the next lab assigns the same references
	cfg.VMs[2].Name = twin
	return startLab(t, cfg).dial(t), twin
}

// The index of Names finds the same VM for each word as the index of complete descriptions, or returns
// the same error.
func TestNameIndexMatchesFullInventory(t *testing.T) {
	s, twin := dialNamesakes(t)
	vms, err := s.VMs(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	words := []string{"a/" + twin, "/a/" + twin, "b/" + twin, "nothing", "web/9%", ""}
	for _, vm := range vms {
		words = append(words, vm.Name, string(vm.Ref), vm.UUID, vm.InstanceUUID)
	}
	whole := esx.NewIndex(vms)
	if _, err := whole.Find(twin); !fault.Is(err, fault.Conflict) {
		t.Fatalf("%s must match two VMs: %v", twin, err)
	}
	for _, word := range words {
		names, err := s.Names(context.Background(), []string{word})
		if err != nil {
			t.Fatal(err)
		}
		if got, want := formatFound(names.Find(word)), formatFound(whole.Find(word)); got != want {
			t.Errorf("%q: got %s, want %s", word, got, want)
		}
	}
}

// formatFound returns the reference or the error of a Find.
func formatFound(vm *inventory.VM, err error) string {
	if err != nil {
		return err.Error()
	}
	return string(vm.Ref)
}

// Names reads only the properties that its words may match, since each property of thousands of VMs takes time.
func TestNamesReadOnlyNeededProperties(t *testing.T) {
	s, twin := dialNamesakes(t)
	for word, want := range map[string]string{
		"web/0%": "places", "nothing": "", "42200b7e-5d1c-4c1f-9a55-000000000000": "UUIDs", twin: "UUIDs places",
	} {
		names, err := s.Names(context.Background(), []string{word})
		if err != nil {
			t.Fatal(err)
		}
		vm, err := names.Find(string(names.Refs()[5]))
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		if vm.UUID != "" && vm.InstanceUUID != "" {
			got = append(got, "UUIDs")
		}
		if vm.Datacenter != "" {
			got = append(got, "places")
		}
		if strings.Join(got, " ") != want || vm.Name == "" || vm.HostName != "" {
			t.Errorf("%q: got %q, want %q; %+v", word, got, want, vm)
		}
	}
}
