package nfc

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"testing"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/inventory"
)

func TestMemoryOfVersions(t *testing.T) {
	for version, want := range map[string]int64{
		"6.5.0": 48 << 20, "7.0.3": 48 << 20, "8.0.3": 96 << 20, "9.0": 96 << 20, "10.1": 96 << 20, "": 48 << 20, "x": 48 << 20,
	} {
		if got := MemoryOf(version); got != want {
			t.Errorf("%q: %d MiB, want %d", version, got>>20, want>>20)
		}
	}
}

// With 42 units of memory and 4 for each handle, a lone disk may have ten handles. A second disk waits until the first
// has released memory, and then both have five.
func TestMemoryIsShared(t *testing.T) {
	const handle = 4
	m := newMemory(42)
	grow := func(have int64) int64 {
		for m.tryReserve(handle, have) {
			have += handle
		}
		return have
	}
	if err := m.joinDisk(t.Context(), handle); err != nil {
		t.Fatal(err)
	}
	a := grow(handle)
	if a != 40 {
		t.Errorf("a lone disk has %d, want 40", a)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := m.joinDisk(ctx, handle); !errors.Is(err, context.Canceled) {
		t.Errorf("a second disk joined without free memory: error %v, want Canceled", err)
	}
	joined := make(chan error, 1)
	go func() { joined <- m.joinDisk(t.Context(), handle) }()
	for m.disks.Load() < 2 { // wait for the second disk
		runtime.Gosched()
	}
	for m.exceedsShare(a) {
		a -= handle
		m.release(handle)
	}
	if err := <-joined; err != nil {
		t.Fatal(err)
	}
	if b := grow(handle); a != 20 || b != 20 {
		t.Errorf("two disks have %d and %d, want 20 each", a, b)
	}
}

func TestMemoryRefusesTooLargeHandle(t *testing.T) {
	m := newMemory(42)
	if err := m.joinDisk(t.Context(), 43); !fault.Is(err, fault.Invalid) || fault.HintOf(err) == "" {
		t.Errorf("got %v, want Invalid and a hint", err)
	}
}

var testNICs = []inventory.VMkernelNIC{
	{Device: "vmk0", Address: "10.0.0.7", Network: "Management Network"},
	{Device: "vmk1", Address: "10.9.0.7", Network: "Backup", Backup: true},
	{Device: "vmk2", Address: "192.168.3.7", Network: "Storage"},
}

func TestNetworks(t *testing.T) {
	const at, esxi = "vc.example:902", "10.0.0.7:902"
	for _, v := range []struct {
		want  string
		at    string
		named bool
		list  []string
	}{
		{"", esxi, false, []string{"10.9.0.7:902", esxi}},
		{"", esxi, true, []string{esxi}},
		{"vmk2", esxi, false, []string{"192.168.3.7:902"}},
		{"192.168.3.0/24", esxi, true, []string{"192.168.3.7:902"}},
		{"Storage", esxi, true, []string{"192.168.3.7:902"}},
		{"10.9.0.7", at, true, []string{"10.9.0.7:902"}},
	} {
		n, err := chooseNetwork(v.want, testNICs, nil)
		if err != nil {
			t.Fatal(err)
		}
		if got := n.dialAddresses(v.at, v.named); !slices.Equal(got, v.list) {
			t.Errorf("%+v: got addresses %v", v, got)
		}
	}
	if _, err := chooseNetwork("vmk9", testNICs, nil); !fault.Is(err, fault.NotFound) || fault.HintOf(err) == "" {
		t.Errorf("got %v, want NotFound and a hint", err)
	}
	broken := fault.New(fault.Unreachable, "no")
	if _, err := chooseNetwork("vmk1", nil, broken); !fault.Is(err, fault.Unreachable) {
		t.Errorf("got %v, want Unreachable", err)
	}
	if n, err := chooseNetwork("", nil, broken); err != nil || !slices.Equal(n.dialAddresses(esxi, false), []string{esxi}) {
		t.Errorf("network %+v, error %v, want the address %s", n, err, esxi)
	}
}
