// Package roster is the database in which the processes of a fleet meet: which plans there
// are, where each VM of them stands, who drives it, what operators ordered, how far transfers
// are. One file (SQLite) where one process does it all, PostgreSQL where machines join; the
// tables and the code are the same.
//
// # Who writes what
//
//	anybody     plans, orders, limits, the audit trail
//	scheduler   who may transfer, and which worker drives (Grant); one process at a time has the lease
//	worker      what becomes of the VMs it drives; fenced by the epoch of its claim
//
// Every change of a VM, plan, worker, order or limit takes the next revision, so that whoever
// follows the roster asks for what changed since (Changes) and waits for more (Await).
//
// # What is promised
//
//   - A VM has one driver at most: each Grant to a worker is a new epoch, and what a worker
//     writes with an older one is refused (ErrFenced) and changes nothing.
//   - Leases run by the database's clock. Who has one knows until when it is sure to be his
//     by his own clock, measured from before he asked.
//   - A lost connection is fault.Unreachable: ask again. Nothing is half done.
//   - Nothing here holds a secret: credentials are named in the plan's text.
package roster
