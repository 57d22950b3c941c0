package qcow2

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	kzstd "github.com/klauspost/compress/zstd"

	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/disk/rawfile"
	"github.com/decamp/decamp/internal/fault"
)

// fuzzLimit is the number of bytes of a fuzzed disk that are read.
const fuzzLimit = 4 << 20

// FuzzSource opens fuzzed bytes as an image and reads its disk.
func FuzzSource(f *testing.F) {
	for _, options := range seedOptions {
		f.Add(tinyImage(f, options...))
	}
	f.Fuzz(func(t *testing.T, image []byte) {
		src, err := openImage(memory(image))
		if err != nil {
			checkFault(t, err)
			return
		}
		checkSource(t, src)
	})
}

// FuzzChain opens two fuzzed images. The backing file of each can be itself or the other.
func FuzzChain(f *testing.F) {
	top := (&header{version: 3, clusterBits: 9, size: 8 << 10, l1Entries: 1, l1Offset: 512}).encode()
	for _, options := range seedOptions {
		base := tinyImage(f, options...)
		for _, format := range []string{"raw", "qcow2"} {
			f.Add(withBacking(append(bytes.Clone(top), make([]byte, 920)...), "b", format), base)
			f.Add(withBacking(append(bytes.Clone(top), make([]byte, 920)...), "./a", format), base)
		}
	}
	f.Fuzz(func(t *testing.T, a, b []byte) {
		open := func(path string, _ rawfile.SourceOptions) (disk.Source, error) {
			if strings.HasSuffix(path, "a") {
				return memory(a), nil
			}
			return memory(b), nil
		}
		src, err := openChain(memory(a), "a", SourceOptions{Backing: open})
		if err != nil {
			checkFault(t, err)
			return
		}
		checkSource(t, src)
	})
}

// FuzzHeader parses fuzzed bytes as a header with extensions, and as the note of an unfinished
// image.
func FuzzHeader(f *testing.F) {
	for _, options := range seedOptions {
		image := tinyImage(f, options...)
		f.Add(image[:min(len(image), 512)])
	}
	f.Add(withBacking(make([]byte, 512), "b", "raw"))
	f.Add(noteOf(f, 1<<30, 0))
	f.Add(noteOf(f, 6<<40, 2<<20))
	f.Fuzz(func(t *testing.T, b []byte) {
		if l, ok := parseNote(b); ok && !bytes.HasPrefix(b, noteBytes(encodeNote(l))) {
			t.Errorf("parseNote accepts a note that encodeNote does not write: %+v", l)
		}
		h, err := parseHeader("a b", b)
		if err != nil {
			checkFault(t, err)
			return
		}
		if l, err := finishedLayout(h); err == nil && (l.size != h.size || l.data.Off < dataAlign || l.end() < l.data.End()) {
			t.Errorf("invalid layout %+v", l)
		}
		if !h.hasBacking() {
			return
		}
		ref, err := h.parseBacking("a b", b)
		if err != nil {
			checkFault(t, err)
			return
		}
		if len(ref.name) == 0 || len(ref.name) > maxBackingName || !bytes.Contains(b, []byte(ref.format)) {
			t.Errorf("invalid backing file %q of format %q", ref.name, ref.format)
		}
	})
}

// FuzzInflate inflates fuzzed bytes twice and requires the same cluster or an error both times.
func FuzzInflate(f *testing.F) {
	for _, options := range seedOptions {
		image := tinyImage(f, options...)
		f.Add(image[len(image)/2:], uint8(len(options)), uint8(0))
	}
	for _, frame := range zstdFrames(f) {
		f.Add(frame, uint8(zstd), uint8(0))
	}
	share := newShared()
	f.Fuzz(func(t *testing.T, in []byte, kind, bits uint8) {
		k := compression(kind % 2)
		z := share.getInflater(k)
		defer share.putInflater(k, z)
		one, two := make([]byte, 512<<(bits%13)), make([]byte, 512<<(bits%13))
		_, first := z.inflate(one, in)
		_, second := z.inflate(two, in)
		if (first == nil) != (second == nil) || first == nil && !bytes.Equal(one, two) {
			t.Errorf("results differ: error %v, then %v", first, second)
		}
	})
}

// zstdFrames returns frames of less than one cluster, one cluster and two clusters.
func zstdFrames(f *testing.F) [][]byte {
	w, err := kzstd.NewWriter(nil, kzstd.WithEncoderConcurrency(1))
	if err != nil {
		f.Fatal(err)
	}
	var out [][]byte
	for _, n := range []int{100, 512, 1024} {
		frame := w.EncodeAll(bytes.Repeat([]byte("cluster "), n/8+1)[:n], nil)
		out = append(out, frame, append(frame, "tail"...))
	}
	return out
}

// checkSource checks the tables, and the extents and content of the beginning of a disk.
func checkSource(t *testing.T, src *Source) {
	t.Helper()
	if _, err := src.CheckTables(t.Context(), src.Size()); err != nil {
		checkFault(t, err)
	}
	r := disk.Range{Len: min(src.Size(), fuzzLimit)}
	extents, err := src.Extents(t.Context(), r)
	if err != nil {
		checkFault(t, err)
		return
	}
	checkExtents(t, src, r, extents)
}

// seedOptions are the options of qemu-img convert for the seed images.
var seedOptions = [][]string{
	{"-o", "cluster_size=512"},
	{"-c", "-o", "cluster_size=512"},
	{"-o", "compat=0.10,cluster_size=512"},
	{"-c", "-o", "cluster_size=512,compression_type=zstd"},
	{"-o", "cluster_size=16k,extended_l2=on"},
	{"-c", "-o", "cluster_size=16k,extended_l2=on,compression_type=zstd"},
}

// checkExtents requires extents without gaps, and zeros in all zero extents.
func checkExtents(t *testing.T, src *Source, r disk.Range, extents []disk.Extent) {
	p := make([]byte, r.Len)
	err := src.ReadAt(t.Context(), p, 0)
	if err != nil {
		checkFault(t, err)
	}
	end := r.Off
	for _, e := range extents {
		if e.Off != end || e.Empty() {
			t.Fatalf("extent %v follows offset %d", e, end)
		}
		end = e.End()
		if err == nil && e.Kind == disk.Zero && !disk.AllZero(p[e.Off:end]) {
			t.Fatalf("content of zero extent %v is not zero", e)
		}
	}
	if end != r.End() {
		t.Fatalf("extents end at %d, want %d", end, r.End())
	}
}

func checkFault(t *testing.T, err error) {
	t.Helper()
	var known *fault.Error
	if !errors.As(err, &known) || known.Hint == "" {
		t.Errorf("error without a kind or a remedy: %v", err)
	}
}

// tinyImage returns an image of a few KiB that qemu-img writes. If qemu-img is missing, it returns only a
// header.
func tinyImage(f *testing.F, options ...string) []byte {
	f.Helper()
	if _, err := exec.LookPath("qemu-img"); err != nil {
		return (&header{version: 3, clusterBits: 9, size: 512, l1Entries: 1, l1Offset: 512}).encode()
	}
	dir := f.TempDir()
	raw, path := filepath.Join(dir, "raw"), filepath.Join(dir, "qcow2")
	content := strings.Repeat("disk", 1<<10) + strings.Repeat("\x00", 4<<10)
	if err := os.WriteFile(raw, []byte(content), 0o600); err != nil {
		f.Fatal(err)
	}
	qemuImg(f, append(append([]string{"convert", "-O", "qcow2", "-f", "raw"}, options...), raw, path)...)
	b, err := os.ReadFile(path)
	if err != nil {
		f.Fatal(err)
	}
	return b
}
