package nfs

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"syscall"

	"github.com/decamp/decamp/internal/fault"
)

// status is nfsstat3 (RFC 1813 section 2.6). As an error, it is the status of a reply.
type status uint32

const (
	statusOK          status = 0
	statusPerm        status = 1     // not the owner
	statusNoEnt       status = 2     // no such file
	statusIO          status = 5     // medium or Content failed; also any unknown error
	statusAcces       status = 13    // permission denied
	statusExist       status = 17    // name exists
	statusXDev        status = 18    // link or rename between two exports
	statusNotDir      status = 20    // not a folder
	statusIsDir       status = 21    // a folder, but the call requires a file
	statusInval       status = 22    // invalid argument
	statusFBig        status = 27    // beyond the largest file size
	statusNoSpc       status = 28    // file system full
	statusROFS        status = 30    // Export.Writable refuses the change
	statusMLink       status = 31    // too many names of one file
	statusNameTooLong status = 63    // name longer than maxName
	statusNotEmpty    status = 66    // folder not empty
	statusDQuot       status = 69    // quota exceeded
	statusStale       status = 70    // the file of the handle does not exist
	statusBadHandle   status = 10001 // not a handle of this server
	statusNotSync     status = 10002 // guard of SETATTR does not match
	statusBadCookie   status = 10003 // never returned: cookies do not expire
	statusNotSupp     status = 10004 // operation not supported
	statusTooSmall    status = 10005 // limits of READDIR exclude every entry
	statusServerFault status = 10006 // never returned; statusIO is
	statusJukebox     status = 10008 // the client retries later
)

// Error returns the number: the client's own text is more useful.
func (s status) Error() string { return fmt.Sprintf("nfsstat3 %d", uint32(s)) }

// statusOfErrno maps errors of system calls to statuses. It is complete for the calls made here; other
// errors become statusIO.
var statusOfErrno = map[syscall.Errno]status{
	syscall.EPERM:        statusPerm,
	syscall.ENOENT:       statusNoEnt,
	syscall.EIO:          statusIO,
	syscall.EACCES:       statusAcces,
	syscall.EEXIST:       statusExist,
	syscall.EXDEV:        statusXDev,
	syscall.ENOTDIR:      statusNotDir,
	syscall.EISDIR:       statusIsDir,
	syscall.EINVAL:       statusInval,
	syscall.EFBIG:        statusFBig,
	syscall.ENOSPC:       statusNoSpc,
	syscall.EROFS:        statusROFS,
	syscall.EMLINK:       statusMLink,
	syscall.ENAMETOOLONG: statusNameTooLong,
	syscall.ENOTEMPTY:    statusNotEmpty,
	syscall.EDQUOT:       statusDQuot,
	syscall.ESTALE:       statusStale,
	syscall.EOPNOTSUPP:   statusNotSupp,
	syscall.ELOOP:        statusAcces, // a symbolic link, which is not followed
	syscall.EBUSY:        statusAcces, // a mount point
	syscall.EMFILE:       statusJukebox,
	syscall.ENFILE:       statusJukebox,
	syscall.ENOMEM:       statusJukebox,
}

// statusOfKind maps the faults of a Content to statuses. For fault.Transient the client retries.
var statusOfKind = map[fault.Kind]status{
	fault.Transient:   statusJukebox,
	fault.Full:        statusNoSpc,
	fault.Denied:      statusAcces,
	fault.Conflict:    statusROFS,
	fault.NotFound:    statusStale,
	fault.Unsupported: statusNotSupp,
	fault.Invalid:     statusInval,
}

// statusOf returns the status of a reply to a call that failed with err. A closed file or an expired
// deadline is statusJukebox: the server is about to end, and the client retries at the next one.
func statusOf(err error) status {
	var s status
	var errno syscall.Errno
	var kind *fault.Error
	switch {
	case err == nil:
		return statusOK
	case errors.As(err, &s):
		return s
	case errors.As(err, &kind):
		if s, ok := statusOfKind[kind.Kind]; ok {
			return s
		}
	case errors.As(err, &errno):
		if s, ok := statusOfErrno[errno]; ok {
			return s
		}
	case errors.Is(err, fs.ErrClosed), errors.Is(err, context.DeadlineExceeded):
		return statusJukebox
	}
	return statusIO
}
