package vmdk

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"hash/maphash"
	"slices"

	"github.com/decamp/decamp/internal/disk"
)

// streamTables compares the tables of a stream with the grains that pass. Tables are kept
// as hashes, 16 bytes each: of what a table must say, by the grains, and of what each
// table that passed does say.
type streamTables struct {
	header *sparseHeader
	seed   maphash.Seed

	spans    []tableHash // tables with a grain, by number
	span     int64       // table being collected; -1 without one
	expected []byte      // expected content of that table

	passed []tableHash // tables in the stream, by sector
	named  int64       // entries that name a grain, in the tables that passed

	directoryAt int64 // sector of the stream; 0: none passed
	directory   []uint32
	inFront     bool // the directory is before the grains
	tableAt     []uint32
	partial     []byte // incomplete table before the grains
}

// A tableHash is the hash of a table, and its number or its sector.
type tableHash struct {
	key  int64
	hash uint64
}

func newStreamTables(h *sparseHeader) streamTables {
	return streamTables{header: h, seed: maphash.MakeSeed(), span: -1, expected: make([]byte, h.tableEntries*4)}
}

// grain takes grain n of the disk, which passed at that sector of the stream.
func (t *streamTables) grain(n, sector int64) {
	span := n / t.header.tableEntries
	if span != t.span {
		t.finishTable()
		t.span = span
	}
	binary.LittleEndian.PutUint32(t.expected[n%t.header.tableEntries*4:], uint32(sector))
}

// finishTable books the table that was gathered.
func (t *streamTables) finishTable() {
	if t.span >= 0 {
		t.spans = append(t.spans, tableHash{t.span, maphash.Bytes(t.seed, t.expected)})
	}
	clear(t.expected)
	t.span = -1
}

// addTable takes a table that passed at that sector. Entry 1, a grain of zeros, names no
// grain that could pass.
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

// addFrontSector takes a sector before the first grain: of the directory, of one of its tables, or
// something else. Tables that stand before their directory are not recognised.
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

// addFrontTable takes a sector behind the directory in front.
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

func (t *streamTables) startDirectory(sector int64) {
	t.directoryAt, t.directory, t.inFront = sector, t.directory[:0], false
}

func (t *streamTables) addDirectory(b []byte) {
	for i := int64(0); i < disk.SectorSize/4 && int64(len(t.directory)) < t.header.tableCount(); i++ {
		t.directory = append(t.directory, entry32(b, i))
	}
}

// What is known of the tables at the end.
type tableState uint8

const (
	tablesNone  tableState = iota // there was no directory
	tablesEmpty                   // one in front that was never filled in
	tablesFull
)

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

// grainCount returns how many grains the tables name.
func (t *streamTables) grainCount() int64 { return t.named }

// verify compares each table that the directory names with the grains that passed.
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
			return fmt.Errorf("grain table %d at sector %d does not match the grains that came", i, sector)
		}
	}
	return nil
}

// hashAt returns the hash of the table at that sector; none if there is no table.
func (t *streamTables) hashAt(sector uint32, none uint64) (uint64, error) {
	if sector == 0 {
		return none, nil
	}
	i, ok := slices.BinarySearchFunc(t.passed, int64(sector), func(h tableHash, s int64) int { return cmp.Compare(h.key, s) })
	if !ok {
		return 0, fmt.Errorf("the directory has a grain table at sector %d, which has none", sector)
	}
	return t.passed[i].hash, nil
}
