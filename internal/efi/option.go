package efi

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"unicode/utf16"
)

// An Entry is a boot entry that means the same on any machine: it starts a file on a partition.
type Entry struct {
	Number    uint16    `json:"number"` // 4 of Boot0004
	Label     string    `json:"label"`  // label in the firmware's menu
	Partition Partition `json:"partition"`
	File      string    `json:"file"` // \EFI\debian\shimx64.efi

	// Attributes are the load option's; 1 is that it is tried by itself.
	Attributes uint32 `json:"attributes"`

	// Data is handed to the file that is started. Windows has the name of a system in it.
	Data []byte `json:"data,omitempty"`
}

// Partition identifies a partition of a GPT by its table entry.
type Partition struct {
	Number uint32 `json:"number"`
	Start  uint64 `json:"start"` // sectors of 512 bytes, as Size
	Size   uint64 `json:"size"`
	GUID   GUID   `json:"guid"`
}

// Active is the attribute of an entry that the firmware tries by itself.
const Active = 1

// Active reports whether the firmware tries it by itself.
func (e Entry) Active() bool { return e.Attributes&Active != 0 }

// Of a device path, UEFI 2.10, chapter 10: type and subtype of its nodes.
const (
	mediaPath = 4
	hardDrive = 1
	filePath  = 4

	endPath   = 0x7f
	endEntire = 0xff

	nodeHeader   = 4
	hardDriveLen = 42

	isGPT  = 2 // both the kind of a table and of a signature
	maxOne = 64 << 10
)

// errForeign is of a load option that means something on one machine only.
var errForeign = errors.New("it names no file on a partition of a GPT")

// ParseOption reads what a variable Boot0004 holds, UEFI 2.10, section 3.1.3: attributes, the length of the path,
// a name, the path, and what else there is. Of a path that leads to the partition over a controller
// the end is taken, which firmware finds on any.
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
	if length > len(rest) {
		return e, fmt.Errorf("a device path of %d bytes, and %d are there", length, len(rest))
	}
	e.Label = label
	if extra := rest[length:]; len(extra) > 0 {
		e.Data = append([]byte(nil), extra...)
	}
	return e, e.parsePath(rest[:length])
}

// parsePath reads a hard drive's node and those of a file, which come last.
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
		case kind == endPath: // or one path of several
			return errForeign
		case kind == mediaPath && subkind == hardDrive:
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

func partitionOf(body []byte) (p Partition) {
	p.Number, p.Start, p.Size = binary.LittleEndian.Uint32(body), binary.LittleEndian.Uint64(body[4:]), binary.LittleEndian.Uint64(body[12:])
	copy(p.GUID[:], body[20:])
	return p
}

// joinPath puts the names of several nodes together: one path may be cut in any place.
func joinPath(a, b string) string {
	if a == "" {
		return b
	}
	return strings.TrimSuffix(a, `\`) + `\` + strings.TrimPrefix(b, `\`)
}

// Option is what a variable holds that means e.
func (e Entry) Option() []byte {
	file := text16(e.File)
	path := node(mediaPath, hardDrive, e.Partition.body())
	path = append(path, node(mediaPath, filePath, file)...)
	path = append(path, node(endPath, endEntire, nil)...)
	data := binary.LittleEndian.AppendUint32(nil, e.Attributes)
	data = binary.LittleEndian.AppendUint16(data, uint16(len(path)))
	data = append(data, text16(e.Label)...)
	return append(append(data, path...), e.Data...)
}

func (p Partition) body() []byte {
	b := binary.LittleEndian.AppendUint32(nil, p.Number)
	b = binary.LittleEndian.AppendUint64(b, p.Start)
	b = binary.LittleEndian.AppendUint64(b, p.Size)
	return append(append(b, p.GUID[:]...), isGPT, isGPT)
}

func node(kind, subkind byte, body []byte) []byte {
	b := binary.LittleEndian.AppendUint16([]byte{kind, subkind}, uint16(nodeHeader+len(body)))
	return append(b, body...)
}

// text16 is text as UEFI has it: UTF-16 with a NUL at its end.
func text16(s string) []byte {
	var b []byte
	for _, unit := range utf16.Encode([]rune(s)) {
		b = binary.LittleEndian.AppendUint16(b, unit)
	}
	return append(b, 0, 0)
}

// cutText reads text up to its NUL.
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

// nodeText reads a text that fills its node, with or without a NUL.
func nodeText(b []byte) (string, error) {
	s, rest, err := cutText(append(b[:len(b):len(b)], 0, 0))
	if err != nil || len(rest) > 2 || s == "" {
		return "", errors.New("a device path has an invalid file name")
	}
	return s, nil
}
