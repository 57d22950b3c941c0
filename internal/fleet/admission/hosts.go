package admission

import (
	"encoding/json"
	"log/slog"
	"time"

	"github.com/decamp/decamp/internal/sched"
)

const (
	// failuresInARow is how many VMs of a host fail for passing reasons, without a success between them,
	// before the host rests.
	failuresInARow = 3

	firstRest   = 30 * time.Second // rest of a host after failures; each further rest is twice as long
	longestRest = 10 * time.Minute // limit of a rest

	// forgetAfter is how long after its last failure the health of a host is removed.
	forgetAfter = time.Hour

	// trialTime is how long the trial VM after a rest must last before other VMs follow.
	trialTime = time.Minute
)

// HostHealth contains the hosts that failed recently. A Controller owns it. While a host rests, no VM
// begins there; then one VM tries it.
type HostHealth struct {
	now     func() time.Time   // time by the database's clock
	log     *slog.Logger       // receives a warning for each rest
	hosts   map[string]*health // hosts that failed recently, by name
	unsaved map[string]bool    // hosts whose health differs from its record
}

// A health is the state of a host that failed recently. The fleet database keeps it for the next
// scheduler. Times are by the database's clock.
type health struct {
	Failures    int       `json:"failures"`       // consecutive failures
	Rests       int       `json:"rests"`          // consecutive rests
	Until       time.Time `json:"until,omitzero"` // end of the rest; zero: the host does not rest
	TrialBegan  time.Time `json:"tried,omitzero"` // when the trial after the rest began; zero: it has not begun
	LastFailure string    `json:"why"`            // last failure
	At          time.Time `json:"at"`             // time of the last failure
}

// newHostHealth returns the health of hosts without failures.
func newHostHealth(o Options) *HostHealth {
	return &HostHealth{now: o.Now, log: o.Log, hosts: map[string]*health{}, unsaved: map[string]bool{}}
}

// recordFailure counts a failure at a host. It reports whether the host rests now: after several
// consecutive failures, or after a failed trial.
func (hh *HostHealth) recordFailure(host, why string) bool {
	h := hh.hosts[host]
	if h == nil {
		h = &health{}
		hh.hosts[host] = h
	}
	hh.unsaved[host] = true
	now := hh.now()
	h.Failures++
	h.LastFailure, h.At = why, now
	if h.Failures < failuresInARow && h.TrialBegan.IsZero() || now.Before(h.Until) {
		return false
	}
	h.Until = now.Add(min(longestRest, firstRest<<min(h.Rests, 10)))
	h.Rests++
	h.TrialBegan = time.Time{}
	hh.log.Warn("host paused: several VMs failed in a row", "host", host, "err", h.LastFailure)
	return true
}

// recordSuccess removes the failures of a host. It reports whether there were any.
func (hh *HostHealth) recordSuccess(host string) bool {
	if hh.hosts[host] == nil {
		return false
	}
	delete(hh.hosts, host)
	hh.unsaved[host] = true
	return true
}

// expireRests ends rests and trials that are over. It returns all hosts whose allowed VMs may have
// changed.
func (hh *HostHealth) expireRests() (hosts []string) {
	now := hh.now()
	for host, h := range hh.hosts {
		if now.Sub(h.At) >= forgetAfter {
			delete(hh.hosts, host)
			hh.unsaved[host] = true
		}
		if !h.TrialBegan.IsZero() && !now.Before(h.TrialBegan.Add(trialTime)) {
			h.Failures, h.Until, h.TrialBegan = 0, time.Time{}, time.Time{}
			hh.unsaved[host] = true
		}
		hosts = append(hosts, host)
	}
	return hosts
}

// recordBegin counts a VM that begins at a host. If the host's rest is over, that VM is its trial.
func (hh *HostHealth) recordBegin(host string) {
	if h := hh.hosts[host]; h != nil && !h.Until.IsZero() && h.TrialBegan.IsZero() {
		h.TrialBegan = hh.now()
		hh.unsaved[host] = true
	}
}

// allowedVMs returns how many VMs may be active at a host. holders returns the number of VMs that have
// held their slots since before the trial: they are not the trial.
func (hh *HostHealth) allowedVMs(host string, holders func(tried time.Time) int64) int64 {
	h := hh.hosts[host]
	switch {
	case h == nil || h.Until.IsZero():
		return sched.Unlimited
	case hh.now().Before(h.Until):
		return 0
	}
	return 1 + holders(h.TrialBegan)
}

// eachDeadline calls f with each time at which a rest or a trial ends.
func (hh *HostHealth) eachDeadline(f func(time.Time)) {
	for _, h := range hh.hosts {
		f(h.Until)
		f(h.TrialBegan.Add(trialTime))
	}
}

// reasonText returns why the VMs of a host wait, for users.
func (h *health) reasonText(host string) string {
	return "host " + host + " is paused, because several VMs failed there in a row; the next VM starts after " + h.Until.UTC().Format(time.TimeOnly) + " UTC: " + h.LastFailure
}

// Restore sets the health of a host from the record of an earlier scheduler.
func (hh *HostHealth) Restore(host string, record []byte) error {
	h := &health{}
	if err := json.Unmarshal(record, h); err != nil {
		return err
	}
	hh.hosts[host] = h
	return nil
}

// Save calls save for each host whose health differs from its record. A nil record means that the
// record must be deleted. Save stops at the first error; the next call saves the rest.
func (hh *HostHealth) Save(save func(host string, record []byte) error) error {
	for host := range hh.unsaved {
		var record []byte
		if h := hh.hosts[host]; h != nil {
			record, _ = json.Marshal(h) // numbers, times and a string
		}
		if err := save(host, record); err != nil {
			return err
		}
		delete(hh.unsaved, host)
	}
	return nil
}
