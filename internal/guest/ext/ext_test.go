package ext

import (
	"bytes"
	"errors"
	"io"
	"path/filepath"
	"strings"
	"testing"

	"github.com/decamp/decamp/internal/guest/budget/budgettest"
	"github.com/decamp/decamp/internal/guest/tree/treetest"
)

const osRelease = "ID=seed\nPRETTY_NAME=\"Seed OS 3\"\nVERSION_ID=\"3\"\n"

// testImage returns an unpacked file system of testdata.
func testImage(t testing.TB, name string) []byte {
	t.Helper()
	return treetest.Unpacked(t, filepath.Join("testdata", name+".img.gz"))
}

func TestReadFile(t *testing.T) {
	big := strings.Repeat("x", 40000) // more than the direct blocks of an inode can hold
	for _, name := range []string{"ext2", "ext4"} {
		fs, err := Open(budgettest.Reader(t, bytes.NewReader(testImage(t, name))))
		if err != nil {
			t.Fatal(err)
		}
		for path, want := range map[string]string{
			"usr/lib/os-release":                  osRelease,
			"/usr//lib/./os-release":              osRelease,
			"etc/os-release":                      osRelease, // a relative link
			"lib/os-release":                      osRelease, // an absolute link
			"deep/../../../etc/../lib/os-release": osRelease,
			"deep/big":                            big,
		} {
			got, err := fs.ReadFile(path, 1<<20)
			if err != nil || string(got) != want {
				t.Errorf("%s: %s: %d bytes, err %v", name, path, len(got), err)
			}
		}
	}
}

func TestReadFileRefuses(t *testing.T) {
	for _, name := range []string{"ext2", "ext4"} {
		fs, err := Open(budgettest.Reader(t, bytes.NewReader(testImage(t, name))))
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range []string{"etc/nothing", "nothing/at/all", "etc/os-release/x"} {
			if _, err := fs.ReadFile(path, 1<<20); !errors.Is(err, ErrNotFound) {
				t.Errorf("%s: %s: %v, want ErrNotFound", name, path, err)
			}
		}
		for path, want := range map[string]string{
			"etc": "not a regular file", "deep/loop": "symbolic links", "deep/big": "40000 bytes", "/": "not a regular file",
		} {
			if _, err := fs.ReadFile(path, 4096); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %s: %v, want an error about %q", name, path, err, want)
			}
		}
	}
}

func TestOpenRefuses(t *testing.T) {
	tests := map[string]func(super []byte){
		"magic":       func(s []byte) { s[0x38] = 0 },
		"block size":  func(s []byte) { s[0x18] = 7 },
		"meta_bg":     func(s []byte) { s[0x60] |= 0x10 },
		"inode size":  func(s []byte) { s[0x58] = 100 },
		"group":       func(s []byte) { clear(s[0x28:0x2c]) },
		"no blocks":   func(s []byte) { clear(s[0x4:0x8]) },
		"descriptors": func(s []byte) { s[0xfe] = 33 },
	}
	for name, damage := range tests {
		img := testImage(t, "ext4")
		damage(img[superOffset:])
		if _, err := Open(budgettest.Reader(t, bytes.NewReader(img))); err == nil {
			t.Errorf("Open accepts a damaged superblock: %s", name)
		}
	}
	if _, err := Open(budgettest.Reader(t, bytes.NewReader(make([]byte, 100)))); err == nil {
		t.Error("Open accepts 100 bytes")
	}
}

// counter counts reads and their bytes.
type counter struct {
	r     io.ReaderAt
	bytes int64
	reads int
}

func (c *counter) ReadAt(p []byte, off int64) (int, error) {
	c.bytes += int64(len(p))
	c.reads++
	return c.r.ReadAt(p, off)
}

// FuzzReadFile patches a real file system and reads from it. It checks that no read panics or exceeds the
// limit.
func FuzzReadFile(f *testing.F) {
	images := [][]byte{testImage(f, "ext2"), testImage(f, "ext4")}
	f.Add(0, 0, []byte{}, "etc/os-release")
	f.Add(1, 1024+0x28, []byte{1, 0, 0, 0}, "deep/big")
	f.Add(1, 0x2800, bytes.Repeat([]byte{0xff}, 64), "deep/loop")
	f.Fuzz(func(t *testing.T, which, at int, patch []byte, path string) {
		img := bytes.Clone(images[which&1])
		if at < 0 || at >= len(img) {
			return
		}
		copy(img[at:], patch)
		b := budgettest.New(t)
		defer budgettest.Charged(t, b)()
		c := &counter{r: bytes.NewReader(img)}
		fs, err := Open(b.Reader(c))
		if err != nil {
			return
		}
		data, _ := fs.ReadFile(path, 1<<16)
		if len(data) > 1<<16 {
			t.Errorf("ReadFile returns %d bytes, more than the limit", len(data))
		}
		if c.bytes > superSize+MaxReads*fs.blockSize {
			t.Errorf("%d bytes read, want at most %d", c.bytes, superSize+MaxReads*fs.blockSize)
		}
	})
}
