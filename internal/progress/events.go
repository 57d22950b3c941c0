package progress

import (
	"fmt"
	"time"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/journal"
	"github.com/decamp/decamp/internal/units"
)

// Names contains the name of each run for its messages. It is empty if there is only one run.
type Names map[journal.ID]string

// prefix returns the text before each message about the run of e.
func (n Names) prefix(e journal.Event) string {
	if name, ok := n[e.Run]; ok {
		return name + ": "
	}
	return ""
}

// diskOf identifies a disk in a step of a run.
type diskOf struct {
	run  journal.ID // run of one destination
	step string     // name of the step
	disk int32      // device key; 0 if the step concerns all disks
}

// stepLabel returns the name of a step with the disk of e. A single disk has no number.
func stepLabel(e journal.Event, disk string) string {
	if e.Disk == 0 {
		return e.Step
	}
	return fmt.Sprintf("%s%s %d", e.Step, disk, e.Disk)
}

// Text returns the progress of a disk: "61 %, 4.9 GiB of 8 GiB, 3.1 GiB read, 230 MB/s, 14s
// left". Zeros and data of earlier attempts are not counted as read.
func Text(b journal.Bytes) string {
	done := b.Done + b.Skipped
	s := fmt.Sprintf("%s, %s of %s", units.Percent(done, b.Total), units.Binary(done), units.Binary(b.Total))
	if b.Read > 0 && b.Read < done {
		s += fmt.Sprintf(", %s read", units.Binary(b.Read))
	}
	if b.Rate > 0 {
		s += ", " + units.Rate(b.Rate, time.Second)
	}
	if b.Left > 0 {
		s += fmt.Sprintf(", %s left", units.LongDuration(b.Left))
	}
	return s
}

// limitedBy returns "; bottleneck: source …", or an empty text if the limit is unknown.
func limitedBy(b journal.Bytes) string {
	if limit := b.Busy.Limit(); limit.What != "" {
		return "; " + limit.String()
	}
	return ""
}

// estimateText returns the estimate of a cutover: "212 MiB changed since the last round, 3 MB/s; outage with
// a cutover now: 41s (boot not included)".
func estimateText(o journal.OutageEstimate) string {
	text := ""
	if o.Dirty > 0 {
		text = fmt.Sprintf("%s changed since the last round, %s; ", units.Binary(o.Delta), units.Rate(o.Dirty, time.Second))
	}
	text += "outage with a cutover now: " + units.Duration(o.Outage)
	text += " ("
	if o.Delivery > 0 {
		text += "delivery " + units.Duration(o.Delivery) + ", "
	}
	if o.Boot == 0 {
		return text + "boot not included)"
	}
	return text + "boot " + units.Duration(o.Boot) + ")"
}

// eventText returns the message for an event; empty if users need none. The command itself reports the
// end of a run.
func eventText(e journal.Event) string {
	switch e.Kind {
	case journal.StepStarted:
		return e.Step
	case journal.StepRetried:
		if e.Failure == nil {
			return ""
		}
		return fmt.Sprintf("  %s failed and is retried: %s", e.Step, fault.Printable(e.Failure.Text))
	case journal.DiskStarted, journal.DiskDone, journal.DiskRestarted:
		return fmt.Sprintf("  disk %d: %s", e.Disk, diskWords(e))
	case journal.ChunkBad:
		return fmt.Sprintf("  disk %d: BAD CHUNK: %s", e.Disk, fault.Printable(e.Message))
	case journal.RunStarted, journal.Noted, journal.PowerChanged, journal.RoundDone, journal.RehearsalDone:
		return fault.Printable(e.Message)
	case journal.Waiting:
		if e.Message == "" {
			return ""
		}
		return "  waiting: " + fault.Printable(e.Message)
	case journal.Warned:
		if e.Warning == nil {
			return ""
		}
		return fmt.Sprintf("  warning %s: %s", e.Warning.Code, fault.Printable(e.Warning.Text))
	}
	return ""
}

// diskWords returns the message for an event of one disk.
func diskWords(e journal.Event) string {
	if e.Kind == journal.DiskDone {
		return "done, root " + e.Message
	}
	return fault.Printable(e.Message)
}
