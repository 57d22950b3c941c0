package migrate_test

import (
	"path/filepath"
	"time"

	"github.com/decamp/decamp/internal/journal"
)

// Names of the steps of a warm run in events.
const (
	stepPrepare     = "prepare"
	stepTrack       = "track"
	stepRound       = "round"
	stepVerifyRound = "verify round"
	stepInspect     = "inspect"
	stepWait        = "wait"
	stepPowerOff    = "power off"
	stepLast        = "last round"
	stepRestore     = "restore"
)

// shutdownGuess is the expected time that a guest needs to shut down.
const shutdownGuess = 30 * time.Second

// snapshotPrefix returns the prefix of the names of a run's snapshots.
func snapshotPrefix(id journal.ID) string { return "decamp " + string(id) + " " }

// scratchFolder returns the folder for the data that the guest of a rehearsal writes.
func scratchFolder(s *journal.Store, id journal.ID) string {
	return filepath.Join(s.Folder(id), "scratch")
}
