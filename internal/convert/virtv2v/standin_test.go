package virtv2v

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/decamp/decamp/internal/lab/executable"
)

// standIn is a program that behaves like virt-v2v-in-place in the aspects that decamp uses: its version and help, the
// files that it writes, and its failures. The messages are from logs of 2.2.0.
type standIn struct {
	t    *testing.T
	dir  string
	disk string // path of a qcow2 overlay
	log  string
}

const (
	oldHelp = "  -b, --bridge <in:out>               Map bridge\n  -i <disk|libvirt|libvirtxml|ova|vmx>\n                                      Set input mode (default: libvirt)\n" +
		"  --key <SELECTOR>                    Specify a LUKS key\n  --keys-from-stdin                   Read passphrases from stdin\n  --root <ask|... >                   How to choose root filesystem\n  -V, --version                       Display version and exit\n" +
		"  -v, --verbose                       Enable libguestfs debugging messages\n"
	newHelp = oldHelp + "  --block-driver <driver>             Prefer 'virtio-blk' or 'virtio-scsi'\n  --no-fstrim                         Do not run fstrim\n  -O <output.xml>                     Create output metadata\n"
)

// newStandIn returns a program that reports version and help, and otherwise runs script. In it, $disk is the first
// disk of the domain and $dir is the folder of the test.
func newStandIn(t *testing.T, version, help, script string) *standIn {
	t.Helper()
	s := &standIn{t: t, dir: t.TempDir()}
	s.disk, s.log = filepath.Join(s.dir, "disk.v2v"), filepath.Join(s.dir, "virt-v2v.log")
	base := filepath.Join(s.dir, "disk.raw")
	if err := os.WriteFile(base, make([]byte, 8<<20), 0o644); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("qemu-img", "create", "-q", "-f", "qcow2", "-b", base, "-F", "raw", s.disk).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	text := fmt.Sprintf(`#!/bin/sh
case $1 in
--version) echo "virt-v2v-in-place %s"; exit ;;
--help) cat <<'HELP'
virt-v2v-in-place: convert a guest to use KVM
%sHELP
exit ;;
esac
dir=%s
for last; do :; done
echo "$@" >$dir/args
env >$dir/env
for arg; do
	case $arg in *:file:*) cat "${arg#*:file:}" >>$dir/keys; echo >>$dir/keys ;; esac
done
cp "$last" $dir/domain.xml
disk=$(sed -n 's/.*<source file="\([^"]*\)".*/\1/p' "$last" | head -1)
echo "[   0.0] Setting up the source: -i libvirtxml $last"
echo "libguestfs: trace: set_verbose true" >&2
%s
`, version, help, s.dir, script)
	executable.Write(t, s.program(), text)
	return s
}

func (s *standIn) program() string { return filepath.Join(s.dir, "virt-v2v-in-place") }

// engine returns an Engine that runs the program. By default KVM does not work.
func (s *standIn) engine(o Options) *Engine {
	o.Program, o.NBDKit = s.program(), cmp.Or(o.NBDKit, "sh")
	if o.KVM == nil {
		o.KVM = func(context.Context) error { return errors.New("no vCPU runs") }
	}
	if o.Environ == nil {
		o.Environ = func() []string {
			return []string{"PATH=" + os.Getenv("PATH"), "HOME=/nowhere", "DECAMP_PASSWORD=secret", "PGPASSWORD=secret", "CREDENTIALS_DIRECTORY=/run/secret", "SUPERMIN_KERNEL=/k", "LIBGUESTFS_BACKEND=libvirt", "LIBGUESTFS_CACHEDIR=" + s.dir}
		}
	}
	return New(o)
}

func (s *standIn) job() Job {
	return Job{Name: "web <01>", MemoryMiB: 512, CPUs: 2, Disks: []string{s.disk}, Log: s.log}
}

func (s *standIn) readFile(name string) string {
	s.t.Helper()
	text, err := os.ReadFile(filepath.Join(s.dir, name))
	if err != nil {
		s.t.Fatal(err)
	}
	return string(text)
}

// waitFor polls a condition until it is true.
func waitFor(t *testing.T, what string, condition func() bool) {
	t.Helper()
	for end := time.Now().Add(3 * time.Minute); !condition(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("timeout while waiting until %s", what)
		}
	}
}

// processEnded reports whether the process with this ID has ended. A zombie has ended too.
func processEnded(pid string) bool {
	stat, err := os.ReadFile("/proc/" + pid + "/stat")
	if err != nil {
		return true
	}
	_, rest, _ := strings.Cut(string(stat), ") ")
	return strings.HasPrefix(rest, "Z")
}
