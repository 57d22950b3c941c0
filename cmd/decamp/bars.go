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

// bars draws the pipeline with the step it is in, for each run, and a bar for each disk
// that is under way; what else happens scrolls above.
type bars struct {
	screen *screen
	names  runNames
	pool   *mpb.Progress
	byDisk map[diskOf]*bar
	stages map[journal.ID]*stages
}

// bar is one disk's bar and the numbers beside it.
type bar struct {
	*mpb.Bar
	mu    sync.Mutex
	bytes journal.Bytes
}

// stages is one run's pipeline.
type stages struct {
	*mpb.Bar
	step atomic.Value // string: the step under way
	more atomic.Value // string: the limit of the step, or for a waiting warm run the estimate of a cutover
}

func newBars(s *screen, names runNames) *bars {
	b := &bars{
		screen: s, names: names, pool: mpb.New(mpb.WithOutput(s.file)),
		byDisk: map[diskOf]*bar{}, stages: map[journal.ID]*stages{},
	}
	s.redirect(b.pool)
	return b
}

func (b *bars) handleEvent(e journal.Event) {
	switch e.Kind {
	case journal.StepBegan:
		b.showStep(e)
		return
	case journal.Projected:
		b.showOutlook(e)
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

// showStep shows that a step has begun.
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

// showOutlook shows what a cutover now would mean.
func (b *bars) showOutlook(e journal.Event) {
	if s := b.stages[e.Run]; s != nil && e.Outlook != nil {
		s.more.Store("; " + outlookWords(*e.Outlook))
	}
}

// showLimit shows what limits the run.
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

// pipelineText returns "copy -> [detect] -> convert -> verify -> commit". Other steps precede these.
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

func (b *bar) update(s journal.Bytes) {
	b.mu.Lock()
	b.bytes = s
	b.mu.Unlock()
	b.SetTotal(s.Total, false)
	b.SetCurrent(s.Done + s.Skipped)
}

func (b *bar) barText(decor.Statistics) string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return progressText(b.bytes)
}

// removeBars takes bars away: their disks are done, or the step is over.
func (b *bars) removeBars(which func(diskOf) bool) {
	for d, bar := range b.byDisk {
		if which(d) {
			bar.Abort(true)
			delete(b.byDisk, d)
		}
	}
}

func (b *bars) close() {
	b.removeBars(func(diskOf) bool { return true })
	for _, s := range b.stages {
		s.Abort(true)
	}
	b.pool.Wait()
	b.screen.redirect(nil)
}
