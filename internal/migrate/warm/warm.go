package warm

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/migrate"
)

// Register adds warm runs to m, whose engine must not be launched yet.
func Register(m *migrate.Migrator) {
	w := &runs{orders: commandCache{store: m.Store()}, watched: commandCache{store: m.Store()}}
	steps := map[string]func(context.Context, *migrate.Run) error{stepPrepare: prepareRun, stepTrack: turnTrackingOn, stepPutBack: restoreTracking}
	for name, step := range map[string]func(context.Context, *migration) error{
		stepFreeze: takeSnapshot, stepRound: copyRound, stepProve: readBackRound, stepLook: inspectGuest, stepWait: waitForNext, stepPowerOff: powerOffForCutover, stepLast: lastRound,
	} {
		steps[name] = func(ctx context.Context, r *migrate.Run) error { return step(ctx, newMigration(r)) }
	}
	m.AddWarm(w, steps, runPipeline)
}

// runs are all warm runs of a process. It implements migrate.WarmRuns, and is safe for concurrent use.
type runs struct {
	orders  commandCache // commands, read at intervals of the options' clock
	watched commandCache // commands, read at intervals of the real clock, for watchers
}

// Ready implements migrate.WarmRuns. It removes the leftovers of a killed rehearsal.
func (w *runs) Ready(r *migrate.Run, p *migrate.Permit) (migrate.WarmRun, error) {
	if err := completeCutover(&p.Cutover, r.Store, r.Record.Plan.ID); err != nil {
		return nil, err
	}
	if err := os.RemoveAll(scratchOf(r)); err != nil {
		return nil, err
	}
	d := &drivenRun{run: r, orders: &w.orders, watched: &w.watched}
	d.rehearsals = &rehearsals{run: r.Beside(rehearsalStep), watched: &w.watched}
	return d, nil
}

// ReleaseSource implements migrate.WarmRuns. It removes the snapshot, which would grow until the run continues;
// the next round takes another one. If that fails, the snapshot is recorded as a leftover.
func (w *runs) ReleaseSource(ctx context.Context, r *migrate.Run) {
	s := &snapshots{run: r}
	live, err := liveOf(r)
	if err == nil {
		err = live.Thaw(ctx, r.Record.Facts.VM.Ref, s.nextName())
	}
	if err != nil {
		r.Options.Log.Warn("snapshot is left", "run", r.Record.Plan.ID, "snapshot", s.nextName(), "err", err)
	}
}

// Restore implements migrate.WarmRuns: it removes the snapshots of decamp and restores change tracking.
func (w *runs) Restore(ctx context.Context, r *migrate.Run) error {
	live, err := liveOf(r)
	if err != nil {
		return err
	}
	s := &snapshots{run: r}
	// In this order: tracking that is turned off ends when a snapshot is removed, or at the
	// next start.
	return errors.Join(turnTrackingOff(ctx, r, live), s.removeCurrent(ctx), s.removeAllBut(ctx, ""))
}

// prepareRun is the preflight of a running VM. It changes nothing at the source.
func prepareRun(ctx context.Context, r *migrate.Run) error {
	live, err := liveOf(r)
	if err != nil {
		return err
	}
	vm, err := r.VM.Planned(ctx)
	if err != nil {
		return err
	}
	if err := r.Retry.Do(ctx, 0, func() (bool, error) { return false, live.MayChange(ctx, vm.Ref) }); err != nil {
		return err
	}
	if err := r.VM.Refuse(vm, migrate.Permit{PowerOff: true, Warm: true}); err != nil {
		return err
	}
	if d := Unfrozen(vm); d != nil {
		return fault.New(fault.Unsupported, "disk %d is %s: snapshots do not include it", d.Key, d.Mode).
			WithHint("power the VM off, and migrate it without --warm")
	}
	images, err := r.Images.Place(ctx, vm)
	if err != nil {
		return err
	}
	r.Record.Facts.VM, r.Record.Facts.Images, r.Record.Facts.Warm = vm, images, &migrate.Warm{Tracked: vm.ChangeTracking, Found: slices.ContainsFunc(images, migrate.Begun), ToLook: true}
	for _, w := range vm.Warnings {
		if !w.Blocks {
			r.Record.Warn(w)
		}
	}
	return nil
}

// turnTrackingOn turns change tracking on. If that is impossible, the run continues without it, with a
// warning.
func turnTrackingOn(ctx context.Context, r *migrate.Run) error {
	live, err := liveOf(r)
	if err != nil || r.Record.Facts.Warm.Tracked {
		return err
	}
	err = r.Retry.Do(ctx, 0, func() (bool, error) { return false, live.Track(ctx, r.Record.Facts.VM.Ref, true) })
	if errors.Is(err, ErrReadOnly) || !fault.Is(err, fault.Unsupported) {
		return err // a refused login does not show that tracking is impossible
	}
	r.Record.Facts.Warm.Blind = true
	r.Record.Warn(inventory.Warning{
		Code: "no-change-tracking", Text: fmt.Sprintf("changes cannot be tracked (%v): every round, including the last one in the outage, reads all allocated data of the disks: %s; the first round shows the time",
			err, FullPass(r.Record.Facts.VM)),
		Remedy: fault.HintOf(err),
	})
	return nil
}

// restoreTracking restores change tracking of the source, which is powered off. The VM is published: a
// failure is reported as a warning and does not fail the run.
func restoreTracking(ctx context.Context, r *migrate.Run) error {
	live, err := liveOf(r)
	if err != nil {
		return err
	}
	err = r.Retry.Do(ctx, 0, func() (bool, error) { return false, turnTrackingOff(ctx, r, live) })
	if err != nil && ctx.Err() == nil {
		r.Record.Warn(inventory.Warning{
			Code: "change-tracking-stays", Text: fmt.Sprintf("change tracking of the source could not be turned off again: %v", err),
			Remedy: "turn it off by hand if it is not wanted: ctkEnabled in the VM's advanced parameters",
		})
		return nil
	}
	return err
}

// turnTrackingOff turns change tracking off if it was off before the run.
func turnTrackingOff(ctx context.Context, r *migrate.Run, live Live) error {
	if w := r.Record.Facts.Warm; w.Tracked || w.Blind {
		return nil
	}
	return live.Track(ctx, r.Record.Facts.VM.Ref, false)
}
