// Package fleetdb is the database that all processes of a fleet share: the plans, the state of each
// of their VMs with its worker, the commands of operators, and the progress of transfers. It is one
// file (SQLite) for a single process, and PostgreSQL for several machines. Both use the same tables
// and the same code.
//
// # Who writes
//
//	operators   Plans, VMs.SetCommand, Rehearsals, Limits, Workers.Drain, Audit
//	scheduler   Plans.SetState, VMs.Add, Scheduling and SchedulerState; one process at a time has its lease
//	worker      Workers, Claims and Progress, of its VMs; fenced by the claim's epoch
//	notifier    Notifications; one process at a time has its lease
//
// Each change of a VM, plan, worker, command or limit gets the next revision. A follower reads the
// changes since a revision (Feed.Changes) and waits for more (Feed.WaitForChange).
//
// # Files
//
// References point down this list.
//
//	fleetdb.go                                opens the database and returns its parts
//	changes.go                                the feed
//	rehearsals.go claims.go scheduling.go progress.go workers.go schedulerstate.go
//	                                          writes of workers and the scheduler
//	plans.go vms.go commands.go counts.go       plans and VMs, and the commands of operators
//	limits.go audit.go leases.go notifications.go records.go signatures.go
//	schema.go tx.go faults.go                 tables, transactions and errors
//	database.go sqlite.go postgres.go         connections
//	revisions.go dialect.go columns.go
//
// # What is promised
//
//   - A VM has one driver at most: each Grant to a worker is a new epoch. A write with an older one
//     fails with ErrFenced and changes nothing.
//   - Leases run by the database's clock. The owner of a lease computes until when it certainly has it
//     by its own clock, from the time before the request.
//   - A lost connection is fault.Unreachable: the caller may retry. A transaction is executed completely
//     or not at all.
//   - The database holds no secret: plans name credentials.
package fleetdb
