package mount

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/readahead"
)

const (
	attrAge     = 5 * time.Second // how long the kernel may cache a name or a size
	missingAge  = time.Second     // how long the kernel may cache that a name does not exist
	maxRequest  = 1 << 20         // largest read of the kernel in bytes
	maxParallel = 64              // largest number of background requests of the kernel

	unmountTimeout = time.Second // how long a normal unmount is tried before a lazy one
	unmountPoll    = time.Second // interval in which the table of mounts is checked for an unmount by others
)

// A Mount is a mounted host.
type Mount struct {
	host    Host             // content of the mount
	dir     string           // mount point, absolute
	opts    Options          // options without zero values
	cache   *readahead.Cache // pages and blocks of all files
	catalog *catalog         // root folder
	server  *fuse.Server     // FUSE server
	uid     uint32           // owner of all files
	gid     uint32           // group of all files
	begun   time.Time        // time of the mount, which is the time of all files
	minor   uint32           // minor number of the file system's device: its name in /sys/fs/fuse/connections

	ctx    context.Context         // ends all reads
	cancel context.CancelCauseFunc // ends ctx
	done   chan struct{}           // closed when the kernel has released the file system
	gone   chan struct{}           // closed after done, or when it is unmounted here and no file is open

	mu    sync.Mutex         // guards files
	files map[*openFile]bool // open files
}

// New mounts host at dir, which must be a folder. A stale mount of decamp is detached there first. When
// New returns, the mount is usable: Close ends it.
func New(ctx context.Context, host Host, dir string, o Options) (*Mount, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	o = o.withDefaults()
	if err := detachStale(dir, o); err != nil {
		return nil, fmt.Errorf("mount at %s: %w", dir, err)
	}
	m := &Mount{
		host: host, dir: dir, opts: o, cache: o.newCache(), catalog: &catalog{host: host, now: o.Now},
		uid: uint32(os.Geteuid()), gid: uint32(os.Getegid()), begun: o.Now(),
		done: make(chan struct{}), gone: make(chan struct{}), files: map[*openFile]bool{},
	}
	m.ctx, m.cancel = context.WithCancelCause(context.WithoutCancel(ctx))
	if err := m.startServing(); err != nil {
		m.cancel(err)
		return nil, fmt.Errorf("mount at %s: %w", dir, mountFault(err))
	}
	o.Log.Info("mounted", "dir", dir)
	return m, nil
}

// startServing mounts the file system and serves its requests in the background.
func (m *Mount) startServing() (err error) {
	second, missing := attrAge, missingAge
	kernel := fuse.MountOptions{
		Name: m.opts.Name, FsName: m.opts.Source, AllowOther: m.opts.AllowOther,
		Options: []string{"ro"}, DisableSplice: true,
		MaxWrite: maxRequest, MaxBackground: maxParallel, MaxReadAhead: maxRequest,
		Logger: slog.NewLogLogger(m.opts.Log.Handler(), slog.LevelDebug),
	}
	if os.Geteuid() == 0 { // no need of fusermount3; "ro" is a flag then
		kernel.DirectMountStrict, kernel.Options = true, nil
		kernel.DirectMountFlags = unix.MS_RDONLY | unix.MS_NOSUID | unix.MS_NODEV
	}
	m.server, err = fs.Mount(m.dir, &rootNode{m: m}, &fs.Options{
		EntryTimeout: &second, AttrTimeout: &second, NegativeTimeout: &missing, MountOptions: kernel,
	})
	if err != nil {
		return err
	}
	if at, ok := topMount(m.dir); ok {
		m.minor = at.minor
	}
	go func() {
		m.server.Wait()
		close(m.done)
	}()
	go m.watchUnmount()
	return nil
}

// watchUnmount closes gone when the file system is unmounted and no file is open. The kernel releases the file system
// later if another mount namespace has it, such as that of a service that was started meanwhile.
func (m *Mount) watchUnmount() {
	defer close(m.gone)
	for !m.waitDone(unmountPoll) {
		if m.isUnmounted() && !m.hasOpenFiles() {
			return
		}
	}
}

// isUnmounted reports whether this mount namespace does not have the file system any more.
func (m *Mount) isUnmounted() bool { return m.minor != 0 && !isMounted(m.minor) }

// mountFault adds kind and remedy to an error of mounting.
func mountFault(err error) error {
	switch {
	case errors.Is(err, syscall.ENOENT), errors.Is(err, syscall.ENOTDIR):
		return fault.New(fault.NotFound, "%w", err).WithHint("create the folder, or use an existing one")
	case errors.Is(err, syscall.EPERM), errors.Is(err, syscall.EACCES):
		return fault.New(fault.Denied, "%w", err).WithHint("run it as root, or install fuse3 (fusermount3)")
	}
	if _, missing := os.Stat("/dev/fuse"); missing != nil {
		return fault.New(fault.Unsupported, "%w", err).WithHint("/dev/fuse is missing; load the module: modprobe fuse")
	}
	return fault.New(fault.Unsupported, "%w", err).WithHint("install fuse3 (fusermount3), or run it as root")
}

// Done is closed when the file system was unmounted, by Close or otherwise, and no file is open.
func (m *Mount) Done() <-chan struct{} { return m.gone }

// errUnmounted is the error of reads after Close.
var errUnmounted = fault.New(fault.Canceled, "the file system was unmounted")

// Close unmounts the file system. Running reads fail, and so do reads of files that stay open. Close
// returns when all its goroutines have ended. If files stay open and the kernel has no
// /sys/fs/fuse/connections, some of them end only with the process.
func (m *Mount) Close() error {
	m.cancel(errUnmounted)
	if !m.isUnmounted() { // otherwise dir may be the mount point of another file system
		if err := m.tryUnmount(); err != nil {
			return fmt.Errorf("unmount %s: %w", m.dir, err)
		}
	} else if !m.waitDone(unmountTimeout) { // after the end, another connection may have the minor number
		m.abortAndWait()
	}
	if !m.waitDone(0) {
		return nil // the kernel may still send requests: their memory stays until the process ends
	}
	m.closeFiles()
	return m.cache.Close()
}

// tryUnmount unmounts normally, or detaches the mount if files are open. A mount point must never
// outlive its process.
func (m *Mount) tryUnmount() error {
	for end := time.Now().Add(unmountTimeout); !m.waitDone(0); m.waitDone(unmountTimeout / 20) {
		err := unix.Unmount(m.dir, 0)
		if errors.Is(err, os.ErrPermission) && m.server.Unmount() != nil { // fusermount3 may what we may not
			return fault.New(fault.Denied, "%w", err).WithHint("unmount it as root: umount -l %s", m.dir)
		}
		if err == nil {
			break
		}
		if time.Now().After(end) {
			return m.detachLazily()
		}
	}
	if !m.waitDone(unmountTimeout) {
		m.abortAndWait()
	}
	return nil
}

// detachLazily unmounts although files are open.
func (m *Mount) detachLazily() error {
	m.opts.Log.Warn("mount detached, files are still open", "dir", m.dir)
	if err := unix.Unmount(m.dir, unix.MNT_DETACH); err != nil {
		return err
	}
	m.abortAndWait()
	return nil
}

// abortAndWait aborts the connection of an unmounted file system. Files may be open, and mount
// namespaces that were created meanwhile also have the mount. Without fusectl these keep the connection
// until they or this process end.
func (m *Mount) abortAndWait() {
	m.abortConnection()
	if !m.waitDone(unmountTimeout) {
		m.opts.Log.Warn("connection kept by the kernel: files are open, or another mount namespace has the mount", "dir", m.dir)
	}
}

// waitDone waits up to d for the end of the mount. It returns false after the timeout.
func (m *Mount) waitDone(d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-m.done:
		return true
	case <-t.C:
		select {
		case <-m.done:
			return true
		default:
			return false
		}
	}
}

// abortConnection makes the kernel end the connection, even if files are open.
func (m *Mount) abortConnection() {
	name := fmt.Sprintf("/sys/fs/fuse/connections/%d/abort", m.minor)
	if err := os.WriteFile(name, []byte("1"), 0); err != nil {
		m.opts.Log.Debug("abort connection", "err", err)
	}
}

// trackFile adds (by > 0) or removes an open file. After a lazy unmount the kernel sends no release,
// and Close closes the remaining files.
func (m *Mount) trackFile(f *openFile, by int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if by > 0 {
		m.files[f] = true
	} else {
		delete(m.files, f)
	}
}

// hasOpenFiles reports whether a file is open.
func (m *Mount) hasOpenFiles() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.files) > 0
}

// closeFiles closes the files that are still open.
func (m *Mount) closeFiles() {
	m.mu.Lock()
	left := m.files
	m.files = map[*openFile]bool{}
	m.mu.Unlock()
	for f := range left {
		if err := f.Close(); err != nil {
			m.opts.Log.Warn("close file", "file", f.name, "err", err)
		}
	}
}

// errDeadline is the error of reads that took longer than Options.ReadTimeout.
var errDeadline = fault.New(fault.Transient, "the host did not answer in time")

// datacenterTree returns the datastores by datacenter and name. It retries while the host is busy.
func (m *Mount) datacenterTree(ctx context.Context) (map[string]map[string]inventory.Datastore, error) {
	ctx, cancel := m.requestContext(ctx)
	defer cancel()
	return retryTransient(ctx, func() (map[string]map[string]inventory.Datastore, error) { return m.catalog.datacenterTree(ctx) })
}

// statFile returns type and size of a path. It retries while the host is busy.
func (m *Mount) statFile(ctx context.Context, datacenter string, p inventory.Path) (inventory.File, error) {
	return retryTransient(ctx, func() (inventory.File, error) { return m.host.Stat(ctx, datacenter, p) })
}

// errnoOf returns the errno of an error for the calling program. It logs errors that are more than a
// missing file or a canceled request.
func (m *Mount) errnoOf(doing string, err error) syscall.Errno {
	switch fault.KindOf(err) {
	case fault.NotFound:
		return syscall.ENOENT
	case fault.Canceled:
		return syscall.EINTR
	case fault.Invalid:
		return syscall.EINVAL
	}
	m.opts.Log.Warn("refused", "step", doing, "err", err)
	switch fault.KindOf(err) {
	case fault.Denied:
		return syscall.EACCES
	case fault.Conflict:
		return syscall.EBUSY
	}
	return syscall.EIO
}
