package vmdk

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"

	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/fault"
)

// Types of metadata markers.
const (
	markEnd       = 0 // end of the stream
	markTable     = 1 // a grain table follows
	markDirectory = 2 // the grain directory follows
	markFooter    = 3 // the footer follows
	markProgress  = 4 // named in open-vmdk; it has no meaning for a reader
)

// skipToGrains reads the sectors between the header and the first grain, and returns the text of the
// descriptor.
func (s *Stream) skipToGrains(ctx context.Context) ([]byte, error) {
	h := s.header
	if h.descriptorSize > MaxDescriptor/disk.SectorSize {
		return nil, corruptSparse("its descriptor has %d sectors, more than one can have", h.descriptorSize)
	}
	var text []byte
	first := max(1, h.overhead, h.descriptor+h.descriptorSize)
	for n := int64(1); n < first; n++ {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if err := s.readFull(s.sector[:], "before the first grain"); err != nil {
			return nil, err
		}
		if n >= h.descriptor && n < h.descriptor+h.descriptorSize {
			text = append(text, s.sector[:]...)
		}
		s.tables.addFrontSector(n, s.sector[:])
	}
	return text, nil
}

// readMarker reads the sectors that belong to a metadata marker. kind is the type of the marker and
// count its number of sectors.
func (s *Stream) readMarker(kind uint32, count int64) error {
	switch kind {
	case markTable:
		return s.readTable(count)
	case markDirectory:
		return s.readDirectory(count)
	case markFooter:
		return s.readFooter(count)
	case markProgress:
		if err := s.skipBytes(max(count, 0) * disk.SectorSize); err == io.EOF {
			return s.truncatedStream("behind a progress marker")
		} else if err != nil {
			return err
		}
		return nil
	}
	return corruptSparse("the marker at byte %d has the unknown type %d with %d sectors", s.at-disk.SectorSize, kind, count)
}

// readTable reads a grain table of count sectors.
func (s *Stream) readTable(count int64) error {
	want := sectorsOf(s.header.tableEntries * 4)
	if count != want {
		return corruptSparse("the grain table at byte %d has %d sectors, not %d", s.at, count, want)
	}
	at := s.at / disk.SectorSize
	b := make([]byte, want*disk.SectorSize)
	if err := s.readFull(b, "within a grain table"); err != nil {
		return err
	}
	s.tables.addTable(at, b)
	return nil
}

// readDirectory reads the grain directory sector by sector, because its length comes from the input.
func (s *Stream) readDirectory(count int64) error {
	if want := sectorsOf(s.header.tableCount() * 4); count < want || count > want+maxDirectoryPad {
		return corruptSparse("the grain directory at byte %d has %d sectors, not %d", s.at, count, want)
	}
	s.tables.startDirectory(s.at / disk.SectorSize)
	for range count {
		if err := s.readFull(s.sector[:], "within the grain directory"); err != nil {
			return err
		}
		s.tables.addDirectory(s.sector[:])
	}
	return nil
}

// maxDirectoryPad is the number of sectors by which a directory may be longer than necessary. Writers
// pad it to the end of a grain.
const maxDirectoryPad = 128

// sectorsOf returns the number of sectors for n bytes, rounded up.
func sectorsOf(n int64) int64 { return (n + disk.SectorSize - 1) / disk.SectorSize }

// readFooter reads the second copy of the header, which contains the position of the directory.
func (s *Stream) readFooter(count int64) error {
	if count != 1 {
		return corruptSparse("the footer at byte %d has %d sectors, not 1", s.at, count)
	}
	if err := s.readFull(s.sector[:], "within the footer"); err != nil {
		return err
	}
	f, err := parseSparseHeader(s.sector[:])
	if err != nil {
		return fmt.Errorf("footer: %w", err)
	}
	s.footer = f
	return s.header.checkFooter(f)
}

// checkFooter fails with fault.Corrupt if footer f belongs to another disk or has no directory.
func (h *sparseHeader) checkFooter(f *sparseHeader) error {
	switch {
	case f.capacity != h.capacity || f.grain != h.grain || f.tableEntries != h.tableEntries || f.flags != h.flags:
		return corruptSparse("header and footer contradict each other: capacity %d and %d, grain %d and %d, flags %#x and %#x",
			h.capacity, f.capacity, h.grain, f.grain, h.flags, f.flags)
	case f.directory == gdAtEnd || f.directory == 0:
		return corruptSparse("the footer does not contain the position of the grain directory")
	}
	return nil
}

// checkEnd checks at the end of the input, or at a sector of zeros, that the stream is complete. marked
// reports a sector of zeros, which is the end-of-stream marker or padding.
func (s *Stream) checkEnd(marked bool) error {
	if marked {
		if err := s.checkPadding(); err != nil {
			return err
		}
	}
	atEnd := s.header.directory == gdAtEnd
	switch {
	case atEnd && s.footer == nil:
		return s.truncatedStream("before its footer")
	case atEnd && int64(s.footer.directory) != s.tables.directoryAt:
		return corruptSparse("the footer has the grain directory at sector %d, it was at sector %d", s.footer.directory, s.tables.directoryAt)
	}
	switch s.tables.state() {
	case tablesNone, tablesEmpty:
		if !marked {
			return s.truncatedStream("without an end-of-stream marker or a directory")
		}
		s.warn("the stream has no grain directory to compare its grains with")
	case tablesFull:
		if err := s.tables.verify(); err != nil {
			return s.recallError(err, marked)
		}
	}
	s.ended = true
	return nil
}

// recallError returns the error for a stream whose tables differ from its grains. Unless the stream is
// just truncated, the error is disk.ErrRecalled.
func (s *Stream) recallError(err error, marked bool) error {
	if !marked && s.footer == nil && s.tables.grainCount() > s.grains {
		return s.truncatedStream(fmt.Sprintf("of %d that its tables name", s.tables.grainCount()))
	}
	return fault.New(fault.Corrupt, "sparse extent: %w, after %d grains: %w", err, s.grains, disk.ErrRecalled).
		WithHint("a part of the stream was lost or changed on its way: export or download the disk again")
}

// checkPadding reads to the end of the input, and fails unless all bytes are zeros.
func (s *Stream) checkPadding() error {
	for {
		at := s.at
		n, err := s.readSector()
		switch {
		case err != nil:
			return err
		case n == 0:
			return nil
		case !isZero(s.sector[:n]):
			return corruptSparse("data follows the end of the stream at byte %d", at)
		}
	}
}

// entry32 returns entry i of a table or directory.
func entry32(b []byte, i int64) uint32 { return binary.LittleEndian.Uint32(b[i*4:]) }
