package migrate

import (
	"context"

	"github.com/decamp/decamp/internal/journal"
)

// Internals for the tests of complete runs. Those tests are in package migrate_test, because they import
// package warm, which imports this package.
var (
	IsSealed      = isSealed
	FileExists    = fileExists
	RemoveOverlay = removeOverlay
	IsRefusal     = isRefusal
)

// BusyAttempts is the number of attempts while a VM is busy.
const BusyAttempts = busyAttempts

// Options returns the options of m. A test changes them before the first run.
func (m *Migrator) Options() *Options { return &m.opts }

// Facts returns the recorded facts of a run.
func (m *Migrator) Facts(ctx context.Context, id journal.ID) (Facts, error) {
	return m.readFacts(ctx, id)
}

// Undo undoes the steps of a run.
func (m *Migrator) Undo(ctx context.Context, p journal.Plan, f Facts, env Environment) error {
	return m.undoSteps(ctx, p, f, env)
}
