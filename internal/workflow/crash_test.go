package workflow

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

func pid() string { return strconv.Itoa(os.Getpid()) }

// TestMain runs a child process if the environment variable of one is set.
func TestMain(m *testing.M) {
	if raw := os.Getenv("FLOW_TEST_CHILD"); raw != "" {
		if err := runChild(raw); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	if raw := os.Getenv("FLOW_TEST_WORKER"); raw != "" {
		if err := runWorker(raw); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	code := m.Run()
	shared.End()
	os.Exit(code)
}

// A child is the configuration of a process that kills itself at the moment Kill. The moments "before N" and "after N"
// are in the body of the flow, before and after step N. "in N" is in the step.
type child struct {
	Dir  string
	Kill string
}

const childSteps = 4

// addLine appends a line to the child's log in one write, so that a kill leaves no partial line.
func (c child) addLine(line string) {
	f, err := os.OpenFile(filepath.Join(c.Dir, "ran"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err == nil {
		_, err = f.WriteString(line + "\n")
		err = errors.Join(err, f.Close())
	}
	if err != nil {
		panic(err)
	}
}

func (c child) killAt(moment string) {
	if c.Kill == moment {
		syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {} // until the signal arrives
	}
}

func (c child) register(e *Engine) {
	for n := range childSteps {
		RegisterStep(e, fmt.Sprintf("step%d", n), func(_ context.Context, sum int) (int, error) {
			c.addLine(fmt.Sprintf("step%d", n))
			c.killAt(fmt.Sprintf("in %d", n))
			return sum + n, nil
		})
	}
	Register(e, "count", func(fc *Context, sum int) error {
		for n := range childSteps {
			c.killAt(fmt.Sprintf("before %d", n))
			if err := fc.Step(fmt.Sprintf("step%d", n), sum, &sum); err != nil {
				return err
			}
			c.killAt(fmt.Sprintf("after %d", n))
		}
		c.addLine(fmt.Sprint("sum ", sum))
		return nil
	})
}

func runChild(raw string) error {
	var c child
	if err := json.Unmarshal([]byte(raw), &c); err != nil {
		return err
	}
	ctx := context.Background()
	e, err := Open(ctx, Config{Dir: c.Dir})
	if err != nil {
		return err
	}
	c.register(e)
	if err := errors.Join(e.Launch(), e.Start(ctx, "r1", "count", 100)); err != nil {
		return err
	}
	return errors.Join(e.Wait(ctx, "r1"), e.Close())
}

// run starts the child and reports whether it was killed.
func (c child) run(t *testing.T) (killed bool) {
	t.Helper()
	raw, err := json.Marshal(c)
	must(t, err)
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), "FLOW_TEST_CHILD="+string(raw))
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.Sys().(syscall.WaitStatus).Signal() == syscall.SIGKILL {
		return true
	}
	if err != nil {
		t.Fatalf("child: %v\n%s", err, out)
	}
	return false
}

// countLines returns how often each line is in the log.
func (c child) countLines(t *testing.T) map[string]int {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(c.Dir, "ran"))
	must(t, err)
	counts := map[string]int{}
	for line := range strings.Lines(string(text)) {
		counts[strings.TrimSpace(line)]++
	}
	return counts
}

func TestKillAtEveryMoment(t *testing.T) {
	if testing.Short() {
		t.Skip("kills a process at every moment")
	}
	var moments []string
	for n := range childSteps {
		moments = append(moments, fmt.Sprintf("before %d", n), fmt.Sprintf("in %d", n), fmt.Sprintf("after %d", n))
	}
	for _, moment := range moments {
		t.Run(moment, func(t *testing.T) {
			t.Parallel()
			c := child{Dir: t.TempDir(), Kill: moment}
			if !c.run(t) {
				t.Fatal("child was not killed")
			}
			if (child{Dir: c.Dir}).run(t) {
				t.Fatal("second child was killed")
			}
			ran := c.countLines(t)
			for n := range childSteps {
				want := 1
				if moment == fmt.Sprintf("in %d", n) {
					want = 2
				}
				if got := ran[fmt.Sprintf("step%d", n)]; got != want {
					t.Errorf("step%d ran %d times, want %d", n, got, want)
				}
			}
			if ran["sum 106"] != 1 {
				t.Errorf("the flow did not end exactly once: %v", ran)
			}
		})
	}
}

// A run continues after any number of recoveries. By default DBOS gives up after 100, which a migration on an unstable
// machine may reach.
func TestManyKillsDoNotExhaustARun(t *testing.T) {
	c := child{Dir: t.TempDir(), Kill: "in 1"}
	if !c.run(t) {
		t.Fatal("child was not killed")
	}
	db, err := openSQLite(filepath.Join(c.Dir, "state.db"))
	must(t, err)
	_, err = db.Exec("UPDATE workflow_status SET recovery_attempts = 100000")
	must(t, errors.Join(err, db.Close()))
	(child{Dir: c.Dir}).run(t)
	if ran := c.countLines(t); ran["step1"] != 2 || ran["sum 106"] != 1 {
		t.Fatalf("ran %v", ran)
	}
}

// Each directory in testdata is the state directory of one release after a kill -9 (see testdata/README.md). Every
// later release continues its run in the step that was interrupted.
func TestRecordedStateOfEveryReleaseContinues(t *testing.T) {
	releases, err := filepath.Glob("testdata/v*")
	must(t, err)
	if len(releases) == 0 {
		t.Fatal("no recorded state in testdata")
	}
	for _, release := range releases {
		t.Run(filepath.Base(release), func(t *testing.T) {
			c := child{Dir: t.TempDir()}
			must(t, os.CopyFS(c.Dir, os.DirFS(release)))
			if c.run(t) {
				t.Fatal("child was killed")
			}
			ran := c.countLines(t)
			if ran["step0"]+ran["step1"] != 2 || ran["step2"] != 2 || ran["step3"] != 1 || ran["sum 106"] != 1 {
				t.Errorf("ran %v; want steps 0 and 1 once, step 2 twice and step 3 once", ran)
			}
		})
	}
}

// TestRecord writes the state directory of this release (see testdata/README.md).
func TestRecord(t *testing.T) {
	dir := os.Getenv("FLOW_RECORD")
	if dir == "" {
		dir = t.TempDir() // tests the recording without keeping it
	}
	must(t, os.MkdirAll(dir, 0o700))
	c := child{Dir: dir, Kill: "in 2"}
	if !c.run(t) {
		t.Fatal("child was not killed")
	}
	db, err := openSQLite(filepath.Join(dir, "state.db"))
	must(t, err)
	_, err = db.Exec("VACUUM") // Close then merges the WAL, so that one small file is left
	must(t, errors.Join(err, db.Close(), os.Remove(filepath.Join(dir, "lock"))))
	if ran := c.countLines(t); ran["step0"] != 1 || ran["step1"] != 1 || ran["step2"] != 1 || ran["step3"] != 0 {
		t.Errorf("ran %v", ran)
	}
}
