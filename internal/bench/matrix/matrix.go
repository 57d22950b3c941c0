// Package matrix measures each source into each destination, over each link, by each
// transport, one row after the other.
//
//	Cells    the rows of a spec, in the order of their measurement
//	Run      measures the cells that a Log lacks
//	Log      rows in a file, each durable before the next one begins
//	Measure  one cell: images are written and removed, with the machine's counters
//
// The ends come first: each source without a destination, a computed disk into each
// destination. The pair cannot be faster than the slower one; if it is much slower, the
// engine is the cause.
//
// A row is the time of one copy by decamp: with a manifest, until the image is synced
// and finished. Nothing is repeated: run the matrix several times for a median.
package matrix

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/decamp/decamp/internal/bench"
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/planfile"
)

// A Cell is one row to measure.
type Cell struct {
	bench.Setup
	Link    int      // index of the link in the spec
	VMs     []string // VMs to read; empty with bench.Pattern
	Folders []string // folders to write; empty with bench.Null

	// Datastore is the name under which the host has mounted the folder, with
	// bench.OverNFS.
	Datastore string
}

// isCellOf reports whether a row is a measurement of this cell.
func (c Cell) isCellOf(r bench.Row, origin string) bool {
	return r.Setup == c.Setup && r.Origin == origin && slices.Equal(r.On.VMs, c.VMs) && slices.Equal(r.On.Folders, c.Folders)
}

// Progress describes the state of one cell.
type Progress struct {
	Cell   Cell       // cell to measure
	Number int        // position of the cell, from 1
	Total  int        // number of cells
	Row    *bench.Row // measured row; nil before the measurement
	Known  bool       // true if an earlier run measured it
	Err    error      // error of the measurement; nil before and after success
}

// A Runner measures cells one after the other.
type Runner struct {
	Cells  []Cell // cells in order; those of a link must be adjacent
	Origin string // author of the rows
	Log    *Log   // destination of the rows

	// Enter prepares a link. Run calls it before the first cell of a link that lacks a
	// row.
	Enter func(ctx context.Context, link int) error

	// Measure measures a cell of the link that was prepared last.
	Measure func(ctx context.Context, c Cell) (bench.Row, error)

	// Told is called before and after each cell. It may be nil.
	Told func(Progress)
}

// Run measures the cells that the log lacks. A failing cell is reported, and the others
// are measured; then Run fails, and another run measures the missing cells. A
// cancellation ends it at once.
func (r *Runner) Run(ctx context.Context) error {
	var failed []error
	link := -1
	for i, c := range r.Cells {
		p := Progress{Cell: c, Number: i + 1, Total: len(r.Cells)}
		if row, ok := r.Log.Has(c, r.Origin); ok {
			p.Row, p.Known = &row, true
			r.report(p)
			continue
		}
		// The cells of a link are adjacent, so each link is prepared at most once.
		if c.Link != link {
			if err := r.Enter(ctx, c.Link); err != nil {
				return errors.Join(r.missingError(failed), err)
			}
			link = c.Link
		}
		r.report(p)
		if p.Row, p.Err = r.measureCell(ctx, c); p.Err != nil {
			failed = append(failed, fmt.Errorf("%s: %w", c.Name(), p.Err))
		}
		r.report(p)
		if ctx.Err() != nil || fault.Is(p.Err, fault.Full) {
			break
		}
	}
	return r.missingError(failed)
}

// missingError returns the error of a run: nil, the only error, or the number of failed
// cells with the first error.
func (r *Runner) missingError(failed []error) error {
	if len(failed) < 2 {
		return errors.Join(failed...)
	}
	return fmt.Errorf("%d of %d rows could not be measured, the first was %w", len(failed), len(r.Cells), failed[0])
}

// measureCell measures a cell and appends its row to the log.
func (r *Runner) measureCell(ctx context.Context, c Cell) (*bench.Row, error) {
	row, err := r.Measure(ctx, c)
	if err != nil {
		return nil, err
	}
	row.Setup, row.Origin, row.On.VMs, row.On.Folders = c.Setup, r.Origin, c.VMs, c.Folders
	return &row, r.Log.Append(row)
}

// report calls Told, if set.
func (r *Runner) report(p Progress) {
	if r.Told != nil {
		r.Told(p)
	}
}

// Cells returns the cells of a spec. The outermost loop is over links, because a change
// of the link may need a command of the user.
func Cells(m *planfile.Matrix) []Cell {
	var all []Cell
	for i, l := range m.Links {
		x := expansion{Matrix: m, link: i, nic: string(l.NIC), mtu: l.MTU}
		if m.Ends {
			x.addSources()
		}
		if m.Ends && i == 0 { // no link is in the way of a disk that is computed here
			x.addDestinations()
		}
		x.addPairs()
		all = append(all, x.cells...)
	}
	return all
}

// expansion collects the cells of one link.
type expansion struct {
	*planfile.Matrix
	link  int    // index of the link
	nic   string // speed of the link
	mtu   int    // frame size in bytes
	cells []Cell // cells so far
}

// addSources adds the cells that read each source and discard the data.
func (x *expansion) addSources() {
	for _, d := range x.Disks {
		for _, t := range x.Transports {
			if t == clone {
				continue // it cannot discard its data
			}
			for _, n := range x.streamCounts(t) {
				x.addCell(d, planfile.Writable{Medium: bench.Null}, x.newSetup(t, "", n))
			}
		}
	}
}

// addDestinations adds the cells that write a computed disk to each destination.
func (x *expansion) addDestinations() {
	for _, w := range x.To {
		for _, e := range x.Exports {
			s := bench.Setup{Export: exportOf(e)}
			x.addCell(planfile.Readable{Medium: bench.Pattern}, w, s)
			for _, n := range x.Copies {
				if n > 1 && int(n) <= len(w.Folders) && s.Export == "" {
					x.addCell(planfile.Readable{Medium: bench.Pattern}, w, bench.Setup{Copies: int(n)})
				}
			}
		}
	}
}

// addPairs adds the cells of all sources and destinations. Concurrent VMs and several
// copies are not combined with each other: they are measured with the largest number of
// streams only.
func (x *expansion) addPairs() {
	for _, d := range x.Disks {
		for _, w := range x.To {
			for _, t := range x.Transports {
				if t == clone {
					x.addClones(d, w)
					continue
				}
				streams := x.streamCounts(t)
				for _, e := range x.Exports {
					for _, n := range streams {
						x.addCell(d, w, x.newSetup(t, e, n))
					}
				}
				x.addConcurrent(d, w, x.newSetup(t, "", slices.Max(streams)))
			}
		}
	}
}

// clone is the transport with which a host writes to an export of another server.
const clone planfile.Method = "nfs"

// addClones adds the clones by the host. The export option is that of the server, which
// cannot be changed here.
func (x *expansion) addClones(d planfile.Readable, w planfile.Writable) {
	for _, m := range w.NFS {
		w.Folders = []planfile.Destination{m.Folder}
		x.addCell(d, w, bench.Setup{NIC: x.nic, MTU: x.mtu, Export: bench.Export(m.Export)})
		x.cells[len(x.cells)-1].Datastore = string(m.Datastore)
	}
}

// addConcurrent adds cells with several VMs, and cells with several copies, for counts
// that the source and the destination support.
func (x *expansion) addConcurrent(d planfile.Readable, w planfile.Writable, s bench.Setup) {
	for _, n := range x.Together {
		if n > 1 && int(n) <= len(d.VMs) {
			s := s
			s.Together = int(n)
			x.addCell(d, w, s)
		}
	}
	for _, n := range x.Copies {
		if n > 1 && int(n) <= len(w.Folders) {
			s := s
			s.Copies = int(n)
			x.addCell(d, w, s)
		}
	}
}

// streamCounts returns the stream counts of a transport; 0 means its default.
func (x *expansion) streamCounts(t planfile.Method) []int {
	if t == planfile.Method(bench.OverLanding) || len(x.Streams) == 0 {
		return []int{0}
	}
	var all []int
	for _, n := range x.Streams {
		all = append(all, int(n))
	}
	return all
}

// newSetup returns a setup over this link. A landing is always async unless the spec
// requires sync.
func (x *expansion) newSetup(t planfile.Method, e planfile.Export, streams int) bench.Setup {
	s := bench.Setup{Transport: bench.Transport(t), NIC: x.nic, MTU: x.mtu, Export: exportOf(e), Streams: streams}
	if s.Transport == bench.OverLanding && s.Export == "" {
		s.Export = bench.Async
	}
	return s
}

// exportOf returns the export of a row: sync if required, else the transport's default.
func exportOf(e planfile.Export) bench.Export {
	if e == planfile.Export(bench.Sync) {
		return bench.Sync
	}
	return ""
}

// addCell adds a cell, with as many VMs and folders as the setup needs.
func (x *expansion) addCell(d planfile.Readable, w planfile.Writable, s bench.Setup) {
	s.Source, s.Destination = string(d.Medium), string(w.Medium)
	c := Cell{Setup: s, Link: x.link}
	for _, vm := range d.VMs[:min(len(d.VMs), max(s.Together, 1))] {
		c.VMs = append(c.VMs, string(vm))
	}
	for _, f := range w.Folders[:min(len(w.Folders), max(s.Copies, 1))] {
		c.Folders = append(c.Folders, f.Folder())
	}
	x.cells = append(x.cells, c)
}
