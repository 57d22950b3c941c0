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

// worker is what a process of its own is told that executes a run of four steps on a shared record.
type worker struct {
	Dir, URL, Executor string
	Notes              string // where it and the others leave files
	Take               bool   // take the run over, instead of starting it
	Hold               bool   // in step 2, until there is a file "go", whatever its context says
}

const workerRun = "r1"

// note leaves a file for the parent to find.
func (w worker) note(name string) {
	if err := os.WriteFile(filepath.Join(w.Notes, w.Executor+" "+name), nil, 0o600); err != nil {
		panic(err)
	}
}

// noted returns once a file is there.
func (w worker) noted(name string) {
	for {
		if _, err := os.Stat(filepath.Join(w.Notes, name)); err == nil {
			return
		}
		time.Sleep(5 * time.Millisecond) // another process is waited for
	}
}

// step tells who ran it: a is worth a thousand where it must not be.
func (w worker) step(n int) func(context.Context, int) (int, error) {
	return func(_ context.Context, sum int) (int, error) {
		w.note(fmt.Sprint("step", n))
		if w.Hold && n == 2 {
			w.noted("go")
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
	w.note(fmt.Sprint("ended ", fault.KindOf(err), " ", err == nil))
	return errors.Join(e.Close())
}

func runWorker(raw string) error {
	var w worker
	if err := json.Unmarshal([]byte(raw), &w); err != nil {
		return err
	}
	return w.run()
}

// begin starts the process.
func (w worker) begin(t *testing.T) *exec.Cmd {
	t.Helper()
	raw, err := json.Marshal(w)
	ok(t, err)
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), "FLOW_TEST_WORKER="+string(raw))
	cmd.Stderr = os.Stderr
	ok(t, cmd.Start())
	return cmd
}

// end waits for the process, and for what it noted last.
func end(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
}

func (w worker) did(t *testing.T) string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(w.Notes, w.Executor+" *"))
	ok(t, err)
	var all []string
	for _, f := range found {
		all = append(all, strings.TrimPrefix(filepath.Base(f), w.Executor+" "))
	}
	return strings.Join(all, ", ")
}

// workers are two of them, of which a holds in step 2.
func workers(t *testing.T, url string) (a, b worker) {
	notes := t.TempDir()
	a = worker{Dir: t.TempDir(), URL: url, Executor: "a", Notes: notes, Hold: true}
	b = worker{Dir: t.TempDir(), URL: url, Executor: "b", Notes: notes, Take: true}
	return a, b
}

// onRecord opens the record as a third executor and returns the sum and the attempts it took.
func onRecord(t *testing.T, url string) (sum, attempts int) {
	t.Helper()
	e := join(t, url, "reader", func(*Engine) {})
	st, err := e.Status(t.Context(), workerRun)
	ok(t, err)
	if st.State != Done {
		t.Fatalf("the run is %s", st.State)
	}
	return result(t, e, workerRun), st.Attempt
}

func TestWorkers(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]func(t *testing.T, url string){
		"killed": killedWorkersRunGoesOnElsewhere, "stopped": stoppedWorkerRecordsNothing, "restarted": restartedWorkerGoesOn,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, shared.NewDatabase(t))
		})
	}
}

func killedWorkersRunGoesOnElsewhere(t *testing.T, url string) {
	a, b := workers(t, url)
	ca := a.begin(t)
	a.noted("a step2")
	ok(t, ca.Process.Kill())
	_ = ca.Wait() // killed: that is an error
	end(t, b.begin(t))
	if got := b.did(t); got != "ended internal true, step2, step3" {
		t.Errorf("b: %s", got)
	}
	if sum, attempts := onRecord(t, url); sum != 104 || attempts != 2 {
		t.Errorf("sum %d after %d attempts", sum, attempts)
	}
}

func stoppedWorkerRecordsNothing(t *testing.T, url string) {
	a, b := workers(t, url)
	ca := a.begin(t)
	a.noted("a step2")
	ok(t, ca.Process.Signal(syscall.SIGSTOP))
	end(t, b.begin(t))
	ok(t, os.WriteFile(filepath.Join(a.Notes, "go"), nil, 0o600))
	ok(t, ca.Process.Signal(syscall.SIGCONT))
	end(t, ca)
	if got := a.did(t); got != "ended conflict false, step0, step1, step2" {
		t.Errorf("a: %s", got)
	}
	if sum, attempts := onRecord(t, url); sum != 104 || attempts != 2 {
		t.Errorf("sum %d after %d attempts", sum, attempts)
	}
	reader := join(t, url, "reader2", func(*Engine) {})
	if got := recordedSteps(t, reader, workerRun); got != "step0 101step1 102" {
		t.Errorf("on record of a's attempt: %s", got)
	}
}

func restartedWorkerGoesOn(t *testing.T, url string) {
	a, _ := workers(t, url)
	ca := a.begin(t)
	a.noted("a step2")
	ok(t, ca.Process.Kill())
	_ = ca.Wait() // killed: that is an error
	ok(t, os.Remove(filepath.Join(a.Notes, "a step0")))
	a.Hold = false
	end(t, a.begin(t))
	if got := a.did(t); got != "ended internal true, step1, step2, step3" {
		t.Errorf("a: %s", got)
	}
	if sum, attempts := onRecord(t, url); sum != 104 || attempts != 1 {
		t.Errorf("sum %d after %d attempts", sum, attempts)
	}
}
