package https

import (
	"time"

	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/fault"
)

// busyError is the error of an answer by which the host requests a pause.
type busyError struct {
	error
	after time.Duration // the host's Retry-After; 0 without one
}

// Unwrap returns the fault.
func (e *busyError) Unwrap() error { return e.error }

// checkRange returns nil if the answer contains exactly the requested bytes, of a file of size bytes.
func (r response) checkRange(asked disk.Range, size int64) error {
	if r.status != 206 {
		return r.statusFault(asked, size)
	}
	switch {
	case r.chunked:
		return badAnswer("the body has a transfer encoding")
	case r.length != asked.Len:
		return badAnswer("%d bytes announced, %d requested", r.length, asked.Len)
	case r.part != asked:
		return badAnswer("it contains bytes %v, %v requested", r.part, asked)
	case r.total != size:
		return badAnswer("the file has %d bytes now, the disk %d", r.total, size)
	}
	return nil
}

// statusFault returns the fault for an answer without data. The caller handles 401, which is final only
// after the session was renewed.
func (r response) statusFault(asked disk.Range, size int64) error {
	switch r.status {
	case 200:
		return badAnswer("the whole file instead of the range %v", asked)
	case 401:
		return fault.New(fault.Denied, "the host refused the session (401)").
			WithHint("check the user and the password; find failed logins in Monitor > Events before the account is locked")
	case 403:
		return fault.New(fault.Denied, "the host refused access to the file (403)").
			WithHint("grant the user Datastore.Browse and Datastore.FileManagement on the datastore, and VirtualMachine.Provisioning.GetVmFiles on the VM")
	case 404:
		return fault.New(fault.NotFound, "the host has no such file (404)").
			WithHint("the disk was moved or removed; list the VM again: decamp ls")
	case 416:
		return fault.New(fault.Corrupt, "the file ends before %v (416), the disk has %d bytes", asked, size).
			WithHint("check the disk on the host: vmkfstools -x check disk.vmdk")
	case 429, 502, 503, 504:
		return &busyError{fault.New(fault.Transient, "the host is busy (%d)", r.status), r.retryAfter}
	case 500:
		return fault.New(fault.Conflict, "the host cannot open the file (500): it is locked").
			WithHint("power the VM off; if it is off, another host or a backup holds the lock: vmkfstools -D disk-flat.vmdk names the owner's MAC")
	}
	return fault.New(fault.Unsupported, "the host answered with status %d", r.status).
		WithHint("check that the address is an ESXi host or a vCenter, not a proxy or a portal")
}
