package diskfile

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/decamp/decamp/internal/fault"
)

// Kind is what a file is.
type Kind string

const (
	VMDK  Kind = "vmdk"
	QCOW2 Kind = "qcow2"
	Raw   Kind = "raw"
)

// signatures are how files of a kind begin.
var signatures = []struct {
	begin string
	kind  Kind
}{
	{"KDMV", VMDK}, // hosted sparse, streamOptimized
	{"COWD", VMDK}, // delta
	{"\xbe\xba\xfe\xca\x00\x00\x00\x00", VMDK}, // seSparse
	{"QFI\xfb", QCOW2},
}

// maxText is the longest file that may be a descriptor, in bytes.
const maxText = 1 << 20

// kindOf finds out what the file at path is.
func kindOf(path string) (Kind, error) {
	// O_NONBLOCK: opening a pipe would wait for its writer for ever.
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return "", openFault(err)
	}
	defer f.Close() // nothing was written
	info, err := f.Stat()
	switch {
	case err != nil:
		return "", err
	case info.Mode().Type() == fs.ModeDevice:
		return Raw, nil
	case !info.Mode().IsRegular():
		return "", fault.New(fault.Invalid, "%s is neither a file nor a block device", path).WithHint("name a disk's file; a streamOptimized VMDK can come from a pipe: - for IN")
	}
	if kind, err := kindByName(path); kind != "" || err != nil {
		return kind, err
	}
	return kindByContent(f, info.Size())
}

// kindByName knows the names of raw disks.
func kindByName(path string) (Kind, error) {
	name := strings.ToLower(filepath.Base(path))
	switch ext := filepath.Ext(name); {
	case ext == ".raw" || ext == ".img":
		return Raw, nil
	case strings.HasSuffix(name, "-flat.vmdk"):
		return "", fault.New(fault.Invalid, "%s holds the bytes of a disk, not what it is", path).
			WithHint("name the descriptor %s, or say --from raw", strings.TrimSuffix(path, "-flat"+filepath.Ext(path))+filepath.Ext(path))
	}
	return "", nil
}

// kindByContent knows signatures, and takes a short text for a descriptor.
func kindByContent(f *os.File, size int64) (Kind, error) {
	head := make([]byte, min(size, 2048))
	if _, err := io.ReadFull(f, head); err != nil {
		return "", err
	}
	for _, s := range signatures {
		if bytes.HasPrefix(head, []byte(s.begin)) {
			return s.kind, nil
		}
	}
	if 0 < size && size <= maxText && bytes.IndexByte(head, 0) < 0 {
		return VMDK, nil
	}
	return "", fault.New(fault.Unsupported, "%s begins like no disk that decamp knows", f.Name()).
		WithHint("if it holds the bytes of a disk as they are, say --from raw")
}

func openFault(err error) error {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fault.New(fault.NotFound, "%w", err).WithHint("name a disk's file: x.vmdk, x.qcow2, x.raw")
	case errors.Is(err, fs.ErrPermission):
		return fault.New(fault.Denied, "%w", err).WithHint("run as a user who may read the file")
	}
	return err
}
