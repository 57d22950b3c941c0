package qcow2

import (
	"sync"

	"github.com/decamp/decamp/internal/fault"
)

const (
	// chainL1Bytes bounds the L1 tables of all images of a chain.
	chainL1Bytes = 64 << 20

	// keptBytes and keptClusters bound the inflated clusters that are kept. A reader of
	// small pieces needs one, and there are rarely more than four of them.
	keptBytes    = 8 << 20
	keptClusters = 64
)

// shared is what the images of a chain have together, so that a long chain takes no more
// memory than a short one.
type shared struct {
	l1        int64        // bytes of L1 tables
	inflaters [2]sync.Pool // decompressors by compression
	clusters  clusterCache
}

func newShared() *shared {
	return &shared{inflaters: [2]sync.Pool{zlib: {New: newFlate}, zstd: {New: newZstd}}}
}

// countL1 accounts for the L1 table of the image at p, of n bytes.
func (c *shared) countL1(p filePath, n int64) error {
	if c.l1 += n; c.l1 > chainL1Bytes {
		return fault.New(fault.Unsupported, "the L1 tables of the chain have more than %d bytes", chainL1Bytes).
			WithHint("make one file of it: %s", p.copyCommand())
	}
	return nil
}

func (c *shared) getInflater(k compression) *inflater { return c.inflaters[k].Get().(*inflater) }

func (c *shared) putInflater(k compression, z *inflater) { c.inflaters[k].Put(z) }

// clusters are inflated clusters that were read in part. Nobody writes to one once it is
// here.
type clusterCache struct {
	mu    sync.Mutex
	kept  []keptCluster // oldest first
	bytes int64
}

type keptCluster struct {
	clusterKey
	data []byte
}

type clusterKey struct {
	image *Source
	off   int64 // offset in the file
}

// get returns a cluster, or nil.
func (c *clusterCache) get(k clusterKey) []byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.findLocked(k)
}

func (c *clusterCache) findLocked(k clusterKey) []byte {
	for i := range c.kept {
		if c.kept[i].clusterKey == k {
			return c.kept[i].data
		}
	}
	return nil
}

// put keeps a cluster and lets the oldest go.
func (c *clusterCache) put(k clusterKey, data []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.findLocked(k) != nil {
		return
	}
	c.kept = append(c.kept, keptCluster{k, data})
	c.bytes += int64(len(data))
	for c.bytes > keptBytes || len(c.kept) > keptClusters {
		c.bytes -= int64(len(c.kept[0].data))
		copy(c.kept, c.kept[1:])
		c.kept[len(c.kept)-1] = keptCluster{} // releases the memory
		c.kept = c.kept[:len(c.kept)-1]
	}
}
