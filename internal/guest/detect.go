package guest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/guest/budget"
)

// Detect reads the contents of src. The error concerns reading only: damaged or unknown structures
// become a Warning. It usually reads far less than its limits: one piece of 64 KiB for each partition,
// a few hundred blocks of a guest's files, and the initramfs of its newest kernels; for Windows some
// MiB of its registry and the map of free clusters.
func Detect(ctx context.Context, src disk.Source) (Report, error) {
	reports, err := DetectAll(ctx, []disk.Source{src})
	if err != nil {
		return Report{}, err
	}
	return reports[0], nil
}

// DetectEach opens the n disks of one VM, reads them as DetectAll does, and closes them.
func DetectEach(ctx context.Context, n int, open func(i int) (disk.Source, error)) (_ []Report, err error) {
	var srcs []disk.Source
	defer func() {
		for _, src := range srcs {
			err = errors.Join(err, src.Close())
		}
	}()
	for i := range n {
		src, err := open(i)
		if err != nil {
			return nil, err
		}
		srcs = append(srcs, src)
	}
	return DetectAll(ctx, srcs)
}

// DetectAll reads the disks of one VM, and returns a Report for each: a guest may have its volumes on
// several. The guest is described in the report of its root's disk.
//
// The disks are read within budget.Examination. If that is exhausted, no error is returned: the reports
// keep the earlier results, and have a Warning NotExamined with the reason.
func DetectAll(ctx context.Context, srcs []disk.Source) ([]Report, error) {
	b, cancel := budget.New(ctx, budget.Examination())
	defer cancel()
	return detectAll(ctx, b, srcs)
}

func detectAll(ctx context.Context, b *budget.Budget, srcs []disk.Source) ([]Report, error) {
	m := &machine{budget: b}
	for _, src := range srcs {
		m.disks = append(m.disks, &detector{disk: &window{budget: b, src: src, size: src.Size(), failed: new(error)}, machine: m})
	}
	for _, d := range m.disks {
		d.look()
	}
	m.assemble()
	m.guest()
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	reports := make([]Report, 0, len(srcs))
	for i, d := range m.disks {
		if err := *d.disk.failed; err != nil {
			return nil, fmt.Errorf("detect the guest, disk %d of %d: %w", i+1, len(srcs), err)
		}
		if err := b.Err(); err != nil {
			d.report.Warnings = append(d.report.Warnings, Warning{NotExamined, fmt.Sprintf("%v: what the report lacks may be there", err)})
		}
		reports = append(reports, d.report)
	}
	if err := b.Err(); err != nil && !slices.ContainsFunc(reports, func(r Report) bool { return r.Verdict != "" }) {
		reports[0].Verdict = err.Error()
	}
	return reports, nil
}

// NotExamined is the code of the Warning that a limit was reached: that of the examination, or
// that of a part of it, such as an initramfs.
const NotExamined = "not-examined"

// Examined returns an error with the reason if a part of the guest was not examined.
func Examined(reports []Report) error {
	for _, r := range reports {
		for _, w := range r.Warnings {
			if w.Code == NotExamined {
				return errors.New(w.Text)
			}
		}
	}
	return nil
}

// maxWarnings bounds the warnings on one disk: tables can name thousands of partitions.
const maxWarnings = 256

// A detector collects the Report of one disk.
type detector struct {
	disk    *window
	report  Report
	machine *machine
}

// look reads the partition table and the contents of the partitions.
func (d *detector) look() {
	d.table()
	d.findDynamic()
	for i := range d.report.Partitions {
		if d.machine.budget.Step(1) != nil {
			return
		}
		d.partition(&d.report.Partitions[i])
	}
	if d.report.Table == None {
		d.wholeDisk()
	}
	d.dynamic()
}

// warn adds a Warning. After the end of the budget it adds none: unread parts are not damaged.
func (d *detector) warn(code, format string, args ...any) {
	if d.machine.budget.Err() != nil {
		return
	}
	if len(d.report.Warnings) == maxWarnings {
		code, format, args = "warnings", "there are more than %d warnings", []any{maxWarnings}
	}
	if len(d.report.Warnings) > maxWarnings {
		return
	}
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
	v := d.volume(d.disk, "the whole disk")
	d.report.WholeDisk = v.kind
	if v.kind == LUKS {
		d.report.WholeUUID = v.uuid
		d.warn("encrypted", "the whole disk is encrypted (%s): the guest needs its key after the move", v.cipher)
	}
	d.keep(v)
	d.windows(0, "", v, d.disk)
}

// partition looks into one slice of the disk.
func (d *detector) partition(p *Partition) {
	if p.IsESP() {
		d.report.Boot.ESP = true
	}
	if isExtended(p.Type) {
		return // its partitions have separate entries
	}
	if p.Off < 0 || p.Len <= 0 || p.Off > d.disk.size || p.Len > d.disk.size-p.Off {
		d.warn("partition-outside", "partition %d, bytes %d to %d, is not within the disk of %d", p.Number, p.Off, p.Off+p.Len, d.disk.size)
		return
	}
	if d.inVolumes(p) {
		return // dynamic looks into those
	}
	slice := d.disk.slice(p.Off, p.Len)
	v := d.volume(slice, fmt.Sprintf("partition %d", p.Number))
	v.partition, v.devices = p.UUID, d.machine.partitionNames(d, p.Number)
	p.FileSystem, p.FSUUID, p.Label, p.Usage = v.kind, v.uuid, v.label, v.usage
	if p.FileSystem == LUKS {
		d.warn("encrypted", "partition %d is encrypted (%s): the guest needs its key after the move", p.Number, v.cipher)
	}
	d.keep(v)
	d.windows(p.Number, p.Type, v, slice)
}

func isExtended(kind string) bool { return kind == "05" || kind == "0f" || kind == "85" }

// A window is a slice of a disk as a budget.Reader. It remembers the first error of the
// disk itself, as distinct from a wish to read beyond the slice's end.
type window struct {
	budget *budget.Budget
	src    disk.Source
	off    int64
	size   int64
	failed *error // shared by all windows on a disk
}

// Budget is that of the examination.
func (w *window) Budget() *budget.Budget { return w.budget }

func (w *window) slice(off, size int64) *window {
	return &window{budget: w.budget, src: w.src, off: w.off + off, size: size, failed: w.failed}
}

func (w *window) ReadAt(p []byte, off int64) (int, error) {
	if off < 0 || off > w.size || int64(len(p)) > w.size-off {
		return 0, io.ErrUnexpectedEOF
	}
	if err := w.budget.Read(int64(len(p))); err != nil {
		return 0, err
	}
	if err := w.src.ReadAt(w.budget.Context(), p, w.off+off); err != nil {
		if spent := w.budget.Err(); spent != nil { // the read took too long
			return 0, spent
		}
		if *w.failed == nil {
			*w.failed = err
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
