package https

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/transport"
)

const descriptorHeader = "# Disk DescriptorFile\nversion=1\nCID=fffffffe\nparentCID=ffffffff\ncreateType=\"vmfs\"\n"

// Disks that /folder cannot deliver are refused without a request for data: Probe returns a reason, and Open an
// error with a hint.
func TestUnreadableDisksAreRefused(t *testing.T) {
	cases := []struct {
		name   string
		kind   fault.Kind
		change func(*transport.Disk)
		text   string
	}{
		{"running VM", fault.Conflict, func(d *transport.Disk) { d.VM.Power = inventory.PoweredOn }, ""},
		{"suspended VM", fault.Conflict, func(d *transport.Disk) { d.VM.Power = inventory.Suspended }, ""},
		{"missing snapshot", fault.NotFound, func(d *transport.Disk) { d.Snapshot = "snapshot-1" }, ""},
		{"disk with snapshots", fault.Unsupported, func(d *transport.Disk) { d.Disk.Layers = 2 }, ""},
		{"seSparse", fault.Unsupported, func(d *transport.Disk) { d.Disk.Backing = inventory.SESparse }, ""},
		{"RDM", fault.Unsupported, func(d *transport.Disk) { d.Disk.Backing = inventory.RDM }, ""},
		{"vSAN", fault.Unsupported, func(d *transport.Disk) { d.Disk.Backing = inventory.VSAN }, ""},
		{"encrypted", fault.Unsupported, func(d *transport.Disk) { d.Disk.Encrypted = true }, ""},
		{"outside the folder", fault.Corrupt, nil, descriptorHeader + "RW 2048 VMFS \"../other/disk-flat.vmdk\"\n"},
		{"absolute", fault.Corrupt, nil, descriptorHeader + "RW 2048 VMFS \"/vmfs/volumes/x/disk-flat.vmdk\"\n"},
		{"in a subfolder", fault.Corrupt, nil, descriptorHeader + "RW 2048 VMFS \"sub/disk-flat.vmdk\"\n"},
		{"dots", fault.Corrupt, nil, descriptorHeader + "RW 2048 VMFS \"..\"\n"},
		{"two pieces", fault.Unsupported, nil, descriptorHeader + "RW 1024 VMFS \"a-flat.vmdk\"\nRW 1024 VMFS \"b-flat.vmdk\"\n"},
		{"a piece within a file", fault.Unsupported, nil, descriptorHeader + "RW 2048 FLAT \"disk-flat.vmdk\" 63\n"},
		{"another size", fault.Corrupt, nil, descriptorHeader + "RW 1024 VMFS \"disk-flat.vmdk\"\n"},
		{"no descriptor", fault.Corrupt, nil, "\x00\x01\x02"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			s := startServer(t, disk.NewPattern(1<<20))
			h := newFakeHost(s)
			h.descriptor = c.text
			tr := New(h, Options{Sleep: func(context.Context, time.Duration) error { return nil }})
			defer tr.Close()
			d := testDisk(1 << 20)
			if c.change != nil {
				c.change(&d)
			}
			if _, err := tr.Open(t.Context(), d); !fault.Is(err, c.kind) || fault.HintOf(err) == "" {
				t.Errorf("open: %v (%v, hint %q), want %v with a hint", err, fault.KindOf(err), fault.HintOf(err), c.kind)
			}
			offer, err := tr.Probe(t.Context(), d)
			if err != nil || offer.Usable || offer.Reason == "" {
				t.Errorf("offer %+v, error %v, want a reason against it", offer, err)
			}
			if n := s.requests.Load(); n != 0 {
				t.Errorf("%d requests, want none", n)
			}
		})
	}
}

func TestProbeOffers(t *testing.T) {
	for _, mapped := range []bool{false, true} {
		want := disk.NewSparsePattern(1<<20, 0.5, 1)
		s := startServer(t, want)
		h := newFakeHost(s)
		if mapped {
			h.allocated = mapOf(want)
		}
		tr := New(h, Options{})
		defer tr.Close()
		offer, err := tr.Probe(t.Context(), testDisk(1<<20))
		if err != nil || !offer.Usable || offer.Map != mapped || offer.Running || offer.Delta || offer.Streams != 16 {
			t.Errorf("map %v: offer %+v, error %v", mapped, offer, err)
		}
		if n := s.requests.Load(); n != 1 {
			t.Errorf("%d requests, want one", n)
		}
	}
}

func TestProbeOfUnreachableHostFails(t *testing.T) {
	s := startServer(t, disk.NewPattern(1<<20))
	h := newFakeHost(s)
	s.stop()
	tr := New(h, Options{Sleep: func(context.Context, time.Duration) error { return nil }})
	defer tr.Close()
	_, err := tr.Probe(t.Context(), testDisk(1<<20))
	if !fault.Is(err, fault.Unreachable) || !strings.Contains(fault.HintOf(err), "curl") {
		t.Errorf("got %v (hint %q), want Unreachable with a curl command", err, fault.HintOf(err))
	}
}

// Probe reads the descriptor for the Open that follows. A second Open, a late Open and an Open of a resized disk
// read it again.
func TestOpenReusesLocationOfProbe(t *testing.T) {
	s := startServer(t, disk.NewPattern(1<<20))
	h := newFakeHost(s)
	now := time.Now()
	tr := New(h, Options{Now: func() time.Time { return now }})
	defer tr.Close()
	read := func(want int64, step string, do func(transport.Disk) error, d transport.Disk) {
		t.Helper()
		before := h.descriptorReads.Load()
		if err := do(d); err != nil != (d.Disk.Capacity > 1<<20) { // the file of the server is smaller
			t.Errorf("%s: error %v", step, err)
		}
		if n := h.descriptorReads.Load() - before; n != want {
			t.Errorf("%s: the descriptor was read %d times, want %d", step, n, want)
		}
	}
	probe := func(d transport.Disk) error { _, err := tr.Probe(t.Context(), d); return err }
	open := func(d transport.Disk) error {
		src, err := tr.Open(t.Context(), d)
		if err != nil {
			return err
		}
		return src.Close()
	}
	d, grown := testDisk(1<<20), testDisk(2<<20)
	read(1, "probe", probe, d)
	read(0, "open", open, d)
	read(1, "open again", open, d)
	read(1, "probe again", probe, d)
	read(1, "open of a disk that grew", open, grown)
	now = now.Add(locationLifetime)
	read(1, "open too late", open, d)
}
