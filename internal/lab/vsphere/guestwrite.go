package vsphere

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"
)

// Writes is a guest that changes its disks while it runs. What it writes follows from the
// seed alone: the nth write of one lab is the nth of another. How many there have been
// depends on Rate and on time, or on Lab.GuestWrites.
type Writes struct {
	Seed   uint64 `json:"seed,omitempty"`
	Rate   Bytes  `json:"rate,omitempty"`   // bytes per second of real time; 0 allows only Lab.GuestWrites
	Spread int    `json:"spread,omitempty"` // percent of each disk that is written to; default 10
	AtStop int    `json:"atStop,omitempty"` // writes more when it is switched off: caches are written back
}

const (
	maxWritePages = 64 // a write is 4 KiB to 256 KiB
	guestTick     = 10 * time.Millisecond
)

// guestWriter makes the writes of one machine.
type guestWriter struct {
	m     *machine
	rnd   *rand.Rand
	count uint64

	mu   sync.Mutex
	stop chan struct{} // not nil while writes are made by the clock; closing it ends them
	done chan struct{}
}

func newGuestWriter(m *machine) *guestWriter {
	return &guestWriter{m: m, rnd: rand.New(rand.NewPCG(m.spec.Guest.Writes.Seed, hashSeed(m.spec.Name)))}
}

func hashSeed(s string) (n uint64) {
	for _, b := range hashOf(s, 8) {
		n = n<<8 | uint64(b)
	}
	return n
}

// writeOnce makes the next write and returns its length. The caller holds the machine's writing.
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
		case kind < 2: // zeros, or a discard: tracking takes both for changes
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

// putPage writes a page to the active link.
func (d *vdisk) putPage(number int64, p page) {
	links := d.currentLinks()
	links[len(links)-1].layer.putPage(number, p)
}

// startClock begins to write by the clock.
func (g *guestWriter) startClock() {
	rate := int64(g.m.spec.Guest.Writes.Rate)
	g.mu.Lock()
	defer g.mu.Unlock()
	if rate == 0 || g.stop != nil {
		return
	}
	stop, done := make(chan struct{}), make(chan struct{})
	g.stop, g.done = stop, done
	go func() {
		defer close(done)
		g.writeByClock(rate, stop)
	}()
}

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

// onPower is called when the machine is switched on or off, before the new state is visible.
func (g *guestWriter) onPower(on bool) {
	if on {
		g.startClock()
		return
	}
	g.stopClock()
	g.m.writing.Lock()
	defer g.m.writing.Unlock()
	for range g.m.spec.Guest.Writes.AtStop {
		g.writeOnce()
	}
}

// growTo needs the machine's writing.
func (d *vdisk) growTo(size int64) error {
	switch {
	case size%growUnit != 0 || size <= d.size.Load():
		return fmt.Errorf("grow to %d: want more than %d, a multiple of 1 KiB", size, d.size.Load())
	case len(d.currentLinks()) > 1:
		return errors.New("a disk with snapshots cannot grow")
	}
	d.size.Store(size)
	d.changes.growDisk()
	return d.writeLink(d.currentLinks()[0])
}

// growUnit is what the API counts capacities in.
const growUnit = 1024
