package fleet

import (
	"container/heap"
	"math"
)

// A limit is a rate that several streams share.
type limit struct {
	units   float64 // bytes a second; +Inf: no limit
	each    bool    // units are for each flow, not for all
	crowd   float64 // the part of units that each flow beside the first costs
	streams []*stream

	left  float64 // that is not given out yet, while it is
	open  int     // flows that have no rate yet, while they are given
	place int     // in the heap of limits, while rates are given; -1: it is not in it
}

// part is what a flow would get, were what is left shared equally by who has no rate.
func (l *limit) part() float64 { return l.left / float64(l.open) }

// begin counts who shares the limit.
func (l *limit) begin() {
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

// share gives the flows of an area what they can have: those of the scarcest limit get equal
// parts of it, and what they leave of others is shared by the rest (max-min fairness).
func share(a *area) {
	for _, s := range a.streams {
		s.rate = -1
	}
	h := make(limitHeap, 0, len(a.limits))
	for _, l := range a.limits {
		if l.begin(); l.open > 0 && !math.IsInf(l.left, 1) {
			l.place = len(h)
			h = append(h, l)
		}
	}
	heap.Init(&h)
	for len(h) > 0 {
		scarcest := heap.Pop(&h).(*limit)
		part := scarcest.part()
		for _, s := range scarcest.streams {
			if s.rate < 0 && len(s.flows) > 0 {
				h.settle(s, part)
			}
		}
	}
}

// settle gives a stream its rate and takes it from its limits.
func (h *limitHeap) settle(s *stream, rate float64) {
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

// An area is streams that share limits, directly or over others, and with no other stream.
type area struct {
	limits  []*limit
	streams []*stream
}

// around finds the area of s.
func around(s *stream) *area {
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

// join adds a limit to those of s. Areas that it connects are found anew.
func (s *stream) join(l *limit) {
	s.limits = append(s.limits, l)
	l.streams = append(l.streams, s)
	for _, other := range l.streams {
		if other.area != nil {
			for _, near := range other.area.streams {
				near.area = nil
			}
		}
	}
}

// limitHeap has the scarcest limit first.
type limitHeap []*limit

func (h limitHeap) Len() int           { return len(h) }
func (h limitHeap) Less(i, j int) bool { return h[i].part() < h[j].part() }
func (h limitHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].place, h[j].place = i, j
}
func (h *limitHeap) Push(x any) { *h = append(*h, x.(*limit)) }
func (h *limitHeap) Pop() any {
	old := *h
	last := old[len(old)-1]
	last.place = -1
	*h = old[:len(old)-1]
	return last
}
