package writebehind

import (
	"context"
	"fmt"
	"iter"

	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/manifest"
)

// An image is the target with the log of its durable chunks. It reads and changes both, and determines
// the necessary writes of a run. It has no lock: a run belongs to one writer, and the rules of the
// package comment separate readers and writers of a chunk.
type image struct {
	target disk.Target     // content of the disk
	log    manifest.Ledger // log of durable chunks; nil keeps no hashes
	source Reader          // reader of the target; nil if it cannot be read

	ctx context.Context // context of the target's calls without a waiting caller
}

// size returns the bytes of the target.
func (m *image) size() int64 { return m.target.Size() }

// isTrusted reports whether the target has valid content of a chunk: the log lists it, or there is no
// log.
func (m *image) isTrusted(number int64) bool { return m.log == nil || m.log.Has(number) }

// isListed reports whether the log lists a chunk.
func (m *image) isListed(number int64) bool { return m.log != nil && m.log.Has(number) }

// hasLog reports whether there is a log.
func (m *image) hasLog() bool { return m.log != nil }

// checkRange fails for ranges outside of the target.
func (m *image) checkRange(r disk.Range) error {
	if err := disk.CheckRange(m.size(), r); err != nil {
		return fault.New(fault.Invalid, "write: %w", err).WithHint("make the target as large as the disk")
	}
	return nil
}

// sync makes the content of the target durable.
func (m *image) sync(ctx context.Context) error {
	if err := m.target.Sync(ctx); err != nil {
		return fmt.Errorf("sync: %w", err)
	}
	return nil
}

// listChunks appends runs to the log, which must not be nil.
func (m *image) listChunks(ctx context.Context, runs []manifest.Run) error {
	return m.log.Append(ctx, runs)
}

// zeroRange makes r of the target read as zeros.
func (m *image) zeroRange(ctx context.Context, r disk.Range) error {
	if err := m.target.Zero(ctx, r); err != nil {
		return fmt.Errorf("zero %v: %w", r, err)
	}
	return nil
}

// checkComplete fails if the log lacks chunks.
func (m *image) checkComplete() error {
	if m.log != nil && !m.log.Complete() {
		return fault.New(fault.Internal, "the manifest of a finished disk lacks %d chunks", m.log.Missing())
	}
	return nil
}

// rangeOf returns the range of a chunk on the disk. The last chunk may be shorter.
func (m *image) rangeOf(number int64) disk.Range {
	off := number * manifest.ChunkSize
	return disk.Range{Off: off, Len: min(manifest.ChunkSize, m.size()-off)}
}

// chunksAfter returns the range of the chunks that lie entirely after size.
func (m *image) chunksAfter(size int64) disk.Range {
	off := min((size+manifest.ChunkSize-1)/manifest.ChunkSize*manifest.ChunkSize, m.size())
	return disk.Range{Off: off, Len: m.size() - off}
}

// readBack fills p from the target.
func (m *image) readBack(ctx context.Context, p []byte, off int64) error {
	r := disk.Range{Off: off, Len: int64(len(p))}
	if m.source == nil {
		return fault.New(fault.Unsupported, "read back %v: the target cannot be read", r).
			WithHint("land the disk on a target that can be read while it is written")
	}
	if err := m.source.ReadAt(ctx, p, off); err != nil {
		return fmt.Errorf("read back %v: %w", r, err)
	}
	return nil
}

// fillPart fills b with a part of a view: its pieces, and zeros or the target's content between them.
func (m *image) fillPart(ctx context.Context, b []byte, p part) error {
	err := p.pieces.eachGap(p.Range, func(g disk.Range) error {
		to := b[g.Off-p.Off : g.End()-p.Off]
		if p.blank {
			clear(to)
			return nil
		}
		return m.readBack(ctx, to, g.Off)
	})
	if err != nil {
		return err
	}
	p.pieces.copyTo(b, p.Off)
	return nil
}

// listZeros appends the blank chunks to the log, if there is one.
func (m *image) listZeros(ctx context.Context, blank iter.Seq[disk.Range]) error {
	if m.log == nil {
		return nil
	}
	var runs []manifest.Run
	for r := range blank {
		runs = append(runs, manifest.Run{First: r.Off / manifest.ChunkSize, Zeros: chunksIn(r)})
		if len(runs) < zeroRuns {
			continue
		}
		if err := m.log.Append(ctx, runs); err != nil {
			return err
		}
		runs = runs[:0]
	}
	if len(runs) == 0 {
		return nil
	}
	return m.log.Append(ctx, runs)
}

// unlistChunks drops the chunks of r from the log if it lists any.
func (m *image) unlistChunks(r disk.Range) error {
	if m.log == nil || r.Empty() || m.log.Missing() == m.log.Chunks() {
		return nil
	}
	first, n := r.Off/manifest.ChunkSize, chunksIn(r)
	for c := first; c < first+n; c++ {
		if m.log.Has(c) {
			return m.log.Drop(first, n)
		}
	}
	return nil
}

// chunksIn returns the number of chunks in r, which starts and ends at a chunk.
func chunksIn(r disk.Range) int64 {
	return (r.Len + manifest.ChunkSize - 1) / manifest.ChunkSize
}
