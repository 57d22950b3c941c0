package server

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/decamp/decamp/internal/fleetdb"
)

// fleetSummary has the resources in use, and the fleet's limits: for the page, and the event "fleet".
type fleetSummary struct {
	At         time.Time  `json:"at,omitzero"` // time of the scheduler's board
	Bottleneck string     `json:"bottleneck"`  // description for users; empty if nothing is transferred and nothing waits
	Moving     int        `json:"moving"`      // transfers
	Rate       int64      `json:"rate"`        // bytes a second, of all of them
	Waiting    int        `json:"waiting"`     // VMs in line
	Hosts      []Resource `json:"hosts"`
	Others     []Resource `json:"others"` // other resources in use, those with most waiting VMs first
}

// maxOthers is the number of displayed resources that do not belong to hosts.
const maxOthers = 20

func newSummary(b *fleetState) fleetSummary {
	now := fleetSummary{At: b.board.At, Waiting: len(b.board.Waiting), Hosts: []Resource{}, Others: []Resource{}}
	for _, p := range b.progress {
		if p.Rate > 0 {
			now.Moving++
			now.Rate += p.Rate
		}
	}
	for _, r := range b.board.Resources {
		if strings.HasPrefix(r.Name, "host:") {
			now.Hosts = append(now.Hosts, r)
		} else if r.Used+int64(r.Waiting) > 0 {
			now.Others = append(now.Others, r)
		}
	}
	slices.SortStableFunc(now.Others, func(a, b Resource) int { return cmp.Compare(b.Waiting, a.Waiting) })
	now.Others = now.Others[:min(len(now.Others), maxOthers)]
	now.Bottleneck = describeLimits(b)
	return now
}

// maxBreakers is the number of displayed sources and hosts at which no VM starts.
const maxBreakers = 3

// describeLimits describes the fleet's limits: held VMs, the limit of most bytes, and the reason of most waits.
func describeLimits(b *fleetState) string {
	var said []string
	for _, held := range b.board.Breakers[:min(len(b.board.Breakers), maxBreakers)] {
		said = append(said, held.Sentence)
	}
	if limit := fleetdb.BusyOf(b.progress).Limit(); limit.What != "" {
		said = append(said, limit.String())
	}
	if r, ok := mostAwaited(b.board.Resources); ok {
		said = append(said, fmt.Sprintf("%s: %d of %d in use, %d VMs wait", resourceWords(r.Name), r.Used, r.Capacity, r.Waiting))
	}
	if len(said) == 0 && b.board.common != "" {
		said = append(said, b.board.common)
	}
	return strings.Join(said, "; ")
}

// mostAwaited returns the resource that most VMs wait for, if it has nothing left.
func mostAwaited(all []Resource) (most Resource, ok bool) {
	for _, r := range all {
		if r.Waiting > most.Waiting && r.Used >= r.Capacity {
			most, ok = r, true
		}
	}
	return most, ok
}
