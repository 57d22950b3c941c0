package guest

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"strings"

	"github.com/decamp/decamp/internal/disk"
)

const (
	espGUID = "c12a7328-f81f-11d2-ba4b-00a0c93ec93b" // type of an EFI system partition

	maxGPTArray = 1 << 20 // bytes of partition entries; 16 KiB is usual
)

// readGPTs reads the partitions from the primary table, or from the backup if the primary is
// damaged. It warns about each damaged table.
func (d *detector) readGPTs() {
	// The backup header is in the last sector.
	last := d.disk.size/disk.SectorSize - 1
	primary, err := readGPT(d.disk, 1)
	if err == nil {
		d.report.Partitions = primary
		if _, err := readGPT(d.disk, last); err != nil {
			d.warn("gpt-backup", "the backup partition table is missing or damaged: %v", err)
		}
		return
	}
	d.warn("gpt-primary", "the primary partition table is damaged: %v", err)
	if d.report.Partitions, err = readGPT(d.disk, last); err != nil {
		d.warn("gpt-backup", "the backup partition table is missing or damaged: %v", err)
	}
}

// readGPT reads the table whose header is in sector lba. The checksums of header and entries must be
// correct. The layout is UEFI 2.10, section 5.3.
func readGPT(w *window, lba int64) ([]Partition, error) {
	header := make([]byte, disk.SectorSize)
	if !w.readFull(header, lba*disk.SectorSize) {
		return nil, fmt.Errorf("no sector %d", lba)
	}
	if err := checkGPTHeader(header, lba); err != nil {
		return nil, err
	}
	// Offsets: 72 first sector of the entries, 80 their number, 84 their size, 88 their checksum.
	at := int64(binary.LittleEndian.Uint64(header[72:]))
	count, size := int64(binary.LittleEndian.Uint32(header[80:])), int64(binary.LittleEndian.Uint32(header[84:]))
	if size < 128 || size > 4096 || count > maxGPTArray/size || at < 1 || at > w.size/disk.SectorSize {
		return nil, fmt.Errorf("%d entries of %d bytes at sector %d", count, size, at)
	}
	array := make([]byte, count*size)
	if !w.readFull(array, at*disk.SectorSize) {
		return nil, fmt.Errorf("entries at sector %d are not within the disk", at)
	}
	if got, want := crc32.ChecksumIEEE(array), binary.LittleEndian.Uint32(header[88:]); got != want {
		return nil, fmt.Errorf("checksum of the entries is %08x, expected %08x", got, want)
	}
	return parseGPT(array, int(size)), nil
}

// checkGPTHeader fails if a sector has no valid GPT header for its own position lba.
func checkGPTHeader(header []byte, lba int64) error {
	if !bytes.HasPrefix(header, []byte("EFI PART")) {
		return fmt.Errorf("no header in sector %d", lba)
	}
	size := binary.LittleEndian.Uint32(header[12:])
	if size < 92 || size > disk.SectorSize {
		return fmt.Errorf("a header of %d bytes", size)
	}
	zeroed := bytes.Clone(header[:size])
	// The checksum is computed with zero in its own field.
	clear(zeroed[16:20])
	if got, want := crc32.ChecksumIEEE(zeroed), binary.LittleEndian.Uint32(header[16:]); got != want {
		return fmt.Errorf("checksum of the header is %08x, expected %08x", got, want)
	}
	if binary.LittleEndian.Uint64(header[24:]) != uint64(lba) {
		return errors.New("the header belongs to another sector")
	}
	return nil
}

// parseGPT returns the used entries of a table with entries of size bytes. Like Linux it numbers
// them by their position, including gaps.
func parseGPT(array []byte, size int) []Partition {
	var parts []Partition
	for i := 0; (i+1)*size <= len(array); i++ {
		e := array[i*size:][:size]
		// A type of zero marks an unused entry.
		if bytes.Equal(e[:16], make([]byte, 16)) {
			continue
		}
		const maxSector = 1 << 52 // byte offsets must fit int64
		first, last := binary.LittleEndian.Uint64(e[32:]), binary.LittleEndian.Uint64(e[40:])
		if first >= maxSector || last >= maxSector || last < first {
			first, last = 0, maxSector-1 // Detect reports entries outside of the disk
		}
		const legacyBoot = 1 << 2
		parts = append(parts, Partition{
			Number: i + 1, Off: int64(first) * disk.SectorSize, Len: int64(last-first+1) * disk.SectorSize,
			Type: formatGUID(e[:16]), UUID: formatGUID(e[16:32]), Name: gptName(e[56:128]),
			Active: e[48]&legacyBoot != 0,
		})
	}
	return parts
}

// formatGUID returns the text form of a GUID; its first three fields are little-endian.
func formatGUID(b []byte) string {
	return fmt.Sprintf("%08x-%04x-%04x-%x-%x", binary.LittleEndian.Uint32(b),
		binary.LittleEndian.Uint16(b[4:]), binary.LittleEndian.Uint16(b[6:]), b[8:10], b[10:16])
}

// gptName decodes the UTF-16 name of a partition up to its first zero.
func gptName(b []byte) string {
	name, _, _ := strings.Cut(fromUTF16(b), "\x00")
	return name
}
