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

// PatchGrain is the grain of the bitmap that Patch takes, in bytes: the finest that
// changed block tracking reports.
const PatchGrain = zeroGrain

// patchBatch is how many chunks are taken off the manifest at once: what a crash makes
// Patch read as a whole, 1 GiB of disk.
const patchBatch = 1 << 10

// A Reader reads what an image holds.
type Reader interface {
	ReadAt(ctx context.Context, p []byte, off int64) error
}

// Patch brings an image with an earlier state of a disk up to src, a later one. changed has a bit for
// each PatchGrain of the disk that may differ; image reads dst.
//
// Patch requests and writes only changed grains if the manifest covers their chunk. Missing chunks are
// copied as a whole, so Patch also completes an interrupted Copy. A chunk leaves the manifest before
// its first byte changes, and returns with its new hash after the sync: a crash leaves missing chunks,
// never wrong ones. To continue after a crash, call Patch again with all changes since the last
// complete state, with the same src or a later one.
//
// The unchanged part of such a chunk is read from the image and becomes part of the new hash. Therefore
// it is first compared with the old hash: a chunk that differs from its manifest is copied from src as
// a whole, and counted in Result.Rotten. Otherwise a damaged byte of the target would count as verified
// from then on.
//
// Result.Read counts only bytes of src, Result.Written the bytes written to dst. The memory is that of
// Copy, plus
// 1 bit for each chunk, and maxImageChunks chunks.
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
		total.Read, total.Written, total.Rotten = p.read.Load(), p.written.Load(), p.damaged.Load()
		total.PaceWait = p.waited.Duration()
		if err != nil {
			return total, err
		}
	}
	return total, nil
}

// dropBatch takes chunks off the manifest, and remembers what their hashes were.
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

// changedChunks remembers which chunks the manifest proves, and returns those that changed.
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

// patch is a disk whose changed grains come from src, all else of proven chunks from the
// image.
type patch struct {
	disk.Source
	image    Reader
	changed  *bitmap.Bitmap // changed grains
	verified *bitmap.Bitmap // chunks that the manifest covered when Patch began
	read     atomic.Int64   // bytes of Source
	written  atomic.Int64   // bytes given to the target
	damaged  atomic.Int64   // number of chunks of the image that differed from their hashes
	pace     func(ctx context.Context, bytes int64) error
	waited   stopwatch // time of waits in pace

	hashes map[int64]manifest.Hash // earlier hashes of the chunks in work; read-only during the work

	mu          sync.Mutex
	imageChunks map[int64][]byte // chunks of the image that are being read piece by piece
	idle        [][]byte         // memory for more of them
}

// maxImageChunks bounds how many chunks of the image are in memory: as many as there are readers
// is enough, with fewer some are read again.
const maxImageChunks = 32

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

// Hints are those of the source, but for streams: what changed lies here and there.
func (p *patch) Hints() disk.Hints {
	h := p.Source.Hints()
	h.Stream = nil
	return h
}

// isFromSource reports whether the grain at off comes from the source.
func (p *patch) isFromSource(off int64) bool { return !p.verified.Has(off) || p.changed.Has(off) }

// eachRun cuts r into runs that come from the source and runs that do not.
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

func nextGrain(off int64) int64 { return (off/PatchGrain + 1) * PatchGrain }

func (p *patch) ReadAt(ctx context.Context, b []byte, off int64) error {
	return p.eachRun(disk.Range{Off: off, Len: int64(len(b))}, func(run disk.Range, comes bool) error {
		part := b[run.Off-off : run.End()-off]
		if !comes {
			return p.readKept(ctx, part, run.Off)
		}
		return p.readSource(ctx, part, run.Off)
	})
}

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

// readKept reads unchanged parts from verified chunks of the image.
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

// imageChunk returns a chunk of the image; nil if it differs from its hash, in which case all of it comes
// from the source from now on. One goroutine at a time requests a chunk.
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

// releaseChunks reports that r is being written: its chunks of the image are not read any more.
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

// patchTarget writes only the parts that came from the source.
type patchTarget struct {
	disk.Target
	p *patch
}

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

func (t patchTarget) Zero(ctx context.Context, r disk.Range) error {
	t.p.releaseChunks(r)
	return t.p.eachRun(r, func(run disk.Range, comes bool) error {
		if !comes {
			return nil
		}
		return t.Target.Zero(ctx, run)
	})
}
