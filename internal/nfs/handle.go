package nfs

import (
	"encoding/binary"
	"hash/crc32"
	"hash/fnv"
)

// A handle is 32 bytes, all big-endian:
//
//	 0  4  "dcp1"
//	 4  8  the export: FNV-1a of its path; of a regular file, of the boot's id too
//	12  8  inode number
//	20  8  time of birth in nanoseconds, 0 if the file system does not keep it
//	28  4  CRC-32 (IEEE) of the bytes before
//
// ESXi mounts with handles of 56 bytes and not with 64 (WinNFSd issue 73).
const (
	handleSize  = 32     // bytes of each handle
	handleMagic = "dcp1" // first bytes of each handle: format 1

	maxHandle = 64 // maxHandle is NFS3_FHSIZE (RFC 1813 section 2.4), the longest handle that a call may contain.

	exportOff = 4  // offset of the export's number
	inoOff    = 12 // offset of the inode number
	birthOff  = 20 // offset of the time of birth
	sumOff    = 28 // offset of the checksum
)

// exportID returns the number that identifies the export of that path in handles and attributes: its
// FNV-1a hash.
func exportID(path string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(path)) // a hash never fails
	return h.Sum64()
}

// fileExportID returns the number that identifies the export in handles of regular files. With a boot,
// these handles are stale after the next boot.
func fileExportID(path, boot string) uint64 {
	if boot == "" {
		return exportID(path)
	}
	return exportID(path + "\x00" + boot)
}

// handleOf returns the handle of n. It contains the fileID for a regular file, and the id otherwise.
func (x *export) handleOf(n *node) []byte {
	if n.format == formatFile {
		return encodeHandle(x.fileID, n.id)
	}
	return encodeHandle(x.id, n.id)
}

// encodeHandle returns the handle of the file id in the export with that number.
func encodeHandle(export uint64, id inodeID) []byte {
	p := make([]byte, 0, handleSize)
	p = append(p, handleMagic...)
	p = binary.BigEndian.AppendUint64(p, export)
	p = binary.BigEndian.AppendUint64(p, id.ino)
	p = binary.BigEndian.AppendUint64(p, uint64(id.birth))
	return binary.BigEndian.AppendUint32(p, crc32.ChecksumIEEE(p))
}

// decodeHandle returns the parts of a handle. It fails with statusBadHandle if p is not a handle of
// this format. The checksum detects damage, not forgery.
func decodeHandle(p []byte) (export uint64, id inodeID, err error) {
	if len(p) != handleSize || string(p[:exportOff]) != handleMagic ||
		binary.BigEndian.Uint32(p[sumOff:]) != crc32.ChecksumIEEE(p[:sumOff]) {
		return 0, inodeID{}, statusBadHandle
	}
	id = inodeID{ino: binary.BigEndian.Uint64(p[inoOff:]), birth: int64(binary.BigEndian.Uint64(p[birthOff:]))}
	return binary.BigEndian.Uint64(p[exportOff:]), id, nil
}
