package image

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/decamp/decamp/internal/atomicfile"
	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/manifest"
)

// A VerifiedRecord lists the chunks of an image that were read back from the medium and found correct since
// they were written. A copy of a running VM, which may last for days, stores it beside the manifest.
// Then the outage at the end need not include reading the whole image.
//
// A chunk was read back at a position of the file. An image whose tables are written at the end must
// map its disk to the same positions, else the verification does not apply: see mapping.go.
//
// The list may lack verified chunks, but never contains others. While an image is written there is no
// file: Ledger removes it before the first byte changes, and Save writes it after the last. After a
// crash in between, the whole image is read again.
type VerifiedRecord struct {
	path string        // path of the record's file
	info manifest.Info // disk that the record belongs to
	record

	mu   sync.Mutex // guards gone
	gone bool       // the file does not exist
}

// provenSuffix follows the manifest's path in the path of the record.
const provenSuffix = ".proven"

// OpenVerifiedRecord reads the record for the image with that manifest. An unreadable record, or one of another
// disk, lists no chunks.
func OpenVerifiedRecord(manifestPath string, info manifest.Info) (*VerifiedRecord, error) {
	p := &VerifiedRecord{path: manifestPath + provenSuffix, info: info, record: newRecord(info)}
	text, err := os.ReadFile(p.path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		p.gone = true
		return p, nil
	case err != nil:
		return nil, fmt.Errorf("read the record of verified chunks: %w", err)
	}
	if r, err := parseProven(text, info); err == nil {
		p.record = r
	}
	return p, nil
}

// manifestPath returns the path of the image's manifest.
func (p *VerifiedRecord) manifestPath() string { return strings.TrimSuffix(p.path, provenSuffix) }

// RemoveVerifiedRecord durably removes the record, if there is one.
func RemoveVerifiedRecord(manifestPath string) error {
	err := os.Remove(manifestPath + provenSuffix)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return errors.Join(err, atomicfile.Sync(filepath.Dir(manifestPath)))
}

// Has reports whether a chunk is verified.
func (p *VerifiedRecord) Has(chunk int64) bool { return p.bits.Has(chunk * manifest.ChunkSize) }

// Count returns the number of verified chunks.
func (p *VerifiedRecord) Count() (n int64) {
	for c := range p.info.Chunks() {
		if p.Has(c) {
			n++
		}
	}
	return n
}

// setVerified adds a chunk. It is safe for concurrent use.
func (p *VerifiedRecord) setVerified(chunk int64) { p.bits.Set(p.info.Chunk(chunk)) }

// clearVerified removes a chunk. It is safe for concurrent use.
func (p *VerifiedRecord) clearVerified(chunk int64) { p.bits.Clear(p.info.Chunk(chunk)) }

// clearAll durably removes all chunks.
func (p *VerifiedRecord) clearAll() error {
	p.bits.Clear(disk.Range{Len: p.info.Size})
	return p.removeFile()
}

// removeFile durably removes the file. It does nothing in later calls, until Save.
func (p *VerifiedRecord) removeFile() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.gone {
		return nil
	}
	err := os.Remove(p.path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := atomicfile.Sync(filepath.Dir(p.path)); err != nil {
		return err
	}
	p.gone = true
	return nil
}

// Ledger wraps log for a writer of the image: newly listed chunks are not verified, and none is until
// Save. Chunks that log lacks are not verified either.
func (p *VerifiedRecord) Ledger(log *manifest.Log) (manifest.Ledger, error) {
	for c := range p.info.Chunks() {
		if !log.Has(c) {
			p.clearVerified(c)
		}
	}
	return provenLedger{log, p}, p.removeFile()
}

// A provenLedger is a manifest that removes changed chunks from the VerifiedRecord.
type provenLedger struct {
	*manifest.Log
	p *VerifiedRecord // record that changes are removed from
}

// Append adds runs to the manifest. They are not verified yet.
func (l provenLedger) Append(ctx context.Context, runs []manifest.Run) error {
	for _, r := range runs {
		for c := r.First; c < r.First+r.Count(); c++ {
			l.p.clearVerified(c)
		}
	}
	return l.Log.Append(ctx, runs)
}

// Drop removes n chunks from manifest and record.
func (l provenLedger) Drop(first, n int64) error {
	for c := first; c < first+n; c++ {
		l.p.clearVerified(c)
	}
	return l.Log.Drop(first, n)
}

// DropAll removes chunks from manifest and record.
func (l provenLedger) DropAll(chunks []int64) error {
	for _, c := range chunks {
		l.p.clearVerified(c)
	}
	return l.Log.DropAll(chunks)
}

// Save writes the record durably. The image must have no writers any more.
func (p *VerifiedRecord) Save() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := atomicfile.Replace(p.path, p.encodeRecord(), 0o600); err != nil {
		return fmt.Errorf("write the record of verified chunks: %w", err)
	}
	p.gone = false
	return nil
}

// proveReaders is the number of chunks that VerifyWritten reads at the same time. It keeps a disk busy until
// the next round of the VM.
const proveReaders = 4

// A WrittenReport is the result of VerifyWritten.
type WrittenReport struct {
	Read int64          // bytes of the image
	Bad  []manifest.Bad // chunks that differ from the manifest, which does not list them any more
}

// VerifyWritten reads back the chunks of the manifest that were not read back yet, of an unfinished image
// without writers, and records that. Chunks that differ are removed from the manifest, and then no
// chunk counts as verified any more: the storage is not reliable.
func (j Job) VerifyWritten(ctx context.Context, progress func(manifest.Progress)) (report WrittenReport, err error) {
	log, err := manifest.Open(j.Manifest)
	if err != nil {
		return report, err
	}
	defer func() { err = errors.Join(err, log.Close()) }()
	p, err := OpenVerifiedRecord(j.Manifest, j.Info)
	if err != nil {
		return report, err
	}
	src, err := j.Opener.ReadUnfinished(ctx)
	if err != nil {
		return report, fmt.Errorf("open image to read it back: %w", err)
	}
	defer func() { err = errors.Join(err, src.Close()) }()
	p.setMapping(mappingOf(src))
	if err := p.verifyMissing(ctx, log, src, &report, progress); err != nil {
		return report, err
	}
	if len(report.Bad) > 0 {
		return report, errors.Join(dropBad(log, report.Bad), p.clearAll())
	}
	return report, p.Save()
}

// verifyMissing reads and compares the chunks of log that are not verified. It fills report, and calls
// progress after each chunk, one call at a time.
func (p *VerifiedRecord) verifyMissing(ctx context.Context, log *manifest.Log, src disk.Source, report *WrittenReport, progress func(manifest.Progress)) error {
	todo := make(chan int64) // closed below
	var mu sync.Mutex        // guards report and done
	var done int64
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		defer close(todo)
		for c := range p.info.Chunks() {
			if !log.Has(c) || p.Has(c) {
				continue
			}
			select {
			case todo <- c:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		return nil
	})
	for range proveReaders {
		g.Go(func() error {
			b := disk.AlignedMemory(manifest.ChunkSize)
			for c := range todo {
				bad, hole, err := p.checkChunk(ctx, log, src, c, b)
				if err != nil {
					return err
				}
				mu.Lock()
				done += p.info.Chunk(c).Len
				if !hole {
					report.Read += p.info.Chunk(c).Len
				}
				if bad != nil {
					report.Bad = append(report.Bad, *bad)
				}
				progress(manifest.Progress{Size: p.info.Size, Done: done, Read: report.Read})
				mu.Unlock()
			}
			return nil
		})
	}
	return g.Wait()
}

// checkChunk reads chunk c into b and compares it with log. It does not read a hole that must be zeros.
// bad is nil if the chunk is correct, and hole is true if nothing was read.
func (p *VerifiedRecord) checkChunk(ctx context.Context, log *manifest.Log, src disk.Source, c int64, b []byte) (bad *manifest.Bad, hole bool, err error) {
	r := p.info.Chunk(c)
	want, ok, err := log.Hash(c)
	if err != nil || !ok {
		return nil, true, err
	}
	if want == manifest.ZeroHash(int(r.Len)) {
		if extents, err := src.Extents(ctx, r); err == nil && len(extents) == 1 && extents[0].Kind == disk.Zero {
			p.zeros.Set(r) // a hole
			p.setVerified(c)
			return nil, true, nil
		}
	}
	if err := src.ReadAt(ctx, b[:r.Len], r.Off); err != nil {
		return nil, false, fmt.Errorf("read %v back: %w", r, err)
	}
	if got := manifest.HashOf(b[:r.Len]); got != want {
		return &manifest.Bad{Disk: p.info.Disk, Off: r.Off, Len: r.Len, Want: want, Got: got}, false, nil
	}
	p.noteZeros(r, b)
	p.setVerified(c)
	return nil, false, nil
}

// dropBad removes the bad chunks from the manifest.
func dropBad(log *manifest.Log, bad []manifest.Bad) error {
	for _, b := range bad {
		if err := log.Drop(b.Chunk(), 1); err != nil {
			return err
		}
	}
	return nil
}
