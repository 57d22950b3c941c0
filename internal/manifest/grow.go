package manifest

import (
	"context"
	"fmt"
	"path/filepath"

	"github.com/decamp/decamp/internal/atomicfile"
	"github.com/decamp/decamp/internal/fault"
)

// Grow enlarges the disk of the log to size bytes. Durable chunks stay durable, except for a last chunk
// that was short and is longer now; the added part is missing. The image must durably have that size
// already.
//
// The log is written again with the new size, and replaces the old one: a crash leaves one of the two.
// A sealed manifest becomes an open one. The log must not be used concurrently, and its Info changes.
func (l *Log) Grow(ctx context.Context, size int64) error {
	info := l.Info()
	if size == info.Size {
		return nil
	}
	if err := l.growFile(ctx, info, size); err != nil {
		return fmt.Errorf("grow manifest %s: %w", l.path, err)
	}
	return nil
}

// growFile writes the log again for a disk of size bytes. was is the current Info.
func (l *Log) growFile(ctx context.Context, was Info, size int64) error {
	info := was
	if info.Size = size; size < was.Size {
		return fault.New(fault.Internal, "from %d bytes to %d: a disk does not shrink", was.Size, size)
	}
	if err := info.checkLimits(); err != nil {
		return err
	}
	if err := l.dropShort(was); err != nil {
		return err
	}
	head, err := newHeader(info)
	if err != nil {
		return err
	}
	l.ioMu.Lock()
	defer l.ioMu.Unlock()
	if err := l.replaceFile(head, func(s *sealer) error { return s.writeAll(ctx, l.chunks, l.f) }); err != nil {
		return err
	}
	if err := l.step("sync folder"); err != nil {
		return err
	}
	return kindOfIO(atomicfile.Sync(filepath.Dir(l.path)))
}

// dropShort drops the last chunk if it is shorter than ChunkSize. It becomes longer, and its hash
// changes.
func (l *Log) dropShort(info Info) error {
	if last := info.Chunks() - 1; info.Size%ChunkSize > 0 && l.Has(last) {
		return l.Drop(last, 1)
	}
	return nil
}
