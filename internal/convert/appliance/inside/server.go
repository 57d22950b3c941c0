package inside

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"

	"github.com/decamp/decamp/internal/convert/appliance/wire"
	"github.com/decamp/decamp/internal/fault"
)

// maxData limits the data of one request, in bytes.
const maxData = 1 << 30

// A server executes the requests of the host.
type server struct {
	mounts []*folder                        // root folders of the mounted file systems, in the order of the requests
	points []string                         // mount points in the order of mounting; there is one more than mounts if a subvolume is missing
	device func(number int) (string, error) // returns the device of the host's disk
	kernel kernelLog                        // kernel log for replies to mount requests
}

// serve executes requests until the host requests to unmount all, or closes the connection.
func (s *server) serve(host io.ReadWriter) error {
	for {
		var r wire.Request
		data, err := wire.Receive(host, &r, maxData)
		if err != nil {
			return err
		}
		reply, out, err := s.handleRequest(r, data)
		if err != nil {
			reply = errorReply(err)
		}
		// The log explains a failed mount, and shows the replay of a journal.
		if r.Op == wire.Mount {
			reply.Log = s.kernel.lines()
		}
		if err := wire.Send(host, reply, out); err != nil || r.Op == wire.Unmount {
			return err
		}
	}
}

// errorReply converts an error to a reply. Errors of the kernel get a kind.
func errorReply(err error) wire.Reply {
	kind := fault.KindOf(err)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		kind = fault.NotFound
	case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EDQUOT):
		kind = fault.Full
	// File systems of the kernel report corruption by one of these errors.
	case errors.Is(err, unix.EUCLEAN), errors.Is(err, unix.EIO), errors.Is(err, unix.EBADMSG):
		kind = fault.Corrupt
	case errors.Is(err, fs.ErrExist):
		kind = fault.Conflict
	case errors.Is(err, unix.EPERM), errors.Is(err, unix.EISDIR), errors.Is(err, unix.EROFS), errors.Is(err, unix.ENODEV), errors.Is(err, unix.EINVAL):
		kind = fault.Unsupported
	}
	return wire.Reply{Fault: kind.String(), Error: err.Error(), NotExist: errors.Is(err, fs.ErrNotExist)}
}

// handleRequest executes a request. out is the data of the reply.
func (s *server) handleRequest(r wire.Request, data []byte) (reply wire.Reply, out []byte, err error) {
	switch r.Op {
	case wire.Mount:
		return reply, nil, s.mountDisk(r)
	case wire.Unmount:
		return reply, nil, s.unmountAll()
	}
	if r.Mount < 0 || r.Mount >= len(s.mounts) {
		return reply, nil, fault.New(fault.Invalid, "no file system %d", r.Mount)
	}
	f, o := s.mounts[r.Mount], owner{r.Mode, int(r.UID), int(r.GID)}
	switch r.Op {
	case wire.Read:
		out, err = f.readFile(r.Path, r.Limit)
	case wire.Size:
		reply.Size, err = f.size(r.Path)
	case wire.Names:
		reply.Names, err = f.listNames(r.Path)
	case wire.Readlink:
		reply.Text, err = f.readLink(r.Path)
	case wire.Write:
		err = f.writeFile(r.Path, data, o)
	case wire.Append:
		err = f.appendFile(r.Path, data)
	case wire.Mkdir:
		err = f.makeFolder(r.Path, o)
	case wire.Symlink:
		err = f.makeSymlink(r.Path, r.Target)
	case wire.Flush:
		err = f.flush()
	default:
		err = fault.New(fault.Invalid, "%q is not known", r.Op)
	}
	return reply, out, err
}

// mountDisk mounts the file system of a disk. XFS is mounted with nouuid, because a copy has the UUID
// of its original.
func (s *server) mountDisk(r wire.Request) error {
	dev, err := s.device(r.Disk)
	if err != nil {
		return err
	}
	options := map[string]string{"xfs": "nouuid"}[r.Kind]
	// Each mount has its own mount point.
	point := fmt.Sprintf("/mnt/%d", len(s.points))
	if err := os.MkdirAll(point, 0o755); err != nil {
		return err
	}
	if err := unix.Mount(dev, point, r.Kind, unix.MS_NODEV|unix.MS_NOSUID|unix.MS_NOEXEC, options); err != nil {
		return fmt.Errorf("mount %s: %w", r.Kind, err)
	}
	// A missing subvolume must not prevent the unmount.
	s.points = append(s.points, point)
	root, err := openFolder(point + "/" + r.Subvolume)
	if err != nil {
		return fmt.Errorf("subvolume %q: %w", r.Subvolume, err)
	}
	s.mounts = append(s.mounts, root)
	return nil
}

// unmountAll unmounts all file systems in reverse order and waits until all changes are written.
func (s *server) unmountAll() (err error) {
	for i := len(s.mounts) - 1; i >= 0; i-- {
		err = errors.Join(err, s.mounts[i].close())
	}
	for i := len(s.points) - 1; i >= 0; i-- {
		// Unmount fails with EBUSY if a file is open; none should be.
		if failed := unix.Unmount(s.points[i], 0); failed != nil {
			err = errors.Join(err, fmt.Errorf("unmount %s: %w", s.points[i], failed))
		}
	}
	unix.Sync()
	return err
}
