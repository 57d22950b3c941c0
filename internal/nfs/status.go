package nfs

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"syscall"

	"github.com/decamp/decamp/internal/fault"
)

// status is nfsstat3 (RFC 1813 section 2.6). As an error it is what a call answers.
type status uint32

const (
	statusOK          status = 0
	statusPerm        status = 1
	statusNoEnt       status = 2
	statusIO          status = 5
	statusAcces       status = 13
	statusExist       status = 17
	statusXDev        status = 18
	statusNotDir      status = 20
	statusIsDir       status = 21
	statusInval       status = 22
	statusFBig        status = 27
	statusNoSpc       status = 28
	statusROFS        status = 30
	statusMLink       status = 31
	statusNameTooLong status = 63
	statusNotEmpty    status = 66
	statusDQuot       status = 69
	statusStale       status = 70
	statusBadHandle   status = 10001
	statusNotSync     status = 10002
	statusBadCookie   status = 10003
	statusNotSupp     status = 10004
	statusTooSmall    status = 10005
	statusServerFault status = 10006
	statusJukebox     status = 10008
)

func (s status) Error() string { return fmt.Sprintf("nfsstat3 %d", uint32(s)) }

// statusOfErrno is what the system's errors mean to a client. The list is complete for
// the calls made here; anything else is an I/O error.
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
	syscall.ELOOP:        statusAcces, // a link where none may be followed
	syscall.EBUSY:        statusAcces, // a mount point
	syscall.EMFILE:       statusJukebox,
	syscall.ENFILE:       statusJukebox,
	syscall.ENOMEM:       statusJukebox,
}

// statusOfKind is what the errors of a Content mean to a client. Transient makes it ask
// again.
var statusOfKind = map[fault.Kind]status{
	fault.Transient:   statusJukebox,
	fault.Full:        statusNoSpc,
	fault.Denied:      statusAcces,
	fault.Conflict:    statusROFS,
	fault.NotFound:    statusStale,
	fault.Unsupported: statusNotSupp,
	fault.Invalid:     statusInval,
}

// statusOf returns what a call that failed with err answers.
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
