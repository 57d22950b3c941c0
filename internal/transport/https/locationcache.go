package https

import (
	"sync"
	"time"

	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/transport"
)

const (
	// locationLifetime is how long what Probe read of a disk's descriptor is good for the Open behind
	// it. Whatever became of the disk meanwhile, an answer that is not the range of the file
	// that was asked for is no data.
	locationLifetime = time.Minute

	// maxLocations bounds what probes leave that nobody opens.
	maxLocations = 1000
)

// A place is the file that a disk's bytes are in.
type location struct {
	flat inventory.Path
	size int64
	at   time.Time
}

// places are where disks were found by Probe, each for the next one who opens it: a small disk is
// read in less time than its descriptor, which takes the host a request of its own.
type locationCache struct {
	mu    sync.Mutex
	known map[locationKey]location
}

// locationKey tells what a descriptor was read for.
type locationKey struct {
	vm         inventory.MoRef
	datacenter string
	descriptor inventory.Path
	capacity   int64
}

func locationKeyOf(d transport.Disk) locationKey {
	return locationKey{d.VM.Ref, d.VM.Datacenter, d.Disk.Path, d.Disk.Capacity}
}

func (p *locationCache) add(d transport.Disk, at location) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.known == nil || len(p.known) >= maxLocations {
		p.known = map[locationKey]location{}
	}
	p.known[locationKeyOf(d)] = at
}

// take returns what was left, once.
func (p *locationCache) take(d transport.Disk, now time.Time) (location, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	at, ok := p.known[locationKeyOf(d)]
	delete(p.known, locationKeyOf(d))
	age := now.Sub(at.at)
	return at, ok && age >= 0 && age < locationLifetime
}
