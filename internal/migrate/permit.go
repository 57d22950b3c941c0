package migrate

import "time"

// Permit contains the permissions of one call. It is not part of the plan.
type Permit struct {
	PowerOff bool          // shut the guest down if the VM runs
	Warm     bool          // migrate the VM while it runs; a suspended VM is refused, also with Force
	Wait     time.Duration // time limit of the guest to shut down; 0 is the source's default
	Force    bool          // power the VM off after that time

	Cutover  Cutover // cutover of a warm run
	Paranoid bool    // a warm run compares all of every disk at the end, regardless of the reported changes

	Spot       Spot // how much of each disk verify reads from the source a second time
	SourceHash bool // verify makes the host hash each disk, and compares the hash
	Trial      bool // verify boots the VM, and only a VM that boots is published
	Start      bool // commit starts the VM after it is published
}

// Cutover determines when a warm run powers the VM off. The first condition that holds counts. Without
// a condition the operator decides (journal.Command).
type Cutover struct {
	At       time.Time     // time of the cutover; zero if none is set
	Budget   time.Duration // power the VM off when the expected outage is at most this long; 0 if none is set
	Interval time.Duration // time between the beginnings of two rounds; default one hour

	// Open reports whether the VM may be switched off at t, and when that changes next; zero is never.
	// The estimated outage must end before the window closes. Without At and Budget the VM is switched
	// off as soon as a window fits. nil permits any time. A command of the operator (journal.Command) is
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
	None   bool  // no part is read again
	First  int64 // bytes from the beginning of the disk; the first chunk is always included
	Random int   // random chunks; 0 means RandomChunks
}

// RandomChunks is how many random chunks of a disk are read again by default.
const RandomChunks = 64

// RereadConnections is the number of connections for the second reading: two connections with 55 MB/s
// each, the usual limit of a host, read the sample of a disk of 100 GiB in 3 s.
const RereadConnections = 2

// MostMetadata returns the limit of metadata chunks that are read again, for a disk of so many chunks:
// one chunk in 512, but at least 64 and at most 1024. With the other 66 chunks, 266 MiB of a disk of
// 100 GiB are read again.
func MostMetadata(chunks int64) int { return int(min(max(64, chunks/512), 1024)) }
