package progress

import (
	"fmt"
	"slices"
	"strings"

	"github.com/decamp/decamp/internal/bars"
	"github.com/decamp/decamp/internal/bottleneck"
	"github.com/decamp/decamp/internal/journal"
	"github.com/decamp/decamp/internal/migrate"
	"github.com/decamp/decamp/internal/terminal"
)

// runBars shows a line with the pipeline of each run, and a progress bar for each disk of the current
// step. Other messages scroll above them.
type runBars struct {
	screen *terminal.Screen       // standard error; messages go above the bars
	names  Names                  // prefixes of runs
	pool   *bars.Pool             // draws the bars
	byDisk map[diskOf]*diskBar    // bars of the current disks
	stages map[journal.ID]*stages // pipelines by run
}

// diskBar is the bar of a disk.
type diskBar struct {
	*bars.Bar
	bytes journal.Bytes // last progress of the disk
}

// stages is one run's pipeline.
type stages struct {
	*bars.Line
	priority int        // place among the lines
	limit    *bars.Line // the limit of the step, or for a waiting warm run the estimate of a cutover; nil if unknown
}

// newBars returns bars on the screen, whose messages appear above them until close.
func newBars(s *terminal.Screen, names Names) *runBars {
	b := &runBars{
		screen: s, names: names, pool: bars.NewPool(s.File),
		byDisk: map[diskOf]*diskBar{}, stages: map[journal.ID]*stages{},
	}
	s.Redirect(b.pool)
	return b
}

// HandleEvent implements progress.
func (b *runBars) HandleEvent(e journal.Event) {
	switch e.Kind {
	case journal.StepStarted:
		b.showStep(e)
		return
	case journal.OutageEstimated:
		b.showEstimate(e)
		return
	case journal.Progressed:
		if e.Bytes != nil {
			b.showDisk(e)
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
func (b *runBars) showStep(e journal.Event) {
	s := b.stages[e.Run]
	if s == nil {
		priority := 2*len(b.stages) - maxPipelines // the lines of all runs precede the bars
		s = &stages{Line: b.pool.NewLine(priority), priority: priority}
		b.stages[e.Run] = s
	}
	s.SetText(b.names.prefix(e) + pipelineText(e.Step))
	s.removeLimit()
}

// showBelow shows a text below the pipeline of a run.
func (b *runBars) showBelow(e journal.Event, text string) {
	s := b.stages[e.Run]
	if s == nil {
		return
	}
	if s.limit == nil {
		s.limit = b.pool.NewLine(s.priority + 1)
	}
	s.limit.SetText(b.names.prefix(e) + text)
}

// removeLimit removes the line below the pipeline.
func (s *stages) removeLimit() {
	if s.limit != nil {
		s.limit.Remove()
		s.limit = nil
	}
}

// maxPipelines is more than the lines of all runs.
const maxPipelines = 1000

// showEstimate shows the estimated outage of a cutover now.
func (b *runBars) showEstimate(e journal.Event) {
	if e.OutageEstimate != nil {
		b.showBelow(e, estimateText(*e.OutageEstimate))
	}
}

// showLimit shows the component that limits the run of e, from the load of all its disks.
func (b *runBars) showLimit(e journal.Event) {
	var busy bottleneck.Mean
	for d, bar := range b.byDisk {
		if d.run == e.Run {
			busy.Add(bar.bytes.Busy, bar.bytes.Rate)
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

// showDisk shows the progress of the disk in e.
func (b *runBars) showDisk(e journal.Event) {
	d := diskOf{e.Run, e.Step, e.Disk}
	p := bars.Progress{
		Label: b.names.prefix(e) + stepLabel(e, ""), Text: Text(*e.Bytes),
		Done: e.Bytes.Done + e.Bytes.Skipped, Total: e.Bytes.Total,
	}
	if b.byDisk[d] == nil {
		b.byDisk[d] = &diskBar{Bar: b.pool.NewBar(p)}
	}
	b.byDisk[d].bytes = *e.Bytes
	b.byDisk[d].SetProgress(p)
}

// removeBars removes the bars for which which is true: their disks are done, or their step has ended.
func (b *runBars) removeBars(which func(diskOf) bool) {
	for d, bar := range b.byDisk {
		if which(d) {
			bar.Remove()
			delete(b.byDisk, d)
		}
	}
}

// close removes all bars and waits until they are no longer drawn.
func (b *runBars) Close() {
	b.removeBars(func(diskOf) bool { return true })
	for _, s := range b.stages {
		s.removeLimit()
		s.Remove()
	}
	b.pool.Wait()
	b.screen.Redirect(nil)
}
