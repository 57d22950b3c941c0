package https

import "time"

const (
	startConnections = 4

	// At the start two connections are added at a time, and often: with steady steps alone
	// a small disk would be copied before its connections were found.
	quickStep   = 250 * time.Millisecond
	steadyStep  = 2 * time.Second  // later: one more at a time
	restAfter   = 30 * time.Second // after a steady step that brought nothing
	firstHold   = 2 * time.Second  // after a cut; doubles with each cut soon after another
	longestHold = 30 * time.Second

	oneOverload = time.Second // distress so soon after a cut has the same cause
	forgotten   = time.Minute // a cut so long ago does not lengthen the next hold

	// growth is by how much goodput must rise for an addition to have been worth it.
	growth = 1.07

	// A first byte is late when it takes more than lateFactor times the best smoothed time
	// and more than late.
	lateFactor = 3
	late       = 500 * time.Millisecond
	smoothing  = 8                // weight of the past in the smoothed time
	firstSeen  = startConnections // first bytes before anything is concluded from them
)

// control finds how many connections a host should have. It is a state machine without
// clock or I/O: callers tell it the time and what they saw, and do what want says.
//
// While goodput grows with the connections, each connection is at its own limit ("bound
// by connections") and one more is worth it. When it does not, something shared is the
// limit, usually the datastore; the connections are left as they are and the question is
// asked again later. Any sign of distress halves them.
//
//	quick  --no growth--> steady --no growth--> resting --restAfter--> steady
//	any    --distress--> holding --hold--> steady
type control struct {
	want int       // connections there should be now
	due  time.Time // when tick has something to decide

	most   int
	step   time.Duration // quickStep or steadyStep
	trying bool          // connections were added at since; goodput before was before
	before float64
	rate   float64 // goodput of the last step, bytes/s

	since time.Time // start of the current step, when bytes were handed out
	bytes int64

	hold   time.Duration // the pause after the next cut
	cut    time.Time     // when the last cut was made
	smooth time.Duration // smoothed time to first byte; 0 before the first
	best   time.Duration // lowest smoothed time
	seen   int           // first bytes since the last cut
}

func newControl(most int, now time.Time) *control {
	return &control{
		want: min(startConnections, most), most: most,
		step: quickStep, due: now.Add(quickStep), since: now, hold: firstHold,
	}
}

// tick decides about more connections when it is time to. bytes is all goodput so far;
// hungry says that requests wait for a connection.
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
		c.step = steadyStep // the steps were short: what they say is not certain
		c.waitFor(now, c.step)
	case c.trying && !grew:
		c.waitFor(now, restAfter)
	case now.Sub(c.since) > 2*c.step:
		c.waitFor(now, c.step) // the step began before a pause: measure afresh
	default:
		c.addConnections(now)
	}
	c.since, c.bytes = now, bytes
}

// addConnections opens more connections and notes the goodput they must beat.
func (c *control) addConnections(now time.Time) {
	more := 1
	if c.step == quickStep {
		more = 2
	}
	c.want = min(c.want+more, c.most)
	c.before, c.trying = c.rate, true
	c.due = now.Add(c.step)
}

// waitFor leaves the connections as they are for d.
func (c *control) waitFor(now time.Time, d time.Duration) {
	c.trying = false
	c.due = now.Add(d)
}

// distress halves the connections, once for all that one overload brings.
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

// firstByte takes the time an answer took to begin, and treats a lasting rise as distress.
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
