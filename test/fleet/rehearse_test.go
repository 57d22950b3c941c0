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

// A user with a token of the server rehearses a warm VM of a worker, without access to its state directory. The VM
// boots during the rounds. Other requests during and after the rehearsal fail with the reason.
func TestVMIsRehearsedThroughTheServer(t *testing.T) {
	t.Parallel()
	image, hardware := guest.BootSector(t, 30*time.Second), "auto" // the boot lasts until the other requests are refused
	if lane.Slow {
		image, hardware = guest.Image(t, guest.NoVirtio), "virtio"
	}
	r := newPostgresEnv(t, lab.Config{VMs: []lab.VM{
		{Name: "web01", MemoryMB: 256, PoweredOn: true, NICs: []lab.NIC{{Model: "vmxnet3"}}, Disks: []lab.Disk{{File: image, Controller: "pvscsi"}}},
		{Name: "vm01", Disks: []lab.Disk{{Capacity: 8 << 20, Fill: 50, Seed: 1}}},
	}})
	s := r.startServer("127.0.0.1:0")
	r.submitPlan(r.writePlan("wave", "defaults: {to: [dir:"+r.vmFolder()+"]}\nvms:\n  - {vm: web01, mode: warm, transport: nfc, hardware: "+hardware+", warm: {interval: 1s}}\n  - {vm: vm01}\n"))
	startClient := func(args ...string) *process {
		return startProcess(t, r.commandIn(filepath.Join(r.dir, "elsewhere"), append(args, s.flags()...)...))
	}
	r.waitFor("wave", "its VMs are listed", func(v view) bool { return len(v.vms) == 2 })
	startClient("rehearse", "wave/web01").wantExit(6).wantOutput("no worker executes it", "Remedy: ")
	startClient("rehearse", "wave/vm01").wantExit(6).wantOutput("is not moved warm", "Remedy: ")
	a := r.startWorker("a", r.vmFolder())
	v := r.waitFor("wave", "web01 has begun", func(v view) bool { return len(v.vms["web01"].Runs) > 0 })
	run := journal.ID(v.vms["web01"].Runs[0])
	a.waitForEvents(run, "a round is done", func(events []journal.Event) bool {
		return slices.ContainsFunc(events, func(e journal.Event) bool { return e.Kind == journal.StepStarted && e.Step == "wait" })
	})

	first := startClient("rehearse", "wave/web01", "--expect", up, "--json")
	a.waitForEvents(run, "the VM boots", func(events []journal.Event) bool { return bootIndex(events) >= 0 })
	startClient("rehearse", "wave/web01").wantExit(6).wantOutput("is being rehearsed already", "Remedy: ")
	select {
	case <-first.done:
	case <-time.After(20 * time.Minute): // longer than an emulated boot, whose result is unclear
		t.Fatal("the rehearsal did not end in time")
	}
	var report struct {
		testboot.Report
		Worker, SerialTail string
	}
	must(t, json.Unmarshal([]byte(first.wantExit(0).stdout), &report))
	if !report.Booted() || report.Worker != "a" || report.Accel == "" || !strings.Contains(report.SerialTail, up) || !strings.HasPrefix(report.Serial, a.state) {
		t.Errorf("the report is %+v", report)
	}
	rounds := 0
	a.waitForEvents(run, "the rehearsal has ended", func(events []journal.Event) bool {
		rounds = 0
		for _, e := range events[bootIndex(events):] {
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
		t.Error("no round was done during the rehearsal")
	}
	if vm := r.waitFor("wave", "answered", func(view) bool { return true }).vms["web01"]; vm.Rehearse != nil || vm.State != fleetdb.Running {
		t.Errorf("web01 is %s with the requested rehearsal %+v, want running without one", vm.State, vm.Rehearse)
	}

	s.runClient("cutover", "wave/web01").wantExit(0)
	r.waitFor("wave", "published", func(v view) bool { return v.count(fleetdb.Done) == 2 })
	startClient("rehearse", "wave/web01").wantExit(6).wantOutput("is done", "decamp trial")
	r.run("verify", filepath.Join(r.vmFolder(), "web01")).wantExit(0)
	r.checkSourceClean(inventory.PoweredOff, "web01")
}

// waitForEvents waits until cond returns true for the events of the worker's run.
func (m *machine) waitForEvents(run journal.ID, what string, cond func([]journal.Event) bool) {
	m.t.Helper()
	store := journal.NewStore(m.state)
	eventually(m.t, what, func() bool {
		events, err := store.Events(run)
		return err == nil && cond(events)
	})
}

// bootIndex returns the index of the event before the boot, or -1.
func bootIndex(events []journal.Event) int {
	for i, e := range events {
		if e.Kind == journal.Noted && strings.Contains(e.Message, "the VM boots from its images") {
			return i
		}
	}
	return -1
}
