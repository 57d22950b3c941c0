package guest

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/decamp/decamp/internal/disk"
)

// Detect reads what is on src. The error is about reading only: what is damaged or
// strange on the disk becomes a Warning. It reads maxRead at most, and mostly far less:
// one piece of 64 KiB for each partition and a few blocks for the os-release, of a
// Windows some MiB of its registry and the map of free clusters.
func Detect(ctx context.Context, src disk.Source) (Report, error) {
	left := int64(maxRead)
	d := &detector{disk: &window{ctx: ctx, src: src, size: src.Size(), left: &left}}
	d.table()
	d.findDynamic()
	for i := range d.report.Partitions {
		d.partition(&d.report.Partitions[i])
	}
	if d.report.Table == None {
		d.wholeDisk()
	}
	d.dynamic()
	if err := d.disk.failed; err != nil {
		return Report{}, fmt.Errorf("detect the guest: %w", err)
	}
	if left < 0 {
		d.warn("too-much", "the disk asks for more than %d MiB to be read; the report is not complete", maxRead>>20)
	}
	return d.report, nil
}

// maxRead bounds the bytes read from one disk: tables can name thousands of partitions.
const maxRead = 64 << 20

// A detector collects one Report.
type detector struct {
	disk   *window
	report Report
}

func (d *detector) warn(code, format string, args ...any) {
	d.report.Warnings = append(d.report.Warnings, Warning{Code: code, Text: fmt.Sprintf(format, args...)})
}

// table decides how the disk is cut. A boot sector of FAT or NTFS looks like an MBR
// but for its own magic, so file systems are asked first.
func (d *detector) table() {
	sector := make([]byte, disk.SectorSize)
	if !d.disk.read(sector, 0) {
		d.report.Table = None
		return
	}
	onWhole, _ := identify(d.disk.head())
	entries, ok := parseMBR(sector)
	switch {
	case !ok || onWhole == FAT || onWhole == NTFS || onWhole == BitLocker:
		d.report.Table = None
	case isProtective(entries):
		d.report.Table = GPT
		d.gpt()
	default:
		d.report.Table = MBR
		d.mbr(entries)
	}
	d.report.Boot.MBRCode = d.report.Table != GPT && ok && hasCode(sector)
}

func (d *detector) wholeDisk() {
	d.report.WholeDisk, _ = identify(d.disk.head())
	d.readOS(d.report.WholeDisk, d.disk)
	d.windows(0, "", d.report.WholeDisk, d.disk)
}

// partition looks into one slice of the disk.
func (d *detector) partition(p *Partition) {
	if p.Type == espGUID || p.Type == "ef" {
		d.report.Boot.ESP = true
	}
	if isExtended(p.Type) {
		return // what is in it has entries of its own
	}
	if p.Off < 0 || p.Len <= 0 || p.Off > d.disk.size || p.Len > d.disk.size-p.Off {
		d.warn("partition-outside", "partition %d, bytes %d to %d, is not within the disk of %d", p.Number, p.Off, p.Off+p.Len, d.disk.size)
		return
	}
	if d.inVolumes(p) {
		return // dynamic looks into those
	}
	slice := d.disk.slice(p.Off, p.Len)
	p.FileSystem, p.FSUUID = identify(slice.head())
	if p.FileSystem == LUKS {
		d.warn("encrypted", "partition %d is encrypted (%s): the guest needs its key after the move", p.Number, p.FileSystem)
	}
	d.readOS(p.FileSystem, slice)
	d.windows(p.Number, p.Type, p.FileSystem, slice)
	d.disk.adopt(slice)
}

func isExtended(kind string) bool { return kind == "05" || kind == "0f" || kind == "85" }

// A window is a slice of a disk as an io.ReaderAt. It remembers the first error of the
// disk itself, as distinct from a wish to read beyond the slice's end.
type window struct {
	ctx    context.Context
	src    disk.Source
	off    int64
	size   int64
	left   *int64 // bytes that may still be read, shared by all windows on a disk
	failed error
}

var errTooMuch = errors.New("too much to read")

func (w *window) slice(off, size int64) *window {
	return &window{ctx: w.ctx, src: w.src, off: w.off + off, size: size, left: w.left}
}

// adopt takes over the error of a slice.
func (w *window) adopt(slice *window) {
	if w.failed == nil {
		w.failed = slice.failed
	}
}

func (w *window) ReadAt(p []byte, off int64) (int, error) {
	if off < 0 || off > w.size || int64(len(p)) > w.size-off {
		return 0, io.ErrUnexpectedEOF
	}
	if *w.left -= max(int64(len(p)), disk.SectorSize); *w.left < 0 {
		return 0, errTooMuch
	}
	if err := w.src.ReadAt(w.ctx, p, w.off+off); err != nil {
		if w.failed == nil {
			w.failed = err
		}
		return 0, err
	}
	return len(p), nil
}

// read fills p from off, or reports that it could not.
func (w *window) read(p []byte, off int64) bool {
	_, err := w.ReadAt(p, off)
	return err == nil
}

// head returns the first headLen bytes, or as many as there are; nothing if they cannot
// be read.
func (w *window) head() []byte {
	p := make([]byte, min(headLen, w.size))
	if !w.read(p, 0) {
		return nil
	}
	return p
}
