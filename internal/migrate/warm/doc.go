// Package warm migrates a running VM: it copies in rounds, rehearses between them, and switches the VM off
// for the last round.
//
//	prepare    preflight for a running VM
//	track      turns change tracking on, if it was off
//	snapshot   takes a snapshot; the first one is the starting point of the images
//	round      brings the images up to the snapshot, removes it
//	verify     reads back the chunks that the round wrote: the step verify round
//	inspect    after the first round: inspects the guest, and checks that it can be converted
//	wait       for the next round, or for the cutover
//	...        snapshot, round, verify round, wait
//	power off  the outage begins
//	last       brings the images up to the powered-off VM, completes and seals them
//	detect, convert, verify, commit, as in a cold run
//	restore    restores change tracking
//
// A step that finds a disk larger than recorded only records the new size (see grow.go). Then snapshot and
// round are repeated, also the last round, and a running VM gets another round instead of the power-off.
//
// An earlier step records the state of the host before a later step changes it: prepare records whether
// changes were tracked, wait whether the VM ran, and the number of rounds determines a snapshot's name.
// Therefore a crash at any moment cannot lose the original state of the VM.
//
// The images are never older than the recorded point in time (Warm.Since). After a crash, a round that
// copies all changes since then makes them correct. The point in time advances only when a round is recorded.
//
// The package builds on migrate, which has the record of a run, the steps of a cold run and the Migrator.
// Register adds warm runs to a Migrator.
package warm
