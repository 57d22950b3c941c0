package libvirt

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/efi"
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/guest"
	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/targets"
	"github.com/decamp/decamp/internal/targets/dir"
	"github.com/decamp/decamp/internal/targets/platform"
	"github.com/decamp/decamp/test/boot"
	tinyguest "github.com/decamp/decamp/test/guest"
	"github.com/decamp/decamp/test/lane"
)

// webVM returns a VM with one disk of this size.
func webVM(size int64) *inventory.VM {
	return &inventory.VM{
		Ref: "7", Name: "web 01", UUID: "564d1234-0000-1111-2222-333344445555",
		InstanceUUID: "52aa0000-1111-2222-3333-444455556666", GuestID: "debian12_64Guest", HardwareVersion: 19,
		CPUs: 1, CoresPerSocket: 1, MemoryMiB: 256, Firmware: inventory.BIOS,
		Controllers: []inventory.Controller{{Key: 1000, Bus: inventory.PVSCSI}},
		Disks:       []inventory.Disk{{Key: 2000, Controller: 1000, Capacity: size}},
		NICs:        []inventory.NIC{{Key: 4000, Model: "vmxnet3", MAC: "00:50:56:ab:cd:01", Network: "VM Network", StartConnected: true}},
	}
}

// stageVM writes vm's disk to a stage, like the steps before commit.
func stageVM(t *testing.T, vm *inventory.VM, p platform.Platform, data []byte) (*dir.Target, *platform.Target, targets.Definition) {
	t.Helper()
	stage, err := dir.New(t.TempDir(), dir.Options{Domain: dir.DomainOptions{Type: "qemu"}})
	if err != nil {
		t.Fatal(err)
	}
	to := platform.New(stage, p, platform.Options{})
	images, err := to.Plan(t.Context(), vm)
	if err != nil {
		t.Fatal(err)
	}
	w, _, err := to.Open(t.Context(), images[0])
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	if err := w.WriteAt(t.Context(), data, 0); err != nil {
		t.Fatal(err)
	}
	if err := w.Finish(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(images[0].Manifest, []byte("manifest"), 0o644); err != nil {
		t.Fatal(err)
	}
	images[0].Root = "aa55"
	return stage, to, targets.Definition{VM: vm, Images: images, Decamp: "v0.0.0-test"}
}

// libvirt starts a delivered VM, and its guest detects the expected hardware.
func TestDeliveredVMBoots(t *testing.T) {
	t.Parallel()
	linked := func(t *testing.T, d *daemon) *site { return newSite(t, d, false) }
	uploaded := func(t *testing.T, d *daemon) *site { return newSite(t, d, true) }
	onLVM := func(t *testing.T, d *daemon) *site { return newGroupSiteOfSize(t, d, 2*tinyguest.Size) }
	byEFI := func(vm *inventory.VM) { vm.Firmware = inventory.EFI }
	withTPM := func(vm *inventory.VM) { vm.Firmware, vm.VTPM = inventory.EFI, true }
	tests := []struct {
		name   string
		site   func(*testing.T, *daemon) *site
		change func(*inventory.VM)
		guest  tinyguest.Name
		driver string
		slow   bool
	}{
		{"linked", linked, func(*inventory.VM) {}, tinyguest.NoVirtio, "vmw_pvscsi", true},
		{"linked, by its boot entry", linked, byEFI, tinyguest.Entry, "virtio_scsi", false}, // without a fallback loader
		{"uploaded, with EFI and a TPM", uploaded, withTPM, tinyguest.UEFI, "virtio_scsi", true},
		{"on LVM", onLVM, func(*inventory.VM) {}, tinyguest.NoVirtio, "vmw_pvscsi", true},
	}
	for _, tt := range tests {
		if tt.slow && !lane.Slow {
			continue
		}
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			image, err := os.ReadFile(tinyguest.Image(t, tt.guest))
			if err != nil {
				t.Fatal(err)
			}
			vm := webVM(int64(len(image)))
			tt.change(vm)
			s := tt.site(t, ownDaemon(t))
			_, to, def := stageVM(t, vm, s.platform, image)
			def.EFI = detectEFIState(t, to, def.Images[0])
			if err := to.Publish(t.Context(), def); err != nil {
				t.Fatal(err)
			}
			if left, err := filepath.Glob(filepath.Join(filepath.Dir(def.Images[0].Final), "*.raw")); err != nil || len(left) > 0 {
				t.Errorf("the stage still has %v", left)
			}
			s.startVM(t, vm)
			if err := to.Withdraw(t.Context(), vm); !fault.Is(err, fault.Conflict) || fault.HintOf(err) == "" {
				t.Errorf("Withdraw of a running VM: %v", err)
			}
			s.waitForBoot(t, vm, tt.driver)
			s.eventually(t, "the guest powers off", func() bool {
				domains, _ := s.domains(t)
				return domains[0].ID == -1
			})
			if err := to.Withdraw(t.Context(), vm); err != nil {
				t.Error(err)
			}
			if left := s.listObjects(t); len(left) > 0 {
				t.Errorf("remaining objects: %q", left)
			}
		})
	}
}

// detectEFIState returns the boot entries that an image provides.
func detectEFIState(t *testing.T, to *platform.Target, img targets.Image) *efi.State {
	t.Helper()
	src, err := to.Read(t.Context(), img)
	if err != nil {
		t.Fatal(err)
	}
	defer src.Close()
	report, err := guest.Detect(t.Context(), src)
	if err != nil {
		t.Fatal(err)
	}
	state := guest.EFIState([]guest.Report{report}, efi.State{})
	return &state
}

func (s *site) startVM(t *testing.T, vm *inventory.VM) {
	t.Helper()
	if err := s.run("network"); err != nil {
		t.Fatal(err)
	}
	if err := s.run("boot", vm.Name); err != nil {
		t.Fatal(err)
	}
}

// waitForBoot waits until vm's guest prints its marker, and compares it with vm.
func (s *site) waitForBoot(t *testing.T, vm *inventory.VM, driver string) {
	t.Helper()
	s.eventually(t, "a marker is on the console", func() bool {
		text, err := os.ReadFile(filepath.Join(s.folder, "console"))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			m, ok, err := boot.ParseMarker(line)
			if !ok || !strings.HasSuffix(line, "\n") {
				continue
			}
			if err != nil || m.Driver != driver || m.UUID != vm.UUID || len(m.Cards) != 1 || m.Cards[0].MAC != vm.NICs[0].MAC {
				t.Errorf("the guest sees %+v, err %v", m, err)
			}
			return true
		}
		return false
	})
}

// eventually waits until the condition holds. QEMU emulates the guests, so the limit is only for a test that hangs.
func (s *site) eventually(t *testing.T, condition string, holds func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Minute)
	defer cancel()
	for every := time.Tick(200 * time.Millisecond); !holds(); {
		select {
		case <-every:
		case <-ctx.Done():
			t.Fatalf("timeout while waiting until %s", condition)
		}
	}
}

// If libvirtd crashes during an upload, the partial volume stays until the next delivery replaces it.
func TestLibvirtdDiesDuringAnUpload(t *testing.T) {
	t.Parallel()
	d := ownDaemon(t)
	s := newSite(t, d, true)
	data := bytes.Repeat([]byte("all but nothing "), 4<<20)
	vm := webVM(int64(len(data)))
	stage, to, def := stageVM(t, vm, s.platform, data)
	complete := platform.Delivery{Definition: def, Open: to.Read}
	var err error
	if complete.Domain, err = stage.Domain(def); err != nil {
		t.Fatal(err)
	}
	interrupted := complete
	interrupted.Open = func(ctx context.Context, img targets.Image) (disk.Source, error) {
		src, err := to.Read(ctx, img)
		return &killingDisk{Source: src, at: img.Size / 2, kill: func() error { return d.run("kill") }}, err
	}
	if _, err := s.platform.Deliver(t.Context(), interrupted); !fault.Is(err, fault.Transient) || fault.HintOf(err) == "" {
		t.Errorf("Deliver while libvirtd crashes: got %v (%v), want transient with a hint", err, fault.KindOf(err))
	}
	if err := s.platform.Check(t.Context(), vm); !fault.Is(err, fault.Unreachable) || fault.HintOf(err) == "" {
		t.Errorf("Check without libvirtd: got %v, want unreachable with a hint", err)
	}
	if err := d.run("start"); err != nil {
		t.Fatal(err)
	}
	s.client = d.newClient(t)
	if _, err := s.platform.Deliver(t.Context(), complete); err != nil {
		t.Fatal(err)
	}
	vms := s.storedVMs(t)
	if len(vms) != 1 || len(vms[0].Disks) != 1 || !bytes.Equal(vms[0].Disks[0], data) {
		t.Errorf("got %d VMs, want 1 with the staged disk", len(vms))
	}
	if objects := s.listObjects(t); len(objects) != 2 {
		t.Errorf("got %q, want a domain and a volume", objects)
	}
}

// killingDisk calls kill when it is read at offset at for the first time.
type killingDisk struct {
	disk.Source
	at   int64
	kill func() error
	done bool
}

func (f *killingDisk) ReadAt(ctx context.Context, p []byte, off int64) error {
	if off >= f.at && !f.done {
		f.done = true
		if err := f.kill(); err != nil {
			return err
		}
	}
	return f.Source.ReadAt(ctx, p, off)
}

func (f *killingDisk) Hints() disk.Hints { return disk.Hints{} }
