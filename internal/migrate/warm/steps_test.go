package warm

import (
	"slices"
	"testing"

	"github.com/decamp/decamp/internal/migrate"
)

// The names and the order of the steps are part of the recorded state, so a run of an earlier version
// continues only if they stay the same.
func TestRecordedNamesOfSteps(t *testing.T) {
	var names []string
	err := runPipeline(func(f migrate.Facts, next ...string) (migrate.Facts, error) {
		names = append(names, next...)
		switch next[len(next)-1] {
		case stepTrack:
			f.Warm = &migrate.Warm{InspectPending: true}
		case stepRound:
			f.Warm.Rounds = append(f.Warm.Rounds, migrate.Round{})
		case stepInspect:
			f.Warm.InspectPending = false
		case stepWait:
			f.Warm.Cutover = true
		}
		return f, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"prepare", "track", "freeze", "round", "prove", "look", "wait", "power off", "last round",
		"detect", "convert", "verify", "commit", "put back",
	}
	if !slices.Equal(names, want) {
		t.Errorf("steps %q, want %q", names, want)
	}
}
