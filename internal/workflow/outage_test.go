package workflow

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/lab/postgres"
	"github.com/decamp/decamp/test/lane"
)

// A gate is a step that sends to began, and ends when release is closed.
type gate struct{ began, release chan struct{} }

func newGate() gate { return gate{make(chan struct{}, 1), make(chan struct{})} }

func (g gate) step(_ context.Context, n int) (int, error) {
	g.began <- struct{}{}
	<-g.release
	return n + 1, nil
}

// The database fails in the middle of a step, and the step ends while the database is down. The result is recorded when
// the database is up again.
func TestStepResultIsRecordedAfterDatabaseOutage(t *testing.T) {
	t.Parallel()
	s := postgres.Start(t)
	for name, outage := range map[string]struct{ begin, end func(*postgres.Server) }{
		"stopped": {(*postgres.Server).Stop, (*postgres.Server).Restart},
		"killed":  {(*postgres.Server).Kill, (*postgres.Server).Restart},
		"frozen":  {(*postgres.Server).Suspend, (*postgres.Server).Continue},
	} {
		t.Run(name, func(t *testing.T) {
			g := newGate()
			e := openShared(t, s.NewDatabase(name), "a", registerPair(g.step, addOne))
			must(t, e.Start(t.Context(), "r1", "pair", 40))
			<-g.began
			outage.begin(s)
			close(g.release)
			short, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			defer cancel()
			if _, err := e.Status(short, "r1"); !fault.Is(err, fault.Canceled) {
				t.Errorf("Status without a database: got %v, want Canceled", err)
			}
			outage.end(s)
			must(t, e.Wait(t.Context(), "r1"))
			if n := lastResult(t, e, "r1"); n != 42 {
				t.Errorf("result %d, want 42", n)
			}
		})
	}
}

// A logWatcher is a log that calls found for each line with the text.
type logWatcher struct {
	text  string
	found func()
}

func (h *logWatcher) Write(line []byte) (int, error) {
	if strings.Contains(string(line), h.text) {
		h.found()
	}
	return len(line), nil
}

// The database refuses the result of a step, as a standby does, and accepts it later. A trigger refuses it, because the
// engine's transactions request write access in spite of default_transaction_read_only.
func TestReadOnlyDatabaseIsRetried(t *testing.T) {
	t.Parallel()
	g, refused := newGate(), make(chan struct{})
	log := slog.New(slog.NewTextHandler(&logWatcher{"refused as a standby", sync.OnceFunc(func() { close(refused) })}, &slog.HandlerOptions{Level: slog.LevelDebug}))
	e := openSharedWithLog(t, shared.NewDatabase(t), "a", log, registerPair(g.step, addOne))
	must(t, e.Start(t.Context(), "r1", "pair", 40))
	<-g.began
	exec := func(sql string) {
		t.Helper()
		_, err := e.record.pg.Exec(t.Context(), sql)
		must(t, err)
	}
	exec(`CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS
		$$ BEGIN RAISE EXCEPTION 'refused as a standby does' USING ERRCODE = 'read_only_sql_transaction'; END $$`)
	exec(`CREATE TRIGGER refuse BEFORE INSERT ON ` + schema + `.operation_outputs FOR EACH ROW EXECUTE FUNCTION refuse()`)
	close(g.release)
	<-refused
	exec(`DROP TRIGGER refuse ON ` + schema + `.operation_outputs`)
	must(t, e.Wait(t.Context(), "r1"))
	if n := lastResult(t, e, "r1"); n != 42 {
		t.Errorf("result %d, want 42", n)
	}
}

// Halt waits for the end of the step, but not until it is recorded. A disconnected worker thus releases its images.
func TestHaltDuringDatabaseOutage(t *testing.T) {
	t.Parallel()
	s := postgres.Start(t)
	began, returned := make(chan struct{}), false
	e := openShared(t, s.URL(), "a", registerPair(func(ctx context.Context, _ int) (int, error) {
		close(began)
		<-ctx.Done()
		returned = true
		return 0, ctx.Err()
	}, addOne))
	must(t, e.Start(t.Context(), "r1", "pair", 40))
	<-began
	s.Suspend()
	if err := e.Halt("r1"); !fault.Is(err, fault.Canceled) || !returned {
		t.Errorf("Halt: got %v, want Canceled; the step has returned: %v, want true", err, returned)
	}
	s.Continue()
	if err := e.Wait(t.Context(), "r1"); !fault.Is(err, fault.Canceled) {
		t.Errorf("Wait: got %v, want Canceled", err)
	}
}

// A halted run is still pending if Halt could not record its end. When it is started again, it continues in a new
// attempt after the step of the halted attempt has returned.
func TestStartAfterUnrecordedHalt(t *testing.T) {
	t.Parallel()
	g := newGate()
	var calls atomic.Int32
	e := openShared(t, shared.NewDatabase(t), "a", registerPair(func(ctx context.Context, n int) (int, error) {
		if calls.Add(1) > 1 {
			return n + 1, nil
		}
		_, err := g.step(ctx, n)
		return 0, errors.Join(err, ctx.Err())
	}, addOne))
	must(t, e.Start(t.Context(), "r1", "pair", 40))
	<-g.began
	e.attempts.latestOf("r1").stop() // the effect of Halt without the database
	started := make(chan error)
	go func() { started <- e.Start(t.Context(), "r1", "pair", 40) }()
	for st := (Status{}); st.State != Canceled; {
		var err error
		st, err = e.Status(t.Context(), "r1")
		must(t, err)
		select {
		case err := <-started:
			close(g.release)
			t.Fatalf("the run continues in the halted attempt: %v", err)
		default:
		}
	}
	close(g.release)
	must(t, <-started)
	must(t, e.Wait(t.Context(), "r1"))
	if calls.Load() != 2 {
		t.Errorf("the first step ran %d times, want 2", calls.Load())
	}
}

// Close does not wait until the database is up again.
func TestCloseWithoutADatabase(t *testing.T) {
	t.Parallel()
	s, g := postgres.Start(t), newGate()
	e := openShared(t, s.URL(), "a", registerPair(g.step, addOne))
	must(t, e.Start(t.Context(), "r1", "pair", 40))
	<-g.began
	s.Kill()
	close(g.release)
	must(t, e.Close())
}

// A flakyProxy is a proxy between executors and the database that closes connections in the middle of requests and
// responses.
type flakyProxy struct {
	net.Listener
	to string

	mu    sync.Mutex
	conns map[net.Conn]bool
}

func newFlakyProxy(t *testing.T, to string) *flakyProxy {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	p := &flakyProxy{Listener: l, to: to, conns: map[net.Conn]bool{}}
	go p.serve()
	t.Cleanup(func() { l.Close(); p.closeConns(1) })
	return p
}

func (p *flakyProxy) serve() {
	for {
		in, err := p.Accept()
		if err != nil {
			return
		}
		out, err := net.Dial("tcp", p.to)
		if err != nil {
			in.Close()
			continue
		}
		p.mu.Lock()
		p.conns[in] = true
		p.mu.Unlock()
		go func() { _, _ = io.Copy(out, in); out.Close() }() // ends when either connection is closed
		go func() { _, _ = io.Copy(in, out); in.Close() }()
	}
}

// closeConns closes each connection with the given probability.
func (p *flakyProxy) closeConns(probability float64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		if rand.Float64() < probability {
			c.Close()
			delete(p.conns, c)
		}
	}
}

func TestConnectionsCutAtRandom(t *testing.T) {
	t.Parallel()
	to, err := url.Parse(shared.NewDatabase(t))
	must(t, err)
	p := newFlakyProxy(t, to.Host)
	to.Host = p.Addr().String()
	const steps = 6
	runs, cuts := 15, 60
	if lane.Slow {
		runs, cuts = 40, 150
	}
	var mu sync.Mutex
	ran, executions := map[string]int{}, map[string]int{}
	e := openShared(t, to.String(), "a", func(e *Engine) {
		RegisterStep(e, "add", func(_ context.Context, key string) (string, error) {
			mu.Lock()
			defer mu.Unlock()
			ran[key]++
			return key + "+", nil
		})
		Register(e, "adds", func(c *Context, key string) (err error) {
			mu.Lock()
			executions[key]++
			mu.Unlock()
			for range steps {
				if err = c.Step("add", key, &key); err != nil {
					break
				}
			}
			return err
		})
	})
	var cutting sync.WaitGroup
	cutting.Go(func() {
		for range cuts {
			time.Sleep(20 * time.Millisecond) // time for new requests
			p.closeConns(0.3)
		}
	})
	errs := make(chan error)
	for n := range runs {
		go func() {
			run := fmt.Sprint("r", n)
			err := e.Start(t.Context(), run, "adds", run)
			if err == nil {
				err = e.Wait(t.Context(), run)
			}
			errs <- err
		}()
	}
	for range runs {
		if err := <-errs; err != nil {
			t.Errorf("%v; hint: %s", err, fault.HintOf(err))
		}
	}
	cutting.Wait()
	for n := range runs {
		st, err := e.Status(t.Context(), fmt.Sprint("r", n))
		must(t, err)
		var out string
		if _, err := st.Last(&out); err != nil || st.State != Done || out != fmt.Sprint("r", n)+strings.Repeat("+", steps) {
			t.Errorf("r%d is %s with result %q, %v", n, st.State, out, err)
		}
	}
	// A busy machine may execute a run twice (see watcher.requeueLate). Each execution runs a step at most once.
	for key, times := range ran {
		if most := executions[strings.TrimRight(key, "+")]; times > most {
			t.Errorf("step %s ran %d times in %d executions", key, times, most)
		}
	}
	if len(ran) != runs*steps {
		t.Errorf("%d steps ran, want %d", len(ran), runs*steps)
	}
}
