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

// The power is cut while a host writes: before, during or after a write, zero or sync of the image, or
// between two writes of the host. Each sector that was not synced survives or not, and the last record of
// the manifest is torn or followed by garbage. The manifest then lists only chunks that the image holds,
// and the last run completes the disk. Server, engine, image.Job and client are the real ones, in this process.
// The crash tests of package manifest prove that its records are durable when the calls return.
func TestPowerCutCorruptsNoData(t *testing.T) {
	runSeeds(t, killCount(t, quickKills, longKills), func(t *testing.T, seed uint64) int {
		p := newProgram(seed)
		rnd := newRand(seed, forDeath)
		c := &powerCutTest{
			T: t, host: newHost(p, seed), rnd: rnd,
			victimOrders: victimOrders{Dir: t.TempDir(), Names: t.TempDir(), Size: p.size, Address: testAddress(t)},
		}
		c.medium = newMedium(p.size, filepath.Join(c.Dir, "disk.manifest"), newRand(seed, forMedium))
		t.Cleanup(c.host.abandon)
		died := 0
		for range 1 + rnd.IntN(4) {
			if rnd.IntN(2) == 0 {
				c.host.onStep(rnd.IntN(p.stepCount()), c.medium.cutPower)
			} else {
				c.medium.cutAt = 1 + rnd.IntN(14*int(p.size>>20))
			}
			if !c.landUntilCut() {
				break
			}
			died++
		}
		if !c.landed {
			c.landUntilCut()
		}
		c.checkLanded()
		return died
	})
}

// powerCutTest lands one disk on a server that loses its power.
type powerCutTest struct {
	*testing.T
	victimOrders
	host   *esxi
	medium *medium
	rnd    *rand.Rand
	landed bool
}

func (c *powerCutTest) imageJob() image.Job {
	return image.Job{Opener: c.medium, Path: "the image", Manifest: c.medium.path, Info: manifestInfo(c.Size)}
}

// landUntilCut lands the disk until the power is cut, and reports whether it was cut.
func (c *powerCutTest) landUntilCut() bool {
	c.Helper()
	begun := len(c.host.allCopies())
	err := c.landDisk(c.Context(), c.imageJob(), &powerCutHost{landingHost{c.host}, c.medium}, func(t disk.Target) disk.Target { return t })
	c.host.onStep(-1, nil)
	left := c.medium.remains
	if left == nil {
		must(c.T, err)
		c.landed = true
		return false
	}
	if err == nil {
		c.Fatal("the disk landed after the power cut")
	}
	for _, copy := range c.host.allCopies()[begun:] {
		<-copy.ended // the result does not matter after the power cut
	}
	left.manifest = c.tearManifest(left.manifest)
	log := openBytes(c.T, left.manifest)
	defer log.Close()
	c.medium = c.medium.reboot(c.T, left)
	wantListed(c.T, log, mediumReader{c.medium})
	return true
}

// tearManifest returns a state that a power cut may leave of the manifest b: its end may be cut off, and
// garbage may follow.
func (c *powerCutTest) tearManifest(b []byte) []byte {
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

// cutTail cuts off the end of a manifest. It keeps b if the cut would restore a dropped chunk: the record of
// a drop is durable before the image is changed.
func (c *powerCutTest) cutTail(b []byte) []byte {
	c.Helper()
	const most = 100
	shorter := b[:len(b)-c.rnd.IntN(min(most, len(b)))]
	whole := openBytes(c.T, b)
	defer whole.Close()
	path := filepath.Join(c.TempDir(), "torn")
	must(c.T, os.WriteFile(path, shorter, 0o600))
	torn, err := manifest.Open(path)
	if err != nil {
		return b // the cut removed the header, which is durable before any other record
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

// checkLanded fails unless the disk verifies, equals the host's disk and is durable.
func (c *powerCutTest) checkLanded() {
	c.Helper()
	_, err := c.imageJob().Verify(c.Context(), manifest.VerifyOptions{NoSums: true})
	must(c.T, err)
	wantDisk(c.T, mediumReader{c.medium}, c.host.expectedDisk())
	if !bytes.Equal(c.medium.durable, c.medium.current) {
		c.Error("the disk landed, but part of it would not survive a power cut")
	}
}

// powerCutHost is a landingHost that is unreachable after the power cut, so that its datastore stays mounted.
type powerCutHost struct {
	landingHost
	medium *medium
}

func (m *powerCutHost) UnmountNAS(ctx context.Context, host inventory.MoRef, n esx.NAS) error {
	m.medium.mu.Lock()
	gone := m.medium.remains != nil
	m.medium.mu.Unlock()
	if gone {
		return fmt.Errorf("unmount %s: %w", n.Name, errNoPower)
	}
	return m.landingHost.UnmountNAS(ctx, host, n)
}
