package main

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/decor"

	"github.com/decamp/decamp/internal/bottleneck"
	"github.com/decamp/decamp/internal/journal"
	"github.com/decamp/decamp/internal/migrate"
)

// bars shows a line with the pipeline of each run, and a progress bar for each disk of the current
// step. Other messages scroll above them.
type bars struct {
	screen *screen                // standard error; messages go above the bars
	names  runNames               // prefixes of runs
	pool   *mpb.Progress          // draws the bars
	byDisk map[diskOf]*bar        // bars of the current disks
	stages map[journal.ID]*stages // pipelines by run
}

// bar is one disk's bar and the numbers beside it.
type bar struct {
	*mpb.Bar
	mu    sync.Mutex    // guards bytes, which the drawing goroutine reads
	bytes journal.Bytes // last progress of the disk
}

// stages is one run's pipeline.
type stages struct {
	*textLine
	priority int       // place among the lines
	limit    *textLine // the limit of the step, or for a waiting warm run the estimate of a cutover; nil if unknown
}

// textLine is a line of text among the bars.
type textLine struct {
	*mpb.Bar
	text atomic.Value // string: text of the line
}

// newTextLine adds a line at a priority; a higher one is further below.
func newTextLine(pool *mpb.Progress, priority int) *textLine {
	l := &textLine{}
	l.text.Store("")
	l.Bar = pool.New(0, mpb.NopStyle(), mpb.BarPriority(priority), mpb.PrependDecorators(decor.Any(func(decor.Statistics) string { return l.text.Load().(string) })))
	return l
}

// newBars returns bars on the screen, whose messages appear above them until close.
func newBars(s *screen, names runNames) *bars {
	b := &bars{
		screen: s, names: names, pool: mpb.New(mpb.WithOutput(s.file)),
		byDisk: map[diskOf]*bar{}, stages: map[journal.ID]*stages{},
	}
	s.redirect(b.pool)
	return b
}

// handleEvent implements progress.
func (b *bars) handleEvent(e journal.Event) {
	switch e.Kind {
	case journal.StepStarted:
		b.showStep(e)
		return
	case journal.OutageEstimated:
		b.showEstimate(e)
		return
	case journal.Progressed:
		if e.Bytes != nil {
			b.barFor(e).update(*e.Bytes)
			b.showLimit(e)
		}
		return
	case journal.DiskDone:
		b.removeBars(func(d diskOf) bool { return d == diskOf{e.Run, e.Step, e.Disk} })
	case journal.StepDone, journal.StepRetried, journal.RunFailed, journal.RunStopped:
		b.removeBars(func(d diskOf) bool { return d.run == e.Run })
	}
	if line := eventText(e); line != "" {
		fmt.Fprintln(b.screen, b.names.prefix(e)+line)
	}
}

// showStep marks a step as the current one in the pipeline of its run.
func (b *bars) showStep(e journal.Event) {
	s := b.stages[e.Run]
	if s == nil {
		priority := 2*len(b.stages) - maxPipelines // the lines of all runs precede the bars
		s = &stages{textLine: newTextLine(b.pool, priority), priority: priority}
		b.stages[e.Run] = s
	}
	s.text.Store(b.names.prefix(e) + pipelineText(e.Step))
	s.removeLimit()
}

// showBelow shows a text below the pipeline of a run.
func (b *bars) showBelow(e journal.Event, text string) {
	s := b.stages[e.Run]
	if s == nil {
		return
	}
	if s.limit == nil {
		s.limit = newTextLine(b.pool, s.priority+1)
	}
	s.limit.text.Store(b.names.prefix(e) + text)
}

// removeLimit removes the line below the pipeline.
func (s *stages) removeLimit() {
	if s.limit != nil {
		s.limit.Abort(true)
		s.limit = nil
	}
}

// maxPipelines is more than the lines of all runs.
const maxPipelines = 1000

// showEstimate shows the estimated outage of a cutover now.
func (b *bars) showEstimate(e journal.Event) {
	if e.OutageEstimate != nil {
		b.showBelow(e, estimateText(*e.OutageEstimate))
	}
}

// showLimit shows the component that limits the run of e, from the load of all its disks.
func (b *bars) showLimit(e journal.Event) {
	var busy bottleneck.Mean
	for d, bar := range b.byDisk {
		if d.run == e.Run {
			busy.Add(bar.bytes.Busy, bar.bytes.Rate) // only set changes them, and events come one at a time
		}
	}
	if limit := busy.Busy().Limit(); limit.What != "" {
		b.showBelow(e, limit.String())
	}
}

// pipelineText returns "copy -> [detect] -> convert -> verify -> commit". Steps that are not in this
// list precede it.
func pipelineText(now string) string {
	var words []string
	for _, s := range migrate.Steps() {
		words = append(words, s.Name())
	}
	if i := slices.Index(words, now); i >= 0 {
		words[i] = "[" + now + "]"
	} else {
		words = append([]string{"[" + now + "]"}, words...)
	}
	return strings.Join(words, " -> ")
}

// barFor returns the bar of the disk in e, and creates it if necessary.
func (b *bars) barFor(e journal.Event) *bar {
	d := diskOf{e.Run, e.Step, e.Disk}
	if have := b.byDisk[d]; have != nil {
		return have
	}
	label := b.names.prefix(e) + stepLabel(e, "")
	n := newBar(b.pool, func() string { return label }, progressText)
	b.byDisk[d] = n
	return n
}

// newBar adds a bar with a label before it and the numbers of text behind it.
func newBar(pool *mpb.Progress, label func() string, text func(journal.Bytes) string) *bar {
	n := &bar{}
	n.Bar = pool.New(0, mpb.BarStyle().Lbound("[").Filler("=").Tip(">").Padding(" ").Rbound("]"),
		mpb.PrependDecorators(decor.Any(func(decor.Statistics) string { return label() }, decor.WCSyncSpaceR)),
		mpb.AppendDecorators(decor.Any(func(decor.Statistics) string {
			n.mu.Lock()
			defer n.mu.Unlock()
			return text(n.bytes)
		})))
	return n
}

// update sets the progress of the bar.
func (b *bar) update(s journal.Bytes) {
	b.mu.Lock()
	b.bytes = s
	b.mu.Unlock()
	b.SetTotal(s.Total, false)
	b.SetCurrent(s.Done + s.Skipped)
}

// removeBars removes the bars for which which is true: their disks are done, or their step has ended.
func (b *bars) removeBars(which func(diskOf) bool) {
	for d, bar := range b.byDisk {
		if which(d) {
			bar.Abort(true)
			delete(b.byDisk, d)
		}
	}
}

// close removes all bars and waits until they are no longer drawn.
func (b *bars) close() {
	b.removeBars(func(diskOf) bool { return true })
	for _, s := range b.stages {
		s.removeLimit()
		s.Abort(true)
	}
	b.pool.Wait()
	b.screen.redirect(nil)
}
