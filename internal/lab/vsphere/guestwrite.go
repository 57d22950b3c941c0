package vsphere

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"
)

// Writes makes a guest change its disks while it runs. The writes depend only on the seed: the nth
// write is the same in every emulator. Their number depends on Rate and time, or on Lab.GuestWrites.
type Writes struct {
	Seed   uint64 `json:"seed,omitempty"`   // seed of positions, lengths and data
	Rate   Bytes  `json:"rate,omitempty"`   // bytes per second of real time; 0 allows only Lab.GuestWrites
	Spread int    `json:"spread,omitempty"` // percent of each disk that is written to; default 10
	AtStop int    `json:"atStop,omitempty"` // number of writes when the VM is switched off, as of a cache
}

const (
	maxWritePages = 64                    // a write has 4 KiB to 256 KiB
	guestTick     = 10 * time.Millisecond // interval of writes by the clock
)

// A guestWriter executes the writes of one machine.
type guestWriter struct {
	m     *machine   // machine whose disks are written
	rnd   *rand.Rand // source of positions and lengths; machine.writing must be held
	count uint64     // number of writes; machine.writing must be held

	mu   sync.Mutex    // guards stop and done
	stop chan struct{} // closed to end writing by the clock; nil while it does not run
	done chan struct{} // closed when writing by the clock has ended
}

// newGuestWriter returns a writer that does not run. The VM's name is part of the seed.
func newGuestWriter(m *machine) *guestWriter {
	return &guestWriter{m: m, rnd: rand.New(rand.NewPCG(m.spec.Guest.Writes.Seed, hashSeed(m.spec.Name)))}
}

// hashSeed returns a seed derived from a name.
func hashSeed(s string) (n uint64) {
	for _, b := range hashOf(s, 8) {
		n = n<<8 | uint64(b)
	}
	return n
}

// writeOnce executes the next write and returns its length. machine.writing must be held.
func (g *guestWriter) writeOnce() int64 {
	m := g.m
	if len(m.disks) == 0 {
		return 0
	}
	d := m.disks[g.rnd.IntN(len(m.disks))]
	pages := d.size.Load() / pageSize
	length := min(pages, 1+g.rnd.Int64N(maxWritePages))
	spread := m.spec.Guest.Writes.Spread
	if spread == 0 {
		spread = 10
	}
	room := max(1, pages*int64(spread)/100-length+1)
	first := g.rnd.Int64N(room)
	if g.rnd.IntN(2) == 1 { // half of them at the end of the disk
		first = max(0, pages-length-first)
	}
	g.count++
	stamp := mixBits(g.count^m.spec.Guest.Writes.Seed) | 1
	kind := g.rnd.IntN(20)
	for n := first; n < first+length; n++ {
		p := page{stamp: stamp}
		switch {
		case kind < 2: // zeros or a discard: both are changes for change tracking
			p = page{}
		case kind == 2: // the same bytes again: a write that changes nothing
			var known bool
			if p, known = d.activeView().findPage(n); !known {
				continue // these bytes belong to the base
			}
		}
		d.putPage(n, p)
	}
	d.changes.recordWrite(first*pageSize, length*pageSize)
	return length * pageSize
}

// putPage writes a page to the last link.
func (d *vdisk) putPage(number int64, p page) {
	links := d.currentLinks()
	links[len(links)-1].layer.putPage(number, p)
}

// startClock starts to write by the clock. It does nothing if Writes.Rate is 0.
func (g *guestWriter) startClock() {
	rate := int64(g.m.spec.Guest.Writes.Rate)
	g.mu.Lock()
	defer g.mu.Unlock()
	if rate == 0 || g.stop != nil { // disabled, or running already
		return
	}
	stop, done := make(chan struct{}), make(chan struct{})
	g.stop, g.done = stop, done
	go func() {
		defer close(done)
		g.writeByClock(rate, stop)
	}()
}

// writeByClock writes rate bytes per second until stop is closed.
func (g *guestWriter) writeByClock(rate int64, stop <-chan struct{}) {
	tick := time.NewTicker(guestTick)
	defer tick.Stop()
	began, written := time.Now(), int64(0)
	for {
		select {
		case <-stop:
			return
		case <-tick.C:
		}
		due := int64(float64(rate) * time.Since(began).Seconds())
		for written < due {
			g.m.writing.Lock()
			written += g.writeOnce()
			g.m.writing.Unlock()
			select {
			case <-stop:
				return
			default:
			}
		}
	}
}

// stopClock ends writing by the clock and waits for the last write.
func (g *guestWriter) stopClock() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.stop != nil {
		close(g.stop)
		<-g.done
		g.stop, g.done = nil, nil
	}
}

// onPower is called when the machine is switched on or off, before clients can see the new state.
func (g *guestWriter) onPower(on bool) {
	if on {
		g.startClock()
		return
	}
	g.stopClock() // no write is in progress after this
	g.m.writing.Lock()
	defer g.m.writing.Unlock()
	for range g.m.spec.Guest.Writes.AtStop {
		g.writeOnce()
	}
}

// growTo sets a larger capacity. machine.writing must be held.
func (d *vdisk) growTo(size int64) error {
	switch {
	case size%growUnit != 0 || size <= d.size.Load():
		return fmt.Errorf("grow to %d: want more than %d, a multiple of 1 KiB", size, d.size.Load())
	case len(d.currentLinks()) > 1: // a delta has the capacity of its base
		return errors.New("a disk with snapshots cannot grow")
	}
	d.size.Store(size)
	d.changes.growDisk()
	return d.writeLink(d.currentLinks()[0])
}

// growUnit is the unit of capacities in the API, in bytes.
const growUnit = 1024
