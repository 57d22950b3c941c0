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

// The real virt-v2v converts a real Debian that scripts/v2v-guest.sh has built, with root=/dev/sda1 and an
// initramfs without virtio: names become UUIDs before, so that it boots from virtio-scsi after, which is
// tried before it is published.
func TestRealVirtV2V(t *testing.T) {
	image, err := filepath.Abs("../../build/v2v/debian.raw")
	must(t, err)
	r := newRig(t, lab.Config{VMs: []lab.VM{{Name: "deb12", MemoryMB: 768, NICs: []lab.NIC{{Model: "vmxnet3", MAC: "00:50:56:ab:cd:01", AddressType: "manual"}},
		Disks: []lab.Disk{{File: image, Controller: "pvscsi"}, {File: locked(t), Controller: "pvscsi"}}}}}).trusting()
	convert := []string{"--hardware", "virtio", "--engine", "virt-v2v", "--trial", "--expect", "V2V-MARKER root=/dev/sda1 drv=sd"}
	r.migrate("deb12", convert...).ends(6).says("/dev/sdb1 is encrypted by LUKS", "--key-file")
	r.migrate("deb12", append(convert, "--key-file", r.write("luks.key", passphrase+"\n"))...).
		ends(0).says("virt-v2v: Inspecting the source", "converted by virt-v2v", "virtio-scsi", "trial boot: it boots, after")
	folder := filepath.Join(r.vms(), "deb12")
	record, err := dir.ReadRecord(folder)
	must(t, err)
	if record.Hardware != targets.Virtio || !strings.HasPrefix(record.Converted.Engine, "virt-v2v 2.") || record.Images[0].Copied == record.Images[0].Root {
		t.Errorf("recorded %q, %+v", record.Hardware, record.Converted)
	}
	r.run("verify", folder).ends(0)
	logs, err := filepath.Glob(filepath.Join(r.state(), "runs", "deb12-*", "virt-v2v.log"))
	if err != nil || len(logs) != 1 {
		t.Fatalf("logs %v, %v", logs, err)
	}
	if text, err := os.ReadFile(logs[0]); err != nil || !strings.Contains(string(text), "Finishing off") || !strings.Contains(string(text), "cryptsetup_open") {
		t.Errorf("its log: %v", err)
	}
	r.nowhere(passphrase)
	for _, pattern := range []string{"*.overlay", "*.v2v"} {
		if left, _ := filepath.Glob(filepath.Join(folder, pattern)); left != nil {
			t.Errorf("left: %v", left)
		}
	}
}

// The message of the real virt-v2v about disks without a system is printed, with its log.
func TestRealVirtV2VFindsNoSystem(t *testing.T) {
	r := newRig(t, lab.Config{VMs: []lab.VM{{Name: "data", Disks: []lab.Disk{{Capacity: 8 << 20, Fill: 50, Controller: "pvscsi"}}}}}).trusting()
	r.migrate("data", "--hardware", "virtio", "--engine", "virt-v2v").ends(7).says("virt-v2v: ", "virt-v2v.log", "--hardware compat")
	if _, err := os.Stat(filepath.Join(r.vms(), "data")); err == nil {
		t.Fatal("it is published")
	}
}

// guestfish reads the Debian of TestRealVirtV2V from the export of decamp nbd, and virt-v2v converts it. virt-v2v 2.2
// accepts an overlay of the export, but not its address. The result boots from virtio-scsi, because virt-v2v keeps
// root=/dev/sda1.
func TestRealVirtV2VReadsNBD(t *testing.T) {
	image, err := filepath.Abs("../../build/v2v/debian.raw")
	must(t, err)
	r := newRig(t, lab.Config{VMs: []lab.VM{{Name: "web01", Disks: []lab.Disk{{File: image, Controller: "pvscsi"}}}}}).trusting()
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
	defer func() { _ = qemu.Process.Kill(); _ = qemu.Wait() }() // it ends by the signal
	var last string
	for lines := bufio.NewScanner(serial); lines.Scan(); last = lines.Text() {
		if strings.Contains(lines.Text(), "V2V-MARKER root=/dev/sda1 drv=sd") {
			return
		}
	}
	t.Errorf("it does not boot: %s", last)
}

const passphrase = "correct-horse-7b1e-battery"

// locked makes a disk with a volume that LUKS encrypts.
func locked(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	volume, key, path := filepath.Join(dir, "luks"), filepath.Join(dir, "key"), filepath.Join(dir, "disk.raw")
	must(t, os.WriteFile(volume, nil, 0o600))
	must(t, os.Truncate(volume, 30<<20))
	must(t, os.WriteFile(key, []byte(passphrase), 0o600))
	tool(t, "", "cryptsetup", "luksFormat", "-q", "--type", "luks2", "--pbkdf", "pbkdf2", "--pbkdf-force-iterations", "1000", "--key-file", key, volume)
	must(t, os.WriteFile(path, nil, 0o600))
	must(t, os.Truncate(path, 32<<20))
	tool(t, "label: dos\nstart=2048, size=30M, type=83\n", "sfdisk", "-q", path)
	data, err := os.ReadFile(volume)
	must(t, err)
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	must(t, err)
	defer f.Close()
	_, err = f.WriteAt(data, 1<<20)
	must(t, err)
	return path
}

// tool runs a program that must succeed, and returns its output.
func tool(t *testing.T, input, name string, args ...string) string {
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

// nowhere looks for a secret in all that decamp wrote down.
func (r *rig) nowhere(what string) {
	r.t.Helper()
	must(r.t, filepath.WalkDir(r.state(), func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		if strings.Contains(string(text), what) {
			r.t.Errorf("%s has the secret", path)
		}
		return err
	}))
}

// The real virt-v2v puts drivers of a virtio-win, an ISO image, into a phony Windows. Others' programs
// read what it left: the registry, the files, the file system.
func TestRealVirtV2VWindows(t *testing.T) {
	disk, folder, tools := phonyWindows(t, 300), virtioWin(t, "2k19"), t.TempDir()
	iso := filepath.Join(t.TempDir(), "virtio-win.iso")
	tool(t, "", "genisoimage", "-quiet", "-J", "-r", "-o", iso, folder)
	must(t, os.WriteFile(filepath.Join(tools, "rhsrvany.exe"), program64(), 0o644))
	r := newRig(t, windowsLab(disk)).trusting()
	r.env = append(r.env, "VIRT_TOOLS_DATA_DIR="+tools)
	r.migrate("win2019", "--hardware", "virtio", "--virtio-win", iso).
		ends(0).says("virt-v2v: Converting Windows Server 2019 Standard", "converted by virt-v2v", "virtio-blk")
	vm := filepath.Join(r.vms(), "win2019")
	record, err := dir.ReadRecord(vm)
	must(t, err)
	if record.Hardware != targets.VirtioBlk || !strings.HasPrefix(record.Converted.Engine, "virt-v2v 2.") {
		t.Errorf("recorded %q, %+v", record.Hardware, record.Converted)
	}
	r.run("verify", vm).ends(0)
	checkPhony(t, partition(t, filepath.Join(vm, record.Images[0].File), 300<<20))
}

// partition copies the volume of a phony Windows out of its image.
func partition(t *testing.T, image string, size int64) string {
	t.Helper()
	f, err := os.Open(image)
	must(t, err)
	defer f.Close()
	volume := filepath.Join(t.TempDir(), "volume")
	out, err := os.Create(volume)
	must(t, err)
	defer out.Close()
	_, err = io.Copy(out, io.NewSectionReader(f, phonyOffset, size))
	must(t, err)
	return volume
}

func checkPhony(t *testing.T, volume string) {
	t.Helper()
	if said := tool(t, "", "ntfsfix", "-n", volume); !strings.Contains(said, "processed successfully") {
		t.Errorf("ntfsfix: %s", said)
	}
	for name, want := range map[string]string{
		"Windows/System32/drivers/viostor.sys": "phony viostor.sys", "Windows/Drivers/VirtIO/netkvm.inf": "phony netkvm.inf",
		"Windows/Temp/was-there.txt": "kept", "qemu-ga-x86_64.msi": "phony qemu-ga-x86_64.msi",
	} {
		if got := tool(t, "", "ntfscat", volume, name); got != want {
			t.Errorf("%s is %q", name, got)
		}
	}
	tool(t, "", "ntfscat", volume, "Program Files/Guestfs/Firstboot/rhsrvany.exe")
	hive := filepath.Join(t.TempDir(), "SYSTEM")
	must(t, os.WriteFile(hive, []byte(tool(t, "", "ntfscat", volume, "Windows/System32/config/SYSTEM")), 0o600))
	said := tool(t, strings.Join([]string{
		`cd \ControlSet001\Services\viostor`, "lsval",
		`cd \DriverDatabase\DeviceIds\PCI`, "ls",
		`cd \ControlSet001\services\firstboot`, "lsval ImagePath",
		`cd \ControlSet001\Services\pvscsi`, "lsval Start", "quit", "",
	}, "\n"), "hivexsh", hive)
	for _, want := range []string{`"Start"=dword:00000000`, "VEN_1AF4&DEV_1001&SUBSYS_00021AF4&REV_00", "VEN_1AF4&DEV_1042", "rhsrvany.exe -s firstboot"} {
		if !strings.Contains(said, want) {
			t.Errorf("the registry has no %s: %s", want, said)
		}
	}
}
