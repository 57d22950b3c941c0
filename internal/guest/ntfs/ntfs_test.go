package ntfs

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/decamp/decamp/internal/guest/budget/budgettest"
	"github.com/decamp/decamp/internal/guest/ntfs/ntfstest"
	"github.com/decamp/decamp/internal/guest/tree"
)

// noise returns incompressible bytes, the same for each seed.
func noise(seed uint64, size int) []byte {
	r := rand.NewChaCha8([32]byte{byte(seed), byte(seed >> 8)})
	b := make([]byte, size)
	r.Read(b)
	return b
}

// openVolume opens the volume in a file and closes it when the test ends.
func openVolume(t testing.TB, path string) *Volume {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	v, err := Open(budgettest.Reader(t, f))
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func volumeTree(t testing.TB, v *Volume) *tree.Tree {
	t.Helper()
	files, err := v.Tree()
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// checkFiles compares the files of a volume with the written data.
func checkFiles(t *testing.T, v *Volume, want map[string][]byte) {
	t.Helper()
	all := volumeTree(t, v)
	for name, data := range want {
		got, err := all.ReadFile(name, 1<<30)
		if err != nil || !bytes.Equal(got, data) {
			t.Errorf("%s: %d bytes, want %d: %v", name, len(got), len(data), err)
		}
	}
}

// The sizes cover files within the record, of one cluster and of many clusters.
func TestReadsVolumeOfNTFS3G(t *testing.T) {
	for name, mkntfs := range map[string][]string{
		"small clusters": {"-c", "512"}, "usual clusters": {"-c", "4096"}, "large clusters": {"-c", "65536"},
		"huge clusters": {"-c", "2097152"}, "large sectors": {"-s", "4096"}, // also larger records
	} {
		t.Run(name, func(t *testing.T) {
			want := map[string][]byte{}
			for i, size := range []int{0, 1, 300, 700, 1024, 4095, 4096, 4097, 65536, 3 << 20} {
				want[fmt.Sprintf("Windows/System32/größe-%d.bin", i)] = noise(uint64(i), size)
			}
			path := ntfstest.Volume(t, 64, func(root string) {
				for name, data := range want {
					ntfstest.Write(t, root, name, data)
				}
			}, mkntfs...)
			v := openVolume(t, path)
			checkFiles(t, v, want)
			if got, err := volumeTree(t, v).ReadFile("WINDOWS/system32/GRÖSSE-1.BIN", 10); err == nil {
				t.Errorf("ß matches SS: %q", got)
			}
			if got, err := volumeTree(t, v).ReadFile("windows/SYSTEM32/GRÖßE-1.BIN", 10); err != nil || len(got) != 1 {
				t.Errorf("name in another case: %q, %v", got, err)
			}
		})
	}
}

func TestLargeFolder(t *testing.T) {
	const count = 3000
	name := func(i int) string { return fmt.Sprintf("driver store %d 名前.inf", i*7919%100003) }
	path := ntfstest.Volume(t, 64, func(root string) {
		for i := range count {
			ntfstest.Write(t, root, "inf/"+name(i), []byte(name(i)))
		}
	})
	all := volumeTree(t, openVolume(t, path))
	for i := range count {
		got, err := all.ReadFile("INF/"+strings.ToUpper(name(i)), 100)
		if err != nil || string(got) != name(i) {
			t.Fatalf("%s: %q, %v", name(i), got, err)
		}
	}
	entries, err := all.ReadDir("inf")
	if err != nil || len(entries) != count {
		t.Fatalf("%d names, %v", len(entries), err)
	}
	seen := map[string]bool{}
	for _, e := range entries {
		seen[e.Name] = e.Kind == tree.File
	}
	for i := range count {
		if !seen[name(i)] {
			t.Errorf("%s is not listed", name(i))
		}
	}
	for _, absent := range []string{"inf/driver store", "inf/zzz", "inf/" + name(0) + "x", "nowhere/at/all", "inf/" + name(0) + "/x"} {
		if _, err := all.ReadFile(absent, 100); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: got %v, want %v", absent, err, fs.ErrNotExist)
		}
	}
}

// fragmentFreeSpace fills a volume with files of one cluster and removes every other one. All free space then consists
// of gaps of one cluster. It returns the number of remaining files.
func fragmentFreeSpace(t *testing.T, root string) int {
	t.Helper()
	small := noise(2, 4096)
	made := 0
	for os.WriteFile(filepath.Join(root, fmt.Sprintf("f%d", made)), small, 0o644) == nil {
		made++
	}
	os.Remove(filepath.Join(root, fmt.Sprintf("f%d", made))) // the file that did not fit
	for i := 0; i < made; i += 2 {
		if err := os.Remove(filepath.Join(root, fmt.Sprintf("f%d", i))); err != nil {
			t.Fatal(err)
		}
	}
	return made / 2
}

// The attributes of a file with many fragments are in an attribute list.
func TestFragmentedFile(t *testing.T) {
	big := noise(1, 10<<20)
	path := ntfstest.Volume(t, 32, func(root string) {
		fragmentFreeSpace(t, root)
		ntfstest.Write(t, root, "big", big)
	}, "-c", "4096")
	v := openVolume(t, path)
	checkFiles(t, v, map[string][]byte{"big": big, "f1": noise(2, 4096)})
	f, err := volumeTree(t, v).Open("big")
	if err != nil {
		t.Fatal(err)
	}
	n := f.(*node)
	if _, listed := n.r.findAttribute(typeList, ""); !listed || len(n.data.runs) < 250 {
		t.Errorf("%d runs, attribute list: %v: the test requires at least 250 runs in a list", len(n.data.runs), listed)
	}
	for _, off := range []int64{0, 4095, 1 << 20, 10<<20 - 10} { // some reads cross runs
		got := make([]byte, 10)
		if _, err := f.ReadAt(got, off); err != nil || !bytes.Equal(got, big[off:off+10]) {
			t.Errorf("at %d: %v", off, err)
		}
	}
}

// The master file table has so many fragments that they do not fit into its record.
func TestFragmentedTable(t *testing.T) {
	if testing.Short() {
		t.Skip("takes more than a second")
	}
	want := map[string][]byte{}
	path := ntfstest.Volume(t, 32, func(root string) {
		more := fragmentFreeSpace(t, root) + 6000 // the records of the removed files are reused first
		for i := range more {
			name := fmt.Sprintf("more/%d", i)
			ntfstest.Write(t, root, name, []byte(name))
			if i%50 == 0 || i == more-1 {
				want[name] = []byte(name)
			}
		}
	}, "-c", "4096")
	v := openVolume(t, path)
	checkFiles(t, v, want)
	table, err := v.readRecord(recordMFT)
	if err != nil {
		t.Fatal(err)
	}
	if _, listed := table.findAttribute(typeList, ""); !listed {
		t.Errorf("%d runs without an attribute list: the test requires a list", len(v.mft.runs))
	}
}

func TestCompressedAndSparseFiles(t *testing.T) {
	repeated := bytes.Repeat([]byte("the quick brown fox jumps over the lazy dog. "), 30000)
	mixed := slices.Concat(repeated[:200000], noise(3, 200000), make([]byte, 300000), repeated[:77])
	want := map[string][]byte{
		"packed/text": repeated, "packed/mixed": mixed, "packed/noise": noise(4, 1<<20), "packed/zeros": make([]byte, 1<<20),
		"packed/short": repeated[:5000],
	}
	holes := make([]byte, 5<<20)
	copy(holes[1<<20:], noise(5, 5000))
	copy(holes[len(holes)-7:], "the end")
	path := ntfstest.Volume(t, 64, func(root string) {
		packed := filepath.Join(root, "packed")
		if err := os.Mkdir(packed, 0o755); err != nil {
			t.Fatal(err)
		}
		if out, err := exec.Command("setfattr", "-n", "system.ntfs_attrib_be", "-v", "0x00000800", packed).CombinedOutput(); err != nil {
			t.Fatalf("setfattr: %v: %s", err, out)
		}
		for name, data := range want {
			ntfstest.Write(t, root, name, data)
		}
		f, err := os.Create(filepath.Join(root, "sparse"))
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		f.WriteAt(holes[1<<20:][:5000], 1<<20)
		f.WriteAt([]byte("the end"), int64(len(holes)-7))
	}, "-c", "4096")
	v := openVolume(t, path)
	want["sparse"] = holes
	checkFiles(t, v, want)
	f, err := volumeTree(t, v).Open("packed/text")
	if err != nil {
		t.Fatal(err)
	}
	clusters := int64(0)
	for _, r := range f.(*node).data.runs {
		if r.lcn != hole {
			clusters += r.count
		}
	}
	if clusters*4096 > int64(len(repeated))/2 {
		t.Errorf("%d clusters for %d bytes: the test requires a compressed file", clusters, len(repeated))
	}
	if f, _ := volumeTree(t, v).Open("sparse"); !slices.ContainsFunc(f.(*node).data.runs, func(r run) bool { return r.lcn == hole }) {
		t.Error("the sparse file has no hole, but the test requires one")
	}
}

func TestVolume(t *testing.T) {
	path := ntfstest.Volume(t, 64, func(root string) { ntfstest.Write(t, root, "x", noise(1, 5<<20)) }, "-L", "System größe")
	v := openVolume(t, path)
	info, err := v.Info()
	if err != nil || info != (Info{Label: "System größe", Version: "3.1"}) {
		t.Errorf("volume information %+v, error %v", info, err)
	}
	if closed, err := v.LogClosed(); err != nil || !closed {
		t.Errorf("journal closed: %v, %v", closed, err)
	}
	usage, err := v.Usage()
	if err != nil || usage != usageByNTFSInfo(t, path) {
		t.Errorf("usage %+v, ntfsinfo reports %+v, error %v", usage, usageByNTFSInfo(t, path), err)
	}
	if out, err := exec.Command("ntfsfix", "-n", path).CombinedOutput(); err != nil {
		t.Errorf("ntfsfix: %v: %s", err, out)
	}
}

// usageByNTFSInfo returns the usage of a volume that ntfsinfo reports.
func usageByNTFSInfo(t *testing.T, path string) tree.Usage {
	t.Helper()
	out, err := exec.Command("ntfsinfo", "-m", path).Output()
	if err != nil {
		t.Fatalf("ntfsinfo: %v", err)
	}
	number := func(key string) int64 {
		_, rest, _ := strings.Cut(string(out), key+": ")
		var n int64
		if _, err := fmt.Sscan(rest, &n); err != nil {
			t.Fatalf("no %s in the output of ntfsinfo: %s", key, out)
		}
		return n
	}
	cluster := number("Cluster Size")
	return tree.Usage{Size: number("Volume Size in Clusters") * cluster, Free: number("Free Clusters") * cluster}
}
