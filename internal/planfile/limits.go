package planfile

import (
	"slices"

	"github.com/decamp/decamp/internal/sched/budget"
)

// Week returns the bandwidth of the file as a budget. In the file the first entry in force applies; in
// a budget the last rule does.
func (l *Limits) Week() budget.Week {
	w := budget.Week{Rate: budget.Unlimited}
	for _, b := range slices.Backward(l.Bandwidth) {
		if b.isEmpty() {
			w.Rate, w.Rules = int64(b.Rate), nil
			continue
		}
		w.Rules = append(w.Rules, budget.Rule{
			Days: b.budgetDays(), From: int(b.From), To: int(b.To), Rate: int64(b.Rate), Zone: b.location(),
		})
	}
	return w
}

// budgetDays returns the days on which the window opens; all days if none is set.
func (w *Window) budgetDays() (set budget.Days) {
	for i, day := range days {
		if len(w.Days) == 0 || slices.Contains(w.Days, Day(day)) {
			set |= 1 << i
		}
	}
	return set
}

// The resources of sched that a file limits, of one host.
const (
	hostVMs   = "/vms"   // number of VMs at a time
	hostDisks = "/disks" // number of disks at a time
)

// Capacities returns the limits by the names of the scheduler's resources, such as "host:esx1/vms".
// Missing limits are left out.
func (h HostLimits) Capacities(host string) map[string]int64 {
	units := map[string]int64{}
	if h.VMs > 0 {
		units["host:"+host+hostVMs] = int64(h.VMs)
	}
	if h.Disks > 0 {
		units["host:"+host+hostDisks] = int64(h.Disks)
	}
	return units
}
