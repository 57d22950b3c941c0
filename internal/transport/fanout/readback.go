package fanout

import (
	"context"
	"errors"

	"github.com/decamp/decamp/internal/disk"
)

// readBack opens what the targets hold: all have the same bytes, the first that is there
// is read.
func (f *fan) readBack(ctx context.Context) (disk.Source, error) {
	s := &source{fan: f, open: make([]disk.Source, len(f.parts))}
	for i, p := range f.parts {
		_ = p.do(ctx, func() (err error) { s.open[i], err = p.job.ReadBack(ctx); return err }) // p keeps its error
	}
	if f.left.Load() == 0 {
		return nil, errors.Join(f.why(), s.Close())
	}
	return s, nil
}

// source reads back from whoever is there.
type source struct {
	*fan
	open []disk.Source // by part; nil if it could not be opened
}

func (s *source) Size() int64 { return s.parts[0].job.Target.Size() }

func (s *source) ReadAt(ctx context.Context, p []byte, off int64) error {
	return s.first(ctx, func(from disk.Source) error { return from.ReadAt(ctx, p, off) })
}

func (s *source) Extents(ctx context.Context, r disk.Range) (list []disk.Extent, err error) {
	err = s.first(ctx, func(from disk.Source) (err error) { list, err = from.Extents(ctx, r); return err })
	return list, err
}

// first calls f for the first part that is there, and the next if that fails.
func (s *source) first(ctx context.Context, f func(disk.Source) error) error {
	for i, p := range s.parts {
		if s.open[i] == nil {
			continue
		}
		if err := p.do(ctx, func() error { return f(s.open[i]) }); err == nil {
			return nil
		}
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	return s.why()
}

func (s *source) Hints() disk.Hints { return disk.Hints{} }

func (s *source) Close() error {
	var errs []error
	for _, from := range s.open {
		if from != nil {
			errs = append(errs, from.Close())
		}
	}
	return errors.Join(errs...)
}
