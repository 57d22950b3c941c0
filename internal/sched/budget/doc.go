// Package budget keeps transfers within rates: bytes per second of a link, of a host or of
// anything that has a name, by the minute of the week, changed while they run. Transfers
// that share a budget share it fairly by run, whatever their connections and request sizes.
//
// # Use
//
//	b := budget.New(budget.Wall())
//	b.Set("link:wan", budget.Week{Rate: 100 << 20, Rules: []budget.Rule{{Days: budget.Workdays, From: 8 * budget.Hour, To: 18 * budget.Hour, Rate: 20 << 20}}})
//	flow := b.Join("run1", 1, "link:wan", "host:esx3")  // one for each transfer of a run
//	err := workflow.Wait(ctx, n)                            // before n bytes are asked for
//	workflow.Leave()
//
// A Budgets is safe for concurrent use. A name without a rate does not limit, so a flow can
// name its link and host whether or not anybody ever sets a budget for them.
//
// # What is promised
//
// Over any t seconds a budget lets through at most rate x t, plus Burst of the rate, plus
// one piece; while anybody waits, no less than that without these. A new rate counts from
// the moment it is set: nobody sleeps for a time that was worked out with the old one.
// Where several runs wait for one budget, each gets an equal part, times its weight, of
// what the others leave: start-time fair queueing, in pieces of at most Piece bytes.
//
// A flow passes its budgets one after the other, in the order of their names. What waits
// at a narrow one does not wait at a wide one, and so takes nothing away from others there.
//
// Not promised: that bytes that were let through arrive evenly. What a transfer asked for is
// on its way for as long as the host takes.
package budget
