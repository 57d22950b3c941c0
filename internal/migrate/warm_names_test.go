package migrate_test

import (
	"path/filepath"
	"time"

	"github.com/decamp/decamp/internal/journal"
)

// The steps of a warm run, as events name them.
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

// shutdownGuess is how long a guest is expected to shut down.
const shutdownGuess = 30 * time.Second

// snapshotsOf is what the names of a run's snapshots begin with.
func snapshotsOf(id journal.ID) string { return "decamp " + string(id) + " " }

// scratchIn is the folder for what the guest of a rehearsal writes.
func scratchIn(s *journal.Store, id journal.ID) string { return filepath.Join(s.Folder(id), "scratch") }
