package vmdk

import (
	"slices"
	"sync/atomic"
)

// A table is a decoded grain table or a piece of a directory. It does not change after it was created,
// so goroutines can share it.
type table []int64

// isEmpty reports whether a grain table is nil or has only absent grains.
func (t table) isEmpty() bool {
	return !slices.ContainsFunc(t, func(e int64) bool { return e != absentGrain })
}

const (
	// number of tables in the cache. With maxTable it limits the memory of the cache: 256 x 4096 x 8 bytes
	// = 8 MiB.
	cacheSlots = 256
	maxTable   = 4096 // largest number of entries of a table
)

// A tableKey identifies a table of a disk.
type tableKey struct {
	file int       // index in Disk.files
	kind tableKind // grain table or piece of a directory
	n    int64     // number of the table or piece
}

// A tableKind distinguishes the two kinds of tables in the cache.
type tableKind uint8

const (
	grainTable     tableKind = iota // entries are offsets of grains
	directoryPiece                  // entries are positions of grain tables
)

// A tableCache keeps recently used tables for short reads. Long reads have a cursor, which keeps its
// own tables. A slot has room for one table, so any table may be replaced at any time. It is safe for
// concurrent use.
type tableCache struct {
	slots [cacheSlots]atomic.Pointer[cacheEntry] // tables by the hash of their keys; nil if the slot is empty
}

// A cacheEntry is a table with its key. It does not change.
type cacheEntry struct {
	tableKey
	table table // decoded table, shared with readers
}

// get returns the table with that key, and calls load if it is not cached. Two callers may load the
// same table at the same time.
func (c *tableCache) get(key tableKey, load func() (table, error)) (table, error) {
	slot := &c.slots[key.slotIndex()]
	if e := slot.Load(); e != nil && e.tableKey == key {
		return e.table, nil
	}
	t, err := load()
	if err != nil {
		return nil, err
	}
	slot.Store(&cacheEntry{tableKey: key, table: t})
	return t, nil
}

// slotIndex distributes neighbouring tables and files over the slots.
func (k tableKey) slotIndex() uint64 {
	h := uint64(k.n) + uint64(k.file)*37 + uint64(k.kind)*101
	return h % cacheSlots
}
