package xfs

import (
	"bytes"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
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
	return treetest.Unpacked(t, "testdata/v5.img.gz")
}

func openFS(t testing.TB, r io.ReaderAt) *FS {
	t.Helper()
	fsys, err := Open(budgettest.Reader(t, r))
	if err != nil {
		t.Fatal(err)
	}
	return fsys
}

func TestImageOfTheKernel(t *testing.T) {
	fsys := openFS(t, bytes.NewReader(testImage(t)))
	var broken, other strings.Builder
	for n := 1; n <= 400; n++ {
		for i := range 64 {
			fmt.Fprintf(&broken, "%015d\n", n*64+i)
		}
		fmt.Fprintf(&other, "%01024d", n)
	}
	for path, want := range map[string]string{
		"etc/os-release":                        "ID=seed\n",
		"lib/os-release":                        "ID=seed\n",
		"etc/long":                              "ID=seed\n",
		"some/name30":                           "30\n",
		"deep/a/b/c/broken":                     broken.String(),
		"many/a-rather-long-name-of-a-file-400": broken.String(),
		"many/another-name-399":                 "other\n" + other.String(),
		"holes":                                 strings.Repeat("\x00", 101<<10) + "end\n",
		"unwritten":                             "start\n" + strings.Repeat("\x00", 64<<10-6),
		"deep/../many/../usr/lib/.././lib/../lib/os-release": "ID=seed\n",
	} {
		if got, err := fsys.ReadFile(path, 1<<20); err != nil || string(got) != want {
			t.Errorf("%s: %d bytes, want %d: %v", path, len(got), len(want), err)
		}
	}
	for path, want := range map[string]int{"many": 800, "some": 30, "etc": 2, "deep/a/b": 1, "/": 9} {
		if got, err := fsys.ReadDir(path); err != nil || len(got) != want {
			t.Errorf("%s: %d names, want %d: %v", path, len(got), want, err)
		}
	}
	for _, path := range []string{"many/nothing", "some/x", "etc/x", "holes/x"} {
		if _, err := fsys.Open(path); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: got %v, want %v", path, err, fs.ErrNotExist)
		}
	}
	if e, err := fsys.ReadDir("etc"); err != nil || e[0].Kind != tree.Link {
		t.Errorf("etc: %v, %v", e, err)
	}
	if u := fsys.Usage(); u.Size <= 0 || u.Free <= 0 || u.Free >= u.Size || u.Size > 24<<20 {
		t.Errorf("usage %+v", u)
	}
}

// Files that mkfs.xfs copies into an image read back unchanged, with both versions and several block sizes.
func TestImagesOfMkfs(t *testing.T) {
	mkfs, err := exec.LookPath("/usr/sbin/mkfs.xfs")
	if err != nil {
		t.Fatalf("%v: run scripts/setup.sh test", err)
	}
	large := make([]byte, 3<<20+17)
	rand.Read(large)
	for _, options := range [][]string{
		{"-m", "crc=1"}, {"-m", "crc=0", "-n", "ftype=0"}, {"-m", "crc=0", "-n", "ftype=1"}, {"-m", "crc=1", "-b", "size=1024", "-n", "size=8192"},
		{"-m", "crc=1", "-i", "nrext64=1"}, {"-m", "crc=0", "-b", "size=512", "-i", "size=256"},
	} {
		t.Run(strings.Join(options, " "), func(t *testing.T) {
			dir := t.TempDir()
			proto := protofile(t, dir, large)
			img := filepath.Join(dir, "img")
			if err := os.WriteFile(img, nil, 0o600); err != nil {
				t.Fatal(err)
			}
			if err := os.Truncate(img, 320<<20); err != nil { // minimum size of mkfs.xfs
				t.Fatal(err)
			}
			if out, err := exec.Command(mkfs, append(options, "-q", "-p", proto, img)...).CombinedOutput(); err != nil {
				t.Fatalf("mkfs.xfs: %v: %s", err, out)
			}
			f, err := os.Open(img)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			fsys := openFS(t, f)
			if got, err := fsys.ReadFile("boot/large", 1<<30); err != nil || !bytes.Equal(got, large) {
				t.Errorf("boot/large: %d bytes, %v", len(got), err)
			}
			for n := range 1500 {
				path := fmt.Sprintf("many/file-%d", n)
				if n%300 == 0 {
					if got, err := fsys.ReadFile(path, 100); err != nil || string(got) != "small\n" {
						t.Errorf("%s: %q, %v", path, got, err)
					}
				}
			}
			if got, err := fsys.ReadDir("many"); err != nil || len(got) != 1500 {
				t.Errorf("many: %d names, %v", len(got), err)
			}
			if got, err := fsys.ReadFile("link", 100); err != nil || string(got) != "small\n" {
				t.Errorf("link: %q, %v", got, err)
			}
		})
	}
}

// protofile writes the description of the files for mkfs.xfs -p.
func protofile(t *testing.T, dir string, large []byte) string {
	t.Helper()
	for name, data := range map[string][]byte{"large": large, "small": []byte("small\n")} {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var p strings.Builder
	p.WriteString("/none\n0 0\nd--755 0 0\n")
	fmt.Fprintf(&p, "boot d--755 0 0\nlarge ---644 0 0 %s/large\n$\n", dir)
	p.WriteString("many d--755 0 0\n")
	for n := range 1500 {
		fmt.Fprintf(&p, "file-%d ---644 0 0 %s/small\n", n, dir)
	}
	p.WriteString("$\nlink l--777 0 0 many/../many/file-7\n$\n")
	path := filepath.Join(dir, "proto")
	if err := os.WriteFile(path, []byte(p.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestOpenRefuses(t *testing.T) {
	for name, damage := range map[string]func(s []byte){
		"magic":      func(s []byte) { s[0] = 0 },
		"version":    func(s []byte) { s[101] = 3 },
		"block size": func(s []byte) { s[7] = 1 },
		"features":   func(s []byte) { s[216] = 0x80 },
		"groups":     func(s []byte) { clear(s[84:88]) },
		"inode size": func(s []byte) { s[104] = 0xff },
		"root inode": func(s []byte) { s[56] = 0xff },
		"no blocks":  func(s []byte) { clear(s[8:16]) },
	} {
		img := testImage(t)
		damage(img)
		if _, err := Open(budgettest.Reader(t, bytes.NewReader(img))); err == nil {
			t.Errorf("Open accepts a damaged superblock: %s", name)
		}
	}
	if _, err := Open(budgettest.Reader(t, bytes.NewReader(make([]byte, 100)))); err == nil {
		t.Error("Open accepts 100 bytes")
	}
}

// encodeExtent returns an extent of count blocks in the on-disk format.
func encodeExtent(off, at, count uint64) []byte {
	return binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(nil, off<<9|at>>43), at<<21|count)
}

// An extent whose offset in bytes exceeds 64 bits is refused, for all block sizes. Below that limit the hole before
// the extent is read.
func TestOversizedExtentsAreRefused(t *testing.T) {
	for size := int64(512); size <= 64<<10; size *= 2 {
		const count = 8
		most := uint64(math.MaxInt64 / size)
		for _, off := range []uint64{1 << 30, most - count, most - count + 1, most, most + 1, 1 << 51, 1 << 52, 1<<54 - count} {
			if off >= 1<<54 { // the on-disk offset has 54 bits
				continue
			}
			ok := off+count <= most
			fsys := &FS{r: budgettest.Reader(t, bytes.NewReader(nil)), version: 4, blockSize: size, blocks: 64, agBlocks: 64, agLog: 6}
			n := &node{fs: fsys, mode: 0x81a4, format: formatExtents, size: math.MaxInt64, count: 1, fork: encodeExtent(off, 1, count)}
			p := bytes.Repeat([]byte{1}, 100)
			got, err := n.ReadAt(p, 0)
			if (err == nil) != ok || ok && (got != len(p) || !bytes.Equal(p, make([]byte, len(p)))) {
				t.Errorf("extent at block %d of %d bytes: read %d bytes, error %v", off, size, got, err)
			}
		}
	}
}

// The extents of a file are charged. A refused list is not charged.
func TestMemoryOfExtents(t *testing.T) {
	const count = 1000
	var fork []byte
	for i := range uint64(count) {
		fork = append(fork, encodeExtent(2*i, 1, 1)...)
	}
	read := func(b *budget.Budget, fork []byte) (*node, error) {
		fsys := &FS{r: b.Reader(bytes.NewReader(make([]byte, 64<<10))), version: 4, blockSize: 512, blocks: 64, agBlocks: 64, agLog: 6}
		n := &node{fs: fsys, mode: 0x81a4, format: formatExtents, size: 1 << 20, count: count, fork: fork}
		_, err := n.ReadAt(make([]byte, 10), 0)
		return n, err
	}
	b := budgettest.New(t)
	if n, err := read(b, fork); err != nil || len(n.list) != count || b.Used().Memory != 32*count {
		t.Errorf("%d extents, %+v, %v", len(n.list), b.Used(), err)
	}
	b = budgettest.New(t)
	overlapping := slices.Concat(fork[:16*(count-1)], fork[:16])
	if n, err := read(b, overlapping); err == nil || len(n.list) != 0 || b.Used().Memory != 0 {
		t.Errorf("overlapping extents: %d, %+v, %v", len(n.list), b.Used(), err)
	}
	limits := budget.Examination()
	limits.Memory = 32*count - 1
	b, cancel := budget.New(t.Context(), limits)
	defer cancel()
	var limit *budget.Error
	if _, err := read(b, fork); !errors.As(err, &limit) {
		t.Errorf("extents beyond the budget: got %v, want a budget error", err)
	}
}

// counter counts the bytes that are read.
type counter struct {
	r     io.ReaderAt
	bytes int64
}

func (c *counter) ReadAt(p []byte, off int64) (int, error) {
	c.bytes += int64(len(p))
	return c.r.ReadAt(p, off)
}

// FuzzReadFile patches a real file system and reads from it. It checks that no read panics or exceeds the
// limit.
func FuzzReadFile(f *testing.F) {
	img := testImage(f)
	f.Add(0, []byte{}, "etc/os-release")
	f.Add(216, []byte{1, 0}, "many/another-name-399")
	f.Add(64<<10, bytes.Repeat([]byte{0xff}, 64), "etc/long")
	if n, err := openFS(f, bytes.NewReader(img)).Open("holes"); err == nil { // moves the extent to offset 2^63
		f.Add(bytes.Index(img, n.(*node).fork[:16]), encodeExtent(1<<51, 1, 1), "holes")
	}
	f.Fuzz(func(t *testing.T, at int, patch []byte, path string) {
		if at < 0 || at >= len(img) || len(path) > 100 {
			return
		}
		saved := bytes.Clone(img[at:min(len(img), at+len(patch))])
		copy(img[at:], patch)
		defer copy(img[at:], saved)
		b := budgettest.New(t)
		defer budgettest.Charged(t, b)()
		c := &counter{r: bytes.NewReader(img)}
		fsys, err := Open(b.Reader(c))
		if err != nil {
			return
		}
		data, _ := fsys.ReadFile(path, 1<<16)
		if len(data) > 1<<16 {
			t.Errorf("ReadFile returns %d bytes, more than the limit", len(data))
		}
		_, _ = fsys.ReadDir(path)
	})
}
