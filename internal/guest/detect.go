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

// Detect reads the contents of src. Errors concern reading only: damaged or unknown structures
// become a Warning. It usually reads far less than its limits: 64 KiB of each partition, a few
// hundred blocks of a guest's files, and the initramfs of its newest kernels; for Windows some MiB
// of the registry and the map of free clusters.
func Detect(ctx context.Context, src disk.Source) (Report, error) {
	reports, err := DetectAll(ctx, []disk.Source{src})
	if err != nil {
		return Report{}, err
	}
	return reports[0], nil
}

// DetectEach opens the n disks of one VM, examines them as DetectAll does, and closes them.
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

// DetectAll examines the disks of one VM and returns a Report for each, because the guest may have its
// volumes on several disks. The report of the root volume's disk describes the guest.
//
// The disks are read within budget.Examination. If that is exhausted, DetectAll returns no error: the
// reports keep the earlier results and have the Warning NotExamined with the reason.
func DetectAll(ctx context.Context, srcs []disk.Source) ([]Report, error) {
	b, cancel := budget.New(ctx, budget.Examination())
	defer cancel()
	return detectAll(ctx, b, srcs)
}

// detectAll examines srcs at the cost of b: first each disk, then the logical volumes on all of
// them, then the guest. It fails if a disk cannot be read or ctx ends.
func detectAll(ctx context.Context, b *budget.Budget, srcs []disk.Source) ([]Report, error) {
	m := &machine{budget: b}
	for _, src := range srcs {
		m.disks = append(m.disks, &detector{disk: &window{budget: b, src: src, size: src.Size(), failed: new(error)}, machine: m})
	}
	// Logical volumes may span disks, so all disks are read before they are assembled.
	for _, d := range m.disks {
		d.examine()
	}
	m.assembleLVM()
	m.examineGuest()
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	reports := make([]Report, 0, len(srcs))
	for i, d := range m.disks {
		if err := *d.disk.failed; err != nil {
			return nil, fmt.Errorf("detect the guest, disk %d of %d: %w", i+1, len(srcs), err)
		}
		// An exhausted budget is not an error: earlier results remain valid.
		if err := b.Err(); err != nil {
			d.report.Warnings = append(d.report.Warnings, Warning{NotExamined, fmt.Sprintf("%v: the report may be incomplete", err)})
		}
		reports = append(reports, d.report)
	}
	if err := b.Err(); err != nil && !slices.ContainsFunc(reports, func(r Report) bool { return r.Verdict != "" }) {
		reports[0].Verdict = err.Error()
	}
	return reports, nil
}

// NotExamined is the code of the Warning that a limit was reached: the limit of the examination, or
// of a part of it, such as an initramfs.
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

// maxWarnings limits the warnings about one disk: a table can contain thousands of partitions.
const maxWarnings = 256

// A detector examines one disk and collects its Report.
type detector struct {
	disk    *window  // the whole disk
	report  Report   // results so far
	machine *machine // guest to which the disk belongs
}

// examine reads the partition table and the contents of the partitions and dynamic volumes.
func (d *detector) examine() {
	d.readTable()
	d.findDynamic()
	for i := range d.report.Partitions {
		if d.machine.budget.Step(1) != nil {
			return
		}
		d.examinePartition(&d.report.Partitions[i])
	}
	if d.report.Table == None {
		d.examineWholeDisk()
	}
	d.examineDynamic()
}

// warn adds a Warning. It adds none after the budget is exhausted, because unread parts would look
// damaged, and none beyond maxWarnings.
func (d *detector) warn(code, format string, args ...any) {
	if d.machine.budget.Err() != nil {
		return
	}
	if len(d.report.Warnings) == maxWarnings {
		code, format, args = "warnings", "there are more than %d warnings, the others are not listed", []any{maxWarnings}
	}
	if len(d.report.Warnings) > maxWarnings {
		return
	}
	d.report.Warnings = append(d.report.Warnings, Warning{Code: code, Text: fmt.Sprintf(format, args...)})
}

// readTable determines the kind of the partition table and reads it. The boot sector of a FAT or NTFS
// volume looks like an MBR, so readTable checks for file systems first.
func (d *detector) readTable() {
	sector := make([]byte, disk.SectorSize)
	if !d.disk.readFull(sector, 0) {
		d.report.Table = None
		return
	}
	// The boot sector of a file system also ends with the signature of an MBR.
	onWhole, _ := identifyFS(d.disk.readHead())
	entries, ok := parseMBR(sector)
	switch {
	case !ok || onWhole == FAT || onWhole == NTFS || onWhole == BitLocker:
		d.report.Table = None
	case isProtective(entries):
		d.report.Table = GPT
		d.readGPTs()
	default:
		d.report.Table = MBR
		d.readMBR(entries)
	}
	d.report.Boot.MBRCode = d.report.Table != GPT && ok && hasCode(sector)
}

// examineWholeDisk examines the file system of a disk without a partition table.
func (d *detector) examineWholeDisk() {
	v := d.openVolume(d.disk, "the whole disk")
	d.report.WholeDisk = v.kind
	if v.kind == LUKS {
		d.report.WholeUUID = v.uuid
		d.warn("encrypted", "the whole disk is encrypted (%s): the guest requires its key after the migration", v.cipher)
	}
	d.addVolume(v)
	d.examineWindows(0, "", v, d.disk)
}

// examinePartition examines the content of one partition and completes its description.
func (d *detector) examinePartition(p *Partition) {
	if p.IsESP() {
		d.report.Boot.ESP = true
	}
	if isExtended(p.Type) {
		return // its partitions have separate entries
	}
	if p.Off < 0 || p.Len <= 0 || p.Off > d.disk.size || p.Len > d.disk.size-p.Off {
		d.warn("partition-outside", "partition %d (bytes %d to %d) exceeds the disk of %d bytes", p.Number, p.Off, p.Off+p.Len, d.disk.size)
		return
	}
	if d.isInVolumes(p) {
		return // examineDynamic examines those
	}
	slice := d.disk.subWindow(p.Off, p.Len)
	v := d.openVolume(slice, fmt.Sprintf("partition %d", p.Number))
	// fstab may refer to the partition by one of these names.
	v.partition, v.devices = p.UUID, d.machine.partitionNames(d, p.Number)
	p.FileSystem, p.FSUUID, p.Label, p.Usage = v.kind, v.uuid, v.label, v.usage
	if p.FileSystem == LUKS {
		d.warn("encrypted", "partition %d is encrypted (%s): the guest requires its key after the migration", p.Number, v.cipher)
	}
	d.addVolume(v)
	d.examineWindows(p.Number, p.Type, v, slice)
}

// isExtended reports whether an MBR type is that of an extended partition.
func isExtended(kind string) bool { return kind == "05" || kind == "0f" || kind == "85" }

// A window is a range of a disk as a budget.Reader. It stores the first error of the disk itself, but
// not errors about reads beyond the range, which invalid structures cause.
type window struct {
	budget *budget.Budget // budget that reads are charged to
	src    disk.Source    // disk that contains the range
	off    int64          // offset of the range on the disk
	size   int64          // bytes of the range
	failed *error         // first read error; shared by all windows of a disk
}

// Budget returns the budget of the examination.
func (w *window) Budget() *budget.Budget { return w.budget }

// subWindow returns a part of the window; off counts from its beginning. The caller must check that the
// part is within the window.
func (w *window) subWindow(off, size int64) *window {
	return &window{budget: w.budget, src: w.src, off: w.off + off, size: size, failed: w.failed}
}

// ReadAt fills p from off. It fails with io.ErrUnexpectedEOF if the range exceeds the window, and with
// the budget's error if that is exhausted.
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
		// Only the first error is interesting; others usually follow from it.
		if *w.failed == nil {
			*w.failed = err
		}
		return 0, err
	}
	return len(p), nil
}

// readFull fills p from off and reports whether it succeeded.
func (w *window) readFull(p []byte, off int64) bool {
	_, err := w.ReadAt(p, off)
	return err == nil
}

// readHead returns the first headLen bytes, or all bytes of a smaller window. It returns nil if they
// cannot be read.
func (w *window) readHead() []byte {
	p := make([]byte, min(headLen, w.size))
	if !w.readFull(p, 0) {
		return nil
	}
	return p
}
