package rpc

import (
	"errors"
	"syscall"
)

// Code is libvirt's number of a kind of error (virErrorNumber).
type Code int32

// Codes that callers decide on.
const (
	InternalError    Code = 1 // such as that a program of the system's failed
	SystemError      Code = 38
	NoDomain         Code = 42
	NoNetwork        Code = 43
	AuthFailed       Code = 45
	NoPool           Code = 49
	NoVolume         Code = 50
	OperationInvalid Code = 55
	OperationFailed  Code = 9
	AuthCancelled    Code = 79
	AccessDenied     Code = 88
	AuthUnavailable  Code = 94
)

// An Error is what libvirt says of a call that it did not carry out.
type Error struct {
	Code    Code
	Message string
	Errno   syscall.Errno // where an operating system's call failed, else 0
}

func (e *Error) Error() string { return e.Message }

// Is finds the errors of the operating system in it.
func (e *Error) Is(target error) bool { return e.Errno != 0 && errors.Is(e.Errno, target) }

// IsCode reports whether libvirt said one of codes.
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

// parseError reads a remote_error.
func parseError(payload []byte) error {
	r := &result{rest: payload}
	e := &Error{Code: Code(r.uint32())}
	_ = r.uint32() // the part of libvirt it comes from
	e.Message = r.optional()
	_ = r.uint32() // level
	if r.uint32() != 0 {
		_ = r.domain()
	}
	for range 3 {
		_ = r.optional() // the words that Message was made of
	}
	if no := r.uint32(); e.Code == SystemError {
		e.Errno = syscall.Errno(no)
	}
	if r.err != nil {
		return r.err
	}
	return e
}
