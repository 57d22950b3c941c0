package ntfs

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/decamp/decamp/internal/guest/budget"
	"github.com/decamp/decamp/internal/guest/budget/budgettest"
	"github.com/decamp/decamp/internal/guest/tree"
	"github.com/decamp/decamp/internal/guest/tree/treetest"
	"github.com/decamp/decamp/test/lane"
)

// seedVolume returns the volume of testdata, which testdata/README.md describes.
func seedVolume(t testing.TB) []byte {
	t.Helper()
	return treetest.Unpacked(t, "testdata/ntfs.img.gz")
}

// counter counts reads.
type counter struct {
	r     io.ReaderAt
	reads int
}

func (c *counter) ReadAt(p []byte, off int64) (int, error) {
	c.reads++
	return c.r.ReadAt(p, off)
}

// readVolume reads a volume and returns the number of errors. It fails the test if a limit of reads or results is
// exceeded.
func readVolume(t testing.TB, image []byte) (failures int) {
	t.Helper()
	b := budgettest.New(t)
	defer budgettest.Charged(t, b)()
	c := &counter{r: bytes.NewReader(image)}
	v, err := Open(b.Reader(c))
	if err != nil {
		return 1
	}
	note := func(err error) {
		if err != nil {
			failures++
		}
	}
	_, err = v.Info()
	note(err)
	_, err = v.LogClosed()
	note(err)
	usage, err := v.Usage()
	note(err)
	if usage.Free > usage.Size {
		t.Errorf("%d bytes free of %d", usage.Free, usage.Size)
	}
	all, err := v.Tree()
	if err != nil {
		return failures + 1
	}
	for _, folder := range []string{"", "many"} {
		entries, err := all.ReadDir(folder)
		note(err)
		if len(entries) > maxNames {
			t.Errorf("%d names, want at most %d", len(entries), maxNames)
		}
	}
	for _, file := range []string{"many/file 17", "packed/text", "sparse", "small", "large"} {
		_, err := all.ReadFile(file, 1<<20)
		note(err)
	}
	if c.reads > 8*MaxReads { // reads are split at runs, which can be a single cluster
		t.Errorf("%d reads, want at most %d", c.reads, 8*MaxReads)
	}
	return failures
}

func TestSeed(t *testing.T) {
	image := seedVolume(t)
	if n := readVolume(t, image); n != 0 {
		t.Errorf("%d errors on an undamaged volume", n)
	}
	v, err := Open(budgettest.Reader(t, bytes.NewReader(image)))
	if err != nil {
		t.Fatal(err)
	}
	root, err := volumeTree(t, v).ReadDir("/")
	if err != nil || len(root) != 16 || slices.ContainsFunc(root, func(e tree.Entry) bool { return e.Name == "." }) {
		t.Errorf("%d names: %v, %v", len(root), root, err)
	}
	text := strings.Repeat("compressed text. ", 4000)
	checkFiles(t, v, map[string][]byte{"packed/text": []byte(text), "small": []byte("small"), "many/file 17": []byte("17\n")})
}

// Bits are flipped in the records and folders of a volume. Some flips cannot be detected, for example in the letter
// of a name. None causes a panic or an endless loop.
func TestFlippedBits(t *testing.T) {
	if testing.Short() {
		t.Skip("takes more than a second")
	}
	sound := seedVolume(t)
	r := rand.New(rand.NewPCG(1, 2))
	var kept []int // offsets of records and blocks
	for at := 0; at < len(sound); at += 512 {
		if mark := string(sound[at : at+4]); mark == "FILE" || mark == "INDX" {
			kept = append(kept, at)
		}
	}
	detected := 0
	rounds := 400
	if lane.Slow {
		rounds = 1500
	}
	for range rounds {
		image := bytes.Clone(sound)
		for range 1 + r.IntN(20) {
			at := kept[r.IntN(len(kept))] + r.IntN(512)
			image[at] ^= 1 << r.IntN(8)
		}
		if readVolume(t, image) > 0 {
			detected++
		}
	}
	if detected < rounds/10 {
		t.Errorf("damage was detected in %d of %d volumes, want at least %d", detected, rounds, rounds/10)
	}
}

// recordOffset returns the offset of the record of a file in the image.
func recordOffset(t *testing.T, image []byte, path string) int {
	t.Helper()
	v, err := Open(budgettest.Reader(t, bytes.NewReader(image)))
	if err != nil {
		t.Fatal(err)
	}
	n, err := volumeTree(t, v).Open(path)
	if err != nil {
		t.Fatal(err)
	}
	first, ok := v.mft.findRun(0)
	if !ok {
		t.Fatal("no table")
	}
	return int(first.lcn*v.clusterSize + n.(*node).r.number*v.recordSize)
}

func TestDamageErrors(t *testing.T) {
	tests := []struct {
		name, path string
		damage     func(image []byte, record int)
		want       string
	}{
		{"torn write", "small", func(b []byte, at int) { b[at+510]++ }, "torn"},
		{"no record", "small", func(b []byte, at int) { b[at] = 'B' }, "no file record"},
		{"deleted", "small", func(b []byte, at int) { b[at+0x16] = 0 }, "not in use"},
		{"another file", "small", func(b []byte, at int) { b[at+0x10]++ }, "another file"},
		{"attribute without length", "small", func(b []byte, at int) { clear(b[at+0x38+4:][:4]) }, "an attribute of 0 bytes"},
		{"attributes outside", "small", func(b []byte, at int) { b[at+0x14], b[at+0x15] = 0xff, 0xff }, "attributes at 65535"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			image := seedVolume(t)
			tt.damage(image, recordOffset(t, image, tt.path))
			v, err := Open(budgettest.Reader(t, bytes.NewReader(image)))
			if err != nil {
				t.Fatal(err)
			}
			if _, err := volumeTree(t, v).ReadFile(tt.path, 1<<20); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want an error about %q", err, tt.want)
			}
		})
	}
}

func TestOpenRefuses(t *testing.T) {
	tests := map[string]func(boot []byte){
		"signature":  func(b []byte) { b[3] = 'X' },
		"sectors":    func(b []byte) { b[0x0b] = 3 },
		"clusters":   func(b []byte) { b[0x0d] = 3 },
		"no volume":  func(b []byte) { clear(b[0x28:0x30]) },
		"MFT beyond": func(b []byte) { b[0x36] = 1 },
		"records":    func(b []byte) { b[0x40] = 0x80 },
	}
	for name, damage := range tests {
		image := seedVolume(t)
		damage(image)
		if _, err := Open(budgettest.Reader(t, bytes.NewReader(image))); err == nil {
			t.Errorf("Open accepts a damaged boot sector: %s", name)
		}
	}
	if _, err := Open(budgettest.Reader(t, bytes.NewReader(make([]byte, 100)))); err == nil {
		t.Error("Open accepts 100 bytes")
	}
}

// Windows checks these states of the volume when it mounts it.
func TestDirtyAndOpenJournal(t *testing.T) {
	image := seedVolume(t)
	v, err := Open(budgettest.Reader(t, bytes.NewReader(image)))
	if err != nil {
		t.Fatal(err)
	}
	about, err := v.readRecord(recordVolume)
	if err != nil {
		t.Fatal(err)
	}
	info, ok := about.findAttribute(typeVolumeInfo, "")
	if !ok {
		t.Fatal("no volume information")
	}
	at := bytes.Index(image, info.value)
	image[at+10] |= 1
	if info, err := v.Info(); err != nil || !info.Dirty {
		t.Errorf("Dirty is false: %+v, error %v", info, err)
	}
	page := make([]byte, 4096)
	copy(page, "RSTR")
	page[0x18] = 0x30
	if open, err := logIsClosed(page); err != nil || open { // client 0 uses the log
		t.Errorf("closed: %v, %v", open, err)
	}
	page[0x30+0xe] = 2
	if closed, err := logIsClosed(page); err != nil || !closed {
		t.Errorf("closed: %v, %v", closed, err)
	}
	copy(page, "RCRD")
	if _, err := logIsClosed(page); !errors.Is(err, errCorrupt) {
		t.Errorf("no restart page: got %v, want %v", err, errCorrupt)
	}
}

// The cases are the examples of [MS-XCA], and invalid data.
func TestUnpack(t *testing.T) {
	for _, tt := range []struct {
		packed string
		want   string // decompressed data; empty if decompress must fail
	}{
		{"\x04\xb0\x00ABCD\x00\x00", "ABCD"},
		{"\x03\x30ABCD\x00\x00", "ABCD"},
		{"\x06\xb0\x02A\x05\x00B\x00\x00", "AAAAAAAAAB"},
		{"\x06\xb0\x02A\x05\x10B\x00\x00", ""}, // reference before the beginning
		{"\x04\xb0\x02A\x05", ""},              // truncated
		{"\x03\xb0\x02A\xff\x0f", ""},          // longer than a chunk
	} {
		got := make([]byte, 64)
		err := decompress(got, []byte(tt.packed))
		if (err != nil) != (tt.want == "") || err == nil && string(bytes.TrimRight(got, "\x00")) != tt.want {
			t.Errorf("%q: %q, %v; want %q", tt.packed, got, err, tt.want)
		}
	}
}

// encodeRun returns the mapping pair of a run, with numbers of eight bytes. A hole has no position.
func encodeRun(count, lcn int64) []byte {
	if lcn == hole {
		return binary.LittleEndian.AppendUint64([]byte{0x08}, uint64(count))
	}
	return binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64([]byte{0x88}, uint64(count)), uint64(lcn))
}

// Runs beyond maxBytes are refused for every cluster size, so that offsets in bytes fit into int64.
func TestOversizedRunsAreRefused(t *testing.T) {
	for clusterSize := int64(512); clusterSize <= 2<<20; clusterSize *= 2 {
		most := maxBytes / clusterSize
		v := &Volume{r: budgettest.Reader(t, bytes.NewReader(nil)), clusterSize: clusterSize, clusters: most}
		for _, tt := range []struct {
			name  string
			pairs []byte
			ok    bool
		}{
			{"the largest hole", encodeRun(most, hole), true},
			{"a larger hole", encodeRun(most+1, hole), false},
			{"the largest number", encodeRun(1<<63-1, hole), false},
			{"a hole of 2^63 bytes", encodeRun(1<<62/clusterSize*2, hole), false},
			{"a hole after a hole", slices.Concat(encodeRun(most, hole), encodeRun(1, hole)), false},
			{"the whole volume", encodeRun(most, 0), true},
			{"beyond the volume", encodeRun(most, 1), false},
			{"a position of 2^63-1", encodeRun(1, 1<<63-1), false},
			{"positions that add up to 2^63", slices.Concat(encodeRun(1, most-1), encodeRun(1, 1<<63-1)), false},
		} {
			header := append(make([]byte, 0x40), append(tt.pairs, 0)...)
			header[0x20] = 0x40
			binary.LittleEndian.PutUint64(header[0x30:], 1<<63-1)
			binary.LittleEndian.PutUint64(header[0x38:], 1<<63-1)
			s, err := v.newStream([]attribute{{header: header}})
			if (err == nil) != tt.ok {
				t.Errorf("%s of clusters of %d bytes: %v", tt.name, clusterSize, err)
			}
			if err != nil {
				continue
			}
			for _, off := range []int64{0, 1, maxBytes - 100, maxBytes - 1, maxBytes, 1<<63 - 200} {
				s.readAt(make([]byte, 100), off) // must not panic
			}
		}
	}
}

// The runs of all parts are charged and allocated once. Too many runs are refused before they are allocated.
func TestMemoryOfRuns(t *testing.T) {
	const runSize, perPart = 24, 1024
	parts := func(count int) []attribute {
		all := make([]attribute, count)
		for i := range all {
			header := append(make([]byte, 0x40), append(bytes.Repeat([]byte{1, 1}, perPart), 0)...) // holes of one cluster
			header[0x20] = 0x40
			all[i] = attribute{header: header, firstVCN: int64(i) * perPart}
		}
		return all
	}
	for _, tt := range []struct {
		name   string
		parts  int
		memory int64 // limit of the memory budget
		ok     bool
	}{
		{"the maximum", maxRuns / perPart, 8 << 20, true},
		{"one part too many", maxRuns/perPart + 1, 8 << 20, false},
		{"8,000 parts", 8000, 8 << 20, false},
		{"more than the budget", maxRuns / perPart, runSize*maxRuns - 1, false},
	} {
		limits := budget.Examination()
		limits.Memory = tt.memory
		b, cancel := budget.New(t.Context(), limits)
		defer cancel()
		v := &Volume{r: b.Reader(bytes.NewReader(nil)), clusterSize: 4096, clusters: 100}
		all := parts(tt.parts)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		s, err := v.newStream(all)
		runtime.ReadMemStats(&after)
		if (err == nil) != tt.ok {
			t.Errorf("%s: %v", tt.name, err)
			continue
		}
		want := int64(0)
		if tt.ok {
			want = runSize * int64(tt.parts) * perPart
		}
		const rest = 64 << 10 // the stream, the error, and the test itself
		if got := int64(after.TotalAlloc - before.TotalAlloc); got > want+rest || b.Used().Memory != want {
			t.Errorf("%s: %d bytes are allocated, %d expected, charged: %+v", tt.name, got, want, b.Used())
		}
		if err == nil {
			if s.release(); b.Used().Memory != 0 {
				t.Errorf("%s: %d bytes are not released", tt.name, b.Used().Memory)
			}
		}
	}
}

// Every part of an attribute is charged until the stream is open, even if one record has many parts.
func TestMemoryOfParts(t *testing.T) {
	limits := budget.Examination()
	limits.Memory = 1 << 20
	b, cancel := budget.New(t.Context(), limits)
	defer cancel()
	v := &Volume{r: b.Reader(bytes.NewReader(nil)), clusterSize: 4096, recordSize: 64 << 10}
	list := make([]byte, 32)
	list[0], list[4], list[16] = typeData, 32, 7 // an entry that refers to the record itself
	r := &record{number: 7, attributes: []attribute{{kind: typeList, value: list}}}
	for range 20000 {
		r.attributes = append(r.attributes, attribute{kind: typeData})
	}
	var limit *budget.Error
	if _, err := v.openStream(r, typeData, ""); !errors.As(err, &limit) || !strings.Contains(err.Error(), "memory") || b.Used().Memory != 0 {
		t.Errorf("got %v, %+v, want an error about the memory budget", err, b.Used())
	}
}

// After reads all charged memory is released, except for the table of upper case letters and the runs of the
// master file table and of open files.
func TestMemoryIsReleased(t *testing.T) {
	b := budgettest.New(t)
	v, err := Open(b.Reader(bytes.NewReader(seedVolume(t))))
	if err != nil {
		t.Fatal(err)
	}
	held := b.Used().Memory
	if want := int64(2<<16 + 24*cap(v.mft.runs)); held != want {
		t.Errorf("%d bytes are charged, want %d", held, want)
	}
	all := volumeTree(t, v)
	for range 3 {
		_, err1 := all.ReadDir("many")
		_, err2 := all.Open("many")
		_, err3 := v.Usage()
		_, err4 := v.LogClosed()
		if err := errors.Join(err1, err2, err3, err4); err != nil || b.Used().Memory != held {
			t.Errorf("%d bytes are charged, want %d, error %v", b.Used().Memory, held, err)
		}
	}
}

// Sizes of a volume are refused if an offset within it exceeds maxBytes.
func TestOversizedVolumesAreRefused(t *testing.T) {
	for _, sector := range []int64{256, 512, 4096} {
		boot := make([]byte, 512)
		copy(boot[3:], "NTFS    ")
		binary.LittleEndian.PutUint16(boot[0x0b:], uint16(sector))
		boot[0x0d], boot[0x40] = 8, 0xf6
		boot[0x30] = 1
		for sectors, ok := range map[int64]bool{maxBytes / sector: true, maxBytes/sector + 1: false, 1 << 52: sector == 256, 1 << 62: false, -1: false} {
			binary.LittleEndian.PutUint64(boot[0x28:], uint64(sectors))
			if _, err := new(Volume).parseGeometry(boot); (err == nil) != ok {
				t.Errorf("%d sectors of %d bytes: %v", sectors, sector, err)
			}
		}
	}
}

// A record number whose offset exceeds int64 is refused.
func TestOversizedRecordNumbersAreRefused(t *testing.T) {
	v := &Volume{r: budgettest.Reader(t, bytes.NewReader(nil)), clusterSize: 4096, recordSize: 64 << 10, mft: &stream{size: 1 << 20}}
	for _, num := range []int64{-1, 16, 1<<47 - 1, 1 << 47, 1<<48 - 1, 1<<63 - 1} {
		v.reads = 0
		if _, err := v.readRecord(num); !errors.Is(err, errCorrupt) {
			t.Errorf("record %d: %v", num, err)
		}
	}
}

// FuzzVolume patches a real volume and reads it. It checks that no read panics or exceeds the limits.
func FuzzVolume(f *testing.F) {
	image := seedVolume(f)
	f.Add(0x30, []byte{4})
	f.Add(0x1000, bytes.Repeat([]byte{0xff}, 64))
	f.Add(bytes.Index(image, []byte("INDX"))+24, []byte{0x10})
	f.Fuzz(func(t *testing.T, at int, patch []byte) {
		if at < 0 || at >= len(image) {
			return
		}
		damaged := bytes.Clone(image)
		copy(damaged[at:], patch)
		readVolume(t, damaged)
	})
}

// FuzzRecord parses fuzzed attributes directly. The fixups prevent FuzzVolume from reaching them.
func FuzzRecord(f *testing.F) {
	image := seedVolume(f)
	at := bytes.Index(image, []byte("FILE"))
	f.Add(image[at : at+1024])
	f.Fuzz(func(t *testing.T, attributes []byte) {
		all, err := parseAttributes(attributes)
		if err != nil {
			return
		}
		v, err := Open(budgettest.Reader(t, bytes.NewReader(image))) // each case has its own budget
		if err != nil {
			t.Fatal(err)
		}
		r := &record{flags: recordInUse | recordFolder, attributes: all}
		for _, a := range all {
			v.reads = 0
			if s, err := v.openStream(r, a.kind, a.name); err == nil && s.size > 0 {
				s.readAt(make([]byte, min(s.size, 1<<16)), 0)
			}
		}
		n := &node{v: v, r: r}
		if entries, err := n.List(); err == nil && len(entries) > maxNames {
			t.Errorf("%d names", len(entries))
		}
		var _ tree.Node = n
	})
}

func FuzzUnpack(f *testing.F) {
	f.Add([]byte("\x06\xb0\x02A\x05\x00B\x00\x00"))
	f.Fuzz(func(t *testing.T, packed []byte) {
		dst := make([]byte, 2*chunkSize+10)
		decompress(dst, packed)
	})
}
