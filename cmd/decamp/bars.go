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
	*mpb.Bar
	step atomic.Value // string: the step under way
	more atomic.Value // string: the limit of the step, or for a waiting warm run the estimate of a cutover
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
			b.showLimit(e.Run)
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
	if s := b.stages[e.Run]; s != nil {
		s.step.Store(e.Step)
		s.more.Store("")
		return
	}
	s, prefix := &stages{}, b.names.prefix(e)
	s.step.Store(e.Step)
	s.more.Store("")
	s.Bar = b.pool.New(0, mpb.NopStyle(), mpb.BarPriority(-1),
		mpb.PrependDecorators(decor.Any(func(decor.Statistics) string {
			return prefix + pipelineText(s.step.Load().(string)) + s.more.Load().(string)
		})))
	b.stages[e.Run] = s
}

// showEstimate shows the estimated outage of a cutover now.
func (b *bars) showEstimate(e journal.Event) {
	if s := b.stages[e.Run]; s != nil && e.OutageEstimate != nil {
		s.more.Store("; " + estimateText(*e.OutageEstimate))
	}
}

// showLimit shows the component that limits the run, from the load of all its disks.
func (b *bars) showLimit(run journal.ID) {
	var busy bottleneck.Mean
	for d, bar := range b.byDisk {
		if d.run == run {
			busy.Add(bar.bytes.Busy, bar.bytes.Rate) // only set changes them, and events come one at a time
		}
	}
	if s, limit := b.stages[run], busy.Busy().Limit(); s != nil && limit.What != "" {
		s.more.Store("; " + limit.String())
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
	n := &bar{}
	n.Bar = b.pool.New(0, mpb.BarStyle().Lbound("[").Filler("=").Tip(">").Padding(" ").Rbound("]"),
		mpb.PrependDecorators(decor.Name(b.names.prefix(e)+stepLabel(e, ""), decor.WCSyncSpaceR)),
		mpb.AppendDecorators(decor.Any(n.barText)))
	b.byDisk[d] = n
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

// barText returns the numbers after the bar. The drawing goroutine calls it.
func (b *bar) barText(decor.Statistics) string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return progressText(b.bytes)
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
		s.Abort(true)
	}
	b.pool.Wait()
	b.screen.redirect(nil)
}
