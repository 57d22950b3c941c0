package manifest

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/decamp/decamp/internal/fault"
)

// growSteps are the steps of a Grow of a disk whose last chunk is short and durable.
var growSteps = []string{"append", "sync append", "create", "write", "sync", "rename", "sync folder"}

// createPartialLog creates a log of 50 chunks. The last one is short, and some chunks are durable.
func createPartialLog(t *testing.T, path string) *Log {
	t.Helper()
	l := mustCreate(t, path, testInfo(50))
	mustAppend(t, l, testRun(40, 10), Run{First: 20, Zeros: 5}, testRun(0, 10))
	return l
}

// partialChunks returns the durable chunks of that log after its short last chunk has grown.
func partialChunks() (chunks []int64) {
	for c := range int64(49) {
		if c < 10 || c >= 20 && c < 25 || c >= 40 {
			chunks = append(chunks, c)
		}
	}
	return chunks
}

// The test copies the folder at each step of Grow, as a crash would leave it. Each copy has the old or the new size
// and only chunks that were durable before. It can be grown.
func TestCrashWhileGrowing(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "m")
	l := createPartialLog(t, path)
	was, grown := l.Info(), testInfo(70)
	crashes := map[string]string{}
	l.step = func(name string) error {
		crashes[name] = t.TempDir()
		return os.CopyFS(crashes[name], os.DirFS(dir))
	}
	if err := l.Grow(t.Context(), grown.Size); err != nil {
		t.Fatal(err)
	}
	if len(crashes) != len(growSteps) {
		t.Fatalf("steps are %v", crashes)
	}
	for _, step := range growSteps {
		crashed := filepath.Join(crashes[step], "m")
		l := mustOpen(t, crashed)
		if info := l.Info(); info != was && info != grown {
			t.Fatalf("before %s: info %+v", step, info)
		}
		if got := durableChunks(l); !slices.Equal(got, partialChunks()) && !slices.Equal(got, append(partialChunks(), 49)) {
			t.Fatalf("before %s: chunks %v", step, got)
		}
		if err := l.Grow(t.Context(), grown.Size); err != nil {
			t.Fatal(err)
		}
		mustClose(t, l)
		checkGrown(t, crashed, grown)
		if left, _ := os.ReadDir(crashes[step]); len(left) != 1 {
			t.Fatalf("before %s: files %v, want one", step, left)
		}
	}
}

// checkGrown checks a grown log of createPartialLog, and completes and seals it.
func checkGrown(t *testing.T, path string, info Info) {
	t.Helper()
	l := mustOpen(t, path)
	if got := durableChunks(l); l.Info() != info || !slices.Equal(got, partialChunks()) {
		t.Fatalf("info %+v, chunks %v", l.Info(), got)
	}
	for _, c := range partialChunks() {
		want := testHash(c)
		if c >= 20 && c < 25 {
			want = ZeroHash(ChunkSize)
		}
		if got, _, err := l.Hash(c); got != want || err != nil {
			t.Fatalf("chunk %d has hash %v, want %v: %v", c, got, want, err)
		}
	}
	for c := range info.Chunks() {
		if !l.Has(c) {
			mustAppend(t, l, testRun(c, 1))
		}
	}
	root := mustSeal(t, l)
	if s := mustLoad(t, path); s.Info() != info || s.Root() != root {
		t.Fatalf("sealed as %+v with root %v, want %v", s.Info(), s.Root(), root)
	}
}

// A Grow that fails at any step leaves a log that can be grown later.
func TestFailedGrowCanBeRepeated(t *testing.T) {
	for _, step := range growSteps {
		path := filepath.Join(t.TempDir(), "m")
		l := createPartialLog(t, path)
		bad := errors.New("failed")
		l.step = func(name string) error {
			if name == step {
				return bad
			}
			return nil
		}
		if err := l.Grow(t.Context(), testInfo(70).Size); !errors.Is(err, bad) {
			t.Fatalf("%s: %v", step, err)
		}
		if _, err := os.Stat(path + ".new"); err == nil {
			t.Fatalf("%s: the new file remains", step)
		}
		l.step = func(string) error { return nil }
		if err := l.Grow(t.Context(), testInfo(70).Size); err != nil {
			t.Fatal(err)
		}
		mustClose(t, l)
		checkGrown(t, path, testInfo(70))
	}
}

// A sealed manifest that grows becomes an open one, without the new chunks.
func TestGrownManifestIsNotSealed(t *testing.T) {
	for _, size := range []int64{9 * ChunkSize, 9*ChunkSize - 512} {
		path := filepath.Join(t.TempDir(), "m")
		l := mustCreate(t, path, Info{Disk: "2001", Size: size, Source: "here"})
		mustAppend(t, l, testRun(0, 9))
		mustSeal(t, l)
		if err := l.Grow(t.Context(), 12*ChunkSize); err != nil {
			t.Fatal(err)
		}
		if _, err := Load(path); !fault.Is(err, fault.Conflict) {
			t.Errorf("Load of the grown manifest: %v", err)
		}
		want := int64(3)
		if size%ChunkSize > 0 {
			want = 4
		}
		if _, err := l.Seal(context.Background()); !fault.Is(err, fault.Conflict) || l.Missing() != want {
			t.Errorf("%d chunks are missing, want %d; sealed: %v", l.Missing(), want, err)
		}
	}
}

func TestGrowRefuses(t *testing.T) {
	path := filepath.Join(t.TempDir(), "m")
	l := createPartialLog(t, path)
	before, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for size, want := range map[int64]fault.Kind{ChunkSize: fault.Internal, MaxSize + 512: fault.Unsupported} {
		if err := l.Grow(t.Context(), size); !fault.Is(err, want) {
			t.Errorf("to %d: %v", size, err)
		}
	}
	if err := l.Grow(t.Context(), l.Info().Size); err != nil {
		t.Errorf("to its current size: %v", err)
	}
	if after, _ := os.ReadFile(path); !slices.Equal(after, before) {
		t.Error("the file was changed")
	}
}

func TestFullDiskWhileGrowing(t *testing.T) {
	if !runsAlone(t) {
		return
	}
	path := filepath.Join(t.TempDir(), "m")
	l := mustCreate(t, path, Info{Disk: "2001", Size: 100 * ChunkSize})
	mustAppend(t, l, testRun(0, 100))
	lift := limitFileSize(t, 1000)
	err := l.Grow(t.Context(), 200*ChunkSize)
	lift()
	if wantFault(t, err, fault.Full); fault.HintOf(err) == "" || l.Chunks() != 100 {
		t.Errorf("remedy %q, %d chunks", fault.HintOf(err), l.Chunks())
	}
	if _, err := os.Stat(path + ".new"); err == nil {
		t.Error("the incomplete file remains")
	}
	if err := l.Grow(t.Context(), 200*ChunkSize); err != nil || l.Missing() != 100 {
		t.Fatalf("%d missing, %v", l.Missing(), err)
	}
}
