package targettest

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/targets"
	"github.com/decamp/decamp/internal/targets/platform"
	"github.com/decamp/decamp/test/lane"
)

// checksOnly verifies that Check accepts a VM and changes nothing.
func checksOnly(t *testing.T, h Harness) {
	site := h.New(t)
	before := site.Objects(t)
	if err := site.Platform.Check(t.Context(), newVM()); err != nil {
		t.Fatal(err)
	}
	assertUnchanged(t, site, before, "Check")
}

// refusesWithoutRoom verifies that Check reports fault.Full for a VM with a thin disk of 1 EiB, and
// changes nothing.
func refusesWithoutRoom(t *testing.T, h Harness) {
	if h.SpaceUnknown {
		return
	}
	site := h.New(t)
	before := site.Objects(t)
	huge := changeVM(newVM(), func(vm *inventory.VM) {
		vm.Disks[1].Capacity, vm.Disks[1].Used, vm.Disks[1].Thin = 1<<60, 1<<60, true
	})
	hasRemedy(t, "a disk of 1 EiB", site.Platform.Check(t.Context(), huge), fault.Full)
	assertUnchanged(t, site, before, "Check")
}

// deliversBytes delivers a VM with images in the given format and compares all bytes.
func deliversBytes(t *testing.T, h Harness, format targets.Format) {
	site := h.New(t)
	mustDeliver(t, site, stageVM(t, newVM(), format))
}

// deliversHardware delivers VMs with different hardware and withdraws them: several sockets, EFI,
// secure boot with a TPM,
// no disks, and SATA with one card and a CD-ROM drive.
func deliversHardware(t *testing.T, h Harness) {
	vms := map[string]*inventory.VM{
		"bios":     changeVM(newVM(), func(vm *inventory.VM) { vm.CPUs, vm.CoresPerSocket, vm.MemoryMiB = 4, 2, 768 }),
		"efi":      changeVM(newVM(), func(vm *inventory.VM) { vm.Firmware = inventory.EFI }),
		"secure":   changeVM(newVM(), func(vm *inventory.VM) { vm.Firmware, vm.SecureBoot, vm.VTPM = inventory.EFI, true, true }),
		"diskless": changeVM(newVM(), func(vm *inventory.VM) { vm.Disks = nil }),
		"sata": changeVM(newVM(), func(vm *inventory.VM) {
			vm.Controllers[0].Bus, vm.NICs, vm.CDROMs = inventory.AHCI, vm.NICs[:1], 1
		}),
	}
	for name, vm := range vms {
		t.Run(name, func(t *testing.T) {
			h.runParallel(t)
			site := h.New(t)
			before := site.Objects(t)
			mustDeliver(t, site, stageVM(t, vm, targets.QCOW2))
			mustWithdraw(t, site, vm)
			assertUnchanged(t, site, before, "Withdraw")
		})
	}
}

// deliversAgain verifies that a second Deliver returns the same receipt and changes nothing. A run
// calls Deliver again if
// it crashed before it recorded the receipt.
func deliversAgain(t *testing.T, h Harness) {
	site := h.New(t)
	d := stageVM(t, newVM(), targets.Raw)
	first := mustDeliver(t, site, d)
	before := site.Objects(t)
	again := mustDeliver(t, site, d)
	if again.Platform != first.Platform || again.ID != first.ID || again.Name != first.Name {
		t.Errorf("got receipts %+v and %+v for one VM", first, again)
	}
	assertUnchanged(t, site, before, "the second Deliver")
}

// takesAnyName delivers and withdraws VMs whose names are hard to quote or not valid at the platform, one after
// the other at one site. The slow lane has further names.
func takesAnyName(t *testing.T, h Harness) {
	names := []string{
		"../../etc/passwd", "näme größe 机器", "-rf", `"quoted" 'twice'`, "two\nlines\r\n", "<disk/> & ]]> <!--", "$(reboot)`id`;",
		"", string([]byte{'b', 'a', 'd', 0xff, 0xfe}), strings.Repeat("é", 100),
	}
	if lane.Slow {
		names = append(names, "web server 1", "a/b", strings.Repeat("long", 50), "--help", "tab\there", "%2f%00%s", ".", "..", " ",
			"a,b=c:d", "CON", "\u202ereversed", "123", "web01.example.org.")
	}
	site := h.New(t)
	before := site.Objects(t)
	for _, name := range names {
		t.Run(name, func(t *testing.T) {
			vm := changeVM(newVM(), func(vm *inventory.VM) { vm.Name = name })
			if err := site.Platform.Check(t.Context(), vm); err != nil {
				t.Fatal(err)
			}
			mustDeliver(t, site, stageVM(t, vm, targets.Raw))
			mustWithdraw(t, site, vm)
			assertUnchanged(t, site, before, "Withdraw")
		})
	}
}

// reportsProgress verifies that the reported bytes never decrease and never exceed the total.
func reportsProgress(t *testing.T, h Harness) {
	site := h.New(t)
	d := stageVM(t, newVM(), targets.Raw)
	var mu sync.Mutex
	var last int64
	d.Progress = func(done, total int64) {
		mu.Lock()
		defer mu.Unlock()
		if done < last || done > total {
			t.Errorf("progress reports %d of %d bytes after %d", done, total, last)
		}
		last = done
	}
	mustDeliver(t, site, d)
}

// unreadableImage makes the last 4 KiB of each image unreadable. Deliver must return the read error and
// leave
// nothing. A platform that moves the files without reading them must deliver the VM.
func unreadableImage(t *testing.T, h Harness) {
	site := h.New(t)
	before := site.Objects(t)
	d := stageVM(t, newVM(), targets.Raw)
	original := d.Open
	bad := fault.New(fault.Corrupt, "bad sector").WithHint("copy the VM again")
	d.Open = func(ctx context.Context, img targets.Image) (disk.Source, error) {
		src, err := original(ctx, img)
		if err != nil {
			return nil, err
		}
		return badSource{src, bad}, nil
	}
	_, err := site.Platform.Deliver(t.Context(), d)
	if err == nil { // the platform moved the files without reading them
		verifyVM(t, site, d)
		return
	}
	if !errors.Is(err, bad) || fault.HintOf(err) == "" {
		t.Errorf("Deliver of an unreadable image: %v", err)
	}
	assertUnchanged(t, site, before, "a failed Deliver")
	d.Open = original
	mustDeliver(t, site, d)
}

// badSource is a disk whose last 4 KiB cannot be read.
type badSource struct {
	disk.Source
	err error // returned by reads of that range
}

// ReadAt implements disk.Source.
func (s badSource) ReadAt(ctx context.Context, p []byte, off int64) error {
	if off+int64(len(p)) > s.Size()-4096 {
		return s.err
	}
	return s.Source.ReadAt(ctx, p, off)
}

// Hints returns no hints, so that callers use ReadAt.
func (s badSource) Hints() disk.Hints { return disk.Hints{} }

// mustDeliver delivers d, verifies the VM and the receipt, and returns the receipt. Each warning of the
// receipt must have
// a code, a text and a remedy.
func mustDeliver(t *testing.T, site Site, d platform.Delivery) platform.Receipt {
	t.Helper()
	r, err := site.Platform.Deliver(t.Context(), d)
	if err != nil {
		t.Fatalf("Deliver: %v (%s)", err, fault.HintOf(err))
	}
	got := verifyVM(t, site, d)
	if r.Platform == "" || r.ID != got.ID || r.Name != got.Name {
		t.Errorf("got receipt %+v for VM %q, %q", r, got.ID, got.Name)
	}
	for _, w := range r.Warnings {
		if w.Code == "" || w.Text == "" || w.Remedy == "" {
			t.Errorf("warning %+v has no code, text or remedy", w)
		}
	}
	return r
}

// verifyVM returns the VM with d's UUID after it has compared it with d. There must be exactly one.
func verifyVM(t *testing.T, site Site, d platform.Delivery) StoredVM {
	t.Helper()
	var found []StoredVM
	for _, s := range site.VMs(t) {
		if s.UUID == d.VM.UUID {
			found = append(found, s)
		}
	}
	if len(found) != 1 {
		t.Fatalf("got %d VMs with the UUID of %q, want 1", len(found), d.VM.Name)
	}
	compareVM(t, found[0], d.VM)
	return found[0]
}

// compareVM compares the hardware and all bytes of the disks of a delivered VM with its source. The VM
// must be off, and
// must not start with its host.
func compareVM(t *testing.T, got StoredVM, vm *inventory.VM) {
	t.Helper()
	if got.Running {
		t.Errorf("VM %q runs, or starts with its host", got.Name)
	}
	if got.CPUs != vm.CPUs || got.MemoryMiB != vm.MemoryMiB {
		t.Errorf("got %d CPUs and %d MiB, want %d and %d", got.CPUs, got.MemoryMiB, vm.CPUs, vm.MemoryMiB)
	}
	if got.EFI != (vm.Firmware == inventory.EFI) || got.SecureBoot != vm.SecureBoot || got.TPM != vm.VTPM {
		t.Errorf("got EFI %v, secure boot %v, TPM %v, want those of %+v", got.EFI, got.SecureBoot, got.TPM, vm)
	}
	var macs []string
	for _, n := range vm.NICs {
		macs = append(macs, n.MAC)
	}
	if !slices.Equal(got.MACs, macs) {
		t.Errorf("got cards %v, want %v", got.MACs, macs)
	}
	if len(got.Disks) != len(vm.Disks) {
		t.Fatalf("got %d disks, want %d", len(got.Disks), len(vm.Disks))
	}
	for i := range vm.Disks {
		if !bytes.Equal(got.Disks[i], diskContent(vm, i)) {
			t.Errorf("disk %d differs (%d bytes, want %d)", i, len(got.Disks[i]), vm.Disks[i].Capacity)
		}
	}
}

// assertUnchanged fails the test if the objects at the platform differ from before. operation is for the message.
func assertUnchanged(t *testing.T, site Site, before []string, operation string) {
	t.Helper()
	if now := site.Objects(t); !slices.Equal(now, before) {
		t.Errorf("%s changed the platform:\n  before %q\n  now    %q", operation, before, now)
	}
}
