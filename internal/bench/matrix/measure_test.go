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

// pulled is a transport of disks that are computed, half of them data.
type pulled struct{ fail error }

func (pulled) Name() string { return "https" }
func (pulled) Probe(context.Context, transport.Disk) (transport.Offer, error) {
	return transport.Offer{Usable: true}, nil
}
func (p pulled) Transfer(ctx context.Context, job transport.Job) (blockcopy.Result, error) {
	if p.fail != nil {
		return blockcopy.Result{}, p.fail
	}
	return transport.Pull(ctx, func(context.Context, transport.Disk) (disk.Source, error) {
		return disk.NewSparsePattern(testSize, 0.5, 1), nil
	}, job)
}
func (pulled) Close() error { return nil }

func vms(n int) []*inventory.VM {
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

func data(t *testing.T) int64 {
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

// What is moved counts once, however many copies are written; nothing is left behind.
func TestMeasure(t *testing.T) {
	a, b := t.TempDir(), t.TempDir()
	asked := func(context.Context, time.Time, time.Time) (bench.Device, error) {
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
		row, err := Measure(t.Context(), c.cell, Resources{VMs: vms(c.vms), Transport: pulled{}, Computed: disk.NewSparsePattern(testSize, 0.5, 1), Source: asked})
		if err != nil {
			t.Fatalf("%s: %v", c.cell.Name(), err)
		}
		if err := row.Check(); err != nil || row.Allocated != c.disks*data(t) || row.Setup != c.cell.Setup || row.Retransmits == nil || row.CPU <= 0 || row.On.Fill < 0.1 || row.On.Fill > 0.9 {
			t.Errorf("%s: %+v, %v", c.cell.Name(), row, err)
		}
		if pattern := c.vms == 0; (row.Wire == 0) != pattern || (row.Read.IOPS == 0) != pattern {
			t.Errorf("%s: wire %v, read %v", c.cell.Name(), row.Wire, row.Read)
		}
		if row.Written == (bench.Device{}) && len(c.cell.Folders) > 0 && row.Absent["written"] == "" {
			t.Errorf("%s: nobody says why the device was not measured", c.cell.Name())
		}
		nothingIn(t, a, b)
	}
}

// What a killed run left is in nobody's way, and a copy that fails leaves nothing.
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
	if _, err := Measure(t.Context(), c, Resources{VMs: vms(1), Transport: pulled{}}); err != nil {
		t.Error(err)
	}
	nothingIn(t, a)
	if _, err := Measure(t.Context(), c, Resources{VMs: vms(1), Transport: pulled{fault.New(fault.Denied, "no")}}); !fault.Is(err, fault.Denied) {
		t.Error(err)
	}
	nothingIn(t, a)
}

// A host's clone is measured by what it wrote, and removed; one that is elsewhere is told.
func TestMeasureClone(t *testing.T) {
	a := t.TempDir()
	c := cellOf(t, "esxi_ssd_nfs_nvme_10g_mtu1500_sync", a)
	c.Datastore = "nfs1"
	rig := Resources{VMs: vms(1), Clone: func(_ context.Context, d transport.Disk, file string) error {
		base := filepath.Join(a, file)
		flat := base[:len(base)-len(".vmdk")] + "-flat.vmdk"
		if d.Disk.Capacity != testSize {
			t.Errorf("%+v", d.Disk)
		}
		return errors.Join(os.WriteFile(base, []byte("# Disk DescriptorFile"), 0o600), os.WriteFile(flat, make([]byte, 1<<20), 0o600))
	}}
	row, err := Measure(t.Context(), c, rig)
	if err != nil || row.Allocated != 2<<20 || row.Setup != c.Setup || row.Wire == 0 {
		t.Errorf("%+v, %v", row, err)
	}
	nothingIn(t, a)
	rig.Clone = func(context.Context, transport.Disk, string) error { return nil }
	if _, err := Measure(t.Context(), c, rig); !fault.Is(err, fault.NotFound) || fault.HintOf(err) == "" {
		t.Error(err)
	}
}

func TestMeasureNothing(t *testing.T) {
	a := t.TempDir()
	_, err := Measure(t.Context(), cellOf(t, "pattern_nvme", a), Resources{Computed: disk.NewSparsePattern(testSize, 0, 1)})
	if !fault.Is(err, fault.Invalid) || fault.HintOf(err) != "use VMs whose disks contain data, or set fill above 0%" {
		t.Error(err)
	}
	nothingIn(t, a)
}

func nothingIn(t *testing.T, folders ...string) {
	t.Helper()
	for _, f := range folders {
		if left, err := filepath.Glob(filepath.Join(f, "*")); err != nil || len(left) > 0 {
			t.Errorf("left %q, %v", left, err)
		}
		if left, err := filepath.Glob(filepath.Join(f, ".*")); err != nil || len(left) > 0 {
			t.Errorf("left %q, %v", left, err)
		}
	}
}

// noting is a Target that notes in which order it is used.
type noting struct {
	disk.Null
	did []int64 // lengths written; 0 is a sync
}

func (n *noting) WriteAt(_ context.Context, p []byte, _ int64) error {
	n.did = append(n.did, int64(len(p)))
	return nil
}
func (n *noting) Sync(context.Context) error { n.did = append(n.did, 0); return nil }

func TestSyncWaitsForEachBlock(t *testing.T) {
	n := &noting{Null: disk.NewNull(testSize)}
	if err := (&syncTarget{Target: n}).WriteAt(t.Context(), make([]byte, 130<<10), 4096); err != nil {
		t.Fatal(err)
	}
	if want := []int64{64 << 10, 0, 64 << 10, 0, 2 << 10, 0}; !slices.Equal(n.did, want) {
		t.Errorf("%v", n.did)
	}
}
