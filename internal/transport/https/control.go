package https

import "time"

const (
	startConnections = 4 // connections at the start

	// At the start, connections are added two at a time and more often. With steady steps alone,
	// a small disk would be copied before the right number is reached.
	quickStep   = 250 * time.Millisecond
	steadyStep  = 2 * time.Second  // later: time between additions of one connection
	restAfter   = 30 * time.Second // pause after a steady step without growth
	firstHold   = 2 * time.Second  // pause after a cut; doubles with each cut soon after another
	longestHold = 30 * time.Second // longest pause after a cut

	oneOverload = time.Second // distress this soon after a cut has the same cause
	forgotten   = time.Minute // a cut this long ago does not lengthen the next pause

	// growth is the factor by which goodput must rise for an addition to be useful.
	growth = 1.07

	// A first byte is late when it takes more than lateFactor times the best smoothed time
	// and more than late.
	lateFactor = 3
	late       = 500 * time.Millisecond // lower limit of a late first byte
	smoothing  = 8                      // weight of the past in the smoothed time
	firstSeen  = startConnections       // first bytes before their times are evaluated
)

// control determines the number of connections to a host. It is a state machine without clock or I/O:
// callers pass the time and their observations, and follow want.
//
// While goodput grows with the connections, each connection is at its own limit, and one more is
// useful. When it does not grow, a shared resource is the limit, usually the datastore; the number
// stays the same and is tested again later. Any sign of distress halves it.
//
//	quick  --no growth--> steady --no growth--> resting --restAfter--> steady
//	any    --distress--> holding --hold--> steady
type control struct {
	want int       // number of connections now
	due  time.Time // time of the next decision in tick

	most   int           // highest number of connections
	step   time.Duration // quickStep or steadyStep
	trying bool          // connections were added at since
	before float64       // goodput before the addition, in bytes/s
	rate   float64       // goodput of the last step, in bytes/s

	since time.Time // start of the current step
	bytes int64     // goodput until since, in bytes

	hold   time.Duration // pause after the next cut
	cut    time.Time     // time of the last cut; zero before the first
	smooth time.Duration // smoothed time to first byte; 0 before the first
	best   time.Duration // lowest smoothed time
	seen   int           // first bytes since the last cut
}

// newControl returns a control that starts quickly, with at most most connections.
func newControl(most int, now time.Time) *control {
	return &control{
		want: min(startConnections, most), most: most,
		step: quickStep, due: now.Add(quickStep), since: now, hold: firstHold,
	}
}

// tick decides about more connections when a decision is due. bytes is the total goodput; hungry
// reports that requests wait for a connection.
func (c *control) tick(now time.Time, bytes int64, hungry bool) {
	if now.Before(c.due) {
		return
	}
	c.rate = float64(bytes-c.bytes) / now.Sub(c.since).Seconds()
	grew := c.rate >= growth*c.before
	switch {
	case !hungry || c.want == c.most:
		c.waitFor(now, c.step)
	case c.trying && !grew && c.step == quickStep:
		c.step = steadyStep // the result of short steps is uncertain
		c.waitFor(now, c.step)
	case c.trying && !grew:
		c.waitFor(now, restAfter)
	case now.Sub(c.since) > 2*c.step:
		c.waitFor(now, c.step) // the step began before a pause: measure again
	default:
		c.addConnections(now)
	}
	c.since, c.bytes = now, bytes
}

// addConnections adds connections and stores the goodput that they must exceed.
func (c *control) addConnections(now time.Time) {
	more := 1
	if c.step == quickStep {
		more = 2
	}
	c.want = min(c.want+more, c.most)
	c.before, c.trying = c.rate, true
	c.due = now.Add(c.step)
}

// waitFor leaves the number unchanged for d.
func (c *control) waitFor(now time.Time, d time.Duration) {
	c.trying = false
	c.due = now.Add(d)
}

// distress halves the connections, once for each overload, which may have several signs.
func (c *control) distress(now time.Time) {
	since := now.Sub(c.cut)
	if since < oneOverload {
		return
	}
	if since > forgotten {
		c.hold = firstHold
	}
	c.want = max(1, c.want/2)
	c.cut = now
	c.step = steadyStep
	c.waitFor(now, c.hold)
	c.hold = min(2*c.hold, longestHold)
	c.smooth, c.seen = 0, 0
}

// firstByte records the time until an answer began. A lasting rise counts as distress.
func (c *control) firstByte(now time.Time, d time.Duration) {
	c.seen++
	c.smooth += (d - c.smooth) / time.Duration(min(c.seen, smoothing))
	if c.seen < firstSeen {
		return
	}
	if c.best == 0 || c.smooth < c.best {
		c.best = c.smooth
	}
	if c.smooth > late && c.smooth > lateFactor*c.best {
		c.distress(now)
	}
}
