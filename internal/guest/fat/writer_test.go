package fat

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/guest/budget"
	"github.com/decamp/decamp/internal/guest/budget/budgettest"
)

func openWriter(t testing.TB, img string) (*Writer, *os.File) {
	t.Helper()
	f, err := os.OpenFile(img, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	w, err := OpenWriter(budgettest.ReadWriter(t, f), time.Date(2026, 5, 4, 3, 2, 1, 0, time.UTC))
	if err != nil {
		t.Fatal(err)
	}
	return w, f
}

// Added files are readable by mtools, and fsck.fat finds no errors. The cases cover all FAT types, gaps between
// files, new folders, and a folder that grows.
func TestAdd(t *testing.T) {
	loader := make([]byte, 300_001)
	rand.Read(loader)
	for name, test := range map[string]struct {
		mib     int64
		options []string
	}{
		"FAT12": {2, []string{"-F", "12"}}, "FAT16": {20, []string{"-F", "16", "-s", "1"}}, "FAT32": {40, []string{"-F", "32", "-s", "1"}}, "one table": {40, []string{"-F", "32", "-s", "1", "-f", "1"}},
	} {
		t.Run(name, func(t *testing.T) {
			img := makeImage(t, test.mib, make([]byte, 5000), test.options...)
			w, _ := openWriter(t, img)
			want := map[string][]byte{"EFI/BOOT/fbx64.efi": loader, "EFI/new/deeper/GRUB.EFI": []byte("x"), "EFI/new/EMPTY": {}}
			for n := range 80 {
				want[fmt.Sprintf("EFI/many/N%d.TXT", n)] = []byte("n")
			}
			for path, data := range want {
				if err := w.Add(path, data); err != nil {
					t.Fatal(err)
				}
			}
			if err := w.Flush(); err != nil {
				t.Fatal(err)
			}
			runProgram(t, "/usr/sbin/fsck.fat", "-n", img)
			for _, path := range []string{"EFI/BOOT/FBX64.EFI", "EFI/new/deeper/GRUB.EFI"} {
				out, err := exec.Command("mtype", "-i", img, "::/"+path).Output()
				if key := map[string]string{"EFI/BOOT/FBX64.EFI": "EFI/BOOT/fbx64.efi"}[path]; err != nil || !bytes.Equal(out, want[path]) && !bytes.Equal(out, want[key]) {
					t.Errorf("mtools reads %d bytes of %s, %v", len(out), path, err)
				}
			}
			again, _ := openWriter(t, img)
			for path, data := range want {
				if got, err := again.Tree().ReadFile(path, 1<<20); err != nil || !bytes.Equal(got, data) {
					t.Errorf("%s: %d bytes, %v", path, len(got), err)
				}
			}
			if got, err := again.Tree().ReadFile("EFI/BOOT/BOOTX64.EFI", 1<<20); err != nil || string(got) != "small\n" {
				t.Errorf("existing file: %q, %v", got, err)
			}
			if err := again.Add("efi/boot/bootx64.efi", nil); !errors.Is(err, fs.ErrExist) {
				t.Errorf("adding an existing file: got %v, want %v", err, fs.ErrExist)
			}
		})
	}
}

// An empty file has no cluster, but its entry is written.
func TestAddEmptyFile(t *testing.T) {
	img := makeImage(t, 2, nil, "-F", "12")
	w, _ := openWriter(t, img)
	for range 2 { // the second Flush has nothing to write
		if err := w.Flush(); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Add("EFI/BOOT/EMPTY.TXT", nil); err != nil {
		t.Fatal(err)
	}
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	runProgram(t, "/usr/sbin/fsck.fat", "-n", img)
	again, _ := openWriter(t, img)
	if got, err := again.Tree().ReadFile("EFI/BOOT/EMPTY.TXT", 10); err != nil || len(got) != 0 {
		t.Errorf("content %q, want none, error %v", got, err)
	}
	if out, err := exec.Command("mdir", "-b", "-i", img, "::/EFI/BOOT").CombinedOutput(); err != nil || !strings.Contains(string(out), "EMPTY.TXT") {
		t.Errorf("mdir lists %s, %v", out, err)
	}
}

// While OpenWriter compares the tables, both are charged.
func TestMemoryOfTables(t *testing.T) {
	w, _ := openWriter(t, makeImage(t, 20, nil, "-F", "16", "-s", "1"))
	table := int64(len(w.fs.table))
	if u := w.fs.r.Budget().Used(); u.Memory != table || u.Peak != 2*table {
		t.Errorf("tables of %d bytes: %+v", table, u)
	}
}

// Nothing is written before Flush. Add fails if there is no space, and OpenWriter fails if the tables differ.
func TestAddRefuses(t *testing.T) {
	img := makeImage(t, 2, nil, "-F", "12")
	before, err := os.ReadFile(img)
	if err != nil {
		t.Fatal(err)
	}
	w, f := openWriter(t, img)
	if err := w.Add("A.BIN", make([]byte, 3<<20)); !fault.Is(err, fault.Full) || fault.HintOf(err) == "" {
		t.Errorf("no space: got %v, want a full error with a remedy", err)
	}
	for _, name := range []string{"a long name.efi", "", "X.LONG", "A/B"} {
		if err := w.Add("EFI/large/"+name, nil); err == nil {
			t.Errorf("%q was added", name)
		}
	}
	full := error(nil)
	for n := 0; full == nil && n < 1000; n++ {
		full = w.Add(fmt.Sprintf("N%d", n), nil)
	}
	if !fault.Is(full, fault.Full) {
		t.Errorf("more names than fit into the root folder: got %v, want a full error", full)
	}
	if after, err := os.ReadFile(img); err != nil || !bytes.Equal(after, before) {
		t.Errorf("the image changed before Flush, error %v", err)
	}
	second := int64(le16(before, 14)+le16(before, 22)) * 512
	if _, err := f.WriteAt([]byte{1, 2, 3}, second+30); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenWriter(budgettest.ReadWriter(t, f), time.Time{}); !fault.Is(err, fault.Unsupported) {
		t.Errorf("tables that differ: got %v, want an unsupported error", err)
	}
}

// A failed call changes nothing: not the table, not the folders, not the charged memory, and not the output of a later
// Flush.
func TestFailedAddChangesNothing(t *testing.T) {
	for name, test := range map[string]struct {
		options []string
		mib     int64
		before  func(w *Writer) // calls that succeed
		path    string          // path of the call that fails
		size    int
	}{
		"full root":             {[]string{"-F", "12"}, 2, fillRoot, "NEW", 5000},
		"full root, folder":     {[]string{"-F", "12"}, 2, fillRoot, "NEW/A", 5000},
		"no space, new folders": {[]string{"-F", "12"}, 2, nil, "EFI/N1/N2/A", 3 << 20},
		"long name":             {[]string{"-F", "12"}, 2, nil, "EFI/N1/N2/a long name.efi", 5000},
		"no space, grown root":  {[]string{"-F", "32", "-s", "1"}, 40, fillCluster, "NEW/A", 64 << 20},
	} {
		t.Run(name, func(t *testing.T) {
			img := makeImage(t, test.mib, nil, test.options...)
			w, _ := openWriter(t, img)
			if test.before != nil {
				test.before(w)
			}
			root, err := w.Tree().ReadDir("")
			if err != nil {
				t.Fatal(err)
			}
			table, usage, memory := bytes.Clone(w.fs.table), w.fs.Usage(), w.fs.r.Budget().Used().Memory
			if err := w.Add(test.path, make([]byte, test.size)); err == nil {
				t.Fatal("Add succeeded")
			}
			if !bytes.Equal(w.fs.table, table) {
				t.Errorf("the table has changed; usage %+v, before %+v", w.fs.Usage(), usage)
			}
			if after, err := w.Tree().ReadDir(""); err != nil || !slices.Equal(after, root) {
				t.Errorf("the root has %v, before %v, %v", after, root, err)
			}
			if after := w.fs.r.Budget().Used().Memory; after > memory+1<<10 { // the chain of a folder may be charged
				t.Errorf("%d bytes are charged, before %d", after, memory)
			}
			if err := w.Add("EFI/BOOT/LAST", []byte("last")); err != nil {
				t.Fatal(err)
			}
			if err := w.Flush(); err != nil {
				t.Fatal(err)
			}
			runProgram(t, "/usr/sbin/fsck.fat", "-n", img)
		})
	}
}

// fillRoot adds files until the root folder is full.
func fillRoot(w *Writer) {
	for n := 0; w.Add(fmt.Sprintf("N%d", n), nil) == nil; n++ {
	}
}

// fillCluster adds files until the root folder fills its cluster.
func fillCluster(w *Writer) {
	for n := range 15 { // a cluster has 16 entries, EFI uses one
		if err := w.Add(fmt.Sprintf("N%d", n), nil); err != nil {
			panic(err)
		}
	}
}

// The tree of a Writer contains files that were added to a growing root folder.
func TestTreeOfAGrownRoot(t *testing.T) {
	w, _ := openWriter(t, makeImage(t, 40, nil, "-F", "32", "-s", "1"))
	for n := range 40 {
		if _, err := w.Tree().ReadDir(""); err != nil {
			t.Fatal(err)
		}
		name := fmt.Sprintf("N%d", n)
		if err := w.Add(name, []byte(name)); err != nil {
			t.Fatal(err)
		}
		if got, err := w.Tree().ReadFile(name, 10); err != nil || string(got) != name {
			t.Fatalf("%s: %q, %v", name, got, err)
		}
	}
}

// Pending writes are charged, and a file beyond the budget is not added.
func TestPendingWritesAreCharged(t *testing.T) {
	img := makeImage(t, 200, nil, "-F", "32")
	w, _ := openWriter(t, img)
	before := w.fs.r.Budget().Used().Memory
	if err := w.Add("A", make([]byte, 8<<20)); err != nil {
		t.Fatal(err)
	}
	if u := w.fs.r.Budget().Used(); u.Memory < before+8<<20 {
		t.Errorf("pending writes of 8 MiB are not charged: %+v", u)
	}
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	if u := w.fs.r.Budget().Used(); u.Memory > before+1<<10 {
		t.Errorf("after Flush: %+v, before %d", u, before)
	}
	var limit *budget.Error
	if err := w.Add("B", make([]byte, 80<<20)); !errors.As(err, &limit) {
		t.Errorf("80 MiB: %v", err)
	}
}

// OpenWriter refuses a table with contradictory chains: a cluster that it marks as free may belong to a file.
func TestOpenWriterRefusesContradictoryChains(t *testing.T) {
	for name, to := range map[string]uint16{"at a free cluster": 3000, "at the cluster of another file": 4} {
		img := makeImage(t, 20, make([]byte, 5000), "-F", "16", "-s", "1")
		_, f := openWriter(t, img)
		b := make([]byte, 512)
		if _, err := f.ReadAt(b, 0); err != nil {
			t.Fatal(err)
		}
		first := int64(le16(b, 14)) * 512
		for i := range int64(2) { // clusters 2 and 3 of both tables
			entry := []byte{byte(to), byte(to >> 8), byte(to), byte(to >> 8)}
			if _, err := f.WriteAt(entry, first+i*int64(le16(b, 22))*512+4); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := OpenWriter(budgettest.ReadWriter(t, f), time.Time{}); !fault.Is(err, fault.Unsupported) {
			t.Errorf("chains that end %s: %v", name, err)
		}
	}
}

// disk is a device in memory.
type disk []byte

func (d disk) ReadAt(p []byte, off int64) (int, error) { return bytes.NewReader(d).ReadAt(p, off) }

func (d disk) WriteAt(p []byte, off int64) (int, error) {
	if off < 0 || off+int64(len(p)) > int64(len(d)) {
		return 0, errors.New("beyond the end")
	}
	return copy(d[off:], p), nil
}

// FuzzAdd patches a real file system and adds a file. It checks that Add terminates and that the file has the right
// size.
func FuzzAdd(f *testing.F) {
	img, err := os.ReadFile(makeImage(f, 2, make([]byte, 9000), "-F", "12"))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(0, []byte{}, 100)
	f.Add(13, []byte{128}, 5000)
	f.Add(512, bytes.Repeat([]byte{0xff}, 64), 70000)
	f.Fuzz(func(t *testing.T, at int, patch []byte, size int) {
		if at < 0 || at >= len(img) || len(patch) > 1<<10 || size < 0 || size > 1<<17 {
			return
		}
		bad := disk(bytes.Clone(img))
		copy(bad[at:], patch)
		w, err := OpenWriter(budgettest.ReadWriter(t, bad), time.Unix(1_900_000_000, 0))
		if err != nil || w.Add("EFI/ADDED/X.EFI", bytes.Repeat([]byte("x"), size)) != nil || w.Flush() != nil {
			return
		}
		fsys, err := Open(budgettest.Reader(t, bad))
		if err != nil {
			t.Fatal(err)
		}
		if got, err := fsys.ReadFile("EFI/ADDED/X.EFI", 1<<20); err == nil && len(got) != size {
			t.Errorf("%d bytes, want %d, %v", len(got), size, err)
		}
	})
}
