package ext

import (
	"bytes"
	"crypto/rand"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/decamp/decamp/internal/guest/budget/budgettest"
	"github.com/decamp/decamp/internal/guest/tree"
)

func TestTreeOfSamples(t *testing.T) {
	for _, name := range []string{"ext2", "ext4"} {
		fsys, err := Open(budgettest.Reader(t, bytes.NewReader(testImage(t, name))))
		if err != nil {
			t.Fatal(err)
		}
		root, err := fsys.Tree()
		if err != nil {
			t.Fatal(err)
		}
		big := strings.Repeat("x", 40000)
		for path, want := range map[string]string{"etc/os-release": osRelease, "lib/os-release": osRelease, "deep/big": big} {
			if got, err := root.ReadFile(path, 1<<20); err != nil || string(got) != want {
				t.Errorf("%s: %s: %d bytes, %v", name, path, len(got), err)
			}
		}
		if _, err := root.Open("etc/nothing"); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: missing file: got %v, want %v", name, err, fs.ErrNotExist)
		}
		entries, err := root.ReadDir("deep")
		slices.SortFunc(entries, func(a, b tree.Entry) int { return strings.Compare(a.Name, b.Name) })
		if err != nil || !slices.Equal(entries, []tree.Entry{{Name: "big", Kind: tree.File}, {Name: "long", Kind: tree.Link}, {Name: "loop", Kind: tree.Link}}) {
			t.Errorf("%s: entries %v, error %v", name, entries, err)
		}
		if u := fsys.Usage(); u.Free <= 0 || u.Free >= u.Size || u.Size > int64(len(testImage(t, name))) {
			t.Errorf("%s: usage %+v", name, u)
		}
	}
}

// A file of several MiB, like an initramfs, is read unchanged with few reads.
func TestTreeReadsLargeFilesWithFewReads(t *testing.T) {
	want := make([]byte, 9<<20+123)
	rand.Read(want)
	for _, kind := range []string{"ext2", "ext4"} {
		folder, img := t.TempDir(), filepath.Join(t.TempDir(), "img")
		if err := os.WriteFile(filepath.Join(folder, "large"), want, 0o600); err != nil {
			t.Fatal(err)
		}
		if out, err := exec.Command("/usr/sbin/mke2fs", "-q", "-t", kind, "-b", "1024", "-d", folder, img, "20M").CombinedOutput(); err != nil {
			t.Fatalf("mke2fs: %v: %s", err, out)
		}
		data, err := os.ReadFile(img)
		if err != nil {
			t.Fatal(err)
		}
		c := &counter{r: bytes.NewReader(data)}
		fsys, err := Open(budgettest.Reader(t, c))
		if err != nil {
			t.Fatal(err)
		}
		root, err := fsys.Tree()
		if err != nil {
			t.Fatal(err)
		}
		got, err := root.ReadFile("large", 10<<20)
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s: %d bytes, %v", kind, len(got), err)
		}
		if kind == "ext4" && c.reads > 64 {
			t.Errorf("%s: %d reads, want at most 64", kind, c.reads)
		}
	}
}
