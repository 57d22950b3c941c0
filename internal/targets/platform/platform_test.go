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

// notebook is a place that writes down what it is given.
type notebook struct {
	delivered map[string][]byte // the first disk's first sector, by VM
	calls     int
	refuse    error
}

func (n *notebook) Check(context.Context, *inventory.VM) error { return n.refuse }

func (n *notebook) Deliver(ctx context.Context, d Delivery) (Receipt, error) {
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

func (n *notebook) Withdraw(_ context.Context, vm *inventory.VM) error {
	delete(n.delivered, vm.Name)
	return n.refuse
}

// rig is a target with one VM that is copied.
type rig struct {
	*testing.T
	root   string
	place  *notebook
	told   int64
	target *Target
	def    targets.Definition
}

func newRig(t *testing.T, o Options) *rig {
	t.Helper()
	r := &rig{T: t, root: t.TempDir(), place: &notebook{delivered: map[string][]byte{}}}
	stage, err := dir.New(r.root, dir.Options{})
	must(t, err)
	r.target = New(stage, r.place, o)
	r.def = targets.Definition{Decamp: "v0.0.0-test", Progress: func(done, _ int64) { r.told = done }, VM: &inventory.VM{
		Ref: "7", Name: "web01", UUID: "564d0000-0000-0000-0000-000000000001",
		CPUs: 1, MemoryMiB: 64, Firmware: inventory.BIOS,
		Controllers: []inventory.Controller{{Key: 1000, Bus: inventory.PVSCSI}},
		Disks:       []inventory.Disk{{Key: 2000, Controller: 1000, Capacity: 1 << 20}},
	}}
	r.copy()
	return r
}

// copy writes the VM's image, as the steps before commit do.
func (r *rig) copy() {
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

func (r *rig) has(file string) bool {
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
		r := newRig(t, Options{Keep: keep})
		for range 2 { // a crash may have lost that it was done
			must(t, r.target.Publish(t.Context(), r.def))
		}
		if r.place.calls != 1 || string(r.place.delivered["web01"][:12]) != "first sector" || r.told != 512 {
			t.Errorf("%d deliveries of %q, %d bytes told", r.place.calls, r.place.delivered["web01"], r.told)
		}
		if r.has("web01-disk0.raw") != keep || !r.has("web01-disk0.raw.manifest") {
			t.Errorf("keep %v: the image is there: %v; its manifest: %v", keep, r.has("web01-disk0.raw"), r.has("web01-disk0.raw.manifest"))
		}
		record, err := dir.ReadRecord(filepath.Join(r.root, "web01"))
		must(t, err)
		if d := record.Delivered; d == nil || d.Platform != "notebook" || d.ID != "1" || d.Name != "web01" {
			t.Errorf("recorded: %+v", d)
		}
	}
}

// A place that takes no variables is given none, and what is tried for it has none either.
func TestVariablesAreForPlacesThatTakeThem(t *testing.T) {
	r := newRig(t, Options{})
	def := targets.Definition{VM: r.def.VM, EFI: &efi.State{Entries: []efi.Entry{{Label: "debian"}}}}
	for _, tt := range []struct {
		place Platform
		takes bool
	}{{r.place, false}, {carrier{r.place, false}, false}, {carrier{r.place, true}, true}} {
		r.target.platform = tt.place
		if got := r.target.withSupportedEFI(def).EFI != nil; got != tt.takes {
			t.Errorf("%T %v: %v", tt.place, tt.takes, got)
		}
	}
}

type carrier struct {
	Platform
	takes bool
}

func (c carrier) CarriesEFI() bool { return c.takes }

// What the place refuses before it is copied is not planned; what it refuses in the end stays on the
// stage, to be tried again.
func TestRefusalsKeepTheStage(t *testing.T) {
	r := newRig(t, Options{})
	r.place.refuse = fault.New(fault.Denied, "the token may not")
	if err := r.target.Publish(t.Context(), r.def); !fault.Is(err, fault.Denied) {
		t.Errorf("publish: %v", err)
	}
	if _, err := os.Lstat(r.def.Images[0].Path); err != nil || r.has("vm.json") {
		t.Errorf("the image: %v; published: %v", err, r.has("vm.json"))
	}
	if _, err := r.target.Plan(t.Context(), r.def.VM); !fault.Is(err, fault.Denied) {
		t.Errorf("plan: %v", err)
	}
	r.place.refuse = nil
	must(t, r.target.Publish(t.Context(), r.def))
}

// A place may take the image files themselves.
func TestTakenImages(t *testing.T) {
	r := newRig(t, Options{})
	must(t, os.Rename(r.def.Images[0].Path, filepath.Join(r.root, "taken")))
	r.place.delivered["web01"] = nil
	r.def.Delivered = &Receipt{Platform: "notebook"}
	must(t, r.target.Target.Publish(t.Context(), r.def))
	must(t, r.target.Publish(t.Context(), r.def))
	if r.place.calls != 0 || !r.has("vm.json") {
		t.Errorf("%d deliveries, published: %v", r.place.calls, r.has("vm.json"))
	}
}

func TestDiscardAndWithdrawAskThePlaceFirst(t *testing.T) {
	r := newRig(t, Options{})
	r.place.refuse = errors.New("away")
	if err := r.target.Discard(t.Context(), r.def.VM, r.def.Images); !errors.Is(err, r.place.refuse) {
		t.Errorf("discard: %v", err)
	}
	r.place.refuse = nil
	must(t, r.target.Discard(t.Context(), r.def.VM, r.def.Images))
	r.copy()
	must(t, r.target.Publish(t.Context(), r.def))
	must(t, r.target.Withdraw(t.Context(), r.def.VM))
	if left, err := os.ReadDir(r.root); err != nil || len(left) > 0 || len(r.place.delivered) > 0 {
		t.Errorf("left: %v, %v; at the place: %v", left, err, r.place.delivered)
	}
}

// spoken is a place whose VMs have consoles.
type spoken struct {
	*notebook
	refuse error
}

func (s spoken) Console(_ context.Context, def targets.Definition) (io.ReadWriteCloser, error) {
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

// A console is the place's, where it has any.
func TestConsolesAreThePlaces(t *testing.T) {
	r := newRig(t, Options{})
	if _, err := r.target.Console(t.Context(), r.def); !errors.Is(err, targets.ErrNoConsole) || fault.HintOf(err) == "" {
		t.Errorf("a place that has none: %v", err)
	}
	r.target.platform = spoken{notebook: r.place}
	console, err := r.target.Console(t.Context(), r.def)
	must(t, err)
	defer console.Close()
	if text, err := io.ReadAll(console); err != nil || string(text) != "login to web01" {
		t.Errorf("%q, %v", text, err)
	}
	r.target.platform = spoken{r.place, fault.New(fault.Conflict, "it is off")}
	if console, err := r.target.Console(t.Context(), r.def); console != nil || !fault.Is(err, fault.Conflict) {
		t.Errorf("a VM that is off: %v, %v", console, err)
	}
}
