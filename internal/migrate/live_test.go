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

// workload is the state of a running VM: the writes of its guest and the host's record of them. The
// world's mu guards it.
type workload struct {
	rnd        *rand.Rand
	generation int                      // number of the last snapshot
	writes     []guestWrite             // writes since tracking was enabled
	snapshots  map[string]snapshotState // snapshots of decamp and of others, by name
	tracking   bool                     // change tracking is enabled
	listLost   bool                     // the host has lost its list of changes
	grown      map[int32][]int          // numbers of the last snapshot before disks grew; lists of changes across them are incomplete
	shared     map[int32]bool           // disks whose bytes a snapshot or a reader uses: the next write copies them first
}

// guestWrite is a write of the guest.
type guestWrite struct {
	disk       int32
	generation int // number of the last snapshot before the write
	disk.Range
}

// snapshotState is the content of the disks at a snapshot.
type snapshotState struct {
	number int
	disks  map[int32][]byte
}

// startGuest makes the world's VM a running one, whose guest writes at random places. The seed selects them.
func (w *world) startGuest(seed uint64) {
	w.vm.Power, w.vm.ChangeTracking = inventory.PoweredOn, true
	w.guest = workload{rnd: rand.New(rand.NewPCG(seed, 9)), snapshots: map[string]snapshotState{}, tracking: true}
}

// writeInGuest lets the guest write at some random places, if it runs.
func (w *world) writeInGuest() {
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
		g.writes = append(g.writes, guestWrite{d.Key, g.generation, r})
	}
}

// growDisk makes a disk of the VM larger by n bytes. Like a host, it returns false if there is a
// snapshot.
func (w *world) growDisk(key int32, n int64) bool {
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
	w.guest.grown[key] = append(w.guest.grown[key], w.guest.generation)
	return true
}

// readableData returns the bytes that a transport reads of a disk. Without a snapshot, it fails if the VM runs.
func (w *world) readableData(d transport.Disk) ([]byte, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if d.Snapshot == "" {
		if w.vm.Power == inventory.PoweredOn {
			return nil, fault.New(fault.Conflict, "the file is locked")
		}
		w.shareDisk(d.Disk.Key)
		return w.disks[d.Disk.Key], nil
	}
	for name, m := range w.guest.snapshots {
		if snapshotRef(name) == d.Snapshot {
			return m.disks[d.Disk.Key], nil
		}
	}
	return nil, fault.New(fault.Transient, "snapshot %s is gone", d.Snapshot)
}

// shareDisk makes the next write to a disk copy its data first. The caller holds mu.
func (w *world) shareDisk(key int32) {
	if w.guest.shared == nil {
		w.guest.shared = map[int32]bool{}
	}
	w.guest.shared[key] = true
}

func snapshotRef(name string) inventory.MoRef { return inventory.MoRef("snap-" + name) }

func (s fakeSource) MayChange(ctx context.Context, _ inventory.MoRef) error {
	return s.w.operation(ctx, "may change")
}

func (s fakeSource) Track(ctx context.Context, _ inventory.MoRef, on bool) error {
	if err := s.w.operation(ctx, "track"); err != nil {
		return err
	}
	s.w.mu.Lock()
	defer s.w.mu.Unlock()
	s.w.guest.tracking, s.w.vm.ChangeTracking = on, on
	return nil
}

func (s fakeSource) TakeRoundSnapshot(ctx context.Context, _ inventory.MoRef, name string) (warm.RoundSnapshot, error) {
	if err := s.w.operation(ctx, "freeze"); err != nil {
		return warm.RoundSnapshot{}, err
	}
	s.w.writeInGuest()
	s.w.mu.Lock()
	g := &s.w.guest
	if _, there := g.snapshots[name]; !there {
		g.generation++
		m := snapshotState{g.generation, map[int32][]byte{}}
		for key, data := range s.w.disks {
			m.disks[key] = data
			s.w.shareDisk(key)
		}
		g.snapshots[name] = m
	}
	f := warm.RoundSnapshot{Snapshot: snapshotRef(name), IDs: map[int32]inventory.ChangeID{}, Sizes: map[int32]int64{}}
	for key, data := range g.snapshots[name].disks {
		f.Sizes[key] = int64(len(data))
	}
	if g.tracking {
		for key := range s.w.disks {
			f.IDs[key] = inventory.ChangeID(fmt.Sprint("log/", g.snapshots[name].number))
		}
	}
	s.w.mu.Unlock()
	s.w.writeInGuest()
	return f, s.w.operation(ctx, "frozen")
}

func (s fakeSource) FindRoundSnapshot(ctx context.Context, _ inventory.MoRef, name string) (inventory.MoRef, error) {
	if err := s.w.operation(ctx, "find"); err != nil {
		return "", err
	}
	s.w.mu.Lock()
	defer s.w.mu.Unlock()
	if _, there := s.w.guest.snapshots[name]; !there {
		return "", nil
	}
	return snapshotRef(name), nil
}

func (s fakeSource) SnapshotNames(ctx context.Context, _ inventory.MoRef) ([]string, error) {
	if err := s.w.operation(ctx, "snapshots"); err != nil {
		return nil, err
	}
	s.w.mu.Lock()
	defer s.w.mu.Unlock()
	return slices.Collect(maps.Keys(s.w.guest.snapshots)), nil
}

func (s fakeSource) RemoveRoundSnapshot(ctx context.Context, _ inventory.MoRef, name string) error {
	if err := s.w.operation(ctx, "thaw"); err != nil {
		return err
	}
	s.w.writeInGuest()
	s.w.mu.Lock()
	delete(s.w.guest.snapshots, name)
	s.w.mu.Unlock()
	return s.w.operation(ctx, "thawed")
}

func (s fakeSource) Changed(ctx context.Context, _, snapshot inventory.MoRef, d *inventory.Disk, since inventory.ChangeID, report func(disk.Range)) error {
	if err := s.w.operation(ctx, "changed"); err != nil {
		return err
	}
	s.w.mu.Lock()
	defer s.w.mu.Unlock()
	g := &s.w.guest
	if g.listLost {
		return fault.New(fault.Unsupported, "the log was reset")
	}
	var from int
	if _, err := fmt.Sscanf(string(since), "log/%d", &from); err != nil {
		return err
	}
	until := g.generation + 1
	for name, m := range g.snapshots {
		if snapshotRef(name) == snapshot {
			until = m.number
		}
	}
	if slices.ContainsFunc(g.grown[d.Key], func(at int) bool { return at >= from && at < until }) {
		return nil // KB 2090639: changes are missing without an error
	}
	for _, wr := range g.writes {
		if wr.disk == d.Key && wr.generation >= from && wr.generation < until {
			report(wr.Range)
		}
	}
	return nil
}

func (s fakeSource) PowerOn(ctx context.Context, _ inventory.MoRef) error {
	if err := s.w.operation(ctx, "power on"); err != nil {
		return err
	}
	s.w.mu.Lock()
	defer s.w.mu.Unlock()
	s.w.vm.Power = inventory.PoweredOn
	return nil
}
