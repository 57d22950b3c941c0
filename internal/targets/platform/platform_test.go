package platform

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"testing"

	"github.com/decamp/decamp/internal/efi"
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/targets"
	"github.com/decamp/decamp/internal/targets/dir"
)

// recordingPlatform is a platform that records its deliveries.
type recordingPlatform struct {
	delivered map[string][]byte // first sector of the first disk, by VM name
	calls     int
	refuse    error
}

func (n *recordingPlatform) Check(context.Context, *inventory.VM) error { return n.refuse }

func (n *recordingPlatform) Deliver(ctx context.Context, d Delivery) (Receipt, error) {
	n.calls++
	if n.refuse != nil {
		return Receipt{}, n.refuse
	}
	src, err := d.Open(ctx, d.Images[0])
	if err != nil {
		return Receipt{}, err
	}
	defer src.Close()
	sector := make([]byte, 512)
	if err := src.ReadAt(ctx, sector, 0); err != nil {
		return Receipt{}, err
	}
	d.Progress(512, 512)
	n.delivered[d.VM.Name] = sector
	return Receipt{Platform: "notebook", ID: "1", Name: d.VM.Name}, nil
}

func (n *recordingPlatform) Withdraw(_ context.Context, vm *inventory.VM) error {
	delete(n.delivered, vm.Name)
	return n.refuse
}

// fixture is a target with one staged VM.
type fixture struct {
	*testing.T
	root     string
	platform *recordingPlatform
	reported int64
	target   *Target
	def      targets.Definition
}

func newFixture(t *testing.T, o Options) *fixture {
	t.Helper()
	r := &fixture{T: t, root: t.TempDir(), platform: &recordingPlatform{delivered: map[string][]byte{}}}
	stage, err := dir.New(r.root, dir.Options{})
	must(t, err)
	r.target = New(stage, r.platform, o)
	r.def = targets.Definition{Decamp: "v0.0.0-test", Progress: func(done, _ int64) { r.reported = done }, VM: &inventory.VM{
		Ref: "7", Name: "web01", UUID: "564d0000-0000-0000-0000-000000000001",
		CPUs: 1, MemoryMiB: 64, Firmware: inventory.BIOS,
		Controllers: []inventory.Controller{{Key: 1000, Bus: inventory.PVSCSI}},
		Disks:       []inventory.Disk{{Key: 2000, Controller: 1000, Capacity: 1 << 20}},
	}}
	r.stageImage()
	return r
}

// stageImage writes the VM's image, like the steps before commit.
func (r *fixture) stageImage() {
	r.Helper()
	images, err := r.target.Plan(r.Context(), r.def.VM)
	must(r.T, err)
	w, _, err := r.target.Open(r.Context(), images[0])
	must(r.T, err)
	must(r.T, w.WriteAt(r.Context(), append([]byte("first sector"), make([]byte, 500)...), 0))
	must(r.T, w.Finish(r.Context()))
	must(r.T, w.Close())
	must(r.T, os.WriteFile(images[0].Manifest, []byte("manifest"), 0o600))
	images[0].Root = "aa55"
	r.def.Images = images
}

// hasFile reports whether the VM's folder contains the file.
func (r *fixture) hasFile(file string) bool {
	_, err := os.Lstat(filepath.Join(r.root, "web01", file))
	return err == nil
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestDeliversAndClearsTheStage(t *testing.T) {
	for _, keep := range []bool{false, true} {
		r := newFixture(t, Options{Keep: keep})
		for range 2 { // as after a crash before the first result was recorded
			must(t, r.target.Publish(t.Context(), r.def))
		}
		if r.platform.calls != 1 || string(r.platform.delivered["web01"][:12]) != "first sector" || r.reported != 512 {
			t.Errorf("got %d deliveries of %q, progress %d bytes", r.platform.calls, r.platform.delivered["web01"], r.reported)
		}
		if r.hasFile("web01-disk0.raw") != keep || !r.hasFile("web01-disk0.raw.manifest") {
			t.Errorf("Keep %v: image exists: %v, manifest exists: %v", keep, r.hasFile("web01-disk0.raw"), r.hasFile("web01-disk0.raw.manifest"))
		}
		record, err := dir.ReadRecord(filepath.Join(r.root, "web01"))
		must(t, err)
		if d := record.Delivered; d == nil || d.Platform != "notebook" || d.ID != "1" || d.Name != "web01" {
			t.Errorf("got recorded receipt %+v", d)
		}
	}
}

// A platform that cannot carry over EFI variables does not receive them.
func TestVariablesRequirePlatformSupport(t *testing.T) {
	r := newFixture(t, Options{})
	def := targets.Definition{VM: r.def.VM, EFI: &efi.State{Entries: []efi.Entry{{Label: "debian"}}}}
	for _, tt := range []struct {
		platform Platform
		carries  bool
	}{{r.platform, false}, {efiPlatform{r.platform, false}, false}, {efiPlatform{r.platform, true}, true}} {
		r.target.platform = tt.platform
		if got := r.target.withSupportedEFI(def).EFI != nil; got != tt.carries {
			t.Errorf("%T: got EFI state %v, want %v", tt.platform, got, tt.carries)
		}
	}
}

type efiPlatform struct {
	Platform
	carries bool
}

func (c efiPlatform) CarriesEFI() bool { return c.carries }

// Plan fails if the platform refuses the VM. If Deliver fails, the images stay on the stage for another try.
func TestFailedDeliveryKeepsStagedImages(t *testing.T) {
	r := newFixture(t, Options{})
	r.platform.refuse = fault.New(fault.Denied, "the token may not")
	if err := r.target.Publish(t.Context(), r.def); !fault.Is(err, fault.Denied) {
		t.Errorf("Publish: got %v, want denied", err)
	}
	if _, err := os.Lstat(r.def.Images[0].Path); err != nil || r.hasFile("vm.json") {
		t.Errorf("image: %v; published: %v", err, r.hasFile("vm.json"))
	}
	if _, err := r.target.Plan(t.Context(), r.def.VM); !fault.Is(err, fault.Denied) {
		t.Errorf("Plan: got %v, want denied", err)
	}
	r.platform.refuse = nil
	must(t, r.target.Publish(t.Context(), r.def))
}

// A platform may move the image files. A later Publish does not require them.
func TestPublishAfterImagesWereMoved(t *testing.T) {
	r := newFixture(t, Options{})
	must(t, os.Rename(r.def.Images[0].Path, filepath.Join(r.root, "taken")))
	r.platform.delivered["web01"] = nil
	r.def.Delivered = &Receipt{Platform: "notebook"}
	must(t, r.target.Target.Publish(t.Context(), r.def))
	must(t, r.target.Publish(t.Context(), r.def))
	if r.platform.calls != 0 || !r.hasFile("vm.json") {
		t.Errorf("got %d deliveries, published: %v", r.platform.calls, r.hasFile("vm.json"))
	}
}

func TestDiscardAndWithdrawCallThePlatformFirst(t *testing.T) {
	r := newFixture(t, Options{})
	r.platform.refuse = errors.New("away")
	if err := r.target.Discard(t.Context(), r.def.VM, r.def.Images); !errors.Is(err, r.platform.refuse) {
		t.Errorf("Discard: got %v, want the platform's error", err)
	}
	r.platform.refuse = nil
	must(t, r.target.Discard(t.Context(), r.def.VM, r.def.Images))
	r.stageImage()
	must(t, r.target.Publish(t.Context(), r.def))
	must(t, r.target.Withdraw(t.Context(), r.def.VM))
	if left, err := os.ReadDir(r.root); err != nil || len(left) > 0 || len(r.platform.delivered) > 0 {
		t.Errorf("remaining files: %v, %v; at the platform: %v", left, err, r.platform.delivered)
	}
}

// consolePlatform is a platform whose VMs have consoles.
type consolePlatform struct {
	*recordingPlatform
	refuse error
}

func (s consolePlatform) Console(_ context.Context, def targets.Definition) (io.ReadWriteCloser, error) {
	if s.refuse != nil {
		return nil, s.refuse
	}
	ours, theirs := net.Pipe()
	go func() {
		defer theirs.Close()
		_, _ = io.WriteString(theirs, "login to "+def.VM.Name)
	}()
	return ours, nil
}

// Console returns the platform's console, or ErrNoConsole if the platform has no consoles.
func TestConsole(t *testing.T) {
	r := newFixture(t, Options{})
	if _, err := r.target.Console(t.Context(), r.def); !errors.Is(err, targets.ErrNoConsole) || fault.HintOf(err) == "" {
		t.Errorf("platform without consoles: got %v", err)
	}
	r.target.platform = consolePlatform{recordingPlatform: r.platform}
	console, err := r.target.Console(t.Context(), r.def)
	must(t, err)
	defer console.Close()
	if text, err := io.ReadAll(console); err != nil || string(text) != "login to web01" {
		t.Errorf("got %q, %v", text, err)
	}
	r.target.platform = consolePlatform{r.platform, fault.New(fault.Conflict, "it is off")}
	if console, err := r.target.Console(t.Context(), r.def); console != nil || !fault.Is(err, fault.Conflict) {
		t.Errorf("VM that is off: got %v, %v", console, err)
	}
}
