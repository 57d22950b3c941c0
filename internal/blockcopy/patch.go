package blockcopy

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/disk/bitmap"
	"github.com/decamp/decamp/internal/manifest"
)

// PatchGrain is the grain of the bitmap that Patch expects, in bytes: the finest unit that changed
// block tracking reports.
const PatchGrain = zeroGrain

// patchBatch is the number of chunks that are removed from the manifest at once. After a crash Patch
// reads that many chunks as a whole, 1 GiB of disk.
const patchBatch = 1 << 10

// A Reader reads the content of an image.
type Reader interface {
	ReadAt(ctx context.Context, p []byte, off int64) error // ReadAt fills p from off of the disk.
}

// Patch updates an image of an earlier state of a disk to src, a later state. changed has a bit for
// each PatchGrain of the disk that may differ; image reads dst.
//
// Patch reads and writes only changed grains of chunks that the manifest lists. It copies missing
// chunks as a whole, so it also completes an interrupted Copy. A chunk is removed from the manifest
// before its first byte changes, and listed with its new hash after the sync. A crash leaves missing
// chunks, never wrong ones. To continue after a crash, call Patch again with all changes since the last
// complete state, with the same src or a later one.
//
// The unchanged part of such a chunk is read from the image and becomes part of the new hash. Therefore
// Patch first compares it with the old hash. A chunk that differs from its manifest is copied from src
// as a whole, and counted in Result.Mismatched. Otherwise a damaged byte of the target would count as
// verified from then on.
//
// Result.Read counts only bytes of src, and Result.Written only bytes written to dst. The memory is
// that of Copy, plus 1 bit for each chunk, and maxImageChunks chunks.
func Patch(ctx context.Context, src disk.Source, dst disk.Target, image Reader, changed *bitmap.Bitmap, o Options) (total Result, err error) {
	p := &patch{Source: src, image: image, changed: changed, verified: bitmap.New(src.Size(), manifest.ChunkSize)}
	p.imageChunks, p.pace = map[int64][]byte{}, o.Pace
	todo := p.changedChunks(o.Manifest)
	for first := true; first || len(todo) > 0; first = false {
		batch := todo[:min(patchBatch, len(todo))]
		todo = todo[len(batch):]
		if err := p.dropBatch(o.Manifest, batch); err != nil {
			return total, err
		}
		waited := p.waited.Duration()
		res, err := Copy(ctx, p, patchTarget{dst, p}, p.copyOptions(o, total))
		res.ReadTime -= p.waited.Duration() - waited // readers waited in ReadAt
		total = total.Then(res)
		total.Read, total.Written, total.Mismatched = p.read.Load(), p.written.Load(), p.damaged.Load()
		total.PaceWait = p.waited.Duration()
		if err != nil {
			return total, err
		}
	}
	return total, nil
}

// dropBatch removes chunks from the manifest, and remembers their hashes.
func (p *patch) dropBatch(m manifest.Ledger, chunks []int64) error {
	p.hashes = make(map[int64]manifest.Hash, len(chunks))
	for _, c := range chunks {
		hash, ok, err := m.Hash(c)
		if err != nil {
			return fmt.Errorf("read manifest: %w", err)
		}
		if ok {
			p.hashes[c] = hash
		}
	}
	if err := m.DropAll(chunks); err != nil {
		return fmt.Errorf("write manifest: %w", err)
	}
	return nil
}

// changedChunks records which chunks the manifest lists, and returns those of them that changed.
func (p *patch) changedChunks(m manifest.Ledger) (list []int64) {
	size := p.Size()
	for c := range m.Chunks() {
		if !m.Has(c) {
			continue
		}
		r := disk.Range{Off: c * manifest.ChunkSize, Len: min(manifest.ChunkSize, size-c*manifest.ChunkSize)}
		p.verified.Set(r)
		if !p.changed.Next(r).Empty() {
			list = append(list, c)
		}
	}
	return list
}

// A patch is a disk whose changed grains come from the source. All other bytes of listed chunks come
// from the image. It is a disk.Source.
type patch struct {
	disk.Source
	image    Reader                                       // image that is updated
	changed  *bitmap.Bitmap                               // grains that may differ; a damaged chunk is added as a whole
	verified *bitmap.Bitmap                               // chunks that the manifest listed when Patch began
	read     atomic.Int64                                 // number of bytes read from Source
	written  atomic.Int64                                 // number of bytes written to the target
	damaged  atomic.Int64                                 // number of chunks of the image that differed from their hashes
	pace     func(ctx context.Context, bytes int64) error // Options.Pace; may be nil
	waited   stopwatch                                    // time spent in pace

	hashes map[int64]manifest.Hash // earlier hashes of the chunks of the current batch; not changed while they are copied

	mu          sync.Mutex       // guards the fields below
	imageChunks map[int64][]byte // chunks of the image that are read piece by piece, by number
	idle        [][]byte         // buffers of ChunkSize bytes for reuse
}

// maxImageChunks is the largest number of the image's chunks in memory. One for each reader is enough;
// with fewer, some are read again.
const maxImageChunks = 32

// copyOptions returns the options for the Copy of one batch. before is the result of all batches before
// it.
func (p *patch) copyOptions(o Options, before Result) Options {
	o.Pace = nil // reads of the image need no budget: see readSource
	if tell := o.Progress; tell != nil {
		o.Progress = func(now Progress) {
			now.Done += before.Done
			now.Skipped -= before.Done
			now.Read, now.Written = p.read.Load(), p.written.Load()
			tell(now)
		}
	}
	return o
}

// Hints returns the hints of the source without a stream, because changes are scattered.
func (p *patch) Hints() disk.Hints {
	h := p.Source.Hints()
	h.Stream = nil
	return h
}

// isFromSource reports whether the grain at off comes from the source.
func (p *patch) isFromSource(off int64) bool { return !p.verified.Has(off) || p.changed.Has(off) }

// eachRun divides r into runs that come from the source and runs that do not, and calls f for each in
// order. It stops at the first error.
func (p *patch) eachRun(r disk.Range, f func(run disk.Range, comes bool) error) error {
	for off := r.Off; off < r.End(); {
		comes := p.isFromSource(off)
		end := nextGrain(off)
		for end < r.End() && p.isFromSource(end) == comes {
			end = nextGrain(end)
		}
		end = min(end, r.End())
		if err := f(disk.Range{Off: off, Len: end - off}, comes); err != nil {
			return err
		}
		off = end
	}
	return nil
}

// nextGrain returns the offset of the grain after the one that contains off.
func nextGrain(off int64) int64 { return (off/PatchGrain + 1) * PatchGrain }

// ReadAt fills b from off, with bytes of the source and of the image.
func (p *patch) ReadAt(ctx context.Context, b []byte, off int64) error {
	return p.eachRun(disk.Range{Off: off, Len: int64(len(b))}, func(run disk.Range, comes bool) error {
		part := b[run.Off-off : run.End()-off]
		if !comes {
			return p.readKept(ctx, part, run.Off)
		}
		return p.readSource(ctx, part, run.Off)
	})
}

// readSource reads from the source within the bandwidth budget.
func (p *patch) readSource(ctx context.Context, b []byte, off int64) error {
	p.read.Add(int64(len(b)))
	if p.pace != nil {
		began := time.Now()
		err := p.pace(ctx, int64(len(b)))
		p.waited.addSince(began)
		if err != nil {
			return err
		}
	}
	return p.Source.ReadAt(ctx, b, off)
}

// readKept reads unchanged bytes from the image. If a chunk of the image is damaged, it reads from the
// source instead.
func (p *patch) readKept(ctx context.Context, b []byte, off int64) error {
	for len(b) > 0 {
		chunk := off / manifest.ChunkSize
		at := off - chunk*manifest.ChunkSize
		n := min(int64(len(b)), manifest.ChunkSize-at)
		bytes, err := p.imageChunk(ctx, chunk)
		switch {
		case err != nil:
			return err
		case bytes == nil:
			if err := p.readSource(ctx, b[:n], off); err != nil {
				return err
			}
		default:
			copy(b[:n], bytes[at:])
		}
		b, off = b[n:], off+n
	}
	return nil
}

// imageChunk returns chunk c of the image. It returns nil if the chunk differs from its hash or has
// changed completely; then all of it comes from the source. Only one goroutine at a time may request a
// chunk.
func (p *patch) imageChunk(ctx context.Context, c int64) ([]byte, error) {
	p.mu.Lock()
	have := p.imageChunks[c]
	p.mu.Unlock()
	r := disk.Range{Off: c * manifest.ChunkSize, Len: min(manifest.ChunkSize, p.Size()-c*manifest.ChunkSize)}
	if have != nil || p.changed.Has(r.Off) && p.changed.Next(r) == r {
		return have, nil
	}
	b := p.chunkBuffer()[:r.Len]
	if err := p.image.ReadAt(ctx, b, r.Off); err != nil {
		return nil, fmt.Errorf("read image: %w", err)
	}
	if want, known := p.hashes[c]; known && manifest.HashOf(b) != want {
		p.damaged.Add(1)
		p.changed.Set(r)
		return nil, nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for old := range p.imageChunks {
		if len(p.imageChunks) < maxImageChunks {
			break
		}
		delete(p.imageChunks, old)
	}
	p.imageChunks[c] = b
	return b, nil
}

// chunkBuffer returns memory of ChunkSize bytes.
func (p *patch) chunkBuffer() []byte {
	p.mu.Lock()
	defer p.mu.Unlock()
	if n := len(p.idle); n > 0 {
		b := p.idle[n-1]
		p.idle = p.idle[:n-1]
		return b
	}
	return disk.AlignedMemory(manifest.ChunkSize)
}

// releaseChunks frees the buffers of the image's chunks in r, which is written now and not read any
// more.
func (p *patch) releaseChunks(r disk.Range) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c, b := range p.imageChunks {
		if off := c * manifest.ChunkSize; off < r.End() && r.Off < off+manifest.ChunkSize {
			delete(p.imageChunks, c)
			p.idle = append(p.idle, b[:manifest.ChunkSize])
		}
	}
}

// Extents describes r. Bytes of the image count as data.
func (p *patch) Extents(ctx context.Context, r disk.Range) (list []disk.Extent, err error) {
	err = p.eachRun(r, func(run disk.Range, comes bool) error {
		if !comes {
			list = append(list, disk.Extent{Range: run})
			return nil
		}
		of, err := p.Source.Extents(ctx, run)
		list = append(list, of...)
		return err
	})
	return list, err
}

// A patchTarget writes only the bytes that came from the source.
type patchTarget struct {
	disk.Target
	p *patch // state that determines these bytes
}

// WriteAt writes the parts of b that came from the source.
func (t patchTarget) WriteAt(ctx context.Context, b []byte, off int64) error {
	t.p.releaseChunks(disk.Range{Off: off, Len: int64(len(b))})
	return t.p.eachRun(disk.Range{Off: off, Len: int64(len(b))}, func(run disk.Range, comes bool) error {
		if !comes {
			return nil
		}
		t.p.written.Add(run.Len)
		return t.Target.WriteAt(ctx, b[run.Off-off:run.End()-off], run.Off)
	})
}

// Zero zeroes the parts of r that came from the source.
func (t patchTarget) Zero(ctx context.Context, r disk.Range) error {
	t.p.releaseChunks(r)
	return t.p.eachRun(r, func(run disk.Range, comes bool) error {
		if !comes {
			return nil
		}
		return t.Target.Zero(ctx, run)
	})
}
