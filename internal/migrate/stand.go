package migrate

import (
	"context"
	"errors"
	"sync"

	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/image"
	"github.com/decamp/decamp/internal/targets"
)

// A stand is where the images of a warm run stand still, and who looks at them as they are then. A
// run that nobody attends has none.
type stand struct {
	mu    sync.Mutex
	rest  *Run                    // whose images hold one moment; nil: a round writes to them, or has begun to
	round bool                    // a round was done by this process
	views map[int32]*image.View   // of the rehearsal under way, by disk
	end   context.CancelCauseFunc // of it; nil: there is none
	last  string                  // the id of the last that was begun: each is carried out once
	root  context.Context         // of all of them: the run's
	all   sync.WaitGroup          // of them
}

// errMoves is for those who want to look at images while a round writes to them.
var errMoves = errors.New("a round is under way")

// still says that the images hold one moment from now on, that of r's facts.
func (s *stand) still(r *Run) {
	if s == nil {
		return
	}
	rest := *r
	rest.Facts = r.Facts.apart()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rest = &rest
}

// moves says that a round is about to write to the images.
func (s *stand) moves() {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rest = nil
}

// done says that this process has done a round.
func (s *stand) done() {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.round = true
}

// fresh reports whether the images are of a round that this process has done.
func (s *stand) fresh() bool {
	if s == nil {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.round
}

// again has the last rehearsal be carried out once more: it did not come to it.
func (s *stand) again() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last = ""
}

// attend has rehearsals end with ctx.
func (s *stand) attend(ctx context.Context) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.root = ctx
}

// stop ends the rehearsal that is under way, if any, and returns when nothing of it is left.
func (s *stand) stop(why error) {
	if s == nil {
		return
	}
	s.mu.Lock()
	s.rest = nil // no other begins
	end := s.end
	s.mu.Unlock()
	if end != nil {
		end(why)
	}
	s.all.Wait()
}

// guard has what is written to an image leave the rehearsal that is under way alone.
func (s *stand) guard(key int32, t disk.Target) disk.Target {
	if s == nil {
		return t
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if v := s.views[key]; v != nil {
		return v.Guard(t)
	}
	return t
}

// look returns the images as they are, to be read while rounds go on. In dir is kept what they
// overwrite. torn is told if that cannot be.
func (s *stand) look(ctx context.Context, dir string, torn func(error)) (*Run, []disk.Source, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.rest == nil {
		return nil, nil, errMoves
	}
	views, srcs := map[int32]*image.View{}, []disk.Source{}
	for _, img := range s.rest.Facts.Images {
		v, err := s.view(ctx, img, dir, torn)
		if err != nil {
			return nil, nil, errors.Join(err, closeAll(srcs))
		}
		views[img.Key], srcs = v, append(srcs, v)
	}
	s.views = views
	r := *s.rest
	r.step = rehearsalStep
	return &r, srcs, nil
}

// mostKept is how much of one image may be overwritten by rounds while it is looked at, in bytes of
// a file.
const mostKept = 8 << 30

func (s *stand) view(ctx context.Context, img targets.Image, dir string, torn func(error)) (*image.View, error) {
	src, err := s.rest.Rig.Target.ReadUnfinished(ctx, img)
	if err != nil {
		return nil, err
	}
	v, err := image.NewView(src, dir, mostKept, torn)
	if err != nil {
		return nil, errors.Join(err, src.Close())
	}
	return v, nil
}

// leave forgets the views.
func (s *stand) leave(srcs []disk.Source) error {
	s.mu.Lock()
	s.views = nil
	s.mu.Unlock()
	return closeAll(srcs)
}

func closeAll(srcs []disk.Source) error {
	var errs []error
	for _, src := range srcs {
		errs = append(errs, src.Close())
	}
	return errors.Join(errs...)
}

// notAtRest is a fault for whoever asks for images that hold no one moment.
func notAtRest() error {
	return fault.New(fault.Conflict, "its images hold no one moment: a round is under way, or was broken off").
		WithHint("give the command again that began the run; the next round mends that, and then it can be rehearsed")
}
