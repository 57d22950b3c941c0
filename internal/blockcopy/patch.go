package blockcopy

import (
	"context"
	"fmt"
	"sync/atomic"

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

// Patch brings an image that holds an earlier state of a disk up to src, a later one.
// Changed has a bit for every PatchGrain of the disk that may differ; image reads dst.
//
// Only grains that changed are asked of src and written, where the manifest proves the
// chunk around them. Chunks it lacks are copied as a whole, so Patch also completes what
// Copy began. A chunk is off the manifest before the first of its bytes changes, and back,
// with its new hash, once it is synced: a crash leaves chunks that are missing, never ones
// that are wrong. To go on after one, Patch is called again with all that changed since the
// state that was complete, from the same src or a later one.
//
// Result.Read counts bytes of src alone, Result.Written those given to dst. Memory is Copy's, and 1 bit for each chunk.
func Patch(ctx context.Context, src disk.Source, dst disk.Target, image Reader, changed *bitmap.Bitmap, o Options) (total Result, err error) {
	p := &patch{Source: src, image: image, changed: changed, kept: bitmap.New(src.Size(), manifest.ChunkSize)}
	todo := p.touched(o.Manifest)
	for first := true; first || len(todo) > 0; first = false {
		batch := todo[:min(patchBatch, len(todo))]
		todo = todo[len(batch):]
		if err := drop(o.Manifest, batch); err != nil {
			return total, fmt.Errorf("write manifest: %w", err)
		}
		res, err := Copy(ctx, p, patchTarget{dst, p}, p.options(o, total))
		total = total.then(res)
		total.Read, total.Written = p.read.Load(), p.written.Load()
		if err != nil {
			return total, err
		}
	}
	return total, nil
}

// touched remembers which chunks the manifest proves, and returns those that changed.
func (p *patch) touched(m manifest.Ledger) (list []int64) {
	size := p.Size()
	for c := range m.Chunks() {
		if !m.Has(c) {
			continue
		}
		r := disk.Range{Off: c * manifest.ChunkSize, Len: min(manifest.ChunkSize, size-c*manifest.ChunkSize)}
		p.kept.Set(r)
		if !p.changed.Next(r).Empty() {
			list = append(list, c)
		}
	}
	return list
}

// drop takes chunks, in order, off the manifest.
func drop(m manifest.Ledger, chunks []int64) error {
	for len(chunks) > 0 {
		n := 1
		for n < len(chunks) && chunks[n] == chunks[0]+int64(n) {
			n++
		}
		if err := m.Drop(chunks[0], int64(n)); err != nil {
			return err
		}
		chunks = chunks[n:]
	}
	return nil
}

// then adds what was done after r. What an earlier batch did the later ones skip.
func (r Result) then(next Result) Result {
	next.Done += r.Done
	next.Skipped -= r.Done
	next.Elapsed += r.Elapsed
	next.ReadTime += r.ReadTime
	next.HashTime += r.HashTime
	next.WindowWait += r.WindowWait
	next.WriteTime += r.WriteTime
	next.Checkpoints += r.Checkpoints
	next.SyncTime += r.SyncTime
	return next
}

// patch is a disk whose changed grains come from src, all else of proven chunks from the
// image.
type patch struct {
	disk.Source
	image   Reader
	changed *bitmap.Bitmap // by grain
	kept    *bitmap.Bitmap // by chunk: proven when Patch began
	read    atomic.Int64   // bytes of Source
	written atomic.Int64   // bytes given to the target
}

func (p *patch) options(o Options, before Result) Options {
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

// comes reports whether the grain at off comes from the source.
func (p *patch) comes(off int64) bool { return !p.kept.Has(off) || p.changed.Has(off) }

// each cuts r into runs that come from the source and runs that do not.
func (p *patch) each(r disk.Range, f func(run disk.Range, comes bool) error) error {
	for off := r.Off; off < r.End(); {
		comes := p.comes(off)
		end := nextGrain(off)
		for end < r.End() && p.comes(end) == comes {
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
	return p.each(disk.Range{Off: off, Len: int64(len(b))}, func(run disk.Range, comes bool) error {
		part := b[run.Off-off : run.End()-off]
		if !comes {
			if err := p.image.ReadAt(ctx, part, run.Off); err != nil {
				return fmt.Errorf("read image: %w", err)
			}
			return nil
		}
		p.read.Add(run.Len)
		return p.Source.ReadAt(ctx, part, run.Off)
	})
}

func (p *patch) Extents(ctx context.Context, r disk.Range) (list []disk.Extent, err error) {
	err = p.each(r, func(run disk.Range, comes bool) error {
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

// patchTarget leaves alone what did not come from the source.
type patchTarget struct {
	disk.Target
	p *patch
}

func (t patchTarget) WriteAt(ctx context.Context, b []byte, off int64) error {
	return t.p.each(disk.Range{Off: off, Len: int64(len(b))}, func(run disk.Range, comes bool) error {
		if !comes {
			return nil
		}
		t.p.written.Add(run.Len)
		return t.Target.WriteAt(ctx, b[run.Off-off:run.End()-off], run.Off)
	})
}

func (t patchTarget) Zero(ctx context.Context, r disk.Range) error {
	return t.p.each(r, func(run disk.Range, comes bool) error {
		if !comes {
			return nil
		}
		return t.Target.Zero(ctx, run)
	})
}
