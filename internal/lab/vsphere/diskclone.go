package vsphere

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"strings"
	"time"

	"github.com/vmware/govmomi/vim25/types"

	"github.com/decamp/decamp/internal/lab/nfsclient"
)

// cloneBlock is the size of vmkfstools' reads and writes, and the unit of zeros that it leaves out of
// thin copies, in bytes (device counters of a published benchmark).
const cloneBlock = 64 << 10

// zeroBlock is compared with blocks of thin copies.
var zeroBlock [cloneBlock]byte

// Why a clone fails.
var (
	errNoSource = errors.New("the source disk was not found")           // no such source disk
	errNoTarget = errors.New("the destination datastore was not found") // the host has not mounted the destination
	// the destination is a datastore of the emulator itself
	errReadOnly  = errors.New("the emulator's datastores are read-only")
	errInUse     = errors.New("failed to lock the file")                 // a running VM writes to the source link
	errExists    = errors.New("the file already exists")                 // a file of the destination exists
	errKilled    = errors.New("killed")                                  // the process of the copy was killed
	errInjected  = errors.New("input/output error")                      // FaultCloneFail
	errBadFormat = errors.New("the disk format is not supported on NFS") // vmkfstools does not support the format
)

// cloneFormats are the formats of vmkfstools -d on NFS, and whether blocks of zeros are written.
// eagerzeroedthick is not documented for NFS without VAAI; users report that it works.
var cloneFormats = map[string]bool{"thin": false, "zeroedthick": true, "thick": true, "eagerzeroedthick": true}

// A clone is one execution of vmkfstools -i SRC DST -d FORMAT.
type clone struct {
	source diskLink             // link to read
	to     *nasMount            // mount of the destination
	path   string               // path of the new descriptor on to
	zeros  bool                 // whether blocks of zeros are written
	report func(percent int)    // receives each percentage
	fault  *injected            // fault of the copy; nil if none
	client *nfsclient.Datastore // client of the destination
	depth  int                  // WRITEs in flight; 0 is the client's default
}

// newClone checks source, destination and format. It writes nothing.
func (l *Lab) newClone(host types.ManagedObjectReference, src, dst volumePath, format string, report func(int)) (*clone, error) {
	zeros, known := cloneFormats[format]
	if !known {
		return nil, fmt.Errorf("%w: %s", errBadFormat, format)
	}
	dc := l.hostDatacenter(host)
	source, found := l.findLink(dc, src)
	if !found {
		return nil, fmt.Errorf("%s: %w", src, errNoSource)
	}
	if source.isActive() { // only the links below are readable
		return nil, fmt.Errorf("%s: %w", src, errInUse)
	}
	to := l.nasMounts.findMount(host, dst.datastore)
	if to == nil {
		if dc.findDatastore(dst.datastore) != nil {
			return nil, fmt.Errorf("%s: %w", dst, errReadOnly)
		}
		return nil, fmt.Errorf("%s: %w", dst, errNoTarget)
	}
	return &clone{
		source: source, to: to, path: dst.path, zeros: zeros, report: report, client: to.client,
		fault: l.faults.takeClone(dst.path), depth: l.cfg.NFS.InFlight,
	}, nil
}

// copyFiles copies the flat file first and the descriptor last. If it fails, it removes its files; if
// the process is killed, they remain.
func (c *clone) copyFiles(ctx context.Context) error {
	if _, err := c.client.Stat(ctx, c.path); !errors.Is(err, fs.ErrNotExist) {
		if err == nil {
			err = fmt.Errorf("%s: %w", c.path, errExists)
		}
		return err
	}
	flat := strings.TrimSuffix(c.path, ".vmdk") + "-flat.vmdk"
	f, err := c.client.Create(ctx, flat)
	if errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("%s: %w", flat, errExists)
	}
	if err != nil {
		return err
	}
	err = c.writeFlat(ctx, f)
	if err == nil {
		err = c.writeDescriptor(ctx, path.Base(flat))
	}
	after, cancel := context.WithTimeout(context.WithoutCancel(ctx), unmountTimeout)
	defer cancel()
	err = errors.Join(err, f.Close(after))
	if err != nil && !errors.Is(err, errKilled) && !errors.Is(err, errHostGone) {
		_ = c.client.Remove(after, flat) // the first error has the cause
	}
	return err
}

// writeFlat sets the length of the flat file and writes its blocks.
func (c *clone) writeFlat(ctx context.Context, f *nfsclient.File) error {
	data := c.source.chainView()
	if err := f.Truncate(ctx, data.Size()); err != nil {
		return err
	}
	w := f.NewWriter(ctx, c.depth) // 0 selects the client's default
	err := c.copyBlocks(ctx, data, w)
	return errors.Join(err, w.Close())
}

// copyBlocks copies all blocks and reports the progress.
func (c *clone) copyBlocks(ctx context.Context, data content, w *nfsclient.Writer) error {
	percent := -1
	block := make([]byte, cloneBlock)
	for off := int64(0); off < data.Size(); off += cloneBlock {
		if now := int(off * 100 / data.Size()); now != percent {
			percent = now
			c.report(percent)
		}
		if err := errors.Join(context.Cause(ctx), c.fault.atBlock(ctx, off)); err != nil {
			return err
		}
		if err := c.copyBlock(ctx, data, w, block[:min(cloneBlock, data.Size()-off)], off); err != nil {
			return err
		}
	}
	return nil
}

// copyBlock reads one block, at the rate of the source's datastore, and writes it. A block that the
// source never allocated is not read.
func (c *clone) copyBlock(ctx context.Context, data content, w *nfsclient.Writer, block []byte, off int64) error {
	start, _, err := data.nextData(off)
	if err != nil {
		return err
	}
	hole := start >= off+int64(len(block))
	if hole && !c.zeros { // thin: the target file has the hole already
		return nil
	}
	if !hole {
		if err := sleepContext(ctx, c.source.disk.ds.rate.reserveBytes(len(block), time.Now())); err != nil {
			return context.Cause(ctx)
		}
	}
	if n, err := data.ReadAt(block, off); n != len(block) && err != nil && err != io.EOF {
		return err
	}
	c.fault.flipSent(block, off, off)
	if !c.zeros && bytes.Equal(block, zeroBlock[:len(block)]) {
		return nil
	}
	return w.WriteAt(block, off)
}

// writeDescriptor writes the descriptor of a base disk, also if the source is a delta.
func (c *clone) writeDescriptor(ctx context.Context, flat string) error {
	d := c.source.disk
	spec := d.spec
	spec.Thick, spec.RDM = c.zeros, "" // a copy is never an RDM
	copied := &vdisk{spec: spec, id: d.id + c.path, vm: &machine{}, ds: &datastore{spec: Datastore{Type: "NFS"}}, content: c.source.chainView(), changes: newChangeLog(false)}
	f, err := c.client.Create(ctx, c.path)
	if err != nil {
		return err
	}
	err = f.WriteAt(ctx, []byte(copied.descriptorText(chainLink{name: path.Base(c.path), data: flat})), 0)
	c.report(100)
	return errors.Join(err, f.Close(ctx))
}

// Clone runs vmkfstools -i src dst -d format on the first host. Paths are "[datastore]
// folder/name.vmdk" or below /vmfs/volumes. report receives each percentage; it may be nil.
func (l *Lab) Clone(ctx context.Context, src, dst, format string, report func(percent int)) error {
	if report == nil {
		report = func(int) {}
	}
	return l.runClone(ctx, l.datacenters[0].hosts[0], src, dst, format, report)
}

// runClone copies a disk on a host. The copy ends with ctx, or when the host loses power.
func (l *Lab) runClone(ctx context.Context, host types.ManagedObjectReference, src, dst, format string, report func(int)) error {
	from, err := parseVolumePath(src)
	if err != nil {
		return err
	}
	to, err := parseVolumePath(dst)
	if err != nil {
		return err
	}
	c, err := l.newClone(host, from, to, format, report)
	if err != nil {
		return fmt.Errorf("clone %s: %w", src, err)
	}
	ctx, cancel := l.jobs.jobContext(ctx)
	defer cancel()
	if err := c.copyFiles(ctx); err != nil {
		return fmt.Errorf("clone %s to %s: %w", src, dst, err)
	}
	return nil
}
