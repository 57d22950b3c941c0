// Package sched is the one place that decides which waiting run may use which resources
// now, and that says why the others wait. It does no I/O, has no clock and no goroutine:
// its caller, the fleet runner, tells it what happened and when, and starts what it grants.
//
// # Use
//
//	s := sched.New(sched.Options{})
//	s.SetCapacity("host:esx3/vms", 20)           // at any time; 0 closes, Unlimited counts only
//	s.Restore(holdings...)                       // after a start: what the journal says is held
//	s.Submit(now, requests...)                   // one for each transfer that is to begin
//	for _, g := range s.Decide(now) { start(g) } // after every change, or several
//	s.Release(run)                               // the transfer ended, however it did; then Decide
//	s.Wake()                                     // when to Decide although nothing changed
//
// One goroutine owns a Scheduler. A change is cheap and decides nothing; Decide looks at
// what changed and returns each grant once. A caller that crashed between a grant and its
// journal does not restore it, submits again and is granted again; one that submits what
// is held is told so by Holds. Resources are held from the grant to Release, for one
// transfer and nothing else: not while a run converts, waits for its next round, or for a
// cutover. Each of those that needs resources is a request of its own.
//
// A server that dies wakes up with an empty scheduler: SetCapacity, then Restore with the
// holders that the journal names (their sessions may still be open on the host), then
// Submit for the rest. Nothing is guessed, and nothing of the scheduler itself is stored.
//
// # Resources
//
// A resource is a name and a capacity in units of its own; a request names weights of
// several and is granted all of them or none. The part of the name before the slash says
// what it belongs to. By convention:
//
//	host:esx3/vms       transfers of VMs at once, 20 by default
//	host:esx3/disks     disks at once
//	host:esx3/nfc       bytes of NFC memory
//	datastore:ds1/reads   vcenter:vc1/tasks   link:wan/streams   target:kvm1/disks
//	worker:w2/runs      a worker is a resource like any other: a limiter of its own, beside
//	                    this one, would fill up with runs that wait here
//
// Limits are resources, and there are no others. Rates (MB/s) are package budget's: they
// slow transfers down, they do not keep them from beginning.
//
// A weight above the capacity is granted when no other run has any of that resource, and
// then no other run gets any. Capacity 0 is the exception: it is closed to all.
//
// # Order
//
//  1. Cutover before all else: the VM is off. Then higher priorities. Nothing of a lower
//     rank is ever granted while something higher fits.
//  2. Elders, those that were passed for too long; see below.
//  3. The plan with the smallest share, in units in use of the resource that is waited for,
//     over the plan's weight; within a plan the stage, First or Again, that has less. So no
//     plan waits for another's queue, first copies do not wait for all rounds, nor rounds
//     for all first copies. Where only one run fits at a time all shares are nothing when it
//     ends, and the plan that came first goes on.
//  4. Where many hosts and datastores meet at one resource: who has most work left for each
//     run under way, so that all of them are used and end together.
//  5. The longest expected, if nothing was copied yet; rounds go as they come.
//
// Whatever fits is granted, also before runs that come first and do not fit: no resource
// is idle that an eligible run waits for, except what is set aside.
//
// # No run starves
//
// A request whose turn it was at a resource with room, and that still could not begin (for
// too little of it, or eight times for want of something else), is an elder once that was
// Options.Patience ago. Then it goes before all of its rank, and what
// it lacks is set aside. The most senior elder begins at the latest when those have ended
// who hold what it lacks, one resource after the other: after patience, until something is
// given back next, plus, for each of its needs, the longest transfer then under way. The
// next elder follows it. In practice the needs drain together and it is one longest
// transfer. Meanwhile what is set aside is lent to runs that are expected to be gone by the
// time that the elder was expected to begin as it became one.
//
// This holds within a rank. Higher ranks may keep lower ones out for ever, plans that are
// added for ever may keep a plan at its share, which is never nothing.
//
// # Cost
//
// A waiting run stands in the line of one resource that has no room for it, and costs
// nothing until something is given back there. A decision costs, for each resource that
// changed, the plans, and the hosts or datastores, that wait in its line, and the logarithm
// of the runs; a run that turns out to lack something else is moved to that line once.
package sched
