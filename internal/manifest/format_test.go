package manifest

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"hash/crc32"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"unsafe"

	"github.com/decamp/decamp/internal/fault"
)

// recordFlag makes TestRecordedManifestsLoad write the missing files of this version. Existing files are never
// overwritten, because users have manifests of every version.
var recordFlag = flag.Bool("record", false, "record the manifests of this version in testdata")

func crcOf(b []byte) uint32 { return crc32.Checksum(b, castagnoli) }

// recordedRoot is the root of the content of both recorded manifests.
const recordedRoot = "693b27d286ad4f9f44ce778fce854d7b24394525695bd0a91c0615dae3a07e57"

func TestRecordedManifestsLoad(t *testing.T) {
	open, sealed := filepath.Join("testdata", "v1-open.manifest"), filepath.Join("testdata", "v1-sealed.manifest")
	if *recordFlag {
		recordManifests(t, open, sealed)
	}
	s := mustLoad(t, sealed)
	if s.Root().String() != recordedRoot || s.Info() != testInfo(20) {
		t.Errorf("root %v, info %+v", s.Root(), s.Info())
	}
	for c, h := range hashesOf(t, s, 20) {
		want := testHash(int64(c))
		if c >= 10 {
			want = testInfo(20).zeroHash(int64(c))
		}
		if h != want {
			t.Errorf("chunk %d has hash %v, want %v", c, h, want)
		}
	}
	l := mustOpen(t, tempCopy(t, open))
	if got := durableChunks(l); !slices.Equal(got, []int64{0, 1, 2, 3, 4, 5, 6, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19}) {
		t.Errorf("chunks of the open manifest: %v", got)
	}
	mustAppend(t, l, testRun(7, 3))
	if root := mustSeal(t, l); root.String() != recordedRoot {
		t.Errorf("open manifest sealed to root %v", root)
	}
}

func recordManifests(t *testing.T, open, sealed string) {
	t.Helper()
	l := mustCreate(t, filepath.Join(t.TempDir(), "m"), testInfo(20))
	mustAppend(t, l, Run{First: 10, Zeros: 10}, testRun(0, 3))
	mustAppend(t, l, testRun(3, 6))
	if err := l.Drop(7, 2); err != nil {
		t.Fatal(err)
	}
	copyIfMissing(t, l.path, open)
	mustAppend(t, l, testRun(7, 3))
	mustSeal(t, l)
	copyIfMissing(t, l.path, sealed)
}

func copyIfMissing(t *testing.T, from, to string) {
	t.Helper()
	if _, err := os.Stat(to); err == nil {
		return
	}
	b, err := os.ReadFile(from)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(to, b, 0o644); err != nil {
		t.Fatal(err)
	}
}

func tempCopy(t *testing.T, path string) string {
	t.Helper()
	to := filepath.Join(t.TempDir(), "m")
	copyIfMissing(t, path, to)
	return to
}

// The bytes of a header and a record are as documented in docs/formats/manifest.md.
func TestLayoutIsAsDocumented(t *testing.T) {
	b, tl := header{id: 0x0807060504030201, info: Info{Disk: "d", Size: 3 << 20, Source: "src"}}.encodeHeader()
	want := []byte("DECAMPMF" + "\x01\x00\x00\x00" + "\x30\x00\x00\x00" + "\x01\x02\x03\x04\x05\x06\x07\x08" +
		"\x00\x00\x30\x00\x00\x00\x00\x00" + "\x00\x00\x10\x00" + "\x01\x00" + "\x03\x00" + "dsrc")
	want = le.AppendUint32(want, crcOf(want))
	if !bytes.Equal(b, want) || tl.off != int64(len(want)) {
		t.Errorf("header is\n%x, want\n%x", b, want)
	}
	hash := Hash{1, 2, 3}
	covered := slices.Clone(want[:len(want)-4])
	rec := []byte("\x01\x00\x00\x00" + "\x20\x00\x00\x00" + "\x02\x00\x00\x00\x00\x00\x00\x00" + "\x01\x00\x00\x00\x00\x00\x00\x00")
	rec = append(rec, hash[:]...)
	covered = append(covered, rec...)
	rec = le.AppendUint32(rec, crcOf(covered))
	if got := tl.appendRecord(nil, kindHashes, 2, 1, []Hash{hash}); !bytes.Equal(got, rec) {
		t.Errorf("record is\n%x, want\n%x", got, rec)
	}
}

// A disk with 6 TiB of zeros has a small manifest, and a record takes 24 bytes of memory.
func TestManifestOfLargeDiskIsSmall(t *testing.T) {
	if n := unsafe.Sizeof(record{}); n != 24 {
		t.Errorf("a record takes %d bytes of memory, want 24", n)
	}
	path := filepath.Join(t.TempDir(), "m")
	l := mustCreate(t, path, Info{Size: 6 << 40})
	mustAppend(t, l, Run{Zeros: 3 << 20}, Run{First: 3 << 20, Zeros: 3 << 20})
	mustSeal(t, l)
	if st, _ := os.Stat(path); st.Size() > 200 {
		t.Errorf("6 TiB of zeros take %d bytes, want at most 200", st.Size())
	}
	mustLoad(t, path)
}

func addSeeds(f *testing.F) {
	for _, name := range []string{"v1-open.manifest", "v1-sealed.manifest"} {
		b, err := os.ReadFile(filepath.Join("testdata", name))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
		f.Add(b[:len(b)/2])
	}
	largest, _ := header{info: Info{Size: MaxSize}}.encodeHeader()
	f.Add(largest)
	tooLarge, _ := header{info: Info{Size: 1 << 62}}.encodeHeader()
	f.Add(tooLarge)
}

// fixChecksums returns b with valid checksums, so that fuzzing reaches the code behind them.
func fixChecksums(b []byte) []byte {
	b = slices.Clone(b)
	if len(b) < fixedHead+sumLen {
		return b
	}
	at := int(le.Uint32(b[12:]))
	if at < fixedHead+sumLen || at > len(b) {
		return b
	}
	sum := crcOf(b[:at-sumLen])
	le.PutUint32(b[at-sumLen:], sum)
	for len(b)-at >= recordHead+sumLen {
		end := at + recordHead + int(le.Uint32(b[at+4:]))
		if end+sumLen > len(b) {
			break
		}
		sum = crc32.Update(sum, castagnoli, b[at:end])
		le.PutUint32(b[end:], sum)
		at = end + sumLen
	}
	return b
}

// FuzzOpen opens arbitrary bytes. A file that opens can be opened again with the same content.
func FuzzOpen(f *testing.F) {
	addSeeds(f)
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, b := range [][]byte{b, fixChecksums(b)} {
			path := filepath.Join(t.TempDir(), "m")
			if err := os.WriteFile(path, b, 0o644); err != nil {
				t.Fatal(err)
			}
			l, err := Open(path)
			if err != nil {
				checkForeignError(t, err)
				continue
			}
			missing := l.Missing()
			mustClose(t, l)
			if l = mustOpen(t, path); l.Missing() != missing || l.Dropped() != 0 {
				t.Fatalf("opened again: %d missing, was %d; %d dropped", l.Missing(), missing, l.Dropped())
			}
			mustClose(t, l)
		}
	})
}

// FuzzLoad loads arbitrary bytes. A file that loads can also be opened, and seals to the same root.
func FuzzLoad(f *testing.F) {
	addSeeds(f)
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, b := range [][]byte{b, fixChecksums(b)} {
			path := filepath.Join(t.TempDir(), "m")
			if err := os.WriteFile(path, b, 0o644); err != nil {
				t.Fatal(err)
			}
			s, err := Load(path)
			if err != nil {
				checkForeignError(t, err)
				continue
			}
			l := mustOpen(t, path)
			if root, err := l.Seal(context.Background()); err != nil || root != s.Root() {
				t.Fatalf("loads with root %v, opens with %v (%v)", s.Root(), root, err)
			}
			mustClose(t, l)
			mustClose(t, s)
		}
	})
}

// checkForeignError checks that the error of an invalid file has a remedy and is not an internal one.
func checkForeignError(t *testing.T, err error) {
	t.Helper()
	var e *fault.Error
	if !errors.As(err, &e) || e.Kind == fault.Internal || fault.HintOf(err) == "" {
		t.Fatalf("the error is internal or has no remedy: %v", err)
	}
}
