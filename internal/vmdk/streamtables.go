package vmdk

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"hash/maphash"
	"slices"

	"github.com/decamp/decamp/internal/disk"
)

// A streamTables compares the grain tables of a stream with its grains. It keeps 16 bytes for each
// table: the hash of the expected table, computed from the grains, and the hash of each table in the
// stream.
type streamTables struct {
	header *sparseHeader // header with the table size
	seed   maphash.Seed  // seed of all hashes

	spans    []tableHash // hashes of expected tables with at least one grain, by table number
	span     int64       // number of the table that is being collected; -1 before the first grain
	expected []byte      // content of the table that is being collected

	passed []tableHash // hashes of the tables in the stream, by sector
	named  int64       // number of grains that the tables in the stream contain

	directoryAt int64    // sector of the directory in the stream; 0 if there was none
	directory   []uint32 // entries of the directory: the sectors of the tables
	inFront     bool     // the directory precedes the grains
	tableAt     []uint32 // sectors of the tables before the grains that were not found yet, ascending
	partial     []byte   // incomplete table before the grains
}

// A tableHash is the hash of a table, with its number or its sector.
type tableHash struct {
	key  int64  // number of the table, or its sector in the stream
	hash uint64 // hash of its entries
}

// newStreamTables returns a streamTables without grains and tables.
func newStreamTables(h *sparseHeader) streamTables {
	return streamTables{header: h, seed: maphash.MakeSeed(), span: -1, expected: make([]byte, h.tableEntries*4)}
}

// grain adds grain n of the disk, which is at the given sector of the stream. Grains must be added in
// ascending order.
func (t *streamTables) grain(n, sector int64) {
	span := n / t.header.tableEntries
	if span != t.span {
		t.finishTable()
		t.span = span
	}
	binary.LittleEndian.PutUint32(t.expected[n%t.header.tableEntries*4:], uint32(sector))
}

// finishTable stores the hash of the collected table and begins a new one.
func (t *streamTables) finishTable() {
	if t.span >= 0 {
		t.spans = append(t.spans, tableHash{t.span, maphash.Bytes(t.seed, t.expected)})
	}
	clear(t.expected)
	t.span = -1
}

// addTable adds the grain table b, which begins at the given sector of the stream. Entry 1 is a grain
// of zeros, which is not in the stream; addTable clears it.
func (t *streamTables) addTable(sector int64, b []byte) {
	b = b[:t.header.tableEntries*4]
	for i := range t.header.tableEntries {
		switch e := entry32(b, i); {
		case e == 1 && t.header.flags&flagZeroGrain != 0:
			clear(b[i*4 : i*4+4])
		case e != 0:
			t.named++
		}
	}
	t.passed = append(t.passed, tableHash{sector, maphash.Bytes(t.seed, b)})
}

// addFrontSector adds sector n, which precedes the first grain: a part of the directory, of a table, or
// of something else. Tables before their directory are not recognized.
func (t *streamTables) addFrontSector(n int64, b []byte) {
	at := int64(t.header.directory)
	size := sectorsOf(t.header.tableCount() * 4)
	switch {
	case t.header.directory == gdAtEnd || n < at || at == 0:
	case n < at+size:
		if n == at {
			t.startDirectory(n)
			t.inFront = true
		}
		t.addDirectory(b)
		if n == at+size-1 {
			t.tableAt = slices.Compact(slices.Sorted(slices.Values(t.directory)))
		}
	default:
		t.addFrontTable(n, b)
	}
}

// addFrontTable adds a sector between the directory and the first grain. It collects the sectors of
// each table.
func (t *streamTables) addFrontTable(n int64, b []byte) {
	if len(t.partial) == 0 {
		for len(t.tableAt) > 0 && int64(t.tableAt[0]) < n {
			t.tableAt = t.tableAt[1:]
		}
		if len(t.tableAt) == 0 || int64(t.tableAt[0]) != n {
			return
		}
	}
	t.partial = append(t.partial, b...)
	if have := int64(len(t.partial)); have >= t.header.tableEntries*4 {
		t.addTable(n+1-have/disk.SectorSize, t.partial)
		t.partial = t.partial[:0]
	}
}

// startDirectory begins a directory at a sector of the stream. A directory after the grains replaces
// one before them.
func (t *streamTables) startDirectory(sector int64) {
	t.directoryAt, t.directory, t.inFront = sector, t.directory[:0], false
}

// addDirectory adds one sector of the directory.
func (t *streamTables) addDirectory(b []byte) {
	for i := int64(0); i < disk.SectorSize/4 && int64(len(t.directory)) < t.header.tableCount(); i++ {
		t.directory = append(t.directory, entry32(b, i))
	}
}

// A tableState describes the tables of a complete stream.
type tableState uint8

const (
	tablesNone  tableState = iota // the stream has no directory
	tablesEmpty                   // the directory precedes the grains, and its tables were never filled in
	tablesFull                    // the directory and its tables are complete
)

// state returns the state of the tables. It must be called after the last grain.
func (t *streamTables) state() tableState {
	t.finishTable()
	switch {
	case t.directoryAt == 0:
		return tablesNone
	case t.inFront && t.named == 0 && len(t.spans) > 0:
		return tablesEmpty
	}
	return tablesFull
}

// grainCount returns the number of grains that the tables contain.
func (t *streamTables) grainCount() int64 { return t.named }

// verify compares each table of the directory with the grains of the stream.
func (t *streamTables) verify() error {
	clear(t.expected)
	none := maphash.Bytes(t.seed, t.expected)
	spans := t.spans
	for i, sector := range t.directory {
		want := none
		if len(spans) > 0 && spans[0].key == int64(i) {
			want, spans = spans[0].hash, spans[1:]
		}
		got, err := t.hashAt(sector, none)
		if err != nil {
			return err
		}
		if got != want {
			return fmt.Errorf("grain table %d at sector %d does not match the grains of the stream", i, sector)
		}
	}
	return nil
}

// hashAt returns the hash of the table at a sector, or none for sector 0. It fails if there was no
// table at that sector.
func (t *streamTables) hashAt(sector uint32, none uint64) (uint64, error) {
	if sector == 0 {
		return none, nil
	}
	i, ok := slices.BinarySearchFunc(t.passed, int64(sector), func(h tableHash, s int64) int { return cmp.Compare(h.key, s) })
	if !ok {
		return 0, fmt.Errorf("the directory has a grain table at sector %d, but the stream has none there", sector)
	}
	return t.passed[i].hash, nil
}
