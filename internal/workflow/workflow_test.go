package workflow

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/decamp/decamp/internal/fault"
)

// openEngine returns a launched engine with the flows that setup registers.
func openEngine(t *testing.T, dir string, setup func(*Engine)) *Engine {
	t.Helper()
	e, err := Open(t.Context(), Config{Dir: dir, Grace: 10 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	setup(e)
	if err := e.Launch(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.Close() })
	return e
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func containsAll(s string, parts ...string) bool {
	return !slices.ContainsFunc(parts, func(part string) bool { return !strings.Contains(s, part) })
}

// registerPair returns a function that registers the flow "pair" of two steps, "first" and "second".
func registerPair(first, second func(context.Context, int) (int, error)) func(*Engine) {
	return func(e *Engine) {
		RegisterStep(e, "first", first)
		RegisterStep(e, "second", second)
		Register(e, "pair", func(c *Context, n int) error {
			return errors.Join(c.Step("first", n, &n), c.Step("second", n, &n))
		})
	}
}

func addOne(_ context.Context, n int) (int, error) { return n + 1, nil }

func TestStepsPassPlainDataAndAreRecorded(t *testing.T) {
	t.Parallel()
	e := openEngine(t, t.TempDir(), registerPair(addOne, addOne))
	must(t, e.Start(t.Context(), "r1", "pair", 40))
	must(t, e.Wait(t.Context(), "r1"))
	st, err := e.Status(t.Context(), "r1")
	must(t, err)
	var n int
	if found, err := st.Result("second", &n); !found || err != nil || n != 42 {
		t.Fatalf("result of second: %d, found %v, %v", n, found, err)
	}
	if found, err := st.Last(&n); !found || err != nil || n != 42 {
		t.Fatalf("last result: %d, found %v, %v", n, found, err)
	}
	if st.State != Done || st.Attempt != 1 || len(st.Steps) != 2 {
		t.Fatalf("status %+v", st)
	}
}

// If a step fails that succeeded before, Last returns the result of the step before it, and not that of its earlier
// execution.
func TestLastSkipsResultOfFailedStep(t *testing.T) {
	t.Parallel()
	calls := 0
	e := openEngine(t, t.TempDir(), func(e *Engine) {
		RegisterStep(e, "again", func(_ context.Context, n int) (int, error) {
			if calls++; calls == 2 {
				return 0, fault.New(fault.Full, "not now")
			}
			return n + 1, nil
		})
		RegisterStep(e, "other", addOne)
		Register(e, "loop", func(c *Context, n int) error {
			for _, step := range []string{"again", "other", "again"} {
				if err := c.Step(step, n, &n); err != nil {
					return err
				}
			}
			return nil
		})
	})
	must(t, e.Start(t.Context(), "r1", "loop", 40))
	if err := e.Wait(t.Context(), "r1"); !fault.Is(err, fault.Full) {
		t.Fatal(err)
	}
	st, err := e.Status(t.Context(), "r1")
	must(t, err)
	var n int
	if found, err := st.Last(&n); !found || err != nil || n != 42 {
		t.Fatalf("last result: %d, found %v, %v", n, found, err)
	}
	var none Status
	if found, err := none.Last(&n); found || err != nil {
		t.Fatalf("Last of a status without steps: found %v, %v", found, err)
	}
}

func TestFailedRunContinuesAfterTheLastGoodStep(t *testing.T) {
	t.Parallel()
	firsts, seconds := 0, 0
	broken := true
	e := openEngine(t, t.TempDir(), registerPair(
		func(context.Context, int) (int, error) { firsts++; return 7, nil },
		func(_ context.Context, n int) (int, error) {
			if seconds++; broken {
				return 0, fault.New(fault.Full, "no space left on %s", "/srv").WithHint("free 3 GiB")
			}
			return n * 6, nil
		}))
	must(t, e.Start(t.Context(), "r1", "pair", 0))
	err := e.Wait(t.Context(), "r1")
	if fault.KindOf(err) != fault.Full || fault.HintOf(err) != "free 3 GiB" {
		t.Fatalf("error %v, kind %v, hint %q", err, fault.KindOf(err), fault.HintOf(err))
	}
	broken = false
	must(t, e.Start(t.Context(), "r1", "pair", 0))
	must(t, e.Wait(t.Context(), "r1"))
	st, err := e.Status(t.Context(), "r1")
	must(t, err)
	var n int
	st.Result("second", &n)
	if st.Attempt != 2 || n != 42 || firsts != 1 || seconds != 2 {
		t.Fatalf("attempt %d, result %d, first ran %d times, second %d", st.Attempt, n, firsts, seconds)
	}
}

// A panic of a step fails its run, and is logged with its stack. The run continues when the step is repaired.
func TestPanicFailsTheRun(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	var log strings.Builder
	e, err := Open(ctx, Config{Dir: t.TempDir(), Log: slog.New(slog.NewTextHandler(&log, nil))})
	must(t, err)
	var table map[string]int // nil until the step is repaired
	registerPair(addOne, func(_ context.Context, n int) (int, error) { table["n"] = n; return n, nil })(e)
	must(t, e.Launch())
	must(t, e.Start(ctx, "r1", "pair", 40))
	if err := e.Wait(ctx, "r1"); err == nil || fault.KindOf(err) != fault.Internal || !containsAll(err.Error(), "r1", "nil map") || fault.HintOf(err) == "" {
		t.Fatalf("%v (%v)", err, fault.KindOf(err))
	}
	if st, err := e.Status(ctx, "r1"); err != nil || st.State != Failed || !strings.Contains(st.Err.Error(), "nil map") {
		t.Errorf("status %+v, %v", st, err)
	}
	table = map[string]int{}
	must(t, e.Start(ctx, "r1", "pair", 40))
	must(t, e.Wait(ctx, "r1"))
	if table["n"] != 41 {
		t.Errorf("the second step got %d, want 41", table["n"])
	}
	must(t, e.Close())
	if !containsAll(log.String(), "level=ERROR", "nil map", "workflow_test.go") {
		t.Errorf("log: %s", log.String())
	}
}

func TestRecordedErrorKeepsKindAndRemedy(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	fail := func(context.Context, int) (int, error) {
		return 0, fault.New(fault.Corrupt, "chunk 7 differs").WithHint("run the same command again")
	}
	e := openEngine(t, dir, registerPair(addOne, fail))
	must(t, e.Start(t.Context(), "r1", "pair", 0))
	if err := e.Wait(t.Context(), "r1"); err == nil {
		t.Fatal("run did not fail")
	}
	must(t, e.Close())
	e = openEngine(t, dir, registerPair(addOne, fail))
	st, err := e.Status(t.Context(), "r1")
	must(t, err)
	if fault.KindOf(st.Err) != fault.Corrupt || fault.HintOf(st.Err) == "" || st.Err.Error() != "chunk 7 differs" {
		t.Fatalf("recorded %v, kind %v, hint %q", st.Err, fault.KindOf(st.Err), fault.HintOf(st.Err))
	}
}

// blockUntilCanceled returns a step that sends to began, and then waits until its context ends.
func blockUntilCanceled(began chan<- struct{}) func(context.Context, int) (int, error) {
	return func(ctx context.Context, _ int) (int, error) {
		began <- struct{}{}
		<-ctx.Done()
		return 0, ctx.Err()
	}
}

func TestCanceledRunResumesOnNextStart(t *testing.T) {
	t.Parallel()
	began := make(chan struct{}, 1)
	second := blockUntilCanceled(began)
	e := openEngine(t, t.TempDir(), registerPair(addOne, func(ctx context.Context, n int) (int, error) { return second(ctx, n) }))
	must(t, e.Start(t.Context(), "r1", "pair", 0))
	<-began
	must(t, e.Cancel(t.Context(), "r1"))
	if err := e.Wait(t.Context(), "r1"); fault.KindOf(err) != fault.Canceled {
		t.Fatalf("canceled run ended with %v", err)
	}
	second = addOne
	must(t, e.Start(t.Context(), "r1", "pair", 0))
	must(t, e.Wait(t.Context(), "r1"))
}

func TestWaitReturnsAfterTheCanceledStep(t *testing.T) {
	t.Parallel()
	began, release := make(chan struct{}), make(chan struct{})
	e := openEngine(t, t.TempDir(), registerPair(addOne, func(ctx context.Context, _ int) (int, error) {
		close(began)
		<-ctx.Done()
		<-release // cleaning up
		return 0, ctx.Err()
	}))
	must(t, e.Start(t.Context(), "r1", "pair", 0))
	<-began
	must(t, e.Cancel(t.Context(), "r1"))
	short, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := e.Wait(short, "r1"); short.Err() == nil {
		t.Fatalf("Wait returned %v while the step was running", err)
	}
	close(release)
	if err := e.Wait(t.Context(), "r1"); fault.KindOf(err) != fault.Canceled {
		t.Fatal(err)
	}
}

func TestCloseLeavesTheRunPending(t *testing.T) {
	t.Parallel()
	dir, began := t.TempDir(), make(chan struct{}, 1)
	e := openEngine(t, dir, registerPair(addOne, blockUntilCanceled(began)))
	must(t, e.Start(t.Context(), "r1", "pair", 0))
	<-began
	must(t, e.Close())
	e = openEngine(t, dir, registerPair(blockUntilCanceled(began), addOne)) // the first step would block if it ran again
	st, err := e.Status(t.Context(), "r1")
	must(t, err)
	if st.State != Pending {
		t.Fatalf("state %s, want %s", st.State, Pending)
	}
	must(t, e.Start(t.Context(), "r1", "pair", 0))
	must(t, e.Wait(t.Context(), "r1"))
}

func TestPendingRunsWaitUntilTheyAreStartedOrResumed(t *testing.T) {
	t.Parallel()
	dir, began := t.TempDir(), make(chan struct{}, 2)
	e := openEngine(t, dir, registerPair(addOne, blockUntilCanceled(began)))
	for _, run := range []string{"started", "waiting"} {
		must(t, e.Start(t.Context(), run, "pair", 0))
		<-began
	}
	must(t, e.Close())

	e = openEngine(t, dir, registerPair(addOne, addOne))
	must(t, e.Start(t.Context(), "started", "pair", 0))
	must(t, e.Wait(t.Context(), "started"))
	if st, err := e.Status(t.Context(), "waiting"); err != nil || st.State != Pending || len(st.Steps) != 1 {
		t.Fatalf("waiting run: %+v, %v", st, err)
	}
	must(t, e.Close())

	e, err := Open(t.Context(), Config{Dir: dir, Resume: func(string) bool { return true }})
	must(t, err)
	defer e.Close()
	registerPair(addOne, addOne)(e)
	must(t, e.Launch())
	must(t, e.Wait(t.Context(), "waiting"))
}

func TestSecondProcessIsRefusedByPid(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	openEngine(t, dir, registerPair(addOne, addOne))
	_, err := Open(t.Context(), Config{Dir: dir})
	if fault.KindOf(err) != fault.Conflict || !strings.Contains(err.Error(), pid()) {
		t.Fatalf("second open: %v", err)
	}
}

func TestEveryConnectionUsesWAL(t *testing.T) {
	t.Parallel()
	e := openEngine(t, t.TempDir(), registerPair(addOne, addOne))
	for range stateConns { // all connections, held at the same time
		c, err := e.record.db.Conn(t.Context())
		must(t, err)
		defer c.Close()
		var journal string
		var sync int
		must(t, c.QueryRowContext(t.Context(), "PRAGMA journal_mode").Scan(&journal))
		must(t, c.QueryRowContext(t.Context(), "PRAGMA synchronous").Scan(&sync))
		if journal != "wal" || sync != 1 { // package sqlitedb tests the other settings
			t.Fatalf("journal_mode %s, synchronous %d; want wal, 1 (NORMAL)", journal, sync)
		}
	}
}

func TestStateDirectoryMayHaveAnyName(t *testing.T) {
	t.Chdir(t.TempDir())
	for _, dir := range []string{"relative", "a b/c%20d", "q?x=1#y&_pragma=synchronous(OFF)"} {
		e := openEngine(t, dir, registerPair(addOne, addOne))
		must(t, e.Start(t.Context(), "r1", "pair", 0))
		must(t, e.Wait(t.Context(), "r1"))
		must(t, e.Close())
		if _, err := os.Stat(filepath.Join(dir, "state.db")); err != nil {
			t.Error(err)
		}
	}
}

func TestStateIsPrivate(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "state")
	openEngine(t, dir, registerPair(addOne, addOne))
	for _, name := range []string{".", "state.db", "lock"} {
		fi, err := os.Stat(filepath.Join(dir, name))
		must(t, err)
		if fi.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s has mode %v", name, fi.Mode())
		}
	}
}

func TestForgottenRunStartsAgain(t *testing.T) {
	t.Parallel()
	runs := 0
	e := openEngine(t, t.TempDir(), registerPair(func(context.Context, int) (int, error) { runs++; return 0, nil }, addOne))
	for range 2 {
		must(t, e.Start(t.Context(), "r1", "pair", 0))
		must(t, e.Wait(t.Context(), "r1"))
		must(t, e.Forget(t.Context(), "r1"))
	}
	if st, err := e.Status(t.Context(), "r1"); err != nil || st.State != None || runs != 2 {
		t.Fatalf("status %+v, %v; first ran %d times", st, err, runs)
	}
}

func TestDoneRunIsNotRunAgain(t *testing.T) {
	t.Parallel()
	runs := 0
	e := openEngine(t, t.TempDir(), registerPair(func(context.Context, int) (int, error) { runs++; return 0, nil }, addOne))
	for range 2 {
		must(t, e.Start(t.Context(), "r1", "pair", 0))
		must(t, e.Wait(t.Context(), "r1"))
	}
	if runs != 1 {
		t.Fatalf("the first step ran %d times, want 1", runs)
	}
}

func TestRunsWithCommonPrefixAreDistinct(t *testing.T) {
	t.Parallel()
	e := openEngine(t, t.TempDir(), registerPair(addOne, addOne))
	must(t, e.Start(t.Context(), "web-10", "pair", 0))
	must(t, e.Wait(t.Context(), "web-10"))
	for _, run := range []string{"web-1", "web_10"} { // the engine's query uses LIKE
		if st, err := e.Status(t.Context(), run); err != nil || st.State != None {
			t.Errorf("%s: %+v, %v", run, st, err)
		}
	}
}

func TestBadRunIDsAreRefused(t *testing.T) {
	t.Parallel()
	e := openEngine(t, t.TempDir(), registerPair(addOne, addOne))
	for _, id := range []string{"", "a/2", "../x", "A b", strings.Repeat("x", 200)} {
		if err := e.Start(t.Context(), id, "pair", 0); fault.KindOf(err) != fault.Invalid {
			t.Errorf("run ID %q: got %v, want Invalid", id, err)
		}
	}
}

func TestEngineVariablesAreRefused(t *testing.T) {
	t.Setenv("DBOS__APPVERSION", "other")
	_, err := Open(t.Context(), Config{Dir: t.TempDir()})
	if fault.KindOf(err) != fault.Invalid || fault.HintOf(err) != "unset DBOS__APPVERSION" {
		t.Fatalf("got %v, hint %q", err, fault.HintOf(err))
	}
}

func TestEngineLogsNothingAtInfo(t *testing.T) {
	t.Parallel()
	var buf strings.Builder
	e, err := Open(t.Context(), Config{Dir: t.TempDir(), Log: slog.New(slog.NewTextHandler(&buf, nil))})
	must(t, err)
	registerPair(addOne, addOne)(e)
	must(t, e.Launch())
	must(t, e.Start(t.Context(), "r1", "pair", 0))
	must(t, e.Wait(t.Context(), "r1"))
	must(t, e.Close())
	if buf.Len() > 0 {
		t.Fatalf("logged at Info or above:\n%s", buf.String())
	}
}
