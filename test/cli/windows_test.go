package cli

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/decamp/decamp/internal/guest/hive/hivetest"
	"github.com/decamp/decamp/internal/guest/ntfs/ntfstest"
	"github.com/decamp/decamp/internal/lab"
	"github.com/decamp/decamp/internal/lab/executable"
)

// The registry of an artificial Windows, which has an NTFS volume and a program with the type of the processor.
// libguestfs also detects it as Windows Server 2019.
const (
	fakeSoftwareHive = `[\Microsoft\Windows NT\CurrentVersion]
"ProductName"="Windows Server 2019 Standard"
"EditionID"="ServerStandard"
"InstallationType"="Server"
"CurrentBuild"="17763"
"CurrentBuildNumber"="17763"
"CurrentVersion"="6.3"
"CurrentMajorVersionNumber"=dword:0000000a
"CurrentMinorVersionNumber"=dword:00000000

[\Microsoft\Windows\CurrentVersion]
"DevicePath"=`

	fakeSystemHive = `[\Select]
"Current"=dword:00000001
"Default"=dword:00000001

[\ControlSet001\Control\Session Manager\Environment]
"PROCESSOR_ARCHITECTURE"="AMD64"

[\ControlSet001\Control\CrashControl]
"AutoReboot"=dword:00000001

[\ControlSet001\Services\Tcpip\Parameters]
"Hostname"="ACCOUNTS"

[\ControlSet001\Services\pvscsi]
"Start"=dword:00000000

[\DriverDatabase\DriverInfFiles]

[\DriverDatabase\DeviceIds\PCI]

[\DriverDatabase\DriverPackages]
`
	fakeVolumeOffset = 1 << 20 // offset of the partition in bytes
)

// newFakeWindows creates the disk of an artificial Windows, with a volume of that many MiB.
func newFakeWindows(t *testing.T, mib int64) string {
	t.Helper()
	volume := ntfstest.Volume(t, mib, func(root string) {
		files := map[string][]byte{
			"Windows/System32/config/SOFTWARE":     hivetest.New(t, fakeSoftwareHive+hivetest.ExpandText(`%SystemRoot%\inf`)+"\n"),
			"Windows/System32/config/SYSTEM":       hivetest.New(t, fakeSystemHive),
			"Windows/System32/cmd.exe":             programHeader(),
			"Windows/System32/drivers/pvscsi.sys":  []byte("MZ"),
			"Windows/Temp/was-there.txt":           []byte("kept"),
			"Program Files/Common Files/empty.txt": nil,
		}
		for name, data := range files {
			ntfstest.Write(t, root, name, data)
		}
	})
	data, err := os.ReadFile(volume)
	must(t, err)
	path := filepath.Join(t.TempDir(), "windows.raw")
	f, err := os.Create(path)
	must(t, err)
	defer f.Close()
	must(t, f.Truncate((mib+2)<<20))
	cmd := exec.Command("sfdisk", "-q", path)
	cmd.Env = append(os.Environ(), "PATH="+os.Getenv("PATH")+":/usr/sbin:/sbin")
	cmd.Stdin = strings.NewReader("label: dos\nstart=2048, type=7, bootable\n")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("sfdisk: %v: %s", err, out)
	}
	_, err = f.WriteAt(data, fakeVolumeOffset)
	must(t, err)
	return path
}

// programHeader returns the header of a program for AMD64, as far as file(1) reads it.
func programHeader() []byte {
	p := make([]byte, 1024)
	for at, text := range map[int]string{
		0: "MZ", 0x18: "\x40", 0x3c: "\x80", 0x80: "PE\x00\x00",
		0x84: "\x64\x86",     // processor
		0x94: "\xf0\x00\x22", // size of the optional header; flags: executable, large addresses
		0x98: "\x0b\x02",     // 64-bit program
		0xdc: "\x03",         // console program
	} {
		copy(p[at:], text)
	}
	return p
}

// newVirtioWin creates a folder with the layout of virtio-win.iso and the drivers for one release.
func newVirtioWin(t *testing.T, release string) string {
	t.Helper()
	root := filepath.Join(t.TempDir(), "virtio-win")
	for _, name := range []string{
		"viostor/@/amd64/viostor.sys", "viostor/@/amd64/viostor.inf", "viostor/@/amd64/viostor.cat",
		"vioscsi/@/amd64/vioscsi.sys", "vioscsi/@/amd64/vioscsi.inf", "NetKVM/@/amd64/netkvm.sys", "NetKVM/@/amd64/netkvm.inf",
		"Balloon/@/amd64/balloon.inf", "guest-agent/qemu-ga-x86_64.msi", "virtio-win_license.txt",
	} {
		name = strings.ReplaceAll(name, "@", release)
		ntfstest.Write(t, root, name, []byte("phony "+filepath.Base(name)))
	}
	return root
}

// fakeWindowsLab returns a lab with an artificial Windows VM that is off.
func fakeWindowsLab(disk string) lab.Config {
	return lab.Config{VMs: []lab.VM{{Name: "win2019", GuestID: "windows2019srv_64Guest", MemoryMB: 1024,
		NICs: []lab.NIC{{Model: "vmxnet3"}}, Disks: []lab.Disk{{File: disk, Controller: "pvscsi"}}}}}
}

// Before the copy, decamp reports a missing virtio-win, missing drivers for the Windows release and a missing rhsrvany.exe.
func TestMissingWindowsDriversAreReported(t *testing.T) {
	t.Parallel()
	r := newRig(t, fakeWindowsLab(newFakeWindows(t, 24))).withFingerprint()
	r.installFakeV2V("2.2.0")
	good, tools := newVirtioWin(t, "2k19"), t.TempDir()
	for name, c := range map[string]struct {
		drivers, tools string
		want           []string
	}{
		"none named":    {"", tools, []string{"the path of virtio-win is not set", "--virtio-win"}},
		"other release": {newVirtioWin(t, "w10"), tools, []string{"no drivers for build 17763, x86_64 (2k19)"}},
		"older release": {newVirtioWin(t, "2k16"), tools, []string{"no drivers for build 17763, x86_64 (2k19)"}},
		"no rhsrvany":   {good, tools, []string{"no rhsrvany.exe", "VIRT_TOOLS_DATA_DIR"}},
	} {
		t.Run(name, func(t *testing.T) {
			r := *r
			r.t, r.env = t, append(r.env, "VIRT_TOOLS_DATA_DIR="+c.tools, "VIRTIO_WIN=")
			args := []string{"--hardware", "virtio"}
			if c.drivers != "" {
				args = append(args, "--virtio-win", c.drivers)
			}
			r.migrate("win2019", args...).wantExit(3).wantOutput(c.want...)
			if left, _ := filepath.Glob(filepath.Join(r.vmsDir(), "*")); left != nil {
				t.Errorf("decamp created %v, want nothing", left)
			}
		})
	}
}

// installFakeV2V makes decamp use a virt-v2v that only prints its release, and an empty nbdkit.
func (r *rig) installFakeV2V(release string) {
	r.t.Helper()
	dir := filepath.Join(r.dir, "bin")
	must(r.t, os.Mkdir(dir, 0o755))
	executable.Write(r.t, filepath.Join(dir, "virt-v2v-in-place"), "#!/bin/sh\n[ \"$1\" != --version ] || echo \"virt-v2v-in-place "+release+"\"\n")
	executable.Write(r.t, filepath.Join(dir, "nbdkit"), "#!/bin/sh\n")
	r.env = append(r.env, "PATH="+dir+":"+os.Getenv("PATH"))
}

// decamp reports a missing, unprotected or invalid key file before it connects to the host.
func TestKeyFileIsCheckedBeforeConnecting(t *testing.T) {
	t.Parallel()
	r := newRig(t, smallLab()).withFingerprint()
	r.installFakeV2V("2.2.0")
	open := r.writeFile("open.key", secret+"\n")
	must(t, os.Chmod(open, 0o644))
	for name, c := range map[string]struct {
		key  string
		code int
		want string
	}{
		"missing": {r.dir + "/none.key", 3, "no such file"},
		"open":    {"/dev/sda2=" + open, 4, "is readable by all users"},
		"empty":   {r.writeFile("empty.key", "\n"), 2, "exactly one line"},
		"lines":   {r.writeFile("lines.key", secret+"\nmore\n"), 2, "exactly one line"},
	} {
		r.lab.ResetStats()
		res := r.migrate("web01", "--hardware", "virtio", "--key-file", c.key).wantExit(c.code).wantOutput(c.want, "chmod 600")
		if n := r.lab.Stats().Requests; n > 0 {
			t.Errorf("%s: the host got %d requests", name, n)
		}
		if strings.Contains(res.stdout+res.stderr, secret) {
			t.Errorf("%s: the output contains the key", name)
		}
	}
	r.migrate("web01", "--key-file", open).wantExit(2).wantOutput("requires --hardware virtio")
}
