package https

import (
	"sync"
	"time"

	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/transport"
)

const (
	// locationLifetime is the time in which Open may use the result of Probe. If the disk changes
	// meanwhile, no wrong data results: an answer for another file or range is not accepted.
	locationLifetime = time.Minute

	// maxLocations bounds the results of probes without a later Open.
	maxLocations = 1000
)

// A location is the file that contains the bytes of a disk.
type location struct {
	flat inventory.Path // datastore path of the file
	size int64          // bytes of the file
	at   time.Time      // time at which it was found
}

// locationCache contains the locations that Probe found, each for the next Open. It saves the request
// for the descriptor, which takes longer than reading a small disk. It is safe for concurrent use.
type locationCache struct {
	mu    sync.Mutex               // guards known
	known map[locationKey]location // locations that no Open has used
}

// locationKey identifies the disk of a location.
type locationKey struct {
	vm         inventory.MoRef // VM with the disk
	datacenter string          // datacenter of the VM
	descriptor inventory.Path  // datastore path of the descriptor
	capacity   int64           // capacity in bytes
}

// locationKeyOf returns the key of a disk.
func locationKeyOf(d transport.Disk) locationKey {
	return locationKey{d.VM.Ref, d.VM.Datacenter, d.Disk.Path, d.Disk.Capacity}
}

// add stores the location of a disk. If the cache is full, it is emptied first.
func (p *locationCache) add(d transport.Disk, at location) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.known == nil || len(p.known) >= maxLocations {
		p.known = map[locationKey]location{}
	}
	p.known[locationKeyOf(d)] = at
}

// take removes and returns the location of a disk. It returns false if the location is unknown or too
// old.
func (p *locationCache) take(d transport.Disk, now time.Time) (location, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	at, ok := p.known[locationKeyOf(d)]
	delete(p.known, locationKeyOf(d))
	age := now.Sub(at.at)
	return at, ok && age >= 0 && age < locationLifetime
}
