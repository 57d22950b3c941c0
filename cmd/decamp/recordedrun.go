package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/decamp/decamp/internal/assemble"
	"github.com/decamp/decamp/internal/journal"
	"github.com/decamp/decamp/internal/planfile"
)

// discardRuns discards the runs to all destinations.
func discardRuns(ctx context.Context, out *output, w *assemble.Parts) error {
	shown := newProgress(out, runNamesOf(w))
	defer shown.Close()
	w.Shown = shown.HandleEvent
	var errs []error
	for _, d := range w.To {
		errs = append(errs, discardRun(ctx, out, w, d))
	}
	return errors.Join(errs...)
}

// discardRun discards one run: it reverts the changes at the source and removes the images.
func discardRun(ctx context.Context, out *output, w *assemble.Parts, d *assemble.Destination) error {
	if err := w.Migrator.Discard(ctx, d.Plan.ID, w.RigOf(d)); err != nil {
		return err
	}
	if out.json {
		return out.printJSON(map[string]journal.ID{"discarded": d.Plan.ID})
	}
	_, err := fmt.Fprintf(out, "Run %s is discarded, and its images are removed.\n", d.Plan.ID)
	return err
}

// recordedRun returns a run with the state directory and the store that contain it.
func recordedRun(a *assemble.Assembler, id journal.ID) (state string, store *journal.Store, run journal.Run, err error) {
	if state, err = a.StateDir(); err != nil {
		return "", nil, run, err
	}
	store = journal.NewStore(state)
	run, err = store.Run(id)
	return state, store, run, err
}

// recordedMove returns the migration of a recorded run, as far as its target and its removal require
// it.
func recordedMove(p journal.Plan) assemble.Move {
	m := assemble.Move{Options: planfile.DefaultOptions(), Maps: p.Maps}
	m.To, m.Format = []planfile.Destination{planfile.Destination(p.Target)}, planfile.Format(p.Format)
	return m
}
