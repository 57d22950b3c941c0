package simulate

import (
	"container/heap"
	"math"
	"time"

	"github.com/decamp/decamp/internal/fleetdb"
)

// A stream contains all simulated transfers with the same bound. They always have the same rate, so
// thousands of transfers cost as much as one.
type stream struct {
	limits []*limit  // limits of the stream; the last one is the rate of each flow alone
	flows  flowHeap  // active transfers, the first to end on top
	rate   float64   // bytes per second of each flow
	served float64   // bytes that a flow would have received since the beginning
	at     time.Time // time of served
	ends   time.Time // end of its first flow at the current rate
	place  int       // index in the heap of active streams; -1 without flows

	changed bool  // its flows have changed since its rate was computed
	area    *area // streams that share limits with it; nil if unknown
}

// A flow is a simulated transfer under way.
type flow struct {
	vm   fleetdb.VM // row of the VM
	at   int        // index in Result.VMs
	ends float64    // value of served in its stream at which it ends
	then func()     // starts the next flow of the VM; nil if the VM is done then
}

// advanceTo adds the bytes served until now.
func (s *stream) advanceTo(now time.Time) {
	s.served += s.rate * now.Sub(s.at).Seconds()
	s.at = now
}

// addFlow begins a flow of so many bytes.
func (s *stream) addFlow(f *flow, bytes float64) {
	f.ends = s.served + bytes
	heap.Push(&s.flows, f)
}

// forever is the end of a stream with a rate of 0.
var forever = time.Unix(1<<40, 0)

// nextEnd returns when the first flow ends. Less than one remaining byte is a rounding error.
func (s *stream) nextEnd() time.Time {
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

// removeEnded removes and returns the flows that have received all their bytes.
func (s *stream) removeEnded() (ended []*flow) {
	for len(s.flows) > 0 && s.flows[0].ends-s.served < 1 {
		ended = append(ended, heap.Pop(&s.flows).(*flow))
	}
	return ended
}

// flowHeap orders flows by their end, then by their beginning.
type flowHeap []*flow

// Len implements heap.Interface.
func (h flowHeap) Len() int { return len(h) }

// Less implements heap.Interface.
func (h flowHeap) Less(i, j int) bool {
	return h[i].ends < h[j].ends || h[i].ends == h[j].ends && h[i].at < h[j].at
}

// Swap implements heap.Interface.
func (h flowHeap) Swap(i, j int) { h[i], h[j] = h[j], h[i] }

// Push implements heap.Interface. x is a *flow.
func (h *flowHeap) Push(x any) { *h = append(*h, x.(*flow)) }

// Pop implements heap.Interface.
func (h *flowHeap) Pop() any {
	old := *h
	last := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	return last
}

// streamHeap orders streams by the end of their first flow.
type streamHeap []*stream

// Len implements heap.Interface.
func (h streamHeap) Len() int { return len(h) }

// Less implements heap.Interface.
func (h streamHeap) Less(i, j int) bool { return h[i].ends.Before(h[j].ends) }

// Swap implements heap.Interface, and updates the places of the streams.
func (h streamHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].place, h[j].place = i, j
}

// Push implements heap.Interface. x is a *stream.
func (h *streamHeap) Push(x any) {
	s := x.(*stream)
	s.place = len(*h)
	*h = append(*h, s)
}

// Pop implements heap.Interface. The returned stream has place -1.
func (h *streamHeap) Pop() any {
	old := *h
	last := old[len(old)-1]
	last.place = -1
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	return last
}
