// Package transporttest has the conformance suite for transport.Transport. A new transport
// is done when it passes; calling the suite takes one function that builds an emulated
// source, and what that source can be made to suffer:
//
//	func TestConformance(t *testing.T) {
//		transporttest.Run(t, transporttest.Harness{
//			New:    func(t *testing.T, disks ...disk.Source) transporttest.Rig { … },
//			Passes: []transporttest.Trouble{{Name: "reset", Start: resetConnections}},
//			Stops:  []transporttest.Trouble{{Name: "lock", Start: lockFile, Kind: fault.Conflict}},
//		})
//	}
//
// What is promised by every transport, and checked here: the image is byte-identical and
// the manifest complete; holes stay holes; a transfer that was cancelled or failed leaves
// what a later one resumes, without copying proven chunks again; trouble that passes goes
// unnoticed, trouble that stays ends in an error with its kind and a remedy; two disks at
// once share fairly; a budget is asked for all that is data, and for no more; no goroutine is
// left behind.
package transporttest

import (
	"testing"

	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/transport"
)

// A Harness makes sources for the suite.
type Harness struct {
	// New starts a source with the given disks on one powered-off VM, for one test; it
	// cleans up when the test ends. The Transport's back-off must take no time.
	New func(t *testing.T, disks ...disk.Source) Rig

	// Passes is trouble that a transfer survives without anybody noticing.
	Passes []Trouble

	// Stops is trouble that ends a transfer with Kind and a remedy. When it is over, a
	// later transfer completes the image.
	Stops []Trouble
}

// A Rig is one emulated source and the transport under test, connected to it.
type Rig struct {
	Transport transport.Transport
	Disks     []transport.Disk
	Data      any // the harness's own, for its Troubles
}

// Trouble is something that happens to a rig.
type Trouble struct {
	Name string

	// Start brings it about, now or a little later; end makes it stop, if it has not by
	// itself. Start is called before the transfer begins.
	Start func(t *testing.T, r Rig) (end func())

	Kind fault.Kind // of the error; for Stops
}

// sizes are the disks the suite runs on: less than a chunk, an odd number of sectors, many
// spans of the engine.
var sizes = []int64{disk.SectorSize, 5<<20 + 3*disk.SectorSize, bigDisk}

// Run runs the suite.
func Run(t *testing.T, h Harness) {
	t.Run("probe", func(t *testing.T) { testProbe(t, h) })
	for _, size := range sizes {
		t.Run("copies every byte", func(t *testing.T) { testCopiesEveryByte(t, h, size) })
	}
	t.Run("keeps holes", func(t *testing.T) { testKeepsHoles(t, h) })
	t.Run("resumes when cancelled", func(t *testing.T) { testResumesWhenCanceled(t, h) })
	t.Run("asks before it takes", func(t *testing.T) { testPacesData(t, h) })
	t.Run("takes nothing unasked", func(t *testing.T) { testWaitsForBudget(t, h) })
	t.Run("two disks at once", func(t *testing.T) { testSharesFairly(t, h) })
	for _, tr := range h.Passes {
		t.Run("survives "+tr.Name, func(t *testing.T) { testSurvives(t, h, tr) })
	}
	for _, tr := range h.Stops {
		t.Run("stops at "+tr.Name, func(t *testing.T) { testStops(t, h, tr) })
	}
}
