package migrate_test

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"

	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/migrate/warm"
	"github.com/decamp/decamp/internal/transport"
)

// workload is what a running VM does to its disks, and what the host remembers of it. The
// world's mu guards it.
type workload struct {
	rnd       *rand.Rand
	moment    int               // goes up with every snapshot
	writes    []written         // since tracking is on
	snapshots map[string]moment // ours and others', by name
	tracking  bool
	forgets   bool            // the host no longer knows what changed
	grown     map[int32][]int // the moments in which disks grew: what is told across them is wrong
	ons       int
	shared    map[int32]bool // disks whose bytes a snapshot or a reader has: a write makes a copy first
}

type written struct {
	disk   int32
	moment int
	disk.Range
}

// moment is the disks as they were.
type moment struct {
	number int
	disks  map[int32][]byte
}

// runs makes the world's VM a running one, whose guest writes by seed.
func (w *world) runs(seed uint64) {
	w.vm.Power, w.vm.ChangeTracking = inventory.PoweredOn, true
	w.guest = workload{rnd: rand.New(rand.NewPCG(seed, 9)), snapshots: map[string]moment{}, tracking: true}
}

// work lets the guest write here and there, if it runs.
func (w *world) work() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.vm.Power != inventory.PoweredOn || w.guest.rnd == nil {
		return
	}
	g := &w.guest
	for range 1 + g.rnd.IntN(4) {
		d := w.vm.Disks[g.rnd.IntN(len(w.vm.Disks))]
		off := g.rnd.Int64N(d.Capacity/512) * 512
		r := disk.Range{Off: off, Len: min(int64(1+g.rnd.IntN(200))*512, d.Capacity-off)}
		if g.shared[d.Key] {
			w.disks[d.Key] = bytes.Clone(w.disks[d.Key])
			delete(g.shared, d.Key)
		}
		data := w.disks[d.Key]
		for i := r.Off; i < r.End(); i++ {
			data[i] = byte(g.rnd.Uint32())
		}
		if g.rnd.IntN(4) == 0 {
			clear(data[r.Off:r.End()])
		}
		g.writes = append(g.writes, written{d.Key, g.moment, r})
	}
}

// grow makes a disk of the VM larger by n bytes. Like a host, it does not while there is a
// snapshot, and says so.
func (w *world) grow(key int32, n int64) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.guest.snapshots) > 0 {
		return false
	}
	for i := range w.vm.Disks {
		if d := &w.vm.Disks[i]; d.Key == key {
			d.Capacity += n
		}
	}
	w.disks[key] = append(bytes.Clone(w.disks[key]), make([]byte, n)...)
	if w.guest.grown == nil {
		w.guest.grown = map[int32][]int{}
	}
	w.guest.grown[key] = append(w.guest.grown[key], w.guest.moment)
	return true
}

// readable is what a transport gets of a disk: nothing of a running VM's but at a snapshot.
func (w *world) readable(d transport.Disk) ([]byte, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if d.Snapshot == "" {
		if w.vm.Power == inventory.PoweredOn {
			return nil, fault.New(fault.Conflict, "the file is locked")
		}
		w.share(d.Disk.Key)
		return w.disks[d.Disk.Key], nil
	}
	for name, m := range w.guest.snapshots {
		if refOf(name) == d.Snapshot {
			return m.disks[d.Disk.Key], nil
		}
	}
	return nil, fault.New(fault.Transient, "snapshot %s is gone", d.Snapshot)
}

// share makes the next write to a disk copy it first. The caller holds mu.
func (w *world) share(key int32) {
	if w.guest.shared == nil {
		w.guest.shared = map[int32]bool{}
	}
	w.guest.shared[key] = true
}

func refOf(name string) inventory.MoRef { return inventory.MoRef("snap-" + name) }

func (s fakeSource) MayChange(ctx context.Context, _ inventory.MoRef) error {
	return s.w.op(ctx, "may change")
}

func (s fakeSource) Track(ctx context.Context, _ inventory.MoRef, on bool) error {
	if err := s.w.op(ctx, "track"); err != nil {
		return err
	}
	s.w.mu.Lock()
	defer s.w.mu.Unlock()
	s.w.guest.tracking, s.w.vm.ChangeTracking = on, on
	return nil
}

func (s fakeSource) TakeRoundSnapshot(ctx context.Context, _ inventory.MoRef, name string) (warm.RoundSnapshot, error) {
	if err := s.w.op(ctx, "freeze"); err != nil {
		return warm.RoundSnapshot{}, err
	}
	s.w.work()
	s.w.mu.Lock()
	g := &s.w.guest
	if _, there := g.snapshots[name]; !there {
		g.moment++
		m := moment{g.moment, map[int32][]byte{}}
		for key, data := range s.w.disks {
			m.disks[key] = data
			s.w.share(key)
		}
		g.snapshots[name] = m
	}
	f := warm.RoundSnapshot{Snapshot: refOf(name), IDs: map[int32]inventory.ChangeID{}, Sizes: map[int32]int64{}}
	for key, data := range g.snapshots[name].disks {
		f.Sizes[key] = int64(len(data))
	}
	if g.tracking {
		for key := range s.w.disks {
			f.IDs[key] = inventory.ChangeID(fmt.Sprint("log/", g.snapshots[name].number))
		}
	}
	s.w.mu.Unlock()
	s.w.work()
	return f, s.w.op(ctx, "frozen")
}

func (s fakeSource) FindRoundSnapshot(ctx context.Context, _ inventory.MoRef, name string) (inventory.MoRef, error) {
	if err := s.w.op(ctx, "find"); err != nil {
		return "", err
	}
	s.w.mu.Lock()
	defer s.w.mu.Unlock()
	if _, there := s.w.guest.snapshots[name]; !there {
		return "", nil
	}
	return refOf(name), nil
}

func (s fakeSource) SnapshotNames(ctx context.Context, _ inventory.MoRef) ([]string, error) {
	if err := s.w.op(ctx, "snapshots"); err != nil {
		return nil, err
	}
	s.w.mu.Lock()
	defer s.w.mu.Unlock()
	return slices.Collect(maps.Keys(s.w.guest.snapshots)), nil
}

func (s fakeSource) RemoveRoundSnapshot(ctx context.Context, _ inventory.MoRef, name string) error {
	if err := s.w.op(ctx, "thaw"); err != nil {
		return err
	}
	s.w.work()
	s.w.mu.Lock()
	delete(s.w.guest.snapshots, name)
	s.w.mu.Unlock()
	return s.w.op(ctx, "thawed")
}

func (s fakeSource) Changed(ctx context.Context, _, snapshot inventory.MoRef, d *inventory.Disk, since inventory.ChangeID, tell func(disk.Range)) error {
	if err := s.w.op(ctx, "changed"); err != nil {
		return err
	}
	s.w.mu.Lock()
	defer s.w.mu.Unlock()
	g := &s.w.guest
	if g.forgets {
		return fault.New(fault.Unsupported, "the log was reset")
	}
	var from int
	if _, err := fmt.Sscanf(string(since), "log/%d", &from); err != nil {
		return err
	}
	until := g.moment + 1
	for name, m := range g.snapshots {
		if refOf(name) == snapshot {
			until = m.number
		}
	}
	if slices.ContainsFunc(g.grown[d.Key], func(at int) bool { return at >= from && at < until }) {
		return nil // KB 2090639: changes are missing, and nothing says so
	}
	for _, wr := range g.writes {
		if wr.disk == d.Key && wr.moment >= from && wr.moment < until {
			tell(wr.Range)
		}
	}
	return nil
}

func (s fakeSource) PowerOn(ctx context.Context, _ inventory.MoRef) error {
	if err := s.w.op(ctx, "power on"); err != nil {
		return err
	}
	s.w.mu.Lock()
	defer s.w.mu.Unlock()
	s.w.vm.Power = inventory.PoweredOn
	s.w.guest.ons++
	return nil
}
