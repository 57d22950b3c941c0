package diskfile

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/decamp/decamp/internal/disk/signature"
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/manifest"
)

// A Kind is the format of a file.
type Kind string

const (
	VMDK  Kind = "vmdk"  // any VMware format
	QCOW2 Kind = "qcow2" // qcow2 of QEMU
	Raw   Kind = "raw"   // the bytes of the disk without a header
)

// kinds are the formats that decamp reads, by their signature.
var kinds = map[signature.Format]Kind{signature.VMDK: VMDK, signature.QCOW2: QCOW2}

// kindsByName are the formats that file names claim. A name decides only if the content has no
// signature.
var kindsByName = map[string]Kind{".vmdk": VMDK, ".qcow2": QCOW2, ".raw": Raw, ".img": Raw}

// maxText is the largest file that may be a descriptor, in bytes.
const maxText = 1 << 20

// A finding is the format of a file, and how it was determined.
type finding struct {
	kind     Kind   // format to read the file as
	warning  string // name or --from disagree with the content; empty if they agree
	noOthers bool   // the file must not open other files, because its name claims that it is raw
}

// A content is the part of a file that identifies its format.
type content struct {
	path   string // path of the file
	device bool   // the file is a block device
	size   int64  // size in bytes
	// first signature.HeadSize bytes, and last signature.TailSize bytes (nil if the file is shorter)
	head, tail []byte
}

// readContent reads the beginning and the end of a regular file or a block device.
func readContent(path string) (c content, err error) {
	// O_NONBLOCK: opening a pipe would wait for its writer for ever.
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return c, openFault(err)
	}
	defer f.Close() // nothing was written
	info, err := f.Stat()
	if err != nil {
		return c, err
	}
	c = content{path: path, size: info.Size(), device: info.Mode().Type() == fs.ModeDevice}
	if !c.device && !info.Mode().IsRegular() {
		return c, fault.New(fault.Invalid, "%s is neither a file nor a block device", path).WithHint("name a disk's file; a streamOptimized VMDK can come from a pipe: - for IN")
	}
	if c.device {
		if c.size, err = f.Seek(0, io.SeekEnd); err != nil {
			return c, err
		}
	}
	c.head = make([]byte, min(c.size, signature.HeadSize))
	if _, err := f.ReadAt(c.head, 0); err != nil {
		return c, err
	}
	if c.size >= signature.TailSize {
		c.tail = make([]byte, signature.TailSize)
		if _, err := f.ReadAt(c.tail, c.size-signature.TailSize); err != nil {
			return c, err
		}
	}
	return c, nil
}

// findKind determines the format of the file at path: by the user's option, by decamp's records, by its
// content, and by its name only if the content has no signature.
func findKind(path string, o Options) (finding, error) {
	c, err := readContent(path)
	if err != nil {
		return finding{}, err
	}
	format := signature.Identify(c.head, c.tail)
	if o.Kind != "" {
		return c.forcedFinding(o.Kind, format)
	}
	claim := c.kindByName()
	switch kind := kinds[format]; {
	case o.RecordedRaw || c.isRecordedRaw():
		return c.recordedFinding(format), nil
	case strings.HasSuffix(strings.ToLower(filepath.Base(path)), "-flat.vmdk"):
		return finding{}, c.flatDataError()
	case c.device && kind == VMDK:
		return finding{}, fault.New(fault.Unsupported, "%s is a block device, but its content is VMDK", path).
			WithHint("copy it into a file to read it as VMDK; if it is the raw disk of a guest: --from raw")
	case kind != "":
		return c.contentFinding(kind, format, claim), nil
	case format != "":
		return finding{}, signature.Refuse(path, c.head, c.tail)
	case claim == Raw:
		return finding{kind: Raw}, nil
	case bytes.HasPrefix(bytes.TrimSpace(c.head), []byte("<")):
		return finding{}, fault.New(fault.Unsupported, "%s is XML, not a disk", path).WithHint("an OVF file names its disks: grep href %s", fault.Quote(path))
	case 0 < c.size && c.size <= maxText && bytes.IndexByte(c.head, 0) < 0:
		return finding{kind: VMDK}, nil // text: the parser reports its errors
	}
	return finding{}, fault.New(fault.Unsupported, "%s has the signature of no disk format", path).
		WithHint("if it holds the bytes of a disk without any header: --from raw")
}

// kindByName returns the format that the name claims, "" if it claims none. A block device claims Raw.
func (c content) kindByName() Kind {
	if c.device {
		return Raw
	}
	return kindsByName[strings.ToLower(filepath.Ext(c.path))]
}

// isRecordedRaw reports whether decamp wrote the file as a raw image: the manifest beside it is of a
// disk of its size. A qcow2 image of decamp is longer than its disk.
func (c content) isRecordedRaw() bool {
	info, err := manifest.ReadInfo(c.path + ".manifest")
	return err == nil && info.Size == c.size
}

// recordedFinding returns Raw, with a warning if the guest's data looks like another format.
func (c content) recordedFinding(format signature.Format) finding {
	f := finding{kind: Raw}
	if format != "" {
		f.warning = fmt.Sprintf("%s begins or ends like a file of the format %s, but decamp wrote it as a raw image: it is read as raw", c.path, format)
	}
	return f
}

// forcedFinding returns the format that the user requested. It fails if the content has another format.
// It never refuses Raw, because only the user can know what a guest wrote to the beginning of its disk.
func (c content) forcedFinding(asked Kind, format signature.Format) (finding, error) {
	f := finding{kind: asked}
	switch {
	case format == "" || kinds[format] == asked:
	case asked == Raw:
		f.warning = fmt.Sprintf("%s is a file of the format %s by its content; it is read as raw because of --from raw", c.path, format)
	default:
		return f, fault.New(fault.Invalid, "%s is a file of the format %s, not %s", c.path, format, asked).WithHint("leave --from out")
	}
	return f, nil
}

// contentFinding returns the format of the content, with a warning if the name claims another one.
func (c content) contentFinding(kind Kind, format signature.Format, claim Kind) finding {
	f := finding{kind: kind, noOthers: claim == Raw}
	if claim == "" || claim == kind {
		return f
	}
	f.warning = fmt.Sprintf("%s is named like a %s image, but its content is %s: it is read as %s", c.path, claim, format, kind)
	if c.device {
		f.warning = fmt.Sprintf("%s is a block device, but its content is %s: it is read as %s", c.path, format, kind)
	}
	if claim == Raw && !signature.IsDescriptor(c.head) {
		f.warning += "; if it is the raw disk of a guest: --from raw"
	}
	return f
}

// flatDataError returns the error for the data file of a flat VMDK. Its bytes are written by the guest,
// so a signature in it has no meaning.
func (c content) flatDataError() error {
	descriptor := c.path[:len(c.path)-len("-flat.vmdk")] + filepath.Ext(c.path)
	return fault.New(fault.Invalid, "%s holds the bytes of a VMDK, its descriptor is another file", c.path).
		WithHint("name the descriptor %s; if it is lost: --from raw", descriptor)
}

// openFault adds kind and remedy to an error of opening a file.
func openFault(err error) error {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fault.New(fault.NotFound, "%w", err).WithHint("name a disk's file: x.vmdk, x.qcow2, x.raw")
	case errors.Is(err, fs.ErrPermission):
		return fault.New(fault.Denied, "%w", err).WithHint("run as a user who may read the file")
	}
	return err
}
