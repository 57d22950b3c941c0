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

// An answer is the appliance's response.
type answer struct {
	wire.Reply
	data []byte
}

// ask sends a request and waits for its answer, whose data has limit bytes at most.
func (m *vm) ask(r wire.Request, data []byte, limit int64) (answer, error) {
	if err := wire.Send(m.port, r, data); err != nil {
		return answer{}, m.lost(err)
	}
	a, err := m.receive(limit)
	if err != nil {
		return answer{}, err
	}
	if a.Fault == "" {
		return a, nil
	}
	if failed := m.disks.failure(); failed != nil {
		return a, fmt.Errorf("a disk of the appliance: %w", failed) // the appliance sees only an I/O error
	}
	return a, refused(a.Reply)
}

// refused converts the appliance's error to a Go error.
func refused(r wire.Reply) error {
	text := strings.Map(printable, r.Error[:min(len(r.Error), 4096)])
	if r.NotExist {
		return fault.New(fault.NotFound, "%s: %w", text, fs.ErrNotExist)
	}
	e := fault.New(fault.KindNamed(r.Fault), "%s", text)
	switch e.Kind {
	case fault.Full:
		return e.WithHint("make room in the guest's file system, and try again")
	case fault.Corrupt:
		return e.WithHint("check the file system in the guest at the source, and copy it again")
	}
	return e.WithHint("use the compat profile, which changes nothing in the guest")
}

// mount has a volume mounted.
func (m *vm) mount(v convert.Volume, disk int) error {
	kind, err := driver(v.Kind)
	if err != nil {
		return err
	}
	a, err := m.ask(wire.Request{Op: wire.Mount, Disk: disk, Kind: kind, Subvolume: v.Subvolume}, nil, 0)
	if err != nil && len(a.Log) > 0 {
		said := strings.Map(printable, strings.Join(a.Log[max(0, len(a.Log)-5):], "; "))
		return fmt.Errorf("%w; kernel log: %s", err, said[:min(len(said), 2048)])
	}
	if err != nil {
		return err
	}
	if replays(a.Log) {
		m.replayed = append(m.replayed, v.Name)
	}
	m.mounts++
	return nil
}

// replays reports whether the kernel logged the replay of a journal: XFS, ext4 and btrfs do.
func replays(log []string) bool {
	for _, line := range log {
		for _, sign := range []string{"Starting recovery", "recovery complete", "orphan cleanup", "start tree-log replay"} {
			if strings.Contains(line, sign) {
				return true
			}
		}
	}
	return false
}

// Replayed names the volumes whose journals held something.
func (m *vm) Replayed() []string { return m.replayed }

// Unmount has everything written and the VM end.
func (m *vm) Unmount() error {
	if _, err := m.ask(wire.Request{Op: wire.Unmount}, nil, 0); err != nil {
		return err
	}
	if err := m.Close(); err != nil {
		return err
	}
	if err := m.disks.failure(); err != nil {
		return fmt.Errorf("a disk of the appliance: %w", err)
	}
	return nil
}

// FileSystem returns the one of the volume with that number.
func (m *vm) FileSystem(i int) convert.FileSystem { return &fileSystem{m, i} }

// A fileSystem is one that the VM has mounted.
type fileSystem struct {
	vm    *vm
	mount int
}

func (f *fileSystem) ask(r wire.Request, data []byte, limit int64) (answer, error) {
	r.Mount = f.mount
	return f.vm.ask(r, data, limit)
}

// ReadFile implements convert.FileSystem, as do all below.
func (f *fileSystem) ReadFile(path string, limit int64) ([]byte, error) {
	a, err := f.ask(wire.Request{Op: wire.Read, Path: path, Limit: limit}, nil, limit)
	return a.data, err
}

func (f *fileSystem) Size(path string) (int64, error) {
	a, err := f.ask(wire.Request{Op: wire.Size, Path: path}, nil, 0)
	return a.Size, err
}

func (f *fileSystem) Names(path string) ([]string, error) {
	a, err := f.ask(wire.Request{Op: wire.Names, Path: path}, nil, 0)
	return a.Names, err
}

func (f *fileSystem) Readlink(path string) (string, error) {
	a, err := f.ask(wire.Request{Op: wire.Readlink, Path: path}, nil, 0)
	return a.Text, err
}

func (f *fileSystem) WriteFile(path string, data []byte, a extwrite.Attr) error {
	return f.change(wire.Request{Op: wire.Write, Path: path, Mode: uint32(a.Mode), UID: a.UID, GID: a.GID}, data)
}

func (f *fileSystem) AppendFile(path string, data []byte) error {
	return f.change(wire.Request{Op: wire.Append, Path: path}, data)
}

func (f *fileSystem) Mkdir(path string, a extwrite.Attr) error {
	return f.change(wire.Request{Op: wire.Mkdir, Path: path, Mode: uint32(a.Mode), UID: a.UID, GID: a.GID}, nil)
}

func (f *fileSystem) Symlink(path, target string) error {
	return f.change(wire.Request{Op: wire.Symlink, Path: path, Target: target}, nil)
}

func (f *fileSystem) Flush() error { return f.change(wire.Request{Op: wire.Flush}, nil) }

func (f *fileSystem) change(r wire.Request, data []byte) error {
	_, err := f.ask(r, data, 0)
	return err
}
