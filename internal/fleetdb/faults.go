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

// classifyError finds out what an error is. What has a kind already keeps it.
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

// classifyConnection knows the ways in which connections end.
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

// toFault converts a database error into a fault that callers can handle. ctx is the caller's: its
// cancellation takes precedence.
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

// ErrFenced is for those whose lease or claim is another's now. They must stop at once.
var ErrFenced = errors.New("another process took over")

// errSame ends a transaction that would change nothing.
var errSame = errors.New("nothing changes")

func wrapError(what string, err error) error { return fmt.Errorf("%s: %w", what, err) }
