package testboot_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/testboot"
	"github.com/decamp/decamp/test/guest"
)

// qemuImg runs qemu-img.
func qemuImg(t *testing.T, args ...string) {
	t.Helper()
	if out, err := exec.Command("qemu-img", args...).CombinedOutput(); err != nil {
		t.Fatalf("qemu-img %v: %v: %s", args, err, out)
	}
}

// A trial is refused before QEMU starts if the domain contradicts the format of its image. The same applies if QEMU
// would have to guess a format.
func TestContradictoryImageFormatsAreRefused(t *testing.T) {
	dir := t.TempDir()
	qcow2, guessed, raw := filepath.Join(dir, "a.img"), filepath.Join(dir, "guessed.qcow2"), filepath.Join(dir, "b.raw")
	qemuImg(t, "create", "-q", "-f", "qcow2", qcow2, "4M")
	if err := os.WriteFile(raw, bytes.Repeat([]byte("raw "), 1024), 0o600); err != nil {
		t.Fatal(err)
	}
	qemuImg(t, "create", "-q", "-f", "qcow2", guessed, "4M")
	qemuImg(t, "rebase", "-u", "-b", raw, "-F", "raw", guessed)
	b, err := os.ReadFile(guessed)
	if err != nil {
		t.Fatal(err)
	}
	// Without its header extension QEMU would guess the format of the backing file.
	if err := os.WriteFile(guessed, bytes.Replace(b, []byte("\xe2\x79\x2a\xca"), []byte("\x12\x34\x56\x78"), 1), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct{ driver, image, message string }{
		"qcow2 without a type":   {"<driver name='qemu'/>", qcow2, "its content is qcow2"},
		"raw as qcow2":           {"<driver name='qemu' type='qcow2'/>", raw, "no qcow2 header"},
		"unknown backing format": {"<driver name='qemu' type='qcow2'/>", guessed, "does not contain the format of its backing file"},
	} {
		xml := strings.Replace(domainXML("bios", "vmpvscsi", "vmxnet3", c.image), "<driver name='qemu' type='raw'/>", c.driver, 1)
		_, err := testboot.Boot(t.Context(), xml, testboot.Options{Accel: testboot.TCG, Deadline: time.Second})
		if err == nil || !strings.Contains(err.Error(), c.message) || fault.HintOf(err) == "" {
			t.Errorf("%s: got %v (%s), want an error about %q", name, err, fault.HintOf(err), c.message)
		}
	}
}

// A guest can boot from a raw disk that begins like a qcow2 image: the signature and the version are harmless
// instructions, and a jump to the boot loader follows. The format raw of the domain is used. QEMU refuses this disk if
// it guesses the format.
func TestGuestWithImageSignatureBoots(t *testing.T) {
	t.Parallel()
	b, err := os.ReadFile(guest.BootSector(t, 0))
	if err != nil {
		t.Fatal(err)
	}
	const loader = 0x80 // offset after the program of the boot sector, which runs at any address
	copy(b[loader:], b[:loader])
	jump := []byte{0xeb, loader - 10}
	copy(b, "QFI\xfb\x00\x00\x00\x03"+string(jump))
	image := filepath.Join(t.TempDir(), "disk.img")
	if err := os.WriteFile(image, b, 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("qemu-img", "check", image).CombinedOutput(); err == nil || !strings.Contains(string(out), "Could not open") {
		t.Errorf("qemu-img does not recognize the disk as qcow2: %s", out)
	}
	if r := bootEmulated(t, domainXML("bios", "vmpvscsi", "vmxnet3", image), testboot.Options{Expect: marker}); !r.Booted() {
		t.Errorf("report %+v, want booted", r)
	}
}
