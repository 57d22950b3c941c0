package testboot_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"image/png"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/disk/rawfile"
	"github.com/decamp/decamp/internal/efi"
	"github.com/decamp/decamp/internal/fault"
	detect "github.com/decamp/decamp/internal/guest"
	"github.com/decamp/decamp/internal/nbd"
	"github.com/decamp/decamp/internal/testboot"
	"github.com/decamp/decamp/test/guest"
	"github.com/decamp/decamp/test/lane"
)

// domain writes a libvirt domain of one disk and one card. replace holds pairs of texts.
func domain(firmware, controller, card, image string) string {
	os, machine := "<os>", "pc"
	if firmware == "efi" {
		os, machine = "<os firmware='efi'>", "q35"
	}
	return `<domain type='kvm'><name>tried</name><uuid>564d1234-0000-1111-2222-333344445555</uuid>
<memory unit='MiB'>256</memory><vcpu>1</vcpu>` + os + `<type arch='x86_64' machine='` + machine + `'>hvm</type></os>
<features><acpi/><apic/></features>
<devices>
  <disk type='file' device='disk'><driver name='qemu' type='raw'/><source file='` + image + `'/><target dev='sda' bus='scsi'/>
    <boot order='1'/><address type='drive' controller='0' bus='0' target='0' unit='0'/></disk>
  <controller type='scsi' index='0' model='` + controller + `'/>
  <interface type='network'><mac address='00:50:56:ab:cd:01'/><source network='default'/><model type='` + card + `'/></interface>
</devices></domain>`
}

// bootWithFallback boots a domain, emulated.
func bootWithFallback(t *testing.T, xml string, o testboot.Options) testboot.Report {
	t.Helper()
	o.Accel = testboot.TCG
	r, err := testboot.Boot(t.Context(), xml, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%+v", r)
	return r
}

// marker is what the test guests say when they are up.
const marker = "DECAMP-MARKER boot=ok"

// Where KVM runs no vCPU guests are emulated, and the report says so.
func TestGuestsBoot(t *testing.T) {
	t.Parallel()
	for name, xml := range map[string]string{
		"boot sector": domain("bios", "vmpvscsi", "vmxnet3", guest.BootSector(t, 0)),
		"novirtio":    domain("bios", "vmpvscsi", "vmxnet3", guest.Image(t, guest.NoVirtio)),
		"efi":         domain("efi", "virtio-scsi", "virtio", guest.Image(t, guest.UEFI)),
	} {
		if name != "boot sector" && !lane.Slow {
			continue // TestBootEntryOfTheDomain and TestAgentAnswers boot Linux
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			keep := t.TempDir()
			r, err := testboot.Boot(t.Context(), xml, testboot.Options{
				Expect: marker, Keep: keep, KVM: func(context.Context) error { return errors.New("KVM_RUN: no") }, Memory: 248 << 20,
			})
			if err != nil || !r.Booted() || r.Reason != marker || r.Accel != testboot.TCG || r.NoKVM != "KVM_RUN: no" || !slices.Equal(r.Differences, []string{"248 of 256 MiB of memory"}) {
				t.Fatalf("%+v, %v", r, err)
			}
			log, err := os.ReadFile(r.Serial)
			if err != nil || !strings.Contains(string(log), "boot=ok n=1 ") {
				t.Errorf("the serial log has no first boot: %v", err)
			}
			f, err := os.Open(r.Screen)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			if img, err := png.Decode(f); err != nil || img.Bounds().Dx() < 640 {
				t.Errorf("the picture of the screen: %v", err)
			}
		})
	}
}

// A guest without fallback loader is started by the boot entry in the variables that its domain names, and
// by no other.
func TestBootEntryOfTheDomain(t *testing.T) {
	t.Parallel()
	image := guest.Image(t, guest.Entry)
	fresh := domain("efi", "virtio-scsi", "virtio", image)
	firmware, err := efi.FindFirmware("/", false)
	if err != nil {
		t.Skip(err)
	}
	vars := filepath.Join(t.TempDir(), "a,b_VARS.fd")
	store := variables(t, firmware, image)
	if err := os.WriteFile(vars, store, 0o600); err != nil {
		t.Fatal(err)
	}
	named := strings.Replace(strings.Replace(fresh, "<os firmware='efi'>", "<os>", 1), "</type>",
		"</type><loader readonly='yes' type='pflash'>"+firmware.Code+"</loader><nvram template='"+vars+"'/>", 1)
	for name, c := range map[string]struct {
		xml  string
		want testboot.Verdict
	}{"its own": {named, testboot.Booted}, "fresh": {fresh, testboot.UEFIShell}} {
		if name == "fresh" && !lane.Slow {
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if r := bootWithFallback(t, c.xml, testboot.Options{Expect: marker}); r.Verdict != c.want {
				t.Errorf("%+v", r)
			}
		})
	}
	t.Cleanup(func() {
		if after, err := os.ReadFile(vars); err != nil || !bytes.Equal(after, store) {
			t.Errorf("the trial changed the variables that it started from: %v", err)
		}
	})
}

// variables are those of a firmware with the boot entry that an image offers.
func variables(t *testing.T, f efi.Firmware, image string) []byte {
	t.Helper()
	disk, err := rawfile.OpenSource(image, rawfile.SourceOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer disk.Close()
	report, err := detect.Detect(t.Context(), disk)
	if err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(f.Vars)
	if err != nil {
		t.Fatal(err)
	}
	store, err := efi.OpenStore(data)
	if err == nil {
		err = store.Add(detect.EFIState([]detect.Report{report}, efi.State{}))
	}
	if err != nil {
		t.Fatal(err)
	}
	return store.Bytes()
}

// A disk that is no file is served; what the guest writes does not reach it.
func TestServedDisk(t *testing.T) {
	t.Parallel()
	image, err := os.Open(guest.BootSector(t, 0))
	if err != nil {
		t.Fatal(err)
	}
	defer image.Close()
	r := bootWithFallback(t, domain("bios", "vmpvscsi", "vmxnet3", "/no/such/file"), testboot.Options{
		Expect: marker, Keep: t.TempDir(),
		Served: map[string]func(net.Conn){"/no/such/file": func(conn net.Conn) {
			server := &nbd.Server{Exports: []nbd.Export{{Disk: imageReader{image, t}}}}
			if err := server.ServeConn(t.Context(), conn); err != nil {
				t.Errorf("the end of the disk: %v", err)
			}
		}},
	})
	if !r.Booted() || r.Reason != marker {
		t.Errorf("%+v", r)
	}
}

// imageReader is a disk that cannot be written.
type imageReader struct {
	image *os.File
	t     *testing.T
}

func (r imageReader) Size() int64 {
	info, err := r.image.Stat()
	if err != nil {
		r.t.Error(err)
	}
	return info.Size()
}

func (r imageReader) ReadAt(_ context.Context, p []byte, off int64) error {
	_, err := r.image.ReadAt(p, off)
	return err
}

func (r imageReader) Extents(_ context.Context, g disk.Range) ([]disk.Extent, error) {
	return []disk.Extent{{Range: g, Kind: disk.Data}}, nil
}

// A judge that cannot say no is none.
func TestGuestsThatDoNotBoot(t *testing.T) {
	t.Parallel()
	noise := filepath.Join(t.TempDir(), "noise.raw")
	text := make([]byte, 1<<20)
	_, _ = rand.Read(text)
	if err := os.WriteFile(noise, text, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		xml  string
		want testboot.Verdict
		why  string
	}{
		"nothing on the disk":             {domain("bios", "virtio-scsi", "virtio", noise), testboot.NoDevice, "No bootable device"},
		"nothing on the disk, by EFI":     {domain("efi", "virtio-scsi", "virtio", noise), testboot.UEFIShell, "UEFI Interactive Shell"},
		"a controller without its driver": {domain("bios", "virtio-scsi", "virtio", guest.Image(t, guest.NoVirtio)), testboot.Initramfs, "ALERT!  /dev/sda1 does not exist"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := bootWithFallback(t, c.xml, testboot.Options{Expect: marker, Settle: 2 * time.Second})
			if r.Verdict != c.want || r.Remedy == "" || !strings.Contains(r.Reason, c.why) {
				t.Errorf("%+v, want %s with %q", r, c.want, c.why)
			}
		})
	}
}

// No image is changed, and no QEMU is left, however a trial ends.
func TestCanceledTrial(t *testing.T) {
	t.Parallel()
	image := guest.BootSector(t, 0)
	text, err := os.ReadFile(image)
	if err != nil {
		t.Fatal(err)
	}
	scratch, keep := t.TempDir(), t.TempDir()
	ctx, cancel := context.WithCancel(t.Context())
	steps := 0
	_, err = testboot.Boot(ctx, domain("bios", "vmpvscsi", "vmxnet3", image), testboot.Options{
		Accel: testboot.TCG, Expect: "never", Scratch: scratch, Keep: keep, Now: time.Now, After: func(d time.Duration) <-chan time.Time {
			if d > time.Second { // the limit of an answer
				return nil
			}
			if steps++; steps == 3 {
				cancel()
				return nil
			}
			return time.After(d / 10)
		},
	})
	if !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	if left, err := os.ReadDir(scratch); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
	if now, err := os.ReadFile(image); err != nil || !bytes.Equal(now, text) {
		t.Errorf("the image was changed: %v", err)
	}
	if left := processes(t, image); len(left) > 0 {
		t.Errorf("running still: %v", left)
	}
}

// processes are those with a word in their command line.
func processes(t *testing.T, word string) (all []string) {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		if text, err := os.ReadFile(file); err == nil && strings.Contains(string(text), word) {
			all = append(all, string(text))
		}
	}
	return all
}

// orphan is a qcow2 image whose backing file is missing.
func orphan(t *testing.T) string {
	t.Helper()
	image := filepath.Join(t.TempDir(), "orphan.qcow2")
	if out, err := exec.Command("qemu-img", "create", "-q", "-u", "-f", "qcow2", "-F", "raw", "-b", "/nonexistent.raw", image, "1M").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return image
}

func pipe(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "pipe")
	if err := unix.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// QEMU gets all files of a qcow2 image with others beneath it, which it could not open itself, as root's.
func TestTrialOfAChain(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	base, middle, top := guest.BootSector(t, 0), filepath.Join(dir, "a,b.qcow2"), filepath.Join(dir, "top.qcow2")
	for _, args := range [][]string{
		{"-F", "raw", "-b", base, middle}, {"-F", "qcow2", "-b", "a,b.qcow2", top},
	} {
		if out, err := exec.Command("qemu-img", append([]string{"create", "-q", "-f", "qcow2"}, args...)...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	xml := strings.Replace(domain("bios", "vmpvscsi", "vmxnet3", top), "type='raw'", "type='qcow2'", 1)
	if r := bootWithFallback(t, xml, testboot.Options{Expect: marker}); !r.Booted() || r.Reason != marker {
		t.Errorf("%+v", r)
	}
}

func TestWhatCannotBeTried(t *testing.T) {
	t.Parallel()
	image := guest.BootSector(t, 0)
	good := domain("bios", "vmpvscsi", "vmxnet3", image)
	for name, c := range map[string]struct {
		xml  string
		kind fault.Kind
		want string
	}{
		"torn":               {good[:len(good)/2], fault.Invalid, "domain"},
		"empty":              {"<domain/>", fault.Unsupported, "<os>"},
		"another processor":  {strings.Replace(good, "x86_64", "aarch64", 1), fault.Unsupported, "aarch64"},
		"a board of its own": {strings.Replace(good, "machine='pc'", "machine='microvm'", 1), fault.Unsupported, "microvm"},
		"controller":         {strings.Replace(good, "vmpvscsi", "buslogic", 1), fault.Unsupported, "buslogic"},
		"no controller":      {strings.Replace(good, "<controller type='scsi'", "<controller type='sata'", 1), fault.Unsupported, "controller 0 of scsi"},
		"card":               {strings.Replace(good, "vmxnet3", "ne2k_isa", 1), fault.Unsupported, "ne2k_isa"},
		"image gone":         {strings.Replace(good, image, "/nonexistent.raw", 1), fault.Unsupported, "/nonexistent.raw"},
		"format":             {strings.Replace(good, "type='raw'", "type='vmdk'", 1), fault.Unsupported, "only raw and qcow2"},
		"no qcow2":           {strings.Replace(good, "type='raw'", "type='qcow2'", 1), fault.Corrupt, image},
		"nothing beneath":    {strings.NewReplacer("type='raw'", "type='qcow2'", image, orphan(t)).Replace(good), fault.NotFound, "/nonexistent.raw"},
		"a pipe":             {strings.Replace(good, image, pipe(t), 1), fault.Unsupported, "neither a file nor"},
		"memory":             {strings.Replace(good, "'MiB'", "'PiB'", 1), fault.Unsupported, "PiB"},
	} {
		_, err := testboot.Boot(t.Context(), c.xml, testboot.Options{Accel: testboot.TCG})
		if !fault.Is(err, c.kind) || !strings.Contains(err.Error(), c.want) || fault.HintOf(err) == "" {
			t.Errorf("%s: %v (remedy: %s), want %v with %q", name, err, fault.HintOf(err), c.kind, c.want)
		}
	}
}

// A disk that somebody writes is not tried: what the guest saw would be no state it ever had.
func TestImageInUse(t *testing.T) {
	t.Parallel()
	image := filepath.Join(t.TempDir(), "image.raw")
	if err := os.WriteFile(image, make([]byte, 1<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(image, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	const first, length = 100, 104 // QEMU's permissions are bytes that are locked: docs in block/file-posix.c
	if err := unix.FcntlFlock(f.Fd(), unix.F_OFD_SETLK, &unix.Flock_t{Type: unix.F_RDLCK, Start: first, Len: length}); err != nil {
		t.Fatal(err)
	}
	_, err = testboot.Boot(t.Context(), domain("bios", "virtio-scsi", "virtio", image), testboot.Options{Accel: testboot.TCG})
	if !fault.Is(err, fault.Conflict) || fault.HintOf(err) == "" {
		t.Errorf("%v", err)
	}
}
