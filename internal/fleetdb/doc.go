// Package fleetdb is the fleet database, in which the processes of a fleet meet: which plans there
// are, the state of each of their VMs, which worker drives it, the orders of operators, and the
// progress of transfers. It is one file (SQLite) if one process does everything, and PostgreSQL if
// several machines take part. Both use the same tables and the same code.
//
// # Who writes
//
//	operators   Plans, VMs.Order, Rehearsals, Limits, Workers.Drain, Audit
//	scheduler   Plans.SetState, VMs.Add, Scheduling and Board; one process at a time has its lease
//	worker      Workers, Claims and Progress, of the VMs that it drives; fenced by the claim's epoch
//
// Every change of a VM, plan, worker, order or limit takes the next revision. A follower asks for
// what changed since a revision (Feed.Changes) and waits for more (Feed.Await).
//
// # Files
//
// References point down this list.
//
//	roster.go                                 opens the database and hands out its parts
//	changes.go                                the feed
//	rehearsals.go claims.go scheduling.go progress.go workers.go board.go
//	                                          what workers and the scheduler write
//	plans.go vms.go orders.go counts.go       plans and VMs, and what operators want of them
//	limits.go audit.go leases.go records.go signatures.go
//	schema.go tx.go faults.go                 tables, transactions and errors
//	database.go sqlite.go postgres.go         connections
//	revisions.go dialect.go columns.go
//
// # What is promised
//
//   - A VM has one driver at most: each Grant to a worker is a new epoch. A write with an older one
//     fails with ErrFenced and changes nothing.
//   - Leases run by the database's clock. The owner of a lease knows until when it certainly has it
//     by its own clock, measured from before it asked.
//   - A lost connection is fault.Unreachable: the caller may ask again. A transaction is done whole
//     or not at all.
//   - The database holds no secret: plans name credentials.
package fleetdb
