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

// seeds is how many disks each writer writes in the quick lane: some seconds of work.
const seeds = 2

// A testCase is one disk and the image that a writer made of it.
type testCase struct {
	writer writer
	disk   disk
	path   string
	seed   int
}

func (c testCase) String() string {
	return fmt.Sprintf("%s (%s), seed %d, %d bytes, %s", c.writer.name, c.writer.format, c.seed, c.disk.size, filepath.Base(c.path))
}

// tally is how a reader did.
type tally struct {
	Right     int `json:"right"`
	Explained int `json:"explained"` // differences that are on the list
	Wrong     int `json:"wrong"`     // read as another disk, not on the list
	Refused   int `json:"refused"`   // ended with an error, not on the list
}

// enough is how many seeds show every difference on the list.
const enough = 25

func TestEveryReaderSeesTheDiskThatWasWritten(t *testing.T) {
	if testing.Short() {
		t.Skip("starts other readers for seconds")
	}
	n := seeds
	if lane.Slow {
		n = 4 * seeds
	}
	if text := os.Getenv("DECAMP_DIFFERENTIAL"); text != "" {
		var err error
		if n, err = strconv.Atoi(text); err != nil || n < 1 {
			t.Fatalf("DECAMP_DIFFERENTIAL=%q: want a number of seeds", text)
		}
	}
	readers, err := readers(t.Context(), "../..")
	if err != nil {
		t.Fatal(err)
	}
	run := &comparison{T: t, readers: readers, tallies: map[string]*tally{}, used: make([]int, len(explained))}
	for seed := range n {
		for i, w := range writers() {
			run.one(w, seed, rand.New(rand.NewPCG(uint64(seed), uint64(i))))
		}
	}
	for _, r := range readers {
		if r.closed != nil {
			if err := r.closed(); err != nil {
				t.Errorf("%s: %v", r.name, err)
			}
		}
		if r := run.tallies[r.name]; r == nil || r.Right == 0 {
			t.Error("a reader read nothing")
		}
	}
	run.report(n)
}

// comparison is one run of all writers and readers.
type comparison struct {
	*testing.T
	readers []reader
	tallies map[string]*tally
	used    []int // how often each of explained applied
}

// one has a writer write a disk, and all readers read it.
func (run *comparison) one(w writer, seed int, r *rand.Rand) {
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
		if reader.reads(w) {
			run.read(c, reader, filepath.Join(folder, "read"))
		}
	}
	if err := os.RemoveAll(folder); err != nil {
		run.Fatal(err)
	}
}

func (run *comparison) read(c testCase, by reader, out string) {
	err := by.read(run.Context(), c.writer.format, c.path, out)
	if errors.Is(err, errDied) {
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
	if run.tallies[by.name] == nil {
		run.tallies[by.name] = &tally{}
	}
	if err == nil {
		run.tallies[by.name].Right++
		return
	}
	for i, e := range explained {
		if e.reader == by.name && e.wrong == wrong && e.of(c) {
			run.used[i]++
			run.tallies[by.name].Explained++
			return
		}
	}
	if wrong {
		run.tallies[by.name].Wrong++
	} else {
		run.tallies[by.name].Refused++
	}
	run.Errorf("%v, read by %s (another disk: %v): %v", c, by.name, wrong, err)
}

// report logs the tallies, for make bench too, and finds differences that are gone.
func (run *comparison) report(seeds int) {
	text, err := json.Marshal(run.tallies)
	if err != nil {
		run.Fatal(err)
	}
	run.Logf("tallies %s", text)
	for i, e := range explained {
		if run.used[i] == 0 && seeds >= enough {
			run.Errorf("%s: %s: no longer seen, take it off the list and off docs/formats/vmdk.md", e.reader, e.why)
		}
	}
}

// A disk of more than 2 GiB has several files.
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
		if err := scribbleAt(d.path, "across the pieces", 2<<30-9); err != nil {
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

func scribbleAt(path, text string, off int64) (err error) {
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteAt([]byte(text), off)
	return errors.Join(err, f.Close())
}

// A comparison that finds nothing would make every reader right.
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
			t.Errorf("byte %d differs, and nothing was found", off)
		}
	}
	if err := copyChanged(d.path, same, func(b []byte) []byte { return b[:len(b)-sector] }); err != nil {
		t.Fatal(err)
	}
	if d.compare(same) == nil {
		t.Error("a sector is missing, and nothing was found")
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
