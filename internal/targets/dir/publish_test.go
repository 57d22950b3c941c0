package dir

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/decamp/decamp/internal/disk"
	"golang.org/x/sys/unix"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/targets"
)

// newTarget returns a target on an empty folder.
func newTarget(t *testing.T, opts ...Options) *Target {
	t.Helper()
	o := append(opts, Options{})[0]
	o.Domain.Type = "qemu"
	d, err := New(t.TempDir(), o)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// stageVM plans vm and writes its images, like the steps before Publish.
func stageVM(t *testing.T, d *Target, vm *inventory.VM) targets.Definition {
	t.Helper()
	images, err := d.Plan(t.Context(), vm)
	if err != nil {
		t.Fatal(err)
	}
	for i := range images {
		images[i].Root = "aa55"
		writeImage(t, d, images[i], []byte("first sector"))
		if err := os.WriteFile(images[i].Manifest, []byte("manifest"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return targets.Definition{VM: vm, Images: images, Decamp: "v0.0.0-test"}
}

func writeImage(t *testing.T, d *Target, img targets.Image, data []byte) {
	t.Helper()
	w, created, err := d.Open(t.Context(), img)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	if !created {
		t.Errorf("%s exists already", img.Path)
	}
	if err := w.WriteAt(t.Context(), data, 0); err != nil {
		t.Fatal(err)
	}
	if err := w.Finish(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// listFiles lists the files below the target's root.
func listFiles(t *testing.T, d *Target) []string {
	t.Helper()
	var found []string
	err := fs.WalkDir(os.DirFS(d.root), ".", func(path string, e fs.DirEntry, err error) error {
		if err == nil && !e.IsDir() {
			found = append(found, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

var publishedFiles = []string{
	"web_01/domain.xml", "web_01/vm.json", "web_01/web_01-disk0.raw", "web_01/web_01-disk0.raw.manifest",
}

func TestPublishCreatesOneFolder(t *testing.T) {
	d := newTarget(t)
	def := stageVM(t, d, biosVM())
	if got := listFiles(t, d); len(got) != 2 || !strings.Contains(got[0], partialInfix) {
		t.Errorf("got %q before Publish, want two partial files", got)
	}
	for range 3 { // repeated, as after a crash
		if err := d.Publish(t.Context(), def); err != nil {
			t.Fatal(err)
		}
		if got := listFiles(t, d); !slices.Equal(got, publishedFiles) {
			t.Errorf("got %q after Publish", got)
		}
	}
	r, err := ReadRecord(filepath.Join(d.root, "web_01"))
	if err != nil {
		t.Fatal(err)
	}
	if r.Source.Name != "web 01" || r.Images[0].File != "web_01-disk0.raw" || r.Images[0].Root != "aa55" {
		t.Errorf("got record %+v", r)
	}
}

func TestPublishResumesAfterCrash(t *testing.T) {
	crashes := map[string]func(d *Target, def targets.Definition) error{
		"domain written": func(d *Target, def targets.Definition) error {
			return os.WriteFile(filepath.Join(d.partialFolder(def.VM), "domain.xml"), []byte("<dom"), 0o644)
		},
		"both written": func(d *Target, def targets.Definition) error { return d.writeDefinition(d.partialFolder(def.VM), def) },
		"renamed": func(d *Target, def targets.Definition) error {
			if err := d.writeDefinition(d.partialFolder(def.VM), def); err != nil {
				return err
			}
			return renameFolder(d.partialFolder(def.VM), filepath.Join(d.root, "web_01"))
		},
	}
	for name, crash := range crashes {
		t.Run(name, func(t *testing.T) {
			d := newTarget(t)
			def := stageVM(t, d, biosVM())
			if err := crash(d, def); err != nil {
				t.Fatal(err)
			}
			if err := d.Publish(t.Context(), def); err != nil {
				t.Fatal(err)
			}
			if got := listFiles(t, d); !slices.Equal(got, publishedFiles) {
				t.Errorf("got files %q", got)
			}
			xml, err := os.ReadFile(filepath.Join(d.root, "web_01", "domain.xml"))
			if err != nil || !strings.HasSuffix(string(xml), "</domain>\n") {
				t.Errorf("got domain %q, err %v", xml, err)
			}
		})
	}
}

func TestPublishRefusesUnverifiedImages(t *testing.T) {
	d := newTarget(t)
	def := stageVM(t, d, biosVM())
	def.Images[0].Root = ""
	if err := d.Publish(t.Context(), def); err == nil {
		t.Error("Publish accepts an image without a root hash")
	}
	def.Images[0].Root = "aa55"
	if err := os.Remove(def.Images[0].Path); err != nil {
		t.Fatal(err)
	}
	if err := d.Publish(t.Context(), def); !fault.Is(err, fault.NotFound) {
		t.Errorf("missing image: %v", err)
	}
	if _, err := os.Lstat(filepath.Join(d.root, "web_01")); err == nil {
		t.Error("the published folder exists")
	}
}

func TestPublishDoesNotOverwriteForeignFolder(t *testing.T) {
	d := newTarget(t)
	def := stageVM(t, d, biosVM())
	foreign := filepath.Join(d.root, "web_01", "theirs")
	if err := os.Mkdir(filepath.Dir(foreign), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(foreign, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := d.Publish(t.Context(), def); !fault.Is(err, fault.Conflict) || fault.HintOf(err) == "" {
		t.Errorf("Publish over a foreign folder: %v", err)
	}
	if _, err := d.Plan(t.Context(), biosVM()); !fault.Is(err, fault.Conflict) {
		t.Errorf("Plan with a foreign folder: %v", err)
	}
	if _, err := os.Lstat(foreign); err != nil {
		t.Error(err)
	}
}

// Plan distinguishes a published copy of the same VM from a foreign folder.
func TestPlanOfAPublishedVM(t *testing.T) {
	d := newTarget(t)
	if err := d.Publish(t.Context(), stageVM(t, d, biosVM())); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Plan(t.Context(), biosVM()); !fault.Is(err, fault.Conflict) || !strings.Contains(fault.HintOf(err), "decamp verify "+d.root) {
		t.Errorf("same VM: got %v (hint %q)", err, fault.HintOf(err))
	}
	other := changedVM(biosVM(), func(vm *inventory.VM) { vm.UUID = "564d0000-0000-0000-0000-0000000000ff" })
	if _, err := d.Plan(t.Context(), other); !fault.Is(err, fault.Conflict) || strings.Contains(fault.HintOf(err), "verify") {
		t.Errorf("other VM: got %v (hint %q)", err, fault.HintOf(err))
	}
}

func TestVMsWithSameNameAreAConflict(t *testing.T) {
	d := newTarget(t)
	namesake := changedVM(biosVM(), func(vm *inventory.VM) { vm.Ref, vm.Name = "8", "web_01" })
	def := stageVM(t, d, biosVM())
	if _, err := d.Plan(t.Context(), biosVM()); err != nil {
		t.Errorf("Plan of the same VM: %v", err)
	}
	if _, err := d.Plan(t.Context(), namesake); !fault.Is(err, fault.Conflict) {
		t.Errorf("Plan of a namesake during the copy: %v", err)
	}
	if err := d.Publish(t.Context(), def); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Plan(t.Context(), namesake); !fault.Is(err, fault.Conflict) {
		t.Errorf("Plan of a namesake after Publish: %v", err)
	}
	def.VM = namesake
	if err := d.Publish(t.Context(), def); !fault.Is(err, fault.Conflict) {
		t.Errorf("Publish of a namesake: %v", err)
	}
}

func TestPlanRefusesWithoutSpace(t *testing.T) {
	d := newTarget(t)
	vm := changedVM(biosVM(), func(vm *inventory.VM) { vm.Disks[0].Thin, vm.Disks[0].Used = true, 10<<20 })
	d.free = func(string) (int64, error) { return 9 << 20, nil }
	if _, err := d.Plan(t.Context(), vm); !fault.Is(err, fault.Full) || fault.HintOf(err) == "" {
		t.Errorf("10 MiB with 9 MiB free: %v", err)
	}
	d.free = func(string) (int64, error) { return 10 << 20, nil }
	if _, err := d.Plan(t.Context(), vm); err != nil {
		t.Errorf("10 MiB with 10 MiB free: %v", err)
	}
}

func TestOpenAndReadBeforeAndAfterPublish(t *testing.T) {
	for _, format := range []targets.Format{targets.Raw, targets.QCOW2} {
		t.Run(string(format), func(t *testing.T) { testOpenAndRead(t, newTarget(t, Options{Format: format})) })
	}
}

func testOpenAndRead(t *testing.T, d *Target) {
	t.Helper()
	def := stageVM(t, d, biosVM())
	img := def.Images[0]
	w, created, err := d.Open(t.Context(), img)
	if err != nil || created {
		t.Fatalf("second Open: created %v, err %v", created, err)
	}
	if err := w.Finish(t.Context()); err != nil {
		t.Fatal(err)
	}
	checkRead(t, d, img)
	if err := d.Publish(t.Context(), def); err != nil {
		t.Fatal(err)
	}
	checkRead(t, d, img)
}

func checkRead(t *testing.T, d *Target, img targets.Image) {
	t.Helper()
	src, err := d.Read(t.Context(), img)
	if err != nil {
		t.Fatal(err)
	}
	defer src.Close()
	p := make([]byte, disk.SectorSize)
	if err := src.ReadAt(t.Context(), p, 0); err != nil || string(p[:12]) != "first sector" || src.Size() != img.Size {
		t.Errorf("got %q from a disk of %d bytes, err %v", p[:12], src.Size(), err)
	}
}

func TestOpenReplacesAnEmptyImage(t *testing.T) {
	d := newTarget(t)
	images, err := d.Plan(t.Context(), biosVM())
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Dir(images[0].Path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(images[0].Path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	writeImage(t, d, images[0], []byte("x"))
}

func TestDiscardRemovesThePartialFolderOnly(t *testing.T) {
	d := newTarget(t)
	first := stageVM(t, d, biosVM())
	second := stageVM(t, d, efiVM())
	if err := d.Publish(t.Context(), first); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := d.Discard(t.Context(), first.VM, append(first.Images, second.Images...)); err != nil {
			t.Fatal(err)
		}
	}
	if got := listFiles(t, d); !slices.Equal(got, publishedFiles) {
		t.Errorf("got files %q", got)
	}
	for _, path := range []string{first.Images[0].Final, "/etc/passwd", filepath.Join(d.root, "x")} {
		if err := d.Discard(context.Background(), &inventory.VM{}, []targets.Image{{Path: path}}); err == nil {
			t.Errorf("Discard accepts %s", path)
		}
	}
	if got := listFiles(t, d); !slices.Equal(got, publishedFiles) {
		t.Errorf("got files %q", got)
	}
}

func TestWithdrawRemovesOnlyPublishedVM(t *testing.T) {
	d := newTarget(t)
	first, second := stageVM(t, d, biosVM()), stageVM(t, d, efiVM())
	for _, def := range []targets.Definition{first, second} {
		if err := d.Publish(t.Context(), def); err != nil {
			t.Fatal(err)
		}
	}
	other := *biosVM()
	other.UUID = "42000000-0000-0000-0000-000000000000"
	if err := d.Withdraw(t.Context(), &other); !fault.Is(err, fault.Conflict) {
		t.Errorf("another VM with the name: %v", err)
	}
	image, err := os.OpenFile(second.Images[0].Final, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	lock := unix.Flock_t{Type: unix.F_RDLCK, Start: 100, Len: 1} // like QEMU's lock
	if err := unix.FcntlFlock(image.Fd(), unix.F_OFD_SETLK, &lock); err != nil {
		t.Fatal(err)
	}
	if err := d.Withdraw(t.Context(), efiVM()); !fault.Is(err, fault.Conflict) {
		t.Errorf("a running VM: %v", err)
	}
	if err := image.Close(); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := d.Withdraw(t.Context(), efiVM()); err != nil {
			t.Fatal(err)
		}
	}
	if got := listFiles(t, d); !slices.Equal(got, publishedFiles) {
		t.Errorf("got files %q", got)
	}
}

func FuzzParseRecord(f *testing.F) {
	f.Add([]byte(`{"version":1,"source":{"name":"x"},"images":[{"file":"a.raw","manifest":"a.raw.manifest","size":1}]}`))
	f.Add([]byte(`{"version":1,"source":{},"images":[{"file":"../../etc/passwd","manifest":"m"}]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		r, err := parseRecord(text)
		if err != nil {
			return
		}
		for _, img := range r.Images {
			if filepath.Dir(filepath.Join("/srv/vm", img.File)) != "/srv/vm" || filepath.Dir(filepath.Join("/srv/vm", img.Manifest)) != "/srv/vm" {
				t.Errorf("%q or %q is outside of the folder", img.File, img.Manifest)
			}
		}
	})
}

func TestInvalidRoot(t *testing.T) {
	at := filepath.Join(t.TempDir(), "it's a file")
	if _, err := New(at, Options{}); !fault.Is(err, fault.NotFound) || !strings.Contains(fault.HintOf(err), "mkdir -p "+fault.Quote(at)) {
		t.Errorf("missing folder: got %v (hint %q)", err, fault.HintOf(err))
	}
	if err := os.WriteFile(at, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := New(at, Options{}); !fault.Is(err, fault.NotFound) || strings.Contains(fault.HintOf(err), "mkdir") {
		t.Errorf("file: got %v (hint %q)", err, fault.HintOf(err))
	}
}

// Open refuses an image whose path or folder was replaced by a link to another file.
func TestReplacedImageIsNotWritten(t *testing.T) {
	d := newTarget(t, Options{})
	images, err := d.Plan(t.Context(), biosVM())
	if err != nil {
		t.Fatal(err)
	}
	precious := filepath.Join(t.TempDir(), "precious")
	for _, link := range []string{images[0].Path, filepath.Dir(images[0].Path)} {
		if err := os.RemoveAll(filepath.Dir(images[0].Path)); err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(os.MkdirAll(filepath.Dir(link), 0o755), os.Symlink(precious, link)); err != nil {
			t.Fatal(err)
		}
		img, _, err := d.Open(t.Context(), images[0])
		if !fault.Is(err, fault.Conflict) || fault.HintOf(err) == "" {
			t.Errorf("%s: got %v, %v (hint %q), want a conflict", link, img, err, fault.HintOf(err))
		}
		if _, err := os.Lstat(precious); !os.IsNotExist(err) {
			t.Errorf("%s: the file behind the link was created: %v", link, err)
		}
	}
}

// Plan detects a read-only folder, before the VM is powered off for the copy.
func TestReadOnlyRootIsDeniedByPlan(t *testing.T) {
	root := t.TempDir()
	if os.Getuid() == 0 { // root ignores permissions
		if err := unix.Mount("none", root, "tmpfs", unix.MS_RDONLY, "size=1m"); err != nil {
			t.Skipf("requires mounting tmpfs, which the kernel refuses: %v", err)
		}
		defer func() {
			if err := unix.Unmount(root, 0); err != nil {
				t.Error(err)
			}
		}()
	} else if err := os.Chmod(root, 0o555); err != nil {
		t.Fatal(err)
	}
	d, err := New(root, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.Plan(t.Context(), biosVM()); !fault.Is(err, fault.Denied) || fault.HintOf(err) == "" {
		t.Errorf("got %v (hint %q), want denied", err, fault.HintOf(err))
	}
}

// The error for a record of a newer version contains both versions, and the hint names the program that wrote it.
func TestNewerRecordIsRefused(t *testing.T) {
	folder := t.TempDir()
	if err := os.WriteFile(filepath.Join(folder, recordFile), []byte(`{"version":2,"decamp":"0.9.0","source":{"name":"x"}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := ReadRecord(folder)
	if !fault.Is(err, fault.Unsupported) || !strings.Contains(err.Error(), "version 2, and this decamp supports version 1") || !strings.Contains(fault.HintOf(err), "0.9.0") {
		t.Errorf("got %v (hint %q), want unsupported", err, fault.HintOf(err))
	}
}
