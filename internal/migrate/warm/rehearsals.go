package warm

import (
	"context"
	"errors"
	"os"
	"sync"
	"time"

	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/image"
	"github.com/decamp/decamp/internal/journal"
	"github.com/decamp/decamp/internal/migrate"
	"github.com/decamp/decamp/internal/sleep"
	"github.com/decamp/decamp/internal/targets"
	"github.com/decamp/decamp/internal/testboot"
)

// rehearsals executes the rehearsals of one warm run in this process, one at a time. Steps report when
// the images have a single point in time; later writes are hidden from the running rehearsal. It is
// safe for concurrent use.
type rehearsals struct {
	run     *migrate.Run  // the run for work outside of steps
	watched *commandCache // commands, read at intervals of the real clock

	mu    sync.Mutex              // guards the fields below
	rest  *migrate.Run            // run whose images have a single point in time; nil while a round writes to them
	views map[int32]*image.View   // views of the running rehearsal by disk
	end   context.CancelCauseFunc // ends the running rehearsal with a cause; nil if none is running
	last  string                  // id of the last rehearsal that was started: each is executed once
	root  context.Context         // context of all rehearsals: the run's
	all   sync.WaitGroup          // running rehearsals
}

// errRoundRunning is the error for a rehearsal whose images a round has begun to write.
var errRoundRunning = errors.New("a round is running")

// setContext sets the context of rehearsals. No rehearsal starts before the call.
func (s *rehearsals) setContext(ctx context.Context) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.root = ctx
}

// markAtRest reports that the images have a single point in time from now on, that of r's facts.
func (s *rehearsals) markAtRest(r *migrate.Run) {
	rest := r.WithEventName(rehearsalStep)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rest = rest
}

// markMoving reports that a round is about to write to the images. No rehearsal starts until
// markAtRest.
func (s *rehearsals) markMoving() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rest = nil
}

// stop ends the running rehearsal, if any, and returns when it has cleaned up. No other rehearsal
// starts until markAtRest.
func (s *rehearsals) stop(why error) {
	s.mu.Lock()
	s.rest = nil // no other rehearsal begins
	end := s.end
	s.mu.Unlock()
	if end != nil {
		end(why)
	}
	s.all.Wait()
}

// allowRepeat permits to start the last rehearsal once more, because it did not boot the VM.
func (s *rehearsals) allowRepeat() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last = ""
}

// startIfRequested starts the requested rehearsal if the images are at rest and no other one is
// running. It returns at once.
func (s *rehearsals) startIfRequested(k cachedCommands) {
	if k.rehearsal == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.end != nil || s.rest == nil || s.root == nil || s.root.Err() != nil || s.last == k.rehearsal.ID {
		return
	}
	ctx, end := context.WithCancelCause(s.root)
	s.end, s.last = end, k.rehearsal.ID
	s.all.Go(func() {
		s.runRequest(ctx, end, *k.rehearsal)
		end(nil)
		s.mu.Lock()
		defer s.mu.Unlock()
		s.end = nil
	})
}

// runRequest executes one rehearsal, and records its result. end ends the rehearsal with a cause.
func (s *rehearsals) runRequest(ctx context.Context, end context.CancelCauseFunc, ask journal.Rehearsal) {
	if now, err := s.run.Store.Rehearsal(s.run.Record.Plan.ID); err == nil && (now == nil || now.ID != ask.ID) {
		return // the request was answered just before
	}
	var watching sync.WaitGroup
	defer watching.Wait()
	done := journal.Rehearsed{Rehearsal: ask, Began: s.run.Options.Now()}
	watched, enough := context.WithCancel(ctx)
	watching.Go(func() { s.watchRequest(watched, end, ask.ID) })
	report, err := s.rehearseOnce(ctx, ask, end)
	enough()
	if cause := context.Cause(ctx); err != nil && cause != nil && !errors.Is(cause, context.Canceled) {
		err = cause
	} else if err != nil && ctx.Err() != nil {
		err = errRunEnded
	}
	if errors.Is(err, errRoundRunning) {
		s.allowRepeat()
		return // a round began; the request stays valid
	}
	answerRehearsal(s.run, done, report, err)
}

// watchRequest ends a rehearsal if its request is withdrawn, and for the cutover. It returns when ctx
// ends.
func (s *rehearsals) watchRequest(ctx context.Context, end context.CancelCauseFunc, ask string) {
	for sleep.For(ctx, migrate.PollInterval) == nil {
		k, err := s.watched.commandsOf(s.run.Record.Plan.ID, time.Now())
		switch {
		case err != nil:
		case k.order == journal.CutOver || k.order == journal.GiveUp:
			end(errCutover)
			return
		case k.rehearsal == nil || k.rehearsal.ID != ask:
			end(errTaken)
			return
		}
	}
}

// rehearseOnce boots the VM from views of the images. It returns errRoundRunning if a round has begun.
func (s *rehearsals) rehearseOnce(ctx context.Context, ask journal.Rehearsal, end context.CancelCauseFunc) (report testboot.Report, err error) {
	s.mu.Lock()
	rest := s.rest
	s.mu.Unlock()
	if rest == nil {
		return report, errRoundRunning
	}
	dir, err := makeScratch(rest)
	if err != nil {
		return report, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	r, srcs, err := s.openViews(ctx, dir, end)
	if err != nil {
		return report, err
	}
	defer func() { err = errors.Join(err, s.closeViews(srcs)) }()
	return bootNow(ctx, r, srcs, dir, ask)
}

// guardTarget returns a target for writes to an image of disk key that hides them from the running
// rehearsal.
func (s *rehearsals) guardTarget(key int32, t disk.Target) disk.Target {
	s.mu.Lock()
	defer s.mu.Unlock()
	if v := s.views[key]; v != nil {
		return v.Guard(t)
	}
	return t
}

// openViews returns the current images, readable while rounds continue. dir stores the data that rounds
// overwrite. torn is called if that fails. closeViews must follow.
func (s *rehearsals) openViews(ctx context.Context, dir string, torn func(error)) (*migrate.Run, []disk.Source, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.rest == nil {
		return nil, nil, errRoundRunning
	}
	views, srcs := map[int32]*image.View{}, []disk.Source{}
	for _, img := range s.rest.Record.Facts.Images {
		v, err := s.newView(ctx, img, dir, torn)
		if err != nil {
			return nil, nil, errors.Join(err, migrate.CloseAll(srcs))
		}
		views[img.Key], srcs = v, append(srcs, v)
	}
	s.views = views
	return s.rest, srcs, nil
}

// maxKept is the limit of the data of one image that rounds may overwrite during a rehearsal, in bytes
// of a file.
const maxKept = 8 << 30

// newView returns a view of one image. mu must be held.
func (s *rehearsals) newView(ctx context.Context, img targets.Image, dir string, torn func(error)) (*image.View, error) {
	src, err := s.rest.Env.Target.ReadUnfinished(ctx, img)
	if err != nil {
		return nil, err
	}
	v, err := image.NewView(src, dir, maxKept, torn)
	if err != nil {
		return nil, errors.Join(err, src.Close())
	}
	return v, nil
}

// closeViews closes the views. Later writes are not kept any more.
func (s *rehearsals) closeViews(srcs []disk.Source) error {
	s.mu.Lock()
	s.views = nil
	s.mu.Unlock()
	return migrate.CloseAll(srcs)
}
