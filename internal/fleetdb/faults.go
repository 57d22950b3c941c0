package fleetdb

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"

	"github.com/decamp/decamp/internal/fault"
)

// classifyError returns the class of an error. An error that is a fault already, or that a transaction
// returned on purpose, has none.
func (d *database) classifyError(err error) (faultClass, bool) {
	var known *fault.Error
	switch {
	case errors.As(err, &known), errors.Is(err, ErrFenced), errors.Is(err, errSame):
		return faultClass{}, false
	case errors.Is(err, sql.ErrConnDone), errors.Is(err, sql.ErrTxDone):
		return faultClass{kind: fault.Unreachable, hint: postgresAway}, true
	}
	if f, ok := d.kind.fault(err); ok {
		return f, true
	}
	return classifyConnection(err)
}

// classifyConnection returns the class of an error that ended a connection; false for other errors.
func classifyConnection(err error) (faultClass, bool) {
	var network net.Error
	switch {
	case errors.Is(err, driver.ErrBadConn), errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, net.ErrClosed):
		return faultClass{kind: fault.Unreachable, hint: postgresAway, again: true}, true
	case errors.As(err, &network):
		return faultClass{kind: fault.Unreachable, hint: postgresAway, again: !network.Timeout()}, true
	case errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return faultClass{kind: fault.Unreachable, hint: postgresAway}, true
	}
	return faultClass{}, false
}

// toFault returns a database error as a fault. ctx is the caller's context: if it has ended, its error
// takes precedence. errSame is no error.
func (d *database) toFault(ctx context.Context, what string, err error) error {
	if err == nil || errors.Is(err, errSame) {
		return nil
	}
	f, ok := d.classifyError(err)
	if !ok {
		return wrapError(what, err)
	}
	if ctx.Err() != nil {
		return wrapError(what, ctx.Err())
	}
	if f.kind == fault.Full && d.file != "" {
		return wrapError(what, fault.NoRoom(filepath.Dir(d.file), err))
	}
	e := fault.New(f.kind, "%s: %w", what, err)
	if f.kind == fault.Corrupt && d.file != "" {
		return e.WithHint(f.hint, d.file)
	}
	if f.hint != "" {
		e = e.WithHint("%s", f.hint)
	}
	return e
}

// ErrFenced is in the tree of errors for a lease or claim that another process has now. The former
// owner must stop at once.
var ErrFenced = errors.New("another process took over")

// errSame ends a transaction that would change nothing. The transaction is rolled back, and the caller
// gets no error.
var errSame = errors.New("nothing changes")

// wrapError adds the action that failed to err.
func wrapError(what string, err error) error { return fmt.Errorf("%s: %w", what, err) }
