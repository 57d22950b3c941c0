package proxmox

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/manifest"
)

const (
	// writers is how many chunks are read and written at once, each of a MiB: what is in memory.
	writers = 8

	// batchData and batchAll bound what is proven and put on record in one go, in chunks: with data, and
	// with zeros, which cost nothing to write.
	batchData = 64
	batchAll  = 1024

	// grain is what is looked at for zeros that need not be written, in bytes: an extent of LVM-thin.
	grain = 64 << 10
)

// A filling brings one volume to what an image holds. A chunk is on record once the node has read it back
// after a flush, and it was what the image's manifest says; it is off the record before the first of its
// bytes changes. So the record never lists what is not there, whatever dies.
//
// Of what a fresh volume holds nothing is assumed. Zeros are not written at first, and read back like
// all else: where they are none (LVM does not clear) they are written, and from then on at once.
type filling struct {
	src    disk.Source
	hashes hashes        // what chunks are to be
	record *manifest.Log // what chunks of the volume are
	least  bool          // chunks whose hash is not known yet are left out
	did    func(n int64) // is told of bytes that are proven

	volume  *both
	dirty   bool // it had other than zeros
	written atomic.Int64
	proven  int64 // chunks that went on record
	seen    int64 // chunks that were looked at, from the beginning
	there   int64 // bytes that were right when they were, and are not told of
}

// hashes tell what a chunk is to be, and false where nobody knows.
type hashes func(chunk int64) (manifest.Hash, bool, error)

// A piece is a chunk on its way.
type piece struct {
	chunk int64
	r     disk.Range
	want  manifest.Hash
	known bool // want is
	old   bool // the volume has something else there
	zero  bool
	sum   sum
}

// run goes through the volume once, from the beginning.
func (f *filling) run(ctx context.Context) error {
	info := f.record.Info()
	if f.volume.Size() < info.Size {
		return fault.New(fault.Corrupt, "the volume has %d bytes, %d are needed", f.volume.Size(), info.Size).
			WithHint("somebody has made it smaller: decamp cancel the run, and begin again")
	}
	var batch []*piece
	data := 0
	for chunk := range info.Chunks() {
		p, err := f.piece(chunk)
		if err != nil {
			return err
		}
		if chunk >= f.seen {
			f.seen++
			if p == nil {
				f.there += info.Chunk(chunk).Len
			}
		}
		if p == nil {
			continue
		}
		if batch = append(batch, p); !p.zero {
			data++
		}
		if data == batchData || len(batch) == batchAll {
			if err := f.batch(ctx, batch); err != nil {
				return err
			}
			batch, data = nil, 0
		}
	}
	if err := f.batch(ctx, batch); err != nil {
		return err
	}
	f.tell(0)
	return f.tail(ctx, disk.Range{Off: info.Size, Len: f.volume.Size() - info.Size})
}

// piece is nil for a chunk that is as it should be, or that nobody knows how it should be.
func (f *filling) piece(chunk int64) (*piece, error) {
	r := f.record.Info().Chunk(chunk)
	want, known, err := f.hashes(chunk)
	if err != nil || !known && f.least {
		return nil, err
	}
	have, old, err := f.record.Hash(chunk)
	if err != nil || old && known && have == want {
		return nil, err
	}
	return &piece{chunk: chunk, r: r, want: want, known: known, old: old, zero: known && want == manifest.ZeroHash(int(r.Len))}, nil
}

func (f *filling) batch(ctx context.Context, batch []*piece) error {
	if len(batch) == 0 {
		return nil
	}
	if err := f.takeOff(batch); err != nil {
		return err
	}
	if err := f.write(ctx, batch); err != nil {
		return err
	}
	wrong, err := f.differ(ctx, batch)
	if err == nil && len(wrong) > 0 {
		wrong, err = f.again(ctx, wrong)
	}
	if err != nil {
		return err
	}
	if len(wrong) > 0 {
		return fault.New(fault.Corrupt, "the volume does not hold what was written at %v", wrong[0].r).
			WithHint("look for errors of its storage, on the node: dmesg -T | tail, smartctl -H; then run the same command again")
	}
	return f.putOn(ctx, batch)
}

// takeOff takes chunks off the record that are about to change.
func (f *filling) takeOff(batch []*piece) error {
	var old []int64
	for _, p := range batch {
		if p.old {
			old = append(old, p.chunk)
		}
	}
	return f.record.DropAll(old)
}

// again writes pieces in full that were not what they should be, and says which still are not.
func (f *filling) again(ctx context.Context, wrong []*piece) ([]*piece, error) {
	f.dirty = true
	if err := f.write(ctx, wrong); err != nil {
		return nil, err
	}
	return f.differ(ctx, wrong)
}

func (f *filling) write(ctx context.Context, batch []*piece) error {
	g, each := errgroup.WithContext(ctx)
	g.SetLimit(writers)
	for _, p := range batch {
		if p.zero && !p.old && !f.dirty {
			continue
		}
		g.Go(func() error { return f.put(each, p) })
	}
	if err := g.Wait(); err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return err
	}
	return f.volume.Flush(ctx)
}

func (f *filling) put(ctx context.Context, p *piece) error {
	if p.zero {
		return f.volume.Zero(ctx, p.r)
	}
	data := make([]byte, p.r.Len)
	if err := f.src.ReadAt(ctx, data, p.r.Off); err != nil {
		return fmt.Errorf("read the image at %v: %w", p.r, err)
	}
	if got := manifest.HashOf(data); !p.known {
		p.want, p.known = got, true
	} else if got != p.want {
		return fault.New(fault.Corrupt, "the image is not what its manifest says at %v", p.r).
			WithHint("look for errors of this machine's storage (dmesg, smartctl), then run the same command again")
	}
	if p.sum = sumOfBytes(data); p.sum == zeros {
		p.zero = true
		if p.old || f.dirty {
			return f.volume.Zero(ctx, p.r)
		}
		return nil
	}
	return f.putData(ctx, p, data)
}

// putData leaves out the zeros of a chunk that was never written.
func (f *filling) putData(ctx context.Context, p *piece, data []byte) error {
	if p.old || f.dirty {
		f.written.Add(int64(len(data)))
		return f.volume.WriteAt(ctx, data, p.r.Off)
	}
	for _, r := range dataOf(data) {
		if err := f.volume.WriteAt(ctx, data[r.Off:r.End()], p.r.Off+r.Off); err != nil {
			return err
		}
		f.written.Add(r.Len)
	}
	return nil
}

var zeroGrain [grain]byte

// dataOf lists what of p is not zeros, by grains.
func dataOf(p []byte) []disk.Range {
	var all []disk.Range
	for off := 0; off < len(p); off += grain {
		part := p[off:min(off+grain, len(p))]
		if bytes.Equal(part, zeroGrain[:len(part)]) {
			continue
		}
		if n := len(all); n > 0 && all[n-1].End() == int64(off) {
			all[n-1].Len += int64(len(part))
			continue
		}
		all = append(all, disk.Range{Off: int64(off), Len: int64(len(part))})
	}
	return all
}

// differ has the node read pieces back, and returns those that are not what they should be.
func (f *filling) differ(ctx context.Context, batch []*piece) (wrong []*piece, err error) {
	for len(batch) > 0 {
		n := 1
		for n < len(batch) && batch[n].chunk == batch[0].chunk+int64(n) {
			n++
		}
		sums, err := f.volume.read(ctx, disk.Range{Off: batch[0].r.Off, Len: batch[n-1].r.End() - batch[0].r.Off})
		if err != nil {
			return nil, err
		}
		for i, p := range batch[:n] {
			if sums[i] != p.sum {
				wrong = append(wrong, p)
			}
		}
		batch = batch[n:]
	}
	return wrong, nil
}

// putOn puts proven chunks on record.
func (f *filling) putOn(ctx context.Context, batch []*piece) error {
	var runs []manifest.Run
	var n int64
	for _, p := range batch {
		runs = append(runs, manifest.Run{First: p.chunk, Hashes: []manifest.Hash{p.want}})
		n += p.r.Len
	}
	if err := f.record.Append(ctx, runs); err != nil {
		return err
	}
	f.proven += int64(len(batch))
	f.tell(n)
	return nil
}

// tell tells of n bytes, and of those that needed nothing.
func (f *filling) tell(n int64) {
	n, f.there = n+f.there, 0
	f.did(n)
}

// tail has what a volume is larger than its image read as zeros: LVM makes whole extents, and what
// was there before is nobody's to read.
func (f *filling) tail(ctx context.Context, r disk.Range) error {
	if r.Empty() {
		return nil
	}
	clean := func() (bool, error) {
		for off := r.Off; off < r.End(); off += batchAll << 20 {
			sums, err := f.volume.read(ctx, disk.Range{Off: off, Len: min(batchAll<<20, r.End()-off)})
			if err != nil || slices.ContainsFunc(sums, func(s sum) bool { return s != zeros }) {
				return false, err
			}
		}
		return true, nil
	}
	is, err := clean()
	if err != nil || is {
		return err
	}
	if err := errors.Join(f.volume.Zero(ctx, r), f.volume.Flush(ctx)); err != nil {
		return err
	}
	if is, err = clean(); err == nil && !is {
		return fault.New(fault.Corrupt, "the volume cannot be cleared at %v", r).
			WithHint("look for errors of its storage, on the node: dmesg -T | tail, smartctl -H; then run the same command again")
	}
	return err
}
