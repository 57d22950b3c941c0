package nfsclient

import (
	"errors"
	"fmt"
	"io/fs"
)

// Status is an nfsstat3 (RFC 1813 section 2.6). The errors of MNT are the same numbers.
type Status uint32

// The statuses the client decides on.
const (
	OK         Status = 0
	ErrPerm    Status = 1
	ErrNoEnt   Status = 2
	ErrIO      Status = 5
	ErrAcces   Status = 13
	ErrExist   Status = 17
	ErrNotDir  Status = 20
	ErrIsDir   Status = 21
	ErrInval   Status = 22
	ErrFBig    Status = 27
	ErrNoSpc   Status = 28
	ErrROFS    Status = 30
	ErrNotEmpt Status = 66
	ErrDQuot   Status = 69
	ErrStale   Status = 70
	ErrBadHand Status = 10001
	ErrNotSync Status = 10002
	ErrNotSupp Status = 10004
	ErrFault   Status = 10006
	ErrJukebox Status = 10008
)

var statusNames = map[Status]string{
	OK: "OK", ErrPerm: "PERM", ErrNoEnt: "NOENT", ErrIO: "IO", ErrAcces: "ACCES", ErrExist: "EXIST", ErrNotDir: "NOTDIR", ErrIsDir: "ISDIR",
	ErrInval: "INVAL", ErrFBig: "FBIG", ErrNoSpc: "NOSPC", ErrROFS: "ROFS", ErrNotEmpt: "NOTEMPTY", ErrDQuot: "DQUOT", ErrStale: "STALE",
	ErrBadHand: "BADHANDLE", ErrNotSync: "NOT_SYNC", ErrNotSupp: "NOTSUPP", ErrFault: "SERVERFAULT", ErrJukebox: "JUKEBOX",
}

func (s Status) String() string {
	if name := statusNames[s]; name != "" {
		return "NFS3ERR_" + name
	}
	return fmt.Sprintf("nfsstat3 %d", uint32(s))
}

// StatusError is a call that the server carried out and that failed.
type StatusError struct {
	Proc   string // "WRITE"
	Status Status
}

func (e *StatusError) Error() string { return e.Proc + ": " + e.Status.String() }

// Is makes the statuses that have a counterpart in io/fs equal to it.
func (e *StatusError) Is(target error) bool {
	switch target {
	case fs.ErrNotExist:
		return e.Status == ErrNoEnt
	case fs.ErrExist:
		return e.Status == ErrExist
	case fs.ErrPermission:
		return e.Status == ErrPerm || e.Status == ErrAcces || e.Status == ErrROFS
	}
	return false
}

// StatusOf returns the NFS status an error comes from, or OK if it comes from none.
func StatusOf(err error) Status {
	var s *StatusError
	if errors.As(err, &s) {
		return s.Status
	}
	return OK
}

var (
	// Mounting.

	// ErrNotRegistered is a program the portmapper does not know.
	ErrNotRegistered = errors.New("not registered")
	// ErrHandleSize is a root handle ESXi would not mount.
	ErrHandleSize = errors.New("file handle is larger than the 56 bytes ESXi mounts")

	// Any call.

	// ErrAPD is a call to a server that has been away for too long: all paths down.
	ErrAPD = errors.New("all paths down: the NFS server has not answered for too long")
	// ErrGaveUp is a call that was not answered in 250 s although heartbeats were.
	ErrGaveUp = errors.New("the NFS server has not answered the call")
	// ErrUnmounted is a call after Unmount.
	ErrUnmounted = errors.New("the datastore is not mounted")
	// ErrFileID is a file whose fileid changed, or is that of another file.
	ErrFileID = errors.New("fileid is not stable or not unique")

	// Open files.

	// ErrLocked is a file another host has open.
	ErrLocked = errors.New("the file is locked by another host")
	// ErrLockLost is I/O on a file whose lock could not be renewed in time.
	ErrLockLost = errors.New("the lock of the file was lost")
	// ErrStable is a WRITE that the server says is less stable than was asked for.
	ErrStable = errors.New("the server wrote less stably than asked")
)
