// Package warm moves a VM while it runs: it copies in rounds, rehearses in between, and switches the VM off
// for the last round.
//
//	prepare    preflight for a VM that runs
//	track      change tracking on, if it was off
//	freeze     a snapshot of ours; the first one's moment is what the images begin with
//	round      bring the images up to the snapshot, remove it
//	prove      read back what the round wrote
//	look       after the first round: what is inside, and whether it can be converted
//	wait       for the next round, or for the cutover
//	...        freeze, round, prove, wait
//	power off  the outage begins
//	last       bring the images up to the VM as it is now, finish and seal them
//	detect, convert, verify, commit, as in a cold run
//	put back   change tracking as it was found
//
// A step that finds a disk larger than it is on record does nothing but put that on record
// (see grow.go): freeze and round are done again then, so is the last round, and instead of
// powering off a VM that runs there is another round.
//
// What is changed on the host was found out, and recorded, by an earlier step: prepare says
// whether changes were tracked, wait whether the VM ran, and a snapshot's name follows from
// the number of rounds. So there is no moment at which a crash makes decamp forget how it
// found the VM.
//
// What the images hold is never older than the moment on record (Warm.Since): so whatever
// dies in between, a round that takes all that changed since then makes them right. The
// moment moves on when a round is on record, not before.
//
// The package builds on migrate, which has the record of a run, the steps of a cold run and the Migrator.
// Register adds warm runs to a Migrator.
package warm
