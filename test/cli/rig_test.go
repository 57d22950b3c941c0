// Package cli runs the decamp binary against an emulated host (package lab), as a shell or a script does. Its tests
// check the output, the exit codes and the files.
package cli

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/decamp/decamp/internal/lab"
	"github.com/decamp/decamp/internal/workflow"
	"github.com/decamp/decamp/test/program"
)

// binary is the path of the decamp that TestMain built.
var binary string

// parallelTests is the number of tests that run at a time. Each has a lab, which generates its disks when they are
// read, and one or two decamp processes. Together they use less than 200 MiB of memory.
const parallelTests = 8

func TestMain(m *testing.M) {
	program.Wide(parallelTests)
	os.Exit(program.Main(m, &binary))
}

// secret is the password of the lab. Only the password file may contain it.
const secret = "hush-4f2a91-do-not-tell"

// rig is a test environment: a lab, a folder for VMs and a state directory.
type rig struct {
	t        *testing.T
	lab      *lab.Lab
	dir      string
	password string // path of the password file
	login    string // scheme and user of the source URL; newRig sets those of an ESXi host
	extra    []string
	env      []string // variables for decamp, in addition to those of the tests
	records  string   // name of the state directory; empty for "state"
	stepwise bool     // migrations wait at their next event until the test reads it
}

func newRig(t *testing.T, cfg lab.Config) *rig {
	t.Helper()
	cfg.Password = secret
	l, err := lab.Start(context.Background(), cfg)
	must(t, err)
	t.Cleanup(func() { must(t, l.Close()) })
	r := &rig{t: t, lab: l, dir: t.TempDir(), login: "esxi://root@"}
	r.password = r.writeFile("password", secret+"\n")
	must(t, os.Mkdir(r.vmsDir(), 0o755))
	state, err := emptyState()
	must(t, err)
	must(t, os.Mkdir(r.stateDir(), 0o700))
	must(t, os.WriteFile(filepath.Join(r.stateDir(), "state.db"), state, 0o600))
	return r
}

// emptyState returns a state file without runs. decamp needs 50 ms of processor time to create one, which would be a
// tenth of the time of these tests. Tests without a rig start without a state directory.
var emptyState = sync.OnceValues(func() ([]byte, error) {
	dir, err := os.MkdirTemp("", "decamp-state-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	engine, err := workflow.Open(context.Background(), workflow.Config{Dir: dir})
	if err != nil {
		return nil, err
	}
	if err := engine.Close(); err != nil {
		return nil, err
	}
	return os.ReadFile(filepath.Join(dir, "state.db"))
})

// withFingerprint adds the lab's fingerprint to each command that logs in.
func (r *rig) withFingerprint() *rig {
	r.extra = []string{"--fingerprint", r.lab.Fingerprint()}
	return r
}

// withStepwiseEvents makes startMigration start migrations that wait at their next event until the test reads it. Such
// a test must read events for as long as decamp must make progress.
func (r *rig) withStepwiseEvents() *rig {
	r.stepwise = true
	return r
}

func (r *rig) vmsDir() string   { return filepath.Join(r.dir, "vms") }
func (r *rig) stateDir() string { return filepath.Join(r.dir, cmp.Or(r.records, "state")) }
func (r *rig) url() string      { return r.login + r.lab.Addr() }

func (r *rig) writeFile(name, content string) string {
	r.t.Helper()
	path := filepath.Join(r.dir, name)
	must(r.t, os.WriteFile(path, []byte(content), 0o600))
	return path
}

// result is the exit code and the output of a command.
type result struct {
	t      *testing.T
	code   int
	stdout string
	stderr string
}

// commandTimeout is the time limit of one command. A test that hangs ends with the goroutines of the command, before the
// time limit of the package ends all tests.
const commandTimeout = 20 * time.Minute

// command prepares decamp without a terminal, in a separate session. After commandTimeout it gets SIGQUIT and prints its
// goroutines to its standard error.
func (r *rig) command(args ...string) *exec.Cmd {
	ctx, cancel := context.WithTimeout(r.t.Context(), commandTimeout)
	r.t.Cleanup(cancel)
	end := slices.Index(args, "--") // flags after it belong to the command that decamp runs
	if end < 0 {
		end = len(args)
	}
	cmd := exec.CommandContext(ctx, binary, slices.Insert(slices.Clone(args), end, "--state", r.stateDir())...)
	cmd.Cancel = func() error {
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			return cmd.Process.Signal(syscall.SIGQUIT)
		}
		return cmd.Process.Kill() // the test has ended
	}
	cmd.WaitDelay = time.Minute
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	// By default decamp uses four more scheduler processors, for data rates that these tests do not measure.
	cmd.Env = append(append(os.Environ(), "GOMAXPROCS=2", "DECAMP_PASSWORD_FILE="+r.password, "XDG_CACHE_HOME="+filepath.Join(r.dir, "cache")), r.env...)
	return cmd
}

// run runs decamp and waits for its end.
func (r *rig) run(args ...string) result {
	r.t.Helper()
	return r.runCommand(r.command(args...))
}

// runOnSource runs a command that logs in at the source.
func (r *rig) runOnSource(args ...string) result {
	r.t.Helper()
	return r.run(append(args, r.extra...)...)
}

func (r *rig) migrate(vm string, more ...string) result {
	r.t.Helper()
	return r.runOnSource(append([]string{"migrate", r.url(), vm, "--to", "dir:" + r.vmsDir()}, more...)...)
}

func (r *rig) runCommand(cmd *exec.Cmd) result {
	r.t.Helper()
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		r.t.Fatal(err)
	}
	return result{r.t, cmd.ProcessState.ExitCode(), out.String(), errs.String()}
}

// wantExit fails the test if the exit code differs.
func (r result) wantExit(code int) result {
	r.t.Helper()
	if r.code != code {
		r.t.Fatalf("exit code %d, want %d\nstdout: %s\nstderr: %s", r.code, code, r.stdout, r.stderr)
	}
	return r
}

// stateFlag matches the flag --state, which decamp repeats in the commands that it prints.
var stateFlag = regexp.MustCompile(` --state \S+`)

// wantOutput checks that the output contains each text. Repeated --state flags are ignored.
func (r result) wantOutput(words ...string) result {
	r.t.Helper()
	output := r.stdout + r.stderr
	short := stateFlag.ReplaceAllString(output, "")
	for _, w := range words {
		if !strings.Contains(short, w) && !strings.Contains(output, w) {
			r.t.Errorf("the output does not contain %q\nstdout: %s\nstderr: %s", w, r.stdout, r.stderr)
		}
	}
	return r
}

// remedyCommand returns the command at the end of the error's remedy.
func (r result) remedyCommand() string {
	r.t.Helper()
	_, after, ok := strings.Cut(r.stderr, "Remedy: ")
	_, command, run := strings.Cut(after, "run: ")
	if !ok || !run {
		r.t.Fatalf("no remedy with a command in: %s", r.stderr)
	}
	return strings.TrimSpace(command)
}

// decodeLast decodes the last line of the standard output, which is the result or the error.
func (r result) decodeLast(v any) {
	r.t.Helper()
	lines := strings.Split(strings.TrimSpace(r.stdout), "\n")
	last := lines[len(lines)-1]
	if err := json.Unmarshal([]byte(last), v); err != nil {
		r.t.Fatalf("%v in the last line of: %s", err, r.stdout)
	}
	if strings.Contains(last, `":null`) {
		r.t.Errorf("the last line contains null, want [] or no key: %s", last)
	}
}

// compareImage compares an image with the lab's disk, byte by byte.
func (r *rig) compareImage(image, vm string, n int) {
	r.t.Helper()
	want, err := r.lab.Disk(vm, n)
	must(r.t, err)
	program.SameDisk(r.t, image, want)
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// smallLab returns a lab with one VM whose migration takes less than a second.
func smallLab() lab.Config {
	return lab.Config{VMs: []lab.VM{{
		Name: "web01", ChangeTracking: true, NICs: []lab.NIC{{}},
		Disks: []lab.Disk{{Capacity: 10 << 20, Fill: 40, Seed: 1}, {Capacity: 8<<20 + 512, Fill: 80, Seed: 2}},
	}}}
}

// mostlyUnchangedDisks returns disks that are large compared with the guest's writes during an outage or a command.
func mostlyUnchangedDisks() []lab.Disk {
	return []lab.Disk{{Capacity: 48 << 20, Fill: 40, Seed: 1}, {Capacity: 16<<20 + 512, Fill: 80, Seed: 2}}
}
