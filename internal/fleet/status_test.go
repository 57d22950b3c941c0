package fleet

import (
	"testing"
	"time"

	"github.com/decamp/decamp/internal/fleet/admission"
	"github.com/decamp/decamp/internal/fleetdb"
)

// A transfer that nobody tells of is no transfer that goes on: what holds its turn says so. A VM
// between its rounds holds none, and has nothing to tell.
func TestSilenceIsTold(t *testing.T) {
	at := time.Date(2026, 11, 22, 10, 4, 5, 0, time.UTC)
	holds := fleetdb.VM{Key: fleetdb.Key{Plan: "wave", VM: "vm-1"}, State: fleetdb.Running, Granted: true}
	waits, over := holds, holds
	waits.Granted, over.State = false, fleetdb.Done
	silent := []fleetdb.Progress{{Key: holds.Key, Total: 10, Done: 4, Silent: true, At: at}}
	lively := []fleetdb.Progress{{Key: holds.Key, Total: 10, Done: 4, Rate: 7, At: at}}
	for _, c := range []struct {
		what     string
		vm       fleetdb.VM
		progress []fleetdb.Progress
		why      string
		rate     int64
	}{
		{"goes on", holds, lively, "", 7},
		{"says nothing", holds, silent, "no progress since 10:04:05 UTC", 0},
		{"waits", waits, silent, "", 0},
		{"is over", over, silent, "", 0},
		{"was not begun", holds, nil, "", 0},
	} {
		s := StatusOf(fleetdb.Plan{Name: "wave"}, []fleetdb.VM{c.vm}, c.progress, admission.Snapshot{})
		if s.VMs[0].Reason != c.why || s.Rate != c.rate {
			t.Errorf("one that %s: %q, %d bytes a second", c.what, s.VMs[0].Reason, s.Rate)
		}
	}
}

// The remaining time counts allocated bytes, unless the transport reads the others, too.
func TestRemainingTimeCountsWhatIsRead(t *testing.T) {
	const gib = 1 << 30
	vm := fleetdb.VM{Key: fleetdb.Key{Plan: "wave", VM: "vm-1"}, State: fleetdb.Running, Bytes: 40 * gib}
	for _, c := range []struct {
		name     string
		progress fleetdb.Progress
		left     time.Duration
	}{
		{"not begun", fleetdb.Progress{Total: 100 * gib, Rate: gib}, 40 * time.Second},
		{"zeros are skipped", fleetdb.Progress{Total: 100 * gib, Done: 50 * gib, Read: 20 * gib, Rate: gib}, 20 * time.Second},
		{"zeros are read", fleetdb.Progress{Total: 100 * gib, Done: 50 * gib, Read: 50 * gib, Rate: gib}, 50 * time.Second},
		{"verified", fleetdb.Progress{Total: 100 * gib, Done: 75 * gib, Read: 40 * gib, Reread: gib}, 25 * time.Second},
		{"rate unknown", fleetdb.Progress{Total: 100 * gib, Done: 75 * gib, Read: 40 * gib}, 0},
	} {
		c.progress.Key = vm.Key
		s := StatusOf(fleetdb.Plan{Name: "wave"}, []fleetdb.VM{vm}, []fleetdb.Progress{c.progress}, admission.Snapshot{})
		if got := s.VMs[0].Left(); got != c.left {
			t.Errorf("%s: %v left, want %v", c.name, got, c.left)
		}
	}
}
