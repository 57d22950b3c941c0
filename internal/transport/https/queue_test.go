package https

import (
	"math/rand/v2"
	"strings"
	"testing"
)

func TestQueuesAreServedInTurn(t *testing.T) {
	var r rotation
	a, b := new(diskQueue), new(diskQueue)
	r.addQueue(a)
	r.addQueue(b)
	owner := map[*ticket]string{}
	add := func(l *diskQueue, name string, n int) {
		for range n {
			tk := &ticket{}
			owner[tk] = name
			r.push(l, tk)
		}
	}
	add(a, "a", 6) // a comes first and has more requests
	add(b, "b", 3)
	got := ""
	for tk := r.pop(); tk != nil; tk = r.pop() {
		got += owner[tk]
	}
	if got != "ababab"+"aaa" {
		t.Errorf("order %s, want ababab then aaa", got)
	}
}

// The share of urgent requests is a share of bytes, and each request counts as at least a megabyte.
func TestUrgentRequestsHaveBoundedShare(t *testing.T) {
	for _, c := range []struct {
		bytes int64
		most  int // urgent requests in a row
	}{{span, 3}, {span / 2, 6}, {1 << 20, 48}, {512, 48}} {
		var r rotation
		l := new(diskQueue)
		r.addQueue(l)
		for range 100 {
			r.push(l, newTicket(false, span))
			r.push(l, newTicket(true, c.bytes))
		}
		got := ""
		for tk := r.pop(); tk != nil; tk = r.pop() {
			if tk.urgent {
				got += "u"
			} else {
				got += "-"
			}
		}
		want := "-"
		for left := 100; left > 0; left -= c.most {
			want += strings.Repeat("u", min(left, c.most)) + "-"
		}
		if want += strings.Repeat("-", 200-len(want)); got != want {
			t.Errorf("urgent requests of %d bytes: order %s, want %s", c.bytes, got, want)
		}
	}
}

// TestRotationModel compares a rotation with a simple model: each ticket is served exactly once, and each queue
// keeps its order.
func TestRotationModel(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 1))
	var r rotation
	lines := []*diskQueue{new(diskQueue), new(diskQueue), new(diskQueue)}
	for _, l := range lines {
		r.addQueue(l)
	}
	type place struct {
		l      *diskQueue
		urgent bool
	}
	queues := map[place][]*ticket{}
	where := map[*ticket]place{}
	waiting := 0
	for range 5000 {
		l := lines[rnd.IntN(len(lines))]
		switch rnd.IntN(3) {
		case 0:
			tk := &ticket{urgent: rnd.IntN(3) == 0}
			p := place{l, tk.urgent}
			where[tk], queues[p] = p, append(queues[p], tk)
			r.push(l, tk)
			waiting++
		case 1:
			p := place{l, rnd.IntN(2) == 0}
			if q := queues[p]; len(q) > 0 {
				i := rnd.IntN(len(q))
				if !r.remove(l, q[i]) || r.remove(l, q[i]) {
					t.Fatal("a waiting ticket could not be removed exactly once")
				}
				queues[p] = append(append([]*ticket{}, q[:i]...), q[i+1:]...)
				waiting--
			}
		default:
			tk := r.pop()
			if (tk == nil) != (waiting == 0) {
				t.Fatalf("pop returned %v with %d tickets waiting", tk, waiting)
			}
			if tk != nil {
				p := where[tk]
				if queues[p][0] != tk {
					t.Fatal("a ticket was served out of order")
				}
				queues[p] = queues[p][1:]
				waiting--
			}
		}
		if r.waitingCount() != waiting {
			t.Fatalf("%d waiting, want %d", r.waitingCount(), waiting)
		}
	}
}
