package nfs

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/image"
	"github.com/decamp/decamp/internal/lab/nfsclient"
	"github.com/decamp/decamp/internal/manifest"
)

// Number of kills of a process without and with -tags slow.
const (
	quickKills = 20
	longKills  = 1000
)

// The process of the server is killed while a host writes, at a moment that depends on the seed: before,
// during or after a write, zero or sync of the image, or before a step of the host. The page cache
// survives. After each kill the manifest lists only chunks that the image holds. The host's interrupted copy
// does not succeed, and its writes do not get into the next one. The last run completes the disk, byte for byte.
func TestKilledServerCorruptsNoData(t *testing.T) {
	runSeeds(t, killCount(t, quickKills, longKills), func(t *testing.T, seed uint64) int {
		p := newProgram(seed)
		o := victimOrders{Dir: t.TempDir(), Names: t.TempDir(), Format: image.Raw, Size: p.size, Address: testAddress(t)}
		rnd := newRand(seed, forDeath)
		if rnd.IntN(4) == 0 {
			o.Format = image.QCOW2
		}
		k := &killTest{T: t, victimOrders: o, host: newHost(p, seed)}
		t.Cleanup(k.host.abandon)
		died := 0
		for range 1 + rnd.IntN(4) {
			if rnd.IntN(2) == 0 {
				o.Death = killPoint{At: 1 + rnd.IntN(3*int(p.size>>20)), When: killMoment(rnd.IntN(int(momentCount)))}
				k.runVictim(o, -1)
			} else {
				o.Death = killPoint{}
				k.runVictim(o, rnd.IntN(p.stepCount()+4))
			}
			if k.landed {
				break
			}
			died++
			k.checkManifest()
		}
		if o.Death = (killPoint{}); !k.landed {
			k.runVictim(o, -1)
		}
		k.checkLanded()
		return died
	})
}

func newHost(p *program, seed uint64) *esxi {
	return &esxi{
		program: p, step: func() {},
		cfg: nfsclient.Config{Seed: seed, Times: fastTimes(), Unstable: seed%3 == 0, Connections: 1 + int(seed%2), Machine: "esx1"},
	}
}

// killTest lands one disk on a server that is killed.
type killTest struct {
	*testing.T
	victimOrders
	host   *esxi
	landed bool
}

// runVictim runs a victim until the disk has landed or the victim is dead. It kills the victim before step
// number steps of the host, unless steps is negative.
func (k *killTest) runVictim(o victimOrders, steps int) {
	k.Helper()
	v := startVictim(k.T, k.host, o)
	var duringCopy atomic.Bool // the host's copy was not complete when the victim was killed
	if steps >= 0 {
		k.host.onStep(steps, func() {
			duringCopy.Store(true)
			v.kill()
		})
		defer k.host.onStep(-1, nil)
	}
	begun := len(k.host.allCopies())
	killed, err := v.serve()
	if err != nil {
		k.Fatalf("the victim failed before it was killed: %v", err)
	}
	k.landed = !killed
	k.Logf("%s, orders %+v, killed before step %d: killed %v", o.Format, o.Death, steps, killed)
	copies := k.host.allCopies()[begun:]
	if killed {
		if duringCopy.Load() && slices.ContainsFunc(copies, (*runningCopy).hasSucceeded) {
			k.Fatal("the server was killed during the host's copy, but the copy succeeded")
		}
		return
	}
	for _, c := range copies {
		if <-c.ended; c.err != nil {
			k.Fatalf("the disk landed, but the host's copy failed: %v", c.err)
		}
	}
}

// onStep sets a function that runs before step n of the host, counted from 0 over all copies that start
// from now on. A negative n removes it.
func (h *esxi) onStep(n int, do func()) {
	var count atomic.Int64
	h.mu.Lock()
	defer h.mu.Unlock()
	h.step = func() {
		if count.Add(1)-1 == int64(n) {
			do()
		}
	}
}

// checkManifest fails unless the image holds each chunk that the manifest lists.
func (k *killTest) checkManifest() {
	k.Helper()
	j := k.imageJob()
	log, ok := openCopy(k.T, j.Manifest)
	if !ok {
		return
	}
	defer log.Close()
	if log.Missing() == log.Chunks() {
		return
	}
	src, err := j.Opener.ReadUnfinished(k.Context())
	must(k.T, err)
	defer src.Close()
	wantListed(k.T, log, src)
}

// openCopy opens a copy of a manifest. It reports false if the manifest does not exist.
func openCopy(t *testing.T, path string) (*manifest.Log, bool) {
	t.Helper()
	b, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, false
	}
	must(t, err)
	return openBytes(t, b), true
}

func openBytes(t *testing.T, b []byte) *manifest.Log {
	t.Helper()
	path := filepath.Join(t.TempDir(), "manifest")
	must(t, os.WriteFile(path, b, 0o600))
	log, err := manifest.Open(path)
	must(t, err)
	return log
}

// wantListed fails unless the image holds each chunk that the manifest lists.
func wantListed(t *testing.T, log *manifest.Log, src interface {
	ReadAt(ctx context.Context, p []byte, off int64) error
}) {
	t.Helper()
	for n := range log.Chunks() {
		h, ok, err := log.Hash(n)
		must(t, err)
		if !ok {
			continue
		}
		r := log.Info().Chunk(n)
		p := make([]byte, r.Len)
		must(t, src.ReadAt(t.Context(), p, r.Off))
		if manifest.HashOf(p) != h {
			t.Fatalf("the manifest lists chunk %d, but the image does not hold it", n)
		}
	}
}

// checkLanded fails unless the disk has landed, verifies and equals the host's disk.
func (k *killTest) checkLanded() {
	k.Helper()
	if !k.landed {
		k.Fatal("the last victim was killed, want a landed disk")
	}
	k.host.abandon()
	j := k.imageJob()
	_, err := j.Verify(k.Context(), manifest.VerifyOptions{NoSums: true})
	must(k.T, err)
	src, err := j.Opener.Read(k.Context())
	must(k.T, err)
	defer src.Close()
	wantDisk(k.T, src, k.host.expectedDisk())
}

// wantDisk fails unless a disk has the content want.
func wantDisk(t *testing.T, src disk.Source, want []byte) {
	t.Helper()
	if src.Size() != int64(len(want)) {
		t.Fatalf("the disk has %d bytes, want %d", src.Size(), len(want))
	}
	got := make([]byte, len(want))
	must(t, src.ReadAt(t.Context(), got, 0))
	wantBytes(t, got, want)
}

func wantBytes(t *testing.T, got, want []byte) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("got %d bytes, want %d", len(got), len(want))
	}
	if bytes.Equal(got, want) {
		return
	}
	var wrong []int
	for i := range want {
		if got[i] != want[i] {
			wrong = append(wrong, i)
		}
	}
	first, last := wrong[0], wrong[len(wrong)-1]
	t.Fatalf("%d bytes from %d to %d differ; the first is %#02x, want %#02x", len(wrong), first, last, got[first], want[first])
}
