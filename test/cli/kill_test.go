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

// untilEvent reads events until one has that kind and step.
func (u *migration) untilEvent(kind journal.EventKind, step string) journal.Event {
	u.t.Helper()
	for u.events.Scan() {
		var o struct{ Event journal.Event }
		must(u.t, json.Unmarshal(u.events.Bytes(), &o))
		if o.Event.Kind == kind && o.Event.Step == step {
			return o.Event
		}
	}
	_ = u.Wait() // stderr is complete after it
	u.t.Fatalf("the migration ended without %s %s: %s", kind, step, u.stderr.String())
	return journal.Event{}
}

// fewBytes returns disks for tests that copy them dozens of times. The first is copied in two spans. The second ends
// within a chunk.
func fewBytes() []lab.Disk {
	return []lab.Disk{{Capacity: 20 << 20, Fill: 40, Seed: 1}, {Capacity: 4<<20 + 512, Fill: 80, Seed: 2}}
}

// A moment is an event after which decamp is killed.
type moment struct {
	kind journal.EventKind
	step string
}

func killMoments() []moment {
	all := []moment{{journal.RunStarted, ""}, {journal.DiskStarted, "copy"}, {journal.DiskDone, "copy"}, {journal.Summarized, "commit"}}
	for _, step := range []string{"preflight", "copy", "detect", "convert", "verify", "commit"} {
		all = append(all, moment{journal.StepStarted, step}, moment{journal.StepDone, step})
	}
	return all
}

func TestKilledAtEveryRecordedStep(t *testing.T) {
	t.Parallel()
	between := []string{"preflight", "detect"}                                 // steps without writes
	early := []moment{{journal.RunStarted, ""}, {journal.StepStarted, "copy"}} // like the start of the first disk
	for i, format := range []string{"raw", "qcow2"} {
		for j, m := range killMoments() {
			next := m.kind == journal.StepDone && m.step != "copy" && m.step != "commit" // like the start of the next step
			if !lane.Slow && ((i+j)%2 > 0 || next || slices.Contains(early, m) || slices.Contains(between, m.step)) {
				continue // each other moment once, with one of the formats
			}
			t.Run(fmt.Sprintf("%s %s %s", format, m.kind, m.step), func(t *testing.T) {
				t.Parallel()
				testKilledAt(t, m, format)
			})
		}
	}
}

func testKilledAt(t *testing.T, m moment, format string) {
	cfg := smallLab()
	cfg.VMs[0].PoweredOn, cfg.VMs[0].Disks = true, fewBytes()
	r := newRig(t, cfg).withFingerprint().withStepwiseEvents()
	u := r.startMigration("web01", "--power-off", "--format", format)
	u.untilEvent(m.kind, m.step)
	u.endWith(syscall.SIGKILL)
	copied := len(r.journaledEvents(journal.StepDone, "copy")) > 0

	r.lab.ResetStats()
	r.migrate("web01", "--power-off", "--format", format, "--spot", "0").wantExit(0) // a sample would count as copied bytes
	r.compareImages(filepath.Join(r.vmsDir(), "web01"), format)
	r.run("verify", filepath.Join(r.vmsDir(), "web01")).wantExit(0)
	if wire := r.diskBytes(); copied && wire > 0 {
		t.Errorf("%d bytes of disks were read after the step copy was done, want 0", wire)
	}
	r.checkOnlyPublished("web01")
}

// journaledEvents returns the events of that kind and step in the journal of the only run.
func (r *rig) journaledEvents(kind journal.EventKind, step string) (found []journal.Event) {
	r.t.Helper()
	s := journal.NewStore(r.stateDir())
	runs, err := s.Runs()
	must(r.t, err)
	if len(runs) != 1 {
		r.t.Fatalf("%d recorded runs, want 1", len(runs))
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

// diskBytes returns the number of bytes of disks that the lab has sent.
func (r *rig) diskBytes() (n int64) {
	for path, s := range r.lab.Stats().Paths {
		if strings.HasSuffix(path, "-flat.vmdk") {
			n += s.Bytes
		}
	}
	return n
}

// checkOnlyPublished checks that the target contains only the folder of the VM.
func (r *rig) checkOnlyPublished(name string) {
	r.t.Helper()
	entries, err := os.ReadDir(r.vmsDir())
	must(r.t, err)
	if len(entries) != 1 || entries[0].Name() != name {
		r.t.Errorf("the target contains %v, want only %s", entries, name)
	}
}
