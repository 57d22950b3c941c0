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
	"strings"
	"testing"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/test/lane"
)

// A logHistory is a small log with the durable chunks after each of its records.
type logHistory struct {
	bytes   []byte    // content of the log
	ends    []int64   // end of the header, then the ends of the records
	durable [][]int64 // durable chunks of a log that is cut at that end
}

func makeHistory(t *testing.T) logHistory {
	t.Helper()
	path := filepath.Join(t.TempDir(), "m")
	l := mustCreate(t, path, testInfo(20))
	h := logHistory{ends: []int64{l.end.off}, durable: [][]int64{nil}}
	record := func() {
		h.ends = append(h.ends, l.end.off)
		h.durable = append(h.durable, durableChunks(l))
	}
	for _, r := range []Run{testRun(3, 2), {First: 8, Zeros: 9}, testRun(0, 1)} {
		mustAppend(t, l, r)
		record()
	}
	if err := l.Drop(4, 6); err != nil {
		t.Fatal(err)
	}
	record()
	mustAppend(t, l, testRun(4, 1))
	record()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	h.bytes = b
	return h
}

// completeRecords returns the number of complete records before byte n, or -1 if the header is incomplete.
func (h logHistory) completeRecords(n int64) int {
	i, found := slices.BinarySearch(h.ends, n)
	if found {
		return i
	}
	return i - 1
}

// checkLog opens a file with the given content. It must have the durable chunks after the first n records. n = -1
// means that the header is damaged.
func (h logHistory) checkLog(t *testing.T, path string, bytes []byte, n int, what string) {
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
	if got := durableChunks(l); !slices.Equal(got, h.durable[n]) {
		t.Fatalf("%s: chunks %v, want %v", what, got, h.durable[n])
	}
	if want := int64(len(bytes)) - h.ends[n]; l.Dropped() != want {
		t.Fatalf("%s: dropped %d bytes, want %d", what, l.Dropped(), want)
	}
}

// checkAppend appends to the file of checkLog, which has n records.
func (h logHistory) checkAppend(t *testing.T, path string, n int, what string) {
	t.Helper()
	if n < 0 {
		return
	}
	l := mustOpen(t, path)
	mustAppend(t, l, testRun(19, 1))
	mustClose(t, l)
	if l = mustOpen(t, path); !slices.Equal(durableChunks(l), append(slices.Clone(h.durable[n]), 19)) || l.Dropped() != 0 {
		t.Fatalf("%s: chunks after an append: %v", what, durableChunks(l))
	}
	mustClose(t, l)
}

// commonPrefix returns the length of the common prefix of a and b. A random tail may begin with the truncated bytes.
func commonPrefix(a, b []byte) (n int) {
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
		cut, whole := slices.Clip(h.bytes[:n]), h.completeRecords(int64(n))
		h.checkLog(t, path, cut, whole, fmt.Sprintf("cut at %d", n))
		for what, tail := range map[string][]byte{"garbage": garbage, "zeros": make([]byte, 100)} {
			what = fmt.Sprintf("%s after %d", what, n)
			whole := h.completeRecords(int64(n + commonPrefix(h.bytes[n:], tail)))
			h.checkLog(t, path, append(cut, tail...), whole, what)
			h.checkAppend(t, path, whole, what)
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
		h.checkLog(t, path, b, h.completeRecords(int64(bit/8)), fmt.Sprintf("bit %d flipped", bit))
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
			want = fault.Conflict // the error of a log that was never sealed
		}
		if _, err := Load(path); !fault.Is(err, want) {
			t.Fatalf("cut at %d: %v, want %v", n, err, want)
		}
	}
}

// A record of a newer decamp is an error, and is not cut off as a torn tail.
func TestRecordsOfANewerDecampAreKept(t *testing.T) {
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

// A read error is reported, and not treated as a torn tail.
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

// brokenFile returns its bytes and then an error.
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

// The test copies the folder at each step of Seal, as a crash would leave it. Each copy must open with all chunks, and
// seal to the same root.
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
			t.Fatalf("before %s: the root differs", step)
		}
		if left, _ := os.ReadDir(crashes[step]); len(left) != 1 {
			t.Fatalf("before %s: files %v, want one", step, left)
		}
	}
	if len(crashes) != 5 {
		t.Fatalf("steps %v, want 5", crashes)
	}
}

// A Seal that fails at any step leaves a log that can be sealed later.
func TestFailedSealCanBeRepeated(t *testing.T) {
	for _, step := range []string{"create", "write", "sync", "rename", "sync folder"} {
		path := filepath.Join(t.TempDir(), "m")
		l := mustCreate(t, path, testInfo(5))
		mustAppend(t, l, testRun(3, 2), testRun(0, 3))
		bad := errors.New("failed")
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
			t.Fatalf("%s: the new file remains", step)
		}
		l.step = func(string) error { return nil }
		if root := mustSeal(t, l); mustLoad(t, path).Root() != root {
			t.Fatalf("%s: the root differs", step)
		}
	}
}

// Seal reports a failed sync of the folder, because a power failure could then restore the unsealed log.
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

// After a failed sync the content of the medium is unknown, so the append does not count.
func TestAppendWithFailedSyncDoesNotCount(t *testing.T) {
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
	if l = mustOpen(t, path); !slices.Equal(durableChunks(l), []int64{7}) {
		t.Fatalf("chunks %v, want 7 only", durableChunks(l))
	}
}

// childEnv names a manifest. With it, the test binary appends to the manifest until it is killed.
const childEnv = "DECAMP_MANIFEST_CHILD"

func TestMain(m *testing.M) {
	if path := os.Getenv(childEnv); path != "" {
		fmt.Fprintln(os.Stderr, appendForEver(path))
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// appendForEver appends two runs at a time, and prints the next chunk after each append.
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
		fmt.Printf("%-4000d\n", next+9) // a full pipe stops the child, so that it is not far ahead of the kill
	}
	return errors.New("was not killed")
}

// runAndKill starts a child, kills it after n+1 acknowledged appends, and returns the
// first chunk that it did not acknowledge, or -1.
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
		if acked, err = strconv.ParseInt(strings.TrimSpace(lines.Text()), 10, 64); err != nil {
			t.Fatal(err)
		}
		if i == n { // the loop then reads the remaining output
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
			t.Fatalf("%d chunks were acknowledged, %d are durable", acked, have)
		}
		if n := int64(len(durableChunks(l))); n != have || l.Has(have) {
			t.Fatal("chunks are durable that were never appended")
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
