package manifest

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/decamp/decamp/internal/fault"
)

// A record with a valid checksum is accepted only if its fields are consistent with each other and the disk. Otherwise
// Open cuts it and all later records off, as after a torn write.
func TestInconsistentRecordsAreCutOff(t *testing.T) {
	hashes := []Hash{testHash(0), testHash(1)}
	for name, r := range map[string]struct {
		kind         kind
		first, count int64
		hashes       []Hash
	}{
		"fewer hashes than chunks":   {kindHashes, 3, 2, hashes[:1]},
		"more hashes than chunks":    {kindHashes, 3, 1, hashes},
		"no chunks":                  {kindHashes, 3, 0, nil},
		"zeros with hashes":          {kindZeros, 3, 1, hashes[:1]},
		"zeros beyond the disk":      {kindZeros, 9, 2, nil},
		"zeros from the end":         {kindZeros, 10, 1, nil},
		"no zeros":                   {kindZeros, 3, 0, nil},
		"drop with a hash":           {kindDrop, 0, 1, hashes[:1]},
		"drop beyond the disk":       {kindDrop, 0, 11, nil},
		"seal of a part":             {kindSeal, 0, 9, hashes[:1]},
		"seal from another chunk":    {kindSeal, 1, 10, hashes[:1]},
		"seal without a root":        {kindSeal, 0, 10, nil},
		"seal with two roots":        {kindSeal, 0, 10, hashes},
		"seal before the last chunk": {kindSeal, 0, 10, hashes[:1]},
	} {
		path := filepath.Join(t.TempDir(), "m")
		l := mustCreate(t, path, testInfo(10))
		mustAppend(t, l, testRun(0, 9))
		if strings.HasPrefix(name, "seal") && name != "seal before the last chunk" {
			mustAppend(t, l, testRun(9, 1))
		}
		want, end := durableChunks(l), l.end
		b := end.appendRecord(nil, r.kind, r.first, r.count, r.hashes)
		b = end.appendRecord(b, kindDrop, 0, 1, nil) // a valid record after the invalid one
		if _, err := l.f.WriteAt(b, l.end.off); err != nil {
			t.Fatal(err)
		}
		mustClose(t, l)
		if _, err := Load(path); err == nil {
			t.Errorf("%s: Load accepts it", name)
		}
		l = mustOpen(t, path)
		if got := durableChunks(l); !slices.Equal(got, want) || l.Dropped() != int64(len(b)) || l.sealed {
			t.Errorf("%s: chunks %v, want %v; %d bytes dropped of %d; sealed %v", name, got, want, l.Dropped(), len(b), l.sealed)
		}
		mustClose(t, l)
	}
}

// A log with all chunks in order is not sealed if it has no seal, or other records between or after them.
func TestCompleteLogWithoutSealIsNotSealed(t *testing.T) {
	for name, write := range map[string]func(*Log) error{
		"nothing after": func(l *Log) error { return l.Append(t.Context(), []Run{testRun(0, 10)}) },
		"drop between": func(l *Log) error {
			mustAppend(t, l, testRun(0, 5))
			if err := l.Drop(5, 2); err != nil {
				return err
			}
			return l.Append(t.Context(), []Run{testRun(5, 5)})
		},
		"chunk after": func(l *Log) error {
			mustAppend(t, l, testRun(0, 10))
			return l.Append(t.Context(), []Run{testRun(9, 1)})
		},
		"drop after the seal": func(l *Log) error {
			mustAppend(t, l, testRun(0, 10))
			mustSeal(t, l)
			return l.Drop(9, 1)
		},
	} {
		path := filepath.Join(t.TempDir(), "m")
		l := mustCreate(t, path, testInfo(10))
		if err := write(l); err != nil {
			t.Fatal(err)
		}
		if _, err := Load(path); !fault.Is(err, fault.Conflict) || fault.HintOf(err) == "" {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A header that is cut at any byte is corrupt, with a remedy. The shortest and the longest headers are
// valid.
func TestHeadersOfAnyLength(t *testing.T) {
	long := strings.Repeat("x", maxName)
	for _, info := range []Info{{}, {Size: 512}, testInfo(3), {Disk: long, Source: long, Size: 512}} {
		path := filepath.Join(t.TempDir(), "m")
		mustClose(t, mustCreate(t, path, info))
		if got, err := ReadInfo(path); err != nil || got != info {
			t.Errorf("%d bytes: read as %d bytes, %v", info.Size, got.Size, err)
		}
		mustClose(t, mustOpen(t, path))
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if len(b) > 200 {
			continue
		}
		for n := range b {
			if err := os.WriteFile(path, b[:n], 0o644); err != nil {
				t.Fatal(err)
			}
			if _, err := Open(path); !fault.Is(err, fault.Corrupt) || fault.HintOf(err) == "" {
				t.Errorf("%d of %d bytes: %v", n, len(b), err)
			}
		}
	}
	for _, info := range []Info{{Disk: long + "x"}, {Source: long + "x"}} {
		if _, err := Create(filepath.Join(t.TempDir(), "m"), info); !fault.Is(err, fault.Invalid) || fault.HintOf(err) == "" {
			t.Errorf("names of %d and %d bytes: %v", len(info.Disk), len(info.Source), err)
		}
	}
}

// Chunks outside the disk are never durable, also if all chunks of a segment are.
func TestChunksOutsideDiskAreNeverDurable(t *testing.T) {
	for _, chunks := range []int64{segmentChunks - 1, segmentChunks, 2 * segmentChunks} {
		l := mustCreate(t, filepath.Join(t.TempDir(), "m"), Info{Size: chunks * ChunkSize})
		mustAppend(t, l, Run{Zeros: chunks})
		for _, c := range []int64{-1, -segmentChunks, chunks, chunks + segmentChunks} {
			if l.Has(c) {
				t.Errorf("a disk of %d chunks has chunk %d", chunks, c)
			}
		}
		if !l.Has(0) || !l.Has(chunks-1) {
			t.Errorf("a disk of %d chunks does not have its first or its last chunk", chunks)
		}
		for _, n := range []int64{0, -1} {
			if err := l.Drop(3, n); !fault.Is(err, fault.Internal) {
				t.Errorf("drop of %d chunks: %v", n, err)
			}
		}
		if err := l.Append(t.Context(), []Run{{First: 1, Zeros: -1, Hashes: make([]Hash, 2)}}); !fault.Is(err, fault.Internal) {
			t.Errorf("a run of two hashes and -1 zeros: %v", err)
		}
	}
}

// The last record that fits into the file is written and read like any other.
func TestLastRecordBelowMaximumLength(t *testing.T) {
	path := filepath.Join(t.TempDir(), "m")
	l := mustCreate(t, path, testInfo(4))
	l.end.off = l.chunks.start + maxRecords - (recordHead + hashLen + sumLen) // simulates a file of this length
	mustAppend(t, l, testRun(2, 1))
	if got, ok, err := l.Hash(2); got != testHash(2) || !ok || err != nil {
		t.Errorf("hash %v, %v, %v", got, ok, err)
	}
	wantFault(t, l.Append(t.Context(), []Run{{First: 3, Zeros: 1}}), fault.Unsupported)
}

// Runs at the maximum length of a record, and longer ones, are read again after a reopen.
func TestLongRunsAreReadAgain(t *testing.T) {
	for _, n := range []int64{maxHashes - 1, maxHashes, maxHashes + 1} {
		path := filepath.Join(t.TempDir(), "m")
		l := mustCreate(t, path, Info{Size: (n + 2) * ChunkSize})
		mustAppend(t, l, testRun(1, n), Run{Zeros: 1})
		mustClose(t, l)
		l = mustOpen(t, path)
		if l.Missing() != 1 || l.Dropped() != 0 {
			t.Errorf("%d hashes: %d missing, %d bytes dropped", n, l.Missing(), l.Dropped())
		}
		mustAppend(t, l, testRun(n+1, 1))
		mustSeal(t, l)
		s := mustLoad(t, path)
		got, err := s.hashesOf([]int64{0, 1, 4095, 4096, maxHashes - 1, n, n + 1})
		want := []Hash{ZeroHash(ChunkSize), testHash(1), testHash(4095), testHash(4096), testHash(maxHashes - 1), testHash(n), testHash(n + 1)}
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%d hashes: the hashes differ from the appended ones: %v", n, err)
		}
	}
}

// Adjacent runs of one append that are together longer than a record become several records.
func TestAdjacentLongRunsAreReadAgain(t *testing.T) {
	path := filepath.Join(t.TempDir(), "m")
	l := mustCreate(t, path, Info{Size: (maxHashes + 20) * ChunkSize})
	mustAppend(t, l, testRun(0, 10), testRun(10, maxHashes))
	mustClose(t, l)
	l = mustOpen(t, path)
	got, ok, err := l.Hash(maxHashes + 9)
	if l.Missing() != 10 || l.Dropped() != 0 || got != testHash(maxHashes+9) || !ok || err != nil {
		t.Errorf("%d missing, %d bytes dropped; the last hash is %v, %v, %v", l.Missing(), l.Dropped(), got, ok, err)
	}
}

// DropAll removes the chunks with one write, and neighbours with one record. It keeps all other chunks. With a
// chunk outside the disk it fails and removes none.
func TestDropAllRemovesEachChunk(t *testing.T) {
	path := filepath.Join(t.TempDir(), "m")
	l := mustCreate(t, path, testInfo(20))
	mustAppend(t, l, Run{Zeros: 20})
	steps, before := 0, l.end.off
	l.step = func(name string) error { steps++; return nil }
	for _, outside := range [][]int64{{3, 20}, {-1, 3}} {
		if err := l.DropAll(outside); !fault.Is(err, fault.Internal) {
			t.Errorf("drop %v: %v", outside, err)
		}
	}
	if err := l.DropAll(nil); err != nil || steps > 0 || l.Missing() > 0 {
		t.Errorf("nothing to drop: %v, %d steps, %d missing", err, steps, l.Missing())
	}
	if err := l.DropAll([]int64{0, 1, 2, 5, 7, 8, 19}); err != nil {
		t.Fatal(err)
	}
	if records := (l.end.off - before) / (recordHead + sumLen); steps != 2 || records != 4 {
		t.Errorf("%d steps and %d records, want one write and one sync of four records", steps, records)
	}
	want := []int64{3, 4, 6, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18}
	for range 2 {
		if got := durableChunks(l); !slices.Equal(got, want) {
			t.Errorf("chunks %v, want %v", got, want)
		}
		mustClose(t, l)
		l = mustOpen(t, path)
	}
}

// If an append fails and its data cannot be cut off, the next append cuts it off first.
func TestAppendAfterAFailedUndo(t *testing.T) {
	path := filepath.Join(t.TempDir(), "m")
	l := mustCreate(t, path, testInfo(10))
	mustAppend(t, l, testRun(0, 2))
	if _, err := l.f.WriteAt(make([]byte, 500), l.end.off); err != nil {
		t.Fatal(err)
	}
	f := l.f
	readOnly, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	l.f = readOnly
	if err := l.Append(t.Context(), []Run{testRun(2, 1)}); err == nil || l.Has(2) {
		t.Errorf("append to a read-only file: %v", err)
	}
	l.f = f
	mustClose(t, readOnly)
	mustAppend(t, l, testRun(3, 1))
	mustAppend(t, l, testRun(4, 1))
	mustClose(t, l)
	l = mustOpen(t, path)
	if got := durableChunks(l); !slices.Equal(got, []int64{0, 1, 3, 4}) || l.Dropped() != 0 {
		t.Errorf("chunks %v, %d bytes dropped", got, l.Dropped())
	}
}

// RootWith returns the root of a manifest with other hashes for some chunks, anywhere on the disk.
func TestRootWithOtherHashes(t *testing.T) {
	const chunks = 2*4096 + 5
	seal := func(l *Log) *Sealed {
		mustSeal(t, l)
		return mustLoad(t, l.path)
	}
	l := mustCreate(t, filepath.Join(t.TempDir(), "m"), testInfo(chunks))
	mustAppend(t, l, testRun(0, chunks))
	before := seal(l)
	other := map[int64]Hash{}
	for _, c := range []int64{0, 4095, 4096, 4097, chunks - 1} {
		other[c] = testHash(-c - 1)
		mustAppend(t, l, Run{First: c, Hashes: []Hash{other[c]}})
	}
	after := seal(l)
	if root, err := before.RootWith(other); err != nil || root != after.Root() || root == before.Root() {
		t.Errorf("root %v, want %v: %v", root, after.Root(), err)
	}
	if root, err := after.RootWith(nil); err != nil || root != after.Root() {
		t.Errorf("without other hashes the root is %v, want %v: %v", root, after.Root(), err)
	}
}

// Recent returns the last four chunks of each of the newest records.
func TestRecentChunksAreFromTheNewestRecords(t *testing.T) {
	l := mustCreate(t, filepath.Join(t.TempDir(), "m"), testInfo(1000))
	for c := int64(0); c < 200; c += 10 {
		mustAppend(t, l, testRun(c, 6))
		if n := len(l.chunks.recent); n > maxRecent {
			t.Fatalf("%d recent records, want at most %d", n, maxRecent)
		}
	}
	var want []int64
	for c := int64(190); c > 190-maxRecent*10; c -= 10 {
		want = append(want, c+5, c+4, c+3, c+2)
	}
	if got := l.Recent(100); !slices.Equal(got, want) {
		t.Errorf("recent %v, want %v", got, want)
	}
}

// The error names the first bad chunk, and the number of others.
func TestErrorOfBadChunks(t *testing.T) {
	for n, want := range map[int64]string{1: "", 2: ", and 1 more chunks", 7: ", and 6 more chunks"} {
		r := Report{BadChunks: n, Bad: []Bad{{Disk: "2001", Off: 3 << 20, Len: 512}}}
		err := r.badChunksError()
		if first := fmt.Sprint(r.Bad[0]); !fault.Is(err, fault.Corrupt) || err.Error() != first+want {
			t.Errorf("%d bad chunks: %v", n, err)
		}
	}
	if err := (&Report{}).badChunksError(); err != nil {
		t.Errorf("no bad chunks: %v", err)
	}
	if n := (Report{Bytes: 100, Zero: 30, VerifiedBefore: 20}).Read(); n != 50 {
		t.Errorf("%d bytes were read, want 50", n)
	}
}

// A header with an impossible length is corrupt.
func TestHeaderLengths(t *testing.T) {
	path := filepath.Join(t.TempDir(), "m")
	mustClose(t, mustCreate(t, path, testInfo(3)))
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range []uint32{0, 3, sumLen, fixedHead, fixedHead + sumLen - 1, uint32(len(b)) - 1, uint32(len(b)) + 1, maxHead + 1, 1<<32 - 1} {
		le.PutUint32(b[12:], n)
		if err := os.WriteFile(path, b, 0o644); err != nil {
			t.Fatal(err)
		}
		if _, err := Open(path); !fault.Is(err, fault.Corrupt) || fault.HintOf(err) == "" {
			t.Errorf("length %d: %v", n, err)
		}
	}
}

// A disk that ends with a segment is sealed with exactly its chunks.
func TestDiskEndingAtSegmentBoundary(t *testing.T) {
	l := mustCreate(t, filepath.Join(t.TempDir(), "m"), Info{Size: segmentChunks * ChunkSize})
	mustAppend(t, l, testRun(0, 1), Run{First: 1, Zeros: segmentChunks - 1})
	mustSeal(t, l)
	hashes, page := mustLoad(t, l.path).Hashes(), make([]Hash, segmentChunks-1)
	if err := hashes.Next(page); err != nil || page[0] != testHash(0) || page[1] != ZeroHash(ChunkSize) {
		t.Errorf("hashes %v and %v, %v", page[0], page[1], err)
	}
	if err := hashes.Next(page[:2]); err != io.ErrUnexpectedEOF {
		t.Errorf("two hashes when one remains: %v", err)
	}
	if err := hashes.Next(page[:1]); err != nil {
		t.Errorf("the last hash: %v", err)
	}
}

// A hash is the same after encoding and decoding as JSON. Text of another length, or that is not hexadecimal, is refused.
func TestHashesInJSON(t *testing.T) {
	text, err := json.Marshal(Bad{Disk: "2001", Off: 1 << 20, Len: 512, Want: testHash(1), Got: testHash(2)})
	if err != nil {
		t.Fatal(err)
	}
	var b Bad
	if err := json.Unmarshal(text, &b); err != nil || b.Want != testHash(1) || b.Got != testHash(2) || b.Chunk() != 1 {
		t.Errorf("%s is decoded as %v, %v", text, b, err)
	}
	good := testHash(1).String()
	for _, bad := range []string{"", good[:62], good + "00", "g" + good[1:]} {
		h := testHash(3)
		if err := h.UnmarshalText([]byte(bad)); !fault.Is(err, fault.Invalid) || h != testHash(3) {
			t.Errorf("%q: %v", bad, err)
		}
	}
}
