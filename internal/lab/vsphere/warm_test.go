package vsphere

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"github.com/vmware/govmomi/vim25/types"
)

// A warm move as a client makes it: the guest writes all the time, each round asks what
// changed, reads that over NFC from the file its own snapshot froze, and removes the older
// snapshot. After the last round, from the machine that was switched off, the image is the
// disk, byte for byte.
func TestWarmRoundsOverNFC(t *testing.T) {
	for _, kind := range []string{"VMFS", "NFS"} {
		vm := writingVM()
		vm.Guest.Writes.Rate = 10 << 20
		r := newRig(t, Config{Datastores: []Datastore{{Name: "datastore1", Type: kind}}, VMs: []VM{vm}})
		images := [][]byte{make([]byte, vm.Disks[0].Capacity), make([]byte, vm.Disks[1].Capacity)}
		ids := make([]string, 2)
		last := r.snapshot("round 0")
		for i, image := range images {
			var file string
			file, ids[i] = r.frozen(last, i)
			r.copyNFC(image, file, []types.DiskChangeExtent{{Start: 0, Length: int64(len(image))}})
		}
		for round := 1; round <= 3; round++ {
			next := r.snapshot(fmt.Sprintf("round %d", round))
			for i, image := range images {
				list, err := r.changed(i, ids[i], &next)
				if err != nil {
					t.Fatal(err)
				}
				var file string
				file, ids[i] = r.frozen(next, i)
				r.copyNFC(image, file, list)
				if at, err := r.lab.DiskAt("web01", i, fmt.Sprintf("round %d", round)); !bytes.Equal(image, all(t, at, err)) {
					t.Fatalf("%s: after round %d the image of disk %d is another", kind, round, i)
				}
			}
			if err := r.remove(last); err != nil {
				t.Fatal(err)
			}
			last = next
		}
		if err := r.lab.SetPower("web01", false); err != nil {
			t.Fatal(err)
		}
		for i, image := range images {
			list, err := r.changed(i, ids[i], nil)
			if err != nil {
				t.Fatal(err)
			}
			file, _ := backingOf(t, r.now().Config.Hardware.Device, i)
			r.copyNFC(image, file, list)
			if now, err := r.lab.Disk("web01", i); !bytes.Equal(image, all(t, now, err)) {
				t.Errorf("%s: at the end the image of disk %d is another", kind, i)
			}
		}
	}
}

// copyNFC reads areas of a disk into an image.
func (r *rig) copyNFC(image []byte, file string, list []types.DiskChangeExtent) {
	r.t.Helper()
	f, err := openNFC(r.t, r.lab, "web01", file, false, 0, 0)
	if err != nil {
		r.t.Fatal(err)
	}
	const step = 1 << 20
	for _, a := range list {
		for off := a.Start; off < a.Start+a.Length; off += step {
			n := min(step, a.Start+a.Length-off)
			_ = f.raw.SetDeadline(time.Now().Add(nfcPatience))
			p, err := f.readAt(off, n, 3)
			if err != nil {
				r.t.Fatalf("read %d at %d of %s: %v", n, off, file, err)
			}
			copy(image[off:], p)
		}
	}
	f.finish()
}
