package manifest

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"testing"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/test/lane"
)

// A history is a small log and what was held when each of its records was whole.
type history struct {
	bytes []byte
	ends  []int64   // ends[0] is the header's, ends[i] that of record i
	held  [][]int64 // what a log cut there must hold
}

func makeHistory(t *testing.T) history {
	t.Helper()
	path := filepath.Join(t.TempDir(), "m")
	l := mustCreate(t, path, testInfo(20))
	h := history{ends: []int64{l.end.off}, held: [][]int64{nil}}
	note := func() {
		h.ends = append(h.ends, l.end.off)
		h.held = append(h.held, held(l))
	}
	for _, r := range []Run{testRun(3, 2), {First: 8, Zeros: 9}, testRun(0, 1)} {
		mustAppend(t, l, r)
		note()
	}
	if err := l.Drop(4, 6); err != nil {
		t.Fatal(err)
	}
	note()
	mustAppend(t, l, testRun(4, 1))
	note()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	h.bytes = b
	return h
}

// whole returns how many records lie before byte n, -1 if not even the header does.
func (h history) whole(n int64) int {
	i, found := slices.BinarySearch(h.ends, n)
	if found {
		return i
	}
	return i - 1
}

// check opens a file of these bytes. It must hold what the first n records say; n = -1
// means that the header is damaged.
func (h history) check(t *testing.T, path string, bytes []byte, n int, what string) {
	t.Helper()
	if err := os.WriteFile(path, bytes, 0o644); err != nil {
		t.Fatal(err)
	}
	l, err := Open(path)
	if n < 0 {
		if !fault.Is(err, fault.Corrupt) || fault.HintOf(err) == "" {
			t.Fatalf("%s: %v, want a damaged header and a remedy", what, err)
		}
		return
	}
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
	defer l.Close()
	if got := held(l); !slices.Equal(got, h.held[n]) {
		t.Fatalf("%s: holds %v, want %v", what, got, h.held[n])
	}
	if want := int64(len(bytes)) - h.ends[n]; l.Dropped() != want {
		t.Fatalf("%s: dropped %d bytes, want %d", what, l.Dropped(), want)
	}
}

// checkUsable appends to what check opened, which holds n records.
func (h history) checkUsable(t *testing.T, path string, n int, what string) {
	t.Helper()
	if n < 0 {
		return
	}
	l := mustOpen(t, path)
	mustAppend(t, l, testRun(19, 1))
	mustClose(t, l)
	if l = mustOpen(t, path); !slices.Equal(held(l), append(slices.Clone(h.held[n]), 19)) || l.Dropped() != 0 {
		t.Fatalf("%s: after an append it holds %v", what, held(l))
	}
	mustClose(t, l)
}

// alike is how many bytes a and b begin with in common: what was cut off may come again by chance.
func alike(a, b []byte) (n int) {
	for n < min(len(a), len(b)) && a[n] == b[n] {
		n++
	}
	return n
}

func TestTornAtEveryByte(t *testing.T) {
	if testing.Short() {
		t.Skip("takes more than a second")
	}
	h := makeHistory(t)
	path := filepath.Join(t.TempDir(), "m")
	rnd := rand.New(rand.NewPCG(1, 2))
	garbage := make([]byte, 100)
	for i := range garbage {
		garbage[i] = byte(rnd.Uint32())
	}
	for n := range len(h.bytes) + 1 {
		cut, whole := slices.Clip(h.bytes[:n]), h.whole(int64(n))
		h.check(t, path, cut, whole, fmt.Sprintf("cut at %d", n))
		for what, tail := range map[string][]byte{"garbage": garbage, "zeros": make([]byte, 100)} {
			what = fmt.Sprintf("%s after %d", what, n)
			whole := h.whole(int64(n + alike(h.bytes[n:], tail)))
			h.check(t, path, append(cut, tail...), whole, what)
			h.checkUsable(t, path, whole, what)
		}
	}
}

func TestEveryFlippedBitIsFound(t *testing.T) {
	if testing.Short() {
		t.Skip("takes more than a second")
	}
	h := makeHistory(t)
	path := filepath.Join(t.TempDir(), "m")
	for bit := range len(h.bytes) * 8 {
		if bit%8 != bit/8%8 && !lane.Slow {
			continue // make test flips one bit of each byte
		}
		b := slices.Clone(h.bytes)
		b[bit/8] ^= 1 << (bit % 8)
		h.check(t, path, b, h.whole(int64(bit/8)), fmt.Sprintf("bit %d flipped", bit))
	}
}

func TestEveryFlippedBitOfASealedFileIsFound(t *testing.T) {
	if testing.Short() {
		t.Skip("takes more than a second")
	}
	path := filepath.Join(t.TempDir(), "m")
	l := mustCreate(t, path, testInfo(9))
	mustAppend(t, l, testRun(0, 3), Run{First: 3, Zeros: 6})
	ends := []int64{l.chunks.recent[0].off - recordHead, l.end.off - recordHead - sumLen, l.end.off}
	mustSeal(t, l)
	mustClose(t, l)
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for bit := range len(whole) * 8 {
		if bit%8 != bit/8%8 && !lane.Slow {
			continue // make test flips one bit of each byte
		}
		b := slices.Clone(whole)
		b[bit/8] ^= 1 << (bit % 8)
		if err := os.WriteFile(path, b, 0o644); err != nil {
			t.Fatal(err)
		}
		if _, err := Load(path); !fault.Is(err, fault.Corrupt) || fault.HintOf(err) == "" {
			t.Fatalf("bit %d flipped: %v", bit, err)
		}
	}
	for n := range len(whole) {
		if err := os.WriteFile(path, whole[:n], 0o644); err != nil {
			t.Fatal(err)
		}
		want := fault.Corrupt
		if slices.Contains(ends, int64(n)) {
			want = fault.Conflict // a log that was never sealed looks like this
		}
		if _, err := Load(path); !fault.Is(err, want) {
			t.Fatalf("cut at %d: %v, want %v", n, err, want)
		}
	}
}

// A record of a later decamp must stop this one, not be taken for a torn tail and cut.
func TestWhatANewerDecampWroteIsLeftAlone(t *testing.T) {
	head, tl := header{info: testInfo(3)}.encodeHeader()
	newer := slices.Clone(head)
	le.PutUint32(newer[8:], version+1)
	le.PutUint32(newer[len(newer)-sumLen:], crcOf(newer[:len(newer)-sumLen]))
	for name, b := range map[string][]byte{
		"kind":    tl.appendRecord(head, 9, 0, 1, nil),
		"version": newer,
	} {
		path := filepath.Join(t.TempDir(), "m")
		if err := os.WriteFile(path, b, 0o644); err != nil {
			t.Fatal(err)
		}
		_, err := Open(path)
		wantFault(t, err, fault.Unsupported)
		_, err = Load(path)
		wantFault(t, err, fault.Unsupported)
		if after, _ := os.ReadFile(path); !slices.Equal(after, b) {
			t.Errorf("unknown %s: the file was changed", name)
		}
	}
}

// A medium that cannot be read is not a torn tail: nothing may be cut off.
func TestReadErrorIsNotATornTail(t *testing.T) {
	h := makeHistory(t)
	bad := errors.New("medium error")
	for n := h.ends[0]; n < int64(len(h.bytes)); n++ {
		_, at, err := parseHeader(h.bytes)
		if err != nil {
			t.Fatal(err)
		}
		s := newScanner(brokenFile{h.bytes[:n], bad}, at, 20)
		for err == nil {
			_, _, err = s.nextRecord()
		}
		if !errors.Is(err, bad) {
			t.Fatalf("unreadable from byte %d: %v", n, err)
		}
	}
}

// brokenFile gives its bytes and then an error.
type brokenFile struct {
	bytes []byte
	err   error
}

func (b brokenFile) ReadAt(p []byte, off int64) (int, error) {
	if n := copy(p, b.bytes[min(off, int64(len(b.bytes))):]); n == len(p) {
		return n, nil
	} else {
		return n, b.err
	}
}

// At each step of Seal the folder is copied as a crash would leave it. Whatever was left
// must open, hold everything, and seal to the same root.
func TestCrashWhileSealing(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "m")
	l := mustCreate(t, path, testInfo(50))
	mustAppend(t, l, testRun(20, 20), Run{First: 40, Zeros: 10})
	mustAppend(t, l, testRun(0, 20))
	crashes := map[string]string{}
	l.step = func(name string) error {
		crashes[name] = t.TempDir()
		return os.CopyFS(crashes[name], os.DirFS(dir))
	}
	root := mustSeal(t, l)
	for _, step := range []string{"create", "write", "sync", "rename", "sync folder"} {
		crashed := filepath.Join(crashes[step], "m")
		l := mustOpen(t, crashed)
		if !l.Complete() || l.Dropped() != 0 {
			t.Fatalf("before %s: %d chunks lost", step, l.Missing())
		}
		if mustSeal(t, l) != root || mustLoad(t, crashed).Root() != root {
			t.Fatalf("before %s: another root", step)
		}
		if left, _ := os.ReadDir(crashes[step]); len(left) != 1 {
			t.Fatalf("before %s: left %v", step, left)
		}
	}
	if len(crashes) != 5 {
		t.Fatalf("steps are %v", crashes)
	}
}

// A Seal that fails at any step leaves a log that can be sealed later.
func TestFailedSealCanBeRepeated(t *testing.T) {
	for _, step := range []string{"create", "write", "sync", "rename", "sync folder"} {
		path := filepath.Join(t.TempDir(), "m")
		l := mustCreate(t, path, testInfo(5))
		mustAppend(t, l, testRun(3, 2), testRun(0, 3))
		bad := errors.New("no such luck")
		l.step = func(name string) error {
			if name == step {
				return bad
			}
			return nil
		}
		if _, err := l.Seal(context.Background()); !errors.Is(err, bad) {
			t.Fatalf("%s: %v", step, err)
		}
		if _, err := os.Stat(path + ".new"); err == nil {
			t.Fatalf("%s: the new file was left", step)
		}
		l.step = func(string) error { return nil }
		if root := mustSeal(t, l); mustLoad(t, path).Root() != root {
			t.Fatalf("%s: another root", step)
		}
	}
}

// Without the folder's sync a power cut could bring the log back: its failure is told.
func TestSealSyncsTheFolder(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "vm")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	l := mustCreate(t, filepath.Join(dir, "m"), testInfo(1))
	mustAppend(t, l, testRun(0, 1))
	l.step = func(name string) error {
		if name == "sync folder" {
			return os.Rename(dir, dir+" moved")
		}
		return nil
	}
	_, err := l.Seal(context.Background())
	wantFault(t, err, fault.NotFound)
}

// After a failed sync nobody knows what is on the medium, so the append does not count.
func TestFailedSyncDoesNotCount(t *testing.T) {
	path := filepath.Join(t.TempDir(), "m")
	l := mustCreate(t, path, testInfo(10))
	bad := errors.New("medium error")
	l.step = func(name string) error {
		if name == "sync append" {
			return bad
		}
		return nil
	}
	if err := l.Append(context.Background(), []Run{testRun(0, 5)}); !errors.Is(err, bad) {
		t.Fatal(err)
	}
	l.step = func(string) error { return nil }
	mustAppend(t, l, testRun(7, 1))
	mustClose(t, l)
	if l = mustOpen(t, path); !slices.Equal(held(l), []int64{7}) {
		t.Fatalf("holds %v", held(l))
	}
}

// childEnv makes the test binary append to the manifest named in it until it is killed.
const childEnv = "DECAMP_MANIFEST_CHILD"

func TestMain(m *testing.M) {
	if path := os.Getenv(childEnv); path != "" {
		fmt.Fprintln(os.Stderr, appendForEver(path))
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// appendForEver appends two runs at a time and then says which chunk comes next.
func appendForEver(path string) error {
	l, err := Open(path)
	if err != nil {
		return err
	}
	next := int64(0)
	for l.Has(next) {
		next++
	}
	for ; next+9 <= l.Chunks(); next += 9 {
		if err := l.Append(context.Background(), []Run{testRun(next, 7), {First: next + 7, Zeros: 2}}); err != nil {
			return err
		}
		fmt.Println(next + 9)
	}
	return errors.New("was not killed")
}

// runAndKill lets a child acknowledge n appends, kills it there and then, and returns the
// first chunk it did not acknowledge, or -1.
func runAndKill(t *testing.T, path string, n int) int64 {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	child := exec.Command(exe)
	child.Env = append(os.Environ(), childEnv+"="+path)
	child.Stderr = os.Stderr
	out, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	acked, lines := int64(-1), bufio.NewScanner(out)
	for i := 0; lines.Scan(); i++ {
		if acked, err = strconv.ParseInt(lines.Text(), 10, 64); err != nil {
			t.Fatal(err)
		}
		if i == n { // and drain what it said before it died
			if err := child.Process.Kill(); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := child.Wait(); err == nil || child.ProcessState.ExitCode() != -1 {
		t.Fatalf("child was not killed: %v", err)
	}
	return acked
}

func TestKilledWhileAppending(t *testing.T) {
	path := filepath.Join(t.TempDir(), "m")
	info := testInfo(9 * 10000)
	mustClose(t, mustCreate(t, path, info))
	rnd := rand.New(rand.NewPCG(7, 7))
	for range 15 {
		acked := runAndKill(t, path, rnd.IntN(40))
		l := mustOpen(t, path)
		have := info.Chunks() - l.Missing()
		if have < acked || !l.Has(acked-1) {
			t.Fatalf("%d chunks were acknowledged, %d are held", acked, have)
		}
		if n := int64(len(held(l))); n != have || l.Has(have) {
			t.Fatal("chunks are held that were never appended")
		}
		mustClose(t, l)
	}
	l := mustOpen(t, path)
	have := info.Chunks() - l.Missing()
	mustAppend(t, l, Run{First: have, Zeros: l.Missing()})
	mustSeal(t, l)
	for c, h := range hashesOf(t, mustLoad(t, path), 1000) {
		want := info.zeroHash(int64(c))
		if int64(c) < have && c%9 < 7 {
			want = testHash(int64(c))
		}
		if h != want {
			t.Fatalf("chunk %d has hash %v, want %v", c, h, want)
		}
	}
}
