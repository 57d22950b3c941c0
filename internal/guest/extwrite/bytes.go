package extwrite

import (
	"encoding/binary"
	"hash/crc32"
	"maps"
	"slices"
)

// le16 reads the little-endian 16-bit number at offset at of p.
func le16(p []byte, at int) uint16 { return binary.LittleEndian.Uint16(p[at:]) }

// le32 reads the little-endian 32-bit number at offset at of p.
func le32(p []byte, at int) uint32 { return binary.LittleEndian.Uint32(p[at:]) }

// put16 writes v as a little-endian number at offset at of p.
func put16(p []byte, at int, v uint16) { binary.LittleEndian.PutUint16(p[at:], v) }

// put32 writes v as a little-endian number at offset at of p.
func put32(p []byte, at int, v uint32) { binary.LittleEndian.PutUint32(p[at:], v) }

// sortedKeys returns the keys of m in ascending order.
func sortedKeys[V any](m map[int64]V) []int64 { return slices.Sorted(maps.Keys(m)) }

// castagnoli is the polynomial of metadata_csum checksums.
var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// crc32c continues a checksum with p. ext4 stores the raw CRC register: unlike hash/crc32 it does
// not invert the value before or after.
func crc32c(crc uint32, p []byte) uint32 { return ^crc32.Update(^crc, castagnoli, p) }

// crc32cNumber continues a checksum with the four little-endian bytes of n.
func crc32cNumber(crc, n uint32) uint32 {
	return crc32c(crc, binary.LittleEndian.AppendUint32(nil, n))
}

// crc16 continues the checksum of group descriptors of gdt_csum, which precedes metadata_csum.
// The polynomial is 0xA001 (CRC-16-ANSI, reflected).
func crc16(crc uint16, p []byte) uint16 {
	for _, b := range p {
		crc ^= uint16(b)
		for range 8 {
			low := crc & 1
			crc >>= 1
			if low != 0 {
				crc ^= 0xa001
			}
		}
	}
	return crc
}
