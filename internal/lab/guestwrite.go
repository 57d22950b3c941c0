package lab

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
	Rate   Bytes  `json:"rate,omitempty"`   // bytes a second of real time; 0: only what Lab.GuestWrites asks for
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

// write makes the next write and returns its length. The caller holds the machine's writing.
func (g *guestWriter) write() int64 {
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
	stamp := mix(g.count^m.spec.Guest.Writes.Seed) | 1
	kind := g.rnd.IntN(20)
	for n := first; n < first+length; n++ {
		p := page{stamp: stamp}
		switch {
		case kind < 2: // zeros, or a discard: tracking takes both for changes
			p = page{}
		case kind == 2: // the same bytes again: a change that is none
			var known bool
			if p, known = d.top().find(n); !known {
				continue // they are the base's
			}
		}
		d.put(n, p)
	}
	d.changes.record(first*pageSize, length*pageSize)
	return length * pageSize
}

// put writes a page to the active link.
func (d *vdisk) put(number int64, p page) {
	links := d.chain()
	links[len(links)-1].layer.put(number, p)
}

// start begins to write by the clock.
func (g *guestWriter) start() {
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
		g.run(rate, stop)
	}()
}

func (g *guestWriter) run(rate int64, stop <-chan struct{}) {
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
			written += g.write()
			g.m.writing.Unlock()
			select {
			case <-stop:
				return
			default:
			}
		}
	}
}

// halt ends writing by the clock and waits for the last write.
func (g *guestWriter) halt() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.stop != nil {
		close(g.stop)
		<-g.done
		g.stop, g.done = nil, nil
	}
}

// switched is told when the machine is switched on or off, before anybody can see it.
func (g *guestWriter) switched(on bool) {
	if on {
		g.start()
		return
	}
	g.halt()
	g.m.writing.Lock()
	defer g.m.writing.Unlock()
	for range g.m.spec.Guest.Writes.AtStop {
		g.write()
	}
}

// GuestWrites lets the guest of a running VM make its next n writes.
func (l *Lab) GuestWrites(vm string, n int) error {
	m, err := l.machine(vm)
	if err != nil {
		return err
	}
	if !m.running.Load() {
		return fmt.Errorf("VM %q is off: its guest writes nothing", vm)
	}
	for range n {
		m.writing.Lock()
		m.writer.write()
		m.writing.Unlock()
	}
	return nil
}

// WriteDisk makes a guest write p at off, in whole pages of 4 KiB.
func (l *Lab) WriteDisk(vm string, n int, p []byte, off int64) error {
	d, err := l.disk(vm, n)
	if err != nil {
		return err
	}
	if off%pageSize != 0 || len(p)%pageSize != 0 || off < 0 || off+int64(len(p)) > d.size.Load() {
		return fmt.Errorf("write %d bytes at %d: want whole pages of %d inside the disk", len(p), off, pageSize)
	}
	d.vm.writing.Lock()
	defer d.vm.writing.Unlock()
	for at := 0; at < len(p); at += pageSize {
		var data [pageSize]byte
		copy(data[:], p[at:])
		d.put(off/pageSize+int64(at/pageSize), page{data: &data})
	}
	d.changes.record(off, int64(len(p)))
	return nil
}

// ResetCBT makes every change id of a VM's disks worthless, as a move of its files does.
func (l *Lab) ResetCBT(vm string) error {
	m, err := l.machine(vm)
	if err != nil {
		return err
	}
	for _, d := range m.disks {
		d.changes.reset()
	}
	return l.refresh(m)
}

// GrowDisk makes a disk larger. Change tracking across it is wrong from then on, in the way
// of KB 2090639: nothing says so, and changes are missing. With CBT.GrowthFails such questions
// fail. A disk with snapshots cannot grow.
func (l *Lab) GrowDisk(vm string, n int, size int64) error {
	d, err := l.disk(vm, n)
	if err != nil {
		return err
	}
	return l.reconfigure(d.vm, func() error { return d.grow(size) })
}

// grow needs the machine's writing.
func (d *vdisk) grow(size int64) error {
	switch {
	case size%growUnit != 0 || size <= d.size.Load():
		return fmt.Errorf("grow to %d: want more than %d, a multiple of 1 KiB", size, d.size.Load())
	case len(d.chain()) > 1:
		return errors.New("a disk with snapshots cannot grow")
	}
	d.size.Store(size)
	d.changes.grow()
	return d.writeLink(d.chain()[0])
}

// growUnit is what the API counts capacities in.
const growUnit = 1024

// disk returns the nth disk of a VM.
func (l *Lab) disk(vm string, n int) (*vdisk, error) {
	m, err := l.machine(vm)
	if err != nil {
		return nil, err
	}
	if n < 0 || n >= len(m.disks) {
		return nil, fmt.Errorf("VM %q has no disk %d", vm, n)
	}
	return m.disks[n], nil
}
