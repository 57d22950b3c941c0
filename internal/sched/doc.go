// Package sched decides which waiting runs may use which resources now, and explains why the others wait.
// It does no I/O and has no clock and no goroutine. Its caller, the fleet's scheduler, passes in events and
// times, and starts the granted transfers.
//
// # Use
//
//	s := sched.New(sched.Options{})
//	s.SetCapacity("host:esx3/vms", 20)           // at any time; 0 closes, Unlimited only counts
//	s.Restore(grants...)                         // after a start: resources held according to the journal
//	s.Submit(now, requests...)                   // one for each transfer that will begin
//	for _, g := range s.Decide(now) { start(g) } // after one or several changes
//	s.Release(run)                               // after the end of the transfer; then Decide
//	s.NextChange()                               // time to call Decide without a change
//
// One goroutine owns a Scheduler. A change is cheap and decides nothing; Decide checks the changes and
// returns each grant once. A caller that crashed between a grant and its journal does not restore it: it
// submits again and gets another grant. HasGrant reports whether a run has a grant already. Resources are
// held from the grant to Release, for one transfer only: not while a run converts, waits for its next round,
// or waits for a cutover. Each of those that needs resources is a separate request.
//
// After a crash the scheduler is empty. The server calls SetCapacity, then Restore with the grants in the
// journal (their sessions may still be open on the host), then Submit for the rest. The scheduler itself
// stores nothing.
//
// # Resources
//
// A resource is a name and a capacity in units. A request names weights of several resources and is granted
// all of them or none. The part of the name before the slash is the owner. By convention:
//
//	host:esx3/vms       concurrent transfers of VMs, 20 by default
//	host:esx3/disks     concurrent disks
//	host:esx3/nfc       bytes of NFC memory
//	datastore:ds1/reads   vcenter:vc1/tasks   link:wan/streams   target:kvm1/disks
//	worker:w2/runs      a worker is a resource like any other: a second limiter would fill up with
//	                    runs that wait in this one
//
// All limits are resources. Rates (MB/s) belong to package budget: they slow transfers down, they do not
// delay their start.
//
// A weight above the capacity is granted when no other run holds any of that resource, and then no other run
// gets any. Capacity 0 is the exception: it is closed to all.
//
// # Command
//
//  1. Cutovers first: their VMs are off. Then higher priorities. A lower rank gets nothing while a request
//     of a higher rank fits.
//  2. Elders, which were passed for too long; see below.
//  3. The plan with the smallest share: units in use of the requested resource, divided by the plan's
//     weight. Within a plan the stage, First or Again, with less use. So no plan waits for another's queue,
//     and neither first copies nor rounds wait for all of the other kind. If only one run fits at a time,
//     all shares are zero when it ends, and the oldest plan continues.
//  4. If many hosts and datastores share one resource: the one with the most remaining work for each
//     running transfer, so that all of them are used and end together. Requests that are new since the
//     last decision are spread evenly.
//  5. The longest expected transfer, if nothing was copied yet; rounds in the order of their requests.
//
// Each request that fits is granted, also before earlier requests that do not fit: a resource is idle only
// if no eligible run waits for it, or if it is reserved.
//
// # Starvation
//
// A request becomes an elder Options.ReserveAfter after it was first at a resource with free units and could not
// begin (for lack of units there, or eight times for lack of another resource). It then precedes all others
// of its rank, and its missing units are reserved. The most senior elder begins at the latest when the
// holders of its missing units have ended, one resource after the other: after patience, until the next
// release, plus, for each of its needs, the longest transfer then running. The next elder follows it. In
// practice the resources drain together, within one longest transfer. Meanwhile reserved units are lent to
// runs that are expected to end before the expected start of the elder.
//
// This holds within a rank. Higher ranks may delay lower ones for ever. Plans that are added continuously
// may keep a plan at its share, which is never zero.
//
// # Cost
//
// A waiting run is in the queue of one full resource, and costs nothing until units are released there. The
// cost of a decision is, for each changed resource, the number of plans, hosts and datastores in its queue,
// and the logarithm of the runs. A run that lacks another resource moves to that queue once.
package sched
