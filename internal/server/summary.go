package server

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/decamp/decamp/internal/fleetdb"
)

// fleetSummary contains the resources in use and the bottleneck of the fleet, for the page and the
// event "fleet".
type fleetSummary struct {
	At         time.Time  `json:"at,omitzero"`    // time of the state of the scheduler
	Bottleneck string     `json:"bottleneck"`     // description for users; empty if nothing is transferred and nothing waits
	Moving     int        `json:"transfers"`      // number of transfers
	Rate       int64      `json:"rate"`           // bytes per second of all transfers together
	Waiting    int        `json:"waiting"`        // VMs that wait for the scheduler
	Hosts      []Resource `json:"hosts"`          // resources of hosts
	Others     []Resource `json:"otherResources"` // other resources in use, those with most waiting VMs first
}

// maxOthers is the number of displayed resources that do not belong to hosts.
const maxOthers = 20

// newSummary returns the summary of b.
func newSummary(b *fleetState) fleetSummary {
	now := fleetSummary{At: b.scheduler.At, Waiting: len(b.scheduler.Waiting), Hosts: []Resource{}, Others: []Resource{}}
	for _, p := range b.progress {
		if p.Rate > 0 {
			now.Moving++
			now.Rate += p.Rate
		}
	}
	for _, r := range b.scheduler.Resources {
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

// describeLimits describes why the fleet is not faster: sources and hosts where no VM begins, the limit
// of most bytes, and the resource that most VMs wait for.
func describeLimits(b *fleetState) string {
	var said []string
	for _, held := range b.scheduler.Breakers[:min(len(b.scheduler.Breakers), maxBreakers)] {
		said = append(said, held.Reason)
	}
	if limit := fleetdb.BusyOf(b.progress).Limit(); limit.What != "" {
		said = append(said, limit.String())
	}
	if r, ok := mostAwaited(b.scheduler.Resources); ok {
		said = append(said, fmt.Sprintf("%s: %d of %d in use, %d VMs wait", resourceWords(r.Name), r.Used, r.Capacity, r.Waiting))
	}
	if len(said) == 0 && b.scheduler.common != "" {
		said = append(said, b.scheduler.common)
	}
	return strings.Join(said, "; ")
}

// mostAwaited returns the resource that most VMs wait for, if it has no free units.
func mostAwaited(all []Resource) (most Resource, ok bool) {
	for _, r := range all {
		if r.Waiting > most.Waiting && r.Used >= r.Capacity {
			most, ok = r, true
		}
	}
	return most, ok
}
