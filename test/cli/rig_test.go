// Package cli runs the real decamp binary against the lab, the way a shell or a script
// does, and looks at what each of them would see: output, exit codes, files.
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

// binary is the decamp that TestMain built.
var binary string

// wide is how many tests run at a time. Each is a lab of at most 1 GiB that it makes up as it is
// read, and one decamp, or two: together less than 200 MiB of memory.
const wide = 8

func TestMain(m *testing.M) {
	program.Wide(wide)
	os.Exit(program.Main(m, &binary))
}

// secret is the lab's password; no file but the password file may hold it.
const secret = "hush-4f2a91-do-not-tell"

// rig is a lab, a place for VMs and a state directory.
type rig struct {
	t        *testing.T
	lab      *lab.Lab
	dir      string
	password string // file
	login    string // scheme and user; that of an ESXi host unless it is another
	extra    []string
	env      []string // of decamp, besides what the tests have
	records  string   // name of the state directory, if it is not "state"
	stepwise bool     // migrations wait at their next event until the test reads it
}

func newRig(t *testing.T, cfg lab.Config) *rig {
	t.Helper()
	cfg.Password = secret
	l, err := lab.Start(context.Background(), cfg)
	must(t, err)
	t.Cleanup(func() { must(t, l.Close()) })
	r := &rig{t: t, lab: l, dir: t.TempDir(), login: "esxi://root@"}
	r.password = r.write("password", secret+"\n")
	must(t, os.Mkdir(r.vms(), 0o755))
	state, err := emptyState()
	must(t, err)
	must(t, os.Mkdir(r.state(), 0o700))
	must(t, os.WriteFile(filepath.Join(r.state(), "state.db"), state, 0o600))
	return r
}

// emptyState returns a state file without runs. decamp creates one in 50 ms of processor time, which was a tenth of
// the time of these tests. Tests without a rig start without a state directory.
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

// trusting makes every command state the fingerprint.
func (r *rig) trusting() *rig {
	r.extra = []string{"--fingerprint", r.lab.Fingerprint()}
	return r
}

// steps makes begin start migrations that wait at their next event until the test reads it. Such a test must read
// events for as long as decamp is to make progress.
func (r *rig) steps() *rig {
	r.stepwise = true
	return r
}

func (r *rig) vms() string   { return filepath.Join(r.dir, "vms") }
func (r *rig) state() string { return filepath.Join(r.dir, cmp.Or(r.records, "state")) }
func (r *rig) url() string   { return r.login + r.lab.Addr() }

func (r *rig) write(name, content string) string {
	r.t.Helper()
	path := filepath.Join(r.dir, name)
	must(r.t, os.WriteFile(path, []byte(content), 0o600))
	return path
}

// result is what a command left.
type result struct {
	t      *testing.T
	code   int
	stdout string
	stderr string
}

// patience is the longest time that one command may take. A test that hangs ends with the goroutines of the
// command, before the time limit of the whole package hides which test it was.
const patience = 20 * time.Minute

// command prepares decamp without a terminal, in a separate session. It gets SIGQUIT after patience, so that its
// goroutines are on its standard error.
func (r *rig) command(args ...string) *exec.Cmd {
	ctx, cancel := context.WithTimeout(r.t.Context(), patience)
	r.t.Cleanup(cancel)
	end := slices.Index(args, "--") // flags of a command behind it are not decamp's
	if end < 0 {
		end = len(args)
	}
	cmd := exec.CommandContext(ctx, binary, slices.Insert(slices.Clone(args), end, "--state", r.state())...)
	cmd.Cancel = func() error {
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			return cmd.Process.Signal(syscall.SIGQUIT)
		}
		return cmd.Process.Kill() // the test has ended
	}
	cmd.WaitDelay = time.Minute
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	// decamp adds four processors of the scheduler for data rates that these tests do not measure.
	cmd.Env = append(append(os.Environ(), "GOMAXPROCS=2", "DECAMP_PASSWORD_FILE="+r.password, "XDG_CACHE_HOME="+filepath.Join(r.dir, "cache")), r.env...)
	return cmd
}

// run runs decamp to its end.
func (r *rig) run(args ...string) result {
	r.t.Helper()
	return r.finish(r.command(args...))
}

// source runs a command that logs in.
func (r *rig) source(args ...string) result {
	r.t.Helper()
	return r.run(append(args, r.extra...)...)
}

func (r *rig) migrate(vm string, more ...string) result {
	r.t.Helper()
	return r.source(append([]string{"migrate", r.url(), vm, "--to", "dir:" + r.vms()}, more...)...)
}

func (r *rig) finish(cmd *exec.Cmd) result {
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

// ends checks the exit code.
func (r result) ends(code int) result {
	r.t.Helper()
	if r.code != code {
		r.t.Fatalf("exit code %d, want %d\nstdout: %s\nstderr: %s", r.code, code, r.stdout, r.stderr)
	}
	return r
}

// stateFlag matches the flag that decamp repeats in commands, because all commands of these tests have it.
var stateFlag = regexp.MustCompile(` --state \S+`)

// says checks that the output contains these words, apart from repeated --state.
func (r result) says(words ...string) result {
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

// remedy is the command that the error's remedy ends in.
func (r result) remedy() string {
	r.t.Helper()
	_, after, ok := strings.Cut(r.stderr, "Remedy: ")
	_, command, run := strings.Cut(after, "run: ")
	if !ok || !run {
		r.t.Fatalf("no remedy with a command in: %s", r.stderr)
	}
	return strings.TrimSpace(command)
}

// last decodes the last line of the standard output: the result, or the error.
func (r result) last(v any) {
	r.t.Helper()
	lines := strings.Split(strings.TrimSpace(r.stdout), "\n")
	last := lines[len(lines)-1]
	if err := json.Unmarshal([]byte(last), v); err != nil {
		r.t.Fatalf("%v in the last line of: %s", err, r.stdout)
	}
	if strings.Contains(last, `":null`) {
		r.t.Errorf("an empty list is [], and what is unknown is left out: %s", last)
	}
}

// sameAsSource compares an image with the lab's disk, byte by byte.
func (r *rig) sameAsSource(image, vm string, n int) {
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

// small is a lab with one VM that moves within a second.
func small() lab.Config {
	return lab.Config{VMs: []lab.VM{{
		Name: "web01", ChangeTracking: true, NICs: []lab.NIC{{}},
		Disks: []lab.Disk{{Capacity: 10 << 20, Fill: 40, Seed: 1}, {Capacity: 8<<20 + 512, Fill: 80, Seed: 2}},
	}}}
}

// manyBytes are disks of which an outage, or the time that a command takes, is a small part.
func manyBytes() []lab.Disk {
	return []lab.Disk{{Capacity: 48 << 20, Fill: 40, Seed: 1}, {Capacity: 16<<20 + 512, Fill: 80, Seed: 2}}
}
