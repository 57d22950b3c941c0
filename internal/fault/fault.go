// Package fault adds a Kind and a remedy to errors.
//
// The kinds are a closed list. Retry loops, exit codes and colours depend on the Kind, and no code
// matches error strings. The Hint is for the operator: a sentence or a command to paste. Both survive
// wrapping with %w.
package fault

import (
	"context"
	"errors"
	"fmt"
	"strings"
)

// Kind classifies an error by what the caller can do about it.
type Kind uint8

const (
	Internal    Kind = iota // a broken invariant of decamp; also the zero value
	Transient               // may succeed if tried again: a reset, a 503, a timeout
	Unreachable             // the address does not answer
	Denied                  // wrong password, missing privilege, changed certificate
	NotFound                // the VM, disk, file or run is not there
	Conflict                // something is in the way: VM running, image exists, run in progress
	Unsupported             // decamp cannot do this; the remedy has an alternative
	Corrupt                 // data differs from its required content
	Full                    // no space left
	Invalid                 // the user's input is wrong
	Canceled                // a user requested the end
	Changed                 // a published image was written to since, as by a VM that was started
)

// kindNames are the names by Kind. They are part of the --json output.
var kindNames = [...]string{
	"internal", "transient", "unreachable", "denied", "not-found", "conflict",
	"unsupported", "corrupt", "full", "invalid", "canceled", "changed",
}

// String returns the kind's fixed name, as used in --json output.
func (k Kind) String() string {
	if int(k) < len(kindNames) {
		return kindNames[k]
	}
	return fmt.Sprintf("kind(%d)", k)
}

// Kinds returns all kinds, in the order of their numbers.
func Kinds() []Kind {
	all := make([]Kind, len(kindNames))
	for i := range all {
		all[i] = Kind(i)
	}
	return all
}

// KindNamed returns the kind of that name; Internal if the name is unknown.
func KindNamed(name string) Kind {
	for k, each := range kindNames {
		if each == name {
			return Kind(k)
		}
	}
	return Internal
}

// ErrLogin is wrapped by Denied errors of a refused login, or of one that was not tried after a
// refusal. The permissions of the account are unknown then. Further logins could lock the account.
var ErrLogin = errors.New("login refused")

// Error is an error with a Kind and usually a remedy.
type Error struct {
	Kind Kind   // classification for the caller
	Hint string // remedy: a sentence or a command; may be empty
	Err  error  // cause

	login bool // the error wraps ErrLogin
}

// Error returns the message of the cause, without the remedy.
func (e *Error) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// New returns an error of kind k, formatted as fmt.Errorf does (%w wraps).
func New(k Kind, format string, args ...any) *Error {
	return &Error{Kind: k, Err: fmt.Errorf(format, args...)}
}

// WithHint adds the remedy and returns e.
func (e *Error) WithHint(format string, args ...any) *Error {
	e.Hint = fmt.Sprintf(format, args...)
	return e
}

// OfLogin makes errors.Is(e, ErrLogin) true without changing the message, and returns e.
func (e *Error) OfLogin() *Error {
	e.login = true
	return e
}

// Is reports whether target is ErrLogin and e is an error of a login. errors.Is calls it.
func (e *Error) Is(target error) bool { return target == ErrLogin && e.login }

// Wrap returns err with a kind. It returns nil for a nil err.
func Wrap(k Kind, err error) error {
	if err == nil {
		return nil
	}
	return &Error{Kind: k, Err: err}
}

// KindOf returns the kind of the outermost Error in err's tree. A canceled context
// is Canceled, a passed deadline Transient, anything unknown Internal.
func KindOf(err error) Kind {
	var e *Error
	switch {
	case errors.As(err, &e):
		return e.Kind
	case errors.Is(err, context.Canceled):
		return Canceled
	case errors.Is(err, context.DeadlineExceeded):
		return Transient
	}
	return Internal
}

// Is reports whether err is of kind k.
func Is(err error, k Kind) bool { return err != nil && KindOf(err) == k }

// HintOf returns the first remedy found in err's tree, outermost first, or "".
func HintOf(err error) string {
	for err != nil {
		if e, ok := err.(*Error); ok && e.Hint != "" {
			return e.Hint
		}
		if j, ok := err.(interface{ Unwrap() []error }); ok {
			for _, inner := range j.Unwrap() {
				if h := HintOf(inner); h != "" {
					return h
				}
			}
			return ""
		}
		err = errors.Unwrap(err)
	}
	return ""
}

// ExitCode returns the exit status of the process for err: 0 for nil, and one number for each Kind, so
// that scripts can distinguish a full disk from a wrong password. The numbers are part of the command
// line's interface, and never change their meaning. An error of a program that decamp ran for the user has
// a method ExitStatus, whose result counts instead.
func ExitCode(err error) int {
	if err == nil {
		return 0
	}
	var program interface{ ExitStatus() int }
	if errors.As(err, &program) {
		return program.ExitStatus()
	}
	return exitCodes[KindOf(err)]
}

// exitCodes are the exit statuses by Kind.
var exitCodes = map[Kind]int{
	Internal:    1,
	Invalid:     2, // the exit code of shells and cobra for wrong usage
	NotFound:    3,
	Denied:      4,
	Unreachable: 5,
	Conflict:    6,
	Unsupported: 7,
	Corrupt:     8,
	Full:        9,
	Transient:   10,
	Changed:     11,
	Canceled:    130, // 128 + SIGINT
}

// OneLine replaces the line breaks that errors.Join adds by "; ".
func OneLine(s string) string {
	return strings.Join(strings.FieldsFunc(s, func(r rune) bool { return r == '\n' }), "; ")
}
