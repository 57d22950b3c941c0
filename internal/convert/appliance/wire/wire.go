// Package wire is the protocol between an appliance and its host: the host sends requests, the appliance
// answers them one after the other. A message is
//
//	4 bytes  length of the head, little-endian, maxHead at most
//	8 bytes  length of the data
//	the head, JSON
//	the data: a file's content
//
// The host does not trust answers, because the appliance has mounted untrusted file systems. Reads are
// bounded by the request, and memory is allocated as bytes arrive.
package wire

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"

	"github.com/decamp/decamp/internal/fault"
)

// maxHead bounds a head, in bytes: the names in a folder are in one.
const maxHead = 4 << 20

// Op is the kind of a request.
type Op string

const (
	Mount    Op = "mount"
	Read     Op = "read"
	Size     Op = "size"
	Names    Op = "names"
	Readlink Op = "readlink"
	Write    Op = "write"
	Append   Op = "append"
	Mkdir    Op = "mkdir"
	Symlink  Op = "symlink"
	Flush    Op = "flush"
	Unmount  Op = "unmount" // unmounts all; the appliance ends then
)

// A Request is the head of the host's message; the data is a file's content.
type Request struct {
	Op     Op     `json:"op"`
	Mount  int    `json:"mount"`            // number of the file system in Mounts
	Path   string `json:"path,omitempty"`   // without a slash before it
	Target string `json:"target,omitempty"` // target of a symbolic link
	Limit  int64  `json:"limit,omitempty"`  // bytes that are read at most
	Mode   uint32 `json:"mode,omitempty"`   // permission bits of a new file
	UID    uint32 `json:"uid,omitempty"`
	GID    uint32 `json:"gid,omitempty"`

	Disk      int    `json:"disk,omitempty"` // Mount: number of the disk
	Kind      string `json:"kind,omitempty"` // Mount: type of the file system, such as "xfs"
	Subvolume string `json:"subvolume,omitempty"`
}

// A Reply is the head of an answer.
type Reply struct {
	Fault    string   `json:"fault,omitempty"` // the kind of what went wrong; "" if nothing did
	Error    string   `json:"error,omitempty"`
	NotExist bool     `json:"notExist,omitempty"` // the error wraps fs.ErrNotExist
	Size     int64    `json:"size,omitempty"`
	Text     string   `json:"text,omitempty"` // target of a link
	Names    []string `json:"names,omitempty"`
	Log      []string `json:"log,omitempty"` // Mount: messages of the kernel
}

// Send writes a message.
func Send(w io.Writer, head any, data []byte) error {
	text, err := json.Marshal(head)
	if err != nil {
		return err
	}
	lengths := binary.LittleEndian.AppendUint32(nil, uint32(len(text)))
	lengths = binary.LittleEndian.AppendUint64(lengths, uint64(len(data)))
	if _, err := w.Write(append(lengths, text...)); err != nil || len(data) == 0 {
		return err
	}
	_, err = w.Write(data)
	return err
}

// Receive reads a message into head, and returns its data, limit bytes at most. The error is io.EOF if
// the other side has ended, and fault.Corrupt for an invalid message.
func Receive(r io.Reader, head any, limit int64) ([]byte, error) {
	var lengths [12]byte
	if _, err := io.ReadFull(r, lengths[:]); err != nil {
		return nil, err
	}
	n, size := binary.LittleEndian.Uint32(lengths[:]), binary.LittleEndian.Uint64(lengths[4:])
	if n > maxHead || size > uint64(limit) {
		return nil, fault.New(fault.Corrupt, "a message with a head of %d bytes and %d bytes of data, at most %d and %d are expected", n, size, maxHead, limit)
	}
	text, err := take(r, int64(n))
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(text, head); err != nil {
		return nil, fault.New(fault.Corrupt, "the head of a message: %w", err)
	}
	return take(r, int64(size))
}

// take reads n bytes, and has as much memory as have come, and twice that.
func take(r io.Reader, n int64) ([]byte, error) {
	var b bytes.Buffer
	got, err := io.CopyN(&b, r, n)
	if err != nil {
		return nil, fmt.Errorf("a message is cut short at %d of %d bytes: %w", got, n, io.ErrUnexpectedEOF)
	}
	return b.Bytes(), nil
}
