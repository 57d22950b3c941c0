package fleet

import (
	"cmp"
	"time"

	"github.com/decamp/decamp/internal/bottleneck"
	"github.com/decamp/decamp/internal/fleet/admission"
	"github.com/decamp/decamp/internal/fleetdb"
)

// Status is the progress of a plan.
type Status struct {
	Plan  fleetdb.Plan  `json:"plan"`          // without Text
	Total int64         `json:"total"`         // bytes of the disks of all VMs that are not canceled
	Done  int64         `json:"done"`          // bytes of disks, zeros included
	Moved int64         `json:"read"`          // bytes read from the source
	Rate  int64         `json:"rate"`          // bytes per second that running transfers read from the source
	Left  time.Duration `json:"left,omitzero"` // estimated time until all is read at this rate; 0 if unknown

	toMove int64 // bytes still to read, as far as the allocation is known

	Busy  bottleneck.Busy  `json:"busy,omitzero"`  // load of the running copies
	Limit bottleneck.Limit `json:"limit,omitzero"` // limit of the running copies

	VMs      []VMStatus          `json:"vms"`                // VMs in the order of the plan
	Breakers []admission.Breaker `json:"breakers,omitempty"` // sources and hosts where no VM begins
}

// VMStatus is the state and the progress of a VM.
type VMStatus struct {
	fleetdb.VM
	Progress *fleetdb.Progress `json:"progress,omitempty"` // last report of its worker; nil if none exists
	Reason   string            `json:"reason,omitempty"`   // reason of a wait or a failure
}

// Left returns the estimated time of the VM's transfer, or of its verification, at the last rate; 0 if it
// is unknown.
func (v VMStatus) Left() time.Duration {
	p, bytes, rate := v.Progress, int64(0), int64(0)
	switch {
	case p == nil:
		return 0
	case p.Rate > 0:
		bytes, rate = leftToMove(v.VM, *p), p.Rate
	case p.Reread > 0:
		bytes, rate = max(p.Total-p.Done, 0), p.Reread
	default:
		return 0
	}
	return time.Duration(float64(bytes) / float64(rate) * float64(time.Second)).Round(time.Second)
}

// StatusOf returns the status of a plan from its rows in the fleet database and the state of the
// scheduler. The latter is empty without a scheduler.
func StatusOf(p fleetdb.Plan, vms []fleetdb.VM, progress []fleetdb.Progress, scheduler admission.Snapshot) Status {
	p.Text = ""
	s := Status{Plan: p, Breakers: scheduler.Breakers, VMs: []VMStatus{}}
	s.fillVMs(vms, progress, waitReasons(scheduler, p.Name))
	s.Busy = fleetdb.BusyOf(progress)
	s.Limit = s.Busy.Limit()
	return s
}

// waitReasons returns why the VMs of a plan wait, by VM reference.
func waitReasons(s admission.Snapshot, plan string) map[string]string {
	why := map[string]string{}
	for _, w := range s.Waiting {
		if w.Plan == plan {
			why[w.VM] = w.Reason
		}
	}
	return why
}

// fillVMs adds the VMs with their progress. why contains the reasons of the scheduler.
func (s *Status) fillVMs(vms []fleetdb.VM, progress []fleetdb.Progress, why map[string]string) {
	far := map[string]fleetdb.Progress{}
	for _, p := range progress {
		far[p.VM] = p
	}
	for _, v := range vms {
		vs := VMStatus{VM: v, Reason: why[v.VM]}
		if p, ok := far[v.VM]; ok {
			vs.Progress = &p
		}
		if vs.Reason == "" || v.State.IsFinal() {
			vs.Reason = cmp.Or(rowReason(v), SilenceText(v, vs.Progress))
		}
		s.addVM(vs)
		s.VMs = append(s.VMs, vs)
	}
	if s.Rate > 0 {
		s.Left = time.Duration(float64(s.toMove) / float64(s.Rate) * float64(time.Second)).Round(time.Second)
	}
}

// leftToMove returns the bytes still to read from the source, as far as the allocation is known. A
// transport that has read all of Done, also its zeros, reads all of the rest.
func leftToMove(v fleetdb.VM, p fleetdb.Progress) int64 {
	left := max(min(cmp.Or(v.Bytes, p.Total), p.Total)-p.Read, 0)
	if p.Done > 0 && p.Read >= p.Done-p.Done/20 {
		return max(left, p.Total-p.Done)
	}
	return left
}

// addVM adds a VM to the sums. A VM that has not started counts with its allocated bytes.
func (s *Status) addVM(v VMStatus) {
	total, done, toMove := v.Bytes, int64(0), v.Bytes
	if p := v.Progress; p != nil && p.Total > 0 {
		total, done, toMove = p.Total, p.Done, leftToMove(v.VM, *p)
		s.Moved += p.Read
		if v.State == fleetdb.Running {
			s.Rate += p.Rate
		}
	}
	switch v.State {
	case fleetdb.Done:
		done, toMove = total, 0
	case fleetdb.Canceled:
		total, done, toMove = 0, 0, 0
	case fleetdb.Failed:
		toMove = 0
	}
	s.Total += total
	s.Done += min(done, total)
	s.toMove += toMove
}

// SilenceText describes since when a transfer has no news: its worker is disconnected or dead, or the
// source sends nothing. It is empty for a transfer in progress, and for a VM without a transfer.
func SilenceText(v fleetdb.VM, p *fleetdb.Progress) string {
	if p == nil || !p.Silent || !v.Granted || v.State != fleetdb.Running {
		return ""
	}
	return "no progress since " + p.At.UTC().Format(time.TimeOnly) + " UTC"
}

// rowReason returns why a VM waits or ended, by its row; "" if the row does not contain the reason.
func rowReason(v fleetdb.VM) string {
	switch {
	case v.WaitReason != "":
		return v.WaitReason
	case v.Failure != nil && v.State == fleetdb.Queued && !v.NotBefore.IsZero():
		return "next attempt at " + v.NotBefore.UTC().Format(time.TimeOnly) + " UTC: " + v.Failure.Text
	case v.Failure != nil && v.State != fleetdb.Done:
		return v.Failure.Text
	}
	return ""
}
