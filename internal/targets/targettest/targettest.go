// Package targettest has the conformance suite for platform.Place. A new place is done when it
// passes; calling the suite takes one function that makes an empty place, and ways to look at it
// and to trouble it:
//
//	func TestConformance(t *testing.T) {
//		targettest.Place(t, targettest.Harness{
//			New: func(t *testing.T) targettest.Site { … },
//		})
//	}
//
// What is promised by every place, and checked here: a check changes nothing; a VM is delivered
// powered off, with its name, identity, hardware and every byte of its disks; to deliver again changes
// nothing; whichever call fails, is canceled or is never answered, nothing half made is left, and the
// next delivery completes the VM; a VM of somebody else's is never touched; a withdrawn VM is gone
// whole, and nothing else is; trouble ends in an error with its kind and a remedy.
package targettest

import (
	"testing"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/targets"
	"github.com/decamp/decamp/internal/targets/platform"
)

// A Harness makes places for the suite.
type Harness struct {
	// New makes a place without VMs for one test; it cleans up when the test ends. Its back-off
	// takes no time.
	New func(t *testing.T) Site

	// Denied returns a place that refuses the credentials it is given, Unreachable one at which
	// nobody answers. Nil where there is no such thing, as in a folder.
	Denied, Unreachable func(t *testing.T) platform.Place

	// Parallel says that places have nothing in common: cases may run side by side.
	Parallel bool

	// Bottomless says that the place does not tell how much room it has.
	Bottomless bool
}

// A Site is one place, and what a test can do there behind decamp's back.
type Site struct {
	Place platform.Place

	// Seen lists the VMs that are there, whoever made them.
	Seen func(t *testing.T) []Seen

	// Things names all that is there, one line each, in a fixed order: VMs with their state and
	// their definition, volumes with their content, uploads that were not taken away, firmware
	// variables. What Check and a failed Deliver must not change.
	Things func(t *testing.T) []string

	// Occupy has somebody else make a VM of the name, or with the address, that vm will get. Nil
	// where VMs share names.
	Occupy func(t *testing.T, vm *inventory.VM)

	// Tap has hook asked about every call that is made to the place, before it is made: n counts
	// from 1 since Tap. A nil hook lets all pass. Calls are what changes the place or asks it for
	// something; the parts of one upload are one call. Nil for a place without calls.
	Tap func(hook func(n int) Fate)
}

// Fate is what becomes of a call.
type Fate int

// Fates.
const (
	Pass       Fate = iota // It is made and answered.
	Lost                   // It does not arrive: the caller sees its connection break.
	Unanswered             // It is carried out, but the connection breaks before the answer.
)

// Seen is a VM as the place has it.
type Seen struct {
	ID, Name   string // as in the Receipt
	UUID       string // as firmware tells it to the guest; lower case
	Running    bool   // or to be started together with its host
	CPUs       int
	MemoryMiB  int64
	EFI        bool
	SecureBoot bool
	TPM        bool
	MACs       []string // lower case
	Disks      [][]byte // all that the guest would read, in the order of the source's disks
	Said       string   // all that is written on it there: notes, tags, labels, metadata, in any form
}

// Place runs the suite.
func Place(t *testing.T, h Harness) {
	cases := []struct {
		name string
		run  func(*testing.T, Harness)
	}{
		{"check changes nothing", checksOnly},
		{"a VM without room is refused", refusesWithoutRoom},
		{"delivers hardware", deliversHardware},
		{"delivers again", deliversAgain},
		{"names", takesAnyName},
		{"notes, tags and attributes", carriesWords},
		{"odd notes, tags and attributes", carriesAnyWords},
		{"tells progress", tellsProgress},
		{"unreadable image", unreadableImage},
		{"name of another's", leavesOthersAlone},
		{"VMs of one name", keepsNamesakesApart},
		{"withdraws", withdraws},
		{"credentials", refusesCredentials},
		{"nobody answers", nobodyAnswers},
		{"calls fail", callsFail},
		{"calls are canceled", callsAreCanceled},
		{"dies", dies},
	}
	for _, format := range []targets.Format{targets.Raw, targets.QCOW2} {
		t.Run("delivers "+string(format), func(t *testing.T) { h.beside(t); deliversBytes(t, h, format) })
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) { h.beside(t); c.run(t, h) })
	}
}

// beside lets a case run beside others, where that may be.
func (h Harness) beside(t *testing.T) {
	if h.Parallel {
		t.Parallel()
	}
}

// hasRemedy fails the test unless err is of one of the kinds, with a remedy.
func hasRemedy(t *testing.T, what string, err error, kinds ...fault.Kind) {
	t.Helper()
	for _, k := range kinds {
		if fault.Is(err, k) && fault.HintOf(err) != "" {
			return
		}
	}
	t.Errorf("%s: %v (%v, remedy %q), want one of %v with a remedy", what, err, fault.KindOf(err), fault.HintOf(err), kinds)
}
