// Package allocation contains the free areas of a disk, and tests whether a host's map of
// them is correct.
//
// Hosts have several ways to report the allocated areas of a disk. All of them are correct on
// VMFS and may be useless elsewhere, and all have had bugs. A wrong map would lose data
// silently. Therefore a map is tested before it is used: samples of the areas that it calls
// free are read and must be zero. After one error the map is not used at all, and the whole
// disk is read.
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

// Use is the state of a disk's allocation map.
type Use string

const (
	Unasked Use = "unasked" // the map was not requested yet
	Trusted Use = "trusted" // tested; areas that it calls free are not read
	Absent  Use = "absent"  // the datastore has no map; everything is read
	Dropped Use = "dropped" // the map called data free; everything is read
)

const (
	// mapWindow is the size of one request for the map, in bytes of the disk.
	mapWindow = 64 << 30

	// Gaps of up to mergeGap bytes are read instead of skipped, which costs little. Together
	// they are at most 1/mergeShare of the allocated bytes. With the samples and TLS, the bytes
	// on the wire stay below 1.01 times the allocated ones.
	mergeGap   = 256 << 10
	mergeShare = 256

	// parallelSamples is the number of samples that are read concurrently.
	parallelSamples = 4
)

// Disk is the disk of a Map, with the functions that query and read it.
type Disk struct {
	Key  int32 // key of the disk in the VM, for the log
	Size int64 // capacity in bytes

	// Ask returns the host's description of a range: extents in order and without gaps.
	Ask func(ctx context.Context, r disk.Range) ([]disk.Extent, error)

	// ReadAt reads the disk, for the samples.
	ReadAt func(ctx context.Context, p []byte, off int64) error
}

// Map is the allocation map of one disk. The first call that needs it requests it from the host and
// tests it. It is safe for concurrent use.
type Map struct {
	disk Disk         // disk that the map describes
	seed uint64       // selects the samples
	log  *slog.Logger // receives the result of the test

	// turn contains one token while a caller requests and tests the map.
	turn chan struct{}

	// closed when the map is loaded; the fields below are set before that and do not change
	loaded chan struct{}
	runs   []disk.Range // allocated ranges in order, not adjacent; only for Trusted
	use    Use          // result of the test
	note   string       // reason for use
}

// New returns the map of d, without requesting it. seed selects the samples.
func New(d Disk, seed uint64, log *slog.Logger) *Map {
	return &Map{
		disk: d, seed: seed, log: log,
		turn: make(chan struct{}, 1), loaded: make(chan struct{}),
	}
}

// None returns the map of a disk that has none. note is the reason.
func None(note string) *Map {
	m := New(Disk{}, 0, nil)
	m.use, m.note = Absent, note
	close(m.loaded)
	return m
}

// State returns the state of the map and its reason.
func (m *Map) State() (Use, string) {
	select {
	case <-m.loaded:
		return m.use, m.note
	default:
		return Unasked, ""
	}
}

// Available reports whether the host has a map. It requests a small part of it.
func (m *Map) Available(ctx context.Context) bool {
	_, err := m.disk.Ask(ctx, disk.Range{Len: min(m.disk.Size, mergeGap)})
	return err == nil
}

// Extents describes r: allocated ranges are data, and the rest is zero. Unless the map is Trusted, all
// of r is data.
func (m *Map) Extents(ctx context.Context, r disk.Range) ([]disk.Extent, error) {
	if err := m.loadOnce(ctx); err != nil {
		return nil, err
	}
	if m.use != Trusted {
		return []disk.Extent{{Range: r, Kind: disk.Data}}, nil
	}
	return disk.Describe(r, m.runs), nil
}

// loadOnce requests and tests the map, unless it is loaded. After an error, the next caller tries
// again.
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

// decideUse requests and tests the map, and sets use. Reading everything is always correct, so a failed
// query does not stop the copy. Errors of the disk or the session do.
func (m *Map) decideUse(ctx context.Context) error {
	runs, err := m.queryMap(ctx)
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case fault.Is(err, fault.Denied):
		return err
	case err != nil:
		m.use, m.note = Absent, err.Error()
		m.log.Info("no allocation map, the whole disk is read", "disk", m.disk.Key, "err", err)
		return nil
	}
	picks := pickSamples(runs, m.disk.Size, rand.New(rand.NewPCG(m.seed, uint64(m.disk.Size))))
	bad, err := m.firstData(ctx, picks)
	switch {
	case err != nil:
		return err
	case !bad.Empty():
		m.use, m.note = Dropped, fmt.Sprintf("it lists %v as free, but that range contains data", bad)
		m.log.Warn("the allocation map is wrong, the whole disk is read", "disk", m.disk.Key, "off", bad.Off, "len", bad.Len)
	default:
		m.use, m.note = Trusted, fmt.Sprintf("%d samples of free areas were zero", len(picks))
		m.runs = runs
	}
	return nil
}

// queryMap requests the whole map, a window at a time, and returns the allocated ranges.
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

// checkGapless fails unless the extents cover exactly r, in order.
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

// merger joins runs over small gaps while its budget lasts.
type merger struct {
	runs   []disk.Range // runs so far
	budget int64        // bytes of gaps that may still be joined
}

// add appends a run, which must follow the others.
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

// firstData reads the samples and returns one that is not zero; empty if all are zero.
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
