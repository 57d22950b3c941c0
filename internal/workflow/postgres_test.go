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

// shared is the server of tests that do not stop it.
var shared postgres.Shared

// join returns a launched executor of the record at url.
func join(t testing.TB, url, name string, setup func(*Engine)) *Engine {
	t.Helper()
	return joinLogging(t, url, name, nil, setup)
}

func joinLogging(t testing.TB, url, name string, log *slog.Logger, setup func(*Engine)) *Engine {
	t.Helper()
	e, err := Open(t.Context(), Config{Dir: t.TempDir(), URL: url, Executor: name, Log: log, Grace: 20 * time.Second, Keys: testKeys()})
	ok(t, err)
	setup(e)
	ok(t, e.Launch())
	t.Cleanup(func() { e.Close() })
	return e
}

// testKeys are those of the executors of all tests.
var testKeys = sync.OnceValue(func() *fleetkey.Keys {
	k, err := fleetkey.Parse([]byte("decamp-fleet-key-1:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8"))
	if err != nil {
		panic(err)
	}
	return k
})

// never is a step that must not run where it is registered.
func never(t *testing.T) func(context.Context, int) (int, error) {
	return func(context.Context, int) (int, error) {
		t.Error("a step ran at the wrong executor")
		return 0, errors.New("not mine")
	}
}

// result is what the run's last good step returned.
func result(t *testing.T, e *Engine, run string) (n int) {
	t.Helper()
	st, err := e.Status(t.Context(), run)
	ok(t, err)
	if _, err := st.Last(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

func TestSharedRecord(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]func(t *testing.T, url string){
		"attempts": attemptsOnPostgres, "often": runMayBeTriedOften, "affinity": runsStayWithTheirExecutor,
		"across": callsReachOtherExecutors, "takeover": takenOverAttemptIsFenced, "canceled": canceledElsewhereIsFencedToo, "begun_twice": oneOfTwoBegins,
		"forged": forgedRecordIsRefused, "names": executorsNeedAName, "together": manyOpenAnEmptyDatabase, "lost_claim": claimThatGotLostIsSentFor,
		"late_claim": attemptIsExecutedOnceAtATime, "upgrade": recordOfAnEarlierEngineGoesOn,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, shared.NewDatabase(t))
		})
	}
}

func attemptsOnPostgres(t *testing.T, url string) {
	broken := true
	e := join(t, url, "a", pair(addOne, func(_ context.Context, n int) (int, error) {
		if broken {
			return 0, fault.New(fault.Full, "no space").WithHint("free space")
		}
		return n * 6, nil
	}))
	ok(t, e.Start(t.Context(), "r1", "pair", 6))
	if err := e.Wait(t.Context(), "r1"); !fault.Is(err, fault.Full) || fault.HintOf(err) != "free space" {
		t.Fatalf("error %v, hint %q", err, fault.HintOf(err))
	}
	broken = false
	ok(t, e.Start(t.Context(), "r1", "pair", 6))
	ok(t, e.Wait(t.Context(), "r1"))
	st, err := e.Status(t.Context(), "r1")
	ok(t, err)
	if st.Attempt != 2 || st.Executor != "a" || len(st.Steps) != 2 || result(t, e, "r1") != 42 {
		t.Fatalf("status %+v", st)
	}
	ok(t, e.Forget(t.Context(), "r1"))
	if st, err := e.Status(t.Context(), "r1"); err != nil || st.State != None {
		t.Fatalf("forgotten: %+v, %v", st, err)
	}
}

// Attempts are looked up a few at a time.
func runMayBeTriedOften(t *testing.T, url string) {
	const tries = attemptsAtOnce + 1
	ran := 0
	e := join(t, url, "a", pair(addOne, func(_ context.Context, n int) (int, error) {
		if ran++; ran < tries {
			return 0, fault.New(fault.Full, "not now")
		}
		return n, nil
	}))
	for n := range tries {
		ok(t, e.Start(t.Context(), "r1", "pair", 0))
		if err := e.Wait(t.Context(), "r1"); (err == nil) != (n == tries-1) {
			t.Fatalf("attempt %d: %v", n+1, err)
		}
	}
	if st, err := e.Status(t.Context(), "r1"); err != nil || st.Attempt != tries || st.State != Done {
		t.Errorf("status %+v, %v", st, err)
	}
	ok(t, e.Forget(t.Context(), "r1"))
	if st, err := e.Status(t.Context(), "r1"); err != nil || st.State != None {
		t.Errorf("forgotten: %+v, %v", st, err)
	}
}

func runsStayWithTheirExecutor(t *testing.T, url string) {
	b := join(t, url, "b", pair(never(t), never(t)))
	began := make(chan struct{}, 1)
	a := join(t, url, "a", pair(addOne, hang(began)))
	for _, run := range []string{"r1", "r2"} {
		ok(t, a.Start(t.Context(), run, "pair", 0))
		<-began
	}
	ok(t, a.Cancel(t.Context(), "r2"))
	ok(t, a.Start(t.Context(), "r2", "pair", 0)) // forked: it goes through the queue again
	<-began
	ok(t, a.Close())
	for _, run := range []string{"r1", "r2"} {
		err := b.Start(t.Context(), run, "pair", 0)
		if !fault.Is(err, fault.Conflict) || fault.HintOf(err) == "" || !containsAll(err.Error(), run, "at a") {
			t.Errorf("%s started at b: %v", run, err)
		}
	}
	a = join(t, url, "a", pair(never(t), addOne))
	for _, run := range []string{"r1", "r2"} {
		ok(t, a.Start(t.Context(), run, "pair", 0))
		ok(t, a.Wait(t.Context(), run))
		if n := result(t, b, run); n != 2 {
			t.Errorf("%s: %d", run, n)
		}
	}
}

func callsReachOtherExecutors(t *testing.T, url string) {
	began := make(chan struct{}, 1)
	a, b := join(t, url, "a", pair(addOne, hang(began))), join(t, url, "b", pair(never(t), addOne))
	ok(t, a.Start(t.Context(), "r1", "pair", 0))
	<-began
	st, err := b.Status(t.Context(), "r1")
	if err != nil || st.State != Pending || st.Executor != "a" || len(st.Steps) != 1 {
		t.Fatalf("seen from b: %+v, %v", st, err)
	}
	waited := make(chan error)
	go func() { waited <- b.Wait(t.Context(), "r1") }()
	ok(t, b.Cancel(t.Context(), "r1"))
	if err := a.Wait(t.Context(), "r1"); !fault.Is(err, fault.Canceled) {
		t.Errorf("its step ended with %v", err)
	}
	if err := <-waited; !fault.Is(err, fault.Canceled) {
		t.Errorf("b waited for %v", err)
	}
	ok(t, b.Start(t.Context(), "r1", "pair", 0))
	ok(t, a.Wait(t.Context(), "r1"))
	ok(t, a.Forget(t.Context(), "r1"))
	if st, err := b.Status(t.Context(), "r1"); err != nil || st.State != None {
		t.Errorf("forgotten: %+v, %v", st, err)
	}
}

// A's step does not know of contexts, as a process that was stopped does not.
func takenOverAttemptIsFenced(t *testing.T, url string) {
	began, release := make(chan struct{}), make(chan struct{})
	a := join(t, url, "a", pair(addOne, func(context.Context, int) (int, error) {
		close(began)
		<-release
		return 1000, nil
	}))
	b := join(t, url, "b", pair(never(t), addOne))
	ok(t, a.Start(t.Context(), "r1", "pair", 0))
	<-began
	lost := make(chan error)
	go func() { lost <- a.Wait(t.Context(), "r1") }()
	ok(t, b.TakeOver(t.Context(), "r1"))
	ok(t, b.Wait(t.Context(), "r1"))
	close(release)
	if err := <-lost; !fault.Is(err, fault.Conflict) || !containsAll(err.Error(), "r1", "by b") {
		t.Errorf("a's wait ended with %v", err)
	}
	if got := recordedSteps(t, b, "r1"); got != "first 1" {
		t.Errorf("on record of a's attempt: %s", got)
	}
	if st, err := b.Status(t.Context(), "r1"); err != nil || st.State != Done || st.Attempt != 2 || result(t, b, "r1") != 2 {
		t.Errorf("status %+v, %v", st, err)
	}
}

// Whoever takes over dies between the cancellation and the next attempt; the run was canceled, and not
// taken over, on record.
func canceledElsewhereIsFencedToo(t *testing.T, url string) {
	began, release := make(chan struct{}), make(chan struct{})
	a := join(t, url, "a", pair(addOne, func(context.Context, int) (int, error) {
		close(began)
		<-release
		return 1000, nil
	}))
	b := join(t, url, "b", pair(never(t), addOne))
	ok(t, a.Start(t.Context(), "r1", "pair", 0))
	<-began
	ok(t, b.Cancel(t.Context(), "r1"))
	lost := make(chan error)
	go func() { lost <- a.Wait(t.Context(), "r1") }() // before or after the next attempt is on record
	ok(t, b.Start(t.Context(), "r1", "pair", 0))
	ok(t, b.Wait(t.Context(), "r1"))
	close(release)
	if err := <-lost; !fault.Is(err, fault.Conflict) || !containsAll(err.Error(), "r1", "by b") {
		t.Errorf("a's wait ended with %v", err)
	}
	if got := recordedSteps(t, b, "r1"); got != "first 1" || result(t, b, "r1") != 2 {
		t.Errorf("on record of a's attempt: %s", got)
	}
}

// recordedSteps returns what is on record of an attempt.
func recordedSteps(t *testing.T, e *Engine, attempt string) (steps string) {
	t.Helper()
	rows, err := e.record.pg.Query(t.Context(), `SELECT function_name, coalesce(output, 'null') FROM `+schema+`.operation_outputs
		WHERE workflow_uuid = $1 ORDER BY function_id`, attempt)
	ok(t, err)
	defer rows.Close()
	for rows.Next() {
		var name, out string
		ok(t, rows.Scan(&name, &out))
		run, _ := splitAttempt(attempt)
		doc, err := e.record.signer.verify(resultUse, run, name, []byte(out))
		ok(t, err)
		steps += name + " " + string(doc)
	}
	ok(t, rows.Err())
	return steps
}

func oneOfTwoBegins(t *testing.T, url string) {
	var ran atomic.Int32
	count := func(_ context.Context, n int) (int, error) { ran.Add(1); return n, nil }
	a, b := join(t, url, "a", pair(count, addOne)), join(t, url, "b", pair(count, addOne))
	errs := make(chan error)
	for _, e := range []*Engine{a, b} {
		go func() { errs <- e.Start(t.Context(), "r1", "pair", 1) }()
	}
	for range 2 {
		if err := <-errs; err != nil && !fault.Is(err, fault.Conflict) {
			t.Error(err)
		}
	}
	ok(t, errors.Join(a.Wait(t.Context(), "r1"), b.Wait(t.Context(), "r1")))
	if ran.Load() != 1 {
		t.Errorf("the first step ran %d times", ran.Load())
	}
}

// What somebody else wrote into the record is not worked on: neither the input of a run nor the result
// of a step, also not that of another step or run.
func forgedRecordIsRefused(t *testing.T, url string) {
	refused := errors.New("not yet")
	var got []int
	e := join(t, url, "a", func(e *Engine) {
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
		ok(t, err)
		if done.RowsAffected() == 0 {
			t.Fatalf("%s changed nothing", sql)
		}
	}
	begin := func(run string) {
		t.Helper()
		ok(t, e.Start(t.Context(), run, "pair", 1))
		if err := e.Wait(t.Context(), run); err == nil || errors.Is(err, ErrRefused) {
			t.Fatalf("the first attempt: %v", err)
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
		ok(t, e.Start(t.Context(), run, "pair", 1))
		if err := e.Wait(t.Context(), run); !errors.Is(err, ErrRefused) || !fault.Is(err, fault.Denied) || fault.HintOf(err) == "" {
			t.Errorf("%s: %v, want ErrRefused", run, err)
		}
		if len(got) != before {
			t.Errorf("%s: the second step ran with %d", run, got[before])
		}
		if run != "input" {
			st, err := e.Status(t.Context(), run)
			ok(t, err)
			var n int
			if _, err := st.Result("first", &n); !errors.Is(err, ErrRefused) || n != 0 {
				t.Errorf("%s: result %d, %v", run, n, err)
			}
		}
		ok(t, e.Forget(t.Context(), run)) // the way out
		begin(run)
	}
}

func executorsNeedAName(t *testing.T, url string) {
	for _, c := range []Config{{URL: url}, {URL: url, Executor: "a/b"}, {URL: "mysql://x", Executor: "a"}, {URL: "postgres://%", Executor: "a"}} {
		c.Dir = t.TempDir()
		if _, err := Open(t.Context(), c); !fault.Is(err, fault.Invalid) {
			t.Errorf("%q at %q: %v", c.Executor, c.URL, err)
		}
	}
	nobody := Config{Dir: t.TempDir(), URL: "postgres://decamp:secret@127.0.0.1:1/x?sslmode=disable", Executor: "a"}
	stranger := Config{Dir: t.TempDir(), URL: "postgres://decamp:secret@db.invalid/x?sslmode=require", Executor: "a"}
	if _, err := Open(t.Context(), stranger); !fault.Is(err, fault.Denied) || fault.HintOf(err) == "" || containsAll(err.Error(), "secret") {
		t.Errorf("a server that is not verified: %v", err)
	}
	stranger.Insecure = true
	if _, err := Open(t.Context(), stranger); !fault.Is(err, fault.Unreachable) {
		t.Errorf("a server that need not be verified: %v", err)
	}
	_, err := Open(t.Context(), nobody)
	if !fault.Is(err, fault.Unreachable) || fault.HintOf(err) == "" || containsAll(err.Error(), "secret") {
		t.Errorf("nobody listens: %v", err)
	}
}

// The engine's migrations fail at random where two processes begin at once.
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

// The answer to "it is yours" was lost with the connection: the engine asks again, and is told of
// nothing.
func claimThatGotLostIsSentFor(t *testing.T, url string) {
	e, err := Open(t.Context(), Config{Dir: t.TempDir(), URL: url, Executor: "a"})
	ok(t, err)
	pair(addOne, addOne)(e)
	ok(t, e.Launch())
	defer e.Close()
	_, err = e.record.pg.Exec(t.Context(), `CREATE FUNCTION swallow() RETURNS trigger LANGUAGE plpgsql AS
		$$ BEGIN NEW.status := 'PENDING'; NEW.executor_id := 'a'; RETURN NEW; END $$;
		CREATE TRIGGER swallow BEFORE INSERT ON `+schema+`.workflow_status FOR EACH ROW EXECUTE FUNCTION swallow()`)
	ok(t, err)
	began := time.Now()
	ok(t, e.Start(t.Context(), "r1", "pair", 0))
	ok(t, e.watcher.checkRecord(t.Context()))
	l := e.attempts.latestOf("r1")
	if l.phase.Load() != phaseWaiting && time.Since(began) < requeueAfter {
		t.Fatal("it did not get lost")
	}
	l.since.Store(time.Now().Add(-2 * requeueAfter).UnixMilli())
	ok(t, e.Wait(t.Context(), "r1"))
}

// An attempt is queued again at the moment when it begins: the engine executes it a second time.
func attemptIsExecutedOnceAtATime(t *testing.T, url string) {
	var e *Engine
	var calls, atOnce, most atomic.Int32
	began := make(chan struct{})
	e = join(t, url, "a", pair(func(ctx context.Context, n int) (int, error) {
		most.Store(max(most.Load(), atOnce.Add(1)))
		defer atOnce.Add(-1)
		if calls.Add(1) > 1 {
			if e.attempts.latestOf("r1").isOver() {
				t.Error("the first execution ended the attempt")
			}
			return n + 1, nil
		}
		close(began)
		<-ctx.Done()   // the second execution ends the first one
		for range 50 { // longer than a second execution takes to come to its step
			if _, err := e.Status(t.Context(), "r1"); err != nil {
				t.Error(err)
			}
		}
		return 0, ctx.Err()
	}, addOne))
	ok(t, e.Start(t.Context(), "r1", "pair", 40))
	<-began
	ok(t, e.watcher.requeueLate(t.Context(), []*attempt{e.attempts.latestOf("r1")})) // as if underWay had looked before it began
	ok(t, e.Wait(t.Context(), "r1"))
	if n := result(t, e, "r1"); n != 42 || calls.Load() != 2 || most.Load() != 1 {
		t.Errorf("result %d; the first step ran %d times, %d at once", n, calls.Load(), most.Load())
	}
	if st, err := e.Status(t.Context(), "r1"); err != nil || st.Attempt != 1 {
		t.Errorf("status %+v, %v", st, err)
	}
}

// The database was written with DBOS 1.4.0 (see testdata/README.md): r1 is pending at a, in step 2. r2 was
// canceled in step 1, and its attempt has the fence of a takeover.
func recordOfAnEarlierEngineGoesOn(t *testing.T, url string) {
	dump, err := os.ReadFile("testdata/v0.1.0-dbos-1.4.0/postgres.sql")
	ok(t, err)
	c, err := pgx.Connect(t.Context(), url)
	ok(t, err)
	_, err = c.Exec(t.Context(), string(dump))
	ok(t, errors.Join(err, c.Close(t.Context())))
	w := worker{Notes: t.TempDir(), Executor: "a"}
	e := join(t, url, "a", w.register)
	ok(t, e.Start(t.Context(), "r1", "count", 100))
	ok(t, e.Wait(t.Context(), "r1"))
	if n := result(t, e, "r1"); n != 104 || w.did(t) != "step2, step3" {
		t.Errorf("r1: result %d after %s", n, w.did(t))
	}
	ok(t, e.TakeOver(t.Context(), "r2"))
	ok(t, e.Wait(t.Context(), "r2"))
	st, err := e.Status(t.Context(), "r2")
	ok(t, err)
	if n := result(t, e, "r2"); n != 104 || st.Attempt != 2 || w.did(t) != "step1, step2, step3" {
		t.Errorf("r2: result %d of attempt %d after %s", n, st.Attempt, w.did(t))
	}
}
