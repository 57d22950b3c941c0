package https

import (
	"sync"
	"time"

	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/transport"
)

const (
	// placeFor is how long what Probe read of a disk's descriptor is good for the Open behind
	// it. Whatever became of the disk meanwhile, an answer that is not the range of the file
	// that was asked for is no data.
	placeFor = time.Minute

	// mostPlaces bounds what probes leave that nobody opens.
	mostPlaces = 1000
)

// A place is the file that a disk's bytes are in.
type place struct {
	flat inventory.Path
	size int64
	at   time.Time
}

// places are where disks were found by Probe, each for the next one who opens it: a small disk is
// read in less time than its descriptor, which takes the host a request of its own.
type places struct {
	mu    sync.Mutex
	known map[placeOf]place
}

// placeOf tells what a descriptor was read for.
type placeOf struct {
	vm         inventory.MoRef
	datacenter string
	descriptor inventory.Path
	capacity   int64
}

func keyOf(d transport.Disk) placeOf {
	return placeOf{d.VM.Ref, d.VM.Datacenter, d.Disk.Path, d.Disk.Capacity}
}

func (p *places) leave(d transport.Disk, at place) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.known == nil || len(p.known) >= mostPlaces {
		p.known = map[placeOf]place{}
	}
	p.known[keyOf(d)] = at
}

// take returns what was left, once.
func (p *places) take(d transport.Disk, now time.Time) (place, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	at, ok := p.known[keyOf(d)]
	delete(p.known, keyOf(d))
	age := now.Sub(at.at)
	return at, ok && age >= 0 && age < placeFor
}
