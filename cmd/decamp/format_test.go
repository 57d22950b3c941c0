package main

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/diskfile"
	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/targets"
	"github.com/decamp/decamp/internal/targets/dir"
)

// runIn runs a command in a folder.
func runIn(t *testing.T, folder string, argv ...string) {
	t.Helper()
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Dir = folder
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v: %s", argv, err, out)
	}
}

// rawDisk writes a disk of 3 MiB and returns its content.
func rawDisk(t *testing.T, path string) []byte {
	t.Helper()
	b := make([]byte, 3<<20)
	for i := range b[:2<<20] {
		b[i] = byte(i>>9) ^ byte(i*7)
	}
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	return b
}

// wantContent checks the content of a converted image.
func wantContent(t *testing.T, path string, want []byte) {
	t.Helper()
	src := openImage(t, path)
	got := make([]byte, src.Size())
	if err := src.ReadAt(t.Context(), got, 0); err != nil || !bytes.Equal(got, want) {
		t.Errorf("%s has %d bytes, want the %d bytes of the disk: %v", path, len(got), len(want), err)
	}
}

// decamp detects the format from the content, not from the file name.
func TestConvertDetectsFormatByContent(t *testing.T) {
	folder := t.TempDir()
	want := rawDisk(t, filepath.Join(folder, "plain.raw"))
	for _, c := range []struct{ name, format, options, warning string }{
		{"cloud.img", "qcow2", "compat=1.1", "named like a raw image, but its content is qcow2"},
		{"cloud2.raw", "qcow2", "compat=0.10", "named like a raw image, but its content is qcow2"},
		{"export.img", "vmdk", "subformat=streamOptimized", "named like a raw image, but its content is VMDK"},
		{"sparse.raw", "vmdk", "subformat=monolithicSparse", "named like a raw image, but its content is VMDK"},
		{"wrong.vmdk", "qcow2", "compat=1.1", "named like a vmdk image, but its content is qcow2"},
		{"wrong.qcow2", "vmdk", "subformat=monolithicSparse", "named like a qcow2 image, but its content is VMDK"},
	} {
		runIn(t, folder, "qemu-img", "convert", "-f", "raw", "-O", c.format, "-o", c.options, "plain.raw", c.name)
		in, out := filepath.Join(folder, c.name), filepath.Join(t.TempDir(), "out.raw")
		r := newTestProgram(t)
		r.mustExit(0, "convert", in, out)
		wantContent(t, out, want)
		mustContain(t, r.stderr(), "Warning: "+in, c.warning)
		r = newTestProgram(t)
		r.mustExit(0, "inspect", in)
		mustContain(t, r.out.String(), c.warning)

		r = newTestProgram(t)
		r.mustExit(0, "convert", in, filepath.Join(t.TempDir(), "out.raw"), "--from", "raw")
		mustContain(t, r.stderr(), "it is read as raw because of --from raw")
	}
}

func TestConvertRefusesUnsupportedFormats(t *testing.T) {
	folder := t.TempDir()
	plain := rawDisk(t, filepath.Join(folder, "plain.raw"))
	for _, format := range []string{"qcow", "qed", "vdi", "vhdx", "vpc", "parallels"} {
		name := format + ".img"
		runIn(t, folder, "qemu-img", "convert", "-f", "raw", "-O", format, "plain.raw", name)
		r := newTestProgram(t)
		r.mustExit(7, "convert", filepath.Join(folder, name), filepath.Join(t.TempDir(), "out.raw"))
		mustContain(t, r.stderr(), "does not read", "qemu-img convert -f "+format+" -O qcow2", name, "--from raw")
	}
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	_, err := z.Write(plain)
	if err := errors.Join(err, z.Close(), os.WriteFile(filepath.Join(folder, "disk.img"), packed.Bytes(), 0o600)); err != nil {
		t.Fatal(err)
	}
	r := newTestProgram(t)
	r.mustExit(7, "convert", filepath.Join(folder, "disk.img"), filepath.Join(t.TempDir(), "out.raw"))
	mustContain(t, r.stderr(), "gzip", "gunzip -k")
	runIn(t, folder, "tar", "-cf", "web01.ova", "plain.raw")
	r = newTestProgram(t)
	r.mustExit(7, "inspect", filepath.Join(folder, "web01.ova"))
	mustContain(t, r.stderr(), "tar", "OVA")
}

// hostileDisk returns a disk that begins with a qcow2 header, whose backing file is a secret file of this machine. It
// checks that qemu-img would read the secret.
func hostileDisk(t *testing.T) []byte {
	t.Helper()
	folder := t.TempDir()
	secret := filepath.Join(folder, "secret")
	if err := os.WriteFile(secret, bytes.Repeat([]byte("secret! "), 64), 0o600); err != nil {
		t.Fatal(err)
	}
	runIn(t, folder, "qemu-img", "create", "-q", "-f", "qcow2", "-b", secret, "-F", "raw", "evil.raw", "4M")
	b, err := os.ReadFile(filepath.Join(folder, "evil.raw"))
	if err != nil {
		t.Fatal(err)
	}
	b = append(b, make([]byte, 3<<20-len(b))...)
	probed := filepath.Join(folder, "probed")
	if err := os.WriteFile(filepath.Join(folder, "evil.raw"), b, 0o600); err != nil {
		t.Fatal(err)
	}
	runIn(t, folder, "qemu-img", "convert", "-O", "raw", "evil.raw", probed)
	if stolen, err := os.ReadFile(probed); err != nil || !bytes.HasPrefix(stolen, []byte("secret! ")) {
		t.Fatalf("qemu-img did not read the secret: %v", err)
	}
	return b
}

// decamp reads the flat file of a VMDK, and the raw image converted from it, as raw, even if the guest wrote a qcow2
// header.
func TestGuestWithImageSignatureIsReadAsRaw(t *testing.T) {
	want := hostileDisk(t)
	folder := t.TempDir()
	text := "# Disk DescriptorFile\nversion=1\nCID=12345678\nparentCID=ffffffff\ncreateType=\"vmfs\"\nRW 6144 VMFS \"web01-flat.vmdk\"\n"
	for name, b := range map[string][]byte{"web01.vmdk": []byte(text), "web01-flat.vmdk": want} {
		if err := os.WriteFile(filepath.Join(folder, name), b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	raw := filepath.Join(folder, "web01.raw")
	newTestProgram(t).mustExit(0, "convert", filepath.Join(folder, "web01.vmdk"), raw)
	wantContent(t, raw, want)
	newTestProgram(t).mustExit(0, "verify", raw)

	again := filepath.Join(folder, "web01.qcow2")
	r := newTestProgram(t)
	r.mustExit(0, "convert", raw, again)
	wantContent(t, again, want)
	mustContain(t, r.stderr(), "decamp wrote it as a raw image")
	newTestProgram(t).mustExit(0, "verify", again)
	if got := inspectedKind(t, raw); got != diskfile.Raw {
		t.Errorf("decamp inspect %s: got format %s", raw, got)
	}
}

// inspectedKind returns the format that decamp inspect prints.
func inspectedKind(t *testing.T, path string) diskfile.Kind {
	t.Helper()
	r := newTestProgram(t)
	r.mustExit(0, "inspect", path, "--json")
	var got inspected
	if err := json.Unmarshal(r.out.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	return got.Kind
}

// The format of the image of a migrated VM is that in vm.json, even without a manifest and with another size.
func TestImageOfAMigratedVMHasItsRecordedFormat(t *testing.T) {
	folder := t.TempDir()
	record, err := json.Marshal(dir.Record{Version: 1, Source: &inventory.VM{Name: "web01"}, Images: []dir.RecordedImage{
		{File: "web01-disk0.raw", Manifest: "web01-disk0.raw.manifest", Format: targets.Raw, Size: 1 << 20},
		{File: "web01-disk1.qcow2", Manifest: "web01-disk1.qcow2.manifest", Format: targets.QCOW2, Size: 1 << 20},
	}})
	if err == nil {
		err = os.WriteFile(filepath.Join(folder, "vm.json"), record, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	raw := filepath.Join(folder, "web01-disk0.raw")
	if err := os.WriteFile(raw, hostileDisk(t), 0o600); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(t.TempDir(), "link.img")
	if err := os.Symlink(raw, link); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{raw, link} {
		if got := inspectedKind(t, path); got != diskfile.Raw {
			t.Errorf("decamp inspect %s: got format %s", path, got)
		}
	}
	other := filepath.Join(folder, "other.raw") // not in vm.json
	runIn(t, folder, "qemu-img", "create", "-q", "-f", "qcow2", "web01-disk1.qcow2", "1M")
	runIn(t, folder, "cp", "web01-disk1.qcow2", other)
	for _, path := range []string{other, filepath.Join(folder, "web01-disk1.qcow2")} {
		if got := inspectedKind(t, path); got != diskfile.QCOW2 {
			t.Errorf("decamp inspect %s: got format %s", path, got)
		}
	}
}

func TestVerifyReportsInvalidImage(t *testing.T) {
	d := newChain(t)
	out := filepath.Join(t.TempDir(), "x.raw")
	newTestProgram(t).mustExit(0, "convert", d.Path(), out)
	if err := os.Truncate(out, d.Want.Size()-disk.SectorSize); err != nil {
		t.Fatal(err)
	}
	r := newTestProgram(t)
	r.mustExit(8, "verify", out)
	if got := r.stderr(); !strings.Contains(got, "neither its raw image nor a qcow2 image") || strings.Contains(got, "qemu-img") {
		t.Errorf("got standard error %q", got)
	}
}
