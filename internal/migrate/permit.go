package migrate

import "time"

// Permit is what the user allows this time. It is not part of the plan.
type Permit struct {
	PowerOff bool          // shut the VM down if it runs
	Warm     bool          // the VM is moved while it runs; a suspended VM is refused, whatever Force permits
	Wait     time.Duration // wait for the guest to shut down; 0 is the source's default
	Force    bool          // then pull the plug

	Cutover  Cutover // cutover of a warm run
	Paranoid bool    // a warm run compares all of every disk in the end, regardless of reported changes

	Spot       Spot // how much of each disk verify reads from the source a second time
	SourceHash bool // verify has the host hash each disk, and compares
	Trial      bool // verify boots the VM, and only one that boots is published
	Start      bool // commit starts the VM once it is published
}

// Cutover determines when a warm run switches the VM off. The first condition that holds counts.
// Without a condition the operator decides (journal.Order).
type Cutover struct {
	At       time.Time     // zero: no time is set
	Budget   time.Duration // once the outage is expected to be at most so long; 0: no budget
	Interval time.Duration // between the beginnings of two rounds; default an hour

	// Open reports whether the VM may be switched off at t, and when that changes next; zero is never.
	// The estimated outage must end before the window closes. Without At and Budget the VM is switched
	// off as soon as a window fits. nil permits any time. A command of the operator (journal.Order) is
	// also valid at any time.
	Open func(t time.Time) (open bool, turns time.Time)

	// Boot is the boot time of the guest, which counts as outage. nil keeps the value of an earlier
	// start of the run, or zero.
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

// RereadConnections is the number of connections for the second reading: two connections with 55 MB/s
// each, the usual limit of a host, read the sample of a disk of 100 GiB in 3 s.
const RereadConnections = 2

// MostMetadata bounds the chunks with metadata that are read again: one chunk in 512, but at least 64
// and at most 1024. With the other 66 chunks, 266 MiB of a disk of 100 GiB are read again.
func MostMetadata(chunks int64) int { return int(min(max(64, chunks/512), 1024)) }
