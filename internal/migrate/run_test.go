package migrate

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/journal"
	"github.com/decamp/decamp/internal/targets"
)

// unitRun returns a run for a unit test, without a process and a state directory.
func unitRun(p journal.Plan, f Facts, env Environment, permit Permit, o Options) *Run {
	opts := o.withDefaults()
	rec := &Record{Plan: p, Facts: f, events: &events{opts: &opts, runs: &localRuns{}}}
	return newRun(rec, &localRun{rig: env, permit: permit, turn: &TransferSlot{}}, journal.NewStore(""), &opts)
}

func TestWarningsAreReportedOnce(t *testing.T) {
	t.Parallel()
	w := inventory.Warning{Code: "running", Text: "the VM is powered on", Remedy: "shut it down first", Blocks: true}
	err := unitRun(journal.Plan{}, Facts{}, Environment{}, Permit{}, Options{}).VM.Refuse(&inventory.VM{Name: "x", Power: inventory.PoweredOn, Warnings: []inventory.Warning{w}}, Permit{})
	if strings.Count(err.Error(), "powered on") != 1 {
		t.Fatal(err)
	}
	if remedy := fault.HintOf(err); !strings.Contains(remedy, "--power-off") || !strings.Contains(remedy, "powerOff: guest") {
		t.Errorf("the remedy %q does not name the options to power the VM off", remedy)
	}
}

// Only consecutive failures without a new chunk count as attempts: a copy of several days over a bad network fails more
// often than a step without progress is retried.
func TestRetryCountRestartsWithEachNewChunk(t *testing.T) {
	t.Parallel()
	r := unitRun(journal.Plan{}, Facts{}, Environment{}, Permit{}, Options{Attempts: 3, Sleep: func(ctx context.Context, _ time.Duration) error { return ctx.Err() }})
	reset := fault.New(fault.Transient, "connection reset")
	for _, tc := range []struct {
		progress func(call int) bool // reports whether the call copied a chunk
		calls    int                 // expected number of calls
	}{
		{func(int) bool { return false }, 3},
		{func(call int) bool { return call <= 10 }, 12},
		{func(call int) bool { return call%2 == 0 }, 20}, // the last call succeeds
	} {
		calls := 0
		err := r.Retry.Do(t.Context(), 0, func() (bool, error) {
			if calls++; calls == 20 {
				return true, nil
			}
			return tc.progress(calls), reset
		})
		if calls != tc.calls || (err == nil) != (calls == 20) {
			t.Errorf("%d calls, want %d; %v", calls, tc.calls, err)
		}
	}
}

func TestCommitRefusesUnverifiedImages(t *testing.T) {
	t.Parallel()
	img := targets.Image{Key: 2000, Root: "abc"}
	for name, f := range map[string]Facts{
		"nothing":      {},
		"not verified": {Images: []targets.Image{img}},
		"another root": {Images: []targets.Image{img}, Verified: []Verified{{Key: 2000, Root: "abd"}}},
		"no root":      {Images: []targets.Image{{Key: 2000}}, Verified: []Verified{{Key: 2000}}},
	} {
		f.VM = &inventory.VM{}
		if err := (commitStep{}).Run(t.Context(), unitRun(journal.Plan{}, f, Environment{}, Permit{}, Options{})); err == nil {
			t.Errorf("%s: published", name)
		}
	}
}

func TestInspectedVMExpires(t *testing.T) {
	var s seenVM
	now := time.Now()
	if s.recentVM(now) != nil {
		t.Error("a VM is known before it was read")
	}
	vm := &inventory.VM{}
	s.setVM(vm, now)
	for age, recent := range map[time.Duration]bool{0: true, recentAge: true, recentAge + 1: false, -time.Hour: false} {
		if got := s.recentVM(now.Add(age)); (got == vm) != recent {
			t.Errorf("after %v: got %v, want a recent VM: %v", age, got, recent)
		}
	}
}

// The recorder lists the chunks that detect reads, in the order of the first reads, up to a limit.
func TestRecorderKeepsTheFirstChunks(t *testing.T) {
	t.Parallel()
	c := newChunkRecorder(disk.NewPattern(200 << 20))
	for _, r := range []disk.Range{{Off: 199 * (1 << 20), Len: 512}, {Off: 0, Len: 512}, {Off: 512, Len: 512}, {Off: 5*(1<<20) - 512, Len: 1024}} {
		if err := c.ReadAt(t.Context(), make([]byte, r.Len), r.Off); err != nil {
			t.Fatal(err)
		}
	}
	if want := []int64{199, 0, 4, 5}; !slices.Equal(c.chunks, want) {
		t.Errorf("recorded %v, want %v", c.chunks, want)
	}
	for off := int64(0); off < 200*(1<<20); off += (1 << 20) {
		if err := c.ReadAt(t.Context(), make([]byte, 512), off); err != nil {
			t.Fatal(err)
		}
	}
	if len(c.chunks) != 64 || c.chunks[0] != 199 {
		t.Errorf("%d chunks, first %d; want 64, first 199", len(c.chunks), c.chunks[0])
	}
	for chunks, want := range map[int64]int{1: 64, 32_768: 64, 102_400: 200, 1 << 26: 1024} {
		if got := MostMetadata(chunks); got != want {
			t.Errorf("%d chunks: %d, want %d", chunks, got, want)
		}
	}
}
