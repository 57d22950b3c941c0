package dir

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/decamp/decamp/internal/atomicfile"
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/targets"
)

// Hold takes the lock on a file beside the folder in which vm grows, which is there as long as
// somebody has it, or died with it. It is an open file's lock, which storage that is shared by
// NFS or a cluster's file system knows, too, and which a process that is stopped keeps. Where
// the file system has no locks, nobody is kept away.
func (t *Target) Hold(_ context.Context, vm *inventory.VM) (release func() error, err error) {
	path := filepath.Join(t.root, holdPrefix+identity(vm)+holdSuffix)
	f, err := openHeld(path)
	if err != nil {
		return nil, fmt.Errorf("hold images of VM %s: %w", vm.Name, ioFault(err))
	}
	return func() error { return letGo(f) }, nil
}

// The lock's file is hidden: it is no part of what is moved.
const (
	holdPrefix = ".decamp-"
	holdSuffix = ".lock"

	holderMost = 256 // bytes of its text
)

// openHeld opens and locks the file, and writes into it who has it. The lock goes with the file
// and not with its name, which letGo takes away: so the name is looked up once more.
func openHeld(path string) (*os.File, error) {
	for {
		f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
		if err != nil {
			return nil, err
		}
		err = lockHeld(f)
		if err == nil && atomicfile.IsAt(f, path) {
			introduce(f)
			return f, nil
		}
		if err = errors.Join(err, f.Close()); err != nil {
			return nil, err
		}
	}
}

func lockHeld(f *os.File) error {
	whole := unix.Flock_t{Type: unix.F_WRLCK, Whence: io.SeekStart}
	err := unix.FcntlFlock(f.Fd(), unix.F_OFD_SETLK, &whole)
	if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EACCES) {
		return fault.New(fault.Transient, "%w: %s", targets.ErrHeld, holder(f)).
			WithHint("wait for it, or end it: its images are kept, and the same command goes on with them; fuser -v %s", fault.Quote(f.Name()))
	}
	return nil // ENOLCK, EOPNOTSUPP: a file system without locks
}

// introduce says who has the lock. That nobody can be told is no reason not to go on.
func introduce(f *os.File) {
	host, err := os.Hostname()
	if err != nil {
		host = "this machine"
	}
	_ = f.Truncate(0)
	_, _ = f.WriteAt(fmt.Appendf(nil, "process %d on %s\n", os.Getpid(), host), 0)
}

func holder(f *os.File) string {
	text, err := io.ReadAll(io.NewSectionReader(f, 0, holderMost))
	if who := strings.TrimSpace(string(text)); err == nil && who != "" {
		return who
	}
	return "it is not said who"
}

// letGo takes the file away while it is still locked, so that nobody's is taken.
func letGo(f *os.File) error {
	err := os.Remove(f.Name())
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return errors.Join(ioFault(err), f.Close())
}
