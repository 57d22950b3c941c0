package workflow

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/fleetkey"
	"github.com/decamp/decamp/internal/lab/postgres"
	"github.com/jackc/pgx/v5"
)

// shared is the PostgreSQL server of tests that do not stop it.
var shared postgres.Shared

// openShared returns a launched engine, the executor name of the shared record at url.
func openShared(t testing.TB, url, name string, setup func(*Engine)) *Engine {
	t.Helper()
	return openSharedWithLog(t, url, name, nil, setup)
}

func openSharedWithLog(t testing.TB, url, name string, log *slog.Logger, setup func(*Engine)) *Engine {
	t.Helper()
	e, err := Open(t.Context(), Config{Dir: t.TempDir(), URL: url, Executor: name, Log: log, Grace: 20 * time.Second, Keys: testKeys()})
	must(t, err)
	setup(e)
	must(t, e.Launch())
	t.Cleanup(func() { e.Close() })
	return e
}

// testKeys returns the keys of the executors of all tests.
var testKeys = sync.OnceValue(func() *fleetkey.Keys {
	k, err := fleetkey.Parse([]byte("decamp-fleet-key-1:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8"))
	if err != nil {
		panic(err)
	}
	return k
})

// mustNotRun returns a step that must not run on the executor that registers it.
func mustNotRun(t *testing.T) func(context.Context, int) (int, error) {
	return func(context.Context, int) (int, error) {
		t.Error("a step ran on the wrong executor")
		return 0, errors.New("not mine")
	}
}

// lastResult returns the result of the run's last successful step.
func lastResult(t *testing.T, e *Engine, run string) (n int) {
	t.Helper()
	st, err := e.Status(t.Context(), run)
	must(t, err)
	if _, err := st.Last(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

func TestSharedRecord(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]func(t *testing.T, url string){
		"attempts": attemptsOnPostgres, "often": runMayHaveManyAttempts, "affinity": runsStayWithTheirExecutor,
		"across": callsReachOtherExecutors, "takeover": takenOverAttemptIsFenced, "canceled": canceledAttemptIsFenced, "begun_twice": oneOfTwoExecutorsBegins,
		"forged": forgedRecordIsRefused, "names": executorsNeedAName, "together": manyOpenAnEmptyDatabase, "lost_claim": lostClaimIsQueuedAgain,
		"late_claim": attemptIsExecutedOnceAtATime, "upgrade": runsOfAnEarlierEngineContinue,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, shared.NewDatabase(t))
		})
	}
}

func attemptsOnPostgres(t *testing.T, url string) {
	broken := true
	e := openShared(t, url, "a", registerPair(addOne, func(_ context.Context, n int) (int, error) {
		if broken {
			return 0, fault.New(fault.Full, "no space").WithHint("free space")
		}
		return n * 6, nil
	}))
	must(t, e.Start(t.Context(), "r1", "pair", 6))
	if err := e.Wait(t.Context(), "r1"); !fault.Is(err, fault.Full) || fault.HintOf(err) != "free space" {
		t.Fatalf("error %v, hint %q", err, fault.HintOf(err))
	}
	broken = false
	must(t, e.Start(t.Context(), "r1", "pair", 6))
	must(t, e.Wait(t.Context(), "r1"))
	st, err := e.Status(t.Context(), "r1")
	must(t, err)
	if st.Attempt != 2 || st.Executor != "a" || len(st.Steps) != 2 || lastResult(t, e, "r1") != 42 {
		t.Fatalf("status %+v", st)
	}
	must(t, e.Forget(t.Context(), "r1"))
	if st, err := e.Status(t.Context(), "r1"); err != nil || st.State != None {
		t.Fatalf("forgotten run: %+v, %v", st, err)
	}
}

// Status returns the last attempt of a run with more attempts than one query reads.
func runMayHaveManyAttempts(t *testing.T, url string) {
	const tries = attemptsAtOnce + 1
	ran := 0
	e := openShared(t, url, "a", registerPair(addOne, func(_ context.Context, n int) (int, error) {
		if ran++; ran < tries {
			return 0, fault.New(fault.Full, "not now")
		}
		return n, nil
	}))
	for n := range tries {
		must(t, e.Start(t.Context(), "r1", "pair", 0))
		if err := e.Wait(t.Context(), "r1"); (err == nil) != (n == tries-1) {
			t.Fatalf("attempt %d: %v", n+1, err)
		}
	}
	if st, err := e.Status(t.Context(), "r1"); err != nil || st.Attempt != tries || st.State != Done {
		t.Errorf("status %+v, %v", st, err)
	}
	must(t, e.Forget(t.Context(), "r1"))
	if st, err := e.Status(t.Context(), "r1"); err != nil || st.State != None {
		t.Errorf("forgotten run: %+v, %v", st, err)
	}
}

func runsStayWithTheirExecutor(t *testing.T, url string) {
	b := openShared(t, url, "b", registerPair(mustNotRun(t), mustNotRun(t)))
	began := make(chan struct{}, 1)
	a := openShared(t, url, "a", registerPair(addOne, blockUntilCanceled(began)))
	for _, run := range []string{"r1", "r2"} {
		must(t, a.Start(t.Context(), run, "pair", 0))
		<-began
	}
	must(t, a.Cancel(t.Context(), "r2"))
	must(t, a.Start(t.Context(), "r2", "pair", 0)) // a new attempt, which is queued again
	<-began
	must(t, a.Close())
	for _, run := range []string{"r1", "r2"} {
		err := b.Start(t.Context(), run, "pair", 0)
		if !fault.Is(err, fault.Conflict) || fault.HintOf(err) == "" || !containsAll(err.Error(), run, "at a") {
			t.Errorf("%s started on b: got %v, want Conflict with a hint", run, err)
		}
	}
	a = openShared(t, url, "a", registerPair(mustNotRun(t), addOne))
	for _, run := range []string{"r1", "r2"} {
		must(t, a.Start(t.Context(), run, "pair", 0))
		must(t, a.Wait(t.Context(), run))
		if n := lastResult(t, b, run); n != 2 {
			t.Errorf("%s: result %d, want 2", run, n)
		}
	}
}

func callsReachOtherExecutors(t *testing.T, url string) {
	began := make(chan struct{}, 1)
	a, b := openShared(t, url, "a", registerPair(addOne, blockUntilCanceled(began))), openShared(t, url, "b", registerPair(mustNotRun(t), addOne))
	must(t, a.Start(t.Context(), "r1", "pair", 0))
	<-began
	st, err := b.Status(t.Context(), "r1")
	if err != nil || st.State != Pending || st.Executor != "a" || len(st.Steps) != 1 {
		t.Fatalf("status on b: %+v, %v", st, err)
	}
	waited := make(chan error)
	go func() { waited <- b.Wait(t.Context(), "r1") }()
	must(t, b.Cancel(t.Context(), "r1"))
	if err := a.Wait(t.Context(), "r1"); !fault.Is(err, fault.Canceled) {
		t.Errorf("Wait on a: got %v, want Canceled", err)
	}
	if err := <-waited; !fault.Is(err, fault.Canceled) {
		t.Errorf("Wait on b: got %v, want Canceled", err)
	}
	must(t, b.Start(t.Context(), "r1", "pair", 0))
	must(t, a.Wait(t.Context(), "r1"))
	must(t, a.Forget(t.Context(), "r1"))
	if st, err := b.Status(t.Context(), "r1"); err != nil || st.State != None {
		t.Errorf("forgotten run: %+v, %v", st, err)
	}
}

// An attempt that another executor has taken over cannot record its result. Its step ignores its context, like a
// process that was suspended.
func takenOverAttemptIsFenced(t *testing.T, url string) {
	began, release := make(chan struct{}), make(chan struct{})
	a := openShared(t, url, "a", registerPair(addOne, func(context.Context, int) (int, error) {
		close(began)
		<-release
		return 1000, nil
	}))
	b := openShared(t, url, "b", registerPair(mustNotRun(t), addOne))
	must(t, a.Start(t.Context(), "r1", "pair", 0))
	<-began
	lost := make(chan error)
	go func() { lost <- a.Wait(t.Context(), "r1") }()
	must(t, b.TakeOver(t.Context(), "r1"))
	must(t, b.Wait(t.Context(), "r1"))
	close(release)
	if err := <-lost; !fault.Is(err, fault.Conflict) || !containsAll(err.Error(), "r1", "by b") {
		t.Errorf("Wait on a: got %v, want Conflict that names b", err)
	}
	if got := recordedSteps(t, b, "r1"); got != "first 1" {
		t.Errorf("recorded steps of a's attempt are %q, want %q", got, "first 1")
	}
	if st, err := b.Status(t.Context(), "r1"); err != nil || st.State != Done || st.Attempt != 2 || lastResult(t, b, "r1") != 2 {
		t.Errorf("status %+v, %v", st, err)
	}
}

// An attempt that another executor has canceled and started again cannot record its result either. The record contains
// a cancellation and no takeover, as if the other executor had died during a takeover.
func canceledAttemptIsFenced(t *testing.T, url string) {
	began, release := make(chan struct{}), make(chan struct{})
	a := openShared(t, url, "a", registerPair(addOne, func(context.Context, int) (int, error) {
		close(began)
		<-release
		return 1000, nil
	}))
	b := openShared(t, url, "b", registerPair(mustNotRun(t), addOne))
	must(t, a.Start(t.Context(), "r1", "pair", 0))
	<-began
	must(t, b.Cancel(t.Context(), "r1"))
	lost := make(chan error)
	go func() { lost <- a.Wait(t.Context(), "r1") }() // before or after the next attempt is recorded
	must(t, b.Start(t.Context(), "r1", "pair", 0))
	must(t, b.Wait(t.Context(), "r1"))
	close(release)
	if err := <-lost; !fault.Is(err, fault.Conflict) || !containsAll(err.Error(), "r1", "by b") {
		t.Errorf("Wait on a: got %v, want Conflict that names b", err)
	}
	if got := recordedSteps(t, b, "r1"); got != "first 1" || lastResult(t, b, "r1") != 2 {
		t.Errorf("recorded steps of a's attempt are %q, want %q", got, "first 1")
	}
}

// recordedSteps returns the names and results of an attempt's recorded steps.
func recordedSteps(t *testing.T, e *Engine, attempt string) (steps string) {
	t.Helper()
	rows, err := e.record.pg.Query(t.Context(), `SELECT function_name, coalesce(output, 'null') FROM `+schema+`.operation_outputs
		WHERE workflow_uuid = $1 ORDER BY function_id`, attempt)
	must(t, err)
	defer rows.Close()
	for rows.Next() {
		var name, out string
		must(t, rows.Scan(&name, &out))
		run, _ := splitAttempt(attempt)
		doc, err := e.record.signer.verify(resultUse, run, name, []byte(out))
		must(t, err)
		steps += name + " " + string(doc)
	}
	must(t, rows.Err())
	return steps
}

func oneOfTwoExecutorsBegins(t *testing.T, url string) {
	var ran atomic.Int32
	count := func(_ context.Context, n int) (int, error) { ran.Add(1); return n, nil }
	a, b := openShared(t, url, "a", registerPair(count, addOne)), openShared(t, url, "b", registerPair(count, addOne))
	errs := make(chan error)
	for _, e := range []*Engine{a, b} {
		go func() { errs <- e.Start(t.Context(), "r1", "pair", 1) }()
	}
	for range 2 {
		if err := <-errs; err != nil && !fault.Is(err, fault.Conflict) {
			t.Error(err)
		}
	}
	must(t, errors.Join(a.Wait(t.Context(), "r1"), b.Wait(t.Context(), "r1")))
	if ran.Load() != 1 {
		t.Errorf("the first step ran %d times, want 1", ran.Load())
	}
}

// An engine refuses an input of a run or a result of a step that it did not record. A signed result of another step or
// run is refused, too.
func forgedRecordIsRefused(t *testing.T, url string) {
	refused := errors.New("not yet")
	var got []int
	e := openShared(t, url, "a", func(e *Engine) {
		RegisterStep(e, "first", addOne)
		RegisterStep(e, "second", func(_ context.Context, n int) (int, error) {
			got = append(got, n)
			return n, refused
		})
		Register(e, "pair", func(c *Context, n int) error {
			if err := c.Step("first", n, &n); err != nil {
				return err
			}
			return c.Step("second", n, &n)
		})
	})
	exec := func(sql string, args ...any) {
		t.Helper()
		done, err := e.record.pg.Exec(t.Context(), strings.ReplaceAll(sql, "decamp_flow", schema), args...)
		must(t, err)
		if done.RowsAffected() == 0 {
			t.Fatalf("%s changed nothing", sql)
		}
	}
	begin := func(run string) {
		t.Helper()
		must(t, e.Start(t.Context(), run, "pair", 1))
		if err := e.Wait(t.Context(), run); err == nil || errors.Is(err, ErrRefused) {
			t.Fatalf("first attempt: %v", err)
		}
	}
	const output = `UPDATE decamp_flow.operation_outputs SET output = $2 WHERE workflow_uuid = $1 AND function_name = 'first'`
	for run, forge := range map[string]func(){
		"plain": func() { exec(output, "plain", "41") },
		"changed": func() {
			exec(`UPDATE decamp_flow.operation_outputs SET output = replace(output, 'doc', 'dox') WHERE workflow_uuid = 'changed' AND function_name = 'first'`)
		},
		"moved": func() {
			begin("other")
			exec(`UPDATE decamp_flow.operation_outputs SET output = (SELECT output FROM decamp_flow.operation_outputs WHERE workflow_uuid = 'other' AND function_name = 'first') WHERE workflow_uuid = 'moved' AND function_name = 'first'`)
		},
		"input": func() {
			exec(`UPDATE decamp_flow.workflow_input SET inputs = replace(inputs, '"doc":"1"', '"doc":"9"') WHERE workflow_uuid = 'input' AND inputs LIKE '%"doc":"1"%'`)
		},
	} {
		begin(run)
		forge()
		before := len(got)
		must(t, e.Start(t.Context(), run, "pair", 1))
		if err := e.Wait(t.Context(), run); !errors.Is(err, ErrRefused) || !fault.Is(err, fault.Denied) || fault.HintOf(err) == "" {
			t.Errorf("%s: got %v, want ErrRefused with a hint", run, err)
		}
		if len(got) != before {
			t.Errorf("%s: the second step ran with %d", run, got[before])
		}
		if run != "input" {
			st, err := e.Status(t.Context(), run)
			must(t, err)
			var n int
			if _, err := st.Result("first", &n); !errors.Is(err, ErrRefused) || n != 0 {
				t.Errorf("%s: result %d, %v; want ErrRefused", run, n, err)
			}
		}
		must(t, e.Forget(t.Context(), run)) // a forgotten run can be started again
		begin(run)
	}
}

func executorsNeedAName(t *testing.T, url string) {
	for _, c := range []Config{{URL: url}, {URL: url, Executor: "a/b"}, {URL: "mysql://x", Executor: "a"}, {URL: "postgres://%", Executor: "a"}} {
		c.Dir = t.TempDir()
		if _, err := Open(t.Context(), c); !fault.Is(err, fault.Invalid) {
			t.Errorf("executor %q at %q: got %v, want Invalid", c.Executor, c.URL, err)
		}
	}
	unreachable := Config{Dir: t.TempDir(), URL: "postgres://decamp:secret@127.0.0.1:1/x?sslmode=disable", Executor: "a"}
	unverified := Config{Dir: t.TempDir(), URL: "postgres://decamp:secret@db.invalid/x?sslmode=require", Executor: "a"}
	if _, err := Open(t.Context(), unverified); !fault.Is(err, fault.Denied) || fault.HintOf(err) == "" || containsAll(err.Error(), "secret") {
		t.Errorf("server that is not verified: got %v, want Denied with a hint", err)
	}
	unverified.Insecure = true
	if _, err := Open(t.Context(), unverified); !fault.Is(err, fault.Unreachable) {
		t.Errorf("server that need not be verified: got %v, want Unreachable", err)
	}
	_, err := Open(t.Context(), unreachable)
	if !fault.Is(err, fault.Unreachable) || fault.HintOf(err) == "" || containsAll(err.Error(), "secret") {
		t.Errorf("port without a server: got %v, want Unreachable with a hint", err)
	}
}

// Several executors open an empty database at the same time. The migrations of DBOS fail at random then.
func manyOpenAnEmptyDatabase(t *testing.T, url string) {
	const executors = 4
	errs := make(chan error)
	for n := range executors {
		go func() {
			e, err := Open(t.Context(), Config{Dir: t.TempDir(), URL: url, Executor: fmt.Sprintf("w%d", n)})
			if err == nil {
				err = e.Close()
			}
			errs <- err
		}()
	}
	for range executors {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
}

// The response to a claim was lost with the connection. The engine queues the attempt again, and the run ends.
func lostClaimIsQueuedAgain(t *testing.T, url string) {
	e, err := Open(t.Context(), Config{Dir: t.TempDir(), URL: url, Executor: "a"})
	must(t, err)
	registerPair(addOne, addOne)(e)
	must(t, e.Launch())
	defer e.Close()
	_, err = e.record.pg.Exec(t.Context(), `CREATE FUNCTION swallow() RETURNS trigger LANGUAGE plpgsql AS
		$$ BEGIN NEW.status := 'PENDING'; NEW.executor_id := 'a'; RETURN NEW; END $$;
		CREATE TRIGGER swallow BEFORE INSERT ON `+schema+`.workflow_status FOR EACH ROW EXECUTE FUNCTION swallow()`)
	must(t, err)
	began := time.Now()
	must(t, e.Start(t.Context(), "r1", "pair", 0))
	must(t, e.watcher.checkRecord(t.Context()))
	l := e.attempts.latestOf("r1")
	if l.phase.Load() != phaseWaiting && time.Since(began) < requeueAfter {
		t.Fatal("the claim was not lost")
	}
	l.since.Store(time.Now().Add(-2 * requeueAfter).UnixMilli())
	must(t, e.Wait(t.Context(), "r1"))
}

// An attempt is queued again at the moment when it begins. The engine executes it a second time, and the first
// execution ends before.
func attemptIsExecutedOnceAtATime(t *testing.T, url string) {
	var e *Engine
	var calls, running, most atomic.Int32
	began := make(chan struct{})
	e = openShared(t, url, "a", registerPair(func(ctx context.Context, n int) (int, error) {
		most.Store(max(most.Load(), running.Add(1)))
		defer running.Add(-1)
		if calls.Add(1) > 1 {
			if e.attempts.latestOf("r1").isOver() {
				t.Error("the first execution ended the attempt")
			}
			return n + 1, nil
		}
		close(began)
		<-ctx.Done()   // the second execution ends the first one
		for range 50 { // longer than a second execution needs to reach its step
			if _, err := e.Status(t.Context(), "r1"); err != nil {
				t.Error(err)
			}
		}
		return 0, ctx.Err()
	}, addOne))
	must(t, e.Start(t.Context(), "r1", "pair", 40))
	<-began
	must(t, e.watcher.requeueLate(t.Context(), []*attempt{e.attempts.latestOf("r1")})) // requeued although it has begun
	must(t, e.Wait(t.Context(), "r1"))
	if n := lastResult(t, e, "r1"); n != 42 || calls.Load() != 2 || most.Load() != 1 {
		t.Errorf("result %d; the first step ran %d times, %d concurrently; want 42, 2 and 1", n, calls.Load(), most.Load())
	}
	if st, err := e.Status(t.Context(), "r1"); err != nil || st.Attempt != 1 {
		t.Errorf("status %+v, %v", st, err)
	}
}

// The engine continues the runs of a database of DBOS 1.4.0 (see testdata/README.md). r1 is pending on a, in step 2. r2
// was canceled in step 1, and its attempt has the fence of a takeover.
func runsOfAnEarlierEngineContinue(t *testing.T, url string) {
	dump, err := os.ReadFile("testdata/v0.1.0-dbos-1.4.0/postgres.sql")
	must(t, err)
	c, err := pgx.Connect(t.Context(), url)
	must(t, err)
	_, err = c.Exec(t.Context(), string(dump))
	must(t, errors.Join(err, c.Close(t.Context())))
	w := worker{Notes: t.TempDir(), Executor: "a"}
	e := openShared(t, url, "a", w.register)
	must(t, e.Start(t.Context(), "r1", "count", 100))
	must(t, e.Wait(t.Context(), "r1"))
	if n := lastResult(t, e, "r1"); n != 104 || w.notes(t) != "step2, step3" {
		t.Errorf("r1: result %d after steps %s", n, w.notes(t))
	}
	must(t, e.TakeOver(t.Context(), "r2"))
	must(t, e.Wait(t.Context(), "r2"))
	st, err := e.Status(t.Context(), "r2")
	must(t, err)
	if n := lastResult(t, e, "r2"); n != 104 || st.Attempt != 2 || w.notes(t) != "step1, step2, step3" {
		t.Errorf("r2: result %d of attempt %d after steps %s", n, st.Attempt, w.notes(t))
	}
}
