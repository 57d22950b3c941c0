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
//	20  8  time of birth in nanoseconds, 0 where the file system does not keep it
//	28  4  CRC-32 (IEEE) of the bytes before
//
// ESXi mounts with handles of 56 bytes and not with 64 (WinNFSd issue 73).
const (
	handleSize  = 32
	handleMagic = "dcp1"

	maxHandle = 64 // NFS3_FHSIZE, RFC 1813 section 2.4

	exportOff = 4
	inoOff    = 12
	birthOff  = 20
	sumOff    = 28
)

func exportID(path string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(path)) // a hash takes everything
	return h.Sum64()
}

// fileExportID is what stands for the export in handles of regular files.
func fileExportID(path, boot string) uint64 {
	if boot == "" {
		return exportID(path)
	}
	return exportID(path + "\x00" + boot)
}

// handleOf returns a file's handle.
func (x *export) handleOf(n *node) []byte {
	if n.format == formatFile {
		return encodeHandle(x.fileID, n.id)
	}
	return encodeHandle(x.id, n.id)
}

func encodeHandle(export uint64, id inodeID) []byte {
	p := make([]byte, 0, handleSize)
	p = append(p, handleMagic...)
	p = binary.BigEndian.AppendUint64(p, export)
	p = binary.BigEndian.AppendUint64(p, id.ino)
	p = binary.BigEndian.AppendUint64(p, uint64(id.birth))
	return binary.BigEndian.AppendUint32(p, crc32.ChecksumIEEE(p))
}

func decodeHandle(p []byte) (export uint64, id inodeID, err error) {
	if len(p) != handleSize || string(p[:exportOff]) != handleMagic ||
		binary.BigEndian.Uint32(p[sumOff:]) != crc32.ChecksumIEEE(p[:sumOff]) {
		return 0, inodeID{}, statusBadHandle
	}
	id = inodeID{ino: binary.BigEndian.Uint64(p[inoOff:]), birth: int64(binary.BigEndian.Uint64(p[birthOff:]))}
	return binary.BigEndian.Uint64(p[exportOff:]), id, nil
}
