package qcow2

import (
	"bytes"
	"context"
	"io"

	"github.com/klauspost/compress/flate"
)

// inflater is what one compressed cluster takes to read. Sources keep idle ones: each has
// 40 KiB of tables. There are never more than calls of ReadAt.
type inflater struct {
	in, out []byte
	flate   io.ReadCloser
}

func newInflater() any { return &inflater{flate: flate.NewReader(nil)} }

// readCompressed fills p from the compressed cluster e, beginning skip bytes into it.
func (s *Source) readCompressed(ctx context.Context, p []byte, e entry, skip int64) error {
	z := s.inflaters.Get().(*inflater)
	defer s.inflaters.Put(z)
	z.in, z.out = grow(z.in, e.size), grow(z.out, s.cluster())
	if err := s.file.ReadAt(ctx, z.in, e.off); err != nil {
		return err
	}
	if err := z.flate.(flate.Resetter).Reset(bytes.NewReader(z.in), nil); err != nil {
		return err
	}
	if n, err := io.ReadFull(z.flate, z.out); err != nil {
		return corrupt("compressed cluster at %#x gives %d of %d bytes: %w", e.off, n, len(z.out), err)
	}
	copy(p, z.out[skip:])
	return nil
}

// grow returns a slice of n bytes, b's memory if that suffices.
func grow(b []byte, n int64) []byte {
	if int64(cap(b)) < n {
		return make([]byte, n)
	}
	return b[:n]
}
