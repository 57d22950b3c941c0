package fleet

import (
	"encoding/json"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/decamp/decamp/internal/fleetdb"
	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/journal"
	"github.com/decamp/decamp/internal/lab"
	"github.com/decamp/decamp/internal/testboot"
	"github.com/decamp/decamp/test/guest"
	"github.com/decamp/decamp/test/lane"
)

// up is the text of the test guest on its serial port after it has booted.
const up = guest.Marker

// A warm VM of a worker is rehearsed by a user without its state directory, with a token of the server. It boots
// during the rounds. Other requests, meanwhile or later, fail with the reason.
func TestVMIsRehearsedThroughTheServer(t *testing.T) {
	t.Parallel()
	image, hardware := guest.BootSector(t, 30*time.Second), "auto" // it boots until other requests were refused
	if lane.Slow {
		image, hardware = guest.Image(t, guest.NoVirtio), "virtio"
	}
	r := newFleet(t, lab.Config{VMs: []lab.VM{
		{Name: "web01", MemoryMB: 256, PoweredOn: true, NICs: []lab.NIC{{Model: "vmxnet3"}}, Disks: []lab.Disk{{File: image, Controller: "pvscsi"}}},
		{Name: "vm01", Disks: []lab.Disk{{Capacity: 8 << 20, Fill: 50, Seed: 1}}},
	}})
	s := r.serve("127.0.0.1:0")
	r.submits(r.plan("wave", "defaults: {to: [dir:"+r.vms()+"]}\nvms:\n  - {vm: web01, mode: warm, transport: nfc, hardware: "+hardware+", warm: {interval: 1s}}\n  - {vm: vm01}\n"))
	asks := func(args ...string) *process {
		return start(t, r.commandIn(filepath.Join(r.dir, "elsewhere"), append(args, s.flags()...)...))
	}
	r.until("wave", "its VMs are listed", func(v view) bool { return len(v.vms) == 2 })
	asks("rehearse", "wave/web01").ends(6).says("no worker executes it", "Remedy: ")
	asks("rehearse", "wave/vm01").ends(6).says("is not moved warm", "Remedy: ")
	a := r.worker("a", r.vms())
	v := r.until("wave", "web01 has begun", func(v view) bool { return len(v.vms["web01"].Runs) > 0 })
	run := journal.ID(v.vms["web01"].Runs[0])
	a.rehearsal(run, "a round is done", func(events []journal.Event) bool {
		return slices.ContainsFunc(events, func(e journal.Event) bool { return e.Kind == journal.StepStarted && e.Step == "wait" })
	})

	first := asks("rehearse", "wave/web01", "--expect", up, "--json")
	a.rehearsal(run, "it boots", func(events []journal.Event) bool { return booting(events) >= 0 })
	asks("rehearse", "wave/web01").ends(6).says("is being rehearsed already", "Remedy: ")
	select {
	case <-first.done:
	case <-time.After(20 * time.Minute): // emulated, it is found unclear sooner
		t.Fatal("nobody answers")
	}
	var report struct {
		testboot.Report
		Worker, SerialTail string
	}
	must(t, json.Unmarshal([]byte(first.ends(0).stdout), &report))
	if !report.Booted() || report.Worker != "a" || report.Accel == "" || !strings.Contains(report.SerialTail, up) || !strings.HasPrefix(report.Serial, a.state) {
		t.Errorf("told %+v", report)
	}
	rounds := 0
	a.rehearsal(run, "it has ended", func(events []journal.Event) bool {
		rounds = 0
		for _, e := range events[booting(events):] {
			switch e.Kind {
			case journal.RoundDone:
				rounds++
			case journal.RehearsalDone:
				return true
			}
		}
		return false
	})
	if rounds == 0 {
		t.Error("no round was done meanwhile")
	}
	if vm := r.until("wave", "answered", func(view) bool { return true }).vms["web01"]; vm.Rehearse != nil || vm.State != fleetdb.Running {
		t.Errorf("it is %s, and asked still: %+v", vm.State, vm.Rehearse)
	}

	s.asks("cutover", "wave/web01").ends(0)
	r.until("wave", "published", func(v view) bool { return v.count(fleetdb.Done) == 2 })
	asks("rehearse", "wave/web01").ends(6).says("is done", "decamp trial")
	r.run("verify", filepath.Join(r.vms(), "web01")).ends(0)
	r.asFound(inventory.PoweredOff, "web01")
}

// rehearsal waits until so returns true for the events of the worker's run.
func (m *machine) rehearsal(run journal.ID, what string, so func([]journal.Event) bool) {
	m.t.Helper()
	store := journal.NewStore(m.state)
	eventually(m.t, what, func() bool {
		events, err := store.Events(run)
		return err == nil && so(events)
	})
}

// booting returns the index of the event before the boot; -1 if there is none.
func booting(events []journal.Event) int {
	for i, e := range events {
		if e.Kind == journal.Noted && strings.Contains(e.Message, "the VM boots from its images") {
			return i
		}
	}
	return -1
}
