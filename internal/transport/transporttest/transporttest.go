// Package transporttest contains the conformance suite for transport.Transport. A new
// transport is complete when it passes. The suite requires a function that builds an
// emulated source, and the troubles that this source can cause:
//
//	func TestConformance(t *testing.T) {
//		transporttest.Run(t, transporttest.Harness{
//			New:    func(t *testing.T, disks ...disk.Source) transporttest.Environment { … },
//			Passes: []transporttest.Trouble{{Name: "reset", Start: resetConnections}},
//			Stops:  []transporttest.Trouble{{Name: "lock", Start: lockFile, Kind: fault.Conflict}},
//		})
//	}
//
// The suite checks these properties of every transport:
//
//   - the image is identical to the disk, and the manifest complete; holes stay holes
//   - a later transfer resumes one that was canceled or failed, without copying durable chunks
//     again
//   - temporary trouble causes no error; permanent trouble ends in an error with its kind and
//     a remedy
//   - two concurrent transfers share the source fairly
//   - Job.Pace is called for all data, and for nothing else
//   - no goroutine remains
package transporttest

import (
	"testing"

	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/transport"
)

// A Harness creates sources for the suite.
type Harness struct {
	// New starts a source with the given disks on one powered-off VM. It is stopped when the test ends.
	// The back-off of its Transport must take no time.
	New func(t *testing.T, disks ...disk.Source) Environment

	// Passes contains troubles that a transfer survives without an error.
	Passes []Trouble

	// Stops contains troubles that end a transfer with Kind and a remedy. After the end of the trouble, a
	// later transfer completes the image.
	Stops []Trouble
}

// An Environment is an emulated source, with the transport under test connected to it.
type Environment struct {
	Transport transport.Transport // transport under test
	Disks     []transport.Disk    // disks of the VM, in the order of New's arguments
	Data      any                 // data of the harness for its troubles
}

// Trouble is a disturbance of a rig.
type Trouble struct {
	Name string // part of the subtest's name

	// Start causes the trouble, now or a little later. It is called before the transfer begins. end ends
	// it, unless it has ended already.
	Start func(t *testing.T, r Environment) (end func())

	Kind fault.Kind // kind of the transfer's error, for Harness.Stops
}

// sizes are the sizes of the copied disks: less than a chunk, an odd number of sectors, and many
// windows of the copy engine.
var sizes = []int64{disk.SectorSize, 5<<20 + 3*disk.SectorSize, bigDisk}

// Run runs the suite on the transports of h.
func Run(t *testing.T, h Harness) {
	t.Run("probe", func(t *testing.T) { testProbe(t, h) })
	for _, size := range sizes {
		t.Run("copies every byte", func(t *testing.T) { testCopiesEveryByte(t, h, size) })
	}
	t.Run("keeps holes", func(t *testing.T) { testKeepsHoles(t, h) })
	t.Run("resumes when canceled", func(t *testing.T) { testResumesWhenCanceled(t, h) })
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
