package manifest

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"

	"github.com/decamp/decamp/internal/fault"
)

// Offsets and lengths of the header; docs/formats/manifest.md explains them.
const (
	magic     = "DECAMPMF"                     // first eight bytes of a manifest
	version   = 1                              // version of the format
	fixedHead = 40                             // length of the header before the names, in bytes
	maxHead   = fixedHead + 2*maxName + sumLen // largest length of a header in bytes
	sumLen    = 4                              // length of a checksum in bytes
)

var (
	le         = binary.LittleEndian               // byte order of the file
	castagnoli = crc32.MakeTable(crc32.Castagnoli) // table of CRC-32C, the checksum of the header and of each record
)

// A header is the beginning of the file.
type header struct {
	id   uint64 // random number. Checksums include it, so that no record of another log is valid here.
	info Info   // disk of the manifest
}

// len returns the number of bytes that encodeHeader returns.
func (h header) len() int64 {
	return int64(fixedHead + len(h.info.Disk) + len(h.info.Source) + sumLen)
}

// encodeHeader returns the bytes of the header, and the position of the first record.
func (h header) encodeHeader() ([]byte, position) {
	n := h.len()
	b := append(make([]byte, 0, n), magic...)
	b = le.AppendUint32(b, version)
	b = le.AppendUint32(b, uint32(n))
	b = le.AppendUint64(b, h.id)
	b = le.AppendUint64(b, uint64(h.info.Size))
	b = le.AppendUint32(b, ChunkSize)
	b = le.AppendUint16(b, uint16(len(h.info.Disk)))
	b = le.AppendUint16(b, uint16(len(h.info.Source)))
	b = append(append(b, h.info.Disk...), h.info.Source...)
	sum := crc32.Checksum(b, castagnoli)
	return le.AppendUint32(b, sum), position{off: n, sum: sum}
}

// readHeader reads the header of a file, and returns the position of the first record.
func readHeader(r io.ReaderAt) (header, position, error) {
	b := make([]byte, maxHead)
	n, err := r.ReadAt(b, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return header{}, position{}, err
	}
	return parseHeader(b[:n])
}

// ReadInfo returns the disk of the manifest at path, and reads nothing else of it. It takes no lock.
func ReadInfo(path string) (Info, error) {
	f, err := os.Open(path)
	if err != nil {
		return Info{}, fmt.Errorf("read manifest %s: %w", path, kindOfIO(err))
	}
	defer f.Close()
	head, _, err := readHeader(f)
	if err != nil {
		return Info{}, fmt.Errorf("read manifest %s: %w", path, err)
	}
	return head.info, nil
}

// parseHeader parses a header. It verifies the checksum before the version, which has the same position
// in all versions: so damage is not mistaken for a newer version.
func parseHeader(b []byte) (header, position, error) {
	if len(b) < fixedHead+sumLen || string(b[:8]) != magic {
		return header{}, position{}, damagedHeader("it does not start as one")
	}
	n := int64(le.Uint32(b[12:]))
	if n < fixedHead+sumLen || n > int64(len(b)) {
		return header{}, position{}, damagedHeader("header length %d, file has %d bytes", n, len(b))
	}
	b = b[:n]
	sum := crc32.Checksum(b[:n-sumLen], castagnoli)
	if want := le.Uint32(b[n-sumLen:]); sum != want {
		return header{}, position{}, damagedHeader("header checksum %08x, want %08x", sum, want)
	}
	h, err := parseFields(b[:n-sumLen])
	return h, position{off: n, sum: sum}, err
}

// parseFields parses the fields of a header whose checksum is right. A newer version is
// fault.Unsupported.
func parseFields(b []byte) (header, error) {
	if v := le.Uint32(b[8:]); v != version {
		return header{}, fault.New(fault.Unsupported, "the manifest has version %d, and this decamp supports version %d", v, version).
			WithHint("use the version of decamp that wrote it, or a newer one")
	}
	names, d, s := b[fixedHead:], int(le.Uint16(b[36:])), int(le.Uint16(b[38:]))
	if len(names) != d+s {
		return header{}, damagedHeader("names of %d and %d bytes in %d", d, s, len(names))
	}
	if c := le.Uint32(b[32:]); c != ChunkSize {
		return header{}, damagedHeader("chunk size %d, want %d", c, ChunkSize)
	}
	h := header{id: le.Uint64(b[16:]), info: Info{
		Disk: string(names[:d]), Source: string(names[d:]), Size: int64(le.Uint64(b[24:])),
	}}
	return h, h.info.checkLimits()
}

// damagedHeader returns the fault.Corrupt error for a file that is no manifest.
func damagedHeader(format string, args ...any) error {
	return fault.New(fault.Corrupt, "not a manifest: "+format, args...).
		WithHint("delete the manifest; the disk is then copied again from the start")
}
