package nfs

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"

	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/image"
	"github.com/decamp/decamp/internal/lab/nfsclient"
	"github.com/decamp/decamp/internal/manifest"
)

// How often a process is killed where there is little time, and where there is enough.
const (
	quickKills = 20
	longKills  = 1000
)

// The server's process is killed while a host writes, at a moment that the seed says: at,
// in or after one of its writes, zeroes and syncs of the image, or after so many of the
// host's writes. The page cache survives. Each time the manifest lists nothing that the
// image does not hold; the host's copy to a server that is gone fails, and nothing of it
// gets into the next one; and the run that is not killed has the disk, byte for byte.
func TestKilledServerLeavesNoWrongByte(t *testing.T) {
	eachSeed(t, kills(t, quickKills, longKills), func(t *testing.T, seed uint64) int {
		p := newProgram(seed)
		o := orders{Dir: t.TempDir(), Names: t.TempDir(), Format: image.Raw, Size: p.size, Address: address(t)}
		rnd := generator(seed, forDeath)
		if rnd.IntN(4) == 0 {
			o.Format = image.QCOW2
		}
		k := &killing{T: t, orders: o, host: newHost(p, seed)}
		t.Cleanup(k.host.abandon)
		died := 0
		for range 1 + rnd.IntN(4) {
			if rnd.IntN(2) == 0 {
				o.Death = death{At: 1 + rnd.IntN(3*int(p.size>>20)), When: moment(rnd.IntN(int(moments)))}
				k.run(o, -1)
			} else {
				o.Death = death{}
				k.run(o, rnd.IntN(p.steps()+4))
			}
			if k.landed {
				break
			}
			died++
			k.check()
		}
		if o.Death = (death{}); !k.landed {
			k.run(o, -1)
		}
		k.end()
		return died
	})
}

func newHost(p *program, seed uint64) *esxi {
	return &esxi{
		program: p, step: func() {},
		cfg: nfsclient.Config{Seed: seed, Times: quick(), Unstable: seed%3 == 0, Connections: 1 + int(seed%2), Machine: "esx1"},
	}
}

// killing is one disk that lands at a server which is killed.
type killing struct {
	*testing.T
	orders
	host   *esxi
	landed bool
}

// run runs a victim until it has landed the disk or is dead: by its orders, or killed
// before the host's step number steps, if that is not negative.
func (k *killing) run(o orders, steps int) {
	k.Helper()
	v := start(k.T, k.host, o)
	if steps >= 0 {
		k.host.onStep(steps, v.kill)
		defer k.host.onStep(-1, nil)
	}
	begun := len(k.host.all())
	killed, err := v.serve()
	if err != nil {
		k.Fatalf("it failed by itself: %v", err)
	}
	k.landed = !killed
	k.Logf("%s, orders %+v, killed before step %d: killed %v", o.Format, o.Death, steps, killed)
	if killed {
		return
	}
	for _, c := range k.host.all()[begun:] {
		if <-c.ended; c.err != nil {
			k.Fatalf("it landed, and the host's copy failed: %v", c.err)
		}
	}
}

// onStep has something done before a step of the copies that begin from now on, in each of
// them.
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

// check fails unless what the manifest lists is in the image.
func (k *killing) check() {
	k.Helper()
	j := k.job()
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

// openCopy opens a copy of a manifest, if there is one.
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

// wantListed fails unless the image has every chunk that its manifest lists.
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
			t.Fatalf("the manifest lists chunk %d, and the image does not hold it", n)
		}
	}
}

// end fails unless the disk is what the host's is, and proven.
func (k *killing) end() {
	k.Helper()
	if !k.landed {
		k.Fatal("it was killed by nobody")
	}
	k.host.abandon()
	j := k.job()
	_, err := j.Verify(k.Context(), manifest.VerifyOptions{NoSums: true})
	must(k.T, err)
	src, err := j.Opener.Read(k.Context())
	must(k.T, err)
	defer src.Close()
	wantDisk(k.T, src, k.host.model())
}

// wantDisk fails unless a disk holds these bytes.
func wantDisk(t *testing.T, src disk.Source, want []byte) {
	t.Helper()
	if src.Size() != int64(len(want)) {
		t.Fatalf("%d bytes, want %d", src.Size(), len(want))
	}
	got := make([]byte, len(want))
	must(t, src.ReadAt(t.Context(), got, 0))
	wantBytes(t, got, want)
}

func wantBytes(t *testing.T, got, want []byte) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%d bytes, want %d", len(got), len(want))
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
