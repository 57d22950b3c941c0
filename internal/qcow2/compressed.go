package qcow2

import (
	"bytes"
	"context"
	"errors"
	"io"

	kzstd "github.com/klauspost/compress/zstd"

	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/inflate"
)

// zstdWindow is the largest accepted window of a zstd frame, in bytes. RFC 8878 recommends that
// decoders support 8 MiB. It is four times the largest cluster.
const zstdWindow = 8 << 20

// An inflater is the state of one call that reads compressed clusters. It is not safe for concurrent
// use.
type inflater struct {
	in, out []byte
	// fills p, a cluster, from the compressed data at the beginning of in, and returns the number of bytes
	// that it filled
	inflate func(p, in []byte) (n int, err error)
}

// newFlate returns an *inflater for raw deflate data. It ignores bytes after the cluster.
func newFlate() any {
	var d inflate.Decoder
	return &inflater{inflate: func(p, in []byte) (int, error) {
		n, _, err := d.Raw(p, in)
		if n == len(p) && (errors.Is(err, inflate.ErrTooLong) || errors.Is(err, inflate.ErrTruncated)) {
			err = nil // bytes after the cluster are ignored, as in qemu
		}
		if n < len(p) && err == nil {
			err = io.ErrUnexpectedEOF
		}
		return n, err
	}}
}

// newZstd returns an *inflater for zstd frames.
func newZstd() any {
	// With these options it fails for no reason but theirs, and starts no goroutine.
	r, broken := kzstd.NewReader(nil, kzstd.WithDecoderConcurrency(1), kzstd.WithDecoderLowmem(true),
		kzstd.WithDecoderMaxWindow(zstdWindow), kzstd.WithDecoderMaxMemory(zstdWindow))
	return &inflater{inflate: func(p, in []byte) (int, error) {
		if broken != nil {
			return 0, broken
		}
		if err := r.Reset(bytes.NewReader(in)); err != nil {
			return 0, err
		}
		return io.ReadFull(r, p)
	}}
}

// readCompressed fills p from a run of compressed clusters, which it reads from the file at once.
func (s *Source) readCompressed(ctx context.Context, p []byte, r run) error {
	if !s.isWhole(r.Range) {
		return s.readPart(ctx, p, r)
	}
	z := s.shared.getInflater(s.compression)
	defer s.shared.putInflater(s.compression, z)
	z.in = resizeBuffer(z.in, r.size)
	if err := s.file.ReadAt(ctx, z.in, r.entry.off); err != nil {
		return err
	}
	for off := r.Range.Off; off < r.End(); off += s.clusterBytes() {
		e, err := s.mapping.lookup(ctx, off)
		if err != nil {
			return err
		}
		n := min(s.clusterBytes(), r.End()-off)
		if err := s.inflateOne(z, p[:n], r.entry, e); err != nil {
			return err
		}
		p = p[n:]
	}
	return nil
}

// inflateOne fills p from the beginning of cluster e. z.in contains the compressed data of the run all,
// which includes e.
func (s *Source) inflateOne(z *inflater, p []byte, all, e entry) error {
	skip := e.off - all.off
	if e.kind != compressed || skip < 0 || skip+e.size > int64(len(z.in)) {
		return s.path.corrupt("compressed cluster at %#x moved while it was read", e.off)
	}
	out := p
	if int64(len(p)) < s.clusterBytes() { // the disk's last
		z.out = resizeBuffer(z.out, s.clusterBytes())
		out = z.out
	}
	if n, err := z.inflate(out, z.in[skip:skip+e.size]); err != nil {
		return s.path.corrupt("compressed cluster at %#x gives %d of %d bytes: %w", e.off, n, len(out), err)
	}
	if len(p) < len(out) {
		copy(p, out)
	}
	return nil
}

// readPart fills p from a part of one compressed cluster. It caches the decompressed cluster for the
// next read.
func (s *Source) readPart(ctx context.Context, p []byte, r run) error {
	key := clusterKey{s, r.entry.off}
	whole := s.shared.clusters.get(key)
	if whole == nil {
		whole = make([]byte, s.clusterBytes())
		start := r.Range.Off &^ (s.clusterBytes() - 1)
		one := run{disk.Range{Off: start, Len: min(s.clusterBytes(), s.size-start)}, r.entry}
		if err := s.readCompressed(ctx, whole[:one.Len], one); err != nil {
			return err
		}
		s.shared.clusters.put(key, whole)
	}
	copy(p, whole[r.Range.Off&(s.clusterBytes()-1):])
	return nil
}

// resizeBuffer returns a slice of n bytes, with the memory of b if that is large enough. The content is
// undefined.
func resizeBuffer(b []byte, n int64) []byte {
	if int64(cap(b)) < n {
		return make([]byte, n)
	}
	return b[:n]
}
