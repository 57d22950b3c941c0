package migrate_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/decamp/decamp/internal/convert"
	"github.com/decamp/decamp/internal/convert/virtv2v"
	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/guest"
	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/journal"
	"github.com/decamp/decamp/internal/migrate"
	"github.com/decamp/decamp/internal/qcow2"
	"github.com/decamp/decamp/internal/targets"
)

// editedSource is a disk with edits.
type editedSource struct {
	disk.Source
	edits map[int64]string
}

func (d editedSource) ReadAt(ctx context.Context, p []byte, off int64) error {
	if err := d.Source.ReadAt(ctx, p, off); err != nil {
		return err
	}
	for at, text := range d.edits {
		both := disk.Range{Off: at, Len: int64(len(text))}.Intersect(disk.Range{Off: off, Len: int64(len(p))})
		if !both.Empty() {
			copy(p[both.Off-off:], text[both.Off-at:both.End()-at])
		}
	}
	return nil
}

// memDisk is a read-only disk in memory.
type memDisk []byte

func (d memDisk) Size() int64 { return int64(len(d)) }

func (d memDisk) ReadAt(_ context.Context, p []byte, off int64) error {
	copy(p, d[off:])
	return nil
}

func (memDisk) Extents(_ context.Context, r disk.Range) ([]disk.Extent, error) {
	return []disk.Extent{{Range: r}}, nil
}

func (memDisk) Hints() disk.Hints { return disk.Hints{} }
func (memDisk) Close() error      { return nil }

// fakeV2V is a virt-v2v that writes edits to its disks. In one more chunk it writes the same data again.
func (b *testBed) fakeV2V(ctx context.Context, j virtv2v.Job) (virtv2v.Report, error) {
	for i, path := range j.Disks {
		key := 2000 + int32(i)
		if !strings.HasSuffix(path, fmt.Sprintf("%d.v2v", key)) {
			return virtv2v.Report{}, fmt.Errorf("disk %d is %s", key, path)
		}
		var ranges []disk.Range
		for off := range edits[key] {
			ranges = append(ranges, disk.Range{Off: off, Len: int64(len(edits[key][off]))})
		}
		ranges = append(ranges, disk.Range{Off: 3 * mib, Len: 1}) // the same bytes
		slices.SortFunc(ranges, func(a, b disk.Range) int { return int(a.Off - b.Off) })
		if key == 2001 {
			ranges = ranges[:1]
		}
		if err := os.Remove(path); err != nil {
			return virtv2v.Report{}, err
		}
		data := editedSource{memDisk(b.disks[key]), edits[key]}
		if err := qcow2.WriteAbove(ctx, path, qcow2.Backing{Path: fmt.Sprint(key), Format: "raw"}, data, ranges); err != nil {
			return virtv2v.Report{}, err
		}
	}
	j.Report("Finishing off")
	return virtv2v.Report{Version: "2.2.0", Warnings: []string{"no way to update Grub2"}}, nil
}

func newV2VTestBed(t *testing.T) *testBed {
	b := newTestBed(t)
	b.hardware, b.engine, b.runV2V = journal.Virtio, journal.VirtV2V, b.fakeV2V
	return b
}

// The data that virt-v2v wrote is published, and its disks are removed.
func TestGuestIsConvertedByVirtV2V(t *testing.T) {
	t.Parallel()
	b := newV2VTestBed(t)
	out, err := b.migrate(migrate.Permit{})
	if err != nil {
		t.Fatal(err)
	}
	b.checkV2V(out)
	if chunks := out.Facts.Conversion.Images[0].Chunks; slices.Contains(chunks, 3) || len(chunks) != 3 {
		t.Errorf("changed chunks %v, want three without the unchanged chunk 3", chunks)
	}
	if notes := b.eventsOf(journal.Noted); !slices.ContainsFunc(notes, func(e journal.Event) bool { return e.Message == "virt-v2v: Finishing off" }) {
		t.Errorf("notes %+v", notes)
	}
}

// checkV2V checks that the published images are the disks with the edits of virt-v2v.
func (b *testBed) checkV2V(out migrate.Outcome) {
	b.t.Helper()
	if b.published == nil || b.published.Hardware != targets.VirtioBlk || b.published.Converted == nil || b.published.Converted.Engine != "virt-v2v 2.2.0" {
		b.t.Fatalf("published %+v", b.published)
	}
	for _, img := range b.published.Images {
		want := bytes.Clone(b.disks[img.Key])
		for off, text := range edits[img.Key] {
			copy(want[off:], text)
		}
		if m := b.images[img.Path]; !m.finished || !bytes.Equal(m.medium, want) {
			b.t.Errorf("image of disk %d is not the disk with the edits", img.Key)
		}
		b.checkRoots(img)
	}
	for _, pattern := range []string{"*.overlay", "*.v2v"} {
		if left, _ := filepath.Glob(filepath.Join(b.dir, pattern)); left != nil {
			b.t.Errorf("%v remain", left)
		}
	}
}

// After a failure during or after the conversion, the same command continues the run, and no file of virt-v2v
// remains.
func TestCrashOfAConversionByVirtV2V(t *testing.T) {
	t.Parallel()
	for name, at := range map[string]string{"image": "open image", "write": "write", "finish": "finish", "publish": "publish"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newV2VTestBed(t)
			b.failInCommit(at)
			if _, err := b.migrate(migrate.Permit{}); err == nil {
				t.Fatal("nothing failed")
			}
			b.before = failOperation("", nil)
			b.powerCut()
			out, err := b.migrate(migrate.Permit{})
			if err != nil {
				t.Fatal(err)
			}
			b.checkV2V(out)
		})
	}
	t.Run("virt-v2v", func(t *testing.T) {
		t.Parallel()
		b := newV2VTestBed(t)
		killed := errors.New("killed")
		b.runV2V = func(ctx context.Context, j virtv2v.Job) (virtv2v.Report, error) {
			_, err := b.fakeV2V(ctx, j)
			return virtv2v.Report{}, errors.Join(err, killed)
		}
		if _, err := b.migrate(migrate.Permit{}); !errors.Is(err, killed) {
			t.Fatal(err)
		}
		if left, _ := filepath.Glob(filepath.Join(b.dir, "*.v2v")); left != nil {
			t.Errorf("%v remain", left)
		}
		b.runV2V = b.fakeV2V
		out, err := b.migrate(migrate.Permit{})
		if err != nil {
			t.Fatal(err)
		}
		b.checkV2V(out)
	})
}

// The plan selects the engine. Without a selection, decamp uses linux-append if it supports the guest.
func TestEngineIsChosen(t *testing.T) {
	t.Parallel()
	refusal := fault.New(fault.Conflict, "virt-v2v: mounted read-only").WithHint("powercfg /h off")
	refuses := func(context.Context, virtv2v.Job) (virtv2v.Report, error) { return virtv2v.Report{}, refusal }
	for name, c := range map[string]struct {
		engine journal.Engine
		append func(context.Context, []convert.Disk, convert.Options) (convert.Result, error)
		v2v    func(context.Context, virtv2v.Job) (virtv2v.Report, error)
		want   string // engine, or text in the error
	}{
		"auto, taken":             {"", convertWithEdits, refuses, "linux-append"},
		"auto, refused, not here": {"", refuseConversion, nil, "its root is on XFS"},
		"auto, no system found":   {"", refuseConversion, refuses, "its root is on XFS"},
		"append, refused":         {journal.LinuxAppend, refuseConversion, refuses, "its root is on XFS"},
		"virt-v2v, refused":       {journal.VirtV2V, convertWithEdits, refuses, "mounted read-only"},
		"virt-v2v, not here":      {journal.VirtV2V, convertWithEdits, nil, "not installed"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newTestBed(t)
			b.hardware, b.engine, b.convert, b.runV2V = journal.Virtio, c.engine, c.append, c.v2v
			out, err := b.migrate(migrate.Permit{})
			if err != nil {
				if !strings.Contains(err.Error(), c.want) || fault.HintOf(err) == "" || b.published != nil {
					t.Errorf("%v (%s)", err, fault.HintOf(err))
				}
				return
			}
			if got := out.Facts.Conversion.Engine; got != c.want {
				t.Errorf("converted by %q, want %q", got, c.want)
			}
		})
	}
}

// With auto hardware a guest that virt-v2v refuses keeps its original hardware. The same run can continue with
// another engine.
func TestGuestRefusedByVirtV2V(t *testing.T) {
	t.Parallel()
	b := newV2VTestBed(t)
	b.runV2V = func(context.Context, virtv2v.Job) (virtv2v.Report, error) {
		return virtv2v.Report{}, fault.New(fault.Unsupported, "virt-v2v: no system").WithHint("see its log")
	}
	if _, err := b.migrate(migrate.Permit{}); !fault.Is(err, fault.Unsupported) {
		t.Fatal(err)
	}
	written := b.written.Load()
	b.engine, b.convert = journal.LinuxAppend, refuseConversion
	if _, err := b.migrate(migrate.Permit{}); !fault.Is(err, fault.Unsupported) || !strings.Contains(err.Error(), "on XFS") {
		t.Fatal(err)
	}
	b.hardware = journal.AutoHardware
	out, err := b.migrate(migrate.Permit{})
	if err != nil || b.published.Hardware != targets.Compat || b.written.Load() != written {
		t.Fatalf("hardware %q, %d more writes, %v", b.published.Hardware, b.written.Load()-written, err)
	}
	b.checkPublished(out)
}

// If the machine has no room for virt-v2v, the guest does not count as unsupported.
func TestVirtV2VFullDiskIsNotUnsupported(t *testing.T) {
	t.Parallel()
	b := newV2VTestBed(t)
	b.hardware = journal.AutoHardware
	b.runV2V = func(context.Context, virtv2v.Job) (virtv2v.Report, error) {
		return virtv2v.Report{}, fault.New(fault.Full, "%w: /srv has 3 MiB left", fault.ErrNoRoom).WithHint("make room")
	}
	if _, err := b.migrate(migrate.Permit{}); !fault.Is(err, fault.Full) || b.published != nil {
		t.Errorf("%v", err)
	}
}

func TestGuestsUnsupportedByVirtV2V(t *testing.T) {
	t.Parallel()
	w := &guest.Windows{Product: "Windows 10 Pro"}
	for name, reports := range map[string][]guest.Report{
		"bitlocker":  {{}, {Partitions: []guest.Partition{{Number: 3, FileSystem: guest.BitLocker}}}},
		"luks":       {{OS: guest.OS{ID: "debian"}, Volumes: []guest.Volume{{Group: "vg0", Name: "data", FileSystem: guest.LUKS, FSUUID: "1-2"}}}},
		"ntfs-dirty": {{Windows: w, Warnings: []guest.Warning{{Code: "ntfs-dirty", Text: "partition 2 is dirty"}}}},
		"dynamic":    {{Windows: &guest.Windows{Dynamic: true}}},
	} {
		if err := migrate.TakenByV2V(reports, []virtv2v.Key{{ID: "/dev/sda3", File: "k"}}); err == nil || fault.HintOf(err) == "" || !migrate.IsRefusal(err) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := migrate.TakenByV2V([]guest.Report{{Windows: w, Warnings: []guest.Warning{{Code: "static-address"}}}}, nil); err != nil {
		t.Error(err)
	}
}

// A warm run does not run virt-v2v while the VM runs. It warns that the conversion happens in the outage.
func TestWarmRunUsesVirtV2VInTheOutage(t *testing.T) {
	t.Parallel()
	b := newWarmTestBed(t, 44)
	b.hardware, b.engine = journal.Virtio, journal.VirtV2V
	b.runV2V = func(ctx context.Context, j virtv2v.Job) (virtv2v.Report, error) {
		if b.vm.Power == inventory.PoweredOn {
			t.Error("virt-v2v ran while the VM was on")
		}
		return virtv2v.Report{}, fault.New(fault.Unsupported, "virt-v2v: no system").WithHint("see its log")
	}
	_, err := b.migrateWarm(2)
	if !fault.Is(err, fault.Unsupported) || !strings.Contains(err.Error(), "no system") || !strings.Contains(fault.HintOf(err), "decamp rollback "+string(b.plan().ID)) {
		t.Errorf("%v (%s)", err, fault.HintOf(err))
	}
	warned := slices.ContainsFunc(b.eventsOf(journal.Warned), func(e journal.Event) bool {
		return e.Warning.Code == "not-looked" && strings.Contains(e.Warning.Text, "the conversion requires virt-v2v")
	})
	if !warned {
		t.Error("no warning not-looked before the outage")
	}
}
