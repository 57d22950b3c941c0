//go:build v2v

package cli

import (
	"bufio"
	"context"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/decamp/decamp/internal/lab"
	"github.com/decamp/decamp/internal/targets"
	"github.com/decamp/decamp/internal/targets/dir"
)

// virt-v2v converts the Debian guest of scripts/v2v-guest.sh, which has root=/dev/sda1 and an initramfs without virtio.
// decamp replaces device names by UUIDs before. The guest boots from virtio-scsi before it is published.
func TestRealVirtV2V(t *testing.T) {
	image, err := filepath.Abs("../../build/v2v/debian.raw")
	must(t, err)
	r := newRig(t, lab.Config{VMs: []lab.VM{{Name: "deb12", MemoryMB: 768, NICs: []lab.NIC{{Model: "vmxnet3", MAC: "00:50:56:ab:cd:01", AddressType: "manual"}},
		Disks: []lab.Disk{{File: image, Controller: "pvscsi"}, {File: luksDisk(t), Controller: "pvscsi"}}}}}).withFingerprint()
	convert := []string{"--hardware", "virtio", "--engine", "virt-v2v", "--trial", "--expect", "V2V-MARKER root=/dev/sda1 drv=sd"}
	r.migrate("deb12", convert...).wantExit(6).wantOutput("/dev/sdb1 is encrypted by LUKS", "--key-file")
	r.migrate("deb12", append(convert, "--key-file", r.writeFile("luks.key", passphrase+"\n"))...).
		wantExit(0).wantOutput("virt-v2v: Inspecting the source", "converted by virt-v2v", "virtio-scsi", "trial boot: it boots, after")
	folder := filepath.Join(r.vmsDir(), "deb12")
	record, err := dir.ReadRecord(folder)
	must(t, err)
	if record.Hardware != targets.Virtio || !strings.HasPrefix(record.Converted.Engine, "virt-v2v 2.") || record.Images[0].Copied == record.Images[0].Root {
		t.Errorf("recorded %q, %+v", record.Hardware, record.Converted)
	}
	r.run("verify", folder).wantExit(0)
	logs, err := filepath.Glob(filepath.Join(r.stateDir(), "runs", "deb12-*", "virt-v2v.log"))
	if err != nil || len(logs) != 1 {
		t.Fatalf("logs %v, %v", logs, err)
	}
	if text, err := os.ReadFile(logs[0]); err != nil || !strings.Contains(string(text), "Finishing off") || !strings.Contains(string(text), "cryptsetup_open") {
		t.Errorf("the log of virt-v2v is incomplete: %v", err)
	}
	r.checkNotStored(passphrase)
	for _, pattern := range []string{"*.overlay", "*.v2v"} {
		if left, _ := filepath.Glob(filepath.Join(folder, pattern)); left != nil {
			t.Errorf("temporary files are left: %v", left)
		}
	}
}

// decamp prints the message of virt-v2v about disks without an operating system, and the path of its log.
func TestRealVirtV2VFindsNoSystem(t *testing.T) {
	r := newRig(t, lab.Config{VMs: []lab.VM{{Name: "data", Disks: []lab.Disk{{Capacity: 8 << 20, Fill: 50, Controller: "pvscsi"}}}}}).withFingerprint()
	r.migrate("data", "--hardware", "virtio", "--engine", "virt-v2v").wantExit(7).wantOutput("virt-v2v: ", "virt-v2v.log", "--hardware compat")
	if _, err := os.Stat(filepath.Join(r.vmsDir(), "data")); err == nil {
		t.Fatal("the VM is published")
	}
}

// guestfish reads the Debian of TestRealVirtV2V from the export of decamp nbd, and virt-v2v converts it. virt-v2v 2.2
// accepts an overlay of the export, but not its address. The result boots from virtio-scsi, because virt-v2v keeps
// root=/dev/sda1.
func TestRealVirtV2VReadsNBD(t *testing.T) {
	image, err := filepath.Abs("../../build/v2v/debian.raw")
	must(t, err)
	r := newRig(t, lab.Config{VMs: []lab.VM{{Name: "web01", Disks: []lab.Disk{{File: image, Controller: "pvscsi"}}}}}).withFingerprint()
	s := r.serveNBD("--listen", "127.0.0.1:0") // guestfish 1.48 has no Unix sockets
	overlay := filepath.Join(r.dir, "web01.qcow2")
	runTool(t, "qemu-img", "create", "-q", "-f", "qcow2", "-F", "raw", "-b", s.Exports[0].URI, overlay)
	out := filepath.Join(r.dir, "converted")
	must(t, os.Mkdir(out, 0o700))
	t.Setenv("LIBGUESTFS_BACKEND", "direct")
	t.Setenv("LIBGUESTFS_BACKEND_SETTINGS", "force_tcg")
	if name := runTool(t, "guestfish", "--ro", "--format=raw", "-a", s.Exports[0].URI, "-i", "cat", "/etc/hostname"); strings.TrimSpace(name) != "deb12" {
		t.Errorf("guestfish reads the host name %q", name)
	}
	runTool(t, "virt-v2v", "-i", "disk", "-if", "qcow2", overlay, "-o", "local", "-os", out)
	s.stop()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Minute)
	defer cancel()
	qemu := exec.CommandContext(ctx, "qemu-system-x86_64", "-machine", "pc,accel=tcg", "-cpu", "max", "-m", "768", "-nodefaults", "-display", "none", "-serial", "stdio",
		"-device", "virtio-scsi-pci", "-device", "scsi-hd,drive=disk", "-drive", "if=none,id=disk,format=raw,file="+filepath.Join(out, "web01-sda"))
	qemu.Stderr = os.Stderr
	serial, err := qemu.StdoutPipe()
	must(t, err)
	must(t, qemu.Start())
	defer func() { _ = qemu.Process.Kill(); _ = qemu.Wait() }() // fails because of the signal
	var last string
	for lines := bufio.NewScanner(serial); lines.Scan(); last = lines.Text() {
		if strings.Contains(lines.Text(), "V2V-MARKER root=/dev/sda1 drv=sd") {
			return
		}
	}
	t.Errorf("the guest does not boot: %s", last)
}

const passphrase = "correct-horse-7b1e-battery"

// luksDisk creates a disk with a volume that LUKS encrypts.
func luksDisk(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	volume, key, path := filepath.Join(dir, "luks"), filepath.Join(dir, "key"), filepath.Join(dir, "disk.raw")
	must(t, os.WriteFile(volume, nil, 0o600))
	must(t, os.Truncate(volume, 30<<20))
	must(t, os.WriteFile(key, []byte(passphrase), 0o600))
	runToolWithInput(t, "", "cryptsetup", "luksFormat", "-q", "--type", "luks2", "--pbkdf", "pbkdf2", "--pbkdf-force-iterations", "1000", "--key-file", key, volume)
	must(t, os.WriteFile(path, nil, 0o600))
	must(t, os.Truncate(path, 32<<20))
	runToolWithInput(t, "label: dos\nstart=2048, size=30M, type=83\n", "sfdisk", "-q", path)
	data, err := os.ReadFile(volume)
	must(t, err)
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	must(t, err)
	defer f.Close()
	_, err = f.WriteAt(data, 1<<20)
	must(t, err)
	return path
}

// runToolWithInput runs a program that must succeed and returns its output.
func runToolWithInput(t *testing.T, input, name string, args ...string) string {
	t.Helper()
	path := os.Getenv("PATH") + ":/usr/sbin:/sbin"
	cmd := exec.Command("/usr/bin/env", append([]string{"PATH=" + path, name}, args...)...)
	cmd.Stdin = strings.NewReader(input)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %q: %v: %s", name, args, err, out)
	}
	return string(out)
}

// checkNotStored checks that no file in the state directory contains a secret.
func (r *rig) checkNotStored(what string) {
	r.t.Helper()
	must(r.t, filepath.WalkDir(r.stateDir(), func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		if strings.Contains(string(text), what) {
			r.t.Errorf("%s contains the secret", path)
		}
		return err
	}))
}

// virt-v2v installs drivers of a virtio-win ISO image in an artificial Windows. The test reads the registry, the files and
// the file system with other programs.
func TestRealVirtV2VWindows(t *testing.T) {
	disk, folder, tools := newFakeWindows(t, 300), newVirtioWin(t, "2k19"), t.TempDir()
	iso := filepath.Join(t.TempDir(), "virtio-win.iso")
	runToolWithInput(t, "", "genisoimage", "-quiet", "-J", "-r", "-o", iso, folder)
	must(t, os.WriteFile(filepath.Join(tools, "rhsrvany.exe"), programHeader(), 0o644))
	r := newRig(t, fakeWindowsLab(disk)).withFingerprint()
	r.env = append(r.env, "VIRT_TOOLS_DATA_DIR="+tools)
	r.migrate("win2019", "--hardware", "virtio", "--virtio-win", iso).
		wantExit(0).wantOutput("virt-v2v: Converting Windows Server 2019 Standard", "converted by virt-v2v", "virtio-blk")
	vm := filepath.Join(r.vmsDir(), "win2019")
	record, err := dir.ReadRecord(vm)
	must(t, err)
	if record.Hardware != targets.VirtioBlk || !strings.HasPrefix(record.Converted.Engine, "virt-v2v 2.") {
		t.Errorf("recorded %q, %+v", record.Hardware, record.Converted)
	}
	r.run("verify", vm).wantExit(0)
	checkFakeWindows(t, copyPartition(t, filepath.Join(vm, record.Images[0].File), 300<<20))
}

// copyPartition copies the volume of an artificial Windows from its image.
func copyPartition(t *testing.T, image string, size int64) string {
	t.Helper()
	f, err := os.Open(image)
	must(t, err)
	defer f.Close()
	volume := filepath.Join(t.TempDir(), "volume")
	out, err := os.Create(volume)
	must(t, err)
	defer out.Close()
	_, err = io.Copy(out, io.NewSectionReader(f, fakeVolumeOffset, size))
	must(t, err)
	return volume
}

func checkFakeWindows(t *testing.T, volume string) {
	t.Helper()
	if output := runToolWithInput(t, "", "ntfsfix", "-n", volume); !strings.Contains(output, "processed successfully") {
		t.Errorf("ntfsfix: %s", output)
	}
	for name, want := range map[string]string{
		"Windows/System32/drivers/viostor.sys": "phony viostor.sys", "Windows/Drivers/VirtIO/netkvm.inf": "phony netkvm.inf",
		"Windows/Temp/was-there.txt": "kept", "qemu-ga-x86_64.msi": "phony qemu-ga-x86_64.msi",
	} {
		if got := runToolWithInput(t, "", "ntfscat", volume, name); got != want {
			t.Errorf("%s is %q", name, got)
		}
	}
	runToolWithInput(t, "", "ntfscat", volume, "Program Files/Guestfs/Firstboot/rhsrvany.exe")
	hive := filepath.Join(t.TempDir(), "SYSTEM")
	must(t, os.WriteFile(hive, []byte(runToolWithInput(t, "", "ntfscat", volume, "Windows/System32/config/SYSTEM")), 0o600))
	output := runToolWithInput(t, strings.Join([]string{
		`cd \ControlSet001\Services\viostor`, "lsval",
		`cd \DriverDatabase\DeviceIds\PCI`, "ls",
		`cd \ControlSet001\services\firstboot`, "lsval ImagePath",
		`cd \ControlSet001\Services\pvscsi`, "lsval Start", "quit", "",
	}, "\n"), "hivexsh", hive)
	for _, want := range []string{`"Start"=dword:00000000`, "VEN_1AF4&DEV_1001&SUBSYS_00021AF4&REV_00", "VEN_1AF4&DEV_1042", "rhsrvany.exe -s firstboot"} {
		if !strings.Contains(output, want) {
			t.Errorf("the registry does not contain %s: %s", want, output)
		}
	}
}
