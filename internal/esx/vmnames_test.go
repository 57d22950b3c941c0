package esx_test

import (
	"context"
	"strings"
	"testing"

	"github.com/decamp/decamp/internal/esx"
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/inventory"
)

// namesakes is a session of a vCenter where a VM is called like another one's reference.
func namesakes(t *testing.T) (s *esx.Session, twin string) {
	t.Helper()
	cfg := fleetConfig(true, 6)
	cfg.VMs[2].Folder = "a"
	before, err := startLab(t, cfg).dial(t).VMs(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	twin = string(before[3].Ref) // as it is in the next one
	cfg.VMs[2].Name = twin
	return startLab(t, cfg).dial(t), twin
}

// Whatever VMs are called by, it is found among names as it is among descriptions, or missed with
// the same words.
func TestNamesFindWhatDescriptionsDo(t *testing.T) {
	s, twin := namesakes(t)
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
		t.Fatalf("%s is to be two: %v", twin, err)
	}
	for _, word := range words {
		names, err := s.Names(context.Background(), []string{word})
		if err != nil {
			t.Fatal(err)
		}
		if got, want := answer(names.Find(word)), answer(whole.Find(word)); got != want {
			t.Errorf("%q is %s, want %s", word, got, want)
		}
	}
}

// answer is what a Find gave, in words.
func answer(vm *inventory.VM, err error) string {
	if err != nil {
		return err.Error()
	}
	return string(vm.Ref)
}

// Only what a word may be is asked for: of thousands each leaf takes its time.
func TestNamesAskForNoMoreThanTheWordsNeed(t *testing.T) {
	s, twin := namesakes(t)
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
			t.Errorf("for %q: %q, want %q; %+v", word, got, want, vm)
		}
	}
}
