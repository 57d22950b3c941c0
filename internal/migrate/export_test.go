package migrate

import (
	"context"

	"github.com/decamp/decamp/internal/journal"
)

// What the tests of whole runs look at inside of the package. They are outside of it, because they
// run warm, which imports it.
var (
	Sealed        = isSealed
	There         = fileExists
	RemoveOverlay = removeOverlay
	Refused       = isRefusal
)

// BusyAttempts is busyAttempts.
const BusyAttempts = busyAttempts

// Options returns those of a Migrator that carries out no run yet.
func (m *Migrator) Options() *Options { return &m.opts }

// Facts is facts.
func (m *Migrator) Facts(ctx context.Context, id journal.ID) (Facts, error) {
	return m.readFacts(ctx, id)
}

// Undo is undo.
func (m *Migrator) Undo(ctx context.Context, p journal.Plan, f Facts, rig Environment) error {
	return m.undoSteps(ctx, p, f, rig)
}
