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
			stage, _, def := onStage(t, webVM(int64(len(data))), s.place, data)
			domain, err := stage.Domain(def)
			if err != nil {
				t.Fatal(err)
			}
			cargo := platform.Delivery{Definition: def, Domain: domain, Open: stage.Read}
			var sent, total int64
			cargo.Progress = func(n, of int64) { sent, total = n, of }
			first, err := s.place.Deliver(t.Context(), cargo)
			if err != nil {
				t.Fatal(err)
			}
			if want := 2 * int64(len(data)); remote && (sent != want || total != want) {
				t.Errorf("%d of %d bytes were reported, want %d: each is sent and compared", sent, total, want)
			}
			before := s.things(t)
			if again, err := s.place.Deliver(t.Context(), cargo); err != nil || again.ID != first.ID {
				t.Errorf("receipt %+v, %v, want %+v", again, err, first)
			}
			if now := s.things(t); !slices.Equal(now, before) {
				t.Errorf("there was %q, and is %q", before, now)
			}
			volume := volumeName(s.place.opts.Maps, def.VM, 0, def.Images[0].Format)
			s.virsh(t, "vol-delete", "--pool", s.place.at.pool, volume)
			before = s.things(t)
			_, err = s.place.Deliver(t.Context(), cargo)
			if _, gone := os.Lstat(def.Images[0].Path); gone != nil {
				if now := s.things(t); !fault.Is(err, fault.NotFound) || fault.HintOf(err) == "" || !slices.Equal(now, before) {
					t.Errorf("without an image: %v (%s); there was %q, and is %q", err, fault.HintOf(err), before, now)
				}
				return
			}
			if err != nil {
				t.Fatalf("%v (%s)", err, fault.HintOf(err))
			}
			if seen := s.seen(t); len(seen) != 1 || !bytes.Equal(seen[0].Disks[0], data) {
				t.Errorf("%d VMs, or their disks differ", len(seen))
			}
		})
	}
}

// unreadable is a disk whose end cannot be read.
type unreadable struct{ disk.Source }

func (u unreadable) ReadAt(ctx context.Context, p []byte, off int64) error {
	if off+int64(len(p)) == u.Size() {
		return fault.New(fault.Corrupt, "bad sector")
	}
	return u.Source.ReadAt(ctx, p, off)
}

func TestFailedUploadLeavesNothing(t *testing.T) {
	t.Parallel()
	s := newSite(t, sharedDaemon(t), true)
	data := bytes.Repeat([]byte("some more bytes "), 1<<16)
	stage, _, def := onStage(t, webVM(int64(len(data))), s.place, data)
	domain, err := stage.Domain(def)
	if err != nil {
		t.Fatal(err)
	}
	cargo := platform.Delivery{Definition: def, Domain: domain}
	cargo.Open = func(ctx context.Context, img targets.Image) (disk.Source, error) {
		src, err := stage.Read(ctx, img)
		return unreadable{src}, err
	}
	if _, err := s.place.Deliver(t.Context(), cargo); !fault.Is(err, fault.Corrupt) {
		t.Errorf("%v", err)
	}
	if left := s.things(t); len(left) > 0 {
		t.Errorf("%q is left", left)
	}
}
