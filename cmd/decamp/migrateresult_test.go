package main

import (
	"bytes"
	"testing"
	"time"

	"github.com/decamp/decamp/internal/assemble/mover"
	"github.com/decamp/decamp/internal/journal"
)

// The table shows the time of parallel workers as a share, because their sum exceeds the time of the stage.
func TestStageTableShowsShares(t *testing.T) {
	var out bytes.Buffer
	writeStages(&out, []journal.StageTime{
		{Name: "copy", Elapsed: 51 * time.Second, Bytes: 8 << 30, Read: 4 << 30, Working: time.Minute, Source: 13*time.Minute + 25*time.Second, Target: 5 * time.Second},
		{Name: "detect", Elapsed: 40 * time.Millisecond},
	})
	golden(t, "testdata/stages.txt", out.String())
}

func TestSimulationNamesItsAssumption(t *testing.T) {
	r := newTestProgram(t)
	if err := writeSimulated(r.program.out, "plan.yaml", mover.Simulated{AssumedRate: mover.GuessedRate}); err != nil {
		t.Fatal(err)
	}
	mustContain(t, r.out.String(), "\nAssumed: 100 MB/s for each VM. Measure it with decamp bench, and set --rate.\n")
}
