package fanout

import (
	"context"
	"errors"

	"github.com/decamp/decamp/internal/disk"
)

// readBack opens the images for reading. All have the same bytes, so that each read uses the first
// present part.
func (f *sharedTransfer) readBack(ctx context.Context) (disk.Source, error) {
	s := &readBackSource{sharedTransfer: f, open: make([]disk.Source, len(f.parts))}
	for i, p := range f.parts {
		_ = p.runIfPresent(ctx, func() (err error) { s.open[i], err = p.job.ReadBack(ctx); return err }) // p stores its error
	}
	if f.left.Load() == 0 {
		return nil, errors.Join(f.joinErrors(), s.Close())
	}
	return s, nil
}

// readBackSource reads from the image of a present part.
type readBackSource struct {
	*sharedTransfer
	open []disk.Source // image of each part; nil if it could not be opened
}

// Size is part of disk.Source.
func (s *readBackSource) Size() int64 { return s.parts[0].job.Target.Size() }

// ReadAt is part of disk.Source.
func (s *readBackSource) ReadAt(ctx context.Context, p []byte, off int64) error {
	return s.readFirst(ctx, func(from disk.Source) error { return from.ReadAt(ctx, p, off) })
}

// Extents is part of disk.Source.
func (s *readBackSource) Extents(ctx context.Context, r disk.Range) (list []disk.Extent, err error) {
	err = s.readFirst(ctx, func(from disk.Source) (err error) { list, err = from.Extents(ctx, r); return err })
	return list, err
}

// readFirst calls f for the image of the first present part, and for the next one if that fails.
func (s *readBackSource) readFirst(ctx context.Context, f func(disk.Source) error) error {
	for i, p := range s.parts {
		if s.open[i] == nil {
			continue
		}
		if err := p.runIfPresent(ctx, func() error { return f(s.open[i]) }); err == nil {
			return nil
		}
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	return s.joinErrors()
}

// Hints is part of disk.Source.
func (s *readBackSource) Hints() disk.Hints { return disk.Hints{} }

// Close is part of disk.Source. It closes all images that were opened.
func (s *readBackSource) Close() error {
	var errs []error
	for _, from := range s.open {
		if from != nil {
			errs = append(errs, from.Close())
		}
	}
	return errors.Join(errs...)
}
