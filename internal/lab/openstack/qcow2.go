package openstack

import (
	"encoding/binary"
	"errors"
)

// maxDisk limits the size of a decoded disk, in bytes.
const maxDisk = 1 << 30

// decodeQCOW2 returns the content of a qcow2 image. It supports plain clusters only: no backing file,
// no compression, no incompatible features. It shares no code with decamp's reader.
func decodeQCOW2(file []byte) ([]byte, error) {
	be := binary.BigEndian
	if len(file) < 104 || string(file[:4]) != "QFI\xfb" {
		return nil, errors.New("no header")
	}
	bits, size := be.Uint32(file[20:]), be.Uint64(file[24:])          // cluster_bits, size
	entries, l1 := uint64(be.Uint32(file[36:])), be.Uint64(file[40:]) // l1_size, l1_table_offset
	if bits < 9 || bits > 21 || size > maxDisk || be.Uint64(file[8:]) != 0 || be.Uint64(file[72:]) != 0 {
		return nil, errors.New("an image of a kind that is not read here")
	}
	cluster := uint64(1) << bits // bytes
	disk := make([]byte, size)
	for at := uint64(0); at < size; at += cluster {
		table, index := at/cluster/(cluster/8), at/cluster%(cluster/8) // entries have 8 bytes
		if table >= entries {
			return nil, errors.New("the L1 table is too small")
		}
		l2, err := tableEntry(file, l1+table*8)
		if err != nil || l2 == 0 {
			if err != nil {
				return nil, err
			}
			continue
		}
		data, err := tableEntry(file, l2+index*8)
		if err != nil {
			return nil, err
		}
		if data == 0 { // unallocated: zeros
			continue
		}
		if data >= uint64(len(file)) {
			return nil, errors.New("a cluster past the end")
		}
		copy(disk[at:min(at+cluster, size)], file[data:min(data+cluster, uint64(len(file)))])
	}
	return disk, nil
}

// tableEntry returns the offset in an entry of an L1 or L2 table, without its flags; 0 is an
// unallocated cluster. Compressed and zero clusters are errors.
func tableEntry(file []byte, at uint64) (uint64, error) {
	if at+8 > uint64(len(file)) {
		return 0, errors.New("a table past the end")
	}
	e := binary.BigEndian.Uint64(file[at:])
	if e&(1<<62|1) != 0 { // bit 62: compressed; bit 0: reads as zeros
		return 0, errors.New("a cluster that is compressed or of zeros")
	}
	return e & 0x00fffffffffffe00, nil // bits 9 to 55: the offset
}
