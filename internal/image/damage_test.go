package image

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/manifest"
)

// zeroChunks writes zeros over chunks of the image's file.
func (r *testJob) zeroChunks(chunks ...int64) {
	r.t.Helper()
	f, err := os.OpenFile(r.job.Path, os.O_WRONLY, 0)
	if err != nil {
		r.t.Fatal(err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		r.t.Fatal(err)
	}
	from := (info.Size() - testSize) &^ 0xffff // the disk begins here in both formats
	for _, c := range chunks {
		if _, err := f.WriteAt(make([]byte, manifest.ChunkSize), from+c*manifest.ChunkSize); err != nil {
			r.t.Fatal(err)
		}
	}
}

// missingChunks returns the chunks that the manifest does not list.
func (r *testJob) missingChunks() (chunks []int64) {
	r.t.Helper()
	log, err := manifest.Open(r.job.Manifest)
	if err != nil {
		r.t.Fatal(err)
	}
	defer log.Close()
	for c := range log.Chunks() {
		if !log.Has(c) {
			chunks = append(chunks, c)
		}
	}
	return chunks
}

// Verify removes all bad chunks from the manifest, and the next attempt copies these and no others.
func TestEachBadChunkIsCopiedAgain(t *testing.T) {
	eachFormat(t, func(t *testing.T, r *testJob) {
		r.fillRest(6)
		r.zeroChunks(0, 3, 4)
		report, err := r.job.Verify(t.Context(), manifest.VerifyOptions{})
		if !fault.Is(err, fault.Corrupt) || report.BadChunks != 3 || !strings.Contains(fault.HintOf(err), "copies the 3 bad chunks again") {
			t.Fatalf("%d bad chunks, %v, remedy %q", report.BadChunks, err, fault.HintOf(err))
		}
		if got := r.missingChunks(); !slices.Equal(got, []int64{0, 3, 4}) {
			t.Errorf("chunks %v are missing", got)
		}
		r.fillRest(3)
	})
}

// An image that lost a chunk is copied again from its start, also if it is the first chunk.
func TestResumedImageWithoutItsFirstChunk(t *testing.T) {
	eachFormat(t, func(t *testing.T, r *testJob) {
		r.stopAfter(3)
		r.zeroChunks(0)
		r.fillRest(6)
		if len(r.restarts) != 1 || !strings.Contains(r.restarts[0], "chunk 0 differs") {
			t.Errorf("reported %q", r.restarts)
		}
	})
}

// A finished image of another disk is copied again.
func TestFinishedImageOfAnotherDisk(t *testing.T) {
	eachFormat(t, func(t *testing.T, r *testJob) {
		r.fillRest(6)
		r.job.Info.Source = "there"
		r.fillRest(6)
		if len(r.restarts) != 1 {
			t.Errorf("reported %q", r.restarts)
		}
	})
}

// From describes where a copy starts.
func TestStartOfACopyIsReported(t *testing.T) {
	r := newTestJob(t, Raw)
	for _, want := range []string{"from its beginning", "with 2 of 6 chunks durable"} {
		if _, err := r.job.Advance(t.Context(), func(ctx context.Context, c *Copying) error {
			if got := c.From(); got != want {
				t.Errorf("the copy starts %q, want %q", got, want)
			}
			return r.copyMissing(2)(ctx, c)
		}); !errors.Is(err, errStop) {
			t.Fatal(err)
		}
	}
}

// Open reports a new file as created, so that a copy does not use an older manifest for it.
func TestOpenReportsANewImage(t *testing.T) {
	eachFormat(t, func(t *testing.T, r *testJob) {
		for _, want := range []bool{true, false} {
			target, created, err := r.job.Opener.Open(t.Context())
			if err != nil || created != want {
				t.Fatalf("created %v, want %v: %v", created, want, err)
			}
			if err := target.Close(); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// If the tables of a qcow2 image are damaged, Verify makes it unfinished and its manifest open. It does not change a
// truncated raw image and its manifest.
func TestVerifyReopensADamagedQCOW2Image(t *testing.T) {
	o := newWarmJob(t, QCOW2, 8<<20)
	at := o.openTables()
	at.writeBytes(at.l1Offset()+7, 2)
	_, err := o.job.Verify(t.Context(), manifest.VerifyOptions{})
	if !fault.Is(err, fault.Corrupt) || !strings.Contains(fault.HintOf(err), "writes the tables again") {
		t.Errorf("%v, remedy %q", err, fault.HintOf(err))
	}
	if _, err := manifest.Load(o.job.Manifest); !fault.Is(err, fault.Conflict) {
		t.Errorf("the manifest is still sealed: %v", err)
	}
	r := newTestJob(t, Raw)
	r.fillRest(6)
	if err := os.Truncate(r.job.Path, 3<<20); err != nil {
		t.Fatal(err)
	}
	if _, err := r.job.Verify(t.Context(), manifest.VerifyOptions{}); err == nil {
		t.Error("Verify accepts a truncated image")
	}
	if got := r.missingChunks(); got != nil {
		t.Errorf("chunks %v are missing in the manifest of the raw image", got)
	}
}

// lossyFile is a File whose image loses writes to a range without an error.
type lossyFile struct {
	File
	lost disk.Range
}

// lossyTarget is the target of a lossyFile.
type lossyTarget struct {
	disk.Target
	lost disk.Range
}

func (l lossyFile) Open(ctx context.Context) (disk.Target, bool, error) {
	t, created, err := l.File.Open(ctx)
	return lossyTarget{t, l.lost}, created, err
}

func (l lossyTarget) WriteAt(ctx context.Context, p []byte, off int64) error {
	if !l.lost.Intersect(disk.Range{Off: off, Len: int64(len(p))}).Empty() {
		return nil
	}
	return l.Target.WriteAt(ctx, p, off)
}

// Amend reads its writes back. A chunk that the storage lost is found, and removed from the
// manifest.
func TestAmendFindsLostWrites(t *testing.T) {
	eachFormat(t, func(t *testing.T, r *testJob) {
		r.fillRest(6)
		file, want := r.job.Opener.(File), amendedDisk{r.src}
		r.job.Opener = lossyFile{file, r.job.Info.Chunk(2)}
		_, err := r.job.Amend(t.Context(), Amendment{want, want.chunks()})
		if !fault.Is(err, fault.Corrupt) || !strings.Contains(fault.HintOf(err), "copies the 1 bad chunks again") {
			t.Fatalf("%v, remedy %q", err, fault.HintOf(err))
		}
		if got := r.missingChunks(); !slices.Equal(got, []int64{2}) {
			t.Errorf("chunks %v are missing", got)
		}
	})
}

// recordingTarget is a target that records its operations, and fails from a given operation on.
type recordingTarget struct {
	disk.Null
	ops  []string
	fail int // number of the first operation that fails; 0 if none
}

func (c *recordingTarget) record(name string, r disk.Range) error {
	c.ops = append(c.ops, name+" "+r.String())
	if c.fail > 0 && len(c.ops) >= c.fail {
		return errStop
	}
	return nil
}

func (c *recordingTarget) WriteAt(_ context.Context, p []byte, off int64) error {
	return c.record("write", disk.Range{Off: off, Len: int64(len(p))})
}
func (c *recordingTarget) Zero(_ context.Context, r disk.Range) error { return c.record("zero", r) }

// An amendment writes data and zeroes ranges in runs of whole grains, and stops at the first error.
func TestAmendWritesRunsOfGrains(t *testing.T) {
	p := make([]byte, 6*zeroGrain+512)
	p[zeroGrain+5], p[3*zeroGrain-1], p[5*zeroGrain], p[6*zeroGrain] = 1, 1, 1, 1
	want := []string{"zero [1048576, 1114112)", "write [1114112, 1245184)", "zero [1245184, 1376256)", "write [1376256, 1442304)"}
	for fail := range 5 {
		to := &recordingTarget{Null: disk.NewNull(2 << 20), fail: fail}
		err := writeSparse(t.Context(), to, p, 1<<20)
		ops := want
		if fail > 0 {
			ops = want[:fail]
		}
		if errors.Is(err, errStop) != (fail > 0) || !slices.Equal(to.ops, ops) {
			t.Errorf("%q, want %q; %v", to.ops, ops, err)
		}
	}
}

// VerifyWritten removes bad chunks from the manifest. No chunk counts as verified any more, because the storage is not
// reliable.
func TestVerifyWrittenFindsCorruption(t *testing.T) {
	eachFormat(t, func(t *testing.T, r *testJob) {
		r.prepareImage(6)
		if report, err := r.job.VerifyWritten(t.Context(), func(manifest.Progress) {}); err != nil || len(report.Bad) > 0 {
			t.Fatal(report, err)
		}
		if _, err := r.job.Advance(t.Context(), func(ctx context.Context, c *Copying) error {
			p := openProven(t, r.job.Manifest, r.job.Info)
			ledger, err := p.Ledger(c.Log)
			if err != nil {
				return err
			}
			return errors.Join(ledger.DropAll([]int64{1, 4}), r.copyMissing(2)(ctx, c), p.Save())
		}); err != nil {
			t.Fatal(err)
		}
		if p := openProven(t, r.job.Manifest, r.job.Info); p.Count() != 4 {
			t.Fatalf("%d chunks are verified", p.Count())
		}
		r.zeroChunks(1, 4)
		var last manifest.Progress
		report, err := r.job.VerifyWritten(t.Context(), func(p manifest.Progress) { last = p })
		if err != nil || len(report.Bad) != 2 || report.Read != 2<<20 || last.Done != 2<<20 || last.Read != 2<<20 {
			t.Fatalf("%+v, %+v, %v", report, last, err)
		}
		if got := r.missingChunks(); !slices.Equal(got, []int64{1, 4}) {
			t.Errorf("chunks %v are missing", got)
		}
		if p := openProven(t, r.job.Manifest, r.job.Info); p.Count() != 0 {
			t.Errorf("%d chunks are still verified", p.Count())
		}
	})
}

// removeFile removes the record, also if another process removed it before. After a Save it removes it again.
func TestRecordFileRemovalIsIdempotent(t *testing.T) {
	path := filepath.Join(t.TempDir(), "manifest")
	p := openProven(t, path, provenInfo)
	for _, before := range []bool{true, false} {
		if err := p.Save(); err != nil || p.gone {
			t.Fatal(p.gone, err)
		}
		if !before {
			if err := os.Remove(path + provenSuffix); err != nil {
				t.Fatal(err)
			}
		}
		if err := p.removeFile(); err != nil || !p.gone {
			t.Errorf("gone %v, %v", p.gone, err)
		}
		if pathExists(path + provenSuffix) {
			t.Error("the record remains")
		}
	}
}

// A chunk that the manifest does not list is neither read nor verified.
func TestUnlistedChunkIsNotVerified(t *testing.T) {
	path := filepath.Join(t.TempDir(), "manifest")
	log, err := manifest.Create(path, provenInfo)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	src := &testDisk{Null: disk.NewNull(provenInfo.Size), content: make([]byte, provenInfo.Size)}
	p := openProven(t, path, provenInfo)
	bad, hole, err := p.checkChunk(t.Context(), log, src, 3, make([]byte, manifest.ChunkSize))
	if bad != nil || !hole || err != nil || p.Has(3) || src.read != 0 {
		t.Errorf("%v, %v, %v; verified %v, %d bytes read", bad, hole, err, p.Has(3), src.read)
	}
}

// The zeros of a short last chunk end with the disk, and do not depend on the rest of the buffer.
func TestZerosOfShortLastChunkEndWithDisk(t *testing.T) {
	info := provenInfo
	info.Size = 3*manifest.ChunkSize + pieceSize + 512
	p := openProven(t, filepath.Join(t.TempDir(), "manifest"), info)
	b := make([]byte, manifest.ChunkSize)
	last := info.Chunk(3)
	b[0], b[last.Len] = 1, 1
	p.noteZeros(last, b)
	if p.zeros.Has(last.Off) || !p.zeros.Has(last.Off+pieceSize) {
		t.Error("want data in the first piece and zeros in the last")
	}
}

// After a failed Publish the draft can be published later.
func TestFailedPublishLeavesADraft(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.raw")
	d, root := newFilledDraft(t, path, true)
	if err := os.MkdirAll(filepath.Join(path, "full"), 0o755); err != nil { // a rename does not replace it
		t.Fatal(err)
	}
	if err := d.Publish(); err == nil {
		t.Fatal("Publish replaced a folder")
	}
	if !pathExists(d.File().Path) || !pathExists(d.Manifest()) || pathExists(d.readyPath()) || pathExists(manifestOf(path)) {
		t.Error("the draft or its manifest was renamed")
	}
	if err := os.RemoveAll(path); err != nil {
		t.Fatal(err)
	}
	if err := d.Publish(); err != nil {
		t.Fatal(err)
	}
	checkPublished(t, path, root)
}

// readRanges is a disk that records its reads.
type readRanges struct {
	testDisk
	reads []disk.Range
}

func (s *readRanges) ReadAt(ctx context.Context, p []byte, off int64) error {
	s.reads = append(s.reads, disk.Range{Off: off, Len: int64(len(p))})
	return s.testDisk.ReadAt(ctx, p, off)
}

// takeReads returns the reads since the last call.
func (s *readRanges) takeReads() []disk.Range {
	all := s.reads
	s.reads = nil
	return all
}

// A View saves each grain once, at most viewSpan at a time, and not beyond the limit. It reads runs of saved or of
// unchanged data.
func TestViewSavesEachGrainOnce(t *testing.T) {
	const size = 5<<20 + 512
	content := bytes.Repeat([]byte{7}, size)
	base := &readRanges{testDisk: testDisk{Null: disk.NewNull(size), content: content}}
	var lost []error
	const limit = 64<<10 + 2<<20 + 64<<10 + 512 + 64<<10
	v, err := NewView(base, t.TempDir(), limit, func(err error) { lost = append(lost, err) })
	if err != nil {
		t.Fatal(err)
	}
	to := v.Guard(disk.NewNull(8 << 20)) // the disk has grown since
	for _, step := range []struct {
		write disk.Range
		saved []disk.Range
	}{
		{disk.Range{Off: 3<<20 + 100, Len: 512}, []disk.Range{{Off: 3 << 20, Len: 64 << 10}}},
		{disk.Range{Off: 3 << 20, Len: 64 << 10}, nil},
		{disk.Range{Off: 1<<20 + 512, Len: 2<<20 + 64<<10}, []disk.Range{{Off: 1 << 20, Len: 1 << 20}, {Off: 2 << 20, Len: 1 << 20}, {Off: 3<<20 + 64<<10, Len: 64 << 10}}},
		{disk.Range{Off: 5 << 20, Len: 1 << 20}, []disk.Range{{Off: 5 << 20, Len: 512}}},
		{disk.Range{Off: 6 << 20, Len: 1 << 20}, nil},
		{disk.Range{Off: 128 << 10, Len: 64 << 10}, []disk.Range{{Off: 128 << 10, Len: 64 << 10}}},
	} {
		if err := to.WriteAt(t.Context(), make([]byte, step.write.Len), step.write.Off); err != nil {
			t.Fatal(err)
		}
		if got := base.takeReads(); !slices.Equal(got, step.saved) {
			t.Errorf("write %v: saved %v, want %v", step.write, got, step.saved)
		}
	}
	if len(lost) > 0 || v.savedBytes != limit {
		t.Fatalf("%d bytes saved, want %d: %v", v.savedBytes, int64(limit), lost)
	}
	p := make([]byte, size)
	if err := v.ReadAt(t.Context(), p, 0); err != nil || !bytes.Equal(p, content) {
		t.Errorf("the view differs: %v", err)
	}
	want := []disk.Range{{Len: 128 << 10}, {Off: 192 << 10, Len: 1<<20 - 192<<10}, {Off: 3<<20 + 128<<10, Len: 2<<20 - 128<<10}}
	if got := base.takeReads(); !slices.Equal(got, want) {
		t.Errorf("reads of the image: %v, want %v", got, want)
	}
	for range 2 { // one byte above the limit
		if err := to.Zero(t.Context(), disk.Range{Off: 4 << 20, Len: 1}); err != nil {
			t.Fatal(err)
		}
	}
	v.fail(errStop)
	if len(lost) != 1 || !fault.Is(lost[0], fault.Full) || len(base.takeReads()) > 0 {
		t.Errorf("errors %v, want one", lost)
	}
	if err := v.Close(); err != nil {
		t.Fatal(err)
	}
	if err := to.Zero(t.Context(), disk.Range{Off: 0, Len: 1}); err != nil || len(base.takeReads()) > 0 {
		t.Errorf("a closed view still reads the image: %v", err)
	}
}

// A closed View does not read the image, and reports no error.
func TestClosedViewDoesNotReadImage(t *testing.T) {
	base := &readRanges{testDisk: testDisk{Null: disk.NewNull(1 << 20), content: make([]byte, 1<<20)}}
	v, err := NewView(base, t.TempDir(), 1<<20, func(err error) { t.Error(err) })
	if err != nil {
		t.Fatal(err)
	}
	if err := v.Close(); err != nil {
		t.Fatal(err)
	}
	v.fail(errStop)
	if err := v.Guard(base.Null).Zero(t.Context(), disk.Range{Len: 512}); err != nil || len(base.takeReads()) > 0 {
		t.Errorf("%v", err)
	}
}
