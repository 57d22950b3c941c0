// Package bottleneck determines the resource that limits running copies, by how much, and the next
// limit, from the waits of their workers.
//
// It uses measurements only; package advise estimates the effect of changes. The source includes the
// disk at the host, the host, and the network up to this machine's memory.
package bottleneck

import "fmt"

// Busy is the share of time in which each part of a copy was busy, from 0 to 1. The part that is busy
// nearly all the time is the limit. The zero Busy means unknown.
type Busy struct {
	Source    float64 `json:"source"`    // the host, its datastore, and the network to this machine
	Target    float64 `json:"target"`    // storage of the image
	Processor float64 `json:"processor"` // processor of this machine
	Budget    float64 `json:"budget"`    // bandwidth budget
}

// Limit is the limit of a copy, and the next limit after its removal.
type Limit struct {
	What string  `json:"what"` // part that limits: source, target, processor, budget; empty if unknown
	Part float64 `json:"part"` // share of the time in which it is busy
	Next string  `json:"next"` // part that limits next; empty if no other part was busy
	Gain float64 `json:"gain"` // largest speed-up until Next limits; 0 if it is more than mostGain
}

const (
	mostGain  = 10   // largest gain for which the measurement of the next limit is certain enough
	leastPart = 0.01 // smallest share that counts as a measurement
)

// Part is a part of a copy.
type Part struct {
	Name, Means string  // name of the part, and its description
	Busy        float64 // share of time in which it was busy, from 0 to 1
}

// Parts returns the parts in the order of the data path.
func (b Busy) Parts() []Part {
	return []Part{
		{"source", "datastore, host, and the network path", b.Source},
		{"target", "medium of the images", b.Target},
		{"processor", "zero detection and hashing on this machine", b.Processor},
		{"budget", "configured rates", b.Budget},
	}
}

// Limit returns the limit. It returns the zero Limit if no part was busy.
func (b Busy) Limit() Limit {
	l := Limit{}
	next := 0.0
	for _, p := range b.Parts() {
		switch {
		case p.Busy > l.Part:
			l.Next, next = l.What, l.Part
			l.What, l.Part = p.Name, p.Busy
		case p.Busy > next:
			l.Next, next = p.Name, p.Busy
		}
	}
	if next > leastPart && l.Part/next <= mostGain {
		l.Gain = l.Part / next
	}
	return l
}

// remedies has the remedies for each component, the cheapest first.
var remedies = map[string]string{
	"source":    "source: migrate VMs of several hosts and datastores in parallel, or use transport nfc or landing; then use a faster link or datastore: predict the effect with decamp advise --source … --nic …",
	"target":    "target: use several destinations (to:) or faster storage: predict the effect with decamp advise --dest …",
	"processor": "processor: add a machine (decamp worker --join), or add cores to this one",
	"budget":    "budget: increase the rate with decamp limits",
}

// Remedies returns what makes the copy faster, first things first. The limit must be known.
func (l Limit) Remedies() []string {
	if l.Gain == 0 {
		return []string{remedies[l.What]}
	}
	return []string{remedies[l.What], "then: " + remedies[l.Next]}
}

// String returns one line: the limit, its effect, and the next limit.
func (l Limit) String() string {
	if l.What == "" {
		return ""
	}
	s := fmt.Sprintf("bottleneck: %s (%.0f %% busy)", l.What, 100*l.Part)
	if l.Gain == 0 {
		return s
	}
	return s + fmt.Sprintf("; next: %s, at %.1f times the rate", l.Next, l.Gain)
}

// Mean is the average of the Busy of several copies, weighted by their rates. It is not safe for
// concurrent use.
type Mean struct {
	busy   Busy    // average so far
	weight float64 // sum of the rates in bytes per second
}

// Add adds a copy of rate bytes per second. It ignores an unknown Busy and a rate of 0.
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
