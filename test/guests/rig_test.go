//go:build guests

package guests

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/decamp/decamp/internal/journal"
	"github.com/decamp/decamp/internal/lab"
)

const (
	mac    = "00:50:56:ab:cd:01"
	smbios = "564d4e6f-1c2b-4a3d-8e5f-0123456789ab"
)

// repo is the root folder of the repository.
const repo = "../.."

// A rig is an emulated ESXi host with one of the guests, and a target folder.
type rig struct {
	t    *testing.T
	name Name
	lab  *lab.Lab
	dir  string
}

func newRig(t *testing.T, name Name) *rig {
	t.Helper()
	firmware := map[bool]string{true: "efi"}[Look(name).EFI]
	l, err := lab.Start(context.Background(), lab.Config{VMs: []lab.VM{{
		Name: string(name), GuestID: "debian12_64Guest", UUID: smbios, MemoryMB: 768, CPUs: 1, Firmware: firmware, SecureBoot: Look(name).EFI,
		NICs:  []lab.NIC{{Model: "vmxnet3", MAC: mac, AddressType: "manual"}},
		Disks: []lab.Disk{{File: File(repo, name), Controller: "pvscsi"}},
	}}})
	must(t, err)
	t.Cleanup(func() { must(t, l.Close()) })
	r := &rig{t: t, name: name, lab: l, dir: t.TempDir()}
	must(t, errors.Join(os.Mkdir(filepath.Join(r.dir, "vms"), 0o755), os.WriteFile(filepath.Join(r.dir, "password"), []byte(l.Password()+"\n"), 0o600)))
	return r
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// publishedDir returns the folder of the published VM.
func (r *rig) publishedDir() string { return filepath.Join(r.dir, "vms", string(r.name)) }

// runWithKernel runs a program with the kernel that setup.sh unpacked mounted at /boot. Appliances boot it, because a
// container has no kernel.
const runWithKernel = `mount --bind "$0/boot" /boot; mount --bind "$0/lib/modules" /lib/modules; exec "$@"`

// run runs decamp and returns its output and its exit code.
func (r *rig) run(args ...string) (stdout, stderr string, code int) {
	r.t.Helper()
	kernel, err := filepath.Abs(filepath.Join(repo, "build", "kernel"))
	must(r.t, err)
	args = append([]string{"--mount", "--propagation", "private", "sh", "-ec", runWithKernel, kernel, decampBinary}, args...)
	cmd := exec.CommandContext(r.t.Context(), "unshare", append(args, "--state", filepath.Join(r.dir, "state"))...)
	cmd.Env = append(os.Environ(), "DECAMP_PASSWORD_FILE="+filepath.Join(r.dir, "password"), "TMPDIR="+r.dir)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	var exit *exec.ExitError
	if err := cmd.Run(); err != nil && !errors.As(err, &exit) {
		r.t.Fatal(err)
	}
	return out.String(), errs.String(), cmd.ProcessState.ExitCode()
}

// A migrationLog has the notes and durations of a migration.
type migrationLog struct {
	notes []string
	took  map[string]time.Duration // durations by step
}

// migrate migrates the guest to virtio hardware, with a trial boot.
func (r *rig) migrate() migrationLog {
	r.t.Helper()
	out, errs, code := r.run("migrate", "esxi://"+r.lab.User()+"@"+r.lab.Addr(), string(r.name), "--to", "dir:"+filepath.Join(r.dir, "vms"),
		"--hardware", "virtio", "--trial", "--json", "--fingerprint", r.lab.Fingerprint())
	migration := migrationLog{took: map[string]time.Duration{}}
	since := map[string]time.Time{}
	lines := bufio.NewScanner(strings.NewReader(out))
	lines.Buffer(nil, 4<<20)
	for lines.Scan() {
		var o struct{ Event journal.Event }
		must(r.t, json.Unmarshal(lines.Bytes(), &o))
		switch e := o.Event; e.Kind {
		case journal.StepStarted:
			since[e.Step] = e.Time
		case journal.StepDone:
			migration.took[e.Step] = e.Time.Sub(since[e.Step])
		case journal.Summarized:
			for _, s := range e.Stages {
				migration.took[s.Name] = max(migration.took[s.Name], s.Elapsed)
			}
		default:
			migration.notes = append(migration.notes, e.Message)
		}
	}
	must(r.t, lines.Err())
	if code != 0 {
		r.t.Fatalf("decamp migrate: exit code %d: %s\n%s\nserial port: %s", code, errs, strings.Join(migration.notes, "\n"), r.serialLog())
	}
	return migration
}

// serialLog returns the end of the serial log of the trial.
func (r *rig) serialLog() string {
	logs, _ := filepath.Glob(filepath.Join(r.dir, "state", "runs", "*", "trial", "serial.log"))
	for _, log := range logs {
		if text, err := os.ReadFile(log); err == nil {
			return string(text[max(0, len(text)-6000):])
		}
	}
	return "no serial log"
}

// hasNote reports whether a note contains all texts.
func (t migrationLog) hasNote(words ...string) bool {
	for _, note := range t.notes {
		found := true
		for _, w := range words {
			found = found && strings.Contains(note, w)
		}
		if found {
			return true
		}
	}
	return false
}

// durations returns the durations of the steps for the test log.
func (t migrationLog) durations() string {
	seconds := func(step string) string { return fmt.Sprintf("%s %.2f s", step, t.took[step].Seconds()) }
	return strings.Join([]string{seconds("copy"), seconds("detect"), seconds("convert"), seconds("trial boot"), seconds("verify"), seconds("commit")}, ", ")
}
