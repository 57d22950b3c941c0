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

// growSteps are those of a Grow whose last chunk is short and safe.
var growSteps = []string{"append", "sync append", "create", "write", "sync", "rename", "sync folder"}

// partial is a log of 50 chunks, the last of them short, of which some are safe.
func partial(t *testing.T, path string) *Log {
	t.Helper()
	l := mustCreate(t, path, testInfo(50))
	mustAppend(t, l, testRun(40, 10), Run{First: 20, Zeros: 5}, testRun(0, 10))
	return l
}

// What partial holds, once its short chunk is not what it was.
func partialHeld() (chunks []int64) {
	for c := range int64(49) {
		if c < 10 || c >= 20 && c < 25 || c >= 40 {
			chunks = append(chunks, c)
		}
	}
	return chunks
}

// At each step of Grow the folder is copied as a crash would leave it: what was left is the log
// of the old size or of the new one, holds nothing but what was safe, and can be grown.
func TestCrashWhileGrowing(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "m")
	l := partial(t, path)
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
			t.Fatalf("before %s: it is of %+v", step, info)
		}
		if got := held(l); !slices.Equal(got, partialHeld()) && !slices.Equal(got, append(partialHeld(), 49)) {
			t.Fatalf("before %s: holds %v", step, got)
		}
		if err := l.Grow(t.Context(), grown.Size); err != nil {
			t.Fatal(err)
		}
		mustClose(t, l)
		checkGrown(t, crashed, grown)
		if left, _ := os.ReadDir(crashes[step]); len(left) != 1 {
			t.Fatalf("before %s: left %v", step, left)
		}
	}
}

// checkGrown looks at what partial became, and completes it.
func checkGrown(t *testing.T, path string, info Info) {
	t.Helper()
	l := mustOpen(t, path)
	if got := held(l); l.Info() != info || !slices.Equal(got, partialHeld()) {
		t.Fatalf("of %+v, holds %v", l.Info(), got)
	}
	for _, c := range partialHeld() {
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
		l := partial(t, path)
		bad := errors.New("no such luck")
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
			t.Fatalf("%s: the new file was left", step)
		}
		l.step = func(string) error { return nil }
		if err := l.Grow(t.Context(), testInfo(70).Size); err != nil {
			t.Fatal(err)
		}
		mustClose(t, l)
		checkGrown(t, path, testInfo(70))
	}
}

// A sealed manifest that grows is an open one: it lacks what was added.
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
			t.Errorf("it loads: %v", err)
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
	l := partial(t, path)
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
		t.Errorf("to the size it has: %v", err)
	}
	if after, _ := os.ReadFile(path); !slices.Equal(after, before) {
		t.Error("the file was changed")
	}
}

func TestFullDiskWhileGrowing(t *testing.T) {
	path := filepath.Join(t.TempDir(), "m")
	l := mustCreate(t, path, Info{Disk: "2001", Size: 100 * ChunkSize})
	mustAppend(t, l, testRun(0, 100))
	lift := limitFiles(t, 1000)
	err := l.Grow(t.Context(), 200*ChunkSize)
	lift()
	if wantFault(t, err, fault.Full); fault.HintOf(err) == "" || l.Chunks() != 100 {
		t.Errorf("remedy %q, %d chunks", fault.HintOf(err), l.Chunks())
	}
	if _, err := os.Stat(path + ".new"); err == nil {
		t.Error("the part that was written was left")
	}
	if err := l.Grow(t.Context(), 200*ChunkSize); err != nil || l.Missing() != 100 {
		t.Fatalf("%d missing, %v", l.Missing(), err)
	}
}
