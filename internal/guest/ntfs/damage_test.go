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

// seed returns the volume of testdata, which README.md there describes.
func seed(t testing.TB) []byte {
	t.Helper()
	return treetest.Unpacked(t, "testdata/ntfs.img.gz")
}

// A counter counts what is read.
type counter struct {
	r     io.ReaderAt
	reads int
}

func (c *counter) ReadAt(p []byte, off int64) (int, error) {
	c.reads++
	return c.r.ReadAt(p, off)
}

// survey reads all there is of a volume and returns how much went wrong. It fails the
// test where more is read or returned than is promised.
func survey(t testing.TB, image []byte) (failures int) {
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
			t.Errorf("%d names", len(entries))
		}
	}
	for _, file := range []string{"many/file 17", "packed/text", "sparse", "small", "large"} {
		_, err := all.ReadFile(file, 1<<20)
		note(err)
	}
	if c.reads > 8*MaxReads { // in parts, as runs may be of one cluster
		t.Errorf("%d reads", c.reads)
	}
	return failures
}

func TestSeed(t *testing.T) {
	image := seed(t)
	if n := survey(t, image); n != 0 {
		t.Errorf("%d errors on a sound volume", n)
	}
	v, err := Open(budgettest.Reader(t, bytes.NewReader(image)))
	if err != nil {
		t.Fatal(err)
	}
	root, err := files(t, v).ReadDir("/")
	if err != nil || len(root) != 16 || slices.ContainsFunc(root, func(e tree.Entry) bool { return e.Name == "." }) {
		t.Errorf("%d names: %v, %v", len(root), root, err)
	}
	text := strings.Repeat("compressed text. ", 4000)
	holds(t, v, map[string][]byte{"packed/text": []byte(text), "small": []byte("small"), "many/file 17": []byte("17\n")})
}

// Bits are turned over where the volume keeps its records and folders. What is in use is noticed,
// some cannot be (the letter of a name), and nothing panics or goes on for ever.
func TestFlippedBits(t *testing.T) {
	if testing.Short() {
		t.Skip("takes more than a second")
	}
	sound := seed(t)
	r := rand.New(rand.NewPCG(1, 2))
	var kept []int // where records and blocks begin
	for at := 0; at < len(sound); at += 512 {
		if mark := string(sound[at : at+4]); mark == "FILE" || mark == "INDX" {
			kept = append(kept, at)
		}
	}
	noticed := 0
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
		if survey(t, image) > 0 {
			noticed++
		}
	}
	if noticed < rounds/10 {
		t.Errorf("%d of %d damaged volumes were noticed", noticed, rounds)
	}
}

// locate returns where a record is within the image.
func locate(t *testing.T, image []byte, path string) int {
	t.Helper()
	v, err := Open(budgettest.Reader(t, bytes.NewReader(image)))
	if err != nil {
		t.Fatal(err)
	}
	n, err := files(t, v).Open(path)
	if err != nil {
		t.Fatal(err)
	}
	first, ok := v.mft.findRun(0)
	if !ok {
		t.Fatal("no table")
	}
	return int(first.lcn*v.clusterSize + n.(*node).r.number*v.recordSize)
}

func TestDamageIsNamed(t *testing.T) {
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
			image := seed(t)
			tt.damage(image, locate(t, image, tt.path))
			v, err := Open(budgettest.Reader(t, bytes.NewReader(image)))
			if err != nil {
				t.Fatal(err)
			}
			if _, err := files(t, v).ReadFile(tt.path, 1<<20); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%v, want an error about %q", err, tt.want)
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
		image := seed(t)
		damage(image)
		if _, err := Open(budgettest.Reader(t, bytes.NewReader(image))); err == nil {
			t.Errorf("%s: opened", name)
		}
	}
	if _, err := Open(budgettest.Reader(t, bytes.NewReader(make([]byte, 100)))); err == nil {
		t.Error("100 bytes were opened")
	}
}

// The bits of the state that Windows looks at when it mounts.
func TestDirtyAndOpenJournal(t *testing.T) {
	image := seed(t)
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
		t.Errorf("%+v, %v", info, err)
	}
	page := make([]byte, 4096)
	copy(page, "RSTR")
	page[0x18] = 0x30
	if open, err := logIsClosed(page); err != nil || open { // client 0 has it in use
		t.Errorf("closed: %v, %v", open, err)
	}
	page[0x30+0xe] = 2
	if closed, err := logIsClosed(page); err != nil || !closed {
		t.Errorf("closed: %v, %v", closed, err)
	}
	copy(page, "RCRD")
	if _, err := logIsClosed(page); !errors.Is(err, errCorrupt) {
		t.Errorf("no restart page: %v", err)
	}
}

// The examples of [MS-XCA], and what must not be believed.
func TestUnpack(t *testing.T) {
	for _, tt := range []struct {
		packed string
		want   string // "" for an error
	}{
		{"\x04\xb0\x00ABCD\x00\x00", "ABCD"},
		{"\x03\x30ABCD\x00\x00", "ABCD"},
		{"\x06\xb0\x02A\x05\x00B\x00\x00", "AAAAAAAAAB"},
		{"\x06\xb0\x02A\x05\x10B\x00\x00", ""}, // from before the beginning
		{"\x04\xb0\x02A\x05", ""},              // cut off
		{"\x03\xb0\x02A\xff\x0f", ""},          // longer than a chunk
	} {
		got := make([]byte, 64)
		err := decompress(got, []byte(tt.packed))
		if (err != nil) != (tt.want == "") || err == nil && string(bytes.TrimRight(got, "\x00")) != tt.want {
			t.Errorf("%q: %q, %v; want %q", tt.packed, got, err, tt.want)
		}
	}
}

// encode returns the mapping pair of a run in numbers of eight bytes; a hole has no position.
func encode(count, lcn int64) []byte {
	if lcn == hole {
		return binary.LittleEndian.AppendUint64([]byte{0x08}, uint64(count))
	}
	return binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64([]byte{0x88}, uint64(count)), uint64(lcn))
}

// No run reaches a byte beyond maxBytes, whatever the size of clusters: their products fit int64.
func TestRunsThatOverflow(t *testing.T) {
	for clusterSize := int64(512); clusterSize <= 2<<20; clusterSize *= 2 {
		most := maxBytes / clusterSize
		v := &Volume{r: budgettest.Reader(t, bytes.NewReader(nil)), clusterSize: clusterSize, clusters: most}
		for _, tt := range []struct {
			name  string
			pairs []byte
			ok    bool
		}{
			{"the largest hole", encode(most, hole), true},
			{"a larger hole", encode(most+1, hole), false},
			{"the largest number", encode(1<<63-1, hole), false},
			{"a hole of 2^63 bytes", encode(1<<62/clusterSize*2, hole), false},
			{"a hole after a hole", slices.Concat(encode(most, hole), encode(1, hole)), false},
			{"the whole volume", encode(most, 0), true},
			{"beyond the volume", encode(most, 1), false},
			{"a position of 2^63-1", encode(1, 1<<63-1), false},
			{"positions that add up to 2^63", slices.Concat(encode(1, most-1), encode(1, 1<<63-1)), false},
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

// The runs of all parts are counted, charged and allocated once; too many are refused before that.
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
		memory int64 // limit
		ok     bool
	}{
		{"as many as are allowed", maxRuns / perPart, 8 << 20, true},
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

// Each part of an attribute is charged, also if one record has many, until the value is open.
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
		t.Errorf("%v, %+v", err, b.Used())
	}
}

// All that reading a volume charges is released, except the table of upper case letters and the runs of the
// master file table and of open files.
func TestMemoryIsReleased(t *testing.T) {
	b := budgettest.New(t)
	v, err := Open(b.Reader(bytes.NewReader(seed(t))))
	if err != nil {
		t.Fatal(err)
	}
	held := b.Used().Memory
	if want := int64(2<<16 + 24*cap(v.mft.runs)); held != want {
		t.Errorf("%d bytes, want %d", held, want)
	}
	all := files(t, v)
	for range 3 {
		_, err1 := all.ReadDir("many")
		_, err2 := all.Open("many")
		_, err3 := v.Usage()
		_, err4 := v.LogClosed()
		if err := errors.Join(err1, err2, err3, err4); err != nil || b.Used().Memory != held {
			t.Errorf("%d bytes, want %d, %v", b.Used().Memory, held, err)
		}
	}
}

// Sizes of a volume are refused if an offset within it exceeds maxBytes.
func TestVolumesThatOverflow(t *testing.T) {
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

// A record number whose offset exceeds int64 is beyond the master file table.
func TestRecordsThatOverflow(t *testing.T) {
	v := &Volume{r: budgettest.Reader(t, bytes.NewReader(nil)), clusterSize: 4096, recordSize: 64 << 10, mft: &stream{size: 1 << 20}}
	for _, num := range []int64{-1, 16, 1<<47 - 1, 1 << 47, 1<<48 - 1, 1<<63 - 1} {
		v.reads = 0
		if _, err := v.readRecord(num); !errors.Is(err, errCorrupt) {
			t.Errorf("record %d: %v", num, err)
		}
	}
}

// FuzzVolume patches a real volume and reads all of it: no panic, and no more than the
// promised bound.
func FuzzVolume(f *testing.F) {
	image := seed(f)
	f.Add(0x30, []byte{4})
	f.Add(0x1000, bytes.Repeat([]byte{0xff}, 64))
	f.Add(bytes.Index(image, []byte("INDX"))+24, []byte{0x10})
	f.Fuzz(func(t *testing.T, at int, patch []byte) {
		if at < 0 || at >= len(image) {
			return
		}
		damaged := bytes.Clone(image)
		copy(damaged[at:], patch)
		survey(t, damaged)
	})
}

// FuzzRecord skips the fixups that keep FuzzVolume out of the attributes.
func FuzzRecord(f *testing.F) {
	image := seed(f)
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
