package cli

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/decamp/decamp/internal/confine/confinetest"
	"github.com/decamp/decamp/test/program"
)

// ordinaryUID is the ID of an unprivileged user that runs decamp in tests.
const ordinaryUID = 61999

// A runningTrial is a decamp trial process whose guest is running.
type runningTrial struct {
	*exec.Cmd
	qemu  int // process ID
	user  uint32
	image string
}

// writesAndHalts is the boot sector of a guest that writes 256 bytes to the serial port and halts.
var writesAndHalts = append(append([]byte{
	0xfa,             // cli
	0xba, 0xf8, 0x03, // mov dx, 0x3f8
	0xb9, 0x00, 0x01, // mov cx, 256
	0xee,       // out dx, al
	0xe2, 0xfd, // loop to the out
	0xf4,       // hlt
	0xeb, 0xfd, // jmp to the hlt
}, make([]byte, 497)...), 0x55, 0xaa)

// startTrial starts decamp trial as a user and waits for the first output of the guest.
func startTrial(t *testing.T, user uint32) *runningTrial {
	t.Helper()
	if os.Geteuid() != 0 {
		user = uint32(os.Geteuid())
	}
	dir, err := os.MkdirTemp("/var/tmp", "decamp-test-") // all users may enter it, unlike t.TempDir
	must(t, err)
	t.Cleanup(func() { must(t, os.RemoveAll(dir)) })
	b := &runningTrial{user: user, image: filepath.Join(dir, "image.raw")}
	if out, err := exec.Command("cp", binary, filepath.Join(dir, "decamp")).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	must(t, os.WriteFile(b.image, writesAndHalts, 0o600))
	must(t, os.Truncate(b.image, 1<<20))
	domain, serial := filepath.Join(dir, "vm.xml"), filepath.Join(dir, "serial.log")
	must(t, os.WriteFile(domain, fmt.Appendf(nil, `<domain type='kvm'><name>web01</name><memory unit='MiB'>256</memory><os><type arch='x86_64' machine='pc'>hvm</type></os><devices>
<disk type='file' device='disk'><driver name='qemu' type='raw'/><source file='%s'/><target dev='sda' bus='scsi'/><address type='drive' controller='0' bus='0' target='0' unit='0'/></disk>
<controller type='scsi' index='0' model='vmpvscsi'/><interface type='network'><mac address='00:50:56:ab:cd:01'/><model type='vmxnet3'/></interface></devices></domain>`, b.image), 0o600))
	must(t, unix.Mkfifo(serial, 0o600))
	for _, path := range []string{dir, b.image, domain, serial} {
		must(t, os.Chown(path, int(user), int(user)))
	}
	output, err := os.OpenFile(serial, os.O_RDWR|unix.O_NONBLOCK, 0)
	must(t, err)
	t.Cleanup(func() { _ = output.Close() })
	b.Cmd = exec.CommandContext(t.Context(), filepath.Join(dir, "decamp"), "trial", domain, "--accel", "tcg", "--keep", dir, "--expect", "text that no guest prints", "--deadline", "10m")
	b.Stderr = os.Stderr
	b.Env = []string{"HOME=" + dir, "PATH=" + os.Getenv("PATH"), "SECRET=hunter2"}
	if os.Geteuid() == 0 && user != 0 {
		b.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: user, Gid: user}}
	}
	must(t, b.Start())
	t.Cleanup(func() { _ = b.Process.Kill(); _ = b.Wait() }) // usually it has ended
	must(t, output.SetReadDeadline(time.Now().Add(5*time.Minute)))
	if _, err := io.ReadFull(output, make([]byte, 64)); err != nil {
		t.Fatalf("the guest's first output: %v", err)
	}
	found := confinetest.Children(t, b.Process.Pid)
	if len(found) != 1 {
		t.Fatalf("child processes %v, want one QEMU", found)
	}
	b.qemu = found[0]
	b.removeScratch(t)
	return b
}

// removeScratch removes the scratch folder at the end of the test, because a killed decamp leaves it.
func (b *runningTrial) removeScratch(t *testing.T) {
	t.Helper()
	env, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", b.qemu))
	must(t, err)
	fd := filepath.Base(strings.Trim(string(env), "\x00"))
	folder, err := os.Readlink(fmt.Sprintf("/proc/%d/fd/%s", b.qemu, fd))
	must(t, err)
	if trial := filepath.Dir(folder); strings.HasPrefix(trial, "/var/tmp/trial-") {
		ends := watchEnd(t, b.qemu)
		t.Cleanup(func() {
			_ = b.Process.Kill() // it may have ended
			ends(time.Minute)    // QEMU writes to the folder until then
			must(t, os.RemoveAll(trial))
		})
	} else {
		t.Errorf("QEMU writes to %s", folder)
	}
}

// asRootAndUser runs a test with a trial of an ordinary user and, if the tests run as root, with a trial of root.
func asRootAndUser(t *testing.T, run func(*testing.T, *runningTrial)) {
	program.Requires(t, "qemu-system-x86_64")
	for name, user := range map[string]uint32{"as root": 0, "as a user": ordinaryUID} {
		if user == 0 && os.Geteuid() != 0 {
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run(t, startTrial(t, user))
		})
	}
}

// The QEMU process of a trial has no privileges, no secrets, and only the files of the guest.
func TestQEMUIsConfined(t *testing.T) {
	t.Parallel()
	asRootAndUser(t, func(t *testing.T, b *runningTrial) {
		confinetest.Check(t, b.qemu, b.user, []string{b.image}, nil)
	})
}

// QEMU ends when decamp is killed with SIGKILL.
func TestQEMUEndsWithAKilledDecamp(t *testing.T) {
	t.Parallel()
	asRootAndUser(t, func(t *testing.T, b *runningTrial) {
		ends := watchEnd(t, b.qemu)
		if ends(0) {
			t.Fatal("QEMU does not run")
		}
		must(t, b.Process.Kill())
		if !ends(time.Minute) {
			t.Error("QEMU still runs")
			must(t, syscall.Kill(b.qemu, syscall.SIGKILL))
		}
	})
}

// watchEnd returns a function that reports whether a process ends within a time limit.
func watchEnd(t *testing.T, pid int) func(time.Duration) bool {
	t.Helper()
	fd, err := unix.PidfdOpen(pid, 0)
	must(t, err)
	t.Cleanup(func() { must(t, unix.Close(fd)) })
	return func(d time.Duration) bool {
		t.Helper()
		for until := time.Now().Add(d); ; {
			n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, int(max(0, time.Until(until)).Milliseconds()))
			if err != unix.EINTR {
				must(t, err)
				return n == 1
			}
		}
	}
}
