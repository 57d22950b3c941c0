package vsphere

import (
	"bytes"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// readAll reads c in pieces of random sizes and compares overlapping reads.
func readAll(t *testing.T, c content, rng *rand.Rand) []byte {
	t.Helper()
	whole := make([]byte, c.Size())
	if n, err := c.ReadAt(whole, 0); n != len(whole) || err != nil {
		t.Fatalf("read all: %d, %v", n, err)
	}
	for range 300 {
		off := rng.Int64N(c.Size())
		p := bytes.Repeat([]byte{0xee}, 1+rng.IntN(9000))
		n, err := c.ReadAt(p, off)
		want := whole[off:min(off+int64(len(p)), c.Size())]
		if n != len(want) || (err == io.EOF) != (n < len(p)) || !bytes.Equal(p[:n], want) {
			t.Fatalf("read %d at %d: %d bytes, %v, or the data differs from the whole read", len(p), off, n, err)
		}
	}
	return whole
}

func TestGeneratedDiskIsDeterministicWithUniqueBlocks(t *testing.T) {
	noise := newNoise()
	rng := rand.New(rand.NewPCG(1, 2))
	g := &generated{noise: noise, size: 130<<20 + 512, seed: 3, fill: 40}
	whole := readAll(t, g, rng)
	if again := (&generated{noise: newNoise(), size: g.size, seed: 3, fill: 40}); !bytes.Equal(readAll(t, again, rng), whole) {
		t.Error("disks with the same seed differ")
	}
	other := make([]byte, g.size)
	_, _ = (&generated{noise: noise, size: g.size, seed: 4, fill: 40}).ReadAt(other, 0)
	if bytes.Equal(other, whole) {
		t.Error("disks with different seeds are equal")
	}
	seen := map[string]int64{}
	for off := int64(0); off+blockSize <= g.size; off += blockSize {
		block := string(whole[off : off+blockSize])
		if strings.Trim(block, "\x00") == "" {
			continue
		}
		if at, dup := seen[block]; dup {
			t.Fatalf("blocks at %d and %d are equal", at, off)
		}
		seen[block] = off
	}
}

func TestGeneratedDiskFill(t *testing.T) {
	for _, fill := range []int{0, 1, 10, 50, 90, 100} {
		g := &generated{size: 64 << 30, seed: 9, fill: fill}
		got, err := allocatedBytes(g, runAlign)
		if err != nil {
			t.Fatal(err)
		}
		percent := float64(got) * 100 / float64(g.size)
		if percent < float64(fill)-1 || percent > float64(fill)+1 {
			t.Errorf("fill %d: %.2f %% allocated", fill, percent)
		}
	}
}

func TestGeneratedRunsMatchTheData(t *testing.T) {
	g := &generated{noise: newNoise(), size: 70<<20 + 512, seed: 5, fill: 30}
	whole := make([]byte, g.size)
	_, _ = g.ReadAt(whole, 0)
	covered := make([]bool, g.size/512+1)
	for off := int64(0); off < g.size; {
		start, end, _ := g.nextData(off)
		for s := start; s < end; s += 512 {
			covered[s/512] = true
		}
		off = max(end, off+1)
	}
	for s := int64(0); s < g.size; s += 512 {
		zero := len(bytes.Trim(whole[s:s+512], "\x00")) == 0
		if !covered[s/512] && !zero || covered[s/512] && zero && s%blockSize == 0 {
			t.Fatalf("sector at %d: data %v, in a run %v", s, !zero, covered[s/512])
		}
	}
	if _, end, _ := g.nextData(0); !covered[0] || end == 0 {
		t.Error("the disk does not start with data")
	}
}

func TestRawFileInPlace(t *testing.T) {
	path := filepath.Join(t.TempDir(), "disk.raw")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	data := bytes.Repeat([]byte("data"), 1<<14) // 64 KiB
	for _, off := range []int64{0, 4 << 20, 9<<20 - 300} {
		if _, err := f.WriteAt(data, off); err != nil {
			t.Fatal(err)
		}
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	c, err := openRaw(path, 16<<20)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	whole := readAll(t, c, rand.New(rand.NewPCG(3, 4)))
	if !bytes.Equal(whole[4<<20:4<<20+len(data)], data) || len(bytes.Trim(whole[10<<20:], "\x00")) != 0 {
		t.Error("wrong content")
	}
	at := int64(0)
	for at < c.Size() {
		start, end, err := nextArea(c, at, 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		if hole := whole[at:start]; len(bytes.Trim(hole, "\x00")) != 0 {
			t.Errorf("data in the hole %d to %d", at, start)
		}
		at = end
	}
	if n, _ := allocatedBytes(c, 64<<10); n > 1<<20 {
		t.Errorf("%d bytes allocated, with 192 KiB written", n)
	}
}

func TestRawFileOfAnotherSize(t *testing.T) {
	path := filepath.Join(t.TempDir(), "disk.raw")
	if err := os.WriteFile(path, make([]byte, 1000), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := openRaw(path, 512); err == nil || !strings.Contains(err.Error(), "1000 bytes") {
		t.Errorf("a file larger than the disk: %v", err)
	}
	c, err := openRaw(path, 0)
	if err != nil || c.Size() != 1024 {
		t.Errorf("size %v, %v", c, err)
	}
	c.Close()
	if _, err := openRaw(path+"x", 0); err == nil {
		t.Error("a missing file was opened")
	}
}

// The lab can describe a disk of 6 TiB and read it at any offset.
func TestHugeDisk(t *testing.T) {
	vm := VM{Name: "web01", ChangeTracking: true, Disks: []Disk{{Capacity: 6 << 40, Fill: 50, Seed: 1}}}
	l := startLab(t, Config{CBT: CBT{Granularity: 1 << 20}, VMs: []VM{vm}})
	disk, err := l.Disk("web01", 0)
	if err != nil {
		t.Fatal(err)
	}
	resp, _, err := fetch(t, newClient(t, l), folderRequest(t, l, "GET", folderURL(l, flat), "Range", "bytes=6597069766656-6597069770751"))
	want := make([]byte, 4096)
	if err != nil || resp.StatusCode != 416 { // first byte after the end
		t.Errorf("past the end: %v %v", resp, err)
	}
	resp, got, err := fetch(t, newClient(t, l), folderRequest(t, l, "GET", folderURL(l, flat), "Range", "bytes=6597069762560-"))
	_, _ = disk.ReadAt(want, 6597069762560)
	if err != nil || resp.StatusCode != 206 || !bytes.Equal(got, want) {
		t.Errorf("last block: %v %v", resp, err)
	}
	c := login(t, l)
	web := allVMs(t, c.Client)["web01"]
	first, err := queryAreas(c.Client, web, disk.Key, 0, "*", nil)
	if err != nil || len(first.ChangedArea) != 2000 {
		t.Errorf("first page: %d areas, %v", len(first.ChangedArea), err)
	}
	off := disk.Size - 100<<20
	last, err := queryAreas(c.Client, web, disk.Key, off, "*", nil)
	if err != nil || off+last.Length != disk.Size || len(last.ChangedArea) == 0 {
		t.Errorf("last page: %+v, %v", last, err)
	}
}
