package vmdk

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/disk/disktest"
	"github.com/decamp/decamp/internal/fault"
)

// makeFiles creates files in a new folder. The content of each file is its name.
func makeFiles(t *testing.T, names ...string) string {
	t.Helper()
	folder := t.TempDir()
	for _, name := range names {
		path := filepath.Join(folder, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(name), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return folder
}

// readContent returns the content of the file that Open finds.
func readContent(t *testing.T, f Files, name string) string {
	t.Helper()
	src, err := f.Open(t.Context(), name)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	defer src.Close()
	b := make([]byte, src.Size())
	if err := src.ReadAt(t.Context(), b, 0); err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestFolderFindsFilesOfADatastore(t *testing.T) {
	one := makeFiles(t, "a.vmdk", "vm/a.vmdk", "ds/vm/a.vmdk", "b.vmdk")
	two := makeFiles(t, "vm/b.vmdk", "c.vmdk")
	for _, c := range []struct{ name, want string }{
		{"a.vmdk", "a.vmdk"},
		{"vm/a.vmdk", "vm/a.vmdk"},
		{"/vmfs/volumes/ds/vm/a.vmdk", "ds/vm/a.vmdk"},
		{"/vmfs/volumes/other/vm/a.vmdk", "vm/a.vmdk"},
		{"/vmfs/volumes/ds/x/a.vmdk", "a.vmdk"},
		{"/vmfs/volumes/ds/vm/b.vmdk", "vm/b.vmdk"}, // the longer path wins, although it is in the second folder
		{"/vmfs/volumes/ds/vm/c.vmdk", "c.vmdk"},
	} {
		if got := readContent(t, Folder(one, two), c.name); got != c.want {
			t.Errorf("%s: found %s, want %s", c.name, got, c.want)
		}
	}
	for _, name := range []string{"c.vmdk", "gone.vmdk", "/vmfs/volumes/ds/gone.vmdk"} {
		if _, err := Folder(one, two).Open(t.Context(), name); !fault.Is(err, fault.NotFound) || fault.HintOf(err) == "" {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestFolderRefusesFilesOutside(t *testing.T) {
	secret := makeFiles(t, "secret")
	folder := makeFiles(t, "inside")
	for link, to := range map[string]string{"link": filepath.Join(secret, "secret"), "up": "../" + filepath.Base(secret) + "/secret"} {
		if err := os.Symlink(to, filepath.Join(folder, link)); err != nil {
			t.Fatal(err)
		}
	}
	if err := unix.Mkfifo(filepath.Join(folder, "pipe"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"link", "up", "../inside", "pipe", ".", filepath.Join(secret, "secret") + "/"} {
		if src, err := Folder(folder).Open(t.Context(), name); err == nil {
			src.Close()
			t.Errorf("Open of %s succeeds, want an error", name)
		}
	}
}

func TestLocalFileConforms(t *testing.T) {
	disktest.TestSource(t, func(t *testing.T, want disk.Source) disk.Source {
		folder := t.TempDir()
		writeFile(t, filepath.Join(folder, "f"), want)
		src, err := Folder(folder).Open(t.Context(), "f")
		if err != nil {
			t.Fatal(err)
		}
		return src
	})
}

// writeFile writes the data of want to a new file. The rest of the file is holes.
func writeFile(t *testing.T, path string, want disk.Source) {
	t.Helper()
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := f.Truncate(want.Size()); err != nil {
		t.Fatal(err)
	}
	for _, e := range extentsOf(t, want) {
		if e.Kind == disk.Data {
			if _, err := f.WriteAt(readRange(t, want, e.Range), e.Off); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func extentsOf(t *testing.T, src disk.Source) []disk.Extent {
	t.Helper()
	list, err := src.Extents(t.Context(), disk.Range{Len: src.Size()})
	if err != nil {
		t.Fatal(err)
	}
	return list
}

func readRange(t *testing.T, src disk.Source, r disk.Range) []byte {
	t.Helper()
	b := make([]byte, r.Len)
	if err := src.ReadAt(t.Context(), b, r.Off); err != nil {
		t.Fatal(err)
	}
	return b
}

// Truncating a file while it is mapped causes an error and does not crash the program.
func TestTruncatedMappedFileIsAnError(t *testing.T) {
	folder := t.TempDir()
	path := filepath.Join(folder, "d")
	if err := os.WriteFile(path, miniCOWD(), 0o644); err != nil {
		t.Fatal(err)
	}
	d, err := Open(t.Context(), Folder(folder), "d", Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	f := d.files[0]
	if f.memory == nil { // the file system reports that it is not in the page cache: map it anyway
		if f.memory, err = unix.Mmap(int(f.src.(*localFile).Fd()), 0, int(f.size()), unix.PROT_READ, unix.MAP_SHARED); err != nil {
			t.Fatal(err)
		}
		f.src.(*localFile).memory = f.memory
	}
	p := make([]byte, disk.SectorSize)
	if err := d.ReadAt(t.Context(), p, 0); err != nil || p[0] != 'a' {
		t.Fatalf("first byte %q, %v", p[0], err)
	}
	if err := os.Truncate(path, 4096); err != nil {
		t.Fatal(err)
	}
	if err := d.ReadAt(t.Context(), p, 0); !fault.Is(err, fault.Conflict) || fault.HintOf(err) == "" {
		t.Errorf("got %v, want a conflict with a hint", err)
	}
	if err := d.ReadAt(t.Context(), p, disk.SectorSize); err != nil {
		t.Errorf("reading a grain of zeros after the error: %v", err)
	}
}
