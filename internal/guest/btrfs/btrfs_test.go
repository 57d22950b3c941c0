package btrfs

import (
	"bytes"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/decamp/decamp/internal/guest/budget"
	"github.com/decamp/decamp/internal/guest/budget/budgettest"
	"github.com/decamp/decamp/internal/guest/tree"
	"github.com/decamp/decamp/internal/guest/tree/treetest"
)

// testImage returns the image of testdata/make.sh.
func testImage(t testing.TB) []byte {
	t.Helper()
	return treetest.Unpacked(t, "testdata/kernel.img.gz")
}

func numberedLines(word string) string {
	var b strings.Builder
	for i := range 12000 {
		fmt.Fprintf(&b, "%-4s%07d\n", word, i)
	}
	return b.String()
}

func TestImageOfTheKernel(t *testing.T) {
	fsys, err := Open(budgettest.Reader(t, bytes.NewReader(testImage(t))))
	if err != nil {
		t.Fatal(err)
	}
	var broken strings.Builder
	for i := 256; i < 101*256; i++ {
		fmt.Fprintf(&broken, "%015d\n", i)
	}
	tiny := func(how string) string { return "tiny" + strings.Repeat(" "+how, 8) + "\n" }
	for path, want := range map[string]string{
		"etc/os-release": "ID=seed\n", "inner/file": "inside\n", "broken": broken.String(),
		"usr/lib/none": numberedLines("none"), "usr/lib/zlib": numberedLines("zlib"), "usr/lib/zstd": numberedLines("zstd"),
		"usr/lib/tiny-none": tiny("none"), "usr/lib/tiny-zlib": tiny("zlib"), "usr/lib/tiny-zstd": tiny("zstd"),
		"holes": strings.Repeat("\x00", 101*4096) + "end\n", "unwritten": strings.Repeat("\x00", 64<<10),
		"many/a-rather-long-name-of-a-file-300": "300\n", "inner/../many/a-rather-long-name-of-a-file-1": "1\n",
	} {
		if got, err := fsys.ReadFile(path, 1<<20); err != nil || string(got) != want {
			t.Errorf("%s: %d bytes, want %d: %v", path, len(got), len(want), err)
		}
	}
	if _, err := fsys.ReadFile("usr/lib/lzo", 1<<20); err == nil || !strings.Contains(err.Error(), "LZO is not supported") {
		t.Errorf("LZO: %v", err)
	}
	if e, err := fsys.ReadDir("many"); err != nil || len(e) != 300 || e[0] != (tree.Entry{Name: "a-rather-long-name-of-a-file-1", Kind: tree.File}) {
		t.Errorf("many: %d names, %v", len(e), err)
	}
	if e, err := fsys.ReadDir("etc"); err != nil || len(e) != 1 || e[0].Kind != tree.Link {
		t.Errorf("etc: %v, %v", e, err)
	}
	for _, path := range []string{"many/x", "broken/x", "etc/x"} {
		if _, err := fsys.Open(path); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: got %v, want %v", path, err, fs.ErrNotExist)
		}
	}
	if u := fsys.Usage(); u.Size != 128<<20 || u.Free <= 0 || u.Free >= u.Size {
		t.Errorf("usage %+v", u)
	}
}

// Files that mkfs.btrfs copies into an image read back unchanged.
func TestImagesOfMkfs(t *testing.T) {
	large := make([]byte, 5<<20+17)
	rand.Read(large)
	dir, img := t.TempDir(), filepath.Join(t.TempDir(), "img")
	for name, data := range map[string][]byte{"large": large, "small": []byte("small\n")} {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("small", filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	for _, options := range [][]string{nil, {"-n", "4096"}, {"-m", "single", "-d", "dup"}, {"--mixed"}, {"-n", "65536"}} {
		if err := os.WriteFile(img, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Truncate(img, 160<<20); err != nil {
			t.Fatal(err)
		}
		if out, err := exec.Command("/usr/sbin/mkfs.btrfs", append(options, "-q", "--rootdir", dir, img)...).CombinedOutput(); err != nil {
			t.Fatalf("mkfs.btrfs %q: %v: %s: run scripts/setup.sh test", options, err, out)
		}
		f, err := os.Open(img)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		fsys, err := Open(budgettest.Reader(t, f))
		if err != nil {
			t.Fatalf("%q: %v", options, err)
		}
		if got, err := fsys.ReadFile("large", 1<<30); err != nil || !bytes.Equal(got, large) {
			t.Errorf("%q: large: %d bytes, %v", options, len(got), err)
		}
		if got, err := fsys.ReadFile("link", 100); err != nil || string(got) != "small\n" {
			t.Errorf("%q: link: %q, %v", options, got, err)
		}
	}
}

func TestOpenRefuses(t *testing.T) {
	img := testImage(t)[:32<<20]
	for name, at := range map[string]int{"magic": 64, "features": 190, "block size": 148, "size": 119, "chunks": 163, "root level": 198, "chunk root": 89} {
		saved := img[superOffset+at]
		img[superOffset+at] ^= 0x55
		if _, err := Open(budgettest.Reader(t, bytes.NewReader(img))); err == nil {
			t.Errorf("Open accepts a damaged %s", name)
		}
		img[superOffset+at] = saved
	}
	if _, err := Open(budgettest.Reader(t, bytes.NewReader(make([]byte, 100)))); err == nil {
		t.Error("Open accepts 100 bytes")
	}
}

// Numbers of an extent that exceed 2^60 are refused, so that their sums fit into 64 bits.
func TestExtentNumbersAreBounded(t *testing.T) {
	const huge = 1<<60 + 1
	valid := func() (key, []byte) {
		data := make([]byte, 53)
		data[20] = 1                                            // a regular extent
		for i, v := range []uint64{1 << 20, 4096, 8192, 4096} { // address, size on the disk, offset, size in the file
			binary.LittleEndian.PutUint64(data[21+8*i:], v)
		}
		return key{kind: keyExtent}, data
	}
	if k, data := valid(); errorOf(parseExtent(k, data)) != nil {
		t.Error("a valid extent is refused")
	}
	for _, at := range []int{8, 21, 29, 37, 45} {
		for _, v := range []uint64{huge, 1 << 63, 1<<64 - 4096} {
			k, data := valid()
			binary.LittleEndian.PutUint64(data[at:], v)
			if e, err := parseExtent(k, data); err == nil {
				t.Errorf("%d at byte %d: %+v", v, at, e)
			}
		}
	}
	k, data := valid()
	if k.offset = huge; errorOf(parseExtent(k, data)) == nil {
		t.Error("an extent at offset 2^60+1 of a file is accepted")
	}
}

// inlineFile is a device with a tree of one file: a root at address 0, and leaves that contain one inline extent
// each.
type inlineFile struct{ leaves int }

const inlineSize = 60000 // bytes of content per leaf

func (d inlineFile) ReadAt(p []byte, off int64) (int, error) {
	const node, inode = 64 << 10, 256
	putKey := func(p []byte, file int64) {
		binary.LittleEndian.PutUint64(p, inode)
		p[8] = keyExtent
		binary.LittleEndian.PutUint64(p[9:], uint64(file))
	}
	clear(p)
	binary.LittleEndian.PutUint64(p[48:], uint64(off))
	if off == 0 {
		p[100] = 1
		binary.LittleEndian.PutUint32(p[96:], uint32(d.leaves))
		for i := range d.leaves {
			link := p[headSize+i*linkSize:]
			putKey(link, int64(i)*inlineSize)
			binary.LittleEndian.PutUint64(link[keySize:], uint64(i+1)*node)
		}
		return len(p), nil
	}
	binary.LittleEndian.PutUint32(p[96:], 1)
	item := p[headSize:]
	putKey(item, (off/node-1)*inlineSize)
	binary.LittleEndian.PutUint32(item[keySize:], itemSize)
	binary.LittleEndian.PutUint32(item[keySize+4:], 21+inlineSize)
	binary.LittleEndian.PutUint64(item[itemSize+8:], inlineSize)
	item[itemSize+21] = 1
	return len(p), nil
}

// The list of chunks is charged to the budget.
func TestMemoryOfChunks(t *testing.T) {
	b := budgettest.New(t)
	fsys, err := Open(b.Reader(bytes.NewReader(testImage(t))))
	if err != nil {
		t.Fatal(err)
	}
	const chunkSize = 40
	if got, want := b.Used().Memory, chunkSize*int64(cap(fsys.chunks))+fsys.nodeSize*int64(len(fsys.cached)); got != want {
		t.Errorf("%d bytes are charged for %d chunks, want %d", got, len(fsys.chunks), want)
	}
}

// The list of extents and their inline content are charged to the budget.
func TestMemoryOfExtents(t *testing.T) {
	for leaves, ok := range map[int]bool{10: true, 1900: false} {
		b := budgettest.New(t)
		fsys := &FS{r: b.Reader(inlineFile{leaves}), nodeSize: 64 << 10, chunks: []chunk{{length: 1 << 40}}, cached: map[uint64][]byte{}}
		n := &node{fs: fsys, volume: blockRef{level: 1}, number: 256, mode: 0x81a4, size: int64(leaves) * inlineSize}
		var limit *budget.Error
		for range 2 { // the second read uses the cached list or an exhausted budget
			p := make([]byte, inlineSize)
			if _, err := n.ReadAt(p, inlineSize); (err == nil) != ok || !ok && !errors.As(err, &limit) || ok && p[0] != 1 {
				t.Errorf("%d leaves: %v", leaves, err)
			}
		}
		blocks := int64(len(fsys.cached)) * fsys.nodeSize
		want := blocks + int64(leaves)*inlineSize + 80*int64(cap(n.list))
		if !ok {
			want = blocks
		}
		if got := b.Used().Memory; got != want {
			t.Errorf("%d leaves: %d bytes are charged, want %d", leaves, got, want)
		}
	}
}

func errorOf(_ extent, err error) error { return err }

// FuzzReadFile patches a real file system and reads from it.
func FuzzReadFile(f *testing.F) {
	img := testImage(f)
	fsys, err := Open(budgettest.Reader(f, bytes.NewReader(img)))
	if err != nil {
		f.Fatal(err)
	}
	for _, c := range fsys.chunks { // the trees are in the chunks
		f.Add(int(c.at)+16384, []byte{1}, "usr/lib/zstd")
	}
	f.Add(superOffset+811, bytes.Repeat([]byte{0xff}, 8), "etc/os-release")
	f.Fuzz(func(t *testing.T, at int, patch []byte, path string) {
		if at < 0 || at >= len(img) || len(path) > 100 {
			return
		}
		saved := bytes.Clone(img[at:min(len(img), at+len(patch))])
		copy(img[at:], patch)
		defer copy(img[at:], saved)
		b := budgettest.New(t)
		defer budgettest.Charged(t, b)()
		fsys, err := Open(b.Reader(bytes.NewReader(img)))
		if err != nil {
			return
		}
		data, _ := fsys.ReadFile(path, 1<<20)
		if len(data) > 1<<20 {
			t.Errorf("%d bytes, more than the limit", len(data))
		}
		_, _ = fsys.ReadDir(path)
	})
}
