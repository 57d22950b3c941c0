package export

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/readahead"
	"github.com/decamp/decamp/internal/transport"
	"github.com/decamp/decamp/internal/transport/https"
	"github.com/decamp/decamp/internal/units"
)

// Names of transports. Auto is the first one that can read all disks.
const (
	Auto  = "auto"
	HTTPS = "https"
	NFC   = "nfc"
)

// TransportFlags are the flags of migrations that apply to transports with random access.
var TransportFlags = []string{"connections", "nfc-handles", "network", "nfc-plain"}

// checkTransport refuses transports without random access.
func checkTransport(name string) error {
	switch name {
	case Auto, HTTPS, NFC:
		return nil
	case "landing":
		return fault.New(fault.Unsupported, "transport landing has no random access: the host writes whole disks to decamp").
			WithHint("use --transport https, nfc or auto")
	}
	return fault.New(fault.Invalid, "--transport %q: want auto, https or nfc", name)
}

// chooseDisks returns the disks of vm with these keys; without keys all disks.
func chooseDisks(vm *inventory.VM, keys []int32) (disks []*inventory.Disk, err error) {
	for i := range vm.Disks {
		if len(keys) == 0 || slices.Contains(keys, vm.Disks[i].Key) {
			disks = append(disks, &vm.Disks[i])
		}
	}
	for _, d := range disks {
		if d.Backing == inventory.RDM {
			return nil, fault.New(fault.Unsupported, "disk %d of VM %s is a raw device mapping: its data is on a LUN, which no transport with random access reads", d.Key, vm.Name).
				WithHint("select other disks with --disk; decamp migrate --transport landing copies the VM with this disk")
		}
	}
	for _, key := range keys {
		if _, exists := vm.Disk(key); !exists {
			return nil, fault.New(fault.NotFound, "VM %s has no disk %d", vm.Name, key).WithHint("its disks: %s", listDisks(vm))
		}
	}
	if len(disks) == 0 {
		return nil, fault.New(fault.NotFound, "VM %s has no disks", vm.Name).WithHint("list the VMs with decamp ls")
	}
	return disks, nil
}

// listDisks returns the disks of vm for messages.
func listDisks(vm *inventory.VM) string {
	var list []string
	for _, d := range vm.Disks {
		list = append(list, fmt.Sprintf("%d (%s, %s, %s)", d.Key, d.Label, units.Binary(d.Capacity), d.Path))
	}
	return strings.Join(list, ", ")
}

// source is a disk that a transport has opened.
type source interface {
	disk.Source
	Path() inventory.Path // datastore path of the file
}

// reader is a transport with random access.
type reader struct {
	transport.Transport
	// opens a disk; read returns the bytes that were read from the host so far
	open func(ctx context.Context, d transport.Disk) (src source, read func() int64, err error)
}

// newReader returns the transport with that name, which is https or nfc.
func (e *Export) newReader(name string) *reader {
	if name == HTTPS {
		t := https.New(e.source.Session, https.Options{MaxConnections: e.options.Reads.Connections, Stall: stall, Log: e.assembler.Log})
		return &reader{t, func(ctx context.Context, d transport.Disk) (source, func() int64, error) {
			src, err := t.Open(ctx, d)
			if err != nil {
				return nil, nil, err // not a nil *https.Source in an interface
			}
			return src, func() int64 { return src.Report().Body }, nil
		}}
	}
	t := e.assembler.NewNFC(e.source.Parts, e.options.Reads.NFC, stall)
	return &reader{t, func(ctx context.Context, d transport.Disk) (source, func() int64, error) {
		src, err := t.Open(ctx, d)
		if err != nil {
			return nil, nil, err
		}
		return src, func() int64 { return src.Report().Read }, nil
	}}
}

// stall is the time after which a connection that delivers nothing is replaced. It is short, because a read
// has a time limit.
const stall = 20 * time.Second

// openDisks opens the disks with the requested transport; with Auto by the first one that reads all of
// them.
func (e *Export) openDisks(ctx context.Context, disks []*inventory.Disk, snapshot inventory.MoRef) error {
	names := []string{e.options.Transport}
	if e.options.Transport == Auto {
		names = []string{HTTPS, NFC}
	}
	var refusals []error
	for _, name := range names {
		e.reader = e.newReader(name)
		err := e.openWith(ctx, disks, snapshot)
		if err == nil {
			return nil
		}
		err = errors.Join(fmt.Errorf("transport %s: %w", name, err), e.closeDisks())
		refusals = append(refusals, err)
		if _, other := transport.Refusal(err); other != nil { // not an obstacle of the disk
			break
		}
	}
	return joinRefusals(e.vm.Name, refusals)
}

// joinRefusals returns one error for the errors of all transports that were tried.
func joinRefusals(vm string, refusals []error) error {
	last := refusals[len(refusals)-1]
	var texts, remedies []string
	for _, err := range refusals {
		texts = append(texts, fault.OneLine(err.Error()))
		if remedy := fault.HintOf(err); remedy != "" && !slices.Contains(remedies, remedy) {
			remedies = append(remedies, remedy)
		}
	}
	return fault.New(fault.KindOf(last), "VM %s cannot be served: %s", vm, strings.Join(texts, "; ")).WithHint("%s", strings.Join(remedies, "; or "))
}

// openWith opens the disks with e.reader, and reads the first sector of each, which proves access and
// lock.
func (e *Export) openWith(ctx context.Context, disks []*inventory.Disk, snapshot inventory.MoRef) error {
	for _, d := range disks {
		src, read, err := e.reader.open(ctx, transport.Disk{VM: e.vm, Disk: d, Snapshot: snapshot})
		if err != nil {
			return err
		}
		memory := readahead.ExportOptions()
		memory.ReadTimeout = e.options.ReadTimeout
		path := d.Path
		if snapshot != "" {
			path = src.Path() // a base or a delta disk
		}
		s := &servedDisk{key: d.Key, path: path, size: src.Size(), read: read, cache: readahead.New(memory)}
		s.file = s.cache.Open(context.WithoutCancel(ctx), fmt.Sprintf("disk %d", d.Key), src)
		e.disks = append(e.disks, s)
		if err := src.ReadAt(ctx, make([]byte, min(disk.SectorSize, src.Size())), 0); err != nil {
			return fmt.Errorf("read disk %d: %w", d.Key, err)
		}
	}
	return nil
}

// closeDisks closes all disks and the transport.
func (e *Export) closeDisks() error {
	var errs []error
	for _, d := range e.disks {
		errs = append(errs, d.file.Close(), d.cache.Close())
	}
	e.disks = nil
	if e.reader != nil {
		errs = append(errs, e.reader.Close())
		e.reader = nil
	}
	return errors.Join(errs...)
}

// servedDisk is a disk with read-ahead. It is the nbd.Reader and nbd.Viewer of an export.
type servedDisk struct {
	key   int32            // device key
	path  inventory.Path   // datastore path of the disk or, at a snapshot, of the file that is read
	size  int64            // size in bytes
	file  *readahead.File  // content; owns the source
	cache *readahead.Cache // memory of file
	read  func() int64     // returns the bytes that were read from the host

	served atomic.Int64 // bytes that were sent to clients
}

// name returns the name of the disk's export.
func (d *servedDisk) name() string { return fmt.Sprintf("disk-%d", d.key) }

// description returns the text of the disk's export.
func (d *servedDisk) description() string { return fmt.Sprintf("%s, %s", d.path, units.Binary(d.size)) }

// Size implements nbd.Reader.
func (d *servedDisk) Size() int64 { return d.size }

// Extents implements nbd.Reader.
func (d *servedDisk) Extents(ctx context.Context, r disk.Range) ([]disk.Extent, error) {
	return d.file.Extents(ctx, r)
}

// ReadAt implements nbd.Reader.
func (d *servedDisk) ReadAt(ctx context.Context, p []byte, off int64) error {
	if err := d.file.ReadAt(ctx, p, off); err != nil {
		return withRemedy(err)
	}
	d.served.Add(int64(len(p)))
	return nil
}

// View implements nbd.Viewer.
func (d *servedDisk) View(ctx context.Context, dest []byte, off int64) ([]byte, func(), error) {
	data, release, err := d.file.View(ctx, dest, off)
	if err != nil {
		return data, release, withRemedy(err)
	}
	d.served.Add(int64(len(data)))
	return data, release, nil
}

// withRemedy adds the remedy to the text of a failed read, because the log of the server has only the text.
func withRemedy(err error) error {
	if remedy := fault.HintOf(err); remedy != "" {
		return fmt.Errorf("%w; remedy: %s", err, remedy)
	}
	return err
}

// checkIncluded refuses disks of a running VM that its snapshots do not include.
func checkIncluded(vm *inventory.VM, disks []*inventory.Disk) error {
	for _, d := range disks {
		if d.Mode != "" && d.Mode != "persistent" {
			return fault.New(fault.Conflict, "VM %s runs, and snapshots do not include its disk %d, which is %s", vm.Name, d.Key, d.Mode).
				WithHint("power the VM off, or select other disks with --disk: %s", listDisks(vm))
		}
	}
	return nil
}
