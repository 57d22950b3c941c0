package nfs

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/esx"
	"github.com/decamp/decamp/internal/image"
	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/manifest"
)

// The power goes while a host writes, before, in or after any write, zero or sync of the
// image, or between any two writes of the host. What was not synced is there or not, sector by sector; the manifest's last record
// is torn, or followed by garbage. Server, engine, image.Job and client are the real ones,
// in this process; that the manifest's records are durable when their calls return is
// proven by the crash tests of package manifest.
func TestPowerCutLeavesNoWrongByte(t *testing.T) {
	eachSeed(t, kills(t, quickKills, longKills), func(t *testing.T, seed uint64) int {
		p := newProgram(seed)
		rnd := generator(seed, forDeath)
		c := &cutting{
			T: t, host: newHost(p, seed), rnd: rnd,
			orders: orders{Dir: t.TempDir(), Names: t.TempDir(), Size: p.size, Address: address(t)},
		}
		c.medium = newMedium(p.size, filepath.Join(c.Dir, "disk.manifest"), generator(seed, forMedium))
		t.Cleanup(c.host.abandon)
		died := 0
		for range 1 + rnd.IntN(4) {
			if rnd.IntN(2) == 0 {
				c.host.onStep(rnd.IntN(p.steps()), c.medium.cut)
			} else {
				c.medium.cutAt = 1 + rnd.IntN(14*int(p.size>>20))
			}
			if !c.run() {
				break
			}
			died++
		}
		if !c.landed {
			c.run()
		}
		c.end()
		return died
	})
}

// cutting is one disk that lands at a server which loses its power.
type cutting struct {
	*testing.T
	orders
	host   *esxi
	medium *medium
	rnd    *rand.Rand
	landed bool
}

func (c *cutting) job() image.Job {
	return image.Job{Opener: c.medium, Path: "the image", Manifest: c.medium.path, Info: info(c.Size)}
}

// run lands the disk until the power goes, and reports whether it went.
func (c *cutting) run() bool {
	c.Helper()
	begun := len(c.host.all())
	err := c.land(c.Context(), c.job(), &mains{at{c.host}, c.medium}, func(t disk.Target) disk.Target { return t })
	c.host.onStep(-1, nil)
	left := c.medium.left
	if left == nil {
		must(c.T, err)
		c.landed = true
		return false
	}
	if err == nil {
		c.Fatal("it landed without power")
	}
	for _, copy := range c.host.all()[begun:] {
		<-copy.ended // with an error or without: nobody is there to believe it
	}
	left.manifest = c.tear(left.manifest)
	log := openBytes(c.T, left.manifest)
	defer log.Close()
	c.medium = c.medium.reboot(c.T, left)
	wantListed(c.T, log, reading{c.medium})
	return true
}

// tear returns a manifest as it may be after a power cut at a moment when it was b: what was
// being appended may be there in part, and after it anything.
func (c *cutting) tear(b []byte) []byte {
	c.Helper()
	if c.rnd.IntN(2) == 0 {
		b = c.cutTail(b)
	}
	if c.rnd.IntN(2) == 0 {
		garbage := make([]byte, c.rnd.IntN(200))
		if c.rnd.IntN(2) == 0 {
			for i := range garbage {
				garbage[i] = byte(c.rnd.Uint32())
			}
		}
		b = append(b[:len(b):len(b)], garbage...)
	}
	return b
}

// cutTail cuts off the end of a manifest, unless that brings back what was dropped: then
// the record was durable, for the image was changed only after that.
func (c *cutting) cutTail(b []byte) []byte {
	c.Helper()
	const most = 100
	shorter := b[:len(b)-c.rnd.IntN(min(most, len(b)))]
	whole := openBytes(c.T, b)
	defer whole.Close()
	path := filepath.Join(c.TempDir(), "torn")
	must(c.T, os.WriteFile(path, shorter, 0o600))
	torn, err := manifest.Open(path)
	if err != nil {
		return b // the header was cut, which is durable before anything else is done
	}
	defer torn.Close()
	for n := range whole.Chunks() {
		was, listed, err := torn.Hash(n)
		must(c.T, err)
		is, still, err := whole.Hash(n)
		must(c.T, err)
		if listed && (!still || is != was) {
			return b
		}
	}
	return shorter
}

// end fails unless the disk is what the host's is, proven, and on the medium.
func (c *cutting) end() {
	c.Helper()
	_, err := c.job().Verify(c.Context(), manifest.VerifyOptions{NoSums: true})
	must(c.T, err)
	wantDisk(c.T, reading{c.medium}, c.host.model())
	if !bytes.Equal(c.medium.durable, c.medium.now) {
		c.Error("the disk landed, and part of it would not survive a power cut")
	}
}

// mains is a host as a machine sees it that may lose its power: then it says nothing to it
// any more, and the host keeps what it has mounted.
type mains struct {
	at
	medium *medium
}

func (m *mains) UnmountNAS(ctx context.Context, host inventory.MoRef, n esx.NAS) error {
	m.medium.mu.Lock()
	gone := m.medium.left != nil
	m.medium.mu.Unlock()
	if gone {
		return fmt.Errorf("unmount %s: %w", n.Name, errNoPower)
	}
	return m.at.UnmountNAS(ctx, host, n)
}
