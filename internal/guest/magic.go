package guest

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"io"
	"strings"
)

// A magic identifies a file system by a text at an offset.
type magic struct {
	fs   FileSystem // kind that the text identifies
	off  int        // offset in bytes from the beginning of the volume
	text string     // expected bytes
}

// magicList returns the file systems that a text identifies reliably. LVM's label may be in any of the
// first four sectors. Swap's magic is at the end of the first page, whose size depends on the
// architecture.
func magicList() []magic {
	return []magic{
		{XFS, 0, "XFSB"},
		{LUKS, 0, "LUKS\xba\xbe"},
		{BitLocker, 3, "-FVE-FS-"},
		{NTFS, 3, "NTFS    "},
		{FAT, 54, "FAT12   "},
		{FAT, 54, "FAT16   "},
		{FAT, 82, "FAT32   "},
		{Btrfs, 0x10040, "_BHRfS_M"},
		{LVM2, 0x018, "LVM2 001"},
		{LVM2, 0x218, "LVM2 001"},
		{LVM2, 0x418, "LVM2 001"},
		{LVM2, 0x618, "LVM2 001"},
		{Swap, 4096 - 10, "SWAPSPACE2"},
		{Swap, 65536 - 10, "SWAPSPACE2"},
		{Swap, 4096 - 10, "S1SUSPEND"}, // hibernated
	}
}

// headLen is the number of bytes that identifyFS requires: up to the end of Btrfs' label.
const headLen = 0x1012b + 256

// identifyFS returns the kind of a file system by its magic number, and its UUID if that is at a fixed
// offset. head is the beginning of the volume and may be shorter than headLen.
func identifyFS(head []byte) (FileSystem, string) {
	// ext has no text as magic number, but a 16-bit value.
	if fs := identifyExt(head); fs != Unknown {
		return fs, uuidAt(head, 1024+0x68)
	}
	for _, m := range magicList() {
		if len(head) < m.off+len(m.text) || string(head[m.off:m.off+len(m.text)]) != m.text {
			continue
		}
		return m.fs, uuidOf(m.fs, head)
	}
	return Unknown, ""
}

// uuidOf returns the UUID of a file system other than ext, as blkid prints it; empty if it has none.
func uuidOf(fs FileSystem, head []byte) string {
	switch fs {
	case XFS:
		return uuidAt(head, 32)
	case Btrfs:
		return uuidAt(head, 0x10020)
	case Swap:
		return uuidAt(head, 1024+12)
	case LUKS:
		return textAt(head, 168, 40)
	case FAT:
		serial := fatSerial(head)
		if n := binary.LittleEndian.Uint32(head[serial:]); n != 0 {
			return fmt.Sprintf("%04X-%04X", n>>16, n&0xffff)
		}
	}
	return ""
}

// fatSerial returns the offset of a FAT's serial number; the label follows it.
func fatSerial(head []byte) int {
	if len(head) >= 90 && string(head[82:87]) == "FAT32" {
		return 67
	}
	return 39
}

// labelOf returns the label of a file system; empty if it has none or the kind has no label.
func labelOf(fs FileSystem, head []byte) string {
	switch fs {
	case Ext2, Ext3, Ext4:
		return textAt(head, 1024+0x78, 16)
	case XFS:
		return textAt(head, 108, 12)
	case Btrfs:
		return textAt(head, 0x1012b, 256)
	case Swap:
		return textAt(head, 1024+28, 16)
	case FAT:
		if label := strings.TrimRight(textAt(head, fatSerial(head)+4, 11), " "); label != "NO NAME" {
			return label
		}
	}
	return ""
}

// textAt returns the text up to the first zero. Invalid characters become question marks. It is
// empty if head is too short.
func textAt(head []byte, off, length int) string {
	if len(head) < off+length {
		return ""
	}
	text, _, _ := bytes.Cut(head[off:off+length], []byte{0})
	return strings.ToValidUTF8(string(text), "?")
}

// isHibernated reports whether a swap area contains a hibernated system; the kernel replaces the magic.
func isHibernated(r io.ReaderAt) bool {
	mark := make([]byte, 9)
	for _, page := range []int64{4096, 65536} {
		if _, err := r.ReadAt(mark, page-10); err == nil && string(mark) == "S1SUSPEND" {
			return true
		}
	}
	return false
}

// identifyExt distinguishes ext2, ext3 and ext4 by their features, like blkid. It returns Unknown
// for other file systems.
func identifyExt(head []byte) FileSystem {
	if len(head) < 2048 || binary.LittleEndian.Uint16(head[1024+0x38:]) != 0xef53 {
		return Unknown
	}
	const (
		hasJournal   = 0x4
		ext3Incompat = 0x2 | 0x4 | 0x10 // filetype, recover, meta_bg
		ext3ROCompat = 0x1 | 0x2 | 0x4  // sparse_super, large_file, btree_dir
	)
	compat := binary.LittleEndian.Uint32(head[1024+0x5c:])
	incompat, roCompat := binary.LittleEndian.Uint32(head[1024+0x60:]), binary.LittleEndian.Uint32(head[1024+0x64:])
	switch {
	case incompat&^ext3Incompat != 0 || roCompat&^ext3ROCompat != 0:
		return Ext4
	case compat&hasJournal != 0:
		return Ext3
	}
	return Ext2
}

// uuidAt returns the UUID at an offset; empty if it is zero or head is too short.
func uuidAt(head []byte, off int) string {
	if len(head) < off+16 || bytes.Equal(head[off:off+16], make([]byte, 16)) {
		return ""
	}
	h := hex.EncodeToString(head[off : off+16])
	return h[:8] + "-" + h[8:12] + "-" + h[12:16] + "-" + h[16:20] + "-" + h[20:]
}
