package simulate

import (
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/decamp/decamp/internal/fleetdb"
)

// A load is a Load that still changes.
type load struct {
	Load
	now   int       // active transfers
	since time.Time // when the first of them began
}

// loadsOf returns the names of the loads that the transfer of a VM adds to.
func loadsOf(v fleetdb.VM) []string { return []string{"host " + v.Host, "worker " + v.Worker} }

// loadNamed returns the load of that name. It adds an empty one if none exists.
func (s *simulation) loadNamed(name string) *load {
	l := s.loads[name]
	if l == nil {
		l = &load{Load: Load{Name: name}}
		s.loads[name] = l
	}
	return l
}

// addTransfer counts the start of a VM's transfer.
func (l *load) addTransfer(v fleetdb.VM, now time.Time) {
	l.VMs++
	l.Bytes += v.Bytes
	if l.now++; l.now == 1 {
		l.since = now
	}
	l.Peak = max(l.Peak, l.now)
}

// removeTransfer counts the end of a transfer.
func (l *load) removeTransfer(now time.Time) {
	if l.now--; l.now == 0 {
		l.Busy += now.Sub(l.since)
	}
}

// A bound contains all limits of the rate of a VM's transfer.
type bound struct {
	shared []string // names of the rates that it shares with other transfers
	most   float64  // bytes per second of the transfer alone; +Inf sets no limit
}

// isEmpty reports whether no rate limits the transfer.
func (b bound) isEmpty() bool { return len(b.shared) == 0 && math.IsInf(b.most, 1) }

// boundOf returns the bound of a VM's transfer, from Config.Rates.
func (s *simulation) boundOf(v fleetdb.VM) bound {
	b := bound{most: math.Inf(1)}
	for _, name := range []string{"host:" + v.Host, "datastore:" + v.Datastore, "source:" + v.Source, "worker:" + v.Worker, "link:all"} {
		if name += "/rate"; valueOf(s.Rates, name) > 0 {
			b.shared = append(b.shared, name)
		}
	}
	if units := valueOf(s.Rates, "vm:"+v.Key.String()+"/rate"); units > 0 {
		b.most = float64(units)
	}
	if units := valueOf(s.Rates, "disk:*/rate"); units > 0 {
		b.most = min(b.most, float64(units)*float64(max(v.Disks, 1)))
	}
	return b
}

// valueOf returns the value of a name, or of the wildcard of its kind; 0 if it has neither.
func valueOf[V int64 | float64](values map[string]V, name string) V {
	if v, ok := values[name]; ok {
		return v
	}
	kind, _, _ := strings.Cut(name, ":")
	return values[kind+":*/rate"]
}

// streamOf returns the stream of all transfers with the same bound.
func (s *simulation) streamOf(b bound) *stream {
	key := strings.Join(b.shared, "\n") + "\n" + strconv.FormatFloat(b.most, 'g', -1, 64)
	if known := s.streams[key]; known != nil {
		return known
	}
	added := &stream{at: s.now, place: -1}
	for _, name := range b.shared {
		l := s.limits[name]
		if l == nil {
			l = &limit{units: float64(valueOf(s.Rates, name)), crowd: valueOf(s.Crowds, name)}
			s.limits[name] = l
		}
		added.addLimit(l)
	}
	added.addLimit(&limit{units: b.most, each: true})
	s.streams[key] = added
	return added
}

// timeStream returns the stream for work that takes a time and transfers no bytes: its units are
// nanoseconds.
func (s *simulation) timeStream() *stream { return s.streamOf(bound{most: float64(time.Second)}) }
