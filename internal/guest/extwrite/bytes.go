package extwrite

import (
	"encoding/binary"
	"hash/crc32"
	"maps"
	"slices"
)

func le16(p []byte, at int) uint16 { return binary.LittleEndian.Uint16(p[at:]) }
func le32(p []byte, at int) uint32 { return binary.LittleEndian.Uint32(p[at:]) }

func put16(p []byte, at int, v uint16) { binary.LittleEndian.PutUint16(p[at:], v) }
func put32(p []byte, at int, v uint32) { binary.LittleEndian.PutUint32(p[at:], v) }

func inOrder[V any](m map[int64]V) []int64 { return slices.Sorted(maps.Keys(m)) }

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// crc32c goes on with a checksum as ext4 has it: the register as it is, inverted neither
// before nor after.
func crc32c(crc uint32, p []byte) uint32 { return ^crc32.Update(^crc, castagnoli, p) }

func crc32cNumber(crc, n uint32) uint32 {
	return crc32c(crc, binary.LittleEndian.AppendUint32(nil, n))
}

// crc16 is the checksum of group descriptors before metadata_csum: polynomial 0xA001.
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
