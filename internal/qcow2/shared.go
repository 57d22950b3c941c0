package qcow2

import (
	"sync"

	"github.com/decamp/decamp/internal/fault"
)

const (
	// largest size of the L1 tables of all images of a chain, in bytes
	chainL1Bytes = 64 << 20

	// largest size of all cached decompressed clusters, in bytes
	keptBytes = 8 << 20
	// largest number of cached decompressed clusters. A reader of small pieces needs one, and there are
	// rarely more than four such readers.
	keptClusters = 64
)

// A shared is the memory that the images of a chain share, so that a long chain needs no more than a
// short one.
type shared struct {
	l1        int64        // total size of the L1 tables in bytes; changed only while files are opened
	inflaters [2]sync.Pool // pools of *inflater by compression
	clusters  clusterCache // decompressed clusters of all images
}

// newShared returns empty pools and an empty cache.
func newShared() *shared {
	return &shared{inflaters: [2]sync.Pool{zlib: {New: newFlate}, zstd: {New: newZstd}}}
}

// countL1 adds the L1 table of the image at p, of n bytes. It fails if the chain has too many.
func (c *shared) countL1(p filePath, n int64) error {
	if c.l1 += n; c.l1 > chainL1Bytes {
		return fault.New(fault.Unsupported, "the L1 tables of the chain have more than %d bytes", chainL1Bytes).
			WithHint("make one file of it: %s", p.copyCommand())
	}
	return nil
}

// getInflater returns an inflater for exclusive use until putInflater.
func (c *shared) getInflater(k compression) *inflater { return c.inflaters[k].Get().(*inflater) }

// putInflater returns z to its pool.
func (c *shared) putInflater(k compression, z *inflater) { c.inflaters[k].Put(z) }

// A clusterCache keeps decompressed clusters that were read in part. A cluster does not change after
// put. It is safe for concurrent use.
type clusterCache struct {
	mu    sync.Mutex    // guards the other fields
	kept  []keptCluster // clusters in the order of put, oldest first
	bytes int64         // size of all kept clusters
}

// A keptCluster is a decompressed cluster with its key.
type keptCluster struct {
	clusterKey
	data []byte // decompressed bytes
}

// A clusterKey identifies a compressed cluster of a chain.
type clusterKey struct {
	image *Source // image that contains the cluster
	off   int64   // offset in the file
}

// get returns the cluster, or nil if it is not cached. The caller must not change it.
func (c *clusterCache) get(k clusterKey) []byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.findLocked(k)
}

// findLocked is get for callers that hold mu.
func (c *clusterCache) findLocked(k clusterKey) []byte {
	for i := range c.kept {
		if c.kept[i].clusterKey == k {
			return c.kept[i].data
		}
	}
	return nil
}

// put adds a cluster, which the caller must not change any more, and removes the oldest ones that
// exceed the limits.
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
