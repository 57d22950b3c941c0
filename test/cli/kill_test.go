package cli

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/decamp/decamp/internal/journal"
	"github.com/decamp/decamp/internal/lab"
	"github.com/decamp/decamp/test/lane"
)

// untilEvent reads events until one is of that kind and step.
func (u *under) untilEvent(kind journal.EventKind, step string) journal.Event {
	u.t.Helper()
	for u.events.Scan() {
		var o struct{ Event journal.Event }
		must(u.t, json.Unmarshal(u.events.Bytes(), &o))
		if o.Event.Kind == kind && o.Event.Step == step {
			return o.Event
		}
	}
	_ = u.Wait() // screen is complete after it
	u.t.Fatalf("the migration ended without %s %s: %s", kind, step, u.screen.String())
	return journal.Event{}
}

// fewBytes are disks for tests that copy them dozens of times. The first has two spans of a copy, the second ends
// within a chunk.
func fewBytes() []lab.Disk {
	return []lab.Disk{{Capacity: 20 << 20, Fill: 40, Seed: 1}, {Capacity: 4<<20 + 512, Fill: 80, Seed: 2}}
}

// A moment is an event after which decamp is killed.
type moment struct {
	kind journal.EventKind
	step string
}

func moments() []moment {
	all := []moment{{journal.RunStarted, ""}, {journal.DiskStarted, "copy"}, {journal.DiskDone, "copy"}, {journal.Summarized, "commit"}}
	for _, step := range []string{"preflight", "copy", "detect", "convert", "verify", "commit"} {
		all = append(all, moment{journal.StepStarted, step}, moment{journal.StepDone, step})
	}
	return all
}

func TestKilledAtEveryRecordedStep(t *testing.T) {
	t.Parallel()
	between := []string{"preflight", "detect"}                                 // steps that write nothing
	early := []moment{{journal.RunStarted, ""}, {journal.StepStarted, "copy"}} // as when the first disk starts
	for i, format := range []string{"raw", "qcow2"} {
		for j, m := range moments() {
			next := m.kind == journal.StepDone && m.step != "copy" && m.step != "commit" // as when the next step starts
			if !lane.Slow && ((i+j)%2 > 0 || next || slices.Contains(early, m) || slices.Contains(between, m.step)) {
				continue // others once, with one of the formats
			}
			t.Run(fmt.Sprintf("%s %s %s", format, m.kind, m.step), func(t *testing.T) {
				t.Parallel()
				killedAt(t, m, format)
			})
		}
	}
}

func killedAt(t *testing.T, m moment, format string) {
	cfg := small()
	cfg.VMs[0].PoweredOn, cfg.VMs[0].Disks = true, fewBytes()
	r := newRig(t, cfg).trusting().steps()
	u := r.begin("web01", "--power-off", "--format", format)
	u.untilEvent(m.kind, m.step)
	u.end(syscall.SIGKILL)
	copied := len(r.journaled(journal.StepDone, "copy")) > 0

	r.lab.ResetStats()
	r.migrate("web01", "--power-off", "--format", format, "--spot", "0").ends(0) // what follows counts what is copied
	r.matchesSource(filepath.Join(r.vms(), "web01"), format)
	r.run("verify", filepath.Join(r.vms(), "web01")).ends(0)
	if wire := r.diskBytes(); copied && wire > 0 {
		t.Errorf("copy was done, and %d bytes of disks were read again", wire)
	}
	r.onlyPublished("web01")
}

// journaled returns the events of that kind and step in the only run's journal.
func (r *rig) journaled(kind journal.EventKind, step string) (found []journal.Event) {
	r.t.Helper()
	s := journal.NewStore(r.state())
	runs, err := s.Runs()
	must(r.t, err)
	if len(runs) != 1 {
		r.t.Fatalf("%d runs on record", len(runs))
	}
	events, err := s.Events(runs[0].Plan.ID)
	must(r.t, err)
	for _, e := range events {
		if e.Kind == kind && e.Step == step {
			found = append(found, e)
		}
	}
	return found
}

// diskBytes is how much of the VM's disks the lab has sent.
func (r *rig) diskBytes() (n int64) {
	for path, s := range r.lab.Stats().Paths {
		if strings.HasSuffix(path, "-flat.vmdk") {
			n += s.Bytes
		}
	}
	return n
}

// onlyPublished checks that nothing but the VM's folder is left.
func (r *rig) onlyPublished(name string) {
	r.t.Helper()
	entries, err := os.ReadDir(r.vms())
	must(r.t, err)
	if len(entries) != 1 || entries[0].Name() != name {
		r.t.Errorf("the target holds %v", entries)
	}
}
