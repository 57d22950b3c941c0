package appliance

import (
	"fmt"
	"io/fs"
	"strings"

	"github.com/decamp/decamp/internal/convert"
	"github.com/decamp/decamp/internal/convert/appliance/wire"
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/guest/extwrite"
)

// A response is a reply of the appliance with its data.
type response struct {
	wire.Reply
	data []byte // content of a file; at most the requested limit
}

// request sends a request and waits for the response, whose data has at most limit bytes.
func (m *vm) request(r wire.Request, data []byte, limit int64) (response, error) {
	if err := wire.Send(m.port, r, data); err != nil {
		return response{}, m.explainError(err)
	}
	a, err := m.receiveReply(limit)
	if err != nil {
		return response{}, err
	}
	if a.Fault == "" {
		return a, nil
	}
	// A failed device is the cause of later errors of the file system.
	if failed := m.disks.firstError(); failed != nil {
		return a, fmt.Errorf("a disk of the appliance: %w", failed) // the appliance sees only an I/O error
	}
	return a, replyError(a.Reply)
}

// replyError converts an error in a reply to a Go error. The text is untrusted.
func replyError(r wire.Reply) error {
	text := strings.Map(replaceControl, r.Error[:min(len(r.Error), 4096)])
	// Callers distinguish missing files from other errors.
	if r.NotExist {
		return fault.New(fault.NotFound, "%s: %w", text, fs.ErrNotExist)
	}
	e := fault.New(fault.KindNamed(r.Fault), "%s", text)
	switch e.Kind {
	case fault.Full:
		return e.WithHint("free space in the guest's file system at the source, and copy it again")
	case fault.Corrupt:
		return e.WithHint("check the file system in the guest at the source, and copy it again")
	}
	return e.WithHint("use the compat profile, which changes nothing in the guest")
}

// mountVolume mounts a volume, which is on the disk with the number. If that fails, the error contains
// the end of the VM's kernel log.
func (m *vm) mountVolume(v convert.Volume, disk int) error {
	kind, err := driverOf(v.Kind)
	if err != nil {
		return err
	}
	a, err := m.request(wire.Request{Op: wire.Mount, Disk: disk, Kind: kind, Subvolume: v.Subvolume}, nil, 0)
	// The log is untrusted text; at most 2 KiB of it become part of the error.
	if err != nil && len(a.Log) > 0 {
		text := strings.Map(replaceControl, strings.Join(a.Log[max(0, len(a.Log)-5):], "; "))
		return fmt.Errorf("%w; kernel log: %s", err, text[:min(len(text), 2048)])
	}
	if err != nil {
		return err
	}
	if hasReplay(a.Log) {
		m.replayed = append(m.replayed, v.Name)
	}
	m.mounts++
	return nil
}

// hasReplay reports whether the kernel log contains the replay of a journal by XFS, ext4 or btrfs.
func hasReplay(log []string) bool {
	for _, line := range log {
		for _, sign := range []string{"Starting recovery", "recovery complete", "orphan cleanup", "start tree-log replay"} {
			if strings.Contains(line, sign) {
				return true
			}
		}
	}
	return false
}

// Replayed returns the names of the volumes whose journals were replayed.
func (m *vm) Replayed() []string { return m.replayed }

// Unmount writes all changes, unmounts all volumes and ends the VM. It fails if a device had an error
// at any time.
func (m *vm) Unmount() error {
	if _, err := m.request(wire.Request{Op: wire.Unmount}, nil, 0); err != nil {
		return err
	}
	if err := m.Close(); err != nil {
		return err
	}
	if err := m.disks.firstError(); err != nil {
		return fmt.Errorf("a disk of the appliance: %w", err)
	}
	return nil
}

// FileSystem returns the file system of volume i, in the order of Mount.
func (m *vm) FileSystem(i int) convert.FileSystem { return &fileSystem{m, i} }

// A fileSystem is a file system that the VM has mounted.
type fileSystem struct {
	vm    *vm // VM that has mounted it
	mount int // number of the mount, in the order of Mount
}

// request sends a request for this mount.
func (f *fileSystem) request(r wire.Request, data []byte, limit int64) (response, error) {
	r.Mount = f.mount
	return f.vm.request(r, data, limit)
}

// ReadFile implements convert.FileSystem.
func (f *fileSystem) ReadFile(path string, limit int64) ([]byte, error) {
	a, err := f.request(wire.Request{Op: wire.Read, Path: path, Limit: limit}, nil, limit)
	return a.data, err
}

// Size implements convert.FileSystem.
func (f *fileSystem) Size(path string) (int64, error) {
	a, err := f.request(wire.Request{Op: wire.Size, Path: path}, nil, 0)
	return a.Size, err
}

// Names implements convert.FileSystem.
func (f *fileSystem) Names(path string) ([]string, error) {
	a, err := f.request(wire.Request{Op: wire.Names, Path: path}, nil, 0)
	return a.Names, err
}

// Readlink implements convert.FileSystem.
func (f *fileSystem) Readlink(path string) (string, error) {
	a, err := f.request(wire.Request{Op: wire.Readlink, Path: path}, nil, 0)
	return a.Text, err
}

// WriteFile implements convert.FileSystem.
func (f *fileSystem) WriteFile(path string, data []byte, a extwrite.Attr) error {
	return f.requestChange(wire.Request{Op: wire.Write, Path: path, Mode: uint32(a.Mode), UID: a.UID, GID: a.GID}, data)
}

// AppendFile implements convert.FileSystem.
func (f *fileSystem) AppendFile(path string, data []byte) error {
	return f.requestChange(wire.Request{Op: wire.Append, Path: path}, data)
}

// Mkdir implements convert.FileSystem.
func (f *fileSystem) Mkdir(path string, a extwrite.Attr) error {
	return f.requestChange(wire.Request{Op: wire.Mkdir, Path: path, Mode: uint32(a.Mode), UID: a.UID, GID: a.GID}, nil)
}

// Symlink implements convert.FileSystem.
func (f *fileSystem) Symlink(path, target string) error {
	return f.requestChange(wire.Request{Op: wire.Symlink, Path: path, Target: target}, nil)
}

// Flush implements convert.FileSystem.
func (f *fileSystem) Flush() error { return f.requestChange(wire.Request{Op: wire.Flush}, nil) }

// requestChange sends a request whose response has no data.
func (f *fileSystem) requestChange(r wire.Request, data []byte) error {
	_, err := f.request(r, data, 0)
	return err
}
