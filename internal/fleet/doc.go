// Package fleet carries out plans: its scheduler decides which VM may transfer next, its workers drive the VMs that
// they are granted, and both continue after processes, machines, hosts or the database have been away.
//
// # Terms
//
// A Node is the part of a process in the fleet: a candidate for scheduler, a worker, or both. Nodes communicate
// only through the fleet database (package fleetdb).
//
// The scheduler is the node that holds the lease "scheduler", for one term. It passes the rows of the database to
// package admission, records the grants that admission decides, and moves plans through their states (planRunner).
// At the beginning of each term it reads all other data again.
//
// A worker has an assignment for each VM that it was granted. An assignment makes attempts, each with one claim; an
// attempt calls the Mover, which moves the VM and reports through a Driver.
//
// # Promises
//
//   - One process at a time drives a VM. A worker that could not renew its lease stops all that it drives before the
//     lease ends by the database's clock, and begins nothing until it has renewed it. What it writes with an old claim
//     changes nothing.
//   - A VM that fails stops no other VM. Failures that can pass are tried again after a pause.
//   - No process tries a refused login again until an operator resumes a plan of that source: hosts lock accounts after
//     a few (package login). A host where several VMs fail in a row rests for a while, then one VM tries it.
//   - While the database is away everything waits, and nothing fails.
//   - A plan's hooks begin once each. A hook that was cut off does not begin again without an order.
//
// # Not promised
//
// That no other process writes to an image: the lock on the image's file prevents that. The scheduler takes no slots
// back: lower limits apply as transfers end.
package fleet
