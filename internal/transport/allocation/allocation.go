// Package allocation holds what a transport knows of a disk's free areas, and how far it
// may be believed.
//
// Hosts tell which areas of a disk are allocated in more than one way, each right on VMFS,
// maybe useless elsewhere, and each has had bugs; wrong it would lose data without a
// sound. So a map is tested before it is used: a sample of what it calls free is read and
// must be zero. A map that lied once is not used at all, and all of the disk is read.
//
// Memory: 16 bytes for each run of allocated blocks.
package allocation

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/fault"
)

// Use says what became of a disk's allocation map.
type Use string

const (
	Unasked Use = "unasked" // nobody wanted to know yet
	Trusted Use = "trusted" // tested; what it calls free is not read
	Absent  Use = "absent"  // the datastore has none; everything is read
	Dropped Use = "dropped" // it called data free; everything is read
)

const (
	// mapWindow is how much of the disk is asked for at a time.
	mapWindow = 64 << 30

	// Gaps between runs are read, not skipped, where that costs little: up to mergeGap
	// each, and together at most 1/mergeShare of what is allocated. With the samples and
	// TLS that keeps the wire below 1.01 times the allocated bytes.
	mergeGap   = 256 << 10
	mergeShare = 256

	// reading is how many samples are read at once.
	parallelSamples = 4
)

// Disk is what a map needs of the disk it is of.
type Disk struct {
	Key  int32 // for the log
	Size int64

	// Ask asks the host which areas of a range are allocated: in order and without gaps.
	Ask func(ctx context.Context, r disk.Range) ([]disk.Extent, error)

	// ReadAt reads the disk, for samples.
	ReadAt func(ctx context.Context, p []byte, off int64) error
}

// Map is the allocation map of one disk. The first who wants to know asks the host for it
// and tests it. Its methods may be called concurrently.
type Map struct {
	disk Disk
	seed uint64
	log  *slog.Logger

	// turn holds one token: loading takes it, so that only one caller asks the host.
	turn chan struct{}

	// Written by the one who loads, before it closes loaded.
	loaded chan struct{}
	runs   []disk.Range // allocated, in order, not touching
	use    Use
	note   string
}

// New returns the map of d, not asked for yet. seed chooses where it is sampled.
func New(d Disk, seed uint64, log *slog.Logger) *Map {
	return &Map{
		disk: d, seed: seed, log: log,
		turn: make(chan struct{}, 1), loaded: make(chan struct{}),
	}
}

// None is the map of a disk that has none, for the reason that note gives.
func None(note string) *Map {
	m := New(Disk{}, 0, nil)
	m.use, m.note = Absent, note
	close(m.loaded)
	return m
}

// State returns what became of the map, and why.
func (m *Map) State() (Use, string) {
	select {
	case <-m.loaded:
		return m.use, m.note
	default:
		return Unasked, ""
	}
}

// Available asks whether there is a map at all.
func (m *Map) Available(ctx context.Context) bool {
	_, err := m.disk.Ask(ctx, disk.Range{Len: min(m.disk.Size, mergeGap)})
	return err == nil
}

// Extents describes r: runs are data, the rest is zero.
func (m *Map) Extents(ctx context.Context, r disk.Range) ([]disk.Extent, error) {
	if err := m.loadOnce(ctx); err != nil {
		return nil, err
	}
	if m.use != Trusted {
		return []disk.Extent{{Range: r, Kind: disk.Data}}, nil
	}
	return disk.Describe(r, m.runs), nil
}

// loadOnce gets and tests the map, once. An error leaves it to the next caller.
func (m *Map) loadOnce(ctx context.Context) error {
	select {
	case <-m.loaded:
		return nil
	case m.turn <- struct{}{}:
		defer func() { <-m.turn }()
	case <-ctx.Done():
		return ctx.Err()
	}
	if use, _ := m.State(); use != Unasked {
		return nil
	}
	if err := m.decideUse(ctx); err != nil {
		return err
	}
	close(m.loaded)
	return nil
}

// decideUse decides what the map is worth. Reading everything is always right, so no failure
// of the query stops the copy, but one of the disk or the session does.
func (m *Map) decideUse(ctx context.Context) error {
	runs, err := m.queryMap(ctx)
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case fault.Is(err, fault.Denied):
		return err
	case err != nil:
		m.use, m.note = Absent, err.Error()
		m.log.Info("no allocation map, everything is read", "disk", m.disk.Key, "err", err)
		return nil
	}
	picks := pickSamples(runs, m.disk.Size, rand.New(rand.NewPCG(m.seed, uint64(m.disk.Size))))
	bad, err := m.firstData(ctx, picks)
	switch {
	case err != nil:
		return err
	case !bad.Empty():
		m.use, m.note = Dropped, fmt.Sprintf("it calls %v free, which holds data", bad)
		m.log.Warn("the allocation map is wrong, everything is read", "disk", m.disk.Key, "off", bad.Off, "len", bad.Len)
	default:
		m.use, m.note = Trusted, fmt.Sprintf("%d samples of free areas were zero", len(picks))
		m.runs = runs
	}
	return nil
}

// queryMap asks for the whole map, a window at a time.
func (m *Map) queryMap(ctx context.Context) ([]disk.Range, error) {
	var joined merger
	for off := int64(0); off < m.disk.Size; off += mapWindow {
		window := disk.Range{Off: off, Len: min(mapWindow, m.disk.Size-off)}
		extents, err := m.disk.Ask(ctx, window)
		if err != nil {
			return nil, err
		}
		if err := checkGapless(extents, window); err != nil {
			return nil, err
		}
		for _, e := range extents {
			if e.Kind == disk.Data {
				joined.add(e.Range)
			}
		}
	}
	return slices.Clip(joined.runs), nil
}

// checkGapless returns an error unless extents cover exactly r in order.
func checkGapless(extents []disk.Extent, r disk.Range) error {
	at := r.Off
	for _, e := range extents {
		if e.Off != at || e.Len <= 0 {
			return fmt.Errorf("the map of %v has a gap or overlap at %d", r, at)
		}
		at = e.End()
	}
	if at != r.End() {
		return fmt.Errorf("the map of %v ends at %d", r, at)
	}
	return nil
}

// merger joins runs over small gaps as long as its budget lasts.
type merger struct {
	runs   []disk.Range
	budget int64 // bytes of gaps that may still be read
}

// add takes the next run; runs come in order.
func (m *merger) add(r disk.Range) {
	m.budget += r.Len / mergeShare
	if n := len(m.runs); n > 0 {
		last := &m.runs[n-1]
		if gap := r.Off - last.End(); gap <= min(mergeGap, m.budget) {
			m.budget -= gap
			last.Len = r.End() - last.Off
			return
		}
	}
	m.runs = append(m.runs, r)
}

// firstData reads the samples and returns one that is not zero; empty if all are.
func (m *Map) firstData(ctx context.Context, picks []disk.Range) (disk.Range, error) {
	bad := make([]disk.Range, len(picks))
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(parallelSamples)
	for i, r := range picks {
		g.Go(func() error {
			b := make([]byte, r.Len)
			err := m.disk.ReadAt(ctx, b, r.Off)
			if slices.ContainsFunc(b, func(c byte) bool { return c != 0 }) {
				bad[i] = r
			}
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return disk.Range{}, fmt.Errorf("test the allocation map: %w", err)
	}
	for _, r := range bad {
		if !r.Empty() {
			return r, nil
		}
	}
	return disk.Range{}, nil
}
