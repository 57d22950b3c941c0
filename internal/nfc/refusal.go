package nfc

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/decamp/decamp/internal/fault"
)

// Codes of error records that were met and understood.
const (
	codeMemory    = 5  // "failed to allocate the requested N bytes": nbdkit-vddk-plugin(1), CDI 3752
	codePermitted = 11 // file of another VM, or no right to it
	codeAccess    = 13 // no access rights
)

// errorSize is the payload of an error record; its text follows.
const (
	errorSize   = 16
	longestText = 64 << 10
)

// A Refusal is what the host said when it refused a request.
type Refusal struct {
	Code uint64
	Text string // in the host's words; may be empty
}

func (r *Refusal) Error() string {
	if r.Text == "" {
		return fmt.Sprintf("the host refuses (NFC error %d)", r.Code)
	}
	return fmt.Sprintf("the host refuses (NFC error %d): %s", r.Code, shortenText(r.Text))
}

// parseRefusal reads an error record's payload and returns how long its text is.
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

// Two refusals are known by their text only, since no source tells their codes.
const (
	textRunning = "multiwriter mode"        // a file that a running VM writes to
	textLocked  = "Failed to lock the file" // another reader of the same file, such as /folder
)

var (
	// ErrMemory is part of an error that says the host's NFC has no memory left: with less in
	// use, or less asked for, the same request may succeed.
	ErrMemory = errors.New("the host's NFC is out of memory")

	// ErrQueued is part of an error that says the host did not answer to the buffers asked for,
	// in all the time there was: hosts of 8 let sessions wait until there is memory for them.
	ErrQueued = errors.New("the host gives no session")

	// ErrBuffers is part of an error that says the host refused the buffers asked for; it
	// takes its own.
	ErrBuffers = errors.New("the host refuses such buffers")
)

// refusedOpen gives the refusal of a disk its kind and remedy.
func refusedOpen(r *Refusal) error {
	switch {
	case strings.Contains(r.Text, textRunning):
		return fault.New(fault.Conflict, "%w", r).
			WithHint("the VM runs and writes to this file: take a snapshot and read what it froze, or power the VM off")
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

// refusedRead gives the refusal of a read its kind and remedy. An unknown code may be a
// passing trouble of the datastore: it is worth another try.
func refusedRead(r *Refusal) error {
	if r.Code == codeMemory {
		return outOfMemory(r)
	}
	return fault.New(fault.Transient, "%w", r).WithHint("see the host's hostd.log and vmkernel.log")
}

const hintMemory = "others read over NFC from this host too: let them end, or ask for less with --nfc-handles 1 --nfc-buffer 64K"

func outOfMemory(r *Refusal) error {
	return fault.New(fault.Transient, "%w: %w", ErrMemory, r).WithHint(hintMemory)
}

// waitsForMemory is what an OPEN_SESSION without an answer most likely means.
func waitsForMemory(d time.Duration) error {
	return fault.New(fault.Transient, "%w within %v, as when its NFC memory is used up", ErrQueued, d).WithHint(hintMemory)
}

// refusedBuffers is the refusal of a session's buffers.
func refusedBuffers(r *Refusal) error {
	if r.Code == codeMemory {
		return outOfMemory(r)
	}
	return fault.New(fault.Unsupported, "%w: %w", ErrBuffers, r).
		WithHint("ask for smaller ones, such as --nfc-buffer 1M --nfc-buffers 4; hosts take up to 2 MiB each")
}
