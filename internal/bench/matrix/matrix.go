// Package matrix measures each source into each destination, over each link, by each transport, one row after
// the other.
//
//	Cells    the rows of a spec, in the order of their measurement
//	Run      measures the cells that a Log lacks
//	Log      rows in a file, each durable before the next one begins
//	Measure  one cell: images are written and removed, with the machine's counters
//
// The ends come first: each source without a destination, a computed disk into each destination. The pair
// cannot be faster than the slower one; if it is much slower, the engine is the cause.
//
// A row is the time of one copy by decamp: with a manifest, until the image is synced and finished. Nothing
// is repeated: run the matrix several times for a median.
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
	Link    int      // link of the spec
	VMs     []string // VMs to read; none with bench.Pattern
	Folders []string // folders to write; none with bench.Null

	// Datastore is the folder as the host has it mounted, with bench.OverNFS.
	Datastore string
}

// is reports whether a row is of this cell.
func (c Cell) is(r bench.Row, origin string) bool {
	return r.Setup == c.Setup && r.Origin == origin && slices.Equal(r.On.VMs, c.VMs) && slices.Equal(r.On.Folders, c.Folders)
}

// Progress is one cell of all that are asked for.
type Progress struct {
	Cell   Cell
	Number int // number, from 1
	Of     int
	Row    *bench.Row // measured row; nil before the measurement
	Had    bool       // an earlier run measured it
	Err    error      // why there is no row
}

// A Runner measures cells.
type Runner struct {
	Cells  []Cell
	Origin string
	Log    *Log

	// Enter prepares a link: the first of its cells that lacks a row is about to be measured.
	Enter func(ctx context.Context, link int) error

	// Measure measures a cell of the link that was entered last.
	Measure func(ctx context.Context, c Cell) (bench.Row, error)

	// Told is called before and after each cell. It may be nil.
	Told func(Progress)
}

// Run measures the cells that the log lacks. A failing cell is reported, and the others are measured;
// then Run fails, and another run measures the missing cells. A cancellation ends it at once.
func (r *Runner) Run(ctx context.Context) error {
	var failed []error
	link := -1
	for i, c := range r.Cells {
		p := Progress{Cell: c, Number: i + 1, Of: len(r.Cells)}
		if row, ok := r.Log.Has(c, r.Origin); ok {
			p.Row, p.Had = &row, true
			r.tell(p)
			continue
		}
		if c.Link != link {
			if err := r.Enter(ctx, c.Link); err != nil {
				return errors.Join(r.missing(failed), err)
			}
			link = c.Link
		}
		r.tell(p)
		if p.Row, p.Err = r.one(ctx, c); p.Err != nil {
			failed = append(failed, fmt.Errorf("%s: %w", c.Name(), p.Err))
		}
		r.tell(p)
		if ctx.Err() != nil || fault.Is(p.Err, fault.Full) {
			break
		}
	}
	return r.missing(failed)
}

// missing returns the first error, because the others were reported.
func (r *Runner) missing(failed []error) error {
	if len(failed) < 2 {
		return errors.Join(failed...)
	}
	return fmt.Errorf("%d of %d rows could not be measured, the first was %w", len(failed), len(r.Cells), failed[0])
}

// one measures a cell, and has the log hold its row.
func (r *Runner) one(ctx context.Context, c Cell) (*bench.Row, error) {
	row, err := r.Measure(ctx, c)
	if err != nil {
		return nil, err
	}
	row.Setup, row.Origin, row.On.VMs, row.On.Folders = c.Setup, r.Origin, c.VMs, c.Folders
	return &row, r.Log.Append(row)
}

func (r *Runner) tell(p Progress) {
	if r.Told != nil {
		r.Told(p)
	}
}

// Cells are those of a spec. Links are outermost: to change one may take a command.
func Cells(m *planfile.Matrix) []Cell {
	var all []Cell
	for i, l := range m.Links {
		x := expansion{Matrix: m, link: i, nic: string(l.NIC), mtu: l.MTU}
		if m.Ends {
			x.sources()
		}
		if m.Ends && i == 0 { // no link is in the way of a disk that is computed here
			x.destinations()
		}
		x.pairs()
		all = append(all, x.cells...)
	}
	return all
}

// expansion is the cells of one link.
type expansion struct {
	*planfile.Matrix
	link  int
	nic   string
	mtu   int
	cells []Cell
}

func (x *expansion) sources() {
	for _, d := range x.Disks {
		for _, t := range x.Transports {
			if t == clone {
				continue // it cannot discard its data
			}
			for _, n := range x.streams(t) {
				x.add(d, planfile.Writable{Medium: bench.Null}, x.setup(t, "", n))
			}
		}
	}
}

func (x *expansion) destinations() {
	for _, w := range x.To {
		for _, e := range x.Exports {
			s := bench.Setup{Export: exportOf(e)}
			x.add(planfile.Readable{Medium: bench.Pattern}, w, s)
			for _, n := range x.Copies {
				if n > 1 && int(n) <= len(w.Folders) && s.Export == "" {
					x.add(planfile.Readable{Medium: bench.Pattern}, w, bench.Setup{Copies: int(n)})
				}
			}
		}
	}
}

// pairs are crossed but for what goes together and copies: those are measured with the most
// streams, one after the other.
func (x *expansion) pairs() {
	for _, d := range x.Disks {
		for _, w := range x.To {
			for _, t := range x.Transports {
				if t == clone {
					x.clones(d, w)
					continue
				}
				streams := x.streams(t)
				for _, e := range x.Exports {
					for _, n := range streams {
						x.add(d, w, x.setup(t, e, n))
					}
				}
				x.several(d, w, x.setup(t, "", slices.Max(streams)))
			}
		}
	}
}

// clone is the transport by which a host writes onto an export that is not ours.
const clone planfile.Way = "nfs"

// clones have the sync option of the export, which cannot be changed here.
func (x *expansion) clones(d planfile.Readable, w planfile.Writable) {
	for _, m := range w.NFS {
		w.Folders = []planfile.Destination{m.Folder}
		x.add(d, w, bench.Setup{NIC: x.nic, MTU: x.mtu, Export: bench.Export(m.Export)})
		x.cells[len(x.cells)-1].Datastore = string(m.Datastore)
	}
}

// several needs as many VMs and folders as it is of: media that have fewer are left out.
func (x *expansion) several(d planfile.Readable, w planfile.Writable, s bench.Setup) {
	for _, n := range x.Together {
		if n > 1 && int(n) <= len(d.VMs) {
			s := s
			s.Together = int(n)
			x.add(d, w, s)
		}
	}
	for _, n := range x.Copies {
		if n > 1 && int(n) <= len(w.Folders) {
			s := s
			s.Copies = int(n)
			x.add(d, w, s)
		}
	}
}

// streams returns the supported stream counts; 0 uses the transport's preference.
func (x *expansion) streams(t planfile.Way) []int {
	if t == planfile.Way(bench.OverLanding) || len(x.Streams) == 0 {
		return []int{0}
	}
	var all []int
	for _, n := range x.Streams {
		all = append(all, int(n))
	}
	return all
}

func (x *expansion) setup(t planfile.Way, e planfile.Export, streams int) bench.Setup {
	s := bench.Setup{Transport: bench.Transport(t), NIC: x.nic, MTU: x.mtu, Export: exportOf(e), Streams: streams}
	if s.Transport == bench.OverLanding && s.Export == "" {
		s.Export = bench.Async
	}
	return s
}

// exportOf is the export of a row: a transport that has none answers as it likes.
func exportOf(e planfile.Export) bench.Export {
	if e == planfile.Export(bench.Sync) {
		return bench.Sync
	}
	return ""
}

func (x *expansion) add(d planfile.Readable, w planfile.Writable, s bench.Setup) {
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
