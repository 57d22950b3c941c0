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
	// writers is the number of chunks of 1 MiB that are read and written concurrently. It determines the
	// memory use.
	writers = 8

	// batchData is the maximum number of chunks with data that are verified and recorded together.
	batchData = 64
	batchAll  = 1024 // batchAll is the same for all chunks; writing zeros costs nothing.

	// blockSize is the unit in which zeros are skipped, in bytes: an extent of LVM-thin.
	blockSize = 64 << 10
)

// volumeFiller writes an image to a volume. A chunk is recorded after the node has flushed it, read it
// back, and found the
// hash in the image's manifest. Its record is removed before the first of its bytes is changed. So
// after a crash,
// the record never lists a chunk that the volume does not contain.
//
// The content of a new volume is unknown. Zeros are not written at first, but read back like all other
// data. If the
// volume contains other bytes there (LVM does not clear volumes), zeros are written from then on.
type volumeFiller struct {
	src       disk.Source   // the image
	hashes    hashFunc      // expected hashes of chunks
	record    *manifest.Log // hashes of the verified chunks of the volume
	knownOnly bool          // skip chunks whose hash is not known yet
	progress  func(n int64) // receives the number of verified bytes

	volume       *nodeVolume  // connection to the volume; replaced after errors
	nonzero      bool         // the new volume contains nonzero bytes, so zeros must be written
	written      atomic.Int64 // bytes of data written, without zeros
	verified     int64        // number of chunks recorded by this filler
	examined     int64        // number of chunks examined from the start of the disk, over all runs
	presentBytes int64        // bytes that were already correct and are not reported yet
}

// hashFunc returns the expected hash of a chunk, and false if it is not known.
type hashFunc func(chunk int64) (manifest.Hash, bool, error)

// piece is a chunk that is being written.
type piece struct {
	chunk int64         // index of the chunk
	r     disk.Range    // its byte range
	want  manifest.Hash // expected hash, if known
	known bool          // want is valid
	old   bool          // the volume has a recorded chunk with another hash
	zero  bool          // the chunk contains only zeros
	sum   sum           // expected answer of the node when it reads the chunk back
}

// run processes all chunks once. It can be called again with a new connection after an error; verified
// chunks are not
// written again. A volume that is smaller than the image is fault.Corrupt.
func (f *volumeFiller) run(ctx context.Context) error {
	info := f.record.Info()
	if f.volume.Size() < info.Size {
		return fault.New(fault.Corrupt, "the volume has %d bytes, %d are required", f.volume.Size(), info.Size).
			WithHint("the volume was shrunk: cancel the run with decamp cancel, and start it again")
	}
	var batch []*piece
	data := 0
	for chunk := range info.Chunks() {
		p, err := f.newPiece(chunk)
		if err != nil {
			return err
		}
		if chunk >= f.examined {
			f.examined++
			if p == nil {
				f.presentBytes += info.Chunk(chunk).Len
			}
		}
		if p == nil {
			continue
		}
		if batch = append(batch, p); !p.zero {
			data++
		}
		if data == batchData || len(batch) == batchAll {
			if err := f.writeBatch(ctx, batch); err != nil {
				return err
			}
			batch, data = nil, 0
		}
	}
	if err := f.writeBatch(ctx, batch); err != nil {
		return err
	}
	f.reportProgress(0)
	return f.clearTail(ctx, disk.Range{Off: info.Size, Len: f.volume.Size() - info.Size})
}

// newPiece returns the piece for a chunk, or nil if the volume contains the chunk or its hash is not
// known yet.
func (f *volumeFiller) newPiece(chunk int64) (*piece, error) {
	r := f.record.Info().Chunk(chunk)
	want, known, err := f.hashes(chunk)
	if err != nil || !known && f.knownOnly {
		return nil, err
	}
	have, old, err := f.record.Hash(chunk)
	if err != nil || old && known && have == want {
		return nil, err
	}
	return &piece{chunk: chunk, r: r, want: want, known: known, old: old, zero: known && want == manifest.ZeroHash(int(r.Len))}, nil
}

// writeBatch writes pieces, has the node read them back, and records them. Pieces that differ are
// written once more.
// If they differ again, the error is fault.Corrupt.
func (f *volumeFiller) writeBatch(ctx context.Context, batch []*piece) error {
	if len(batch) == 0 {
		return nil
	}
	// The record must not list a chunk that is being changed, because a crash can follow at any point.
	if err := f.dropRecorded(batch); err != nil {
		return err
	}
	if err := f.writePieces(ctx, batch); err != nil {
		return err
	}
	wrong, err := f.findDifferent(ctx, batch)
	if err == nil && len(wrong) > 0 {
		wrong, err = f.rewritePieces(ctx, wrong)
	}
	if err != nil {
		return err
	}
	if len(wrong) > 0 {
		return fault.New(fault.Corrupt, "the volume differs from the written data at %v", wrong[0].r).
			WithHint("check its storage for errors, on the node: dmesg -T | tail, smartctl -H; then run the same command again")
	}
	return f.recordPieces(ctx, batch)
}

// dropRecorded removes the records of chunks that are about to change.
func (f *volumeFiller) dropRecorded(batch []*piece) error {
	var old []int64
	for _, p := range batch {
		if p.old {
			old = append(old, p.chunk)
		}
	}
	return f.record.DropAll(old)
}

// rewritePieces writes pieces completely, including zeros, and returns those that still differ.
func (f *volumeFiller) rewritePieces(ctx context.Context, wrong []*piece) ([]*piece, error) {
	f.nonzero = true
	if err := f.writePieces(ctx, wrong); err != nil {
		return nil, err
	}
	return f.findDifferent(ctx, wrong)
}

// writePieces writes pieces concurrently and flushes the volume.
func (f *volumeFiller) writePieces(ctx context.Context, batch []*piece) error {
	g, each := errgroup.WithContext(ctx)
	g.SetLimit(writers)
	for _, p := range batch {
		if p.zero && !p.old && !f.nonzero {
			continue
		}
		g.Go(func() error { return f.writePiece(each, p) })
	}
	if err := g.Wait(); err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return err
	}
	return f.volume.Flush(ctx)
}

// writePiece reads a chunk of the image and writes it. If the hash of the chunk is known, a difference
// is
// fault.Corrupt. Otherwise the hash of the data is used from then on.
func (f *volumeFiller) writePiece(ctx context.Context, p *piece) error {
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
		return fault.New(fault.Corrupt, "the image differs from its manifest at %v", p.r).
			WithHint("check this host's storage for errors (dmesg, smartctl), then run the same command again")
	}
	if p.sum = sumOfBytes(data); p.sum == zeros {
		p.zero = true
		if p.old || f.nonzero {
			return f.volume.Zero(ctx, p.r)
		}
		return nil
	}
	return f.writeData(ctx, p, data)
}

// writeData writes a chunk. It skips blocks of zeros if the volume is new.
func (f *volumeFiller) writeData(ctx context.Context, p *piece, data []byte) error {
	if p.old || f.nonzero {
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

// zeroBlock is compared with blocks.
var zeroBlock [blockSize]byte

// dataOf returns the ranges of p with data, in multiples of blockSize.
func dataOf(p []byte) []disk.Range {
	var all []disk.Range
	for off := 0; off < len(p); off += blockSize {
		part := p[off:min(off+blockSize, len(p))]
		if bytes.Equal(part, zeroBlock[:len(part)]) {
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

// findDifferent has the node read pieces back, and returns those with an unexpected sum. Adjacent
// pieces are read in one
// request.
func (f *volumeFiller) findDifferent(ctx context.Context, batch []*piece) (wrong []*piece, err error) {
	for len(batch) > 0 {
		n := 1
		for n < len(batch) && batch[n].chunk == batch[0].chunk+int64(n) {
			n++
		}
		sums, err := f.volume.readSums(ctx, disk.Range{Off: batch[0].r.Off, Len: batch[n-1].r.End() - batch[0].r.Off})
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

// recordPieces records verified chunks and reports their bytes.
func (f *volumeFiller) recordPieces(ctx context.Context, batch []*piece) error {
	var runs []manifest.Run
	var n int64
	for _, p := range batch {
		runs = append(runs, manifest.Run{First: p.chunk, Hashes: []manifest.Hash{p.want}})
		n += p.r.Len
	}
	if err := f.record.Append(ctx, runs); err != nil {
		return err
	}
	f.verified += int64(len(batch))
	f.reportProgress(n)
	return nil
}

// reportProgress reports n bytes, and those that were already present.
func (f *volumeFiller) reportProgress(n int64) {
	n, f.presentBytes = n+f.presentBytes, 0
	f.progress(n)
}

// clearTail writes zeros after the end of the disk unless the volume reads as zeros there. LVM rounds
// volumes up to whole
// extents, whose old data the guest must not see.
func (f *volumeFiller) clearTail(ctx context.Context, r disk.Range) error {
	if r.Empty() {
		return nil
	}
	clean := func() (bool, error) {
		for off := r.Off; off < r.End(); off += batchAll << 20 {
			sums, err := f.volume.readSums(ctx, disk.Range{Off: off, Len: min(batchAll<<20, r.End()-off)})
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
			WithHint("check its storage for errors, on the node: dmesg -T | tail, smartctl -H; then run the same command again")
	}
	return err
}
