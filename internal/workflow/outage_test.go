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

// gate is a step that says that it began and ends when it is let.
type gate struct{ began, goOn chan struct{} }

func newGate() gate { return gate{make(chan struct{}, 1), make(chan struct{})} }

func (g gate) step(_ context.Context, n int) (int, error) {
	g.began <- struct{}{}
	<-g.goOn
	return n + 1, nil
}

// TestDatabaseLostAndBack has the database go in the middle of a step. The step's end comes while
// there is nobody to record it.
func TestDatabaseLostAndBack(t *testing.T) {
	t.Parallel()
	s := postgres.Start(t)
	for name, outage := range map[string]struct{ lose, back func(*postgres.Server) }{
		"stopped": {(*postgres.Server).Stop, (*postgres.Server).Restart},
		"killed":  {(*postgres.Server).Kill, (*postgres.Server).Restart},
		"frozen":  {(*postgres.Server).Suspend, (*postgres.Server).Continue},
	} {
		t.Run(name, func(t *testing.T) {
			g := newGate()
			e := join(t, s.NewDatabase(name), "a", pair(g.step, addOne))
			ok(t, e.Start(t.Context(), "r1", "pair", 40))
			<-g.began
			outage.lose(s)
			close(g.goOn)
			short, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			defer cancel()
			if _, err := e.Status(short, "r1"); !fault.Is(err, fault.Canceled) {
				t.Errorf("status without a database: %v", err)
			}
			outage.back(s)
			ok(t, e.Wait(t.Context(), "r1"))
			if n := result(t, e, "r1"); n != 42 {
				t.Errorf("result %d", n)
			}
		})
	}
}

// heard tells once that a log has a line with a word.
type heard struct {
	word string
	once func()
}

func (h *heard) Write(line []byte) (int, error) {
	if strings.Contains(string(line), h.word) {
		h.once()
	}
	return len(line), nil
}

// TestDatabaseThatOnlyAnswers has the database refuse the result of a step, as a standby does, and then accept
// it. The engine's transactions ask for write access, so default_transaction_read_only does not stop them.
func TestDatabaseThatOnlyAnswers(t *testing.T) {
	t.Parallel()
	g, refused := newGate(), make(chan struct{})
	log := slog.New(slog.NewTextHandler(&heard{"refused as a standby", sync.OnceFunc(func() { close(refused) })}, &slog.HandlerOptions{Level: slog.LevelDebug}))
	e := joinLogging(t, shared.NewDatabase(t), "a", log, pair(g.step, addOne))
	ok(t, e.Start(t.Context(), "r1", "pair", 40))
	<-g.began
	exec := func(sql string) {
		t.Helper()
		_, err := e.record.pg.Exec(t.Context(), sql)
		ok(t, err)
	}
	exec(`CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS
		$$ BEGIN RAISE EXCEPTION 'refused as a standby does' USING ERRCODE = 'read_only_sql_transaction'; END $$`)
	exec(`CREATE TRIGGER refuse BEFORE INSERT ON ` + schema + `.operation_outputs FOR EACH ROW EXECUTE FUNCTION refuse()`)
	close(g.goOn)
	<-refused
	exec(`DROP TRIGGER refuse ON ` + schema + `.operation_outputs`)
	ok(t, e.Wait(t.Context(), "r1"))
	if n := result(t, e, "r1"); n != 42 {
		t.Errorf("result %d", n)
	}
}

// Halt waits for the step, and not for its record: who is cut off lets go of the images.
func TestHaltWithoutADatabase(t *testing.T) {
	t.Parallel()
	s := postgres.Start(t)
	began, returned := make(chan struct{}), false
	e := join(t, s.URL(), "a", pair(func(ctx context.Context, _ int) (int, error) {
		close(began)
		<-ctx.Done()
		returned = true
		return 0, ctx.Err()
	}, addOne))
	ok(t, e.Start(t.Context(), "r1", "pair", 40))
	<-began
	s.Suspend()
	if err := e.Halt("r1"); !fault.Is(err, fault.Canceled) || !returned {
		t.Errorf("halted: %v, its step has returned: %v", err, returned)
	}
	s.Continue()
	if err := e.Wait(t.Context(), "r1"); !fault.Is(err, fault.Canceled) {
		t.Errorf("it ended with %v", err)
	}
}

// What Halt could not put on record is pending still when the run is started again: it goes on in
// an attempt of its own, once the step of the halted one has returned.
func TestStartAfterAHaltThatIsNotOnRecord(t *testing.T) {
	t.Parallel()
	g := newGate()
	var calls atomic.Int32
	e := join(t, shared.NewDatabase(t), "a", pair(func(ctx context.Context, n int) (int, error) {
		if calls.Add(1) > 1 {
			return n + 1, nil
		}
		_, err := g.step(ctx, n)
		return 0, errors.Join(err, ctx.Err())
	}, addOne))
	ok(t, e.Start(t.Context(), "r1", "pair", 40))
	<-g.began
	e.attempts.latestOf("r1").stop() // as Halt does where the database is away
	started := make(chan error)
	go func() { started <- e.Start(t.Context(), "r1", "pair", 40) }()
	for st := (Status{}); st.State != Canceled; {
		var err error
		st, err = e.Status(t.Context(), "r1")
		ok(t, err)
		select {
		case err := <-started:
			close(g.goOn)
			t.Fatalf("it goes on in the attempt that was halted: %v", err)
		default:
		}
	}
	close(g.goOn)
	ok(t, <-started)
	ok(t, e.Wait(t.Context(), "r1"))
	if calls.Load() != 2 {
		t.Errorf("the first step ran %d times", calls.Load())
	}
}

// Close does not wait for a database that does not come back.
func TestCloseWithoutADatabase(t *testing.T) {
	t.Parallel()
	s, g := postgres.Start(t), newGate()
	e := join(t, s.URL(), "a", pair(g.step, addOne))
	ok(t, e.Start(t.Context(), "r1", "pair", 40))
	<-g.began
	s.Kill()
	close(g.goOn)
	ok(t, e.Close())
}

// lossy stands between executors and the database and cuts connections in the middle of whatever
// they are at: a question, or its answer.
type lossy struct {
	net.Listener
	to string

	mu    sync.Mutex
	conns map[net.Conn]bool
}

func newLossy(t *testing.T, to string) *lossy {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	ok(t, err)
	p := &lossy{Listener: l, to: to, conns: map[net.Conn]bool{}}
	go p.serve()
	t.Cleanup(func() { l.Close(); p.cut(1) })
	return p
}

func (p *lossy) serve() {
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
		go func() { _, _ = io.Copy(out, in); out.Close() }() // ends with either
		go func() { _, _ = io.Copy(in, out); in.Close() }()
	}
}

// cut ends each connection with some probability.
func (p *lossy) cut(chance float64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		if rand.Float64() < chance {
			c.Close()
			delete(p.conns, c)
		}
	}
}

func TestConnectionsCutAtRandom(t *testing.T) {
	t.Parallel()
	to, err := url.Parse(shared.NewDatabase(t))
	ok(t, err)
	p := newLossy(t, to.Host)
	to.Host = p.Addr().String()
	const steps = 6
	runs, cuts := 15, 60
	if lane.Slow {
		runs, cuts = 40, 150
	}
	var mu sync.Mutex
	ran, executions := map[string]int{}, map[string]int{}
	e := join(t, to.String(), "a", func(e *Engine) {
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
			time.Sleep(20 * time.Millisecond) // of what goes on meanwhile, a part is cut
			p.cut(0.3)
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
		ok(t, err)
		var out string
		if _, err := st.Last(&out); err != nil || st.State != Done || out != fmt.Sprint("r", n)+strings.Repeat("+", steps) {
			t.Errorf("r%d is %s at %q, %v", n, st.State, out, err)
		}
	}
	// A busy machine may execute a run twice: see watcher.requeueLate. Each execution runs a step once at most.
	for key, times := range ran {
		if most := executions[strings.TrimRight(key, "+")]; times > most {
			t.Errorf("step %s ran %d times in %d executions", key, times, most)
		}
	}
	if len(ran) != runs*steps {
		t.Errorf("%d steps ran, want %d", len(ran), runs*steps)
	}
}
