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

// fullDisk returns a program that writes a whole disk of mib MiB in writes of each bytes.
func fullDisk(mib, each int64) *program {
	p := &program{size: mib << 20}
	p.addResize(p.size)
	r := round{resize: -1}
	for off := int64(0); off < p.size; off += each {
		r.writes = append(r.writes, write{disk.Range{Off: off, Len: each}, uint64(off) | 1})
	}
	p.rounds = append(p.rounds, r)
	return p
}

// landingTest lands a disk on a test file system, in this process.
type landingTest struct {
	*killTest
}

func newLandingTest(t *testing.T, dir string, p *program, seed uint64) *landingTest {
	o := victimOrders{Dir: dir, Names: t.TempDir(), Format: image.Raw, Size: p.size, Address: testAddress(t)}
	d := &landingTest{&killTest{T: t, victimOrders: o, host: newHost(p, seed)}}
	t.Cleanup(d.host.abandon)
	return d
}

func sameTarget(t disk.Target) disk.Target { return t }

// tryLanding lands the disk and records whether it landed.
func (d *landingTest) tryLanding() error {
	err := d.landDisk(d.Context(), d.imageJob(), landingHost{d.host}, sameTarget)
	d.landed = err == nil
	return err
}

// wantFault fails unless err has the kind and a hint.
func wantFault(t *testing.T, err error, kind fault.Kind) {
	t.Helper()
	if !fault.Is(err, kind) || fault.HintOf(err) == "" {
		t.Fatalf("error %v of kind %v with hint %q, want kind %v and a hint", err, fault.KindOf(err), fault.HintOf(err), kind)
	}
}

// If the file system of the image fills up, the copy fails with fault.Full, and the image holds all chunks that the
// manifest lists. When there is room again, the same command completes the disk.
func TestLandingResumesAfterFullDestination(t *testing.T) {
	type place struct {
		*testFS
		makeRoom func()
	}
	for name, fill := range map[string]func(*testing.T) place{
		"tmpfs": func(t *testing.T) place {
			s := newTmpfs(t, "10m")
			return place{s, func() { s.resize("64m") }}
		},
		"ext4": func(t *testing.T) place {
			s := newExt4(t, 64<<20)
			return place{s, s.fillExcept(12 << 20)}
		},
	} {
		t.Run(name, func(t *testing.T) {
			where := fill(t)
			d := newLandingTest(t, where.dir, fullDisk(24, ioSize), 1)
			wantFault(t, d.tryLanding(), fault.Full)
			d.checkManifest()
			where.makeRoom()
			must(t, d.tryLanding())
			d.checkLanded()
		})
	}
}

// fillExcept fills a file system except for left bytes, and returns a function that removes the filling.
func (s *testFS) fillExcept(left int64) func() {
	s.Helper()
	var st unix.Statfs_t
	must(s.T, unix.Statfs(s.dir, &st))
	f, err := os.Create(filepath.Join(s.dir, "ballast"))
	must(s.T, err)
	defer f.Close()
	must(s.T, unix.Fallocate(int(f.Fd()), 0, 0, int64(st.Bavail)*st.Bsize-left))
	return func() { must(s.T, os.Remove(f.Name())) }
}

// Number of shutdowns of a file system without and with -tags slow.
const (
	quickShutdowns = 8
	longShutdowns  = 200
)

// If the file system of the image fails suddenly, as when a disk fails, a cable is pulled or the power is
// cut, the copy fails with fault.Unreachable. When the file system is back, the image holds all chunks that
// the manifest lists, and the same command completes the disk.
func TestDestinationFailsDuringCopy(t *testing.T) {
	requireRoot(t)
	runSeeds(t, killCount(t, quickShutdowns, longShutdowns), func(t *testing.T, seed uint64) int {
		p := newProgram(seed)
		rnd := newRand(seed, forDeath)
		s := newExt4(t, 32<<20)
		d := newLandingTest(t, s.dir, p, seed)
		if rnd.IntN(3) == 0 {
			d.Format = image.QCOW2
		}
		died := 0
		for range 1 + rnd.IntN(3) {
			d.host.onStep(rnd.IntN(p.stepCount()), func() { must(t, s.shutDown()) })
			err := d.tryLanding()
			if d.host.onStep(-1, nil); d.landed {
				break
			}
			wantFault(t, err, fault.Unreachable)
			died++
			s.remount()
			d.checkManifest()
		}
		if !d.landed {
			must(t, d.tryLanding())
		}
		s.remount() // the landed disk must be on the device
		d.checkLanded()
		return died
	})
}

// If the file system of the image is detached during the copy, the copy may continue in the hidden file
// system, but no complete disk is found at the path of the image.
func TestDestinationUnmountedDuringCopy(t *testing.T) {
	s := newTmpfs(t, "64m")
	d := newLandingTest(t, s.dir, fullDisk(8, ioSize), 3)
	d.host.onStep(60, func() { must(t, unix.Unmount(s.dir, unix.MNT_DETACH)); s.mounted = false })
	err := d.tryLanding()
	if err == nil {
		_, err = d.imageJob().Opener.Read(context.Background())
	}
	if err == nil {
		t.Fatal("the disk landed on a detached file system, want an error")
	}
}

// If a thin-provisioned disk runs out of room after decamp land has acknowledged the writes, decamp land
// exits with an error: the writes were only in the page cache.
func TestLandReportsLostWrites(t *testing.T) {
	pool := newTmpfs(t, "8m")
	thin := newExt4In(t, pool.dir, 64<<20)
	l := newLandIn(t, thin.dir, testAddress(t), portmapPort)
	ds := l.mount(newHost(fullDisk(1, ioSize), 2).cfg)
	f, err := ds.Create(t.Context(), "web01-flat.vmdk")
	must(t, err)
	if err := errors.Join(fullDisk(24, ioSize).play(t.Context(), f, func() {}), f.Close(t.Context())); err != nil {
		t.Logf("the host got an error: %v", err)
	}
	ds.Abandon()
	must(t, l.cmd.Process.Signal(syscall.SIGTERM))
	var exit *exec.ExitError
	if err := l.cmd.Wait(); !errors.As(err, &exit) {
		t.Errorf("decamp land ended with %v, want an exit error: most of the file is not on the disk", err)
	}
}
