// Package targettest contains the conformance suite for platform.Platform. A test of a platform calls it with a
// function that creates an empty site, and with functions that inspect and disturb the site:
//
//	func TestConformance(t *testing.T) {
//		targettest.Run(t, targettest.Harness{
//			New: func(t *testing.T) targettest.Site { … },
//		})
//	}
//
// The suite verifies these rules:
//
//   - Check changes nothing.
//   - A VM is delivered powered off, with its name, identity, hardware and all bytes of its disks.
//   - A second Deliver changes nothing.
//   - If a call fails, is canceled or is not answered, Deliver leaves nothing behind, and the next
//     Deliver completes the VM.
//   - VMs that decamp did not create are never changed.
//   - Withdraw removes the whole VM and nothing else.
//   - Each error has a kind and a remedy.
package targettest

import (
	"testing"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/targets"
	"github.com/decamp/decamp/internal/targets/platform"
	"github.com/decamp/decamp/test/lane"
)

// Harness creates platforms for the suite.
type Harness struct {
	// New returns a platform without VMs for one test. It is removed when the test ends. Its retries
	// wait for no time.
	New func(t *testing.T) Site

	// Denied returns a platform that rejects the credentials, Unreachable one that does not answer. They
	// are nil
	// if this cannot happen, as with a folder.
	Denied, Unreachable func(t *testing.T) platform.Platform

	// Parallel reports that the platforms are independent, so that cases can run in parallel.
	Parallel bool

	// SecondMode reports that another harness of the platform runs all cases, and that this one delivers
	// images in another way. In the quick lane only the cases run that depend on that way.
	SecondMode bool

	// SpaceUnknown reports that the platform does not publish its free space.
	SpaceUnknown bool
}

// Site is one platform, and operations of a test that bypass decamp.
type Site struct {
	Platform platform.Platform // the platform under test

	// VMs lists all VMs, also those that decamp did not create.
	VMs func(t *testing.T) []StoredVM

	// Objects lists everything at the platform, one line each, in a fixed order: VMs with state and
	// definition,
	// volumes with their content, remaining uploads, firmware variables. Check and a failed Deliver must
	// not change the list.
	Objects func(t *testing.T) []string

	// Occupy creates a foreign VM with the name, or the address, that vm would get. It is nil if VMs
	// can share names.
	Occupy func(t *testing.T, vm *inventory.VM)

	// SetCallHook makes hook decide the outcome of each call to the platform. n counts calls from 1 since then. A nil
	// hook passes all calls. A call is a request; all parts of one upload are one call. SetCallHook is nil for a
	// platform without calls.
	SetCallHook func(hook func(n int) Outcome)

	// Reads reports whether the n-th call since SetCallHook changes nothing at the platform. It is nil without
	// SetCallHook. The quick lane loses each call that changes something, and few of the others.
	Reads func(n int) bool
}

// Outcome is the outcome of a call to the platform.
type Outcome int

// Outcomes of calls.
const (
	Pass       Outcome = iota // the call arrives and is answered
	Lost                      // the call does not arrive; the caller gets a connection error
	Unanswered                // the platform executes the call; the caller gets a connection error
)

// StoredVM describes a VM as the platform stores it.
type StoredVM struct {
	ID, Name   string   // as in the Receipt
	UUID       string   // UUID that the guest reads from the firmware; lower case
	Running    bool     // the VM runs, or would start with its host
	CPUs       int      // number of virtual CPUs in all sockets
	MemoryMiB  int64    // memory in MiB
	EFI        bool     // the firmware is EFI, not BIOS
	SecureBoot bool     // secure boot is on
	TPM        bool     // the VM has a virtual TPM
	MACs       []string // MACs in lower case, in the order of the source's cards
	Disks      [][]byte // whole content of each disk, in the order of the source's disks
	Metadata   string   // notes, tags, labels and metadata of the VM in any form, concatenated
}

// Run runs the suite.
func Run(t *testing.T, h Harness) {
	cases := []struct {
		name string
		run  func(*testing.T, Harness)
		mode bool // depends on how images are delivered
	}{
		{"delivers raw", func(t *testing.T, h Harness) { deliversBytes(t, h, targets.Raw) }, true},
		{"delivers qcow2", func(t *testing.T, h Harness) { deliversBytes(t, h, targets.QCOW2) }, true},
		{"check changes nothing", checksOnly, false},
		{"a VM without room is refused", refusesWithoutRoom, false},
		{"delivers hardware", deliversHardware, false},
		{"delivers again", deliversAgain, true},
		{"names", takesAnyName, false},
		{"notes, tags and attributes", keepsNotes, false},
		{"odd notes, tags and attributes", keepsOddNotes, false},
		{"reports progress", reportsProgress, true},
		{"unreadable image", unreadableImage, true},
		{"name is taken", leavesOthersAlone, true},
		{"VMs of one name", keepsNamesakesApart, false},
		{"withdraws", withdrawsVM, true},
		{"credentials", refusesCredentials, false},
		{"platform unreachable", isUnreachable, false},
		{"calls fail", callsFail, false},
		{"calls are canceled", callsAreCanceled, false},
		{"process is killed", survivesDeath, true},
	}
	for _, c := range cases {
		if h.SecondMode && !c.mode && !lane.Slow {
			continue
		}
		t.Run(c.name, func(t *testing.T) { h.runParallel(t); c.run(t, h) })
	}
}

// runParallel marks the test as parallel if the platforms are independent.
func (h Harness) runParallel(t *testing.T) {
	if h.Parallel {
		t.Parallel()
	}
}

// hasRemedy fails the test unless err has one of the kinds and a remedy.
func hasRemedy(t *testing.T, operation string, err error, kinds ...fault.Kind) {
	t.Helper()
	for _, k := range kinds {
		if fault.Is(err, k) && fault.HintOf(err) != "" {
			return
		}
	}
	t.Errorf("%s: got %v (%v, remedy %q), want one of %v with a remedy", operation, err, fault.KindOf(err), fault.HintOf(err), kinds)
}
