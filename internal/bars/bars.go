// Package bars draws progress bars and lines at the end of a terminal. Messages scroll above them.
package bars

import (
	"io"
	"sync/atomic"

	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/decor"
)

// Pool draws bars and lines. What is written to it appears above them, and must consist of whole lines.
type Pool struct{ drawn *mpb.Progress }

// NewPool returns a pool that draws on a terminal.
func NewPool(terminal io.Writer) *Pool { return &Pool{mpb.New(mpb.WithOutput(terminal))} }

// Write implements io.Writer.
func (p *Pool) Write(text []byte) (int, error) { return p.drawn.Write(text) }

// Wait returns when the bars and lines, which must have been removed, are no longer drawn.
func (p *Pool) Wait() { p.drawn.Wait() }

// Line is a line of text among the bars.
type Line struct {
	bar  *mpb.Bar
	text atomic.Value // string: text of the line
}

// NewLine adds a line. A higher priority is further below; bars have priorities from 0, in the order of
// their creation.
func (p *Pool) NewLine(priority int) *Line {
	l := &Line{}
	l.text.Store("")
	l.bar = p.drawn.New(0, mpb.NopStyle(), mpb.BarPriority(priority), mpb.PrependDecorators(storedText(&l.text)))
	return l
}

// storedText returns a decorator that shows the string in text.
func storedText(text *atomic.Value, width ...decor.WC) decor.Decorator {
	return decor.Any(func(decor.Statistics) string { return text.Load().(string) }, width...)
}

// SetText sets the text of the line.
func (l *Line) SetText(text string) { l.text.Store(text) }

// Remove removes the line.
func (l *Line) Remove() { l.bar.Abort(true) }

// Bar is a bar between a label and a text.
type Bar struct {
	bar         *mpb.Bar
	label, text atomic.Value // string: texts before and behind the bar
}

// Progress is the state of a bar.
type Progress struct {
	Label       string // before the bar
	Text        string // behind the bar
	Done, Total int64  // part of the whole
}

// NewBar adds a bar.
func (p *Pool) NewBar(s Progress) *Bar {
	b := &Bar{}
	b.setTexts(s)
	b.bar = p.drawn.New(0, mpb.BarStyle().Lbound("[").Filler("=").Tip(">").Padding(" ").Rbound("]"),
		mpb.PrependDecorators(storedText(&b.label, decor.WCSyncSpaceR)), mpb.AppendDecorators(storedText(&b.text)))
	b.SetProgress(s)
	return b
}

// setTexts sets the texts of the bar.
func (b *Bar) setTexts(s Progress) { b.label.Store(s.Label); b.text.Store(s.Text) }

// SetProgress sets the state of the bar.
func (b *Bar) SetProgress(s Progress) {
	b.setTexts(s)
	b.bar.SetTotal(s.Total, false)
	b.bar.SetCurrent(s.Done)
}

// Remove removes the bar.
func (b *Bar) Remove() { b.bar.Abort(true) }

// Group shows bars with lines below them, which change together. It is not safe for concurrent use.
type Group struct {
	*Pool
	bars  map[string]*Bar // bars by key
	lines []*Line         // lines below the bars
}

// belowBars is the priority of a group's first line, greater than the number of bars.
const belowBars = 1 << 20

// NewGroup returns an empty group on a terminal.
func NewGroup(terminal io.Writer) *Group {
	return &Group{Pool: NewPool(terminal), bars: map[string]*Bar{}}
}

// Update replaces the bars, by their keys, and the texts of the lines.
func (g *Group) Update(bars map[string]Progress, order, lines []string) {
	for key, bar := range g.bars {
		if _, kept := bars[key]; !kept {
			bar.Remove()
			delete(g.bars, key)
		}
	}
	for _, key := range order {
		if g.bars[key] == nil {
			g.bars[key] = g.NewBar(bars[key])
		}
		g.bars[key].SetProgress(bars[key])
	}
	for len(g.lines) > len(lines) {
		g.lines[len(g.lines)-1].Remove()
		g.lines = g.lines[:len(g.lines)-1]
	}
	for i, text := range lines {
		if i == len(g.lines) {
			g.lines = append(g.lines, g.NewLine(belowBars+i))
		}
		g.lines[i].SetText(text)
	}
}

// Close removes all bars and lines, and waits until they are no longer drawn.
func (g *Group) Close() {
	g.Update(nil, nil, nil)
	g.Wait()
}
