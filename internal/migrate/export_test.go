package migrate

import (
	"context"

	"github.com/decamp/decamp/internal/journal"
)

// What the tests of whole runs look at inside of the package. They are outside of it, because they
// run warm, which imports it.
var (
	Sealed        = sealed
	There         = there
	RemoveOverlay = removeOverlay
	Refused       = refused
)

// BusyAttempts is busyAttempts.
const BusyAttempts = busyAttempts

// Options returns those of a Migrator that carries out no run yet.
func (m *Migrator) Options() *Options { return &m.opts }

// Facts is facts.
func (m *Migrator) Facts(ctx context.Context, id journal.ID) (Facts, error) { return m.facts(ctx, id) }

// Undo is undo.
func (m *Migrator) Undo(ctx context.Context, p journal.Plan, f Facts, rig Rig) error {
	return m.undo(ctx, p, f, rig)
}
