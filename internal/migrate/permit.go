package migrate

import "time"

// Permit is what the user allows this time. It is not part of the plan.
type Permit struct {
	PowerOff bool          // shut the VM down if it runs
	Warm     bool          // the VM is moved while it runs; a suspended VM is refused, whatever Force permits
	Wait     time.Duration // for the guest to shut down; 0 is the source's default
	Force    bool          // then pull the plug

	Cutover  Cutover // of a warm run
	Paranoid bool    // a warm run compares all of every disk in the end, whatever the host says changed

	Spot       Spot // how much of each disk verify reads from the source a second time
	SourceHash bool // verify has the host hash each disk, and compares
	Trial      bool // verify boots the VM, and only one that boots is published
	Start      bool // commit starts the VM once it is published
}

// Cutover says when a warm run switches the VM off. Whatever comes first counts; with none
// of them the operator says so (journal.Order).
type Cutover struct {
	At       time.Time     // zero: no time is set
	Budget   time.Duration // once the outage is expected to be at most so long; 0: no budget
	Interval time.Duration // between the beginnings of two rounds; default an hour

	// Open says whether the VM may be switched off at t, and when that changes next; zero is
	// never. The outage has to be over before it closes, as far as anybody can tell. Without At
	// and Budget the VM is switched off as soon as that holds. Nil: at any time. Who says so
	// himself (journal.Order) may do it at any time, too.
	Open func(t time.Time) (open bool, turns time.Time)

	// Boot is how long the guest takes to boot, which counts as outage. Nil: what was said
	// when the run was begun or continued before, else nothing.
	Boot *time.Duration
}

// Spot is how much of each disk verify reads from the source a second time. The zero value is the
// default: the first and the last chunk, RandomChunks random ones, and the chunks with tables and
// file-system structures that detect read.
type Spot struct {
	None   bool  // nothing is read again
	First  int64 // bytes from the beginning of the disk; the first chunk is always included
	Random int   // random chunks; 0 means RandomChunks
}

// RandomChunks is how many random chunks of a disk are read again by default.
const RandomChunks = 64

// RereadConnections is how many connections to a source are enough for the second reading: two with
// 55 MB/s each, as hosts give, read what is read of a disk of 100 GiB in 3 s.
const RereadConnections = 2

// MostMetadata bounds the chunks with metadata that are read again: one chunk in 512, but at least 64
// and at most 1024. With the other 66 chunks, 266 MiB of a disk of 100 GiB are read again.
func MostMetadata(chunks int64) int { return int(min(max(64, chunks/512), 1024)) }
