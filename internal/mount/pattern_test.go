package mount_test

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/decamp/decamp/internal/lab"
	"github.com/decamp/decamp/internal/transport/https"
)

// bytesSent returns the number of bytes of the disk that the lab has sent.
func (r *rig) bytesSent() int64 {
	return r.lab.Stats().Paths["/folder/web 01/web 01-flat.vmdk"].Bytes
}

// openDisk opens the flat file of the disk until the test ends.
func (r *rig) openDisk() *os.File {
	r.Helper()
	f, err := os.Open(r.flatPath())
	if err != nil {
		r.Fatal(err)
	}
	r.Cleanup(func() { f.Close() })
	return f
}

// newGeneratedRig mounts a lab with one generated disk, which needs no storage.
func newGeneratedRig(t *testing.T, d lab.Disk, o rigOptions) *rig {
	t.Helper()
	o.lab.VMs = []lab.VM{{Name: "web 01", ChangeTracking: true, Disks: []lab.Disk{d}}}
	return newRig(t, o)
}

func TestRandomReadsFetchOneBlockEach(t *testing.T) {
	const size, reads = 1 << 30, 300
	r := newGeneratedRig(t, lab.Disk{Capacity: size, Fill: 100, Thick: true}, rigOptions{})
	f, rnd, p := r.openDisk(), rand.New(rand.NewPCG(3, 4)), make([]byte, 4<<10)
	want, err := r.lab.Disk("web 01", 0)
	if err != nil {
		t.Fatal(err)
	}
	good := make([]byte, len(p))
	for range reads {
		off := rnd.Int64N(size/4096) * 4096
		if _, err := f.ReadAt(p, off); err != nil {
			t.Fatal(err)
		}
		if _, err := want.ReadAt(good, off); err != nil && err != io.EOF {
			t.Fatal(err)
		}
		if string(p) != string(good) {
			t.Fatalf("the bytes at %d are wrong", off)
		}
	}
	if got := r.bytesSent() / reads; got > 64<<10 {
		t.Errorf("each read of 4 KiB fetched %d bytes, want at most 64 KiB", got)
	}
}

func TestRepeatedReadsUseCache(t *testing.T) {
	r := newGeneratedRig(t, lab.Disk{Capacity: 1 << 30, Fill: 100, Thick: true}, rigOptions{})
	f, p := r.openDisk(), make([]byte, 4<<10)
	for range 3 {
		for i := range int64(50) {
			if _, err := f.ReadAt(p, i*(20<<20)+i*4096); err != nil {
				t.Fatal(err)
			}
		}
	}
	if got := r.bytesSent(); got > 50*64<<10 {
		t.Errorf("repeated reads at 50 offsets fetched %d bytes, want at most 64 KiB each", got)
	}
}

// A sequential reader of a slow host reads ahead over several connections. The host is slow until they are open.
func TestSequentialReadUsesSeveralConnections(t *testing.T) {
	if testing.Short() {
		t.Skip("takes more than a second")
	}
	slow := lab.Limits{DatastoreRate: 4 << 20}
	r := newGeneratedRig(t, lab.Disk{Capacity: 96 << 20, Fill: 100, Thick: true}, rigOptions{lab: lab.Config{Limits: slow}})
	f := r.openDisk()
	ended := make(chan error, 1)
	go func() {
		n, err := io.CopyBuffer(io.Discard, onlyReader{f}, make([]byte, 1<<20))
		if err == nil && n != 96<<20 {
			err = fmt.Errorf("the file has %d bytes", n)
		}
		ended <- err
	}()
	for r.lab.Stats().ConnsPeak < 6 && len(ended) == 0 { // the session uses some connections
		time.Sleep(time.Millisecond)
	}
	r.lab.SetLimits(lab.Limits{})
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	if peak := r.lab.Stats().ConnsPeak; peak < 6 {
		t.Errorf("peak of %d connections, want at least 6", peak)
	}
	if got := r.bytesSent(); got > 97<<20 {
		t.Errorf("a read of 96 MiB fetched %d bytes, want at most 97 MiB", got)
	}
}

// onlyReader hides all methods but Read, so that io.Copy uses Read.
type onlyReader struct{ io.Reader }

func TestHolesAreNotFetched(t *testing.T) {
	if testing.Short() {
		t.Skip("takes more than a second")
	}
	r := newGeneratedRig(t, lab.Disk{Capacity: 1 << 30, Fill: 4, Seed: 5}, rigOptions{})
	disk, err := r.lab.Disk("web 01", 0)
	if err != nil {
		t.Fatal(err)
	}
	r.mustRunTool("cp", "--sparse=always", r.flatPath(), filepath.Join(t.TempDir(), "out"))
	if got := r.bytesSent(); got > disk.Allocated+disk.Allocated/20+4<<20 {
		t.Errorf("a copy of %d allocated bytes fetched %d bytes", disk.Allocated, got)
	}
}

func TestSeekFindsDataAndHoles(t *testing.T) {
	raw := filepath.Join(t.TempDir(), "raw")
	f, err := os.Create(raw)
	if err != nil {
		t.Fatal(err)
	}
	for _, at := range []int64{0, 10 << 20, 63 << 20} {
		if _, err := f.WriteAt(make([]byte, 1<<20), at); err != nil { // zeros, but allocated on the host
			t.Fatal(err)
		}
	}
	if err := errors.Join(f.Truncate(64<<20), f.Close()); err != nil {
		t.Fatal(err)
	}
	r := newDiskRig(t, raw, rigOptions{})
	fd := int(r.openDisk().Fd())
	for _, c := range []struct {
		off    int64
		whence int
		want   int64
	}{
		{0, unix.SEEK_DATA, 0}, {0, unix.SEEK_HOLE, 1 << 20}, {1 << 20, unix.SEEK_DATA, 10 << 20},
		{5 << 20, unix.SEEK_HOLE, 5 << 20}, {11 << 20, unix.SEEK_DATA, 63 << 20}, {63 << 20, unix.SEEK_HOLE, 64 << 20},
	} {
		if got, err := unix.Seek(fd, c.off, c.whence); err != nil || got != c.want {
			t.Errorf("from %d, whence %d: got %d (%v), want %d", c.off, c.whence, got, err, c.want)
		}
	}
	if _, err := unix.Seek(fd, 64<<20, unix.SEEK_DATA); err != unix.ENXIO {
		t.Errorf("SEEK_DATA at the end: error %v, want ENXIO", err)
	}
}

// If the map omits data at the end of the disk, which is always sampled, the map is not used and all data is read.
func TestIncompleteMapIsNotUsed(t *testing.T) {
	raw := newImage(t, 64<<20, 21)
	f, err := os.OpenFile(raw, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt([]byte("data"), 64<<20-4); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	r := newRig(t, rigOptions{lab: lab.Config{VMs: []lab.VM{{Name: "web 01", ChangeTracking: true, Disks: []lab.Disk{
		{File: raw, Hide: []lab.Span{{Offset: 32 << 20, Length: 32 << 20}}},
	}}}}})
	r.requireSameContent(raw, r.flatPath())
}

func TestConcurrentReadersOfManyFiles(t *testing.T) {
	var disks []lab.Disk
	var raws []string
	for i := range 4 {
		raws = append(raws, newImage(t, 24<<20, uint64(30+i)))
		disks = append(disks, lab.Disk{File: raws[i]})
	}
	r := newRig(t, rigOptions{
		lab:   lab.Config{VMs: []lab.VM{{Name: "web 01", ChangeTracking: true, Disks: disks}}},
		https: https.Options{MaxConnections: 3},
	})
	var readers sync.WaitGroup
	for i, raw := range raws {
		name := r.flatPath()
		if i > 0 {
			name = r.filePath(fmt.Sprintf("web 01/web 01_%d-flat.vmdk", i))
		}
		for range 3 {
			readers.Go(func() {
				if msg, err := r.runTool("cmp", raw, name); err != nil {
					t.Errorf("%v: %s", err, msg)
				}
			})
		}
	}
	readers.Wait()
}
