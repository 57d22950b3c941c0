package vmdk

import (
	"context"

	"github.com/decamp/decamp/internal/disk"
)

// A sparse reads the tables of a hosted sparse extent. packedExtent adds compressed grains to it.
type sparse struct {
	*sparseHeader
	file      *file   // file with the header, the tables and the grains
	first     region  // first directory, which is used unless it is damaged
	redundant *region // second directory; nil if missing
	warn      warner  // called if a damaged table is replaced by its copy
}

// newSparse returns the layer of the extent in f, whose grains must not be compressed. A directory
// outside the file is fault.Corrupt unless there is a redundant one.
func newSparse(f *file, h *sparseHeader, cache *tableCache, warn warner) (layer, error) {
	if h.directory == gdAtEnd {
		return nil, corruptFile(f.name, "its directory is at the end, which only a compressed disk's can be")
	}
	s := &sparse{sparseHeader: h, file: f, warn: warn, first: region{at: int64(h.directory) * disk.SectorSize, width: 4}}
	if h.flags&flagRedundant != 0 && h.redundant > 0 {
		s.redundant = &region{at: h.redundant * disk.SectorSize, width: 4}
	}
	if end := s.first.at + h.tableCount()*4; end > f.size() && s.redundant == nil {
		return nil, corruptFile(f.name, "its directory ends at %d, the file at %d", end, f.size())
	}
	return &grainMap{
		file: f, cache: cache, bytes: h.diskBytes(), grain: h.grainBytes(), entries: h.tableEntries,
		tables: h.tableCount(), readPiece: s.directoryPiece, readTable: s.readTable,
	}, nil
}

// directoryPiece returns n entries of the first directory from entry first: the sectors of grain
// tables, 0 for a missing table. Invalid entries are replaced by those of the redundant directory. An
// entry that is 0 in only one directory is damage, because tables are never freed.
func (s *sparse) directoryPiece(ctx context.Context, first, n int64) (table, error) {
	t, err := s.file.readRegion(ctx, s.first, first, n)
	if s.redundant == nil || ctx.Err() != nil {
		return t, err
	}
	spare, spareErr := s.file.readRegion(ctx, *s.redundant, first, n)
	switch {
	case spareErr != nil:
		return t, err
	case err != nil:
		s.warn("%s: the grain directory cannot be read; its redundant copy is used", s.file.name)
		return spare, nil
	}
	for i := range t {
		if !s.isValidTable(t[i]) && s.isValidTable(spare[i]) {
			s.warn("%s: the grain directory is damaged; its redundant copy is used", s.file.name)
			t[i] = spare[i]
		}
	}
	return t, nil
}

// isValidTable reports whether a whole table at sector entry lies within the file.
func (s *sparse) isValidTable(entry int64) bool {
	return entry > 0 && entry*disk.SectorSize+s.tableEntries*4 <= s.file.size()
}

// readTable reads grain table n, which is at sector entry, or its copy if it is damaged. A table of
// zeros whose copy is not zeros was overwritten, because grains are never freed.
func (s *sparse) readTable(ctx context.Context, n, entry int64) (table, error) {
	t, err := s.readTableAt(ctx, n, entry)
	if s.redundant == nil || err == nil && !t.isEmpty() || ctx.Err() != nil {
		return t, err
	}
	spare, spareErr := s.readSpareTable(ctx, n, entry)
	if spareErr != nil || err == nil && spare.isEmpty() {
		return t, err
	}
	s.warn("%s: a grain table is damaged; its redundant copy is used", s.file.name)
	return spare, nil
}

// readSpareTable reads the copy of table n by the redundant directory. A copy at the same sector is no
// copy and fault.Corrupt.
func (s *sparse) readSpareTable(ctx context.Context, n, entry int64) (table, error) {
	at, err := s.file.readRegion(ctx, *s.redundant, n, 1)
	if err == nil && at[0] == entry {
		err = corruptFile(s.file.name, "grain table %d has no copy", n)
	}
	if err != nil {
		return nil, err
	}
	return s.readTableAt(ctx, n, at[0])
}

// readTableAt reads table n at sector entry, and converts its sectors to file offsets.
func (s *sparse) readTableAt(ctx context.Context, n, entry int64) (table, error) {
	if !s.isValidTable(entry) {
		return nil, corruptFile(s.file.name, "grain table %d is at sector %d, beyond the end of the file", n, entry)
	}
	t, err := s.file.readRegion(ctx, region{at: entry * disk.SectorSize, width: 4}, 0, s.tableEntries)
	if err != nil {
		return nil, err
	}
	for i, e := range t {
		switch {
		case e == 0:
			t[i] = absentGrain
		case e == 1 && s.flags&flagZeroGrain != 0:
			t[i] = zeroGrain
		case e == 1 || e*disk.SectorSize >= s.file.size():
			return nil, corruptFile(s.file.name, "grain %d of table %d is at sector %d, which is no valid position of a grain", i, n, e)
		default:
			t[i] = e * disk.SectorSize
		}
	}
	return t, nil
}
