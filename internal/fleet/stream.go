package fleet

import (
	"container/heap"
	"math"
	"time"

	"github.com/decamp/decamp/internal/roster"
)

// A stream is all simulated transfers that are bounded alike: whatever happens, each of them has
// the same rate as the others. That makes thousands of transfers as cheap as one.
type stream struct {
	limits []*limit // the last is its own: what each of its flows can have by itself
	flows  flowHeap
	rate   float64   // of each flow, bytes a second
	served float64   // bytes that each flow had that was in it from the beginning
	at     time.Time // of served
	ends   time.Time // its first flow, at this rate
	place  int       // in the play's heap of streams; -1: nothing is in it

	changed bool  // it has other flows than when rates were found
	area    *area // what it shares limits with; nil: not known
}

// A flow is a simulated transfer under way.
type flow struct {
	vm   roster.VM
	at   int     // in the result
	ends float64 // when its stream has served so much
	then func()  // what is next; nil: it is over
}

// advance books what was served until now.
func (s *stream) advance(now time.Time) {
	s.served += s.rate * now.Sub(s.at).Seconds()
	s.at = now
}

// add begins a flow of so many bytes.
func (s *stream) add(f *flow, bytes float64) {
	f.ends = s.served + bytes
	heap.Push(&s.flows, f)
}

// forever is when a stream ends that nothing flows in.
var forever = time.Unix(1<<40, 0)

// next is when its first flow ends. Less than a byte is what rounding leaves.
func (s *stream) next() time.Time {
	left := s.flows[0].ends - s.served
	switch {
	case left < 1:
		return s.at
	case s.rate <= 0:
		return forever
	}
	took := math.Ceil(left / s.rate * float64(time.Second))
	if took > math.MaxInt64/2 { // 146 years
		return forever
	}
	return s.at.Add(time.Duration(took))
}

// over takes the flows out that have all their bytes.
func (s *stream) over() (ended []*flow) {
	for len(s.flows) > 0 && s.flows[0].ends-s.served < 1 {
		ended = append(ended, heap.Pop(&s.flows).(*flow))
	}
	return ended
}

// flowHeap has the flow first that ends first, and the one that began first of those.
type flowHeap []*flow

func (h flowHeap) Len() int { return len(h) }
func (h flowHeap) Less(i, j int) bool {
	return h[i].ends < h[j].ends || h[i].ends == h[j].ends && h[i].at < h[j].at
}
func (h flowHeap) Swap(i, j int) { h[i], h[j] = h[j], h[i] }
func (h *flowHeap) Push(x any)   { *h = append(*h, x.(*flow)) }
func (h *flowHeap) Pop() any {
	old := *h
	last := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	return last
}

// streamHeap has the stream first whose first flow ends first.
type streamHeap []*stream

func (h streamHeap) Len() int           { return len(h) }
func (h streamHeap) Less(i, j int) bool { return h[i].ends.Before(h[j].ends) }
func (h streamHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].place, h[j].place = i, j
}
func (h *streamHeap) Push(x any) {
	s := x.(*stream)
	s.place = len(*h)
	*h = append(*h, s)
}
func (h *streamHeap) Pop() any {
	old := *h
	last := old[len(old)-1]
	last.place = -1
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	return last
}
