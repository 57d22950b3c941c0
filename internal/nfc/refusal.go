package nfc

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/decamp/decamp/internal/fault"
)

// Codes of error records whose meaning is known.
const (
	codeMemory    = 5  // "failed to allocate the requested N bytes": nbdkit-vddk-plugin(1), CDI 3752
	codePermitted = 11 // file of another VM, or a missing privilege
	codeAccess    = 13 // missing access rights
)

// errorSize is the payload of an error record; its text follows.
const (
	errorSize   = 16       // bytes of the payload; the text follows
	longestText = 64 << 10 // longest text that is accepted, in bytes
)

// A Refusal is the error record that a host sends in place of a reply.
type Refusal struct {
	Code uint64 // NFC error code
	Text string // the host's message; may be empty
}

// Error returns the code, and the beginning of the host's message.
func (r *Refusal) Error() string {
	if r.Text == "" {
		return fmt.Sprintf("the host refuses (NFC error %d)", r.Code)
	}
	return fmt.Sprintf("the host refuses (NFC error %d): %s", r.Code, shortenText(r.Text))
}

// parseRefusal parses the payload of an error record, and returns the length of the text after it.
func parseRefusal(p []byte) (r *Refusal, text int, err error) {
	if len(p) != errorSize {
		return nil, 0, badAnswer("an error record of %d bytes", len(p))
	}
	n := le.Uint32(p[12:])
	if n > longestText {
		return nil, 0, badAnswer("an error text of %d bytes", n)
	}
	return &Refusal{Code: le.Uint64(p)}, int(n), nil
}

// Texts of two refusals, which are recognized by them: no source has their codes.
const (
	textRunning = "multiwriter mode"        // a running VM writes to the file
	textLocked  = "Failed to lock the file" // another process reads the file, such as /folder
)

var (
	// ErrMemory reports that the host's NFC memory is used up. The same request may succeed with smaller
	// buffers, or when other clients have ended.
	ErrMemory = errors.New("the host's NFC is out of memory")

	// ErrQueued reports that the host did not answer the request for buffers within Options.Setup. Hosts
	// of version 8 delay sessions until there is memory for them.
	ErrQueued = errors.New("the host gives no session")

	// ErrBuffers reports that the host refused the requested buffers. It accepts its default.
	ErrBuffers = errors.New("the host refuses such buffers")
)

// refusedOpen returns the fault for the refusal to open a disk, with a remedy.
func refusedOpen(r *Refusal) error {
	switch {
	case strings.Contains(r.Text, textRunning):
		return fault.New(fault.Conflict, "%w", r).
			WithHint("the VM runs and writes to this file: take a snapshot and read the frozen disk, or power the VM off")
	case strings.Contains(r.Text, textLocked):
		return fault.New(fault.Conflict, "%w", r).
			WithHint("something else has the disk open: a backup, a copy, or a download over HTTPS; let it end. vmkfstools -D disk-flat.vmdk names the owner's MAC")
	case r.Code == codePermitted, r.Code == codeAccess:
		return fault.New(fault.Denied, "%w", r).
			WithHint("the user needs VirtualMachine.Provisioning.GetVmFiles and .DiskRandomRead on the VM, and the file must be a disk of it")
	case r.Code == codeMemory:
		return outOfMemory(r)
	}
	return fault.New(fault.Conflict, "%w", r).
		WithHint("see the host's hostd.log; a disk in use by a running VM can only be read below a snapshot")
}

// refusedRead returns the fault for the refusal of a read. An unknown code may be a temporary problem
// of the datastore, so the read can be tried again.
func refusedRead(r *Refusal) error {
	if r.Code == codeMemory {
		return outOfMemory(r)
	}
	return fault.New(fault.Transient, "%w", r).WithHint("see the host's hostd.log and vmkernel.log")
}

// hintMemory is the remedy for a host without free NFC memory.
const hintMemory = "others read over NFC from this host too: let them end, or ask for less with --nfc-handles 1 --nfc-buffer 64K"

// outOfMemory returns the fault for codeMemory.
func outOfMemory(r *Refusal) error {
	return fault.New(fault.Transient, "%w: %w", ErrMemory, r).WithHint(hintMemory)
}

// waitsForMemory returns the fault for a session that the host did not open within d. Missing memory is
// the most likely reason.
func waitsForMemory(d time.Duration) error {
	return fault.New(fault.Transient, "%w within %v, as when its NFC memory is used up", ErrQueued, d).WithHint(hintMemory)
}

// refusedBuffers returns the fault for the refusal of a session's buffers.
func refusedBuffers(r *Refusal) error {
	if r.Code == codeMemory {
		return outOfMemory(r)
	}
	return fault.New(fault.Unsupported, "%w: %w", ErrBuffers, r).
		WithHint("ask for smaller ones, such as --nfc-buffer 1M --nfc-buffers 4; hosts take up to 2 MiB each")
}
