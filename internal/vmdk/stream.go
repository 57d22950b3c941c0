package vmdk

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/disk/signature"
	"github.com/decamp/decamp/internal/fault"
)

const (
	// largest compressed grain that a stream may have, in sectors: 1 MiB. All known writers use 64 KiB.
	maxPackedGrain = 2048

	// largest number of grain tables of a stream: 4 Mi tables map 128 TiB in grains of 64 KiB
	maxStreamTables = 4 << 20

	// size of the input buffer in bytes
	streamBuffer = 256 << 10
)

// A Stream is a streamOptimized disk that is read once, from an OVF export, an HTTP body or a
// pipe. It is a disk.Feed, which blockcopy.Receive copies.
//
// A Stream follows the grains and the markers between them, and never seeks. It reads the
// output of every known writer: ESXi and ovftool (directory and footer at the end), Workstation
// (directory in front), qemu-img (directory in front, no end marker), and converters that mix
// these layouts.
//
// It is not a disk.Source, because it cannot describe later parts of the disk or read anything
// twice. A Source that requires its calls in one order would break copies with several readers
// and verification. A Stream does not write either: blockcopy hashes, makes checkpoints and
// resumes. Therefore a Stream returns windows of compressed grains in order, and the
// goroutines of the copy decompress them (Part.Fill).
//
// # Checks
//
//   - Each grain has a valid length and a position on the disk, and matches its Adler-32.
//   - Grains are in ascending order, so that everything between them is zeros. Writers that use
//     another order exist (qemu-img convert -W). Their streams are refused with the advice to
//     save the stream to a file, which Open reads in any order.
//   - The stream ends with the end-of-stream marker, or its grains match a directory in front.
//   - Every grain table and directory in the stream contains exactly the grains in the stream.
//     This detects lost grains. If they differ, the Stream recalls its parts (disk.ErrRecalled).
//
// # Memory
//
// A Stream needs streamBuffer, 32 bytes for each grain table with data (32 MiB of disk), and 4
// bytes for each grain table of the disk. These are 3 MiB for a full disk of 2 TiB, and 144 MiB
// for the largest disk that is accepted. A growing list needs twice as much for a short time. Each
// part needs the size of its window and a 64th, or twice that if grains became larger when they
// were compressed.
type Stream struct {
	in       *bufio.Reader    // input, read from front to back
	at       int64            // number of bytes read from the input
	header   *sparseHeader    // header at the beginning of the stream
	text     *Descriptor      // embedded descriptor; nil if missing
	warnings []string         // warnings in the order in which they were found
	tables   streamTables     // hashes of the tables, to compare them with the grains
	unpacker *unpacker        // decompresses the grains of all parts
	free     chan *streamPart // parts for reuse; never closed

	sector [disk.SectorSize]byte // last sector that was read at the beginning of a record
	head   grainHead             // head of the grain that is delivered next; its size is 0 if it is not read yet
	behind int64                 // sector of the disk after the last grain
	grains int64                 // number of complete grains so far
	footer *sparseHeader         // copy of the header near the end; nil until it is read
	ended  bool                  // the stream is complete and valid
}

// A grainHead is the header of a compressed grain.
type grainHead struct {
	sector int64  // position on the disk, in sectors
	size   uint32 // length of the zlib data in bytes
	at     int64  // offset of the header in the file or stream, in bytes
}

// grainHeadSize is the size of a grain's header in its first sector, in bytes.
const grainHeadSize = 12

// ReadStream reads the header, the descriptor and the tables at the beginning of a stream. Only Next
// reads further from r. The caller closes r, which also ends a Next that waits for bytes.
func ReadStream(ctx context.Context, r io.Reader) (*Stream, error) {
	s := &Stream{in: bufio.NewReaderSize(r, streamBuffer), free: make(chan *streamPart, 64)}
	if err := s.readFront(ctx); err != nil {
		return nil, fmt.Errorf("read VMDK stream: %w", err)
	}
	return s, nil
}

// readFront reads everything before the first grain and prepares the Stream. Input that is not a
// streamOptimized VMDK is fault.Unsupported.
func (s *Stream) readFront(ctx context.Context) error {
	if n, err := s.readSector(); err != nil || n < len(s.sector) {
		return errors.Join(err, s.notAStream("it has %d bytes", n))
	}
	if !bytes.HasPrefix(s.sector[:], []byte(sparseMagic)) {
		if format := signature.Identify(s.sector[:], nil); format != "" {
			return s.notAStream("its format is %s", format)
		}
		return s.notAStream("it begins with % x", s.sector[:4])
	}
	h, err := parseSparseHeader(s.sector[:])
	if err != nil {
		return err
	}
	if err := h.checkStream(); err != nil {
		return err
	}
	s.header = h
	s.unpacker = newUnpacker(h)
	s.tables = newStreamTables(h)
	text, err := s.skipToGrains(ctx)
	if err != nil {
		return err
	}
	return s.parseText(text)
}

// notAStream returns the fault.Unsupported error for input of another format.
func (s *Stream) notAStream(format string, args ...any) error {
	return fault.New(fault.Unsupported, "this is no streamOptimized VMDK: "+format, args...).
		WithHint("only streamOptimized disks, as OVF exports have them, can be read from a pipe: name any other disk as a file")
}

// checkStream fails for headers that no streamOptimized disk has, and for disks that would need too
// much memory.
func (h *sparseHeader) checkStream() error {
	const convert = "write it again: qemu-img convert -O vmdk -o subformat=streamOptimized old.vmdk new.vmdk"
	switch {
	case !h.isCompressed():
		return unsupportedSparse("its grains are not compressed, so they may come in any order").
			WithHint("only streamOptimized disks can be read from a pipe: name this one as a file")
	case h.flags&flagMarkers == 0:
		return unsupportedSparse("its grains are compressed and have no markers").WithHint(convert)
	case h.grain > maxPackedGrain:
		return unsupportedSparse("its packed grains have %d sectors, more than %d", h.grain, maxPackedGrain).WithHint(convert)
	case h.tableCount() > maxStreamTables:
		return corruptSparse("capacity %d, grain %d and %d entries a table make a directory of %d tables",
			h.capacity, h.grain, h.tableEntries, h.tableCount())
	}
	return nil
}

// parseText parses the embedded descriptor, which must not describe a delta. If the sizes differ, the
// header is right and the Stream warns.
func (s *Stream) parseText(text []byte) error {
	switch {
	case len(text) == 0 && s.header.descriptor == 0 && s.header.descriptorSize == 0:
		s.warn("the stream has no descriptor")
		return nil
	case len(text) == 0 || text[0] == 0:
		return corruptSparse("the header names a descriptor of %d sectors at sector %d, which has no text", s.header.descriptorSize, s.header.descriptor).
			WithHint("export or download the disk again: whether it is a delta cannot be known")
	}
	d, err := ParseDescriptor(text)
	if err != nil {
		return err
	}
	if err := d.checkReadable(); err != nil {
		return err
	}
	if d.IsDelta() {
		return unsupportedDescriptor("the stream is a snapshot delta on %q", d.ParentFile).
			WithHint("export the VM without snapshots, or save the delta and its parents as files and name the delta")
	}
	if d.Size() != s.Size() {
		s.warn("the stream has %d bytes, its descriptor has %d", s.Size(), d.Size())
	}
	s.text = d
	return nil
}

// Size returns the virtual size in bytes.
func (s *Stream) Size() int64 { return s.header.diskBytes() }

// Descriptor returns the embedded descriptor; nil if the stream has none.
func (s *Stream) Descriptor() *Descriptor { return s.text }

// Grain returns the grain size in bytes.
func (s *Stream) Grain() int64 { return s.header.grainBytes() }

// Grains returns the number of complete grains so far.
func (s *Stream) Grains() int64 { return s.grains }

// Read returns the number of bytes that were read from the input.
func (s *Stream) Read() int64 { return s.at }

// Warnings returns what the user should know, in the order in which it was found. The list may grow
// until Next returns io.EOF. It must not be called while Next runs.
func (s *Stream) Warnings() []string { return s.warnings }

// warn adds a warning. It must not run concurrently with Warnings.
func (s *Stream) warn(format string, args ...any) {
	s.warnings = append(s.warnings, fmt.Sprintf(format, args...))
}

// Next returns the next window that has a grain; see disk.Feed. The caller may fill and release parts
// while Next runs.
func (s *Stream) Next(ctx context.Context, window int64) (disk.Part, error) {
	var p *streamPart
	for {
		g, err := s.nextHead(ctx)
		switch {
		case err == io.EOF && p != nil:
			return p, nil
		case err == io.EOF:
			return nil, io.EOF
		case err == nil && p == nil:
			p = s.newPart(g, window)
		case err == nil && !p.isInWindow(g):
			return p, nil
		}
		if err == nil {
			err = s.readGrain(g, p)
		}
		if err != nil {
			if p != nil {
				p.Release()
			}
			return nil, fmt.Errorf("read VMDK stream: %w", err)
		}
	}
}

// nextHead returns the head of the next grain without consuming the grain. It reads and checks markers
// before the grain. io.EOF means that the stream is complete and valid.
func (s *Stream) nextHead(ctx context.Context) (grainHead, error) {
	for s.head.size == 0 {
		if s.ended {
			return grainHead{}, io.EOF
		}
		if err := ctx.Err(); err != nil {
			return grainHead{}, err
		}
		if err := s.readRecord(); err != nil {
			return grainHead{}, err
		}
	}
	return s.head, nil
}

// readRecord reads the first sector of a record. For a grain it stores the head; for a marker it also
// reads the sectors that belong to it.
func (s *Stream) readRecord() error {
	at := s.at
	n, err := s.readSector()
	switch {
	case err != nil:
		return err
	case n == 0:
		return s.checkEnd(false)
	case isZero(s.sector[:n]):
		return s.checkEnd(true)
	case n < grainHeadSize:
		return s.truncatedStream("within a marker")
	}
	g := grainHead{sector: sectorCount(s.sector[:]), size: binary.LittleEndian.Uint32(s.sector[8:]), at: at}
	if g.size > 0 {
		s.head = g
		return s.checkHead(g, n)
	}
	if n < len(s.sector) {
		return s.truncatedStream("within a marker")
	}
	return s.readMarker(binary.LittleEndian.Uint32(s.sector[12:]), g.sector)
}

// checkHead fails if g is invalid or not in ascending order. n is the number of bytes of its first
// sector that were read.
func (s *Stream) checkHead(g grainHead, n int) error {
	if err := s.header.checkGrain(g); err != nil {
		return err
	}
	if g.sector < s.behind {
		return fault.New(fault.Unsupported, "grain at sector %d (byte %d of the stream) comes after that at sector %d: %w",
			g.sector, g.at, s.behind-s.header.grain, disk.ErrRecalled).
			WithHint("its grains are not in order, or repeated: save the stream to a file and name the file, which is read in any order")
	}
	if want := min(grainHeadSize+int64(g.size), disk.SectorSize); int64(n) < want {
		return s.truncatedStream("within a grain")
	}
	return nil
}

// checkGrain fails with fault.Corrupt if g is not the head of a grain of this disk.
func (h *sparseHeader) checkGrain(g grainHead) error {
	switch {
	case g.sector < 0 || g.sector >= h.capacity || g.sector%h.grain != 0:
		return corruptSparse("a grain at byte %d has sector %d: the disk has %d sectors in grains of %d", g.at, g.sector, h.capacity, h.grain)
	case int64(g.size) > h.maxPacked():
		return corruptSparse("the grain at byte %d has %d packed bytes, more than %d", g.at, g.size, h.maxPacked())
	}
	return nil
}

// maxPacked returns the largest valid length of a compressed grain in bytes. Data that cannot be
// compressed becomes slightly longer; QEMU reads up to twice the grain size.
func (h *sparseHeader) maxPacked() int64 { return 2 * h.grainBytes() }

// readGrain reads the bytes of grain g, which nextHead returned, into p.
func (s *Stream) readGrain(g grainHead, p *streamPart) error {
	b := p.addGrain(g)
	n := copy(b, s.sector[grainHeadSize:])
	if err := s.readFull(b[n:], "within a grain"); err != nil {
		return err
	}
	if pad := -s.at & (disk.SectorSize - 1); n < len(b) && pad > 0 {
		// The last one of a file may end without it.
		if err := s.skipBytes(pad); err != nil && err != io.EOF {
			return err
		}
	}
	s.head = grainHead{}
	s.behind = g.sector + s.header.grain
	s.grains++
	s.tables.grain(g.sector/s.header.grain, g.at/disk.SectorSize)
	return nil
}

// truncatedStream returns the error for a stream that ends too early. where is the position in words.
func (s *Stream) truncatedStream(where string) error { return truncatedAt(s.at, where, s.grains) }

// truncatedAt returns the fault.Corrupt error for a stream that ends at byte at, after the given number
// of complete grains.
func truncatedAt(at int64, where string, grains int64) error {
	return corruptSparse("the stream is truncated: it ends at byte %d, %s, after %d whole grains", at, where, grains).
		WithHint("export or download the disk again, and compare the size and checksum with those in the OVF's manifest (.mf)")
}

// readSector reads the next sector into s.sector and returns its length, which is less than a sector
// only at the end of the input.
func (s *Stream) readSector() (int, error) {
	n, err := io.ReadFull(s.in, s.sector[:])
	s.at += int64(n)
	if err == io.EOF || err == io.ErrUnexpectedEOF {
		err = nil
	}
	return n, s.inputError(err)
}

// readFull fills b. where names the current part of the stream for the error if the input ends too
// early.
func (s *Stream) readFull(b []byte, where string) error {
	n, err := io.ReadFull(s.in, b)
	s.at += int64(n)
	if err == io.EOF || err == io.ErrUnexpectedEOF {
		return s.truncatedStream(where)
	}
	return s.inputError(err)
}

// skipBytes discards n bytes of the input. It returns io.EOF if the input ends before.
func (s *Stream) skipBytes(n int64) error {
	done, err := io.CopyN(io.Discard, s.in, n)
	s.at += done
	if err == io.EOF {
		return err
	}
	return s.inputError(err)
}

// inputError adds the position to an error of the input. It returns nil for nil.
func (s *Stream) inputError(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("at byte %d: %w", s.at, err)
}

// isZero reports whether b contains only zeros.
func isZero(b []byte) bool {
	for _, x := range b {
		if x != 0 {
			return false
		}
	}
	return true
}
