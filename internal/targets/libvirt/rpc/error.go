package rpc

import (
	"errors"
	"syscall"
)

// Code is libvirt's error number (virErrorNumber).
type Code int32

// Codes that callers decide on.
const (
	InternalError    Code = 1  // also the failure of an external program
	SystemError      Code = 38 // a system call failed; Error.Errno is set
	NoDomain         Code = 42 // no such domain
	NoNetwork        Code = 43 // no such network
	AuthFailed       Code = 45 // authentication failed
	NoPool           Code = 49 // no such pool
	NoVolume         Code = 50 // no such volume
	OperationInvalid Code = 55 // not possible in the object's state
	OperationFailed  Code = 9  // the operation was tried and failed
	AuthCancelled    Code = 79 // the user ended polkit's dialogue
	AccessDenied     Code = 88 // polkit denied the operation
	AuthUnavailable  Code = 94 // no polkit agent
)

// Error is the error of a call that libvirt rejected (remote_error).
type Error struct {
	Code    Code          // kind of the error
	Message string        // text for users, in libvirt's locale
	Errno   syscall.Errno // number of the failed system call, else 0
}

// Error returns libvirt's message.
func (e *Error) Error() string { return e.Message }

// Is makes errors.Is find the errno of a failed system call.
func (e *Error) Is(target error) bool { return e.Errno != 0 && errors.Is(e.Errno, target) }

// IsCode reports whether err contains an *Error with one of the codes.
func IsCode(err error, codes ...Code) bool {
	var e *Error
	if !errors.As(err, &e) {
		return false
	}
	for _, c := range codes {
		if e.Code == c {
			return true
		}
	}
	return false
}

// parseError decodes a remote_error. It returns an *Error, or the error of the decoder.
func parseError(payload []byte) error {
	r := &result{rest: payload}
	e := &Error{Code: Code(r.uint32())}
	_ = r.uint32() // component of libvirt (virErrorDomain)
	e.Message = r.optional()
	_ = r.uint32() // level
	if r.uint32() != 0 {
		_ = r.domain()
	}
	for range 3 {
		_ = r.optional() // arguments of Message
	}
	if no := r.uint32(); e.Code == SystemError {
		e.Errno = syscall.Errno(no)
	}
	if r.err != nil {
		return r.err
	}
	return e
}
