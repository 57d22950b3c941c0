// Package signature determines the format of a disk image by its first bytes.
//
// A raw image has no signature, and its guest writes all of its bytes: a guest can make its disk begin
// like an image of any format. Therefore a signature decides only for a file of unknown origin. A file
// that decamp's records list as raw is raw.
package signature

import (
	"bytes"
	"encoding/binary"
	"strings"

	"github.com/decamp/decamp/internal/fault"
)

// A Format is the name of a format, for messages. The zero value is an unknown format.
type Format string

const (
	VMDK  Format = "VMDK"
	QCOW2 Format = "qcow2"
	VHD   Format = "VHD"
	VHDX  Format = "VHDX"
	VDI   Format = "VDI"
	Gzip  Format = "gzip"
	XZ    Format = "xz"
	Zstd  Format = "zstd"
	Tar   Format = "tar"
)

const (
	// number of bytes from the beginning of a file that Identify needs
	HeadSize = 2048
	TailSize = 512 // number of bytes from the end of a file that Identify needs
)

// A signature is a byte sequence at a fixed position of all files of a format.
type signature struct {
	at     int    // offset in the head or tail
	bytes  string // bytes at that offset
	format Format // format of a file with these bytes
	remedy string // remedy with %s for the quoted path; empty uses that of convert
}

// convertHint returns the remedy for a format that qemu-img reads. name is qemu-img's name of the
// format.
func convertHint(name string) string {
	return "convert it first: qemu-img convert -f " + name + " -O qcow2 %s disk.qcow2"
}

// signatures are searched in the head of a file; the first match wins.
var signatures = []signature{
	{0, "KDMV", VMDK, ""},                             // hosted sparse, streamOptimized
	{0, "COWD", VMDK, ""},                             // delta
	{0, "\xbe\xba\xfe\xca\x00\x00\x00\x00", VMDK, ""}, // seSparse
	{0, "QFI\xfb\x00\x00\x00\x01", "qcow (version 1)", convertHint("qcow")},
	{0, "QFI\xfb", QCOW2, ""},
	{0, "QED\x00", "QED", convertHint("qed")},
	{64, "\x7f\x10\xda\xbe", VDI, convertHint("vdi")},
	{0, "vhdxfile", VHDX, convertHint("vhdx")},
	{0, "conectix", VHD, convertHint("vpc")}, // dynamic and differencing; a copy of the footer
	{0, "WithoutFreeSpace", "Parallels", convertHint("parallels")},
	{0, "WithouFreSpacExt", "Parallels", convertHint("parallels")},
	{0, "Bochs Virtual HD Image", "Bochs", convertHint("bochs")},
	{0, "\x1f\x8b", Gzip, "unpack it first: gunzip -k %s"},
	{0, "\xfd7zXZ\x00", XZ, "unpack it first: xz -dk %s"},
	{0, "\x28\xb5\x2f\xfd", Zstd, "unpack it first: zstd -dk %s"},
	{0, "BZh", "bzip2", "unpack it first: bzip2 -dk %s"},
	{0, "\x04\x22\x4d\x18", "lz4", "unpack it first: lz4 -dk %s"},
	{0, "7z\xbc\xaf\x27\x1c", "7z", "unpack it first: 7z x %s"},
	{0, "PK\x03\x04", "zip", "unpack it first: unzip %s"},
	{0, "VMA\x00", "VMA", "unpack it on a Proxmox node: vma extract %s folder"},
	{0, "EVF\x09\x0d\x0a\xff\x00", "EWF (E01)", "export it as a raw image: ewfexport -f raw %s"},
	{257, "ustar", Tar, "unpack it first, and name the disk in it (an OVA holds x-disk1.vmdk): tar -xf %s"},
}

// tails are searched in the last TailSize bytes of a file, after signatures.
var tails = []signature{
	{0, "conectix", VHD, convertHint("vpc")}, // fixed: raw bytes with a footer
	{1, "conectix", VHD, convertHint("vpc")}, // older writers: a footer of 511 bytes
	{0, "koly", "DMG", convertHint("dmg")},
}

// Identify returns the format of a file that begins with head, which has HeadSize bytes or is
// the whole file, and ends with tail, which has TailSize bytes or is nil.
func Identify(head, tail []byte) Format {
	if s := findSignature(head, tail); s != nil {
		return s.format
	}
	if IsDescriptor(head) {
		return VMDK
	}
	return ""
}

// findSignature returns the signature of a file, or nil.
func findSignature(head, tail []byte) *signature {
	for i, s := range signatures {
		if len(head) > s.at && bytes.HasPrefix(head[s.at:], []byte(s.bytes)) && isPlausible(s, head) {
			return &signatures[i]
		}
	}
	for i, s := range tails {
		if len(tail) == TailSize && bytes.HasPrefix(tail[s.at:], []byte(s.bytes)) {
			return &tails[i]
		}
	}
	return nil
}

// isPlausible checks more than a short signature: the disk of a guest may begin with its bytes by
// chance.
func isPlausible(s signature, head []byte) bool {
	switch s.format {
	case Gzip: // method deflate, no reserved flag
		return len(head) > 3 && head[2] == 8 && head[3]&0xe0 == 0
	case "bzip2":
		return len(head) > 9 && head[3] >= '1' && head[3] <= '9' && string(head[4:10]) == "1AY&SY"
	case QCOW2:
		return len(head) < 8 || binary.BigEndian.Uint32(head[4:]) >= 2
	}
	return true
}

// maxComment is the number of bytes in which IsDescriptor searches for the end of comments.
const maxComment = HeadSize

// IsDescriptor reports whether a file begins like the descriptor of a VMDK: with its first line, or
// after comments with an entry or an extent.
func IsDescriptor(head []byte) bool {
	text := strings.ToLower(string(bytes.TrimPrefix(head[:min(len(head), maxComment)], []byte("\ufeff"))))
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if strings.HasPrefix(strings.TrimSpace(strings.TrimPrefix(line, "#")), "disk descriptor") {
			return true
		}
		if line == "" || line[0] == '#' {
			continue
		}
		key, _, entry := strings.Cut(line, "=")
		switch strings.TrimSpace(key) {
		case "version", "encoding", "cid", "parentcid", "isnativesnapshot", "createtype", "parentfilenamehint":
			return entry
		}
		access, _, _ := strings.Cut(line, " ")
		return access == "rw" || access == "rdonly" || access == "noaccess"
	}
	return false
}

// Refuse returns the error for a file of a format that decamp does not read. It returns nil for formats
// that decamp reads, and for files without a signature.
func Refuse(path string, head, tail []byte) error {
	s := findSignature(head, tail)
	if s == nil || s.remedy == "" {
		return nil
	}
	return fault.New(fault.Unsupported, "%s is a file of the format %s, which decamp does not read", path, s.format).
		WithHint(s.remedy+"; if it is the raw disk of a guest that begins like one: --from raw", fault.Quote(path))
}
