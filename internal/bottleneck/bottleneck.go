// Package bottleneck determines the resource that limits running copies, by how much, and the next
// limit, from the waits of their workers.
//
// It uses measurements only; package advise estimates the effect of changes. The source includes the
// disk at the host, the host, and the network up to this machine's memory.
package bottleneck

import "fmt"

// Busy has the share of time that each part of a copy was busy: 1 is all of it. The part that is busy
// nearly all the time is the limit. The zero Busy means unknown.
type Busy struct {
	Source    float64 `json:"source"`    // the host, its datastore, and the way from there
	Target    float64 `json:"target"`    // the image's storage
	Processor float64 `json:"processor"` // processor of this machine
	Budget    float64 `json:"budget"`    // the rate that was allowed
}

// Limit is the limit of a copy, and the next limit after its removal.
type Limit struct {
	What string  `json:"what"` // source, target, processor, budget
	Part float64 `json:"part"` // share of the time that it is busy
	Next string  `json:"next"`
	Gain float64 `json:"gain"` // how many times as fast at most, until Next limits; 0: more than mostGain
}

const (
	mostGain  = 10   // beyond this gain the measurement of the next limit is too uncertain
	leastPart = 0.01 // less than that is no measurement
)

// Limit returns what limits; the zero Limit if nothing was busy.
func (b Busy) Limit() Limit {
	l := Limit{}
	next := 0.0
	for _, e := range []struct {
		name string
		part float64
	}{{"source", b.Source}, {"target", b.Target}, {"processor", b.Processor}, {"budget", b.Budget}} {
		switch {
		case e.part > l.Part:
			l.Next, next = l.What, l.Part
			l.What, l.Part = e.name, e.part
		case e.part > next:
			l.Next, next = e.name, e.part
		}
	}
	if next > leastPart && l.Part/next <= mostGain {
		l.Gain = l.Part / next
	}
	return l
}

// String returns one line: the limit, its effect, and the next limit.
func (l Limit) String() string {
	if l.What == "" {
		return ""
	}
	s := fmt.Sprintf("limited by the %s (busy %.0f %% of the time)", l.What, 100*l.Part)
	if l.Gain == 0 {
		return s + "; nothing else is near its limit"
	}
	return s + fmt.Sprintf("; the %s comes next, at most %.1f times as fast", l.Next, l.Gain)
}

// Mean is what copies were busy with, each counted by the bytes that it moves.
type Mean struct {
	busy   Busy
	weight float64
}

// Add counts a copy in that moves so many bytes a second.
func (m *Mean) Add(b Busy, rate int64) {
	if b == (Busy{}) || rate <= 0 {
		return
	}
	weight := m.weight + float64(rate)
	mean := func(x, y float64) float64 { return (x*m.weight + y*float64(rate)) / weight }
	m.busy = Busy{mean(m.busy.Source, b.Source), mean(m.busy.Target, b.Target), mean(m.busy.Processor, b.Processor), mean(m.busy.Budget, b.Budget)}
	m.weight = weight
}

// Busy returns the mean.
func (m *Mean) Busy() Busy { return m.busy }
