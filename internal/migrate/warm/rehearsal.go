package warm

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/efi"
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/guest"
	"github.com/decamp/decamp/internal/journal"
	"github.com/decamp/decamp/internal/migrate"
	"github.com/decamp/decamp/internal/targets"
	"github.com/decamp/decamp/internal/testboot"
	"github.com/decamp/decamp/internal/workflow"
)

// A rehearsal boots a warm run's VM from its current images, on temporary overlays, while rounds
// continue. The data that rounds overwrite is kept for it (rehearsals.go). The cutover
// does not wait for it, but ends it. A failed rehearsal does not end the run.
//
// A file beside the plan requests it (journal.Rehearsal), so any process can request one.

// The errors that end a rehearsal before it has a verdict.
var (
	// errCutover: the cutover began, or the run was canceled
	errCutover = fault.New(fault.Canceled, "the cutover ended the rehearsal").WithHint("boot the published VM with decamp trial")
	errTaken   = fault.New(fault.Canceled, "the request was withdrawn") // a user withdrew the request
	// errRunEnded: the process stopped the run; the request stays valid
	errRunEnded = fault.New(fault.Canceled, "the run was stopped").WithHint("run the command again that began the run, and then decamp rehearse")
)

// answerRehearsal records the result of a rehearsal and then reports it, so that a subscriber can read
// the record. A run that ends leaves its request to the next process that executes the run.
func answerRehearsal(r *migrate.Run, done journal.Rehearsed, report testboot.Report, err error) {
	done.Ended, done.Failure = r.Options.Now(), journal.FailureOf(err)
	if err == nil {
		done.Report, err = json.Marshal(report)
		done.Failure = journal.FailureOf(err)
	}
	id := r.Record.Plan.ID
	if !errors.Is(err, errRunEnded) {
		if err := r.Store.AnswerRehearsal(id, done); err != nil {
			r.Options.Log.Warn("result of the rehearsal not stored", "run", id, "err", err)
		}
	}
	r.Record.Report(journal.Event{Kind: journal.RehearsalDone, Message: rehearsedWords(report, done.Failure), Failure: done.Failure})
}

// rehearsalStep is the name that events of a rehearsal have in place of a step, because it runs beside
// the steps.
const rehearsalStep = "rehearsal"

// rehearsedWords returns the result of a rehearsal for users.
func rehearsedWords(r testboot.Report, f *journal.Failure) string {
	switch {
	case f != nil:
		return "rehearsal: " + f.Text
	case r.Booted():
		words := fmt.Sprintf("rehearsal: it boots, after %v on %s: %s", r.Elapsed.Round(time.Second), r.Accel, r.Summary())
		for _, s := range r.Missing {
			words += "; but " + s.String()
		}
		return words
	}
	return fmt.Sprintf("rehearsal: it does not boot (%s): %s", r.Verdict, r.Reason)
}

// makeScratch creates an empty folder for one rehearsal in the run's folder. Leftovers of a killed
// rehearsal are removed when the run continues.
func makeScratch(r *migrate.Run) (string, error) {
	path := scratchOf(r)
	if err := errors.Join(os.RemoveAll(path), os.MkdirAll(path, 0o700)); err != nil {
		return "", fault.Room(path, err)
	}
	return path, nil
}

// scratchOf returns the path of the folder for rehearsals.
func scratchOf(r *migrate.Run) string {
	return filepath.Join(r.Store.Folder(r.Record.Plan.ID), "scratch")
}

// bootNow converts the guest of the images in srcs on overlays, as the plan requires, and boots it. The
// caller closes srcs and removes scratch.
func bootNow(ctx context.Context, r *migrate.Run, srcs []disk.Source, scratch string, ask journal.Rehearsal) (testboot.Report, error) {
	if r.Env.Rehearse == nil {
		return testboot.Report{}, fault.New(fault.Internal, "a rehearsal was requested, but is not configured")
	}
	r.Record.Report(journal.Event{Kind: journal.Noted, Message: fmt.Sprintf("rehearsal: the VM boots from its images of round %d, on temporary overlays", len(r.Record.Facts.Warm.Rounds))})
	leave, err := migrate.EnterTrial(ctx, r)
	if err != nil {
		return testboot.Report{}, err
	}
	defer leave()
	g, err := migrate.PreviewGuest(ctx, r, srcs)
	if err != nil {
		return testboot.Report{}, err
	}
	if g.Refused != nil && r.Record.Plan.Hardware == journal.Virtio {
		return testboot.Report{}, cannotRehearse(g)
	}
	if g.Refused != nil {
		r.Record.Report(journal.Event{Kind: journal.Noted, Message: fmt.Sprintf("rehearsal: the guest is not converted and keeps its hardware: %v", g.Refused)})
	}
	def := r.Definition()
	def.Guest, def.Hardware, def.Converted = g.Guest, g.Hardware, g.Converted
	if def.EFI == nil { // it is read from the host when the VM is off
		def.EFI = new(guest.EFIState(g.Guest, efi.State{}))
	}
	domain, err := r.Env.Target.Domain(def)
	if err != nil {
		return testboot.Report{}, err
	}
	disks := map[string]disk.Source{}
	for i, img := range r.Record.Facts.Images {
		disks[img.Path] = g.Disks[i].Overlay
	}
	return r.Env.Rehearse(ctx, migrate.Rehearsing{
		Rehearsal: ask, Domain: domain, Static: targets.StaticAddresses(r.Record.Facts.VM, g.Guest), Disks: disks, Keep: filepath.Join(r.Store.Folder(r.Record.Plan.ID), "rehearsal"), Scratch: scratch,
	})
}

// cannotRehearse returns the error for a guest that must be converted and cannot be.
func cannotRehearse(g migrate.Preview) error {
	text := "the guest cannot be converted for virtio: %w"
	if g.Unsure {
		text = "the guest cannot be converted while it runs, so a rehearsal is not possible; a conversion after its shutdown may be possible: %w"
	}
	return fault.New(fault.KindOf(g.Refused), text, g.Refused).WithHint("%s", fault.HintOf(g.Refused))
}

// stepsAtRest are the steps after which the images have a single point in time.
var stepsAtRest = []string{stepRound, stepVerifyRound, stepInspect, stepWait}

// Rehearse boots a warm run that no process executes from its images of the last round. Images of an
// incomplete round have no single point in time: fault.Conflict. A guest that does not boot is not an
// error.
func Rehearse(ctx context.Context, m *migrate.Migrator, id journal.ID, rig migrate.Environment, ask journal.Rehearsal) (report testboot.Report, err error) {
	err = m.WithIdleRun(ctx, id, rig, rehearsalStep, func(r *migrate.Run, st workflow.Status) error {
		if err := checkAtRest(r.Record, st); err != nil {
			return err
		}
		done := journal.Rehearsed{Rehearsal: ask, Began: r.Options.Now()}
		var err error
		report, err = rehearseIdle(ctx, r, ask)
		answerRehearsal(r, done, report, err)
		return err
	})
	return report, err
}

// rehearseIdle executes one rehearsal of a run whose images are not written.
func rehearseIdle(ctx context.Context, r *migrate.Run, ask journal.Rehearsal) (report testboot.Report, err error) {
	dir, err := makeScratch(r)
	if err != nil {
		return report, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	srcs, err := r.Images.ReadEach(ctx)
	if err != nil {
		return report, err
	}
	defer func() { err = errors.Join(err, migrate.CloseAll(srcs)) }()
	return bootNow(ctx, r, srcs, dir, ask)
}

// checkAtRest returns fault.Conflict unless the images have a single point in time, by the record of
// the run.
func checkAtRest(rec *migrate.Record, st workflow.Status) error {
	f := rec.Facts
	switch {
	case f.Warm == nil || len(f.Warm.Rounds) == 0:
		return fault.New(fault.Conflict, "run %s has no complete round yet", rec.Plan.ID).WithHint("run decamp rehearse again after the first round; boot a published VM with decamp trial")
	case !slices.Contains(stepsAtRest, lastStep(st)) || f.Warm.Grown != nil || f.Rooted():
		return fmt.Errorf("run %s: %w", rec.Plan.ID, notAtRestError())
	}
	return nil
}

// lastStep returns the name of the last step that returned without an error; "" if none did.
func lastStep(st workflow.Status) string {
	for _, s := range slices.Backward(st.Steps) {
		if s.Err == nil {
			return s.Name
		}
	}
	return ""
}

// notAtRestError returns the error for images without a single point in time.
func notAtRestError() error {
	return fault.New(fault.Conflict, "its images have no single point in time: a round is running or was interrupted").
		WithHint("run the command again that began the run, and rehearse it after the next round")
}
