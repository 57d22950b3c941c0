package image

import (
	"context"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"

	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/manifest"
	"github.com/decamp/decamp/internal/qcow2"
)

// countingFile is a File that counts the bytes that are read from its finished image.
type countingFile struct {
	File
	read *atomic.Int64
}

func (c countingFile) Read(ctx context.Context) (disk.Source, error) {
	src, err := c.File.Read(ctx)
	if s, ok := src.(*qcow2.Source); ok {
		return countingQCOW2{s, c.read}, err
	}
	return countingRaw{src, c.read}, err
}

type countingRaw struct {
	disk.Source
	read *atomic.Int64
}

func (c countingRaw) ReadAt(ctx context.Context, p []byte, off int64) error {
	c.read.Add(int64(len(p)))
	return c.Source.ReadAt(ctx, p, off)
}

type countingQCOW2 struct {
	*qcow2.Source
	read *atomic.Int64
}

func (c countingQCOW2) ReadAt(ctx context.Context, p []byte, off int64) error {
	c.read.Add(int64(len(p)))
	return c.Source.ReadAt(ctx, p, off)
}

// warmJob is the job of a warm run before its last verification: the image was verified, two chunks were written
// after that, and the image is complete.
type warmJob struct {
	t    *testing.T
	job  Job
	read atomic.Int64 // bytes read from the finished image
}

const lastChunks = 2

func newWarmJob(t *testing.T, format Format, size int64) *warmJob {
	t.Helper()
	o := &warmJob{t: t}
	path := filepath.Join(t.TempDir(), "image")
	o.job = Job{
		Opener: countingFile{File{Path: path, Format: format, Size: size}, &o.read}, Path: path, Manifest: path + ".manifest",
		Info: manifest.Info{Disk: "d", Size: size, Source: "run"}, GiveUp: "remove it", Seed: 1,
	}
	src := disk.NewPattern(size)
	o.advanceRound(func(ledger manifest.Ledger, c *Copying) error {
		for chunk := range c.Log.Chunks() {
			o.noError(o.writeChunk(ledger, c, src, chunk))
		}
		return nil
	})
	report, err := o.job.VerifyWritten(t.Context(), func(manifest.Progress) {})
	if err != nil || len(report.Bad) > 0 {
		t.Fatal(report, err)
	}
	other := disk.NewSparsePattern(size, 1, 7)
	o.advanceRound(func(ledger manifest.Ledger, c *Copying) error {
		for chunk := range int64(lastChunks) {
			o.noError(errors.Join(ledger.Drop(chunk, 1), o.writeChunk(ledger, c, other, chunk)))
		}
		return nil
	})
	_, err = o.job.Complete(t.Context())
	o.noError(err)
	return o
}

func (o *warmJob) noError(err error) {
	o.t.Helper()
	if err != nil {
		o.t.Fatal(err)
	}
}

// advanceRound performs a round of the warm run.
func (o *warmJob) advanceRound(fill func(manifest.Ledger, *Copying) error) {
	o.t.Helper()
	_, err := o.job.Advance(o.t.Context(), func(_ context.Context, c *Copying) error {
		p, err := OpenVerifiedRecord(o.job.Manifest, o.job.Info)
		o.noError(err)
		ledger, err := p.Ledger(c.Log)
		o.noError(err)
		return errors.Join(fill(ledger, c), p.Save())
	})
	o.noError(err)
}

// writeChunk copies a chunk. Every eighth chunk is a hole, and of every other fourth chunk only the end is data.
func (o *warmJob) writeChunk(ledger manifest.Ledger, c *Copying, src disk.Source, chunk int64) error {
	at := o.job.Info.Chunk(chunk)
	buf := make([]byte, at.Len)
	skip := int64(0)
	switch {
	case chunk%8 == 7:
		skip = at.Len
	case chunk%4 == 3:
		skip = at.Len - 100
	}
	err := src.ReadAt(o.t.Context(), buf[skip:], at.Off+skip)
	if skip < at.Len {
		err = errors.Join(err, c.Target.WriteAt(o.t.Context(), buf[skip:], at.Off+skip))
	}
	return errors.Join(err, c.Target.Sync(o.t.Context()),
		ledger.Append(o.t.Context(), []manifest.Run{{First: chunk, Hashes: []manifest.Hash{manifest.HashOf(buf)}}}))
}

// verifyRest performs the verification in the outage.
func (o *warmJob) verifyRest() (manifest.Report, error) {
	o.t.Helper()
	p, err := OpenVerifiedRecord(o.job.Manifest, o.job.Info)
	o.noError(err)
	o.read.Store(0)
	return o.job.VerifyRest(o.t.Context(), manifest.VerifyOptions{}, p)
}

// The verification in the outage reads only the chunks that were written after the last one, with any disk size.
func TestOutageVerifiesOnlyLastDelta(t *testing.T) {
	if testing.Short() {
		t.Skip("takes more than a second")
	}
	for _, format := range []Format{Raw, QCOW2} {
		for _, size := range []int64{8 << 20, 96<<20 + disk.SectorSize} {
			o := newWarmJob(t, format, size)
			report, err := o.verifyRest()
			if err != nil {
				t.Fatal(err)
			}
			if n := o.read.Load(); n != lastChunks*manifest.ChunkSize || report.VerifiedBefore != size-n {
				t.Errorf("%s of %d bytes: %d bytes read, %d verified before", format, size, n, report.VerifiedBefore)
			}
			if _, err := o.job.Verify(t.Context(), manifest.VerifyOptions{}); err != nil {
				t.Error(err)
			}
		}
	}
}

// imageTables are the offsets of the tables in a finished qcow2 image.
type imageTables struct {
	t    *testing.T
	file *os.File
	l2   int64 // offset of the first L2 table
	refs int64 // offset of the first refcount block
	data int64 // offset of the disk's first byte
}

func (o *warmJob) openTables() imageTables {
	o.t.Helper()
	f, err := os.OpenFile(o.job.Path, os.O_RDWR, 0)
	o.noError(err)
	o.t.Cleanup(func() { f.Close() })
	at := imageTables{t: o.t, file: f}
	const offset = 1<<56 - 512
	at.l2 = int64(at.readUint64(at.l1Offset()) & offset)
	at.refs = int64(at.readUint64(int64(at.readUint64(48))) & offset)
	at.data = int64(at.readUint64(at.l2) & offset)
	return at
}

func (at imageTables) l1Offset() int64 { return int64(at.readUint64(40)) }

func (at imageTables) readUint64(off int64) uint64 {
	at.t.Helper()
	b := make([]byte, 8)
	if _, err := at.file.ReadAt(b, off); err != nil {
		at.t.Fatal(err)
	}
	return binary.BigEndian.Uint64(b)
}

func (at imageTables) writeBytes(off int64, b ...byte) {
	at.t.Helper()
	if _, err := at.file.WriteAt(b, off); err != nil {
		at.t.Fatal(err)
	}
}

// unmapCluster removes a cluster of the disk from the tables. The tables stay consistent.
func (at imageTables) unmapCluster(cluster int64) {
	at.writeBytes(at.l2+cluster*8, make([]byte, 8)...)
	at.writeBytes(at.refs+(at.data/pieceSize+cluster)*2, 0, 0)
}

// If consistent tables no longer map a verified cluster, its chunk is read again and found bad.
func TestChangedMappingIsNotVerified(t *testing.T) {
	o := newWarmJob(t, QCOW2, 8<<20)
	const cluster = 5<<20/pieceSize + 3
	o.openTables().unmapCluster(cluster)
	report, err := o.verifyRest()
	if !fault.Is(err, fault.Corrupt) || len(report.Bad) != 1 || report.Bad[0].Chunk() != 5 {
		t.Fatalf("bad %v, %v", report.Bad, err)
	}
	if n := o.read.Load(); n != (lastChunks+1)*manifest.ChunkSize {
		t.Errorf("%d bytes were read, want %d", n, (lastChunks+1)*manifest.ChunkSize)
	}
}

// An unmapped piece of zeros stays verified, because it reads as zeros.
func TestUnmappedZerosStayVerified(t *testing.T) {
	o := newWarmJob(t, QCOW2, 8<<20)
	p, err := OpenVerifiedRecord(o.job.Manifest, o.job.Info)
	o.noError(err)
	src, err := o.job.Opener.Read(t.Context())
	o.noError(err)
	defer src.Close()
	m, err := checkTables(t.Context(), src, o.job.Info.Size)
	o.noError(err)
	mapped := func(piece int64) bool { _, ok := m.At(3<<20 + piece*64<<10); return ok }
	if mapped(0) || !mapped(15) {
		t.Fatal("the first piece of chunk 3 is mapped, or its last piece is not")
	}
	for c := range o.job.Info.Chunks() {
		if proven := p.Has(c) && p.isMapped(m, o.job.Info.Chunk(c)); proven != (c >= lastChunks) {
			t.Errorf("chunk %d is verified: %v", c, proven)
		}
	}
	p.zeros.Clear(disk.Range{Off: 3 << 20, Len: manifest.ChunkSize})
	if p.keepMapped(m); p.Has(3) || !p.Has(4) || !p.Has(7) {
		t.Error("an unmapped chunk that was verified as data is still verified")
	}
}

// A corrupted table is found, also if it does not change a byte of the disk. The next attempt writes the tables
// again.
func TestDamagedTableIsRepaired(t *testing.T) {
	for name, damage := range map[string]func(imageTables){
		"elsewhere": func(at imageTables) {
			at.writeBytes(at.l2+3*8, binary.BigEndian.AppendUint64(nil, uint64(at.data)|1<<63)...)
		},
		"L1":      func(at imageTables) { at.writeBytes(at.l1Offset()+7, 2) },
		"count":   func(at imageTables) { at.writeBytes(at.refs+at.data/pieceSize*2+1, 9) },
		"flag":    func(at imageTables) { at.writeBytes(at.l2+16, 0) },
		"header":  func(at imageTables) { at.writeBytes(0, 'X') },
		"padding": func(at imageTables) { at.writeBytes(at.l1Offset()+4097, 1) },
	} {
		o := newWarmJob(t, QCOW2, 8<<20)
		damage(o.openTables())
		for _, verify := range []func() (manifest.Report, error){
			o.verifyRest, func() (manifest.Report, error) { return o.job.Verify(t.Context(), manifest.VerifyOptions{}) },
		} {
			if _, err := verify(); !fault.Is(err, fault.Corrupt) || fault.HintOf(err) == "" {
				t.Fatalf("%s: %v", name, err)
			}
			_, _, err := o.job.Fill(t.Context(), func(_ context.Context, c *Copying) error {
				src := disk.NewSparsePattern(o.job.Info.Size, 1, 7)
				return o.writeChunk(c.Log, c, src, 0)
			})
			o.noError(err)
			_, err = o.job.Verify(t.Context(), manifest.VerifyOptions{})
			o.noError(err)
			damage(o.openTables())
		}
	}
}

// A chunk that was verified at another offset of the file does not count as verified.
func TestMovedChunkIsNotVerified(t *testing.T) {
	p := openProven(t, filepath.Join(t.TempDir(), "manifest"), provenInfo)
	p.setMapping(identityMapping{})
	p.setVerified(3)
	if p.setMapping(identityMapping{}); !p.Has(3) {
		t.Error("the chunk is not verified with the same mapping")
	}
	if p.setMapping(shiftedMapping(pieceSize)); p.Has(3) || p.base != pieceSize {
		t.Error("the chunk is still verified after the mapping changed")
	}
	p.setVerified(3)
	if p.keepMapped(identityMapping{}); p.Has(3) {
		t.Error("the chunk is verified with a mapping to another offset")
	}
}

// shiftedMapping is a mapping with tables before the disk.
type shiftedMapping int64

func (s shiftedMapping) At(off int64) (int64, bool) { return int64(s) + off, true }
