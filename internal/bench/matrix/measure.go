package matrix

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/decamp/decamp/internal/bench"
	"github.com/decamp/decamp/internal/blockcopy"
	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/image"
	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/transport"
	"github.com/decamp/decamp/internal/transport/fanout"
)

// A Rig is what one cell is measured with.
type Rig struct {
	VMs       []*inventory.VM     // VMs of the cell, in its order
	Transport transport.Transport // transport with the cell's streams; nil with bench.Pattern
	Computed  disk.Source         // source of bench.Pattern

	// Clone has the host copy a disk to a file of the cell's datastore, with bench.OverNFS.
	Clone func(ctx context.Context, d transport.Disk, file string) error

	// Source returns the host's counters for the VMs' reads in that time. If it is nil or fails, the
	// row contains the reason instead.
	Source func(ctx context.Context, began, ended time.Time) (bench.Device, error)
}

// Measure measures one cell. Images are removed again, however it ends.
func Measure(ctx context.Context, c Cell, rig Rig) (bench.Row, error) {
	m := &measurement{Cell: c, rig: rig}
	before, err := countNow()
	if err != nil {
		return bench.Row{}, err
	}
	if c.Source == bench.Pattern {
		err = m.computed(ctx)
	} else {
		err = m.all(ctx)
	}
	after, err2 := countNow()
	if err := errors.Join(err, err2, m.remove()); err != nil {
		return bench.Row{}, err
	}
	if m.allocated == 0 {
		return bench.Row{}, fault.New(fault.Invalid, "the disks hold no data: there is no rate").WithHint("name VMs that were in use, or a fill above 0%%")
	}
	return m.row(ctx, before, after), nil
}

// measurement is one cell that is measured.
type measurement struct {
	Cell
	rig Rig

	mu        sync.Mutex
	places    []place
	cloned    []string
	allocated int64 // allocated bytes of the disks, once each
	read      int64 // bytes read from the source, once for all copies
	size      int64
}

func (m *measurement) row(ctx context.Context, before, after counts) bench.Row {
	row := bench.Row{Setup: m.Setup, Seconds: after.at.Sub(before.at).Seconds(), Allocated: m.allocated, At: after.at.UTC()}
	row.On.Fill = float64(m.allocated) / float64(m.size)
	book(&row, before, after, m.Folders)
	if m.Source == bench.Pattern {
		return row
	}
	row.Wire = float64(m.allocated) / bench.MiB / row.Seconds
	if much := float64(m.read) / float64(m.allocated); much > muchMore {
		row.Note = fmt.Sprintf("%.0f MiB were read for %.0f MiB of data: the source does not say where that is", float64(m.read)/bench.MiB, float64(m.allocated)/bench.MiB)
	}
	if m.rig.Source == nil {
		absent(&row, "read", "the host was not queried")
		return row
	}
	var err error
	if row.Read, err = m.rig.Source(ctx, before.at, after.at); err != nil {
		absent(&row, "read", err.Error())
	}
	return row
}

// muchMore is how many times its data has to be read of a disk until that is worth telling.
const muchMore = 1.2

// all moves the VMs at the same time, and the disks of each one after the other.
func (m *measurement) all(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	for _, vm := range m.rig.VMs {
		g.Go(func() error {
			for i := range vm.Disks {
				if err := m.one(ctx, transport.Disk{VM: vm, Disk: &vm.Disks[i]}); err != nil {
					return fmt.Errorf("VM %s, disk %d: %w", vm.Name, vm.Disks[i].Key, err)
				}
			}
			return nil
		})
	}
	return g.Wait()
}

// one moves a disk into nothing, or into an image in each folder.
func (m *measurement) one(ctx context.Context, d transport.Disk) error {
	size := d.Disk.Capacity
	if m.Destination == bench.Null {
		res, err := m.rig.Transport.Transfer(ctx, transport.Job{Disk: d, Target: disk.NewNull(size)})
		m.count(size, res)
		return err
	}
	name := fmt.Sprintf("%s-%d", d.VM.Ref, d.Disk.Key)
	if m.Transport == bench.OverNFS {
		return m.clone(ctx, d, name)
	}
	places, err := m.makePlaces(name, size)
	if err != nil {
		return err
	}
	group := fanout.New(m.rig.Transport, len(places))
	results := make([]blockcopy.Result, len(places))
	var filling errgroup.Group // without a context: a failed copy does not stop the others
	for i, p := range places {
		filling.Go(func() error {
			member := group.Member(i)
			defer member.Close() // cannot fail
			_, _, err := p.job().Fill(ctx, func(ctx context.Context, c *image.Copying) (err error) {
				results[i], err = member.Transfer(ctx, transport.Job{Disk: d, Target: c.Target, Manifest: c.Log, ReadBack: p.ReadUnfinished})
				return err
			})
			return err
		})
	}
	err = filling.Wait()
	m.count(size, results[0])
	return err
}

// clone has the host write a disk onto an export, as it would without decamp.
func (m *measurement) clone(ctx context.Context, d transport.Disk, name string) error {
	descriptor, flat := prefix+name+".vmdk", filepath.Join(m.Folders[0], prefix+name+"-flat.vmdk")
	files := []string{filepath.Join(m.Folders[0], descriptor), flat}
	if err := removeAll(files); err != nil { // files of a killed run
		return err
	}
	m.mu.Lock()
	m.cloned = append(m.cloned, files...)
	m.mu.Unlock()
	if err := m.rig.Clone(ctx, d, descriptor); err != nil {
		return err
	}
	var st unix.Stat_t
	if err := unix.Stat(flat, &st); err != nil {
		return fault.New(fault.NotFound, "look for the clone: %w", err).WithHint("datastore %s has to be the folder %s", m.Datastore, m.Folders[0])
	}
	m.count(d.Disk.Capacity, blockcopy.Result{Progress: blockcopy.Progress{Written: st.Blocks * sectorSize}})
	return nil
}

func removeAll(paths []string) error {
	var errs []error
	for _, p := range paths {
		errs = append(errs, os.RemoveAll(p))
	}
	return errors.Join(errs...)
}

// computed writes a disk that is computed into each folder, all at the same time.
func (m *measurement) computed(ctx context.Context) error {
	src := m.rig.Computed
	places, err := m.makePlaces(bench.Pattern, src.Size())
	if err != nil {
		return err
	}
	results := make([]blockcopy.Result, len(places))
	g, ctx := errgroup.WithContext(ctx)
	for i, p := range places {
		g.Go(func() error {
			_, _, err := p.job().Fill(ctx, func(ctx context.Context, c *image.Copying) (err error) {
				results[i], err = blockcopy.Copy(ctx, src, c.Target, blockcopy.Options{Manifest: c.Log})
				return err
			})
			return err
		})
	}
	err = g.Wait()
	m.count(src.Size(), results[0])
	return err
}

func (m *measurement) makePlaces(name string, size int64) ([]place, error) {
	var made []place
	for _, folder := range m.Folders {
		p, err := newPlace(folder, name, size, m.Export == bench.Sync)
		if err != nil {
			return nil, err
		}
		made = append(made, p)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.places = append(m.places, made...)
	return made, nil
}

// count books a disk that was moved.
func (m *measurement) count(size int64, res blockcopy.Result) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.size += size
	m.allocated += res.Written
	m.read += res.Read
}

func (m *measurement) remove() error {
	errs := []error{removeAll(m.cloned)}
	for _, p := range m.places {
		errs = append(errs, p.remove())
	}
	return errors.Join(errs...)
}
