package migrate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/efi"
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/flow"
	"github.com/decamp/decamp/internal/guest"
	"github.com/decamp/decamp/internal/plan"
	"github.com/decamp/decamp/internal/sleep"
	"github.com/decamp/decamp/internal/targets"
	"github.com/decamp/decamp/internal/trial"
)

// A rehearsal boots a warm run's VM from its images as they are between two rounds, on overlays that
// are thrown away, while rounds go on: what those overwrite is kept for it (stand.go). The cutover
// does not wait for it, but ends it. Nothing that happens to it ends the run.
//
// It is asked for by a file beside the plan (plan.Rehearsal), so that any process may.

// Rehearsing is what is booted.
type Rehearsing struct {
	plan.Rehearsal
	Domain  string                 // as libvirt would define it
	Static  []trial.Static         // addresses that the guest is to have
	Disks   map[string]disk.Source // by the files that the domain names; they are not to be closed
	Keep    string                 // folder for what was seen
	Scratch string                 // folder for what the guest writes; it is removed afterwards
}

// The errors that end a rehearsal before it has a verdict.
var (
	errCutover  = fault.New(fault.Canceled, "the cutover ended it").WithHint("nothing: what is published can be tried any time, with decamp trial")
	errTaken    = fault.New(fault.Canceled, "whoever asked for it took it back")
	errRunEnded = fault.New(fault.Canceled, "the run was stopped").WithHint("give the command again that began the run, and rehearse it then")
)

// consider begins the rehearsal that is asked of a run that this process drives, if its images are at
// rest. It returns at once.
func (m *Migrator) consider(id plan.ID, k knownOrder) {
	a := m.attending(id)
	if k.rehearsal == nil || a == nil {
		return
	}
	s := &a.stand
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.end != nil || s.rest == nil || s.root == nil || s.root.Err() != nil || s.last == k.rehearsal.ID {
		return
	}
	ctx, end := context.WithCancelCause(s.root)
	s.end, s.last = end, k.rehearsal.ID
	s.all.Go(func() {
		m.carryOut(ctx, end, id, s, *k.rehearsal)
		end(nil)
		s.mu.Lock()
		defer s.mu.Unlock()
		s.end = nil
	})
}

// carryOut does one rehearsal of a run under way, and answers.
func (m *Migrator) carryOut(ctx context.Context, end context.CancelCauseFunc, id plan.ID, s *stand, ask plan.Rehearsal) {
	if now, err := m.store.Rehearsal(id); err == nil && (now == nil || now.ID != ask.ID) {
		return // it was answered a moment ago
	}
	var watching sync.WaitGroup
	defer watching.Wait()
	done := plan.Rehearsed{Rehearsal: ask, Began: m.opts.Now()}
	watched, enough := context.WithCancel(ctx)
	watching.Go(func() { m.watchRehearsal(watched, end, id, ask.ID) })
	report, err := m.rehearse(ctx, s, ask, end)
	enough()
	if cause := context.Cause(ctx); err != nil && cause != nil && !errors.Is(cause, context.Canceled) {
		err = cause
	} else if err != nil && ctx.Err() != nil {
		err = errRunEnded
	}
	if errors.Is(err, errMoves) {
		s.again()
		return // a round began: it is asked still
	}
	m.answer(id, done, report, err)
}

// answer puts on record how a rehearsal ended, and then tells it: who hears it may read it. A run that ends leaves what is asked to
// the next who drives it.
func (m *Migrator) answer(id plan.ID, done plan.Rehearsed, report trial.Report, err error) {
	done.Ended, done.Failure = m.opts.Now(), plan.FailureOf(err)
	if err == nil {
		done.Report, err = json.Marshal(report)
		done.Failure = plan.FailureOf(err)
	}
	if !errors.Is(err, errRunEnded) {
		if err := m.store.AnswerRehearsal(id, done); err != nil {
			m.opts.Log.Warn("rehearsal is not answered", "run", id, "err", err)
		}
	}
	m.tell(id, plan.Event{Step: rehearsalStep, Kind: plan.RehearsalDone, Message: rehearsedWords(report, done.Failure), Failure: done.Failure})
}

// rehearsalStep is what events of a rehearsal name in place of a step: it is beside them.
const rehearsalStep = "rehearsal"

func rehearsedWords(r trial.Report, f *plan.Failure) string {
	switch {
	case f != nil:
		return "rehearsal: " + f.Text
	case r.Booted():
		words := fmt.Sprintf("rehearsal: it boots, after %v on %s: %s", r.Elapsed.Round(time.Second), r.Accel, r.Seen())
		for _, s := range r.Missing {
			words += "; but " + s.String()
		}
		return words
	}
	return fmt.Sprintf("rehearsal: it does not boot (%s): %s", r.Verdict, r.Why)
}

// watchRehearsal ends a rehearsal that is taken back, and for the cutover.
func (m *Migrator) watchRehearsal(ctx context.Context, end context.CancelCauseFunc, id plan.ID, ask string) {
	for sleep.For(ctx, lookEvery) == nil {
		k, err := m.cancels.all(id, time.Now())
		switch {
		case err != nil:
		case k.order == plan.CutOver || k.order == plan.GiveUp:
			end(errCutover)
			return
		case k.rehearsal == nil || k.rehearsal.ID != ask:
			end(errTaken)
			return
		}
	}
}

// rehearse is one rehearsal of a run under way, on views of its images.
func (m *Migrator) rehearse(ctx context.Context, s *stand, ask plan.Rehearsal, end context.CancelCauseFunc) (report trial.Report, err error) {
	s.mu.Lock()
	rest := s.rest
	s.mu.Unlock()
	if rest == nil {
		return report, errMoves
	}
	scratch, err := rest.scratch()
	if err != nil {
		return report, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(scratch)) }()
	r, srcs, err := s.look(ctx, scratch, end)
	if err != nil {
		return report, err
	}
	defer func() { err = errors.Join(err, s.leave(srcs)) }()
	return r.bootNow(ctx, srcs, scratch, ask)
}

// scratch makes an empty folder for one rehearsal. It is in the run's folder: what is left of one that
// was killed goes when the run goes on.
func (r *Run) scratch() (string, error) {
	path := scratchOf(r.m.store, r.Plan.ID)
	if err := errors.Join(os.RemoveAll(path), os.MkdirAll(path, 0o700)); err != nil {
		return "", fault.Room(path, err)
	}
	return path, nil
}

func scratchOf(s *plan.Store, id plan.ID) string { return filepath.Join(s.Folder(id), "scratch") }

// bootNow converts the guest of some images on overlays, as the plan says, and boots it from them.
func (r *Run) bootNow(ctx context.Context, srcs []disk.Source, scratch string, ask plan.Rehearsal) (trial.Report, error) {
	if r.Rig.Rehearse == nil {
		return trial.Report{}, fault.New(fault.Internal, "a rehearsal is asked for, and nobody makes one")
	}
	r.tell(plan.Event{Kind: plan.Noted, Message: fmt.Sprintf("rehearsal: the VM boots from its images as of round %d, on overlays that are thrown away", len(r.Facts.Warm.Rounds))})
	leave, err := r.enterTrial(ctx)
	if err != nil {
		return trial.Report{}, err
	}
	defer leave()
	g, err := r.glimpse(ctx, srcs)
	if err != nil {
		return trial.Report{}, err
	}
	if g.refused != nil && r.Plan.Hardware == plan.Virtio {
		return trial.Report{}, cannotRehearse(g)
	}
	if g.refused != nil {
		r.tell(plan.Event{Kind: plan.Noted, Message: fmt.Sprintf("rehearsal: with the hardware it has, as it is not converted: %v", g.refused)})
	}
	def := r.definition()
	def.Guest, def.Hardware, def.Converted = g.guest, g.hardware, g.converted
	if def.EFI == nil { // the host is asked for it when the VM is off
		def.EFI = new(guest.EFIState(g.guest, efi.State{}))
	}
	domain, err := r.Rig.Target.Domain(def)
	if err != nil {
		return trial.Report{}, err
	}
	disks := map[string]disk.Source{}
	for i, img := range r.Facts.Images {
		disks[img.Path] = g.disks[i].Overlay
	}
	return r.Rig.Rehearse(ctx, Rehearsing{
		Rehearsal: ask, Domain: domain, Static: targets.StaticAddresses(r.Facts.VM, g.guest), Disks: disks, Keep: filepath.Join(r.m.store.Folder(r.Plan.ID), "rehearsal"), Scratch: scratch,
	})
}

func cannotRehearse(g glimpse) error {
	text := "the guest cannot be converted for virtio: %w"
	if g.unsure {
		text = "the guest cannot be converted while it runs, and so not be rehearsed; when it is shut down it may be: %w"
	}
	return fault.New(fault.KindOf(g.refused), text, g.refused).WithHint("%s", fault.HintOf(g.refused))
}

// atRest are the steps after which the images hold one moment.
var atRest = []string{stepRound, stepProve, stepLook, stepWait}

// Rehearse boots a warm run that nobody drives from its images as the last round left them. Where a
// round was broken off they hold no one moment: fault.Conflict. A guest that does not boot is no
// error.
func (m *Migrator) Rehearse(ctx context.Context, id plan.ID, rig Rig, ask plan.Rehearsal) (report trial.Report, err error) {
	p, err := m.store.Plan(id)
	if err != nil {
		return report, err
	}
	release, err := m.hold(ctx, p, rig)
	if err != nil {
		return report, err
	}
	defer release()
	a := &attendance{rig: rig}
	if a.journal, err = m.store.Journal(id); err != nil {
		return report, err
	}
	defer func() { err = errors.Join(err, a.journal.Close()) }()
	if err := m.enter(id, a); err != nil {
		return report, err
	}
	defer m.leave(id)
	r := &Run{Plan: p, Rig: rig, opts: m.opts, m: m, step: rehearsalStep}
	if r.Facts, err = m.factsAtRest(ctx, p); err != nil {
		return report, err
	}
	done := plan.Rehearsed{Rehearsal: ask, Began: m.opts.Now()}
	report, err = r.rehearse(ctx, ask)
	m.answer(id, done, report, err)
	return report, err
}

// rehearse is one rehearsal of a run whose images nobody writes to.
func (r *Run) rehearse(ctx context.Context, ask plan.Rehearsal) (report trial.Report, err error) {
	scratch, err := r.scratch()
	if err != nil {
		return report, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(scratch)) }()
	srcs, err := r.readEach(ctx)
	if err != nil {
		return report, err
	}
	defer func() { err = errors.Join(err, closeAll(srcs)) }()
	return r.bootNow(ctx, srcs, scratch, ask)
}

func (m *Migrator) factsAtRest(ctx context.Context, p plan.Plan) (f Facts, err error) {
	st, err := m.engine.Status(ctx, string(p.ID))
	if err != nil {
		return f, err
	}
	if f, err = factsOf(st); err != nil {
		return f, err
	}
	last := lastStep(st)
	switch {
	case f.Warm == nil || len(f.Warm.Rounds) == 0:
		return f, fault.New(fault.Conflict, "run %s has done no round yet", p.ID).WithHint("it can be rehearsed once the first is done; a VM that was published is tried with decamp trial")
	case !slices.Contains(atRest, last) || f.Warm.Grown != nil || f.rooted():
		return f, fmt.Errorf("run %s: %w", p.ID, notAtRest())
	}
	return f, nil
}

// lastStep is the last that came to a good end.
func lastStep(st flow.Status) string {
	for _, s := range slices.Backward(st.Steps) {
		if s.Err == nil {
			return s.Name
		}
	}
	return ""
}
