package nfsclient

import (
	"errors"
	"fmt"
	"io/fs"
)

// Status is a status of NFS (nfsstat3, RFC 1813 section 2.6). MNT uses the same numbers.
type Status uint32

// The statuses the client decides on.
const (
	OK         Status = 0     // success
	ErrPerm    Status = 1     // not the owner
	ErrNoEnt   Status = 2     // no such file or directory
	ErrIO      Status = 5     // I/O error
	ErrAcces   Status = 13    // permission denied
	ErrExist   Status = 17    // file exists
	ErrNotDir  Status = 20    // not a directory
	ErrIsDir   Status = 21    // is a directory
	ErrInval   Status = 22    // invalid argument
	ErrFBig    Status = 27    // file too large
	ErrNoSpc   Status = 28    // no space left
	ErrROFS    Status = 30    // read-only file system
	ErrNotEmpt Status = 66    // directory not empty
	ErrDQuot   Status = 69    // quota exceeded
	ErrStale   Status = 70    // handle of a removed file
	ErrBadHand Status = 10001 // malformed handle
	ErrNotSync Status = 10002 // guard of SETATTR does not match
	ErrNotSupp Status = 10004 // operation not supported
	ErrFault   Status = 10006 // error without a specific status
	ErrJukebox Status = 10008 // try again later
)

// statusNames are the names of the statuses without NFS3ERR_.
var statusNames = map[Status]string{
	OK: "OK", ErrPerm: "PERM", ErrNoEnt: "NOENT", ErrIO: "IO", ErrAcces: "ACCES", ErrExist: "EXIST", ErrNotDir: "NOTDIR", ErrIsDir: "ISDIR",
	ErrInval: "INVAL", ErrFBig: "FBIG", ErrNoSpc: "NOSPC", ErrROFS: "ROFS", ErrNotEmpt: "NOTEMPTY", ErrDQuot: "DQUOT", ErrStale: "STALE",
	ErrBadHand: "BADHANDLE", ErrNotSync: "NOT_SYNC", ErrNotSupp: "NOTSUPP", ErrFault: "SERVERFAULT", ErrJukebox: "JUKEBOX",
}

// String returns the name in the RFC, or the number of an unknown status.
func (s Status) String() string {
	if name := statusNames[s]; name != "" {
		return "NFS3ERR_" + name
	}
	return fmt.Sprintf("nfsstat3 %d", uint32(s))
}

// StatusError is the error of a call that the server executed without success.
type StatusError struct {
	Proc   string // name of the procedure, such as "WRITE"
	Status Status // status in the reply
}

// Error returns the procedure and the status.
func (e *StatusError) Error() string { return e.Proc + ": " + e.Status.String() }

// Is reports whether the status corresponds to an error of io/fs.
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

// StatusOf returns the NFS status in err, or OK if err contains none.
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
	// ErrStable is a WRITE whose data is less stable than requested, according to the server.
	ErrStable = errors.New("the server wrote less stably than asked")
)
