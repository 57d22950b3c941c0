package trace

import (
	"crypto/rand"
	"crypto/sha256"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/decamp/decamp/internal/bottleneck"
	"github.com/decamp/decamp/internal/journal"
)

// A Tracer converts events of runs to spans and exports them. The methods of a nil Tracer do nothing.
// It is safe for concurrent use.
type Tracer struct {
	exporter *exporter // sends spans; owned

	mu   sync.Mutex                 // guards runs
	runs map[journal.ID]*runContext // runs between StartRun and EndRun
}

// newTracer returns a tracer that exports to x.
func newTracer(x *exporter) *Tracer {
	x.start()
	return &Tracer{exporter: x, runs: map[journal.ID]*runContext{}}
}

// Close exports the spans that have ended, in a bounded time.
func (t *Tracer) Close() {
	if t != nil {
		t.exporter.close()
	}
}

// Plan identifies a plan of a fleet. All processes of the fleet derive the same trace from it.
type Plan struct {
	Name    string    // name of the plan
	Created time.Time // when it was submitted, by the database's clock
}

// ids returns the IDs of the trace of a plan and of its span.
func (p Plan) ids() (trace, span string) {
	sum := sha256.Sum256(fmt.Appendf(nil, "decamp plan\x00%s\x00%d", p.Name, p.Created.UnixMicro()))
	return hexText(sum[:16]), hexText(sum[16:24])
}

// Run describes a run for its span.
type Run struct {
	Plan   Plan   // plan of the VM; zero for a single migration
	VM     string // name of the VM
	Ref    string // reference of the VM at the source
	Source string // host:port of the source
	Worker string // worker that executes the run
}

// runContext are the spans of a run that have not ended.
type runContext struct {
	id    journal.ID          // ID of the run
	about Run                 // description
	trace string              // ID of the trace
	run   *openSpan           // span of the run; nil before its start
	step  *openSpan           // span of the current step; nil between steps
	round *openSpan           // span of the current round; nil between rounds
	disks map[int32]*openSpan // spans of disks in the current step, by device key
	count int                 // rounds that began since the start of the run in this process
}

// StartRun describes a run before its first event. EndRun must follow.
func (t *Tracer) StartRun(id journal.ID, about Run) {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.runs[id] = newRunContext(id, about)
}

// EndRun forgets a run. Spans that have not ended are not exported.
func (t *Tracer) EndRun(id journal.ID) {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.runs, id)
}

// newRunContext returns a run without spans. Attempts of the same run have the same trace.
func newRunContext(id journal.ID, about Run) *runContext {
	r := &runContext{id: id, about: about, disks: map[int32]*openSpan{}}
	if about.Plan.Name != "" {
		r.trace, _ = about.Plan.ids()
		return r
	}
	sum := sha256.Sum256([]byte("decamp run\x00" + string(id)))
	r.trace = hexText(sum[:16])
	return r
}

// HandleEvent converts one event. Events of runs without StartRun are ignored. It does not block.
func (t *Tracer) HandleEvent(e journal.Event) {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	r := t.runs[e.Run]
	if r == nil {
		return
	}
	for _, s := range r.handle(e) {
		t.exporter.add(s)
	}
}

// PlanEnd is the end of a plan.
type PlanEnd struct {
	Plan
	Ended   time.Time        // when it ended, by the database's clock
	Failure *journal.Failure // why it failed; nil if it did not
	VMs     map[string]int   // number of VMs by state
}

// EndPlan exports the span of a plan, which is the parent of the spans of its runs.
func (t *Tracer) EndPlan(p PlanEnd) {
	if t == nil {
		return
	}
	s := openSpan{span: span{Name: "plan", Kind: kindInternal, Start: nanos(p.Created)}}
	s.span.TraceID, s.span.SpanID = p.ids()
	s.attributes.setText("decamp.plan.name", p.Name)
	for state, n := range p.VMs {
		s.attributes.setInt("decamp.vms."+state, int64(n))
	}
	if p.Failure == nil && p.VMs["failed"] > 0 {
		s.span.Status = status{statusError, fmt.Sprintf("%d VMs failed", p.VMs["failed"])}
	}
	t.exporter.add(s.end(p.Ended, p.Failure))
}

// maxEvents is the maximum number of events of a span.
const maxEvents = 64

// openSpan is a span that has not ended.
type openSpan struct {
	span       span            // the span, without its end
	attributes attributes      // attributes so far
	began      time.Time       // start of the span
	busy       bottleneck.Mean // load of a disk's copy
	read       int64           // bytes that a disk's copy has read
}

// open returns a span of the run that starts now. Its parent is the first of parents that is open.
func (r *runContext) open(name string, at time.Time, parents ...*openSpan) *openSpan {
	var id [8]byte
	_, _ = rand.Read(id[:]) // never fails
	s := &openSpan{began: at, span: span{TraceID: r.trace, SpanID: hexText(id[:]), Name: name, Kind: kindInternal, Start: nanos(at)}}
	for _, p := range parents {
		if p != nil {
			s.span.ParentSpanID = p.span.SpanID
			break
		}
	}
	s.attributes.setText("decamp.run.id", string(r.id))
	s.attributes.setText("decamp.plan.name", r.about.Plan.Name)
	s.attributes.setText("decamp.vm.name", r.about.VM)
	return s
}

// end returns the span that ended at a time, with the status of failure.
func (s *openSpan) end(at time.Time, failure *journal.Failure) span {
	if s.read > 0 && at.After(s.began) {
		s.attributes.setInt("decamp.rate", int64(float64(s.read)/at.Sub(s.began).Seconds()))
	}
	if limit := s.busy.Busy().Limit(); limit.What != "" {
		s.attributes.setText("decamp.bottleneck", limit.What)
		s.attributes.set("decamp.bottleneck.share", value{Double: &limit.Part})
	}
	if failure != nil {
		s.attributes.setText("error.type", failure.Kind)
		s.attributes.setText("decamp.remedy", failure.Hint)
		s.span.Status = status{statusError, failure.Text}
	}
	s.span.End, s.span.Attributes = nanos(at), s.attributes.sorted()
	return s.span
}

// addEvent adds an event to the span. After maxEvents they are only counted.
func (s *openSpan) addEvent(name string, at time.Time, a attributes) {
	if len(s.span.Events) >= maxEvents {
		s.span.DroppedEvents++
		return
	}
	s.span.Events = append(s.span.Events, spanEvent{nanos(at), name, a.sorted()})
}

// Steps of a round, as events name them. A round begins with its snapshot; the last one has none.
const (
	snapshotStep  = "snapshot"
	lastRoundStep = "last round"
)

// isRoundStep reports whether a step is a part of a round.
func isRoundStep(step string) bool {
	switch step {
	case snapshotStep, "round", "verify round", "inspect", lastRoundStep:
		return true
	}
	return false
}

// handle applies an event, and returns the spans that it ends.
func (r *runContext) handle(e journal.Event) (ended []span) {
	switch e.Kind {
	case journal.RunStarted:
		ended = r.endRun(e, nil)
		r.startRun(e)
	case journal.RunDone:
		if r.run != nil {
			r.run.span.Status.Code = statusOK
		}
		return r.endRun(e, nil)
	case journal.RunFailed, journal.RunStopped, journal.RunDiscarded:
		return r.endRun(e, e.Failure)
	case journal.StepStarted:
		return r.startStep(e)
	case journal.StepDone:
		return r.endStep(e.Time, nil)
	case journal.DiskStarted:
		r.disk(e)
	case journal.DiskDone:
		return r.endDisk(e)
	case journal.Progressed:
		r.noteProgress(e)
	case journal.RoundDone:
		r.noteRound(e)
	case journal.Summarized:
		r.noteSummary(e)
	default:
		r.noteOther(e)
	}
	return ended
}

// startRun opens the span of the run.
func (r *runContext) startRun(e journal.Event) {
	r.count = 0
	r.run = r.open("run", e.Time)
	if r.about.Plan.Name != "" {
		_, r.run.span.ParentSpanID = r.about.Plan.ids()
	}
	r.run.attributes.setText("decamp.vm.ref", r.about.Ref)
	r.run.attributes.setText("decamp.source", r.about.Source)
	r.run.attributes.setText("decamp.worker", r.about.Worker)
}

// endRun ends the span of the run and those below it.
func (r *runContext) endRun(e journal.Event, failure *journal.Failure) []span {
	ended := r.endStep(e.Time, failure)
	if r.round != nil {
		ended = append(ended, r.round.end(e.Time, failure))
	}
	if r.run != nil {
		ended = append(ended, r.run.end(e.Time, failure))
	}
	r.round, r.run = nil, nil
	return ended
}

// startStep opens the span of a step, and that of a round if one begins.
func (r *runContext) startStep(e journal.Event) []span {
	ended := r.endStep(e.Time, nil)
	begins := e.Step == snapshotStep || e.Step == lastRoundStep
	if r.round != nil && (begins || !isRoundStep(e.Step)) {
		ended = append(ended, r.round.end(e.Time, nil))
		r.round = nil
	}
	if begins {
		r.count++
		r.round = r.open("round", e.Time, r.run)
		r.round.attributes.setInt("decamp.round", int64(r.count))
		r.round.attributes.setBool("decamp.round.last", e.Step == lastRoundStep)
	}
	r.step = r.open(strings.TrimSpace("step "+e.Step), e.Time, r.round, r.run)
	r.step.attributes.setText("decamp.step", e.Step)
	return ended
}

// endStep ends the span of the current step and its disks.
func (r *runContext) endStep(at time.Time, failure *journal.Failure) (ended []span) {
	for key, d := range r.disks {
		ended = append(ended, d.end(at, failure))
		delete(r.disks, key)
	}
	if r.step != nil {
		ended = append(ended, r.step.end(at, failure))
		r.step = nil
	}
	return ended
}

// disk returns the span of the event's disk in the current step. It opens one if there is none.
func (r *runContext) disk(e journal.Event) *openSpan {
	d := r.disks[e.Disk]
	if d == nil {
		d = r.open("disk", e.Time, r.step, r.run)
		d.attributes.setInt("decamp.disk.key", int64(e.Disk))
		d.attributes.setText("decamp.step", e.Step)
		r.disks[e.Disk] = d
	}
	return d
}

// endDisk ends the span of a disk.
func (r *runContext) endDisk(e journal.Event) []span {
	d := r.disks[e.Disk]
	if d == nil {
		return nil
	}
	delete(r.disks, e.Disk)
	d.attributes.setText("decamp.disk.root", e.Message)
	return []span{d.end(e.Time, nil)}
}

// noteProgress updates the span of a disk.
func (r *runContext) noteProgress(e journal.Event) {
	if e.Bytes == nil || r.step == nil {
		return
	}
	d, b := r.disk(e), e.Bytes
	d.read = b.Read
	d.busy.Add(b.Busy, b.Rate)
	d.attributes.setInt("decamp.disk.bytes", b.Total)
	d.attributes.setInt("decamp.bytes.done", b.Done+b.Skipped)
	d.attributes.setInt("decamp.bytes.read", b.Read)
	d.attributes.setInt("decamp.bytes.zero", b.Zero)
}

// noteRound adds the estimate of a cutover to the span of the round.
func (r *runContext) noteRound(e journal.Event) {
	if o := e.OutageEstimate; o != nil && r.round != nil {
		r.round.attributes.setInt("decamp.round.changed_bytes", o.Delta)
		r.round.attributes.setInt("decamp.round.dirty_rate", o.Dirty)
		r.round.attributes.setInt("decamp.rate", o.Rate)
		r.round.attributes.setSeconds("decamp.outage.estimate", o.Outage)
	}
}

// noteSummary adds the outage to the span of the run.
func (r *runContext) noteSummary(e journal.Event) {
	if e.Outage != nil && r.run != nil {
		r.run.attributes.setSeconds("decamp.outage", e.Outage.Took)
	}
}

// noteOther adds other events to the span of the current step; without one, to the span of the run.
func (r *runContext) noteOther(e journal.Event) {
	s := r.step
	if s == nil {
		s = r.run
	}
	if s == nil {
		return
	}
	var a attributes
	text := e.Message
	switch e.Kind {
	case journal.OutageEstimated:
		return // every ten seconds
	case journal.Waiting:
		if e.Message == "" {
			return
		}
	case journal.Warned:
		if e.Warning != nil {
			a.setText("decamp.warning", e.Warning.Code)
			text = e.Warning.Text
		}
	}
	if e.Failure != nil {
		a.setText("error.type", e.Failure.Kind)
		text = e.Failure.Text
	}
	a.setText("message", text)
	if e.Disk != 0 {
		a.setInt("decamp.disk.key", int64(e.Disk))
	}
	s.addEvent(string(e.Kind), e.Time, a)
}
