package workflow

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/decamp/decamp/internal/fault"
)

// A worker is the configuration of a process that executes a run of four steps on a shared record.
type worker struct {
	Dir, URL, Executor string
	Notes              string // directory of the files that the processes leave
	Take               bool   // take the run over instead of starting it
	Hold               bool   // wait for the file "go" in step 2, and ignore the context
}

const workerRun = "r1"

// addNote leaves a file for the parent process.
func (w worker) addNote(name string) {
	if err := os.WriteFile(filepath.Join(w.Notes, w.Executor+" "+name), nil, 0o600); err != nil {
		panic(err)
	}
}

// waitForNote waits until a file exists.
func (w worker) waitForNote(name string) {
	for {
		if _, err := os.Stat(filepath.Join(w.Notes, name)); err == nil {
			return
		}
		time.Sleep(5 * time.Millisecond) // another process writes the file
	}
}

// step returns step n, which adds 1. It adds 1000 if it has waited for "go", because its result must not be recorded
// then.
func (w worker) step(n int) func(context.Context, int) (int, error) {
	return func(_ context.Context, sum int) (int, error) {
		w.addNote(fmt.Sprint("step", n))
		if w.Hold && n == 2 {
			w.waitForNote("go")
			return sum + 1000, nil
		}
		return sum + 1, nil
	}
}

func (w worker) register(e *Engine) {
	for n := range childSteps {
		RegisterStep(e, fmt.Sprint("step", n), w.step(n))
	}
	Register(e, "count", func(fc *Context, sum int) (err error) {
		for n := 0; n < childSteps && err == nil; n++ {
			err = fc.Step(fmt.Sprint("step", n), sum, &sum)
		}
		return err
	})
}

func (w worker) run() error {
	ctx := context.Background()
	e, err := Open(ctx, Config{Dir: w.Dir, URL: w.URL, Executor: w.Executor, Keys: testKeys()})
	if err != nil {
		return err
	}
	w.register(e)
	if err := e.Launch(); err != nil {
		return err
	}
	if w.Take {
		err = e.TakeOver(ctx, workerRun)
	} else {
		err = e.Start(ctx, workerRun, "count", 100)
	}
	if err == nil {
		err = e.Wait(ctx, workerRun)
	}
	w.addNote(fmt.Sprint("ended ", fault.KindOf(err), " ", err == nil))
	return errors.Join(e.Close())
}

func runWorker(raw string) error {
	var w worker
	if err := json.Unmarshal([]byte(raw), &w); err != nil {
		return err
	}
	return w.run()
}

// start starts the process.
func (w worker) start(t *testing.T) *exec.Cmd {
	t.Helper()
	raw, err := json.Marshal(w)
	must(t, err)
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), "FLOW_TEST_WORKER="+string(raw))
	cmd.Stderr = os.Stderr
	must(t, cmd.Start())
	return cmd
}

// waitForExit waits until the process has ended without an error.
func waitForExit(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
}

// notes returns the names of the files that the process has left.
func (w worker) notes(t *testing.T) string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(w.Notes, w.Executor+" *"))
	must(t, err)
	var all []string
	for _, f := range found {
		all = append(all, strings.TrimPrefix(filepath.Base(f), w.Executor+" "))
	}
	return strings.Join(all, ", ")
}

// newWorkers returns worker a, which waits in step 2, and worker b, which takes the run over.
func newWorkers(t *testing.T, url string) (a, b worker) {
	notes := t.TempDir()
	a = worker{Dir: t.TempDir(), URL: url, Executor: "a", Notes: notes, Hold: true}
	b = worker{Dir: t.TempDir(), URL: url, Executor: "b", Notes: notes, Take: true}
	return a, b
}

// readRecord opens the record as a third executor, and returns the result of the run and its number of attempts.
func readRecord(t *testing.T, url string) (sum, attempts int) {
	t.Helper()
	e := openShared(t, url, "reader", func(*Engine) {})
	st, err := e.Status(t.Context(), workerRun)
	must(t, err)
	if st.State != Done {
		t.Fatalf("the run is %s, want %s", st.State, Done)
	}
	return lastResult(t, e, workerRun), st.Attempt
}

func TestWorkers(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]func(t *testing.T, url string){
		"killed": runOfAKilledWorkerIsTakenOver, "stopped": stoppedWorkerRecordsNothing, "restarted": restartedWorkerContinues,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, shared.NewDatabase(t))
		})
	}
}

func runOfAKilledWorkerIsTakenOver(t *testing.T, url string) {
	a, b := newWorkers(t, url)
	ca := a.start(t)
	a.waitForNote("a step2")
	must(t, ca.Process.Kill())
	_ = ca.Wait() // an error, because the process was killed
	waitForExit(t, b.start(t))
	if got := b.notes(t); got != "ended internal true, step2, step3" {
		t.Errorf("notes of b: %s", got)
	}
	if sum, attempts := readRecord(t, url); sum != 104 || attempts != 2 {
		t.Errorf("result %d after %d attempts", sum, attempts)
	}
}

func stoppedWorkerRecordsNothing(t *testing.T, url string) {
	a, b := newWorkers(t, url)
	ca := a.start(t)
	a.waitForNote("a step2")
	must(t, ca.Process.Signal(syscall.SIGSTOP))
	waitForExit(t, b.start(t))
	must(t, os.WriteFile(filepath.Join(a.Notes, "go"), nil, 0o600))
	must(t, ca.Process.Signal(syscall.SIGCONT))
	waitForExit(t, ca)
	if got := a.notes(t); got != "ended conflict false, step0, step1, step2" {
		t.Errorf("notes of a: %s", got)
	}
	if sum, attempts := readRecord(t, url); sum != 104 || attempts != 2 {
		t.Errorf("result %d after %d attempts", sum, attempts)
	}
	reader := openShared(t, url, "reader2", func(*Engine) {})
	if got := recordedSteps(t, reader, workerRun); got != "step0 101step1 102" {
		t.Errorf("recorded steps of a's attempt: %s", got)
	}
}

func restartedWorkerContinues(t *testing.T, url string) {
	a, _ := newWorkers(t, url)
	ca := a.start(t)
	a.waitForNote("a step2")
	must(t, ca.Process.Kill())
	_ = ca.Wait() // an error, because the process was killed
	must(t, os.Remove(filepath.Join(a.Notes, "a step0")))
	a.Hold = false
	waitForExit(t, a.start(t))
	if got := a.notes(t); got != "ended internal true, step1, step2, step3" {
		t.Errorf("notes of a: %s", got)
	}
	if sum, attempts := readRecord(t, url); sum != 104 || attempts != 1 {
		t.Errorf("result %d after %d attempts", sum, attempts)
	}
}
