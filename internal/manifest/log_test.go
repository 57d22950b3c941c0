package manifest

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"testing"

	"golang.org/x/sync/errgroup"

	"github.com/decamp/decamp/internal/atomicfile"
	"github.com/decamp/decamp/internal/fault"
)

// testInfo returns the info of a disk of n chunks, the last of them short.
func testInfo(n int64) Info {
	return Info{Disk: "2001", Size: n*ChunkSize - 512, Source: "esxi://esx1/vm-42/2001"}
}

// testHash returns the hash of chunk n in the tests.
func testHash(n int64) Hash { return HashOf(le.AppendUint64(nil, uint64(n))) }

func testRun(first, n int64) Run {
	r := Run{First: first}
	for c := first; c < first+n; c++ {
		r.Hashes = append(r.Hashes, testHash(c))
	}
	return r
}

func mustCreate(t *testing.T, path string, info Info) *Log {
	t.Helper()
	l, err := Create(path, info)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() }) // a second Close only returns an error
	return l
}

func mustOpen(t *testing.T, path string) *Log {
	t.Helper()
	l, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

func mustAppend(t *testing.T, l *Log, runs ...Run) {
	t.Helper()
	if err := l.Append(context.Background(), runs); err != nil {
		t.Fatal(err)
	}
}

func mustSeal(t *testing.T, l *Log) Hash {
	t.Helper()
	root, err := l.Seal(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	return root
}

func mustClose(t *testing.T, c io.Closer) {
	t.Helper()
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
}

func mustLoad(t *testing.T, path string) *Sealed {
	t.Helper()
	s, err := Load(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// hashesOf reads all hashes of a sealed manifest, n at a time.
func hashesOf(t *testing.T, s *Sealed, n int64) []Hash {
	t.Helper()
	all := make([]Hash, s.Info().Chunks())
	h := s.Hashes()
	for part := range slices.Chunk(all, int(n)) {
		if err := h.Next(part); err != nil {
			t.Fatal(err)
		}
	}
	return all
}

// durableChunks returns the durable chunks of a log.
func durableChunks(l *Log) (chunks []int64) {
	for c := range l.Chunks() {
		if l.Has(c) {
			chunks = append(chunks, c)
		}
	}
	return chunks
}

func wantFault(t *testing.T, err error, k fault.Kind) {
	t.Helper()
	if !fault.Is(err, k) {
		t.Fatalf("error is %v (%v), want %v", err, fault.KindOf(err), k)
	}
}

func TestZeroHashIsTheHashOfZeros(t *testing.T) {
	for _, n := range []int{0, 1, 512, ChunkSize - 512, ChunkSize} {
		if ZeroHash(n) != HashOf(make([]byte, n)) {
			t.Errorf("ZeroHash(%d) is wrong", n)
		}
	}
	// The official BLAKE3 test vector for empty input.
	const empty = "af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262"
	if got := HashOf(nil).String(); got != empty {
		t.Errorf("BLAKE3 of empty input is %s, want %s", got, empty)
	}
}

func TestLogKeepsAppendedChunks(t *testing.T) {
	path := filepath.Join(t.TempDir(), "disk.manifest")
	l := mustCreate(t, path, testInfo(100))
	mustAppend(t, l, testRun(7, 3), Run{First: 90, Zeros: 10}, testRun(0, 2))
	mustAppend(t, l, testRun(50, 1))
	check := func(l *Log) {
		t.Helper()
		want := []int64{0, 1, 7, 8, 9, 50, 90, 91, 92, 93, 94, 95, 96, 97, 98, 99}
		if got := durableChunks(l); !slices.Equal(got, want) || l.Missing() != 84 || l.Complete() {
			t.Fatalf("chunks %v, %d missing", got, l.Missing())
		}
		if l.Info() != testInfo(100) || l.Chunks() != 100 || l.Dropped() != 0 {
			t.Fatalf("info %+v, %d chunks, %d dropped", l.Info(), l.Chunks(), l.Dropped())
		}
		if l.Has(-1) || l.Has(100) {
			t.Fatal("has a chunk outside the disk")
		}
	}
	check(l)
	mustClose(t, l)
	check(mustOpen(t, path))
}

func TestDropMakesChunksMissingDurably(t *testing.T) {
	path := filepath.Join(t.TempDir(), "m")
	l := mustCreate(t, path, testInfo(200))
	mustAppend(t, l, Run{First: 0, Zeros: 200})
	if err := l.Drop(63, 66); err != nil {
		t.Fatal(err)
	}
	mustAppend(t, l, testRun(64, 1))
	mustClose(t, l)
	l = mustOpen(t, path)
	if l.Missing() != 65 || l.Has(63) || !l.Has(64) || l.Has(65) || l.Has(128) || !l.Has(129) || !l.Has(62) {
		t.Fatalf("%d missing, chunks %v", l.Missing(), durableChunks(l))
	}
}

func TestSealedHashesAreLatestInChunkOrder(t *testing.T) {
	path := filepath.Join(t.TempDir(), "m")
	l := mustCreate(t, path, testInfo(40))
	wrong := Run{First: 10, Hashes: make([]Hash, 12)}
	mustAppend(t, l, Run{First: 30, Zeros: 10}, Run{First: 0, Zeros: 15})
	mustAppend(t, l, wrong)
	mustAppend(t, l, testRun(5, 25))
	mustAppend(t, l, Run{First: 20, Zeros: 3})
	root := mustSeal(t, l)
	s := mustLoad(t, path)
	var want []Hash
	for c := range int64(40) {
		if c < 5 || c >= 30 || (c >= 20 && c < 23) {
			want = append(want, testInfo(40).zeroHash(c))
		} else {
			want = append(want, testHash(c))
		}
	}
	if got := hashesOf(t, s, 7); !reflect.DeepEqual(got, want) {
		t.Fatal("the hashes differ from the last appended ones")
	}
	if s.Root() != root || s.Info() != testInfo(40) {
		t.Fatalf("root %v, info %+v", s.Root(), s.Info())
	}
	if err := s.Hashes().Next(make([]Hash, 41)); err != io.ErrUnexpectedEOF {
		t.Fatalf("reading past the end: %v", err)
	}
}

func TestRootDependsOnContentOnly(t *testing.T) {
	seal := func(info Info, runs ...Run) Hash {
		l := mustCreate(t, filepath.Join(t.TempDir(), "m"), info)
		for _, r := range runs {
			mustAppend(t, l, r)
		}
		return mustSeal(t, l)
	}
	info := testInfo(4)
	zeros := Run{First: 2, Hashes: []Hash{ZeroHash(ChunkSize), ZeroHash(ChunkSize - 512)}}
	root := seal(info, testRun(0, 2), Run{First: 2, Zeros: 2})
	if got := seal(Info{Size: info.Size}, zeros, testRun(1, 1), testRun(0, 1)); got != root {
		t.Error("the same content in other records has another root")
	}
	if got := seal(info, testRun(0, 3), Run{First: 3, Zeros: 1}); got == root {
		t.Error("other content has the same root")
	}
	info.Size += 512
	if got := seal(info, testRun(0, 2), zeros); got == root {
		t.Error("another size has the same root")
	}
}

func TestSealIsIdempotentAndRequiresAllChunks(t *testing.T) {
	path := filepath.Join(t.TempDir(), "m")
	l := mustCreate(t, path, testInfo(9))
	mustAppend(t, l, testRun(0, 8))
	_, err := l.Seal(context.Background())
	wantFault(t, err, fault.Conflict)
	_, err = Load(path)
	wantFault(t, err, fault.Conflict)
	mustAppend(t, l, Run{First: 8, Zeros: 1})
	root := mustSeal(t, l)
	before, _ := os.ReadFile(path)
	if again := mustSeal(t, l); again != root {
		t.Fatal("the second Seal returns another root")
	}
	mustClose(t, l)
	l = mustOpen(t, path)
	if again := mustSeal(t, l); again != root || !l.Complete() {
		t.Fatal("Seal after a reopen returns another root")
	}
	if after, _ := os.ReadFile(path); !slices.Equal(before, after) {
		t.Fatal("sealing again changed the file")
	}
}

func TestSealedManifestCanBeReopened(t *testing.T) {
	path := filepath.Join(t.TempDir(), "m")
	l := mustCreate(t, path, testInfo(9))
	mustAppend(t, l, testRun(0, 9))
	root := mustSeal(t, l)
	if err := l.Drop(3, 2); err != nil {
		t.Fatal(err)
	}
	_, err := Load(path)
	wantFault(t, err, fault.Conflict)
	_, err = l.Seal(context.Background())
	wantFault(t, err, fault.Conflict)
	mustAppend(t, l, testRun(3, 2))
	if mustSeal(t, l) != root || mustLoad(t, path).Root() != root {
		t.Fatal("the same content has another root")
	}
}

func TestOnlyOneLogAtATime(t *testing.T) {
	path := filepath.Join(t.TempDir(), "m")
	l := mustCreate(t, path, testInfo(1))
	_, err := Open(path)
	wantFault(t, err, fault.Conflict)
	_, err = Create(path, testInfo(1))
	wantFault(t, err, fault.Conflict)
	wantFault(t, Remove(path), fault.Conflict)
	mustAppend(t, l, testRun(0, 1))
	mustSeal(t, l)
	_, err = Open(path) // the new file is also locked
	wantFault(t, err, fault.Conflict)
	mustClose(t, l)
	mustClose(t, mustOpen(t, path))
	_, err = Create(path, testInfo(1))
	wantFault(t, err, fault.Conflict)
	if names, _ := filepath.Glob(path + "*"); len(names) != 1 {
		t.Fatalf("files %v, want one", names)
	}
}

// openLocked returns the locked file that is at the path, also if other processes replace it all the time, as Seal
// does.
func TestLockHoldsTheFileAtThePath(t *testing.T) {
	path := filepath.Join(t.TempDir(), "m")
	mustClose(t, mustCreate(t, path, testInfo(1)))
	replace := func() error {
		f, err := openLocked(path, 0)
		if err != nil {
			return err
		}
		defer atomicfile.Unlock(f)
		if !atomicfile.IsAt(f, path) {
			return fault.New(fault.Corrupt, "locked a file that was replaced")
		}
		g, err := newFile(path)
		if err != nil {
			return err
		}
		defer atomicfile.Unlock(g)
		return os.Rename(g.Name(), path)
	}
	var all errgroup.Group
	for range 8 {
		all.Go(func() error {
			for range 300 {
				if err := replace(); err != nil && !fault.Is(err, fault.Conflict) {
					return err
				}
			}
			return nil
		})
	}
	if err := all.Wait(); err != nil {
		t.Fatal(err)
	}
}

func TestRemoveDeletesAllFiles(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "m")
	mustClose(t, mustCreate(t, path, testInfo(1)))
	if err := os.WriteFile(path+".new", []byte("half"), 0o644); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := Remove(path); err != nil {
			t.Fatal(err)
		}
	}
	if left, _ := os.ReadDir(dir); len(left) != 0 {
		t.Fatalf("files %v remain", left)
	}
	_, err := Open(path)
	wantFault(t, err, fault.NotFound)
}

func TestAppendRefusesInvalidRuns(t *testing.T) {
	l := mustCreate(t, filepath.Join(t.TempDir(), "m"), testInfo(10))
	for name, runs := range map[string][]Run{
		"beyond the end": {testRun(8, 3)},
		"negative":       {{First: -1, Zeros: 2}},
		"empty":          {{First: 1}},
		"both":           {{First: 1, Zeros: 1, Hashes: make([]Hash, 1)}},
		"overlap":        {testRun(3, 2), {First: 0, Zeros: 4}},
		"huge":           {{First: 1, Zeros: 1<<63 - 1}},
	} {
		if err := l.Append(context.Background(), runs); !fault.Is(err, fault.Internal) {
			t.Errorf("%s: %v", name, err)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := l.Append(ctx, []Run{testRun(0, 1)}); !errors.Is(err, context.Canceled) {
		t.Errorf("canceled: %v", err)
	}
	if err := l.Drop(9, 2); !fault.Is(err, fault.Internal) {
		t.Errorf("drop beyond the end: %v", err)
	}
	if l.Missing() != 10 {
		t.Errorf("%d missing", l.Missing())
	}
}

func TestSizesAtTheLimits(t *testing.T) {
	dir := t.TempDir()
	l := mustCreate(t, filepath.Join(dir, "empty"), Info{})
	mustSeal(t, l)
	if s := mustLoad(t, filepath.Join(dir, "empty")); s.Info().Chunks() != 0 {
		t.Fatal("an empty disk has chunks")
	}
	l = mustCreate(t, filepath.Join(dir, "largest"), Info{Size: MaxSize})
	mustAppend(t, l, Run{Zeros: l.Chunks()})
	if !l.Complete() {
		t.Fatal("largest disk is not complete")
	}
	_, err := Create(filepath.Join(dir, "more"), Info{Size: MaxSize + 1})
	wantFault(t, err, fault.Unsupported)
	_, err = Create(filepath.Join(dir, "less"), Info{Size: -1})
	wantFault(t, err, fault.Unsupported)
}

// A run of many hashes is split, and neighbouring runs are joined.
func TestRunsAreSplitAndJoined(t *testing.T) {
	l := mustCreate(t, filepath.Join(t.TempDir(), "m"), Info{Size: 3 * maxHashes * ChunkSize})
	long := Run{First: 5, Hashes: make([]Hash, 2*maxHashes+1)}
	mustAppend(t, l, long)
	if r := l.chunks.recent; len(r) != 3 || r[2].count != 1 || r[1].first != 5+maxHashes {
		t.Fatalf("records of a long run: %+v", r)
	}
	mustAppend(t, l, Run{First: 4, Zeros: 1}, testRun(2, 1), testRun(1, 1), testRun(3, 1), Run{First: 0, Zeros: 1})
	if r := l.chunks.recent; len(r) != 6 || r[4].count != 3 {
		t.Fatalf("records of neighbouring runs: %+v", r[3:])
	}
}

// A log whose chunks are dropped and copied again without end stops growing at its maximum length.
func TestLogHasAMaximumLength(t *testing.T) {
	path := filepath.Join(t.TempDir(), "m")
	l := mustCreate(t, path, testInfo(4))
	mustAppend(t, l, testRun(0, 2))
	l.end.off = l.chunks.start + maxRecords - 16 // simulates a file of this length
	wantFault(t, l.Append(t.Context(), []Run{testRun(2, 1)}), fault.Unsupported)
	if l.Missing() != 2 {
		t.Fatalf("%d chunks are missing", l.Missing())
	}
}

func TestLookupSeesTheNewestHash(t *testing.T) {
	path := filepath.Join(t.TempDir(), "m")
	l := mustCreate(t, path, testInfo(10))
	mustAppend(t, l, Run{First: 0, Hashes: []Hash{testHash(1), testHash(2), testHash(3)}}, Run{First: 3, Zeros: 4})
	mustAppend(t, l, Run{First: 1, Hashes: []Hash{testHash(9)}})
	if err := l.Drop(2, 1); err != nil {
		t.Fatal(err)
	}
	check := func(l *Log) {
		t.Helper()
		for chunk, want := range map[int64]Hash{0: testHash(1), 1: testHash(9), 3: ZeroHash(ChunkSize)} {
			if got, ok, err := l.Hash(chunk); got != want || !ok || err != nil {
				t.Errorf("chunk %d: %v, %v, %v", chunk, got, ok, err)
			}
		}
		for _, chunk := range []int64{-1, 2, 7, 10} {
			if _, ok, err := l.Hash(chunk); ok || err != nil {
				t.Errorf("chunk %d is missing but has a hash; %v", chunk, err)
			}
		}
		if got := l.Recent(3); !slices.Equal(got, []int64{1, 6, 5}) {
			t.Errorf("recent %v", got)
		}
		if got := l.Recent(100); slices.Contains(got, 2) || len(got) < 6 {
			t.Errorf("recent %v", got)
		}
	}
	check(l)
	mustClose(t, l)
	l = mustOpen(t, path)
	defer mustClose(t, l)
	check(l)
}

func TestLookupInASealedLog(t *testing.T) {
	l := mustCreate(t, filepath.Join(t.TempDir(), "m"), testInfo(5))
	defer mustClose(t, l)
	mustAppend(t, l, testRun(2, 3))
	mustAppend(t, l, testRun(0, 2))
	mustSeal(t, l)
	for c := range int64(5) {
		if got, ok, err := l.Hash(c); got != testHash(c) || !ok || err != nil {
			t.Errorf("chunk %d: %v, %v, %v", c, got, ok, err)
		}
	}
}
