package libvirt

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"slices"
	"testing"

	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/targets"
	"github.com/decamp/decamp/internal/targets/platform"
)

// A second delivery changes nothing. If a volume was removed meanwhile, it delivers the VM again from its
// image, or leaves the domain as it is if the image is gone.
func TestSecondDelivery(t *testing.T) {
	t.Parallel()
	d := sharedDaemon(t)
	for _, remote := range []bool{false, true} {
		t.Run(fmt.Sprint("remote ", remote), func(t *testing.T) {
			s := newSite(t, d, remote)
			data := bytes.Repeat([]byte("some more bytes "), 1<<16)
			stage, _, def := stageVM(t, webVM(int64(len(data))), s.platform, data)
			domain, err := stage.Domain(def)
			if err != nil {
				t.Fatal(err)
			}
			delivery := platform.Delivery{Definition: def, Domain: domain, Open: stage.Read}
			var sent, total int64
			delivery.Progress = func(n, of int64) { sent, total = n, of }
			first, err := s.platform.Deliver(t.Context(), delivery)
			if err != nil {
				t.Fatal(err)
			}
			if want := 2 * int64(len(data)); remote && (sent != want || total != want) {
				t.Errorf("progress reports %d of %d bytes, want %d: each byte is sent and compared", sent, total, want)
			}
			before := s.listObjects(t)
			if again, err := s.platform.Deliver(t.Context(), delivery); err != nil || again.ID != first.ID {
				t.Errorf("got receipt %+v, %v, want %+v", again, err, first)
			}
			if now := s.listObjects(t); !slices.Equal(now, before) {
				t.Errorf("the objects change from %q to %q", before, now)
			}
			volume := volumeName(s.platform.opts.Maps, def.VM, 0, def.Images[0].Format)
			s.virsh(t, "vol-delete", "--pool", s.platform.at.pool, volume)
			before = s.listObjects(t)
			_, err = s.platform.Deliver(t.Context(), delivery)
			if _, gone := os.Lstat(def.Images[0].Path); gone != nil {
				if now := s.listObjects(t); !fault.Is(err, fault.NotFound) || fault.HintOf(err) == "" || !slices.Equal(now, before) {
					t.Errorf("without an image: %v (%s); objects before %q, after %q", err, fault.HintOf(err), before, now)
				}
				return
			}
			if err != nil {
				t.Fatalf("%v (%s)", err, fault.HintOf(err))
			}
			if vms := s.storedVMs(t); len(vms) != 1 || !bytes.Equal(vms[0].Disks[0], data) {
				t.Errorf("got %d VMs, want 1 with the staged disk", len(vms))
			}
		})
	}
}

// unreadableDisk is a disk whose end cannot be read.
type unreadableDisk struct{ disk.Source }

func (u unreadableDisk) ReadAt(ctx context.Context, p []byte, off int64) error {
	if off+int64(len(p)) == u.Size() {
		return fault.New(fault.Corrupt, "bad sector")
	}
	return u.Source.ReadAt(ctx, p, off)
}

func TestFailedUploadLeavesNothing(t *testing.T) {
	t.Parallel()
	s := newSite(t, sharedDaemon(t), true)
	data := bytes.Repeat([]byte("some more bytes "), 1<<16)
	stage, _, def := stageVM(t, webVM(int64(len(data))), s.platform, data)
	domain, err := stage.Domain(def)
	if err != nil {
		t.Fatal(err)
	}
	delivery := platform.Delivery{Definition: def, Domain: domain}
	delivery.Open = func(ctx context.Context, img targets.Image) (disk.Source, error) {
		src, err := stage.Read(ctx, img)
		return unreadableDisk{src}, err
	}
	if _, err := s.platform.Deliver(t.Context(), delivery); !fault.Is(err, fault.Corrupt) {
		t.Errorf("got %v, want corrupt", err)
	}
	if left := s.listObjects(t); len(left) > 0 {
		t.Errorf("remaining objects: %q", left)
	}
}
