package https

import "slices"

// urgentShare bounds the bytes of urgent requests that are served between two ordinary ones, so
// that random reads cannot starve a copy. Short requests have a cost for the host too, so that each
// counts as at least urgentLeast. An earlier version counted requests instead of bytes: the samples
// of twenty resumed disks then had a sixth of the bytes.
const (
	urgentShare = 3       // bytes of urgent requests for each byte of ordinary ones
	urgentLeast = 1 << 20 // cost of a short urgent request, in bytes
)

// ticket is one request that waits for a connection.
type ticket struct {
	urgent bool       // the request is served before ordinary ones
	bytes  int64      // length of the requested range
	served chan *conn // receives the connection; nil if the pool was closed. It has room for one value.
}

// newTicket returns the ticket of a request for so many bytes.
func newTicket(urgent bool, bytes int64) *ticket {
	return &ticket{urgent: urgent, bytes: bytes, served: make(chan *conn, 1)}
}

// diskQueue contains the waiting requests of one disk, in order.
type diskQueue struct{ urgent, bulk []*ticket }

// queue returns the list of the urgent or of the other requests.
func (l *diskQueue) queue(urgent bool) *[]*ticket {
	if urgent {
		return &l.urgent
	}
	return &l.bulk
}

// rotation serves the queues of all disks in turn, so that a disk with many requests does not delay the
// others. The pool's mu guards it.
type rotation struct {
	queues      []*diskQueue // queue of each disk that is read
	next        int          // index of the queue that is checked first
	urgentBytes int64        // bytes that urgent requests may use before the next ordinary one
}

// addQueue adds the queue of a disk.
func (r *rotation) addQueue(l *diskQueue) { r.queues = append(r.queues, l) }

// removeQueue removes the queue of a disk. Its requests are not served any more.
func (r *rotation) removeQueue(l *diskQueue) {
	r.queues = slices.DeleteFunc(r.queues, func(other *diskQueue) bool { return other == l })
}

// push appends t to the queue of its disk.
func (r *rotation) push(l *diskQueue, t *ticket) {
	q := l.queue(t.urgent)
	*q = append(*q, t)
}

// remove deletes t from its queue and reports whether it was still waiting.
func (r *rotation) remove(l *diskQueue, t *ticket) bool {
	q := l.queue(t.urgent)
	i := slices.Index(*q, t)
	if i < 0 {
		return false
	}
	*q = slices.Delete(*q, i, i+1)
	return true
}

// waitingCount returns the number of waiting requests.
func (r *rotation) waitingCount() int {
	n := 0
	for _, l := range r.queues {
		n += len(l.urgent) + len(l.bulk)
	}
	return n
}

// pop removes and returns the ticket to serve next; nil if no request waits.
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

// takeTicket removes the first urgent or ordinary ticket, from the queue next on; nil if no queue has
// one.
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
