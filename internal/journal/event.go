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
	RunStarted   EventKind = "run-started"   // the run begins, or continues
	RunDone      EventKind = "run-done"      // the VM is published
	RunFailed    EventKind = "run-failed"    // the run failed and can be started again; Failure has the reason
	RunStopped   EventKind = "run-stopped"   // a user stopped the run; it can be started again
	RunDiscarded EventKind = "run-discarded" // all data that was not published is removed
	// the removal of the published VM begins; Failure describes the run if the removal does not end
	Withdrawing     EventKind = "withdrawing"
	StepStarted     EventKind = "step-started"    // a step begins
	StepDone        EventKind = "step-done"       // a step is complete
	StepRetried     EventKind = "step-retried"    // a step is tried again; Failure has the error of the last attempt
	DiskStarted     EventKind = "disk-started"    // the copy of a disk begins; Message has its starting point
	DiskDone        EventKind = "disk-done"       // the copy of a disk is complete; Message has the root of its manifest
	DiskRestarted   EventKind = "disk-restarted"  // the copied data is not reliable: the disk is copied again from its start
	RoundDone       EventKind = "round-done"      // a precopy round is complete; Message and OutageEstimate
	OutageEstimated EventKind = "outage-estimate" // outage estimate of a warm run that waits, in OutageEstimate; not journaled
	ChunkBad        EventKind = "chunk-bad"       // verify found a chunk that differs
	SourceReread    EventKind = "source-reread"   // Reread has the chunks that are read from the source again, and later the result
	Progressed      EventKind = "progress"        // progress of a disk in Bytes; not journaled
	Waiting         EventKind = "waiting"         // Message is the reason of a wait; empty if the run does not wait any more
	RehearsalDone   EventKind = "rehearsal-done"  // end of a rehearsal: Message; Failure if it had no result
	Noted           EventKind = "note"            // information for the user in Message
	Warned          EventKind = "warning"         // Warning
	PowerChanged    EventKind = "power"           // decamp changed the power state of the source VM
	Summarized      EventKind = "summary"         // Stages has the time of each stage, and Outage the outage
)

// Event is one thing that happened in a run.
type Event struct {
	Time           time.Time          `json:"time"`                     // when it happened
	Run            ID                 `json:"run"`                      // run that it belongs to
	Step           string             `json:"step,omitempty"`           // step of the run; empty if it belongs to the run as a whole
	Kind           EventKind          `json:"kind"`                     // determines which of the fields below are set
	Disk           int32              `json:"disk,omitempty"`           // device key; 0 if the event does not concern a disk
	Bytes          *Bytes             `json:"bytes,omitempty"`          // progress of the disk
	Message        string             `json:"message,omitempty"`        // text for the user
	Warning        *inventory.Warning `json:"warning,omitempty"`        // finding about the source VM
	Failure        *Failure           `json:"failure,omitempty"`        // error of a run, a step or a rehearsal
	Stages         []StageTime        `json:"stages,omitempty"`         // time of each stage
	OutageEstimate *OutageEstimate    `json:"outageEstimate,omitempty"` // estimate of the cutover
	Reread         *manifest.Reread   `json:"reread,omitempty"`         // chunks that were read from the source again
	Outage         *Outage            `json:"outage,omitempty"`         // outage of a warm run; nil if unknown
}

// OutageEstimate is an estimate of the cutover of a warm run, if it began now.
type OutageEstimate struct {
	Dirty  int64         `json:"dirty"`  // bytes that the guest changes per second; 0 if unknown
	Rate   int64         `json:"rate"`   // bytes that are copied per second
	Delta  int64         `json:"delta"`  // bytes that changed since the last round
	Boot   time.Duration `json:"boot"`   // boot time of the guest, as the operator entered it; 0 is unknown, and not counted
	Outage time.Duration `json:"outage"` // time from the shutdown until the VM is defined at its target, plus Boot

	// Delivery is the part of Outage for sending images to the target; 0 if the images are there already.
	Delivery time.Duration `json:"delivery,omitempty"`
}

// Outage is the time that a warm run's VM was off, without the boot time of its guest, which is unknown
// here.
type Outage struct {
	Began    time.Time     `json:"began"`              // when the guest was requested to shut down
	Took     time.Duration `json:"took"`               // time until the VM was defined at its target, or ran there
	Started  bool          `json:"started,omitempty"`  // the VM ran at its target
	Delivery time.Duration `json:"delivery,omitempty"` // part of Took for the delivery of verified images
}

// Bytes is the progress of a disk. Done + Skipped reaches Total.
type Bytes struct {
	Total   int64 `json:"total"`   // size of the disk
	Done    int64 `json:"done"`    // written by this attempt, data and zeros
	Skipped int64 `json:"skipped"` // verified in an earlier attempt
	Read    int64 `json:"read"`    // read from the source, or from the image by verify
	Zero    int64 `json:"zero"`    // known or found to be zeros; part of Done
	Rate    int64 `json:"rate"`    // recent value of Read per second; 0 if unknown

	Left time.Duration `json:"left,omitzero"` // estimated time until Total, at the recent rate; 0 if unknown

	Busy bottleneck.Busy `json:"busy,omitzero"` // recent use of source, target and processor
}

// Failure is an error in the form in which it is shown and journaled.
type Failure struct {
	Kind string `json:"kind"`           // name of the fault.Kind
	Text string `json:"text"`           // message of the error
	Hint string `json:"hint,omitempty"` // remedy; empty if missing
}

// FailureOf returns the Failure for err, nil if err is nil.
func FailureOf(err error) *Failure {
	if err == nil {
		return nil
	}
	return &Failure{Kind: fault.KindOf(err).String(), Text: err.Error(), Hint: fault.HintOf(err)}
}

// StageTime is the time of a part of a run. Working, Source and Target are sums over parallel workers, so
// they may exceed Elapsed.
type StageTime struct {
	Name    string        `json:"name"`           // "copy", or "copy 2000" for one disk
	Bytes   int64         `json:"bytes"`          // bytes of the disk, zeros included
	Read    int64         `json:"read,omitempty"` // read from the source, or from the image by verify
	Elapsed time.Duration `json:"elapsed"`        // duration
	Working time.Duration `json:"working"`        // time of hashing and comparing
	Source  time.Duration `json:"source"`         // time of waiting for the source
	Target  time.Duration `json:"target"`         // time of waiting for the target
}

// Subscriber receives events, one call at a time. It must be quick and must not block.
type Subscriber func(Event)
