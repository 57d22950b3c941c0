package matrix

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/decamp/decamp/internal/bench"
	"github.com/decamp/decamp/internal/blockcopy"
	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/transport"
)

const testSize = 40 << 20

// A fakeTransport is a transport of generated disks that are half full.
type fakeTransport struct{ fail error }

func (fakeTransport) Name() string { return "https" }
func (fakeTransport) Probe(context.Context, transport.Disk) (transport.Offer, error) {
	return transport.Offer{Usable: true}, nil
}
func (p fakeTransport) Transfer(ctx context.Context, job transport.Job) (blockcopy.Result, error) {
	if p.fail != nil {
		return blockcopy.Result{}, p.fail
	}
	return transport.Pull(ctx, func(context.Context, transport.Disk) (disk.Source, error) {
		return disk.NewSparsePattern(testSize, 0.5, 1), nil
	}, job)
}
func (fakeTransport) Close() error { return nil }

func newVMs(n int) []*inventory.VM {
	var all []*inventory.VM
	for i := range n {
		all = append(all, &inventory.VM{Ref: inventory.MoRef([]string{"vm-1", "vm-2"}[i]), Name: "bench", Disks: []inventory.Disk{{Key: 2000, Capacity: testSize}, {Key: 2001, Capacity: testSize}}})
	}
	return all
}

func cellOf(t *testing.T, name string, folders ...string) Cell {
	t.Helper()
	s, err := bench.ParseName(name)
	if err != nil {
		t.Fatal(err)
	}
	return Cell{Setup: s, Folders: folders}
}

// dataSize returns the number of data bytes of a generated disk.
func dataSize(t *testing.T) int64 {
	t.Helper()
	extents, err := disk.NewSparsePattern(testSize, 0.5, 1).Extents(t.Context(), disk.Range{Len: testSize})
	if err != nil {
		t.Fatal(err)
	}
	var n int64
	for _, e := range extents {
		if e.Kind == disk.Data {
			n += e.Len
		}
	}
	return n
}

// The bytes of a disk count once, however many copies are written. Measure removes all its files.
func TestMeasure(t *testing.T) {
	a, b := t.TempDir(), t.TempDir()
	sourceLoad := func(context.Context, time.Time, time.Time) (bench.Device, error) {
		return bench.Device{IOPS: 7}, nil
	}
	for _, c := range []struct {
		cell  Cell
		disks int64
		vms   int
	}{
		{cellOf(t, "esxi_ssd_https_null_10g_mtu1500"), 2, 1},
		{cellOf(t, "esxi_ssd_https_nvme_10g_mtu1500", a), 2, 1},
		{cellOf(t, "esxi_ssd_https_nvme_10g_mtu1500_sync", a), 2, 1},
		{cellOf(t, "esxi_ssd_https_nvme_10g_mtu1500_vms2", a), 4, 2},
		{cellOf(t, "esxi_ssd_https_nvme_10g_mtu1500_to2", a, b), 2, 1},
		{cellOf(t, "pattern_nvme_to2", a, b), 1, 0},
	} {
		row, err := Measure(t.Context(), c.cell, Resources{VMs: newVMs(c.vms), Transport: fakeTransport{}, Computed: disk.NewSparsePattern(testSize, 0.5, 1), Source: sourceLoad})
		if err != nil {
			t.Fatalf("%s: %v", c.cell.Name(), err)
		}
		if err := row.Check(); err != nil || row.Allocated != c.disks*dataSize(t) || row.Setup != c.cell.Setup || row.Retransmits == nil || row.CPU <= 0 || row.On.Fill < 0.1 || row.On.Fill > 0.9 {
			t.Errorf("%s: %+v, %v", c.cell.Name(), row, err)
		}
		if pattern := c.vms == 0; (row.Wire == 0) != pattern || (row.Read.IOPS == 0) != pattern {
			t.Errorf("%s: wire %v, read %v", c.cell.Name(), row.Wire, row.Read)
		}
		if row.Written == (bench.Device{}) && len(c.cell.Folders) > 0 && row.Absent["written"] == "" {
			t.Errorf("%s: no reason why the device was not measured", c.cell.Name())
		}
		checkEmpty(t, a, b)
	}
}

// Measure replaces the files of a killed run, and removes its files after a failure.
func TestMeasureCleansUp(t *testing.T) {
	a := t.TempDir()
	p, err := newImageFile(a, "vm-1-2000", testSize, false)
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{p.Path, p.manifestPath()} {
		if err := os.WriteFile(path, []byte("half an image"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	c := cellOf(t, "esxi_ssd_https_nvme_10g_mtu1500", a)
	if _, err := Measure(t.Context(), c, Resources{VMs: newVMs(1), Transport: fakeTransport{}}); err != nil {
		t.Error(err)
	}
	checkEmpty(t, a)
	if _, err := Measure(t.Context(), c, Resources{VMs: newVMs(1), Transport: fakeTransport{fault.New(fault.Denied, "no")}}); !fault.Is(err, fault.Denied) {
		t.Error(err)
	}
	checkEmpty(t, a)
}

// A clone by a host counts the bytes of its files, which are removed. A clone that is not in the folder is an error.
func TestMeasureClone(t *testing.T) {
	a := t.TempDir()
	c := cellOf(t, "esxi_ssd_nfs_nvme_10g_mtu1500_sync", a)
	c.Datastore = "nfs1"
	resources := Resources{VMs: newVMs(1), Clone: func(_ context.Context, d transport.Disk, file string) error {
		base := filepath.Join(a, file)
		flat := base[:len(base)-len(".vmdk")] + "-flat.vmdk"
		if d.Disk.Capacity != testSize {
			t.Errorf("disk of the clone is %+v", d.Disk)
		}
		return errors.Join(os.WriteFile(base, []byte("# Disk DescriptorFile"), 0o600), os.WriteFile(flat, make([]byte, 1<<20), 0o600))
	}}
	row, err := Measure(t.Context(), c, resources)
	if err != nil || row.Allocated != 2<<20 || row.Setup != c.Setup || row.Wire == 0 {
		t.Errorf("%+v, %v", row, err)
	}
	checkEmpty(t, a)
	resources.Clone = func(context.Context, transport.Disk, string) error { return nil }
	if _, err := Measure(t.Context(), c, resources); !fault.Is(err, fault.NotFound) || fault.HintOf(err) == "" {
		t.Error(err)
	}
}

func TestMeasureRefusesEmptyDisk(t *testing.T) {
	a := t.TempDir()
	_, err := Measure(t.Context(), cellOf(t, "pattern_nvme", a), Resources{Computed: disk.NewSparsePattern(testSize, 0, 1)})
	if !fault.Is(err, fault.Invalid) || fault.HintOf(err) != "use VMs whose disks contain data, or set fill above 0%" {
		t.Error(err)
	}
	checkEmpty(t, a)
}

func checkEmpty(t *testing.T, folders ...string) {
	t.Helper()
	for _, f := range folders {
		if left, err := filepath.Glob(filepath.Join(f, "*")); err != nil || len(left) > 0 {
			t.Errorf("files %q are left, %v", left, err)
		}
		if left, err := filepath.Glob(filepath.Join(f, ".*")); err != nil || len(left) > 0 {
			t.Errorf("files %q are left, %v", left, err)
		}
	}
}

// A recordingTarget is a Target that records its writes and syncs in order.
type recordingTarget struct {
	disk.Null
	calls []int64 // lengths of the writes; 0 is a sync
}

func (n *recordingTarget) WriteAt(_ context.Context, p []byte, _ int64) error {
	n.calls = append(n.calls, int64(len(p)))
	return nil
}
func (n *recordingTarget) Sync(context.Context) error { n.calls = append(n.calls, 0); return nil }

func TestSyncWaitsForEachBlock(t *testing.T) {
	n := &recordingTarget{Null: disk.NewNull(testSize)}
	if err := (&syncTarget{Target: n}).WriteAt(t.Context(), make([]byte, 130<<10), 4096); err != nil {
		t.Fatal(err)
	}
	if want := []int64{64 << 10, 0, 64 << 10, 0, 2 << 10, 0}; !slices.Equal(n.calls, want) {
		t.Errorf("calls are %v, want %v", n.calls, want)
	}
}
