package https

import "slices"

// urgentShare is how often the lines of ordinary requests come first although urgent ones
// wait: every fourth time, so that random reads cannot starve a copy.
const urgentShare = 4

// ticket is one request waiting for a connection.
type ticket struct {
	urgent bool
	served chan *conn // buffered; receives the connection, nil if the pool was closed
}

// line holds the waiting requests of one disk, in order.
type line struct{ urgent, bulk []*ticket }

func (l *line) queue(urgent bool) *[]*ticket {
	if urgent {
		return &l.urgent
	}
	return &l.bulk
}

// rotation serves the lines of all disks in turn, so that a disk with many requests does
// not keep another one waiting. The pool's lock guards it.
type rotation struct {
	lines  []*line
	next   int // the line that is looked at first
	served int
}

func (r *rotation) join(l *line) { r.lines = append(r.lines, l) }

func (r *rotation) leave(l *line) {
	r.lines = slices.DeleteFunc(r.lines, func(other *line) bool { return other == l })
}

func (r *rotation) push(l *line, t *ticket) {
	q := l.queue(t.urgent)
	*q = append(*q, t)
}

// remove takes t out of l and reports whether it was still waiting.
func (r *rotation) remove(l *line, t *ticket) bool {
	q := l.queue(t.urgent)
	i := slices.Index(*q, t)
	if i < 0 {
		return false
	}
	*q = slices.Delete(*q, i, i+1)
	return true
}

// waiting returns how many requests wait.
func (r *rotation) waiting() int {
	n := 0
	for _, l := range r.lines {
		n += len(l.urgent) + len(l.bulk)
	}
	return n
}

// pop takes out the ticket to be served next; nil if nobody waits.
func (r *rotation) pop() *ticket {
	urgentFirst := r.served%urgentShare != urgentShare-1
	t := r.take(urgentFirst)
	if t == nil {
		t = r.take(!urgentFirst)
	}
	if t != nil {
		r.served++
	}
	return t
}

// take serves the first line from next on that has such a ticket.
func (r *rotation) take(urgent bool) *ticket {
	for i := range r.lines {
		at := (r.next + i) % len(r.lines)
		q := r.lines[at].queue(urgent)
		if len(*q) > 0 {
			t := (*q)[0]
			*q = slices.Delete(*q, 0, 1)
			r.next = at + 1
			return t
		}
	}
	return nil
}
