package vmdk

import (
	"slices"
	"sync/atomic"
)

// A table is a grain table or a piece of a directory, decoded. It is never changed once
// it was made, so it can be shared.
type table []int64

// isEmpty reports whether a grain table is missing or has only absent grains.
func (t table) isEmpty() bool {
	return !slices.ContainsFunc(t, func(e int64) bool { return e != absentGrain })
}

const (
	// cacheSlots and maxTable bound the cache: 256 x 4096 x 8 bytes = 8 MiB.
	cacheSlots = 256
	maxTable   = 4096
)

// tableKey identifies a table of a file by the area that it maps.
type tableKey struct {
	file int
	kind tableKind
	n    int64
}

type tableKind uint8

const (
	grainTable tableKind = iota
	directoryPiece
)

// tableCache keeps the tables that were used last, for callers that read little at a
// time. Who reads much has a cursor, which keeps its tables itself: the cache may lose any
// table at any time, and a slot has room for one.
type tableCache struct {
	slots [cacheSlots]atomic.Pointer[cacheEntry]
}

type cacheEntry struct {
	tableKey
	table table
}

// get returns a table, making it if it is not there. Two callers may make the same one.
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

// slotIndex spreads neighbouring tables, and files, over the slots.
func (k tableKey) slotIndex() uint64 {
	h := uint64(k.n) + uint64(k.file)*37 + uint64(k.kind)*101
	return h % cacheSlots
}
