package fleet

import (
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/decamp/decamp/internal/roster"
)

// load is a Load that is still under way.
type load struct {
	Load
	now   int // transfers
	since time.Time
}

// loadsOf names what has to do with the transfer of a VM.
func loadsOf(v roster.VM) []string { return []string{"host " + v.Host, "worker " + v.Worker} }

func (p *play) load(name string) *load {
	l := p.loads[name]
	if l == nil {
		l = &load{Load: Load{Name: name}}
		p.loads[name] = l
	}
	return l
}

func (l *load) begin(v roster.VM, now time.Time) {
	l.VMs++
	l.Bytes += v.Bytes
	if l.now++; l.now == 1 {
		l.since = now
	}
	l.Most = max(l.Most, l.now)
}

func (l *load) end(now time.Time) {
	if l.now--; l.now == 0 {
		l.Busy += now.Sub(l.since)
	}
}

// A bound is what of the rates holds for the transfer of a VM.
type bound struct {
	shared []string // names of limits
	most   float64  // bytes a second by itself; +Inf: no limit
}

func (b bound) none() bool { return len(b.shared) == 0 && math.IsInf(b.most, 1) }

func (p *play) boundOf(v roster.VM) bound {
	b := bound{most: math.Inf(1)}
	for _, name := range []string{"host:" + v.Host, "datastore:" + v.Datastore, "source:" + v.Source, "worker:" + v.Worker, "link:all"} {
		if name += "/rate"; said(p.Rates, name) > 0 {
			b.shared = append(b.shared, name)
		}
	}
	if units := said(p.Rates, "vm:"+v.Key.String()+"/rate"); units > 0 {
		b.most = float64(units)
	}
	if units := said(p.Rates, "disk:*/rate"); units > 0 {
		b.most = min(b.most, float64(units)*float64(max(v.Disks, 1)))
	}
	return b
}

// said is the value of a name, or of all of its kind; 0 is nothing.
func said[V int64 | float64](values map[string]V, name string) V {
	if v, ok := values[name]; ok {
		return v
	}
	kind, _, _ := strings.Cut(name, ":")
	return values[kind+":*/rate"]
}

// streamOf is the stream of all transfers that are bounded like this one.
func (p *play) streamOf(b bound) *stream {
	key := strings.Join(b.shared, "\n") + "\n" + strconv.FormatFloat(b.most, 'g', -1, 64)
	s := p.streams[key]
	if s != nil {
		return s
	}
	s = &stream{at: p.now, place: -1}
	for _, name := range b.shared {
		l := p.limits[name]
		if l == nil {
			l = &limit{units: float64(said(p.Rates, name)), crowd: said(p.Crowds, name)}
			p.limits[name] = l
		}
		s.join(l)
	}
	s.join(&limit{units: b.most, each: true})
	p.streams[key] = s
	return s
}

// clock is the stream of what takes its time and no bytes: its units are nanoseconds.
func (p *play) clock() *stream { return p.streamOf(bound{most: float64(time.Second)}) }
