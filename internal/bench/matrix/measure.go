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

// Resources are the resources for measuring one cell.
type Resources struct {
	VMs       []*inventory.VM     // VMs in the order of the cell
	Transport transport.Transport // transport with the cell's streams; nil with bench.Pattern
	Computed  disk.Source         // source with bench.Pattern

	// Clone makes the host copy a disk to a file of the cell's datastore, with
	// bench.OverNFS.
	Clone func(ctx context.Context, d transport.Disk, file string) error

	// Source returns the host's disk counters for a period. If it is nil or fails, the
	// row contains the reason.
	Source func(ctx context.Context, began, ended time.Time) (bench.Device, error)
}

// Measure measures one cell. It removes all files, also after an error. A cell without
// data is fault.Invalid.
func Measure(ctx context.Context, c Cell, rig Resources) (bench.Row, error) {
	m := &measurement{Cell: c, resources: rig}
	before, err := countNow()
	if err != nil {
		return bench.Row{}, err
	}
	if c.Source == bench.Pattern {
		err = m.writePattern(ctx)
	} else {
		err = m.copyAll(ctx)
	}
	after, err2 := countNow()
	if err := errors.Join(err, err2, m.removeFiles()); err != nil {
		return bench.Row{}, err
	}
	if m.allocated == 0 {
		return bench.Row{}, fault.New(fault.Invalid, "the disks contain no data, so there is nothing to measure").WithHint("use VMs whose disks contain data, or set fill above 0%%")
	}
	return m.toRow(ctx, before, after), nil
}

// measurement is the state of measuring one cell.
type measurement struct {
	Cell
	resources Resources // resources of the cell

	mu        sync.Mutex  // protects the fields below
	images    []imageFile // images to remove
	cloned    []string    // files of clones to remove
	allocated int64       // allocated bytes of the disks, once each
	read      int64       // bytes read from the source, once for all copies
	size      int64       // provisioned bytes of the disks
}

// toRow returns the row for the time between two readings of the counters.
func (m *measurement) toRow(ctx context.Context, before, after counts) bench.Row {
	row := bench.Row{Setup: m.Setup, Seconds: after.at.Sub(before.at).Seconds(), Allocated: m.allocated, At: after.at.UTC()}
	row.On.Fill = float64(m.allocated) / float64(m.size)
	addCounts(&row, before, after, m.Folders)
	// Nothing was read from a source, so there is no rate on the wire.
	if m.Source == bench.Pattern {
		return row
	}
	row.Wire = float64(m.allocated) / bench.MiB / row.Seconds
	if much := float64(m.read) / float64(m.allocated); much > readExcess {
		row.Note = fmt.Sprintf("%.0f MiB were read for %.0f MiB of data: the source does not say where that is", float64(m.read)/bench.MiB, float64(m.allocated)/bench.MiB)
	}
	if m.resources.Source == nil {
		noteAbsent(&row, "read", "the host was not queried")
		return row
	}
	var err error
	if row.Read, err = m.resources.Source(ctx, before.at, after.at); err != nil {
		noteAbsent(&row, "read", err.Error())
	}
	return row
}

// readExcess is the ratio of read to allocated bytes from which the row has a note: the
// source then does not report its zeros.
const readExcess = 1.2

// copyAll copies all VMs concurrently, and the disks of a VM one after the other.
func (m *measurement) copyAll(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	for _, vm := range m.resources.VMs {
		g.Go(func() error {
			for i := range vm.Disks {
				if err := m.copyDisk(ctx, transport.Disk{VM: vm, Disk: &vm.Disks[i]}); err != nil {
					return fmt.Errorf("VM %s, disk %d: %w", vm.Name, vm.Disks[i].Key, err)
				}
			}
			return nil
		})
	}
	return g.Wait()
}

// copyDisk copies a disk to nothing, or to an image in each folder.
func (m *measurement) copyDisk(ctx context.Context, d transport.Disk) error {
	size := d.Disk.Capacity
	if m.Destination == bench.Null {
		res, err := m.resources.Transport.Transfer(ctx, transport.Job{Disk: d, Target: disk.NewNull(size)})
		m.addResult(size, res)
		return err
	}
	name := fmt.Sprintf("%s-%d", d.VM.Ref, d.Disk.Key)
	if m.Transport == bench.OverNFS {
		return m.cloneDisk(ctx, d, name)
	}
	places, err := m.newImageFiles(name, size)
	if err != nil {
		return err
	}
	group := fanout.New(m.resources.Transport, len(places))
	results := make([]blockcopy.Result, len(places))
	var filling errgroup.Group // without a context: a failed copy does not stop the others
	for i, p := range places {
		filling.Go(func() error {
			member := group.Member(i)
			defer member.Close() // cannot fail
			_, _, err := p.toJob().Fill(ctx, func(ctx context.Context, c *image.Copying) (err error) {
				results[i], err = member.Transfer(ctx, transport.Job{Disk: d, Target: c.Target, Manifest: c.Log, ReadBack: p.ReadUnfinished})
				return err
			})
			return err
		})
	}
	err = filling.Wait()
	m.addResult(size, results[0])
	return err
}

// cloneDisk makes the host copy a disk to an export, as it would without decamp. Its
// size is that of the file's allocated blocks.
func (m *measurement) cloneDisk(ctx context.Context, d transport.Disk, name string) error {
	descriptor, flat := prefix+name+".vmdk", filepath.Join(m.Folders[0], prefix+name+"-flat.vmdk")
	files := []string{filepath.Join(m.Folders[0], descriptor), flat}
	if err := removeAll(files); err != nil { // files of a killed run
		return err
	}
	m.mu.Lock()
	m.cloned = append(m.cloned, files...)
	m.mu.Unlock()
	if err := m.resources.Clone(ctx, d, descriptor); err != nil {
		return err
	}
	var st unix.Stat_t
	if err := unix.Stat(flat, &st); err != nil {
		return fault.New(fault.NotFound, "look for the clone: %w", err).WithHint("datastore %s has to be the folder %s", m.Datastore, m.Folders[0])
	}
	m.addResult(d.Disk.Capacity, blockcopy.Result{Progress: blockcopy.Progress{Written: st.Blocks * sectorSize}})
	return nil
}

// removeAll removes files, and returns all errors.
func removeAll(paths []string) error {
	var errs []error
	for _, p := range paths {
		errs = append(errs, os.RemoveAll(p))
	}
	return errors.Join(errs...)
}

// writePattern writes a computed disk to all folders concurrently.
func (m *measurement) writePattern(ctx context.Context) error {
	src := m.resources.Computed
	places, err := m.newImageFiles(bench.Pattern, src.Size())
	if err != nil {
		return err
	}
	results := make([]blockcopy.Result, len(places))
	g, ctx := errgroup.WithContext(ctx)
	for i, p := range places {
		g.Go(func() error {
			_, _, err := p.toJob().Fill(ctx, func(ctx context.Context, c *image.Copying) (err error) {
				results[i], err = blockcopy.Copy(ctx, src, c.Target, blockcopy.Options{Manifest: c.Log})
				return err
			})
			return err
		})
	}
	err = g.Wait()
	m.addResult(src.Size(), results[0])
	return err
}

// newImageFiles prepares an image in each folder, and records it for removal.
func (m *measurement) newImageFiles(name string, size int64) ([]imageFile, error) {
	var made []imageFile
	for _, folder := range m.Folders {
		p, err := newImageFile(folder, name, size, m.Export == bench.Sync)
		if err != nil {
			return nil, err
		}
		made = append(made, p)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.images = append(m.images, made...)
	return made, nil
}

// addResult adds the sizes of a copied disk.
func (m *measurement) addResult(size int64, res blockcopy.Result) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.size += size
	m.allocated += res.Written
	m.read += res.Read
}

// removeFiles removes all files that the cell wrote.
func (m *measurement) removeFiles() error {
	errs := []error{removeAll(m.cloned)}
	for _, p := range m.images {
		errs = append(errs, p.removeFiles())
	}
	return errors.Join(errs...)
}
