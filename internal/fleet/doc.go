// Package fleet carries plans out: it says which VM may transfer next, gives it to a worker,
// drives it there, and goes on when processes, machines, hosts or the database go away.
//
// # Terms
//
// A Node is what a process has of all this: a candidate for scheduler, a worker, or both.
// Nodes know each other by the roster only. The scheduler is the node that has the lease
// "scheduler"; what it knows besides the roster is a sched.Scheduler, made anew from the
// rows whenever the lease is gained. A worker drives the VMs that were granted to it, each
// with a Mover in a goroutine of its own.
//
// # What is promised
//
//   - A VM is driven by one process at a time. A worker that could not renew its lease stops
//     all it drives before the lease is over by the database's clock, and begins nothing
//     until it could; what it still writes to the roster with an old claim changes nothing.
//   - A VM that fails stops no other one. Kinds that pass are tried again with back-off.
//   - A login that is refused is not tried again by anybody until somebody says resume:
//     accounts are locked after a few. A host that fails several VMs in a row is left alone
//     for a while, then tried with one VM.
//   - While the database is away everything waits, and nothing fails.
//   - A plan's hooks are begun once each. One that was cut off is not begun again by itself.
//
// # What is not
//
// That nobody writes to an image but its driver: that is the lock on the image's file. The
// scheduler does not take slots away: limits that are lowered count as transfers end.
package fleet
