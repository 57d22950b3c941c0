package vmdk

import (
	"context"
	"encoding/binary"
	"fmt"

	"github.com/decamp/decamp/internal/disk"
)

// Entries of a decoded grain table that are no offset.
const (
	absentGrain = 0  // the layer does not contain the grain
	zeroGrain   = -1 // the grain is zeros, and has no position in the file
)

// directoryEntries is the number of directory entries that one read fetches.
const directoryEntries = 512

// A grainMap is the layer of all formats with grains, grain tables and a directory of tables. The
// formats differ in its parameters and two functions.
type grainMap struct {
	file    *file       // file with the tables and the grains
	cache   *tableCache // cache for decoded tables, shared by all layers of the disk
	bytes   int64       // size of the layer's disk in bytes
	grain   int64       // size of a grain in bytes
	entries int64       // number of entries of a table, at most maxTable

	// number of tables that the disk needs, which is also the number of directory entries
	tables int64
	// readPiece reads n entries of the directory from entry first. An entry of 0 means that the table does
	// not exist.
	readPiece func(ctx context.Context, first, n int64) (table, error)
	// readTable reads grain table n. entry is its directory entry, which is not 0. The result has an entry
	// for each grain: absentGrain, zeroGrain, or a file offset that lies within the file.
	readTable func(ctx context.Context, n, entry int64) (table, error)
}

// A region is an array of unsigned integers in a file.
type region struct {
	at    int64 // offset in the file in bytes
	width int64 // size of an integer in bytes: 4 or 8
}

// size returns the size of the layer's disk in bytes.
func (m *grainMap) size() int64 { return m.bytes }

// newCursor returns a cursor that has not loaded any table.
func (m *grainMap) newCursor() cursor { return &grainCursor{grainMap: m, number: -1, piece: -1} }

// tableSpan returns the number of bytes of the disk that a table maps.
func (m *grainMap) tableSpan() int64 { return m.grain * m.entries }

// readRegion reads n integers of g from index first. An integer with its highest bit set is not a valid
// offset, entry or index in any format; it becomes negative.
func (f *file) readRegion(ctx context.Context, g region, first, n int64) (table, error) {
	raw := make([]byte, n*g.width)
	if err := f.readWhole(ctx, raw, g.at+first*g.width); err != nil {
		return nil, err
	}
	t := make(table, n)
	for i := range t {
		if g.width == 4 {
			t[i] = int64(binary.LittleEndian.Uint32(raw[i*4:]))
		} else {
			t[i] = int64(binary.LittleEndian.Uint64(raw[i*8:]))
		}
	}
	return t, nil
}

// cachedPiece returns piece n of the directory, which has up to directoryEntries entries.
func (m *grainMap) cachedPiece(ctx context.Context, n int64) (table, error) {
	key := tableKey{file: m.file.index, kind: directoryPiece, n: n}
	return m.cache.get(key, func() (table, error) {
		first := n * directoryEntries
		return m.readPiece(ctx, first, min(directoryEntries, m.tables-first))
	})
}

// cachedTable returns grain table n. entry is its directory entry, which is not 0.
func (m *grainMap) cachedTable(ctx context.Context, n, entry int64) (table, error) {
	key := tableKey{file: m.file.index, kind: grainTable, n: n}
	return m.cache.get(key, func() (table, error) { return m.readTable(ctx, n, entry) })
}

// A grainCursor holds the current table of a grainMap, and the piece of the directory with the table's
// entry. It is not safe for concurrent use.
type grainCursor struct {
	*grainMap
	number    int64 // number of the table; -1 before the first
	table     table // current table; nil if the directory has none
	piece     int64 // current piece of the directory; -1 before the first
	directory table // entries of the current piece
}

// runAt implements cursor. A run never crosses the end of a table.
func (c *grainCursor) runAt(ctx context.Context, r disk.Range) (Run, error) {
	n := r.Off / c.tableSpan()
	if n != c.number {
		if err := c.moveToTable(ctx, n); err != nil {
			return Run{}, fmt.Errorf("map disk at %d: %w", r.Off, err)
		}
	}
	if c.table == nil {
		return c.emptyRun(r), nil
	}
	return c.tableRun(r), nil
}

// moveToTable loads table n. After an error the cursor has no current table.
func (c *grainCursor) moveToTable(ctx context.Context, n int64) error {
	c.number = -1 // until the table is loaded
	entry, err := c.directoryEntry(ctx, n)
	if err != nil {
		return err
	}
	var t table
	if entry != 0 {
		if t, err = c.grainMap.cachedTable(ctx, n, entry); err != nil {
			return err
		}
	}
	c.number, c.table = n, t
	return nil
}

// directoryEntry returns entry n of the directory, and loads its piece if necessary.
func (c *grainCursor) directoryEntry(ctx context.Context, n int64) (int64, error) {
	if piece := n / directoryEntries; piece != c.piece {
		t, err := c.grainMap.cachedPiece(ctx, piece)
		if err != nil {
			return 0, err
		}
		c.piece, c.directory = piece, t
	}
	return c.directory[n%directoryEntries], nil
}

// emptyRun returns the absent run from r.Off to the next table that exists, or to the end of the
// current piece of the directory.
func (c *grainCursor) emptyRun(r disk.Range) Run {
	first := c.piece * directoryEntries
	next := c.number + 1
	for next-first < int64(len(c.directory)) && next*c.tableSpan() < r.End() && c.directory[next-first] == 0 {
		next++
	}
	return Run{Range: disk.Range{Off: r.Off, Len: min(next*c.tableSpan(), r.End()) - r.Off}}
}

// tableRun returns the longest run at the beginning of r whose grains are of one kind and adjacent in
// the file.
func (c *grainCursor) tableRun(r disk.Range) Run {
	start := c.number * c.tableSpan()
	first := (r.Off - start) / c.grain
	last := min((r.End()-1-start)/c.grain, c.entries-1)
	at := c.table[first]
	step := int64(0)
	if at > 0 {
		step = c.grain
	}
	i := first + 1
	for want := at + step; i <= last && c.table[i] == want; i++ {
		want += step
	}
	begin := start + first*c.grain
	run := Run{Range: disk.Range{Off: begin, Len: (i - first) * c.grain}}
	switch {
	case at == zeroGrain:
		run.Kind = Zero
	case at > 0:
		run.Kind, run.File, run.At = Data, c.file.index, at
	}
	run = run.clip(r)
	if run.Kind == Data && run.At >= c.file.size() {
		return Run{Range: run.Range, Kind: Zero} // the last grain of a file may end early
	}
	return run
}
