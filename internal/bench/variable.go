package bench

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
)

// A Variable is a part of a setup whose effect is measured.
type Variable string

// The variables whose effect is measured, in the order in which the published guide
// recommends changes. Streams, VMs and copies have no better direction: they are
// curves.
const (
	ByExport      Variable = "nfs"       // NFS export option
	BySource      Variable = "source"    // medium of the source
	ByNIC         Variable = "nic"       // speed of the link
	ByDestination Variable = "dest"      // medium of the destination
	ByMTU         Variable = "mtu"       // frame size
	ByTransport   Variable = "transport" // transport
)

// Variables lists all variables in the order of the published guide's recommendations.
var Variables = []Variable{ByExport, BySource, ByNIC, ByDestination, ByMTU, ByTransport}

// Of returns the value of the variable in a setup.
func (v Variable) Of(s Setup) string {
	switch v {
	case ByExport:
		return cmp.Or(string(s.Export), "as it comes")
	case BySource:
		return s.Source
	case ByNIC:
		return s.NIC
	case ByDestination:
		return s.Destination
	case ByMTU:
		return strconv.Itoa(s.MTU)
	default:
		return s.Transport.String()
	}
}

// withoutVariable returns s with the variable removed, so that setups that differ only
// in it are equal. An async export is also removed with the transport, because only NFS
// has one.
func (v Variable) withoutVariable(s Setup) Setup {
	switch v {
	case ByExport:
		s.Export = ""
	case BySource:
		s.Source = ""
	case ByNIC:
		s.NIC = ""
	case ByDestination:
		s.Destination = ""
	case ByMTU:
		s.MTU = 0
	default:
		s.Transport = ""
		if s.Export == Async {
			s.Export = ""
		}
	}
	return s
}

// transports lists transports from the expected slowest to the fastest.
var transports = []string{"https", "nfc", "nfs", "landing"}

// media lists media from the slowest to the fastest. Other media follow in the order of
// their names.
var media = []string{"hdd", "ssd", "nvme", "tmpfs"}

// compareValues orders values from the expected slowest to the fastest.
func (v Variable) compareValues(a, b string) int {
	switch v {
	case ByExport:
		return -cmp.Compare(a, b) // sync, as it comes, async: the other way round than they are spelled
	case ByNIC, ByMTU:
		return cmp.Compare(parseCount(strings.TrimSuffix(a, "g")), parseCount(strings.TrimSuffix(b, "g")))
	case ByTransport:
		return cmp.Compare(slices.Index(transports, a), slices.Index(transports, b))
	case BySource, ByDestination:
		if i, j := slices.Index(media, a), slices.Index(media, b); i >= 0 && j >= 0 {
			return cmp.Compare(i, j)
		}
	}
	return cmp.Compare(a, b)
}

// A Pair is two rows that differ in one variable only.
type Pair struct {
	Before Row `json:"before"` // row with the value that is expected to be slower
	After  Row `json:"after"`  // row with the other value
}

// Factor returns the ratio of the rates.
func (p Pair) Factor() float64 { return p.After.Rate() / p.Before.Rate() }

// An Effect is the change of one variable from one value to another, with all pairs of
// rows that show it.
type Effect struct {
	Variable Variable `json:"variable"` // variable that changes
	From     string   `json:"from"`     // value before the change
	To       string   `json:"to"`       // value after the change
	Pairs    []Pair   `json:"pairs"`    // pairs, the largest factor first; at least one
}

// MinFactor returns the smallest factor.
func (e Effect) MinFactor() float64 { return e.Pairs[len(e.Pairs)-1].Factor() }

// MaxFactor returns the largest factor.
func (e Effect) MaxFactor() float64 { return e.Pairs[0].Factor() }

// MedianFactor returns the middle factor, or the mean of the two middle ones.
func (e Effect) MedianFactor() float64 {
	n := len(e.Pairs)
	return (e.Pairs[(n-1)/2].Factor() + e.Pairs[n/2].Factor()) / 2
}

// Effects returns the effects of all variables. Rows without a source or a destination
// are compared only with each other, because their setups differ from all others in
// several variables.
func Effects(rows []Row) []Effect {
	var all []Effect
	for _, v := range Variables {
		all = append(all, v.findEffects(rows)...)
	}
	return all
}

// findEffects returns the effects of one variable.
func (v Variable) findEffects(rows []Row) (found []Effect) {
	for i, a := range rows {
		for _, b := range rows[i+1:] {
			x, y := v.Of(a.Setup), v.Of(b.Setup)
			// Setups that are equal without the variable differ in it only.
			if x == y || v.withoutVariable(a.Setup) != v.withoutVariable(b.Setup) || isStandIn(x) || isStandIn(y) {
				continue
			}
			p := Pair{a, b}
			if v.compareValues(x, y) > 0 {
				p, x, y = Pair{b, a}, y, x
			}
			found = addPair(found, Effect{Variable: v, From: x, To: y}, p)
		}
	}
	for _, e := range found {
		slices.SortStableFunc(e.Pairs, func(a, b Pair) int { return cmp.Compare(b.Factor(), a.Factor()) })
	}
	slices.SortStableFunc(found, func(a, b Effect) int { return cmp.Or(v.compareValues(a.From, b.From), v.compareValues(a.To, b.To)) })
	return found
}

// isStandIn reports whether a value replaces a real source or destination. Leaving out
// an end is no change of it.
func isStandIn(value string) bool { return value == Pattern || value == Null }

// addPair adds a pair to its effect in found, or adds the effect.
func addPair(found []Effect, e Effect, p Pair) []Effect {
	i := slices.IndexFunc(found, func(f Effect) bool { return f.From == e.From && f.To == e.To })
	if i < 0 {
		return append(found, Effect{e.Variable, e.From, e.To, []Pair{p}})
	}
	found[i].Pairs = append(found[i].Pairs, p)
	return found
}
