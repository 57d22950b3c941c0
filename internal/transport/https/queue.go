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
type diskQueue struct{ urgent, bulk []*ticket }

func (l *diskQueue) queue(urgent bool) *[]*ticket {
	if urgent {
		return &l.urgent
	}
	return &l.bulk
}

// rotation serves the lines of all disks in turn, so that a disk with many requests does
// not keep another one waiting. The pool's lock guards it.
type rotation struct {
	queues      []*diskQueue
	next        int   // the line that is looked at first
	urgentBytes int64 // bytes that urgent requests may yet take before the next ordinary one
}

func (r *rotation) addQueue(l *diskQueue) { r.queues = append(r.queues, l) }

func (r *rotation) removeQueue(l *diskQueue) {
	r.queues = slices.DeleteFunc(r.queues, func(other *diskQueue) bool { return other == l })
}

func (r *rotation) push(l *diskQueue, t *ticket) {
	q := l.queue(t.urgent)
	*q = append(*q, t)
}

// remove takes t out of l and reports whether it was still waiting.
func (r *rotation) remove(l *diskQueue, t *ticket) bool {
	q := l.queue(t.urgent)
	i := slices.Index(*q, t)
	if i < 0 {
		return false
	}
	*q = slices.Delete(*q, i, i+1)
	return true
}

// waitingCount returns how many requests wait.
func (r *rotation) waitingCount() int {
	n := 0
	for _, l := range r.queues {
		n += len(l.urgent) + len(l.bulk)
	}
	return n
}

// pop takes out the ticket to be served next; nil if nobody waits.
func (r *rotation) pop() *ticket {
	urgentFirst := r.urgentBytes > 0
	t := r.takeTicket(urgentFirst)
	if t == nil {
		t = r.takeTicket(!urgentFirst)
	}
	switch {
	case t == nil:
	case t.urgent:
		r.urgentBytes = max(r.urgentBytes-max(t.bytes, urgentLeast), 0)
	default:
		r.urgentBytes = urgentShare * t.bytes
	}
	return t
}

// takeTicket serves the first line from next on that has such a ticket.
func (r *rotation) takeTicket(urgent bool) *ticket {
	for i := range r.queues {
		at := (r.next + i) % len(r.queues)
		q := r.queues[at].queue(urgent)
		if len(*q) > 0 {
			t := (*q)[0]
			*q = slices.Delete(*q, 0, 1)
			r.next = at + 1
			return t
		}
	}
	return nil
}
