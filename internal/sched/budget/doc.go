// Package budget keeps transfers within rates: bytes per second of a link, a host or another named object,
// by the minute of the week. Rates may change during transfers. Runs share a budget fairly, regardless of
// the number of their connections and the size of their requests.
//
// # Use
//
//	b := budget.New(budget.Wall())
//	b.Set("link:wan", budget.Week{Rate: 100 << 20, Rules: []budget.Rule{{Days: budget.Workdays, From: 8 * budget.Hour, To: 18 * budget.Hour, Rate: 20 << 20}}})
//	flow := b.Join("run1", 1, "link:wan", "host:esx3")  // one for each transfer of a run
//	err := flow.Wait(ctx, n)                            // before a request of n bytes
//	flow.Leave()
//
// A Budgets is safe for concurrent use. A name without a rate sets no limit, so a flow can always name its
// link and host.
//
// # Guarantees
//
// Over any t seconds a budget permits at most rate x t, plus Burst of the rate, plus one piece; while a run
// waits, no less than rate x t. A new rate applies at once: waits that were computed with the old rate are
// computed again. If several runs wait for one budget, each gets an equal part, times its weight, of the
// rate that the others leave: start-time fair queueing, in pieces of at most Piece bytes.
//
// A flow passes its budgets one after the other, in the order of their names. While it waits for a narrow
// budget it uses nothing of a wide one.
//
// The permitted bytes do not arrive evenly: a request takes as long as the host needs.
package budget
