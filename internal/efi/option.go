package efi

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"unicode/utf16"
)

// An Entry is a boot entry that is valid on any machine with its disk: it starts a file
// on a partition.
type Entry struct {
	Number    uint16    `json:"number"`    // number of the variable, such as 4 of Boot0004
	Label     string    `json:"label"`     // label in the firmware's menu
	Partition Partition `json:"partition"` // partition with the file
	File      string    `json:"file"`      // path with backslashes, such as \\EFI\\debian\\shimx64.efi

	// Attributes are those of the load option; see Active.
	Attributes uint32 `json:"attributes"`

	// Data is passed to the started file. Windows stores the name of a system in it.
	Data []byte `json:"data,omitempty"`
}

// Partition identifies a partition of a GPT by its table entry.
type Partition struct {
	Number uint32 `json:"number"` // index in the table, from 1
	Start  uint64 `json:"start"`  // first sector; sectors have 512 bytes
	Size   uint64 `json:"size"`   // number of sectors
	GUID   GUID   `json:"guid"`   // GUID of the table entry
}

// Active is the attribute of an entry that the firmware starts by itself.
const Active = 1

// Active reports whether the firmware starts the entry by itself.
func (e Entry) Active() bool { return e.Attributes&Active != 0 }

// Of a device path, UEFI 2.10, chapter 10: type and subtype of its nodes.
const (
	mediaPath = 4 // type of media nodes
	hardDrive = 1 // subtype of a hard drive
	filePath  = 4 // subtype of a file

	endPath   = 0x7f // type of end nodes
	endEntire = 0xff // subtype of the end of the whole path

	nodeHeader   = 4  // bytes of a node's header
	hardDriveLen = 42 // bytes of a hard drive's node

	isGPT  = 2        // format of a GPT, and type of a GUID signature
	maxOne = 64 << 10 // limit of a load option in bytes
)

// errForeign is the error for a load option that is valid on one machine only.
var errForeign = errors.New("it names no file on a partition of a GPT")

// ParseOption parses the data of a variable such as Boot0004 (UEFI 2.10, section
// 3.1.3): attributes, length of the path, label, path, and optional data. A path that
// starts with a controller is shortened to the partition, which firmware finds on any
// machine.
func ParseOption(data []byte) (e Entry, err error) {
	if len(data) < 6 || len(data) > maxOne {
		return e, fmt.Errorf("a load option of %d bytes", len(data))
	}
	e.Attributes = binary.LittleEndian.Uint32(data)
	length := int(binary.LittleEndian.Uint16(data[4:]))
	label, rest, err := cutText(data[6:])
	if err != nil {
		return e, err
	}
	// The length is untrusted input.
	if length > len(rest) {
		return e, fmt.Errorf("a device path of %d bytes, and %d are there", length, len(rest))
	}
	e.Label = label
	if extra := rest[length:]; len(extra) > 0 {
		e.Data = append([]byte(nil), extra...)
	}
	return e, e.parsePath(rest[:length])
}

// parsePath parses the nodes of a device path: a hard drive's, then those of a file.
// Other nodes after the hard drive are errForeign.
func (e *Entry) parsePath(path []byte) error {
	found := false
	for {
		if len(path) < nodeHeader {
			return errors.New("a device path without end")
		}
		kind, subkind, size := path[0], path[1], int(binary.LittleEndian.Uint16(path[2:]))
		if size < nodeHeader || size > len(path) {
			return fmt.Errorf("a node of %d bytes in a device path that has %d left", size, len(path))
		}
		body := path[nodeHeader:size]
		path = path[size:]
		switch {
		case kind == endPath && subkind == endEntire && found && e.File != "":
			return nil
		// A load option may contain several paths; such an option is not portable.
		case kind == endPath: // or one path of several
			return errForeign
		case kind == mediaPath && subkind == hardDrive:
			// Only partitions of a GPT have an identifier that is unique.
			if found || size != hardDriveLen || body[36] != isGPT || body[37] != isGPT {
				return errForeign
			}
			e.Partition, found = partitionOf(body), true
		case kind == mediaPath && subkind == filePath && found:
			text, err := nodeText(body)
			if err != nil {
				return err
			}
			e.File = joinPath(e.File, text)
		case found:
			return errForeign
		}
	}
}

// partitionOf parses the body of a hard drive's node.
func partitionOf(body []byte) (p Partition) {
	p.Number, p.Start, p.Size = binary.LittleEndian.Uint32(body), binary.LittleEndian.Uint64(body[4:]), binary.LittleEndian.Uint64(body[12:])
	copy(p.GUID[:], body[20:])
	return p
}

// joinPath joins the names of two file nodes. A path may be split at any place.
func joinPath(a, b string) string {
	if a == "" {
		return b
	}
	return strings.TrimSuffix(a, `\`) + `\` + strings.TrimPrefix(b, `\`)
}

// Option returns the data of the variable for e, the inverse of ParseOption.
func (e Entry) Option() []byte {
	file := text16(e.File)
	path := newNode(mediaPath, hardDrive, e.Partition.toNode())
	path = append(path, newNode(mediaPath, filePath, file)...)
	path = append(path, newNode(endPath, endEntire, nil)...)
	data := binary.LittleEndian.AppendUint32(nil, e.Attributes)
	data = binary.LittleEndian.AppendUint16(data, uint16(len(path)))
	data = append(data, text16(e.Label)...)
	return append(append(data, path...), e.Data...)
}

// toNode returns the body of a hard drive's node.
func (p Partition) toNode() []byte {
	b := binary.LittleEndian.AppendUint32(nil, p.Number)
	b = binary.LittleEndian.AppendUint64(b, p.Start)
	b = binary.LittleEndian.AppendUint64(b, p.Size)
	return append(append(b, p.GUID[:]...), isGPT, isGPT)
}

// newNode returns a node of a device path.
func newNode(kind, subkind byte, body []byte) []byte {
	b := binary.LittleEndian.AppendUint16([]byte{kind, subkind}, uint16(nodeHeader+len(body)))
	return append(b, body...)
}

// text16 returns s in UTF-16 with a final NUL, the text format of UEFI.
func text16(s string) []byte {
	var b []byte
	for _, unit := range utf16.Encode([]rune(s)) {
		b = binary.LittleEndian.AppendUint16(b, unit)
	}
	return append(b, 0, 0)
}

// cutText returns the text up to its NUL, and the bytes after it.
func cutText(b []byte) (s string, rest []byte, err error) {
	var units []uint16
	for ; len(b) >= 2; b = b[2:] {
		unit := binary.LittleEndian.Uint16(b)
		if unit == 0 {
			return string(utf16.Decode(units)), b[2:], nil
		}
		units = append(units, unit)
	}
	return "", nil, errors.New("a text without end")
}

// nodeText returns a text that fills a node, with or without a NUL. An empty text is an
// error.
func nodeText(b []byte) (string, error) {
	s, rest, err := cutText(append(b[:len(b):len(b)], 0, 0))
	if err != nil || len(rest) > 2 || s == "" {
		return "", errors.New("a device path has an invalid file name")
	}
	return s, nil
}
