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

// maxHead limits the head of a message, in bytes. It may contain all names of a folder.
const maxHead = 4 << 20

// Op is the operation of a request.
type Op string

const (
	Mount    Op = "mount"    // mounts a disk; the reply has the kernel log
	Read     Op = "read"     // returns the content of a file as data
	Size     Op = "size"     // returns the size of a file
	Names    Op = "names"    // returns the names in a folder
	Readlink Op = "readlink" // returns the target of a symbolic link
	Write    Op = "write"    // replaces or creates a file with the data
	Append   Op = "append"   // appends the data to a file
	Mkdir    Op = "mkdir"    // creates a folder
	Symlink  Op = "symlink"  // creates a symbolic link
	Flush    Op = "flush"    // writes all changes to the disk
	Unmount  Op = "unmount"  // unmounts all file systems; the appliance then ends
)

// A Request is the head of a message of the host. The data of the message is the content of a file.
type Request struct {
	Op     Op     `json:"op"`               // operation
	Mount  int    `json:"mount"`            // number of the file system, in the order of the mount requests
	Path   string `json:"path,omitempty"`   // path without a leading slash
	Target string `json:"target,omitempty"` // target of a symbolic link
	Limit  int64  `json:"limit,omitempty"`  // maximum bytes to read
	Mode   uint32 `json:"mode,omitempty"`   // permission bits of a new file
	UID    uint32 `json:"uid,omitempty"`    // user that owns a new file
	GID    uint32 `json:"gid,omitempty"`    // group that owns a new file

	Disk      int    `json:"disk,omitempty"`      // Mount: number of the disk
	Kind      string `json:"kind,omitempty"`      // Mount: type of the file system, such as "xfs"
	Subvolume string `json:"subvolume,omitempty"` // Mount: btrfs subvolume; empty means the default one
}

// A Reply is the head of a message of the appliance.
type Reply struct {
	Fault    string   `json:"fault,omitempty"`    // kind of the error; empty if the request succeeded
	Error    string   `json:"error,omitempty"`    // text of the error
	NotExist bool     `json:"notExist,omitempty"` // the error wraps fs.ErrNotExist
	Size     int64    `json:"size,omitempty"`     // result of Size in bytes
	Text     string   `json:"text,omitempty"`     // result of Readlink
	Names    []string `json:"names,omitempty"`    // result of Names
	Log      []string `json:"log,omitempty"`      // Mount: messages of the kernel
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

// Receive reads a message, decodes its head and returns its data. The error is io.EOF if the other side
// has ended, and fault.Corrupt if the message is invalid or has more than limit bytes of data.
func Receive(r io.Reader, head any, limit int64) ([]byte, error) {
	var lengths [12]byte
	if _, err := io.ReadFull(r, lengths[:]); err != nil {
		return nil, err
	}
	n, size := binary.LittleEndian.Uint32(lengths[:]), binary.LittleEndian.Uint64(lengths[4:])
	if n > maxHead || size > uint64(limit) {
		return nil, fault.New(fault.Corrupt, "a message with a head of %d bytes and %d bytes of data, at most %d and %d are expected", n, size, maxHead, limit)
	}
	text, err := readBytes(r, int64(n))
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(text, head); err != nil {
		return nil, fault.New(fault.Corrupt, "the head of a message: %w", err)
	}
	return readBytes(r, int64(size))
}

// readBytes reads n bytes. It allocates memory as they arrive, at most twice their number.
func readBytes(r io.Reader, n int64) ([]byte, error) {
	var b bytes.Buffer
	got, err := io.CopyN(&b, r, n)
	if err != nil {
		return nil, fmt.Errorf("truncated message: %d of %d bytes: %w", got, n, io.ErrUnexpectedEOF)
	}
	return b.Bytes(), nil
}
