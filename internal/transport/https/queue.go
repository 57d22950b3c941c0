package https

import "slices"

// urgentShare is how many bytes urgent requests may take for each of an ordinary one, ahead of the
// next of those, so that random reads cannot starve a copy. A request costs a host something however
// short it is: it counts as urgentLeast. Shares were counted in requests once, and the samples of
// twenty disks that were gone on with had a sixth of the bytes.
const (
	urgentShare = 3
	urgentLeast = 1 << 20
)

// ticket is one request waiting for a connection.
type ticket struct {
	urgent bool
	bytes  int64
	served chan *conn // buffered; receives the connection, nil if the pool was closed
}

func newTicket(urgent bool, bytes int64) *ticket {
	return &ticket{urgent: urgent, bytes: bytes, served: make(chan *conn, 1)}
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
	lines []*line
	next  int   // the line that is looked at first
	ahead int64 // bytes that urgent requests may yet take before the next ordinary one
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
	urgentFirst := r.ahead > 0
	t := r.take(urgentFirst)
	if t == nil {
		t = r.take(!urgentFirst)
	}
	switch {
	case t == nil:
	case t.urgent:
		r.ahead = max(r.ahead-max(t.bytes, urgentLeast), 0)
	default:
		r.ahead = urgentShare * t.bytes
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
