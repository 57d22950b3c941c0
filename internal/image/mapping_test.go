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

// counted is a place that counts the bytes that are read of its finished image.
type counted struct {
	File
	read *atomic.Int64
}

func (c counted) Read(ctx context.Context) (disk.Source, error) {
	src, err := c.File.Read(ctx)
	if s, ok := src.(*qcow2.Source); ok {
		return countedQCOW2{s, c.read}, err
	}
	return countedRaw{src, c.read}, err
}

type countedRaw struct {
	disk.Source
	read *atomic.Int64
}

func (c countedRaw) ReadAt(ctx context.Context, p []byte, off int64) error {
	c.read.Add(int64(len(p)))
	return c.Source.ReadAt(ctx, p, off)
}

type countedQCOW2 struct {
	*qcow2.Source
	read *atomic.Int64
}

func (c countedQCOW2) ReadAt(ctx context.Context, p []byte, off int64) error {
	c.read.Add(int64(len(p)))
	return c.Source.ReadAt(ctx, p, off)
}

// outage is a warm run up to its last verify: the image was proven, two chunks were written
// after that, and it is complete.
type outage struct {
	t    *testing.T
	job  Job
	read atomic.Int64
}

const lastChunks = 2

func newOutage(t *testing.T, format Format, size int64) *outage {
	t.Helper()
	o := &outage{t: t}
	path := filepath.Join(t.TempDir(), "image")
	o.job = Job{
		Opener: counted{File{Path: path, Format: format, Size: size}, &o.read}, Path: path, Manifest: path + ".manifest",
		Info: manifest.Info{Disk: "d", Size: size, Source: "run"}, GiveUp: "remove it", Seed: 1,
	}
	src := disk.NewPattern(size)
	o.advance(func(ledger manifest.Ledger, c *Copying) error {
		for chunk := range c.Log.Chunks() {
			o.must(o.write(ledger, c, src, chunk))
		}
		return nil
	})
	report, err := o.job.VerifyWritten(t.Context(), func(manifest.Progress) {})
	if err != nil || len(report.Bad) > 0 {
		t.Fatal(report, err)
	}
	other := disk.NewSparsePattern(size, 1, 7)
	o.advance(func(ledger manifest.Ledger, c *Copying) error {
		for chunk := range int64(lastChunks) {
			o.must(errors.Join(ledger.Drop(chunk, 1), o.write(ledger, c, other, chunk)))
		}
		return nil
	})
	_, err = o.job.Complete(t.Context())
	o.must(err)
	return o
}

func (o *outage) must(err error) {
	o.t.Helper()
	if err != nil {
		o.t.Fatal(err)
	}
}

// advance is a round.
func (o *outage) advance(fill func(manifest.Ledger, *Copying) error) {
	o.t.Helper()
	_, err := o.job.Advance(o.t.Context(), func(_ context.Context, c *Copying) error {
		p, err := OpenVerifiedRecord(o.job.Manifest, o.job.Info)
		o.must(err)
		ledger, err := p.Ledger(c.Log)
		o.must(err)
		return errors.Join(fill(ledger, c), p.Save())
	})
	o.must(err)
}

// write copies a chunk, of which every eighth is a hole and of every fourth all but the end.
func (o *outage) write(ledger manifest.Ledger, c *Copying, src disk.Source, chunk int64) error {
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

// verify is what the outage waits for.
func (o *outage) verify() (manifest.Report, error) {
	o.t.Helper()
	p, err := OpenVerifiedRecord(o.job.Manifest, o.job.Info)
	o.must(err)
	o.read.Store(0)
	return o.job.VerifyRest(o.t.Context(), manifest.VerifyOptions{}, p)
}

// However large the disk, only what was written since it was proven is read.
func TestOutageReadsTheLastDelta(t *testing.T) {
	if testing.Short() {
		t.Skip("takes more than a second")
	}
	for _, format := range []Format{Raw, QCOW2} {
		for _, size := range []int64{8 << 20, 96<<20 + disk.SectorSize} {
			o := newOutage(t, format, size)
			report, err := o.verify()
			if err != nil {
				t.Fatal(err)
			}
			if n := o.read.Load(); n != lastChunks*manifest.ChunkSize || report.VerifiedBefore != size-n {
				t.Errorf("%s of %d: %d bytes were read, %d were proven", format, size, n, report.VerifiedBefore)
			}
			if _, err := o.job.Verify(t.Context(), manifest.VerifyOptions{}); err != nil {
				t.Error(err)
			}
		}
	}
}

// tables are where a finished image has them.
type tables struct {
	t    *testing.T
	file *os.File
	l2   int64
	refs int64
	data int64 // the disk's first byte
}

func (o *outage) tables() tables {
	o.t.Helper()
	f, err := os.OpenFile(o.job.Path, os.O_RDWR, 0)
	o.must(err)
	o.t.Cleanup(func() { f.Close() })
	at := tables{t: o.t, file: f}
	const offset = 1<<56 - 512
	at.l2 = int64(at.number(at.l1()) & offset)
	at.refs = int64(at.number(int64(at.number(48))) & offset)
	at.data = int64(at.number(at.l2) & offset)
	return at
}

func (at tables) l1() int64 { return int64(at.number(40)) }

func (at tables) number(off int64) uint64 {
	at.t.Helper()
	b := make([]byte, 8)
	if _, err := at.file.ReadAt(b, off); err != nil {
		at.t.Fatal(err)
	}
	return binary.BigEndian.Uint64(b)
}

func (at tables) put(off int64, b ...byte) {
	at.t.Helper()
	if _, err := at.file.WriteAt(b, off); err != nil {
		at.t.Fatal(err)
	}
}

// unmap takes a cluster of the disk out of the tables, so that they agree with each other.
func (at tables) unmap(cluster int64) {
	at.put(at.l2+cluster*8, make([]byte, 8)...)
	at.put(at.refs+(at.data/pieceSize+cluster)*2, 0, 0)
}

// What the tables do not map any more is read, however well they look, and found to differ:
// the cluster was proven where it was, not where it is now.
func TestChangedMappingIsNotProven(t *testing.T) {
	o := newOutage(t, QCOW2, 8<<20)
	const cluster = 5<<20/pieceSize + 3
	o.tables().unmap(cluster)
	report, err := o.verify()
	if !fault.Is(err, fault.Corrupt) || len(report.Bad) != 1 || report.Bad[0].Chunk() != 5 {
		t.Fatalf("bad %v, %v", report.Bad, err)
	}
	if n := o.read.Load(); n != (lastChunks+1)*manifest.ChunkSize {
		t.Errorf("%d bytes were read", n)
	}
}

// A piece that was zeros may be mapped or not: it was read back as what it is.
func TestUnmappedZerosStayProven(t *testing.T) {
	o := newOutage(t, QCOW2, 8<<20)
	p, err := OpenVerifiedRecord(o.job.Manifest, o.job.Info)
	o.must(err)
	src, err := o.job.Opener.Read(t.Context())
	o.must(err)
	defer src.Close()
	m, err := checkTables(t.Context(), src, o.job.Info.Size)
	o.must(err)
	held := func(piece int64) bool { _, held := m.At(3<<20 + piece*64<<10); return held }
	if held(0) || !held(15) {
		t.Fatal("chunk 3 is not all zeros but for its end")
	}
	for c := range o.job.Info.Chunks() {
		if proven := p.Has(c) && p.isMapped(m, o.job.Info.Chunk(c)); proven != (c >= lastChunks) {
			t.Errorf("chunk %d is proven: %v", c, proven)
		}
	}
	p.zeros.Clear(disk.Range{Off: 3 << 20, Len: manifest.ChunkSize})
	if p.keepMapped(m); p.Has(3) || !p.Has(4) || !p.Has(7) {
		t.Error("what was no zeros when it was read back is unmapped, and proven")
	}
}

// A table that rotted is found also where no byte of the disk would tell, and the next attempt
// writes it anew.
func TestDamagedTableIsRepaired(t *testing.T) {
	for name, rot := range map[string]func(tables){
		"elsewhere": func(at tables) { at.put(at.l2+3*8, binary.BigEndian.AppendUint64(nil, uint64(at.data)|1<<63)...) },
		"L1":        func(at tables) { at.put(at.l1()+7, 2) },
		"count":     func(at tables) { at.put(at.refs+at.data/pieceSize*2+1, 9) },
		"flag":      func(at tables) { at.put(at.l2+16, 0) },
		"header":    func(at tables) { at.put(0, 'X') },
		"padding":   func(at tables) { at.put(at.l1()+4097, 1) },
	} {
		o := newOutage(t, QCOW2, 8<<20)
		rot(o.tables())
		for _, verify := range []func() (manifest.Report, error){
			o.verify, func() (manifest.Report, error) { return o.job.Verify(t.Context(), manifest.VerifyOptions{}) },
		} {
			if _, err := verify(); !fault.Is(err, fault.Corrupt) || fault.HintOf(err) == "" {
				t.Fatalf("%s: %v", name, err)
			}
			_, _, err := o.job.Fill(t.Context(), func(_ context.Context, c *Copying) error {
				src := disk.NewSparsePattern(o.job.Info.Size, 1, 7)
				return o.write(c.Log, c, src, 0)
			})
			o.must(err)
			_, err = o.job.Verify(t.Context(), manifest.VerifyOptions{})
			o.must(err)
			rot(o.tables())
		}
	}
}

// What was read back at another place of the file says nothing about this one.
func TestProvenElsewhereIsForgotten(t *testing.T) {
	p := openProven(t, filepath.Join(t.TempDir(), "manifest"), provenInfo)
	p.setMapping(identityMapping{})
	p.setVerified(3)
	if p.setMapping(identityMapping{}); !p.Has(3) {
		t.Error("forgotten for no reason")
	}
	if p.setMapping(shifted(pieceSize)); p.Has(3) || p.base != pieceSize {
		t.Error("it is still proven")
	}
	p.setVerified(3)
	if p.keepMapped(identityMapping{}); p.Has(3) {
		t.Error("it is proven where it is not")
	}
}

// shifted is a mapping with tables before the disk.
type shifted int64

func (s shifted) At(off int64) (int64, bool) { return int64(s) + off, true }
