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

// webVM has one disk of so many bytes.
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

// onStage writes vm's disk to a stage, as the steps before commit do.
func onStage(t *testing.T, vm *inventory.VM, p platform.Platform, data []byte) (*dir.Target, *platform.Target, targets.Definition) {
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

// A delivered VM is right when libvirt starts it and its guest finds the hardware it had.
func TestDeliveredVMBoots(t *testing.T) {
	t.Parallel()
	linked := func(t *testing.T, d *daemon) *site { return newSite(t, d, false) }
	uploaded := func(t *testing.T, d *daemon) *site { return newSite(t, d, true) }
	onLVM := func(t *testing.T, d *daemon) *site { return newGroupSiteOf(t, d, 2*tinyguest.Size) }
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
		{"linked, by its boot entry", linked, byEFI, tinyguest.Entry, "virtio_scsi", false}, // it has no fallback loader
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
			_, to, def := onStage(t, vm, s.place, image)
			def.EFI = stateOf(t, to, def.Images[0])
			if err := to.Publish(t.Context(), def); err != nil {
				t.Fatal(err)
			}
			if left, err := filepath.Glob(filepath.Join(filepath.Dir(def.Images[0].Final), "*.raw")); err != nil || len(left) > 0 {
				t.Errorf("%v are still on the stage", left)
			}
			s.start(t, vm)
			if err := to.Withdraw(t.Context(), vm); !fault.Is(err, fault.Conflict) || fault.HintOf(err) == "" {
				t.Errorf("withdraw a VM that runs: %v", err)
			}
			s.boots(t, vm, tt.driver)
			s.eventually(t, "the guest powers off", func() bool {
				domains, _ := s.domains(t)
				return domains[0].ID == -1
			})
			if err := to.Withdraw(t.Context(), vm); err != nil {
				t.Error(err)
			}
			if left := s.things(t); len(left) > 0 {
				t.Errorf("%q is left", left)
			}
		})
	}
}

// stateOf is what an image offers as boot entries.
func stateOf(t *testing.T, to *platform.Target, img targets.Image) *efi.State {
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

func (s *site) start(t *testing.T, vm *inventory.VM) {
	t.Helper()
	if err := s.say("network"); err != nil {
		t.Fatal(err)
	}
	if err := s.say("boot", vm.Name); err != nil {
		t.Fatal(err)
	}
}

// boots waits for vm's guest to tell what it found.
func (s *site) boots(t *testing.T, vm *inventory.VM, driver string) {
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

// eventually waits for something, with patience.
func (s *site) eventually(t *testing.T, what string, so func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for every := time.Tick(200 * time.Millisecond); !so(); {
		select {
		case <-every:
		case <-ctx.Done():
			t.Fatalf("it is not so that %s", what)
		}
	}
}

// Libvirtd dies in the middle of an upload. What it had stays, until the next delivery takes it away.
func TestLibvirtdDiesDuringAnUpload(t *testing.T) {
	t.Parallel()
	d := ownDaemon(t)
	s := newSite(t, d, true)
	data := bytes.Repeat([]byte("all but nothing "), 4<<20)
	vm := webVM(int64(len(data)))
	stage, to, def := onStage(t, vm, s.place, data)
	whole := platform.Delivery{Definition: def, Open: to.Read}
	var err error
	if whole.Domain, err = stage.Domain(def); err != nil {
		t.Fatal(err)
	}
	cut := whole
	cut.Open = func(ctx context.Context, img targets.Image) (disk.Source, error) {
		src, err := to.Read(ctx, img)
		return &fatal{Source: src, at: img.Size / 2, kill: func() error { return d.say("kill") }}, err
	}
	if _, err := s.place.Deliver(t.Context(), cut); !fault.Is(err, fault.Transient) || fault.HintOf(err) == "" {
		t.Errorf("libvirtd is gone: %v (%v), want transient with a remedy", err, fault.KindOf(err))
	}
	if err := s.place.Check(t.Context(), vm); !fault.Is(err, fault.Unreachable) || fault.HintOf(err) == "" {
		t.Errorf("libvirtd is not there: %v, want unreachable with a remedy", err)
	}
	if err := d.say("start"); err != nil {
		t.Fatal(err)
	}
	s.client = d.client(t)
	if _, err := s.place.Deliver(t.Context(), whole); err != nil {
		t.Fatal(err)
	}
	seen := s.seen(t)
	if len(seen) != 1 || len(seen[0].Disks) != 1 || !bytes.Equal(seen[0].Disks[0], data) {
		t.Errorf("%d VMs, or their disks differ", len(seen))
	}
	if things := s.things(t); len(things) != 2 {
		t.Errorf("there is %q, want a domain and a volume", things)
	}
}

// fatal is a disk at one place of which somebody kills libvirtd.
type fatal struct {
	disk.Source
	at   int64
	kill func() error
	done bool
}

func (f *fatal) ReadAt(ctx context.Context, p []byte, off int64) error {
	if off >= f.at && !f.done {
		f.done = true
		if err := f.kill(); err != nil {
			return err
		}
	}
	return f.Source.ReadAt(ctx, p, off)
}

func (f *fatal) Hints() disk.Hints { return disk.Hints{} }
