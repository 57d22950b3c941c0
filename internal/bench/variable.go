package bench

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
)

// A Variable is what two setups may differ in.
type Variable string

// The variables whose effect is measured, in the order in which the published guide recommends changes.
// Streams, VMs and copies have no better direction: they are curves.
const (
	ByExport      Variable = "nfs"
	BySource      Variable = "source"
	ByNIC         Variable = "nic"
	ByDestination Variable = "dest"
	ByMTU         Variable = "mtu"
	ByTransport   Variable = "transport"
)

// Variables are all of them.
var Variables = []Variable{ByExport, BySource, ByNIC, ByDestination, ByMTU, ByTransport}

// Of is what a setup has there.
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

// without is the setup with the variable made the same for all, so that setups which differ in
// nothing else become equal. Only a host's pushing has two kinds of export that compare.
func (v Variable) without(s Setup) Setup {
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

// transports are in the order in which one would be given up for the next.
var transports = []string{"https", "nfc", "nfs", "landing"}

// media are what disks are made of, the slowest first; others come after them by their names.
var media = []string{"hdd", "ssd", "nvme", "tmpfs"}

// less orders values from the expected slowest to the fastest.
func (v Variable) less(a, b string) int {
	switch v {
	case ByExport:
		return -cmp.Compare(a, b) // sync, as it comes, async: the other way round than they are spelled
	case ByNIC, ByMTU:
		return cmp.Compare(count(strings.TrimSuffix(a, "g")), count(strings.TrimSuffix(b, "g")))
	case ByTransport:
		return cmp.Compare(slices.Index(transports, a), slices.Index(transports, b))
	case BySource, ByDestination:
		if i, j := slices.Index(media, a), slices.Index(media, b); i >= 0 && j >= 0 {
			return cmp.Compare(i, j)
		}
	}
	return cmp.Compare(a, b)
}

// A Pair is two rows that differ in one variable alone: what that did.
type Pair struct {
	Before Row `json:"before"`
	After  Row `json:"after"`
}

// Factor is how many times faster it became.
func (p Pair) Factor() float64 { return p.After.Rate() / p.Before.Rate() }

// An Effect is what changing one variable from one value to another did, by all pairs that show it.
type Effect struct {
	Variable Variable `json:"variable"`
	From     string   `json:"from"`
	To       string   `json:"to"`
	Pairs    []Pair   `json:"pairs"` // the largest factor first
}

// Least, Median and Most are the factors of its pairs.
func (e Effect) Least() float64 { return e.Pairs[len(e.Pairs)-1].Factor() }
func (e Effect) Most() float64  { return e.Pairs[0].Factor() }

// Median returns the middle value, or the mean of the two middle ones.
func (e Effect) Median() float64 {
	n := len(e.Pairs)
	return (e.Pairs[(n-1)/2].Factor() + e.Pairs[n/2].Factor()) / 2
}

// Effects isolates what each variable does: the pairs of rows that differ in nothing else. Rows
// of the ends alone are compared among themselves, which their setups see to.
func Effects(rows []Row) []Effect {
	var all []Effect
	for _, v := range Variables {
		all = append(all, v.effects(rows)...)
	}
	return all
}

func (v Variable) effects(rows []Row) (found []Effect) {
	for i, a := range rows {
		for _, b := range rows[i+1:] {
			x, y := v.Of(a.Setup), v.Of(b.Setup)
			if x == y || v.without(a.Setup) != v.without(b.Setup) || stands(x) || stands(y) {
				continue
			}
			p := Pair{a, b}
			if v.less(x, y) > 0 {
				p, x, y = Pair{b, a}, y, x
			}
			found = add(found, Effect{Variable: v, From: x, To: y}, p)
		}
	}
	for _, e := range found {
		slices.SortStableFunc(e.Pairs, func(a, b Pair) int { return cmp.Compare(b.Factor(), a.Factor()) })
	}
	slices.SortStableFunc(found, func(a, b Effect) int { return cmp.Or(v.less(a.From, b.From), v.less(a.To, b.To)) })
	return found
}

// stands reports whether a value is an end's stand-in: to leave the end out is no change of it.
func stands(value string) bool { return value == Pattern || value == Null }

func add(found []Effect, e Effect, p Pair) []Effect {
	i := slices.IndexFunc(found, func(f Effect) bool { return f.From == e.From && f.To == e.To })
	if i < 0 {
		return append(found, Effect{e.Variable, e.From, e.To, []Pair{p}})
	}
	found[i].Pairs = append(found[i].Pairs, p)
	return found
}
