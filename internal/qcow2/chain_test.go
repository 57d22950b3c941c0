package qcow2

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/disk/disktest"
	"github.com/decamp/decamp/internal/disk/rawfile"
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/test/lane"
)

// qemuIO runs commands of qemu-io on a qcow2 image.
func qemuIO(t testing.TB, path string, commands ...string) {
	t.Helper()
	args := []string{"-f", "qcow2"}
	for _, c := range commands {
		args = append(args, "-c", c)
	}
	if out, err := exec.Command("qemu-io", append(args, path)...).CombinedOutput(); err != nil {
		t.Fatalf("qemu-io %v: %v\n%s", args, err, out)
	}
}

// openAll opens an image and its backing files.
func openAll(t testing.TB, path string) *Source {
	t.Helper()
	src, err := OpenSource(path, SourceOptions{Direct: true, Backing: OpenFile})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := src.Close(); err != nil {
			t.Error(err)
		}
	})
	return src
}

// compareWithQEMU compares the content of an image with the output of qemu-img, in requests of several
// sizes. It also requires that all zero extents are zeros.
func compareWithQEMU(t *testing.T, path string) {
	t.Helper()
	raw := filepath.Join(t.TempDir(), "qemu.raw")
	qemuImg(t, "convert", "-U", "-f", "qcow2", "-O", "raw", path, raw)
	want, err := os.ReadFile(raw)
	if err != nil {
		t.Fatal(err)
	}
	src := openAll(t, path)
	if src.Size() != int64(len(want)) {
		t.Fatalf("size %d, want %d as qemu-img reports", src.Size(), len(want))
	}
	for _, request := range []int64{1 << 20, 64 << 10, 12345, src.Size()} {
		got := disk.AlignedMemory(src.Size())
		for off := int64(0); off < src.Size(); off += request {
			if err := src.ReadAt(t.Context(), got[off:min(off+request, src.Size())], off); err != nil {
				t.Fatal(err)
			}
		}
		if !bytes.Equal(got, want) {
			t.Fatalf("in requests of %d bytes the content differs from that of qemu-img", request)
		}
	}
	all := disk.Range{Len: src.Size()}
	extents, err := src.Extents(t.Context(), all)
	if err != nil {
		t.Fatal(err)
	}
	checkExtents(t, src, all, extents)
}

// imageOptions are the options of qemu-img create that TestChains and TestChainConforms use.
var imageOptions = map[string]string{
	"v2":                 "compat=0.10",
	"v3":                 "compat=1.1",
	"512 B":              "cluster_size=512",
	"4 KiB":              "cluster_size=4k",
	"2 MiB":              "cluster_size=2M",
	"subclusters":        "extended_l2=on",
	"subclusters, 16 K":  "extended_l2=on,cluster_size=16k",
	"subclusters, 2 MiB": "extended_l2=on,cluster_size=2M",
}

// TestChains reads chains of three layers with unaligned writes, zeros, discards and compressed
// clusters. The middle layer is a smaller disk, the lowest is a raw file.
func TestChains(t *testing.T) {
	if testing.Short() {
		t.Skip("takes more than a second")
	}
	skipWithout(t, "qemu-img")
	skipWithout(t, "qemu-io")
	for name, options := range imageOptions {
		if (name == "4 KiB" || name == "subclusters, 16 K") && !lane.Slow {
			continue
		}
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			base := writeRaw(t, disk.NewSparsePattern(7<<20+512, 0.6, 9))
			mid, top := filepath.Join(dir, "mid"), filepath.Join(dir, "top")
			qemuImg(t, "create", "-q", "-f", "qcow2", "-o", options, "-b", base, "-F", "raw", mid, "5M")
			qemuIO(t, mid, "write -P 1 100k 300k", "write -z 1M 512k", "write -P 2 2M 1000", "write -P 3 5000k 120k")
			if !strings.Contains(options, "cluster_size=2M") { // only whole clusters can be compressed
				qemuIO(t, mid, "write -c -P 8 3M 64k")
			}
			qemuImg(t, "create", "-q", "-f", "qcow2", "-o", options, "-b", "mid", "-F", "qcow2", top, "9M")
			qemuIO(t, top, "write -P 4 64k 64k", "write -z 300k 700k", "discard 2M 64k", "write -P 5 8500k 700", "write -z -u 4M 64k")
			compareWithQEMU(t, mid)
			compareWithQEMU(t, top)
			src := openAll(t, top)
			if l := src.Layers(); len(l) != 3 || l[0].Path != top || l[1].Path != mid || l[2].Format != "raw" || l[2].Size != 7<<20+512 {
				t.Errorf("layers %+v", l)
			}
			extents, err := src.Extents(t.Context(), disk.Range{Off: 6 << 20, Len: 2 << 20})
			if err != nil || len(extents) != 1 || extents[0].Kind != disk.Zero {
				t.Errorf("extents past the end of the smaller disk: %v, %v, want zeros", extents, err)
			}
		})
	}
}

func TestChainConforms(t *testing.T) {
	if testing.Short() {
		t.Skip("takes more than a second")
	}
	skipWithout(t, "qemu-img")
	skipWithout(t, "qemu-io")
	for _, name := range []string{"subclusters", "v2", "4 KiB"} {
		if name != "subclusters" && !lane.Slow {
			continue
		}
		t.Run(name, func(t *testing.T) {
			dir, options := t.TempDir(), imageOptions[name]
			disktest.TestSource(t, func(t *testing.T, want disk.Source) disk.Source {
				top := filepath.Join(dir, strconv.FormatInt(want.Size(), 10)) // the suite has one disk of each size
				if _, err := os.Stat(top); err != nil {
					base := top + ".base"
					qemuImg(t, "convert", "-f", "raw", "-O", "qcow2", "-c", writeRaw(t, want), base)
					qemuImg(t, "create", "-q", "-f", "qcow2", "-o", options, "-b", base, "-F", "qcow2", top)
					overwriteMiddle(t, top, want)
				}
				src, err := OpenSource(top, SourceOptions{Direct: true, Backing: OpenFile})
				if err != nil {
					t.Fatal(err)
				}
				return src
			})
		})
	}
}

// overwriteMiddle writes the middle third of want to the top image, so that the data of want is in
// both layers.
func overwriteMiddle(t *testing.T, top string, want disk.Source) {
	t.Helper()
	piece := disk.Range{Off: want.Size() / 3 &^ 511, Len: want.Size() / 3 &^ 511}
	p := make([]byte, piece.Len)
	if err := want.ReadAt(t.Context(), p, piece.Off); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "piece")
	if err := os.WriteFile(file, p, 0o600); err != nil {
		t.Fatal(err)
	}
	if len(p) > 0 {
		qemuIO(t, top, fmt.Sprintf("write -s %s %d %d", file, piece.Off, piece.Len))
	}
}

// TestModifiedImages reads images that were resized or preallocated, or whose compressed clusters were
// overwritten and discarded.
func TestModifiedImages(t *testing.T) {
	if testing.Short() {
		t.Skip("takes more than a second")
	}
	skipWithout(t, "qemu-img")
	skipWithout(t, "qemu-io")
	for name, c := range map[string]struct {
		options  string
		commands []string
		size     string // size to resize to after the commands; empty if not resized
	}{
		"grown":                   {"", []string{"write -P 1 0 300k", "write -P 2 3900k 100k"}, "11M"},
		"shrunk":                  {"", []string{"write -P 1 0 300k", "write -P 2 3900k 100k"}, "3M"},
		"grown, v2":               {"compat=0.10", []string{"write -P 1 0 300k"}, "40M"},
		"metadata":                {"preallocation=metadata", []string{"write -P 1 100k 30k"}, ""},
		"falloc":                  {"preallocation=falloc", []string{"write -P 1 100k 30k", "write -z 1M 1M"}, "6M"},
		"full":                    {"preallocation=full", []string{"discard 1M 1M"}, ""},
		"subclusters":             {"extended_l2=on,preallocation=metadata", []string{"write -P 1 3k 1k", "write -z 64k 8k", "discard 128k 2k"}, ""},
		"zero, kept":              {"", []string{"write -P 1 0 4M", "write -z 1M 64k", "write -z -u 2M 64k", "discard 3M 64k"}, ""},
		"compressed, overwritten": {"", []string{"write -c -P 1 0 64k", "write -c -P 2 64k 64k", "write -P 3 70k 1k", "write -z 0 64k"}, ""},
		"compressed, zstd":        {"compression_type=zstd", []string{"write -c -P 1 0 64k", "write -c -P 2 64k 64k", "write -P 3 70k 1k"}, ""},
		"lazy":                    {"lazy_refcounts=on", []string{"write -P 1 0 300k"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "disk.qcow2")
			args := []string{"create", "-q", "-f", "qcow2"}
			if c.options != "" {
				args = append(args, "-o", c.options)
			}
			qemuImg(t, append(args, path, "4M")...)
			qemuIO(t, path, c.commands...)
			compareWithQEMU(t, path)
			if c.size != "" {
				qemuImg(t, "resize", "-q", "--shrink", "-f", "qcow2", path, c.size)
				compareWithQEMU(t, path)
			}
		})
	}
}

// TestSnapshotsAreIgnored checks that the active state is read, with a warning about the snapshots.
func TestSnapshotsAreIgnored(t *testing.T) {
	skipWithout(t, "qemu-img")
	skipWithout(t, "qemu-io")
	path := filepath.Join(t.TempDir(), "disk.qcow2")
	qemuImg(t, "create", "-q", "-f", "qcow2", path, "8M")
	qemuIO(t, path, "write -P 1 0 2M")
	qemuImg(t, "snapshot", "-c", "before", path)
	qemuIO(t, path, "write -P 2 1M 2M")
	qemuImg(t, "snapshot", "-c", "between", path)
	qemuIO(t, path, "write -z 0 64k")
	compareWithQEMU(t, path)
	w := openAll(t, path).Warnings()
	if len(w) != 1 || !strings.Contains(w[0], "2 internal snapshots") || !strings.Contains(w[0], path) {
		t.Errorf("warnings %q", w)
	}
}

// TestDirtyImageIsRead reads an image whose writer aborted. Only its refcounts are wrong, not its L2 tables.
func TestDirtyImageIsRead(t *testing.T) {
	skipWithout(t, "qemu-img")
	skipWithout(t, "qemu-io")
	path := filepath.Join(t.TempDir(), "disk.qcow2")
	qemuImg(t, "create", "-q", "-f", "qcow2", "-o", "lazy_refcounts=on", path, "8M")
	// ulimit -c 0 prevents a core dump of the abort command.
	out, err := exec.Command("sh", "-c", `ulimit -c 0; qemu-io -f qcow2 -c "write -P 7 0 3M" -c "flush" -c "abort" "$0"`, path).CombinedOutput()
	if err == nil {
		t.Fatalf("qemu-io did not abort:\n%s", out)
	}
	compareWithQEMU(t, path)
	w := openAll(t, path).Warnings()
	if len(w) != 1 || !strings.Contains(w[0], "not closed cleanly") {
		t.Errorf("warnings %q", w)
	}
}

// TestBackingFileOpenErrors sets backing files that OpenSource refuses or fails to open.
func TestBackingFileOpenErrors(t *testing.T) {
	skipWithout(t, "qemu-img")
	dir := t.TempDir()
	pipe := filepath.Join(dir, "pipe")
	if err := unix.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "text"), bytes.Repeat([]byte("text"), 4<<10), 0o600); err != nil {
		t.Fatal(err)
	}
	for want, c := range map[string]struct {
		name, format string
		kind         fault.Kind
	}{
		"is not a path":                 {"nbd://127.0.0.1:1/x", "raw", fault.Unsupported},
		"is not a path ":                {`json:{"driver":"raw","file.filename":"text"}`, "raw", fault.Unsupported},
		"has the format \"vmdk\"":       {"text", "vmdk", fault.Unsupported},
		"does not contain the format":   {"text", "", fault.Unsupported},
		"makes the chain a loop":        {"it's a disk", "qcow2", fault.Corrupt},
		"makes the chain a loop, or":    {"./x/../it's a disk", "qcow2", fault.Corrupt},
		"no such file":                  {"none", "raw", fault.NotFound},
		"neither a file nor a block":    {pipe, "raw", fault.Invalid},
		"neither a file nor a block de": {"/dev/zero", "raw", fault.Invalid},
		"there is no qcow2 header":      {"text", "qcow2", fault.Corrupt},
	} {
		path := filepath.Join(dir, "it's a disk")
		if err := os.RemoveAll(path); err != nil {
			t.Fatal(err)
		}
		qemuImg(t, "create", "-q", "-f", "qcow2", path, "1M")
		setBacking(t, path, c.name, c.format)
		_, err := OpenSource(path, SourceOptions{Backing: OpenFile})
		if !fault.Is(err, c.kind) || !strings.Contains(err.Error(), strings.TrimSpace(want)) || fault.HintOf(err) == "" {
			t.Errorf("%s: got %v (%v), want kind %v", want, err, fault.KindOf(err), c.kind)
		}
		_, err = OpenSource(path, SourceOptions{})
		if !fault.Is(err, fault.Unsupported) || !strings.Contains(fault.HintOf(err), `/it'\''s a disk' `) {
			t.Errorf("without SourceOptions.Backing: %v: %s", err, fault.HintOf(err))
		}
	}
}

// setBacking adds the name and format of a backing file to an image. Unlike qemu-img, it does not check
// them.
func setBacking(t *testing.T, path, name, format string) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, withBacking(b, name, format), 0o600); err != nil {
		t.Fatal(err)
	}
}

// withBacking replaces the header extensions of a version 3 image with the format and the name of a backing
// file.
func withBacking(image []byte, name, format string) []byte {
	length := int64(image[103])
	ext := []byte{}
	if format != "" {
		ext = append([]byte{0xe2, 0x79, 0x2a, 0xca, 0, 0, 0, byte(len(format))}, format...)
		ext = append(ext, make([]byte, 8-len(format)%8)...)[:8+ceilDiv(int64(len(format)), 8)*8]
	}
	ext = append(ext, make([]byte, 8)...)
	n := copy(image[length:], ext)
	copy(image[length+int64(n):], name)
	image[15], image[14] = byte(length+int64(n)), byte((length+int64(n))>>8)
	image[19], image[18] = byte(len(name)), byte(len(name)>>8)
	return image
}

// TestLongChain opens a chain of 200 files, which share the memory of their caches. A chain of 201 files is
// refused.
func TestLongChain(t *testing.T) {
	const size = 4 * clusterSize
	template, _ := smallImage(t, size)
	images := map[string]memory{}
	for i := range maxChain + 1 {
		images["/"+strconv.Itoa(i)] = withBacking(bytes.Clone(template), strconv.Itoa(i+1), "qcow2")
	}
	images["/200"], images["/201"] = template, template
	closed := 0
	open := func(path string, _ rawfile.SourceOptions) (disk.Source, error) {
		return &closeCounter{images[path], &closed}, nil
	}
	src, err := openChain(images["/1"], "/1", SourceOptions{Backing: open})
	if err != nil {
		t.Fatal(err)
	}
	kept := 0
	for s, ok := src, true; ok; s, ok = s.backing.(*Source) {
		kept += len(s.mapping.cache) * maxSlice
	}
	if len(src.Layers()) != maxChain || kept > chainCacheBytes+maxChain*maxSlice {
		t.Errorf("%d layers can cache %d bytes of tables, want %d layers", len(src.Layers()), kept, maxChain)
	}
	if got, err := readAll(t, src); err != nil || len(got) != size {
		t.Errorf("read %d bytes, want %d, error %v", len(got), size, err)
	}
	if err := src.Close(); err != nil || closed != maxChain-1 {
		t.Errorf("%d of %d files closed, %v", closed, maxChain-1, err)
	}
	closed = 0
	images["/200"] = withBacking(bytes.Clone(template), "201", "qcow2")
	_, err = openChain(images["/1"], "/1", SourceOptions{Backing: open})
	if !fault.Is(err, fault.Corrupt) || !strings.Contains(err.Error(), "200 files") || closed != maxChain-1 {
		t.Errorf("201 files: %d closed, %v", closed, err)
	}
}

// closeCounter counts calls of Close.
type closeCounter struct {
	memory
	closed *int
}

func (c *closeCounter) Close() error { *c.closed++; return c.memory.Close() }

func readAll(t testing.TB, src disk.Source) ([]byte, error) {
	p := make([]byte, src.Size())
	return p, src.ReadAt(t.Context(), p, 0)
}

func TestMediumIsTheWorstOfAllLayers(t *testing.T) {
	file := func(medium string) Layer { return Layer{file: mediumFile{medium: medium}} }
	for want, layers := range map[string][]Layer{
		rawfile.MediumDirect:  {file(rawfile.MediumDirect), file(rawfile.MediumDirect)},
		rawfile.MediumDropped: {file(rawfile.MediumDirect), file(rawfile.MediumDropped)},
		rawfile.MediumCache:   {file(rawfile.MediumDirect), {file: memory{}}},
	} {
		if got := (&Source{layers: layers}).Medium(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

type mediumFile struct {
	memory
	medium string
}

func (s mediumFile) Medium() string { return s.medium }

// TestL1TablesOfAChainAreLimited opens images with L1 tables of 16 MiB each.
func TestL1TablesOfAChainAreLimited(t *testing.T) {
	h := header{version: 3, clusterBits: 9, size: 64 << 30, l1Entries: 2 << 20, l1Offset: 512}
	image := make(memory, 17<<20)
	copy(image, h.encode())
	looped := memory(withBacking(image, "next", "qcow2"))
	n := 0
	open := func(string, rawfile.SourceOptions) (disk.Source, error) { n++; return looped, nil }
	_, err := openChain(looped, "0", SourceOptions{Backing: func(p string, o rawfile.SourceOptions) (disk.Source, error) {
		copy(looped[0x80:], strconv.Itoa(n)+"...") // a different name in each header
		return open(p, o)
	}})
	if !fault.Is(err, fault.Unsupported) || n != 4 || fault.HintOf(err) == "" {
		t.Errorf("%d files opened, %v", n, err)
	}
}

var errGone = errors.New("gone")

// TestBackingErrorsNameTheFile checks that an error of a backing file contains its path and the path of the top
// image.
func TestBackingErrorsNameTheFile(t *testing.T) {
	template, _ := smallImage(t, 3<<20)
	h := header{version: 3, clusterBits: 16, size: 3 << 20, l1Entries: 1, l1Offset: 64 << 10}
	top := make(memory, 256<<10)
	copy(top, h.encode())
	top = withBacking(top, "base", "qcow2")
	open := func(string, rawfile.SourceOptions) (disk.Source, error) { return &failingFile{template, 1 << 20}, nil }
	src, err := openChain(top, "/d/top", SourceOptions{Backing: open})
	if err != nil {
		t.Fatal(err)
	}
	if _, err = readAll(t, src); !errors.Is(err, errGone) || !strings.Contains(err.Error(), "/d/base") || !strings.Contains(err.Error(), "/d/top") {
		t.Error(err)
	}
}

// failingFile fails reads of bytes from an offset on.
type failingFile struct {
	memory
	from int64
}

func (f *failingFile) ReadAt(ctx context.Context, p []byte, off int64) error {
	if off+int64(len(p)) > f.from {
		return errGone
	}
	return f.memory.ReadAt(ctx, p, off)
}
