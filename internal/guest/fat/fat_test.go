package fat

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/decamp/decamp/internal/guest/budget/budgettest"
	"github.com/decamp/decamp/internal/guest/tree"
)

func runProgram(t testing.TB, name string, args ...string) {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Env = append(os.Environ(), "MTOOLS_SKIP_CHECK=1", "LC_ALL=C.UTF-8")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s %q: %v: %s: run scripts/setup.sh test", name, args, err, out)
	}
}

// makeImage creates an image of mib MiB with mkfs.fat and fills it with mtools.
func makeImage(t testing.TB, mib int64, large []byte, options ...string) string {
	t.Helper()
	dir := t.TempDir()
	img := filepath.Join(dir, "img")
	for name, data := range map[string][]byte{"img": nil, "large": large, "small": []byte("small\n")} {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Truncate(img, mib<<20); err != nil {
		t.Fatal(err)
	}
	runProgram(t, "/usr/sbin/mkfs.fat", append(options, img)...)
	small := filepath.Join(dir, "small")
	runProgram(t, "mmd", "-i", img, "::/EFI", "::/EFI/BOOT", "::/EFI/debian", "::/EFI/many")
	runProgram(t, "mcopy", "-i", img, small, "::/EFI/BOOT/BOOTX64.EFI")
	runProgram(t, "mcopy", "-i", img, small, "::/EFI/debian/A rather long name, größer.conf")
	for n := range 40 {
		runProgram(t, "mcopy", "-i", img, small, fmt.Sprintf("::/EFI/many/a name that is long %d", n))
	}
	// Removing files leaves gaps, so that the large file is fragmented.
	for n := range 10 {
		runProgram(t, "mdel", "-i", img, fmt.Sprintf("::/EFI/many/a name that is long %d", 4*n))
	}
	runProgram(t, "mcopy", "-i", img, filepath.Join(dir, "large"), "::/EFI/large")
	return img
}

func TestReadsFilesOfMtools(t *testing.T) {
	large := make([]byte, 700_001)
	rand.Read(large)
	for name, test := range map[string]struct {
		mib     int64
		bits    int
		options []string
	}{
		"FAT12": {2, 12, []string{"-F", "12"}}, "FAT16": {20, 16, []string{"-F", "16", "-s", "1"}}, "FAT32": {40, 32, []string{"-F", "32", "-s", "1"}},
		"default": {64, 16, nil},
	} {
		t.Run(name, func(t *testing.T) {
			f, err := os.Open(makeImage(t, test.mib, large, test.options...))
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			fsys, err := Open(budgettest.Reader(t, f))
			if err != nil {
				t.Fatal(err)
			}
			if fsys.bits != test.bits {
				t.Errorf("got FAT%d, want FAT%d", fsys.bits, test.bits)
			}
			for path, want := range map[string]string{
				"EFI/BOOT/BOOTX64.EFI": "small\n", "efi/boot/bootx64.efi": "small\n", "/EFI/debian/A rather long name, größer.conf": "small\n",
				"EFI/many/../large": string(large), "EFI/many/a name that is long 39": "small\n",
			} {
				if got, err := fsys.ReadFile(path, 1<<20); err != nil || string(got) != want {
					t.Errorf("%s: %d bytes, %v", path, len(got), err)
				}
			}
			if e, err := fsys.ReadDir("EFI/many"); err != nil || len(e) != 30 || e[0].Name != "a name that is long 1" {
				t.Errorf("EFI/many: %v, %v", e, err)
			}
			if e, err := fsys.ReadDir("EFI"); err != nil || len(e) != 4 || e[0] != (tree.Entry{Name: "BOOT", Kind: tree.Folder}) {
				t.Errorf("EFI: %v, %v", e, err)
			}
			if _, err := fsys.Open("EFI/many/a name that is long 4"); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("a file that was removed: %v", err)
			}
			if u := fsys.Usage(); u.Free <= 0 || u.Size-u.Free < int64(len(large)) || u.Size > test.mib<<20 {
				t.Errorf("usage %+v", u)
			}
		})
	}
}

func TestOpenRefuses(t *testing.T) {
	img, err := os.ReadFile(makeImage(t, 2, nil))
	if err != nil {
		t.Fatal(err)
	}
	for name, damage := range map[string]func(b []byte){
		"signature":   func(b []byte) { b[510] = 0 },
		"sector":      func(b []byte) { b[12] = 0xff },
		"cluster":     func(b []byte) { b[13] = 3 },
		"no table":    func(b []byte) { clear(b[22:24]); clear(b[36:40]) },
		"short table": func(b []byte) { b[22], b[23] = 1, 0; b[32] = 0xff },
		"no data":     func(b []byte) { b[19], b[20] = 3, 0 },
	} {
		bad := bytes.Clone(img)
		damage(bad)
		if _, err := Open(budgettest.Reader(t, bytes.NewReader(bad))); err == nil {
			t.Errorf("Open accepts a damaged boot sector: %s", name)
		}
	}
}

// A cyclic chain of clusters is read up to the limit.
func TestCyclicChain(t *testing.T) {
	img, err := os.ReadFile(makeImage(t, 20, make([]byte, 4096), "-F", "16", "-s", "1"))
	if err != nil {
		t.Fatal(err)
	}
	fsys, err := Open(budgettest.Reader(t, bytes.NewReader(img)))
	if err != nil {
		t.Fatal(err)
	}
	folder, err := fsys.Open("EFI/BOOT")
	if err != nil {
		t.Fatal(err)
	}
	first := folder.(*node).first
	fsys.table[2*first], fsys.table[2*first+1] = byte(first), byte(first>>8)
	e, err := fsys.ReadDir("EFI/BOOT")
	if err != nil || len(e) == 0 || len(e) > maxFolder/32 {
		t.Errorf("%d names, %v", len(e), err)
	}
}

// The cluster chain of a file is charged and allocated once.
func TestMemoryOfChains(t *testing.T) {
	const count = maxClusters
	b := budgettest.New(t)
	fsys := &FS{r: b.Reader(bytes.NewReader(nil)), bits: 32, clusterSize: 512, clusters: count, table: make([]byte, 4*(count+2))}
	for c := range int64(count) {
		fsys.setTableEntry(c+2, c+3)
	}
	fsys.setTableEntry(count+1, 0xfffffff)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	chain, err := (&node{fs: fsys, first: 2, size: 512 * count}).clusterChain(512 * count)
	runtime.ReadMemStats(&after)
	const want = 8 * count
	if got := after.TotalAlloc - before.TotalAlloc; err != nil || len(chain) != count || got > want+64<<10 || b.Used().Memory != want {
		t.Errorf("%d clusters in %d bytes, charged: %+v, %v", len(chain), got, b.Used(), err)
	}
}

// FuzzReadFile patches a real file system and reads from it.
func FuzzReadFile(f *testing.F) {
	img, err := os.ReadFile(makeImage(f, 2, make([]byte, 9000), "-F", "12"))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(0, []byte{}, "EFI/BOOT/BOOTX64.EFI")
	f.Add(13, []byte{128}, "EFI/large")
	f.Add(512, bytes.Repeat([]byte{0xff}, 64), "EFI/debian/A rather long name, größer.conf")
	f.Fuzz(func(t *testing.T, at int, patch []byte, path string) {
		if at < 0 || at >= len(img) || len(path) > 100 {
			return
		}
		bad := bytes.Clone(img)
		copy(bad[at:], patch)
		b := budgettest.New(t)
		defer budgettest.Charged(t, b)()
		fsys, err := Open(b.Reader(bytes.NewReader(bad)))
		if err != nil {
			return
		}
		data, _ := fsys.ReadFile(path, 1<<16)
		if len(data) > 1<<16 {
			t.Errorf("ReadFile returns %d bytes, more than the limit", len(data))
		}
		_, _ = fsys.ReadDir(path)
		fsys.Usage()
	})
}
