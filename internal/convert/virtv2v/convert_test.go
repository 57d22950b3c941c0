package virtv2v

import (
	"context"
	"encoding/xml"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/decamp/decamp/internal/fault"
)

const writeScript = `qemu-io -f qcow2 -c "write -P 0x61 1M 64k" "$disk" >/dev/null || exit 1
echo "[  37.6] Inspecting the source"
echo "virt-v2v-in-place: warning: could not determine a way to update the configuration of Grub2" >&2
echo "[    1.165637] pci 0000:00:02.0: [1af4:1005] type 00 class 0x00ff00"
echo "[ 359.1] Finishing off"
`

func TestGuestIsChangedOnTheOverlay(t *testing.T) {
	t.Parallel()
	s := newStandIn(t, "2.2.0", oldHelp, writeScript)
	j := s.job()
	var reported []string
	j.Report = func(doing string) { reported = append(reported, doing) }
	report, err := s.engine(Options{}).Convert(t.Context(), j)
	if err != nil {
		t.Fatal(err)
	}
	if report.Version != "2.2.0" || report.Accel != "tcg" || len(report.Warnings) != 1 || !strings.Contains(report.Warnings[0], "Grub2") {
		t.Errorf("report %+v", report)
	}
	if len(reported) != 3 || reported[1] != "Inspecting the source" || reported[2] != "Finishing off" {
		t.Errorf("reported steps %q", reported)
	}
	if text := s.readFile("virt-v2v.log"); !strings.Contains(text, "libguestfs: trace") || !strings.Contains(text, "Finishing off") {
		t.Errorf("log %q", text)
	}
	if base := s.readFile("disk.raw"); strings.Contains(base, "a") {
		t.Error("the base image has changed")
	}
	if out, err := exec.Command("qemu-io", "-r", "-f", "qcow2", "-c", "read -P 0x61 1M 64k", s.disk).CombinedOutput(); err != nil || strings.Contains(string(out), "failed") {
		t.Errorf("reading the overlay: %v: %s", err, out)
	}
}

// virt-v2v gets the domain and an environment without secrets. In it libguestfs does not use libvirt, and not KVM
// if no vCPU runs.
func TestVirtV2VInputAndEnvironment(t *testing.T) {
	t.Parallel()
	s := newStandIn(t, "2.2.0", oldHelp, "")
	if _, err := s.engine(Options{}).Convert(t.Context(), s.job()); err != nil {
		t.Fatal(err)
	}
	env := strings.Split(s.readFile("env"), "\n")
	for _, want := range []string{"LIBGUESTFS_BACKEND=direct", "LIBGUESTFS_BACKEND_SETTINGS=force_tcg", "LC_ALL=C", "HOME=/nowhere", "VIRT_V2V_TMPDIR=" + s.dir} {
		if !slices.Contains(env, want) {
			t.Errorf("the environment has no %s: %q", want, env)
		}
	}
	if slices.ContainsFunc(env, func(e string) bool { return strings.Contains(e, "secret") }) || !slices.Contains(env, "SUPERMIN_KERNEL=/k") {
		t.Errorf("the environment has a secret or no SUPERMIN_KERNEL: %q", env)
	}
	if got := s.readFile("args"); strings.Contains(got, "--block-driver") || strings.Contains(got, "--no-fstrim") || !strings.HasPrefix(got, "-v -x --root single --keys-from-stdin -i libvirtxml ") {
		t.Errorf("arguments %q", got)
	}
	var d domain
	if err := xml.Unmarshal([]byte(s.readFile("domain.xml")), &d); err != nil {
		t.Fatal(err)
	}
	if d.Name != "web <01>" || d.Memory.Value != 512 || d.CPUs != 2 || len(d.Disks) != 1 || d.Disks[0].Source.File != s.disk || d.Disks[0].Driver.Type != "qcow2" {
		t.Errorf("domain %+v", d)
	}
	if left, _ := filepath.Glob(filepath.Join(os.TempDir(), "decamp-v2v-*", "domain.xml")); slices.ContainsFunc(left, func(f string) bool { return strings.Contains(s.readFile("args"), f) }) {
		t.Errorf("the domain file is not removed: %v", left)
	}
}

// A newer release gets the options that its help lists. KVM is used if a vCPU runs.
func TestNewerRelease(t *testing.T) {
	t.Parallel()
	s := newStandIn(t, "2.12.1", newHelp, "")
	drivers, tools := winFolder(t, "viostor/2k19/amd64/viostor.sys", "NetKVM/2k19/amd64/netkvm.inf"), toolsFolder(t)
	e := s.engine(Options{Drivers: drivers, KVM: func(context.Context) error { return nil }, Environ: func() []string {
		return []string{"PATH=" + os.Getenv("PATH"), "LIBGUESTFS_CACHEDIR=" + s.dir, "VIRT_TOOLS_DATA_DIR=" + tools}
	}})
	j := s.job()
	j.Windows, j.EFI = &Windows{Build: 17763, Arch: "x86_64", Server: true}, true
	report, err := e.Convert(t.Context(), j)
	if err != nil || report.Accel != "kvm" || !report.SCSI {
		t.Fatalf("report %+v, error %v", report, err)
	}
	if got := s.readFile("args"); !strings.Contains(got, "--no-fstrim --block-driver virtio-scsi --keys-from-stdin -i") {
		t.Errorf("arguments %q", got)
	}
	if env := s.readFile("env"); strings.Contains(env, "force_tcg") || !strings.Contains(env, "VIRTIO_WIN="+drivers+"\n") {
		t.Errorf("environment %q", env)
	}
	tool, err := e.Find(t.Context())
	if err != nil || len(tool.MissingFeatures()) != 0 {
		t.Errorf("missing features %q, want none, error %v", tool.MissingFeatures(), err)
	}
	old, err := newStandIn(t, "2.2.0", oldHelp, "").engine(Options{}).Find(t.Context())
	if err != nil || len(old.MissingFeatures()) != 2 || old.Version != "2.2.0" {
		t.Errorf("%+v: missing features %q, want 2, error %v", old, old.MissingFeatures(), err)
	}
}

// The error contains the last relevant message of virt-v2v. The hint contains a remedy and the path of the log.
func TestVirtV2VErrorsContainCauseAndLog(t *testing.T) {
	t.Parallel()
	for name, f := range map[string]struct {
		script, want, hint string
		kind               fault.Kind
	}{
		"no kernel": {`echo "supermin: error: lstat: No such file or directory: /lib/modules" >&2
echo "libguestfs: trace: v2v: launch = -1 (error)" >&2
echo "virt-v2v-in-place: error: libguestfs error: /usr/bin/supermin exited with error status 1, see debug messages above" >&2
echo "rm -rf -- '/tmp/v2v.x'" >&2; exit 1`, "lstat: No such file", "linux-image-cloud-amd64", fault.NotFound},
		"no system": {`printf 'virt-v2v-in-place: error: inspection could not detect the source guest (or \nphysical machine) operating system.\n\nAssuming that\n' >&2; exit 1`,
			"source guest (or physical machine) operating system.", "system disk", fault.Unsupported},
		"hibernated": {`echo "virt-v2v-in-place: error: filesystem was mounted read-only, even though we asked for it to be mounted read-write." >&2; exit 1`,
			"mounted read-only", "powercfg /h off", fault.Conflict},
		"no nbdkit": {`echo "virt-v2v-in-place: error: nbdkit is not installed or not working.  It is required to use ‘-i libvirt|libvirtxml’." >&2; exit 1`,
			"nbdkit is not installed", "apt install virt-v2v nbdkit", fault.NotFound},
		"wrong key": {`echo "virt-v2v-in-place: error: could not find key to open LUKS encrypted /dev/sdb1." >&2; exit 1`,
			"could not find key", "--key-file", fault.Denied},
		"no tools": {`echo "virt-v2v-in-place: error: One of rhsrvany.exe or pvvxsvc.exe is missing in /usr/share/virt-tools." >&2; exit 1`,
			"rhsrvany.exe", "mingw-srvany", fault.NotFound},
		"full":         {`echo "virt-v2v-in-place: error: not enough free space for conversion on filesystem '/'" >&2; exit 1`, "not enough free space", "df -h", fault.Full},
		"old":          {`echo "virt-v2v-in-place: unrecognized option '--root'" >&2; exit 2`, "unrecognized option", "newer", fault.Unsupported},
		"nothing":      {`exit 3`, "exit status 3", "its log", fault.Unsupported},
		"killed":       {`kill -9 $$`, "signal: killed", "its log", fault.Unsupported},
		"no appliance": {`echo "libguestfs: error: appliance closed the connection unexpectedly." >&2; exit 1`, "appliance closed", "libguestfs-test-tool", fault.Unsupported},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStandIn(t, "2.2.0", oldHelp, f.script)
			_, err := s.engine(Options{}).Convert(t.Context(), s.job())
			if !fault.Is(err, f.kind) || !strings.Contains(err.Error(), f.want) || !strings.Contains(fault.HintOf(err), f.hint) || !strings.Contains(fault.HintOf(err), s.log) {
				t.Errorf("got %v (kind %v, hint %s), want %q", err, fault.KindOf(err), fault.HintOf(err), f.want)
			}
			if strings.Contains(err.Error(), "Assuming") || strings.Contains(err.Error(), "rm -rf") {
				t.Errorf("the error contains lines after the message: %v", err)
			}
		})
	}
}

// hangScript is a script that starts a child, like libguestfs starts QEMU, and never ends. Both ignore SIGTERM.
const hangScript = `trap '' TERM
sh -c 'trap "" TERM; echo $$ >'$dir'/child; while :; do sleep 1; done' &
echo $$ >$dir/parent
wait
while :; do sleep 1; done
`

func (s *standIn) bothRunning() bool {
	child, err1 := os.ReadFile(filepath.Join(s.dir, "child"))
	parent, err2 := os.ReadFile(filepath.Join(s.dir, "parent"))
	return err1 == nil && err2 == nil && len(child) > 1 && len(parent) > 1
}

func (s *standIn) bothEnded() bool {
	return processEnded(strings.TrimSpace(s.readFile("child"))) && processEnded(strings.TrimSpace(s.readFile("parent")))
}

func TestCancelEndsVirtV2VAndChildren(t *testing.T) {
	if testing.Short() {
		t.Skip("takes more than a second")
	}
	t.Parallel()
	s := newStandIn(t, "2.2.0", oldHelp, hangScript)
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		defer cancel()
		waitFor(t, "both processes run", s.bothRunning)
	}()
	if _, err := s.engine(Options{}).Convert(ctx, s.job()); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want %v", err, context.Canceled)
	}
	waitFor(t, "both processes end", s.bothEnded)
}

func TestVirtV2VEndsAtDeadline(t *testing.T) {
	if testing.Short() {
		t.Skip("takes more than a second")
	}
	t.Parallel()
	s := newStandIn(t, "2.2.0", oldHelp, hangScript)
	_, err := s.engine(Options{Deadline: 3 * time.Second}).Convert(t.Context(), s.job())
	if !fault.Is(err, fault.Transient) || !strings.Contains(err.Error(), "did not end within 3s") || fault.HintOf(err) == "" {
		t.Errorf("got %v, want a transient error about the deadline with a remedy", err)
	}
	if s.bothRunning() {
		waitFor(t, "both processes end", s.bothEnded)
	}
}

// QEMU pauses its VM when the disk is full and never continues. Convert ends it.
func TestVirtV2VEndsOnFullDisk(t *testing.T) {
	if testing.Short() {
		t.Skip("takes more than a second")
	}
	t.Parallel()
	s := newStandIn(t, "2.2.0", oldHelp, hangScript)
	_, err := s.engine(Options{Reserve: 1 << 60}).Convert(t.Context(), s.job())
	if !fault.Is(err, fault.Full) || !strings.Contains(err.Error(), s.dir) || fault.HintOf(err) == "" {
		t.Errorf("got %v, want a full error with the folder and a remedy", err)
	}
}

// Convert kills children that outlive a successful virt-v2v, because they could still write.
func TestVirtV2VChildrenAreKilled(t *testing.T) {
	t.Parallel()
	s := newStandIn(t, "2.2.0", oldHelp, `(trap "" HUP TERM; sh -c 'echo $$ >'$dir'/child; exec sleep 1000' >/dev/null 2>&1 </dev/null) &
while [ ! -s $dir/child ]; do sleep 0.05; done
echo $$ >$dir/parent`)
	if _, err := s.engine(Options{}).Convert(t.Context(), s.job()); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "both processes end", s.bothEnded)
}

func TestNotInstalled(t *testing.T) {
	t.Parallel()
	alone := newStandIn(t, "2.2.0", oldHelp, "").engine(Options{NBDKit: filepath.Join(t.TempDir(), "nbdkit")})
	if _, err := alone.Find(t.Context()); !fault.Is(err, fault.NotFound) || !strings.Contains(err.Error(), "nbdkit") || !strings.Contains(fault.HintOf(err), "nbdkit") {
		t.Errorf("without nbdkit: %v", err)
	}
	e := New(Options{Program: filepath.Join(t.TempDir(), "virt-v2v-in-place")})
	if _, err := e.Convert(t.Context(), Job{}); !fault.Is(err, fault.NotFound) || !strings.Contains(fault.HintOf(err), "apt install virt-v2v") {
		t.Errorf("without virt-v2v: %v (%s)", err, fault.HintOf(err))
	}
}

// When decamp is killed, virt-v2v and its children end too.
func TestVirtV2VEndsWithKilledDecamp(t *testing.T) {
	t.Parallel()
	if dir := os.Getenv("VIRTV2V_CHILD"); dir != "" {
		s := &standIn{t: t, dir: dir, disk: filepath.Join(dir, "disk.v2v"), log: filepath.Join(dir, "virt-v2v.log")}
		_, err := s.engine(Options{}).Convert(t.Context(), s.job())
		t.Fatalf("Convert returned: %v", err)
	}
	s := newStandIn(t, "2.2.0", oldHelp, hangScript)
	self := exec.Command(os.Args[0], "-test.run", "^TestVirtV2VEndsWithKilledDecamp$")
	self.Env = append(os.Environ(), "VIRTV2V_CHILD="+s.dir)
	if err := self.Start(); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "both processes run", s.bothRunning)
	if err := self.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = self.Wait() // fails because it was killed
	waitFor(t, "both processes end", s.bothEnded)
}
