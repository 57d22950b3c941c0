package https

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

// MapUse says what became of a disk's allocation map.
type MapUse string

const (
	MapUnasked MapUse = "unasked" // nobody wanted to know yet
	MapTrusted MapUse = "trusted" // tested; what it calls free is not read
	MapAbsent  MapUse = "absent"  // the datastore has none; everything is read
	MapDropped MapUse = "dropped" // it called data free; everything is read
)

const (
	// mapWindow is how much of the disk is asked for at a time.
	mapWindow = 64 << 30

	// Gaps between runs are read, not skipped, where that costs little: up to mergeGap
	// each, and together at most 1/mergeShare of what is allocated. With the samples and
	// TLS that keeps the wire below 1.01 times the allocated bytes.
	mergeGap   = 256 << 10
	mergeShare = 256
)

// allocation is what is known of a disk's free areas. "Allocated" comes from
// QueryChangedDiskAreas("*"), which is right on VMFS, may be useless elsewhere and has had
// bugs; wrong it would lose data without a sound. So it is tested before it is used.
type allocation struct {
	src  *Source
	seed uint64
	log  *slog.Logger

	// turn holds one token: loading takes it, so that only one caller asks the host.
	turn chan struct{}

	// Written by the one who loads, before it closes loaded.
	loaded chan struct{}
	runs   []disk.Range // allocated, in order, not touching
	use    MapUse
	note   string
}

func newAllocation(src *Source, opts Options) *allocation {
	return &allocation{
		src: src, seed: opts.Seed, log: opts.Log,
		turn: make(chan struct{}, 1), loaded: make(chan struct{}),
	}
}

// noAllocation is the map of a file that is no disk: there is none.
func noAllocation(src *Source, opts Options) *allocation {
	a := newAllocation(src, opts)
	a.use, a.note = MapAbsent, "not a disk of a VM"
	close(a.loaded)
	return a
}

// state returns what became of the map, and why.
func (a *allocation) state() (MapUse, string) {
	select {
	case <-a.loaded:
		return a.use, a.note
	default:
		return MapUnasked, ""
	}
}

// available asks whether there is a map at all.
func (a *allocation) available(ctx context.Context) bool {
	_, err := a.ask(ctx, disk.Range{Len: min(a.src.size, mergeGap)})
	return err == nil
}

func (a *allocation) ask(ctx context.Context, r disk.Range) ([]disk.Extent, error) {
	d := a.src.disk
	return a.src.pool.host.Allocated(ctx, d.VM.Ref, d.Snapshot, d.Disk.Key, r)
}

// extents describes r: runs are data, the rest is zero.
func (a *allocation) extents(ctx context.Context, r disk.Range) ([]disk.Extent, error) {
	if err := a.load(ctx); err != nil {
		return nil, err
	}
	if a.use != MapTrusted {
		return []disk.Extent{{Range: r, Kind: disk.Data}}, nil
	}
	return disk.Describe(r, a.runs), nil
}

// load gets and tests the map, once. An error leaves it to the next caller.
func (a *allocation) load(ctx context.Context) error {
	select {
	case <-a.loaded:
		return nil
	case a.turn <- struct{}{}:
		defer func() { <-a.turn }()
	case <-ctx.Done():
		return ctx.Err()
	}
	if use, _ := a.state(); use != MapUnasked {
		return nil
	}
	if err := a.judge(ctx); err != nil {
		return err
	}
	close(a.loaded)
	return nil
}

// judge decides what the map is worth. Reading everything is always right, so no failure
// of the query stops the copy, but one of the disk or the session does.
func (a *allocation) judge(ctx context.Context) error {
	runs, err := a.query(ctx)
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case fault.Is(err, fault.Denied):
		return err
	case err != nil:
		a.use, a.note = MapAbsent, err.Error()
		a.log.Info("no allocation map, everything is read", "disk", a.src.disk.Disk.Key, "err", err)
		return nil
	}
	picks := samples(runs, a.src.size, rand.New(rand.NewPCG(a.seed, uint64(a.src.size))))
	bad, err := a.firstData(ctx, picks)
	switch {
	case err != nil:
		return err
	case !bad.Empty():
		a.use, a.note = MapDropped, fmt.Sprintf("it calls %v free, which holds data", bad)
		a.log.Warn("the allocation map is wrong, everything is read", "disk", a.src.disk.Disk.Key, "off", bad.Off, "len", bad.Len)
	default:
		a.use, a.note = MapTrusted, fmt.Sprintf("%d samples of free areas were zero", len(picks))
		a.runs = runs
	}
	return nil
}

// query asks for the whole map, a window at a time.
func (a *allocation) query(ctx context.Context) ([]disk.Range, error) {
	var m merger
	for off := int64(0); off < a.src.size; off += mapWindow {
		window := disk.Range{Off: off, Len: min(mapWindow, a.src.size-off)}
		extents, err := a.ask(ctx, window)
		if err != nil {
			return nil, err
		}
		if err := gapless(extents, window); err != nil {
			return nil, err
		}
		for _, e := range extents {
			if e.Kind == disk.Data {
				m.add(e.Range)
			}
		}
	}
	return slices.Clip(m.runs), nil
}

// gapless returns an error unless extents cover exactly r in order.
func gapless(extents []disk.Extent, r disk.Range) error {
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
func (a *allocation) firstData(ctx context.Context, picks []disk.Range) (disk.Range, error) {
	bad := make([]disk.Range, len(picks))
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(startConnections)
	for i, r := range picks {
		g.Go(func() error {
			b := make([]byte, r.Len)
			err := a.src.ReadAt(ctx, b, r.Off)
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
