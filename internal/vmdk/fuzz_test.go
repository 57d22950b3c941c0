package vmdk

import (
	"bytes"
	"runtime"
	"testing"

	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/vmdk/vmdktest"
)

const (
	// maxFuzzRuns is the number of runs of a fuzzed disk that are checked in each range.
	maxFuzzRuns = 5000

	// maxFuzzAlloc limits the bytes that opening and reading a hostile file may allocate in addition
	// to its size: the tables of one pass over it.
	maxFuzzAlloc = 64 << 20

	// maxSampleSeed is the number of bytes of a sample that become a seed.
	maxSampleSeed = 256 << 10
)

func FuzzSparse(f *testing.F) {
	whole := setNewlines(miniSparse(7))
	f.Add(whole)
	f.Add(patched(whole, 2*512, uint32(1<<31)))
	f.Add(patched(whole, 12, uint64(1<<50)))
	f.Add(patched(whole, 20, uint64(1)))
	f.Add(patched(whole, 20, uint64(1<<19))) // the last grain extends far past the end of the file
	embedded := patched(whole, 28, uint64(len(whole)/disk.SectorSize), uint64(1))
	embedded = append(embedded, descriptorText(1, NoParent, "", `RW 63 SPARSE "x"`, `RW 5 ZERO`)...)
	f.Add(append(embedded, make([]byte, disk.SectorSize)...))
	fuzzDisk(f)
}

func FuzzCOWD(f *testing.F) {
	f.Add(miniCOWD())
	f.Add(patched(miniCOWD(), 16, uint32(8)))
	f.Add(patched(miniCOWD(), 12, uint32(1<<32-1)))
	fuzzDisk(f)
}

func FuzzSESparse(f *testing.F) {
	f.Add(miniSESparse())
	f.Add(patched(miniSESparse(), 16, uint64(1<<37)))
	f.Add(patched(miniSESparse(), 68*512+24, uint64(0x2fffffffffffffff)))
	fuzzDisk(f)
}

// fuzzDisk opens the fuzzed bytes as a disk. Their signature selects the format.
func fuzzDisk(f *testing.F) {
	for _, head := range vmdktest.SampleHeads(f, maxSampleSeed) {
		f.Add(head)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		readHostile(t, b)
		runtime.ReadMemStats(&after)
		if n := after.TotalAlloc - before.TotalAlloc; n > maxFuzzAlloc+uint64(len(b)) {
			t.Errorf("a file of %d bytes caused %d bytes of allocations", len(b), n)
		}
	})
}

// readHostile reads a disk that may be damaged in any way. Errors are allowed. If the disk opens, its runs
// and its content must be consistent.
func readHostile(t *testing.T, b []byte) {
	d, err := Open(t.Context(), memFiles{"x": b}, "x", Options{})
	if err != nil {
		checkHostile(t, "open", err)
		return
	}
	defer d.Close()
	for _, r := range []disk.Range{{Len: d.Size()}, {Off: d.Size() / 2, Len: d.Size() - d.Size()/2}} {
		checkRuns(t, d, r, int64(len(b)))
	}
	n := min(d.Size(), 1<<20)
	for _, off := range []int64{0, min(d.Size()/3, d.Size()-n), min(777, d.Size()-n), d.Size() - n} {
		checkContent(t, d, b, disk.Range{Off: off, Len: n})
	}
}

func checkHostile(t *testing.T, doing string, err error) {
	t.Helper()
	if k := fault.KindOf(err); k == fault.Internal || k == fault.Transient || fault.HintOf(err) == "" {
		t.Errorf("%s: %v (%v, hint %q)", doing, err, k, fault.HintOf(err))
	}
}

// checkRuns requires runs without gaps whose data begins in the file.
func checkRuns(t *testing.T, d *Disk, r disk.Range, size int64) {
	t.Helper()
	next, count := r.Off, 0
	err := d.Runs(t.Context(), r, func(run Run) bool {
		if run.Off != next || run.Len <= 0 || run.End() > r.End() {
			t.Errorf("run %+v follows offset %d", run, next)
		}
		if run.Kind == Data && (run.At < 0 || run.At >= size) {
			t.Errorf("run %+v in a file of %d bytes", run, size)
		}
		next = run.End()
		count++
		return count < maxFuzzRuns && !t.Failed()
	})
	if err != nil {
		checkHostile(t, "walk", err)
	} else if next != r.End() && count < maxFuzzRuns && !t.Failed() {
		t.Errorf("runs end at %d, want the end of %v", next, r)
	}
}

// checkContent compares the bytes that ReadAt returns with the runs.
func checkContent(t *testing.T, d *Disk, file []byte, r disk.Range) {
	t.Helper()
	got := make([]byte, r.Len)
	if err := d.ReadAt(t.Context(), got, r.Off); err != nil {
		checkHostile(t, "read", err)
		return
	}
	want := make([]byte, r.Len)
	packed := false
	err := d.Runs(t.Context(), r, func(run Run) bool {
		packed = packed || run.Packed > 0
		if run.Kind == Data {
			copy(want[run.Off-r.Off:run.End()-r.Off], file[run.At:])
		}
		return true
	})
	if err != nil || !packed && !bytes.Equal(got, want) {
		t.Errorf("content of %v differs from its runs, error %v", r, err)
	}
}
