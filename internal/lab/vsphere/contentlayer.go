package vsphere

import (
	"maps"
	"math/bits"
	"slices"
	"sync"
	"sync/atomic"
)

const (
	pageSize = 4 << 10 // unit of guest writes in bytes; also a grain of seSparse
	// granuleSize is the resolution of layers and change logs, in bytes.
	granuleSize = 64 << 10
)

// A page is 4 KiB that a guest wrote. Its bytes are computed from the stamp, so that a guest can write
// gigabytes; only pages that a test wrote are stored.
type page struct {
	stamp uint64          // seed of the bytes; 0 is a page of zeros
	data  *[pageSize]byte // stored bytes, never modified; nil for a computed page
}

// isZero reports whether the guest discarded the page or wrote zeros to it.
func (p page) isZero() bool { return p.stamp == 0 && p.data == nil }

// A layer contains the writes to one link of a chain. It grows while the guest writes to its link. Its
// methods may be called concurrently.
type layer struct {
	noise []byte // source of computed bytes

	mu      sync.RWMutex   // guards pages, where and version
	pages   map[int64]page // pages by number
	where   granules       // granules that contain pages
	version int64          // number of writes

	stale atomic.Bool // whether the layer was merged, so that open readers must fail
}

// newLayer returns an empty layer.
func newLayer(noise []byte) *layer { return &layer{noise: noise, pages: map[int64]page{}} }

// putPage writes one page.
func (y *layer) putPage(number int64, p page) {
	y.mu.Lock()
	defer y.mu.Unlock()
	y.pages[number] = p
	y.where.addRange(number*pageSize, pageSize)
	y.version++ // makes generated delta files outdated
}

// findPage returns a page of the layer.
func (y *layer) findPage(number int64) (page, bool) {
	y.mu.RLock()
	defer y.mu.RUnlock()
	p, ok := y.pages[number]
	return p, ok
}

// nextGranule returns the first granule with a page that ends after off.
func (y *layer) nextGranule(off int64) (start, end int64, ok bool) {
	y.mu.RLock()
	defer y.mu.RUnlock()
	return y.where.nextGranule(off)
}

// copyPages returns a copy of the pages, their numbers in ascending order, and the version.
func (y *layer) copyPages() (numbers []int64, pages map[int64]page, version int64) {
	y.mu.RLock()
	defer y.mu.RUnlock()
	pages = maps.Clone(y.pages)
	return slices.Sorted(maps.Keys(pages)), pages, y.version
}

// mergeLayers returns a new layer with the pages of both; upper takes precedence.
func mergeLayers(lower, upper *layer) *layer {
	both := newLayer(lower.noise)
	for _, y := range []*layer{lower, upper} {
		_, pages, _ := y.copyPages()
		for number, p := range pages {
			both.putPage(number, p)
		}
	}
	return both
}

// fillBytes writes the content of the page with this number to dst.
func (p page) fillBytes(dst []byte, noise []byte, number int64) {
	switch {
	case p.data != nil: // written by a test
		copy(dst, p.data[:])
	case p.stamp == 0: // zeros or a discard
		clear(dst)
	default:
		g := generated{noise: noise, seed: p.stamp}
		var whole [pageSize]byte
		g.fillData(whole[:], number*pageSize)
		copy(dst, whole[:])
	}
}

// granules is a set of blocks of granuleSize.
type granules struct {
	words []uint64 // one bit for each block, lowest bit first
}

// addRange adds all granules that the range touches.
func (g *granules) addRange(off, length int64) {
	for i := off / granuleSize; i*granuleSize < off+length; i++ {
		for int64(len(g.words)) <= i/64 {
			g.words = append(g.words, 0)
		}
		g.words[i/64] |= 1 << (i % 64)
	}
}

// addAll adds the granules of other.
func (g *granules) addAll(other *granules) {
	for len(g.words) < len(other.words) {
		g.words = append(g.words, 0)
	}
	for i, w := range other.words {
		g.words[i] |= w
	}
}

// nextGranule returns the first granule that ends after off.
func (g *granules) nextGranule(off int64) (start, end int64, ok bool) {
	i := off / granuleSize
	for word := i / 64; word < int64(len(g.words)); word++ {
		w := g.words[word]
		if word == i/64 {
			w &= ^uint64(0) << (i % 64) // blocks before off do not count
		}
		if w != 0 {
			start = (word*64 + int64(bits.TrailingZeros64(w))) * granuleSize
			return start, start + granuleSize, true
		}
	}
	return 0, 0, false
}
