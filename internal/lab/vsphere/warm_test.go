package vsphere

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"github.com/vmware/govmomi/vim25/types"
)

// The test performs a warm migration as a client does, while the guest writes. Each round
// queries the changes, reads them over NFC from the file of a new snapshot, and removes the
// older snapshot. After a last round with the powered-off VM, the image equals the disk.
func TestWarmRoundsOverNFC(t *testing.T) {
	for _, kind := range []string{"VMFS", "NFS"} {
		vm := writingVM()
		vm.Guest.Writes.Rate = 10 << 20
		r := newTestVM(t, Config{Datastores: []Datastore{{Name: "datastore1", Type: kind}}, VMs: []VM{vm}})
		images := [][]byte{make([]byte, vm.Disks[0].Capacity), make([]byte, vm.Disks[1].Capacity)}
		ids := make([]string, 2)
		last := r.createSnapshot("round 0")
		for i, image := range images {
			var file string
			file, ids[i] = r.frozenDisk(last, i)
			r.copyNFC(image, file, []types.DiskChangeExtent{{Start: 0, Length: int64(len(image))}})
		}
		for round := 1; round <= 3; round++ {
			next := r.createSnapshot(fmt.Sprintf("round %d", round))
			for i, image := range images {
				list, err := r.changedAreas(i, ids[i], &next)
				if err != nil {
					t.Fatal(err)
				}
				var file string
				file, ids[i] = r.frozenDisk(next, i)
				r.copyNFC(image, file, list)
				if at, err := r.lab.DiskAt("web01", i, fmt.Sprintf("round %d", round)); !bytes.Equal(image, readContent(t, at, err)) {
					t.Fatalf("%s: after round %d, the image of disk %d differs", kind, round, i)
				}
			}
			if err := r.removeSnapshot(last); err != nil {
				t.Fatal(err)
			}
			last = next
		}
		if err := r.lab.SetPower("web01", false); err != nil {
			t.Fatal(err)
		}
		for i, image := range images {
			list, err := r.changedAreas(i, ids[i], nil)
			if err != nil {
				t.Fatal(err)
			}
			file, _ := backingOf(t, r.readVM().Config.Hardware.Device, i)
			r.copyNFC(image, file, list)
			if now, err := r.lab.Disk("web01", i); !bytes.Equal(image, readContent(t, now, err)) {
				t.Errorf("%s: at the end, the image of disk %d differs", kind, i)
			}
		}
	}
}

// copyNFC reads areas of a disk into an image.
func (r *testVM) copyNFC(image []byte, file string, list []types.DiskChangeExtent) {
	r.t.Helper()
	f, err := openNFC(r.t, r.lab, "web01", file, false, 0, 0)
	if err != nil {
		r.t.Fatal(err)
	}
	const step = 1 << 20
	for _, a := range list {
		for off := a.Start; off < a.Start+a.Length; off += step {
			n := min(step, a.Start+a.Length-off)
			_ = f.raw.SetDeadline(time.Now().Add(nfcTimeout))
			p, err := f.readAt(off, n, 3)
			if err != nil {
				r.t.Fatalf("read %d at %d of %s: %v", n, off, file, err)
			}
			copy(image[off:], p)
		}
	}
	f.closeSession()
}
