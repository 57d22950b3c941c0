package differential

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/decamp/decamp/test/lane"
)

// quickSeeds is the number of disks of each writer in the quick lane, which takes some seconds.
const quickSeeds = 2

// A testCase is a disk and the image that a writer created of it.
type testCase struct {
	writer writer
	disk   disk
	path   string
	seed   int
}

func (c testCase) String() string {
	return fmt.Sprintf("%s (%s), seed %d, %d bytes, %s", c.writer.name, c.writer.format, c.seed, c.disk.size, filepath.Base(c.path))
}

// readerStats counts the results of a reader.
type readerStats struct {
	Right     int `json:"right"`
	Explained int `json:"explained"` // known differences
	Wrong     int `json:"wrong"`     // images with wrong content, unknown differences
	Refused   int `json:"refused"`   // errors, unknown differences
}

// allDifferencesSeeds is the number of seeds that show each known difference.
const allDifferencesSeeds = 25

func TestAllReadersReadWrittenDisk(t *testing.T) {
	if testing.Short() {
		t.Skip("starts other readers for seconds")
	}
	n := quickSeeds
	if lane.Slow {
		n = 4 * quickSeeds
	}
	if text := os.Getenv("DECAMP_DIFFERENTIAL"); text != "" {
		var err error
		if n, err = strconv.Atoi(text); err != nil || n < 1 {
			t.Fatalf("DECAMP_DIFFERENTIAL=%q: want a number of seeds", text)
		}
	}
	readers, err := startReaders(t.Context(), "../..")
	if err != nil {
		t.Fatal(err)
	}
	run := &comparison{T: t, readers: readers, stats: map[string]*readerStats{}, applied: make([]int, len(knownDifferences))}
	for seed := range n {
		for i, w := range writers() {
			run.compareImage(w, seed, rand.New(rand.NewPCG(uint64(seed), uint64(i))))
		}
	}
	for _, r := range readers {
		if r.closed != nil {
			if err := r.closed(); err != nil {
				t.Errorf("%s: %v", r.name, err)
			}
		}
		if r := run.stats[r.name]; r == nil || r.Right == 0 {
			t.Error("a reader read no image correctly")
		}
	}
	run.reportStats(n)
}

// comparison is one run of all writers and readers.
type comparison struct {
	*testing.T
	readers []reader
	stats   map[string]*readerStats
	applied []int // number of uses of each known difference
}

// compareImage writes a disk with one writer and reads it with all readers.
func (run *comparison) compareImage(w writer, seed int, r *rand.Rand) {
	folder := run.TempDir()
	d, err := newDisk(r, filepath.Join(folder, "content"), randomSize(r))
	c := testCase{writer: w, disk: d, seed: seed}
	if err == nil {
		c.path, err = w.write(run.Context(), r, d, folder)
	}
	if err != nil {
		run.Fatalf("%v: %v", c, err)
	}
	for _, reader := range run.readers {
		if reader.supports(w) {
			run.readImage(c, reader, filepath.Join(folder, "read"))
		}
	}
	if err := os.RemoveAll(folder); err != nil {
		run.Fatal(err)
	}
}

func (run *comparison) readImage(c testCase, by reader, out string) {
	err := by.read(run.Context(), c.writer.format, c.path, out)
	if errors.Is(err, errReaderEnded) {
		run.Fatalf("%v, read by %s: %v", c, by.name, err)
	}
	wrong := false
	if err == nil {
		err = c.disk.compare(out)
		wrong = err != nil
	}
	if rm := os.Remove(out); rm != nil && !errors.Is(rm, os.ErrNotExist) {
		run.Fatal(rm)
	}
	if run.stats[by.name] == nil {
		run.stats[by.name] = &readerStats{}
	}
	if err == nil {
		run.stats[by.name].Right++
		return
	}
	for i, e := range knownDifferences {
		if e.reader == by.name && e.wrongContent == wrong && e.matches(c) {
			run.applied[i]++
			run.stats[by.name].Explained++
			return
		}
	}
	if wrong {
		run.stats[by.name].Wrong++
	} else {
		run.stats[by.name].Refused++
	}
	run.Errorf("%v, read by %s (wrong content: %v): %v", c, by.name, wrong, err)
}

// reportStats logs the results, also for make bench. It reports known differences that did not occur.
func (run *comparison) reportStats(seeds int) {
	text, err := json.Marshal(run.stats)
	if err != nil {
		run.Fatal(err)
	}
	run.Logf("tallies %s", text)
	for i, e := range knownDifferences {
		if run.applied[i] == 0 && seeds >= allDifferencesSeeds {
			run.Errorf("%s: %s: the difference did not occur; remove it from knownDifferences and docs/formats/vmdk.md", e.reader, e.why)
		}
	}
}

// decamp reads disks of more than 2 GiB, which have several files.
func TestPiecesOfTwoGigabytes(t *testing.T) {
	r := rand.New(rand.NewPCG(2, 2))
	for _, sub := range []string{"twoGbMaxExtentSparse", "twoGbMaxExtentFlat"} {
		folder := t.TempDir()
		d, err := newDisk(r, filepath.Join(folder, "content"), 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		d.size = 2<<30 + 5<<20 + 3*sector
		if err := os.Truncate(d.path, d.size); err != nil {
			t.Fatal(err)
		}
		if err := writeTextAt(d.path, "across the pieces", 2<<30-9); err != nil {
			t.Fatal(err)
		}
		path, err := qemuVMDK(t.Context(), r, sub, d.path, folder, "disk.vmdk")
		if err != nil {
			t.Fatal(err)
		}
		out := filepath.Join(folder, "read")
		if err := readFile(t.Context(), "vmdk", path, out); err != nil {
			t.Fatal(err)
		}
		if err := d.compare(out); err != nil {
			t.Errorf("%s: %v", sub, err)
		}
	}
}

func writeTextAt(path, text string, off int64) (err error) {
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteAt([]byte(text), off)
	return errors.Join(err, f.Close())
}

// compare finds each difference, because without that each reader would seem correct.
func TestCompareFindsEveryDifference(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	folder := t.TempDir()
	d, err := newDisk(r, filepath.Join(folder, "content"), 3<<20+5*sector)
	if err != nil {
		t.Fatal(err)
	}
	same := filepath.Join(folder, "same")
	if err := copyChanged(d.path, same, func(b []byte) []byte { return b }); err != nil {
		t.Fatal(err)
	}
	if err := d.compare(same); err != nil {
		t.Errorf("the same disk: %v", err)
	}
	for _, off := range []int{0, sector - 1, 1 << 20, 3<<20 + 5*sector - 1} {
		if err := copyChanged(d.path, same, func(b []byte) []byte { b[off] ^= 1; return b }); err != nil {
			t.Fatal(err)
		}
		if d.compare(same) == nil {
			t.Errorf("compare does not find the difference at byte %d", off)
		}
	}
	if err := copyChanged(d.path, same, func(b []byte) []byte { return b[:len(b)-sector] }); err != nil {
		t.Fatal(err)
	}
	if d.compare(same) == nil {
		t.Error("compare does not find the missing sector")
	}
}

// copyChanged writes a changed copy of a file.
func copyChanged(path, out string, change func([]byte) []byte) error {
	b, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	return os.WriteFile(out, change(b), 0o600)
}
