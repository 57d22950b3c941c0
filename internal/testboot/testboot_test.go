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

// domainXML returns a libvirt domain with one disk and one network card.
func domainXML(firmware, controller, card, image string) string {
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

// bootEmulated boots a domain without KVM.
func bootEmulated(t *testing.T, xml string, o testboot.Options) testboot.Report {
	t.Helper()
	o.Accel = testboot.TCG
	r, err := testboot.Boot(t.Context(), xml, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%+v", r)
	return r
}

// marker is the text that the test guests print when they have booted.
const marker = "DECAMP-MARKER boot=ok"

// If KVM does not work, guests are emulated, and the report contains the reason.
func TestGuestsBoot(t *testing.T) {
	t.Parallel()
	for name, xml := range map[string]string{
		"boot sector": domainXML("bios", "vmpvscsi", "vmxnet3", guest.BootSector(t, 0)),
		"novirtio":    domainXML("bios", "vmpvscsi", "vmxnet3", guest.Image(t, guest.NoVirtio)),
		"efi":         domainXML("efi", "virtio-scsi", "virtio", guest.Image(t, guest.UEFI)),
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
				t.Fatalf("report %+v, error %v", r, err)
			}
			log, err := os.ReadFile(r.Serial)
			if err != nil || !strings.Contains(string(log), "boot=ok n=1 ") {
				t.Errorf("the serial log has no marker of the first boot: %v", err)
			}
			f, err := os.Open(r.Screen)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			if img, err := png.Decode(f); err != nil || img.Bounds().Dx() < 640 {
				t.Errorf("decoding the screenshot: %v", err)
			}
		})
	}
}

// A guest without a fallback boot loader starts only with the boot entry in the variables of its domain.
func TestBootEntryOfTheDomain(t *testing.T) {
	t.Parallel()
	image := guest.Image(t, guest.Entry)
	fresh := domainXML("efi", "virtio-scsi", "virtio", image)
	firmware, err := efi.FindFirmware("/", false)
	if err != nil {
		t.Skip(err)
	}
	vars := filepath.Join(t.TempDir(), "a,b_VARS.fd")
	store := firmwareVariables(t, firmware, image)
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
			if r := bootEmulated(t, c.xml, testboot.Options{Expect: marker}); r.Verdict != c.want {
				t.Errorf("report %+v, want %s", r, c.want)
			}
		})
	}
	t.Cleanup(func() {
		if after, err := os.ReadFile(vars); err != nil || !bytes.Equal(after, store) {
			t.Errorf("the trial changed the variables of the domain: %v", err)
		}
	})
}

// firmwareVariables returns the variables of a firmware with the boot entry of an image.
func firmwareVariables(t *testing.T, f efi.Firmware, image string) []byte {
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

// A disk that is not a file is served to QEMU. Writes of the guest do not reach it.
func TestServedDisk(t *testing.T) {
	t.Parallel()
	image, err := os.Open(guest.BootSector(t, 0))
	if err != nil {
		t.Fatal(err)
	}
	defer image.Close()
	r := bootEmulated(t, domainXML("bios", "vmpvscsi", "vmxnet3", "/no/such/file"), testboot.Options{
		Expect: marker, Keep: t.TempDir(),
		Served: map[string]func(net.Conn){"/no/such/file": func(conn net.Conn) {
			server := &nbd.Server{Exports: []nbd.Export{{Disk: imageReader{image, t}}}}
			if err := server.ServeConn(t.Context(), conn); err != nil {
				t.Errorf("serving the disk: %v", err)
			}
		}},
	})
	if !r.Booted() || r.Reason != marker {
		t.Errorf("report %+v, want booted", r)
	}
}

// imageReader is a read-only disk.
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

// The verdict of a guest that does not boot is not Booted and has a remedy.
func TestUnbootableGuestsHaveVerdictAndRemedy(t *testing.T) {
	t.Parallel()
	noise := filepath.Join(t.TempDir(), "noise.raw")
	text := make([]byte, 1<<20)
	_, _ = rand.Read(text)
	if err := os.WriteFile(noise, text, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		xml    string
		want   testboot.Verdict
		reason string
	}{
		"random data":                     {domainXML("bios", "virtio-scsi", "virtio", noise), testboot.NoDevice, "No bootable device"},
		"random data, EFI":                {domainXML("efi", "virtio-scsi", "virtio", noise), testboot.UEFIShell, "UEFI Interactive Shell"},
		"a controller without its driver": {domainXML("bios", "virtio-scsi", "virtio", guest.Image(t, guest.NoVirtio)), testboot.Initramfs, "ALERT!  /dev/sda1 does not exist"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := bootEmulated(t, c.xml, testboot.Options{Expect: marker, Settle: 2 * time.Second})
			if r.Verdict != c.want || r.Remedy == "" || !strings.Contains(r.Reason, c.reason) {
				t.Errorf("%+v, want %s with reason %q", r, c.want, c.reason)
			}
		})
	}
}

// A canceled trial does not change the image and leaves no QEMU process and no files.
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
	_, err = testboot.Boot(ctx, domainXML("bios", "vmpvscsi", "vmxnet3", image), testboot.Options{
		Accel: testboot.TCG, Expect: "never", Scratch: scratch, Keep: keep, Now: time.Now, After: func(d time.Duration) <-chan time.Time {
			if d > time.Second { // timeout of an answer
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
		t.Errorf("remaining scratch files: %v, error %v", left, err)
	}
	if now, err := os.ReadFile(image); err != nil || !bytes.Equal(now, text) {
		t.Errorf("the image has changed: %v", err)
	}
	if left := processesWith(t, image); len(left) > 0 {
		t.Errorf("processes that still run: %v", left)
	}
}

// processesWith returns the command lines of the processes that contain a word.
func processesWith(t *testing.T, word string) (all []string) {
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

// orphanImage creates a qcow2 image whose backing file is missing.
func orphanImage(t *testing.T) string {
	t.Helper()
	image := filepath.Join(t.TempDir(), "orphan.qcow2")
	if out, err := exec.Command("qemu-img", "create", "-q", "-u", "-f", "qcow2", "-F", "raw", "-b", "/nonexistent.raw", image, "1M").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return image
}

func makePipe(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "pipe")
	if err := unix.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// QEMU gets all files of a chain of qcow2 images as file descriptors. It could not open them itself, because they
// belong to root.
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
	xml := strings.Replace(domainXML("bios", "vmpvscsi", "vmxnet3", top), "type='raw'", "type='qcow2'", 1)
	if r := bootEmulated(t, xml, testboot.Options{Expect: marker}); !r.Booted() || r.Reason != marker {
		t.Errorf("report %+v, want booted", r)
	}
}

func TestUnsupportedTrialsAreRefused(t *testing.T) {
	t.Parallel()
	image := guest.BootSector(t, 0)
	good := domainXML("bios", "vmpvscsi", "vmxnet3", image)
	for name, c := range map[string]struct {
		xml  string
		kind fault.Kind
		want string
	}{
		"truncated":         {good[:len(good)/2], fault.Invalid, "domain"},
		"empty":             {"<domain/>", fault.Unsupported, "<os>"},
		"another processor": {strings.Replace(good, "x86_64", "aarch64", 1), fault.Unsupported, "aarch64"},
		"another machine":   {strings.Replace(good, "machine='pc'", "machine='microvm'", 1), fault.Unsupported, "microvm"},
		"controller":        {strings.Replace(good, "vmpvscsi", "buslogic", 1), fault.Unsupported, "buslogic"},
		"no controller":     {strings.Replace(good, "<controller type='scsi'", "<controller type='sata'", 1), fault.Unsupported, "controller 0 of scsi"},
		"card":              {strings.Replace(good, "vmxnet3", "ne2k_isa", 1), fault.Unsupported, "ne2k_isa"},
		"missing image":     {strings.Replace(good, image, "/nonexistent.raw", 1), fault.Unsupported, "/nonexistent.raw"},
		"format":            {strings.Replace(good, "type='raw'", "type='vmdk'", 1), fault.Unsupported, "only raw and qcow2"},
		"not qcow2":         {strings.Replace(good, "type='raw'", "type='qcow2'", 1), fault.Corrupt, image},
		"no backing file":   {strings.NewReplacer("type='raw'", "type='qcow2'", image, orphanImage(t)).Replace(good), fault.NotFound, "/nonexistent.raw"},
		"a pipe":            {strings.Replace(good, image, makePipe(t), 1), fault.Unsupported, "neither a file nor"},
		"memory":            {strings.Replace(good, "'MiB'", "'PiB'", 1), fault.Unsupported, "PiB"},
	} {
		_, err := testboot.Boot(t.Context(), c.xml, testboot.Options{Accel: testboot.TCG})
		if !fault.Is(err, c.kind) || !strings.Contains(err.Error(), c.want) || fault.HintOf(err) == "" {
			t.Errorf("%s: %v (remedy: %s), want %v with %q", name, err, fault.HintOf(err), c.kind, c.want)
		}
	}
}

// A disk that another process writes is refused: the guest would see a state that the disk never had.
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
	const first, length = 100, 104 // QEMU locks these bytes, one for each permission: see block/file-posix.c
	if err := unix.FcntlFlock(f.Fd(), unix.F_OFD_SETLK, &unix.Flock_t{Type: unix.F_RDLCK, Start: first, Len: length}); err != nil {
		t.Fatal(err)
	}
	_, err = testboot.Boot(t.Context(), domainXML("bios", "virtio-scsi", "virtio", image), testboot.Options{Accel: testboot.TCG})
	if !fault.Is(err, fault.Conflict) || fault.HintOf(err) == "" {
		t.Errorf("got %v, want a conflict with a remedy", err)
	}
}
