package esx

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"

	"github.com/vmware/govmomi/vim25/types"

	"github.com/decamp/decamp/internal/fault"
)

// classify adds a fault kind and a remedy to an error of the API or the network.
// Exported methods call it before they return an error. An error that has a kind, or
// that is a context's error, is returned unchanged.
func classify(err error) error {
	var known *fault.Error
	if err == nil || errors.As(err, &known) {
		return err
	}
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err // fault knows these
	}
	if f := vimFault(err); f != nil {
		return vimError(f, err)
	}
	var status *statusError
	if errors.As(err, &status) {
		return httpError(status.code, err)
	}
	return netError(err)
}

// vimFault returns the API's fault in err's tree, or nil if err is another error.
func vimFault(err error) types.BaseMethodFault {
	var f interface{ Fault() types.BaseMethodFault }
	if errors.As(err, &f) {
		return f.Fault()
	}
	return nil
}

// isSessionEnded reports whether the server no longer knows the session: fault
// NotAuthenticated or HTTP status 401.
func isSessionEnded(err error) bool {
	if err == nil {
		return false
	}
	_, ok := vimFault(err).(*types.NotAuthenticated)
	return ok || isStatus(err, http.StatusUnauthorized)
}

// isInvalidLogin reports whether the server refused user or password.
func isInvalidLogin(err error) bool {
	_, ok := vimFault(err).(types.BaseInvalidLogin)
	return ok
}

// isStatus reports whether err is an HTTP response with that status.
func isStatus(err error, code int) bool {
	var s *statusError
	return errors.As(err, &s) && s.code == code
}

// vimError maps the API's faults to fault kinds. A fault that is not listed is Internal
// and keeps the server's message. The remedies apply to all callers; callers with a
// better one handle the fault before.
func vimError(f types.BaseMethodFault, err error) error {
	switch f := f.(type) {
	case *types.RestrictedVersion:
		return fault.New(fault.Unsupported, "%w", err).
			WithHint("the host's licence (free ESXi) does not permit this call; make the change manually on the host, or install an evaluation or paid licence")
	case *types.NoPermission:
		return fault.New(fault.Denied, "%w (privilege %s)", err, f.PrivilegeId).
			WithHint("grant the user the privilege %s, or log in as another user", f.PrivilegeId)
	case types.BaseInvalidLogin:
		return fault.New(fault.Denied, "%w", err).WithHint("check the user and the password; %s", lockoutHint)
	// RoundTrip has logged in again before; the new session was also rejected.
	case *types.NotAuthenticated:
		return fault.New(fault.Denied, "%w", err).WithHint("the server ended the session immediately; see its hostd or vpxd log")
	case *types.ManagedObjectNotFound:
		return fault.New(fault.NotFound, "%s %s does not exist any more: %w", f.Obj.Type, f.Obj.Value, err).WithHint("list the inventory again: decamp ls")
	case *types.TaskInProgress:
		return fault.New(fault.Transient, "%w", err).
			WithHint("another operation on it is running, such as a relocation: wait until its recent tasks have ended, and run the command again")
	case types.BaseNasConfigFault:
		return nasError(f.(types.BaseMethodFault), err)
	}
	return fault.Wrap(vimKind(f), err)
}

// vimKind returns the fault kind of faults that need no remedy.
func vimKind(f types.BaseMethodFault) fault.Kind {
	switch f.(type) {
	case *types.NotFound, *types.FileNotFound:
		return fault.NotFound
	case types.BaseInvalidState, *types.ResourceInUse, *types.FileLocked, *types.ToolsUnavailable,
		*types.AlreadyExists, *types.DuplicateName, *types.FileAlreadyExists:
		return fault.Conflict
	case types.BaseNotSupported, *types.NotImplemented, *types.MethodNotFound:
		return fault.Unsupported
	case types.BaseHostCommunication, *types.Timedout:
		return fault.Transient
	case *types.NoDiskSpace:
		return fault.Full
	case *types.RequestCanceled:
		return fault.Canceled
	}
	return fault.Internal
}

// httpError maps the statuses of ESXi's web server and of /folder. /folder answers 500
// for a file that another process has open. 503 means that the web server has too many
// requests.
func httpError(code int, err error) error {
	switch code {
	case http.StatusUnauthorized, http.StatusForbidden:
		return fault.New(fault.Denied, "%w", err).WithHint("check the user's privileges: Datastore.Browse, Datastore.FileManagement")
	case http.StatusNotFound:
		return fault.Wrap(fault.NotFound, err)
	case http.StatusInternalServerError:
		return fault.New(fault.Conflict, "%w", err).WithHint("ESXi returns this for a file in use: power the VM off, or remove its lock")
	case http.StatusServiceUnavailable, http.StatusBadGateway, http.StatusGatewayTimeout, http.StatusTooManyRequests:
		return fault.Wrap(fault.Transient, err)
	}
	return fault.Wrap(fault.Internal, err)
}

// netError maps errors that occurred before the server answered. A failed connection
// attempt is Unreachable and has a remedy. A lost connection is Transient.
func netError(err error) error {
	var (
		dns   *net.DNSError
		op    *net.OpError
		noTLS tls.RecordHeaderError
		web   *url.Error
	)
	switch {
	case errors.As(err, &dns):
		return fault.New(fault.Unreachable, "%w", err).WithHint("check the host's name")
	case errors.As(err, &noTLS):
		return fault.New(fault.Unreachable, "%w", err).WithHint("the port does not use HTTPS; ESXi and vCenter use port 443")
	// Only a failed connection attempt has this operation; later errors have read or
	// write.
	case errors.As(err, &op) && op.Op == "dial":
		return fault.New(fault.Unreachable, "%w", err).WithHint("check the address, and that its TCP port is open from here")
	case errors.As(err, &op), errors.As(err, &web), errors.Is(err, io.ErrUnexpectedEOF):
		return fault.Wrap(fault.Transient, err) // there was a connection, and it was lost
	}
	return fault.Wrap(fault.Internal, fmt.Errorf("unexpected: %w", err))
}
