package fleet

import (
	"testing"
	"time"

	"github.com/decamp/decamp/internal/fleet/admission"
	"github.com/decamp/decamp/internal/fleetdb"
)

// The status reports a granted transfer without news. A VM between its rounds has no transfer, and so needs no news.
func TestStatusReportsSilentTransfers(t *testing.T) {
	at := time.Date(2026, 11, 22, 10, 4, 5, 0, time.UTC)
	granted := fleetdb.VM{Key: fleetdb.Key{Plan: "wave", VM: "vm-1"}, State: fleetdb.Running, Granted: true}
	waiting, done := granted, granted
	waiting.Granted, done.State = false, fleetdb.Done
	silent := []fleetdb.Progress{{Key: granted.Key, Total: 10, Done: 4, Silent: true, At: at}}
	active := []fleetdb.Progress{{Key: granted.Key, Total: 10, Done: 4, Rate: 7, At: at}}
	for _, c := range []struct {
		name     string
		vm       fleetdb.VM
		progress []fleetdb.Progress
		reason   string
		rate     int64
	}{
		{"active transfer", granted, active, "", 7},
		{"silent transfer", granted, silent, "no progress since 10:04:05 UTC", 0},
		{"waiting VM", waiting, silent, "", 0},
		{"VM that is done", done, silent, "", 0},
		{"transfer without progress", granted, nil, "", 0},
	} {
		s := StatusOf(fleetdb.Plan{Name: "wave"}, []fleetdb.VM{c.vm}, c.progress, admission.Snapshot{})
		if s.VMs[0].Reason != c.reason || s.Rate != c.rate {
			t.Errorf("%s: reason %q at %d bytes/s, want %q at %d", c.name, s.VMs[0].Reason, s.Rate, c.reason, c.rate)
		}
	}
}

// The remaining time counts only allocated bytes, unless the transport also reads the others.
func TestRemainingTimeCountsBytesToRead(t *testing.T) {
	const gib = 1 << 30
	vm := fleetdb.VM{Key: fleetdb.Key{Plan: "wave", VM: "vm-1"}, State: fleetdb.Running, Bytes: 40 * gib}
	for _, c := range []struct {
		name     string
		progress fleetdb.Progress
		left     time.Duration
	}{
		{"not started", fleetdb.Progress{Total: 100 * gib, Rate: gib}, 40 * time.Second},
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
