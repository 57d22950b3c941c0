package journal

import (
	"time"

	"github.com/decamp/decamp/internal/bottleneck"
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/manifest"
)

// EventKind is the kind of an event. The values are part of the --json output and of journals; their
// meaning never changes.
type EventKind string

const (
	RunBegan      EventKind = "run-began"     // also when a run continues
	RunDone       EventKind = "run-done"      // the VM is published
	RunFailed     EventKind = "run-failed"    // Failure has the reason; the run can be started again
	RunStopped    EventKind = "run-stopped"   // a user stopped the run; it can be started again
	RunDiscarded  EventKind = "run-discarded" // everything that was not published is gone
	Withdrawing   EventKind = "withdrawing"   // the removal of the published VM begins; Failure is what holds unless it ends
	StepBegan     EventKind = "step-began"
	StepDone      EventKind = "step-done"
	StepRetried   EventKind = "step-retried" // Failure has the error of this attempt
	DiskBegan     EventKind = "disk-began"   // Message has the starting point of the copy
	DiskDone      EventKind = "disk-done"    // Message is the manifest's root
	DiskAnew      EventKind = "disk-anew"    // the copied data is not reliable: the disk is copied again
	RoundDone     EventKind = "round-done"   // end of a round of a warm run; Message and Outlook
	Projected     EventKind = "outlook"      // Outlook, while a warm run waits; not journaled
	ChunkBad      EventKind = "chunk-bad"    // verify found a chunk that differs
	SourceReread  EventKind = "reread"       // Reread: the chunks that are read from the source again, then the result
	Progressed    EventKind = "progress"     // not journaled
	Waits         EventKind = "waits"        // Message is for what; empty: it does not any more
	RehearsalDone EventKind = "rehearsed"    // Message; Failure if it had no result
	Noted         EventKind = "note"         // Message
	Warned        EventKind = "warning"      // Warning
	PowerChanged  EventKind = "power"        // the one thing that may change at the source
	Summarized    EventKind = "summary"      // Stages: the time of each stage
)

// Event is one thing that happened in a run.
type Event struct {
	Time    time.Time          `json:"time"`
	Run     ID                 `json:"run"`
	Step    string             `json:"step,omitempty"`
	Kind    EventKind          `json:"kind"`
	Disk    int32              `json:"disk,omitempty"` // device key
	Bytes   *Bytes             `json:"bytes,omitempty"`
	Message string             `json:"message,omitempty"`
	Warning *inventory.Warning `json:"warning,omitempty"`
	Failure *Failure           `json:"failure,omitempty"`
	Stages  []Stage            `json:"stages,omitempty"`
	Outlook *Outlook           `json:"outlook,omitempty"`
	Reread  *manifest.Reread   `json:"reread,omitempty"` // result of a reread
	Outage  *Outage            `json:"outage,omitempty"` // outage of a summary, if known
}

// Outlook is an estimate of a warm run's cutover now.
type Outlook struct {
	Dirty  int64         `json:"dirty"`  // bytes that the guest changes in a second; 0: not known yet
	Rate   int64         `json:"rate"`   // bytes copied in a second
	Delta  int64         `json:"delta"`  // bytes that changed since the last round
	Boot   time.Duration `json:"boot"`   // boot time of the guest, as the operator entered it; 0 is unknown, and not counted
	Outage time.Duration `json:"outage"` // from the shutdown to the VM defined at its target, and Boot

	// Delivery is how much of Outage is the sending of images to where the VM is to live; 0: they are there.
	Delivery time.Duration `json:"delivery,omitempty"`
}

// Outage is the time that a warm run's VM was off, without the boot time of its guest, which is unknown
// here.
type Outage struct {
	Began    time.Time     `json:"began"`              // the guest was asked to shut down
	Took     time.Duration `json:"took"`               // time until the VM was defined at its target, or ran there
	Started  bool          `json:"started,omitempty"`  // the VM ran at its target
	Delivery time.Duration `json:"delivery,omitempty"` // part of Took for the delivery of verified images
}

// Bytes is how far a disk is. Done + Skipped reaches Total.
type Bytes struct {
	Total   int64 `json:"total"`
	Done    int64 `json:"done"`    // held by this attempt, data and zeros
	Skipped int64 `json:"skipped"` // proven by an earlier one
	Read    int64 `json:"read"`    // moved: read from the source, or from the image by verify
	Zero    int64 `json:"zero"`    // done without being read: known or found to be zeros
	Rate    int64 `json:"rate"`    // Read per second, lately; 0: unknown

	Left time.Duration `json:"left,omitzero"` // until Total, if disks go on as lately; 0: unknown

	Busy bottleneck.Busy `json:"busy,omitzero"` // lately
}

// Failure is an error as it is shown and journaled.
type Failure struct {
	Kind string `json:"kind"` // fault.Kind's name
	Text string `json:"text"`
	Hint string `json:"hint,omitempty"`
}

// FailureOf returns nil for nil.
func FailureOf(err error) *Failure {
	if err == nil {
		return nil
	}
	return &Failure{Kind: fault.KindOf(err).String(), Text: err.Error(), Hint: fault.HintOf(err)}
}

// Stage is where some of a run's time went. Working and Waiting are summed over parallel
// workers, so they may exceed Elapsed.
type Stage struct {
	Name    string        `json:"name"`            // "copy", "copy 2000" …
	Bytes   int64         `json:"bytes"`           // bytes of the disk, zeros included
	Moved   int64         `json:"moved,omitempty"` // read from the source, or from the image by verify
	Elapsed time.Duration `json:"elapsed"`
	Working time.Duration `json:"working"` // own work: hashing, comparing
	Source  time.Duration `json:"source"`  // waiting for the source
	Target  time.Duration `json:"target"`  // waiting for the target
}

// Subscriber receives events, one call at a time. It must be quick and must not block.
type Subscriber func(Event)
