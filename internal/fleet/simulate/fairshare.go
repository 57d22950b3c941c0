package simulate

import (
	"container/heap"
	"math"
)

// A limit is a rate that several streams share.
type limit struct {
	units   float64   // bytes per second; +Inf sets no limit
	each    bool      // units are for each flow, not for all flows together
	crowd   float64   // part of units that each flow after the first one costs
	streams []*stream // streams whose flows share the limit

	// rate that is not assigned yet, in bytes per second
	left  float64 // units without a flow
	open  int     // flows without a rate
	place int     // index in the heap of limits; -1: not in it
}

// equalPart returns the rate of each flow without a rate if they shared the remaining rate equally.
func (l *limit) equalPart() float64 { return l.left / float64(l.open) }

// countFlows counts the flows that share the limit, and computes the rate that they share.
func (l *limit) countFlows() {
	l.open, l.place = 0, -1
	for _, s := range l.streams {
		l.open += len(s.flows)
	}
	l.left = l.units
	if l.each {
		l.left *= float64(l.open)
	} else if l.open > 1 {
		l.left /= 1 + l.crowd*float64(l.open-1)
	}
}

// computeRates sets the rates of an area by max-min fairness: the flows of the scarcest limit get equal
// parts of it, and the others share the remaining rates of other limits.
func computeRates(a *area) {
	for _, s := range a.streams {
		s.rate = -1
	}
	h := make(limitHeap, 0, len(a.limits))
	for _, l := range a.limits {
		if l.countFlows(); l.open > 0 && !math.IsInf(l.left, 1) {
			l.place = len(h)
			h = append(h, l)
		}
	}
	heap.Init(&h)
	for len(h) > 0 {
		scarcest := heap.Pop(&h).(*limit)
		part := scarcest.equalPart()
		for _, s := range scarcest.streams {
			if s.rate < 0 && len(s.flows) > 0 {
				h.setRate(s, part)
			}
		}
	}
}

// setRate sets the rate of a stream and subtracts it from its limits.
func (h *limitHeap) setRate(s *stream, rate float64) {
	s.rate = rate
	for _, l := range s.limits {
		if l.place < 0 {
			continue
		}
		l.left = max(0, l.left-rate*float64(len(s.flows)))
		if l.open -= len(s.flows); l.open > 0 {
			heap.Fix(h, l.place)
		} else {
			heap.Remove(h, l.place)
		}
	}
}

// An area is a set of streams that share limits with each other, directly or through others, and with no other
// stream.
type area struct {
	limits  []*limit  // limits of the streams
	streams []*stream // streams of the area
}

// areaOf returns the area of s. It searches for it if it is unknown.
func areaOf(s *stream) *area {
	if s.area != nil {
		return s.area
	}
	a := &area{streams: []*stream{s}}
	s.area = a
	seen := map[*limit]bool{}
	for i := 0; i < len(a.streams); i++ {
		for _, l := range a.streams[i].limits {
			if seen[l] {
				continue
			}
			seen[l] = true
			a.limits = append(a.limits, l)
			for _, other := range l.streams {
				if other.area != a {
					other.area = a
					a.streams = append(a.streams, other)
				}
			}
		}
	}
	return a
}

// addLimit adds a limit to s. The areas that it connects become unknown.
func (s *stream) addLimit(l *limit) {
	s.limits = append(s.limits, l)
	l.streams = append(l.streams, s)
	for _, other := range l.streams {
		if other.area != nil {
			for _, member := range other.area.streams {
				member.area = nil
			}
		}
	}
}

// limitHeap has the scarcest limit first.
type limitHeap []*limit

// Len implements heap.Interface.
func (h limitHeap) Len() int { return len(h) }

// Less implements heap.Interface.
func (h limitHeap) Less(i, j int) bool { return h[i].equalPart() < h[j].equalPart() }

// Swap implements heap.Interface, and updates the places of the limits.
func (h limitHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].place, h[j].place = i, j
}

// Push implements heap.Interface. The caller sets the place of x.
func (h *limitHeap) Push(x any) { *h = append(*h, x.(*limit)) }

// Pop implements heap.Interface. The returned limit has place -1.
func (h *limitHeap) Pop() any {
	old := *h
	last := old[len(old)-1]
	last.place = -1
	*h = old[:len(old)-1]
	return last
}
