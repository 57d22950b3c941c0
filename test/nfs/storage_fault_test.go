package nfs

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/image"
)

// fullDisk is a program of a disk of so many MiB that is allocated as a whole, in writes
// of so many bytes.
func fullDisk(mib, each int64) *program {
	p := &program{size: mib << 20}
	p.resize(p.size)
	r := round{resize: -1}
	for off := int64(0); off < p.size; off += each {
		r.writes = append(r.writes, write{disk.Range{Off: off, Len: each}, uint64(off) | 1})
	}
	p.rounds = append(p.rounds, r)
	return p
}

// destination is a disk that lands on a file system of the test's, in this process.
type destination struct {
	*killing
}

func newDestination(t *testing.T, dir string, p *program, seed uint64) *destination {
	o := orders{Dir: dir, Names: t.TempDir(), Format: image.Raw, Size: p.size, Address: address(t)}
	d := &destination{&killing{T: t, orders: o, host: newHost(p, seed)}}
	t.Cleanup(d.host.abandon)
	return d
}

func asItIs(t disk.Target) disk.Target { return t }

// try lands the disk.
func (d *destination) try() error {
	err := d.land(d.Context(), d.job(), at{d.host}, asItIs)
	d.landed = err == nil
	return err
}

// wantFault fails unless err has that kind, and a remedy.
func wantFault(t *testing.T, err error, kind fault.Kind) {
	t.Helper()
	if !fault.Is(err, kind) || fault.HintOf(err) == "" {
		t.Fatalf("error %v of kind %v with the remedy %q, want kind %v and a remedy", err, fault.KindOf(err), fault.HintOf(err), kind)
	}
}

// The image's file system fills up, by the disk itself or by others. The copy fails, the
// person is told, nothing that is listed is lost, and once there is room the same command
// goes on.
func TestFullDestinationGoesOnOnceThereIsRoom(t *testing.T) {
	type place struct {
		*storage
		room func()
	}
	for name, fill := range map[string]func(*testing.T) place{
		"tmpfs": func(t *testing.T) place {
			s := newTmpfs(t, "10m")
			return place{s, func() { s.resize("64m") }}
		},
		"ext4": func(t *testing.T) place {
			s := newExt4(t, 64<<20)
			return place{s, s.ballast(12 << 20)}
		},
	} {
		t.Run(name, func(t *testing.T) {
			where := fill(t)
			d := newDestination(t, where.dir, fullDisk(24, ioSize), 1)
			wantFault(t, d.try(), fault.Full)
			d.check()
			where.room()
			must(t, d.try())
			d.end()
		})
	}
}

// ballast fills a file system but for so many bytes, and returns how to take it away.
func (s *storage) ballast(left int64) func() {
	s.Helper()
	var st unix.Statfs_t
	must(s.T, unix.Statfs(s.dir, &st))
	f, err := os.Create(filepath.Join(s.dir, "ballast"))
	must(s.T, err)
	defer f.Close()
	must(s.T, unix.Fallocate(int(f.Fd()), 0, 0, int64(st.Bavail)*st.Bsize-left))
	return func() { must(s.T, os.Remove(f.Name())) }
}

// How often a file system is shut down where there is little time, and where there is
// enough.
const (
	quickShutdowns = 8
	longShutdowns  = 200
)

// The image's file system is gone from one moment to the next, with all that it had not
// written: a disk that fails, a cable that is pulled, a power cut. The copy fails, the
// person is told; once the file system is back, the image holds what the manifest lists,
// and the same command goes on.
func TestDestinationThatGoesAway(t *testing.T) {
	needRoot(t)
	eachSeed(t, kills(t, quickShutdowns, longShutdowns), func(t *testing.T, seed uint64) int {
		p := newProgram(seed)
		rnd := generator(seed, forDeath)
		s := newExt4(t, 32<<20)
		d := newDestination(t, s.dir, p, seed)
		if rnd.IntN(3) == 0 {
			d.Format = image.QCOW2
		}
		died := 0
		for range 1 + rnd.IntN(3) {
			d.host.onStep(rnd.IntN(p.steps()), func() { must(t, s.shutDown()) })
			err := d.try()
			if d.host.onStep(-1, nil); d.landed {
				break
			}
			wantFault(t, err, fault.Unreachable)
			died++
			s.remount()
			d.check()
		}
		if !d.landed {
			must(t, d.try())
		}
		s.remount() // what landed is on the device
		d.end()
		return died
	})
}

// The file system is unmounted under the copy, by somebody who did not ask whether it is
// in use. The copy may go on, into a file system that nobody sees any more; but nothing is
// taken for a disk that landed.
func TestDestinationThatIsUnmounted(t *testing.T) {
	s := newTmpfs(t, "64m")
	d := newDestination(t, s.dir, fullDisk(8, ioSize), 3)
	d.host.onStep(60, func() { must(t, unix.Unmount(s.dir, unix.MNT_DETACH)); s.mounted = false })
	err := d.try()
	if err == nil {
		_, err = d.job().Opener.Read(context.Background())
	}
	if err == nil {
		t.Fatal("a disk landed on a file system that is gone")
	}
}

// A disk that is provisioned thin runs out of room after decamp land has acknowledged what
// it cannot keep: the page cache had it. That is said in the end, at the latest.
func TestLandSaysWhatNeverReachedTheDisk(t *testing.T) {
	pool := newTmpfs(t, "8m")
	thin := newExt4In(t, pool.dir, 64<<20)
	l := newLandIn(t, thin.dir, address(t), portmapPort)
	ds := l.mount(newHost(fullDisk(1, ioSize), 2).cfg)
	f, err := ds.Create(t.Context(), "web01-flat.vmdk")
	must(t, err)
	if err := errors.Join(fullDisk(24, ioSize).play(t.Context(), f, func() {}), f.Close(t.Context())); err != nil {
		t.Logf("the host was told already: %v", err)
	}
	ds.Abandon()
	must(t, l.cmd.Process.Signal(syscall.SIGTERM))
	var exit *exec.ExitError
	if err := l.cmd.Wait(); !errors.As(err, &exit) {
		t.Errorf("decamp land ended with %v, and the disk lacks most of what landed", err)
	}
}
