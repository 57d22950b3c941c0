package workflow

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/decamp/decamp/internal/fault"
)

// refuseWrites makes the record refuse the writes of a trigger's event, as a full disk does. It returns a function that
// ends that.
func refuseWrites(t *testing.T, e *Engine, when string) (accept func()) {
	t.Helper()
	exec := func(sql string) {
		t.Helper()
		_, err := e.record.db.ExecContext(t.Context(), sql)
		must(t, err)
	}
	exec("CREATE TRIGGER full BEFORE " + when + " BEGIN SELECT RAISE(FAIL, 'database or disk is full'); END")
	return func() { t.Helper(); exec("DROP TRIGGER full") }
}

func TestUnrecordedResultKeepsRunPending(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		when           string // event of the trigger
		first, second  int    // total executions of the two steps
		attempt, steps int    // recorded attempt and steps after the refusal
	}{
		"a step":  {"INSERT ON operation_outputs WHEN NEW.function_name = 'second'", 1, 2, 1, 1},
		"the end": {"UPDATE ON workflow_status WHEN NEW.status = 'SUCCESS'", 1, 1, 1, 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			firsts, seconds := 0, 0
			e := openEngine(t, t.TempDir(), registerPair(
				func(context.Context, int) (int, error) { firsts++; return 7, nil },
				func(_ context.Context, n int) (int, error) { seconds++; return n * 6, nil }))
			accept := refuseWrites(t, e, c.when)
			must(t, e.Start(t.Context(), "r1", "pair", 0))
			if err := e.Wait(t.Context(), "r1"); err == nil || fault.HintOf(err) == "" || !strings.Contains(err.Error(), "database or disk is full") {
				t.Fatalf("Wait: got %v with hint %q, want the full disk with a hint", err, fault.HintOf(err))
			}
			st, err := e.Status(t.Context(), "r1")
			if err != nil || st.State != Pending || st.Attempt != c.attempt || len(st.Steps) != c.steps {
				t.Fatalf("status %+v, %v", st, err)
			}
			accept()
			must(t, e.Start(t.Context(), "r1", "pair", 0))
			must(t, e.Wait(t.Context(), "r1"))
			var n int
			st, err = e.Status(t.Context(), "r1")
			must(t, err)
			if _, err := st.Last(&n); err != nil || n != 42 || firsts != c.first || seconds != c.second {
				t.Errorf("result %d, %v; first ran %d times, second %d", n, err, firsts, seconds)
			}
		})
	}
}

// The outcome of another attempt does not end the wait for the latest one, which ends after recordTimeout.
func TestOutcomeOfAnEarlierAttempt(t *testing.T) {
	t.Parallel()
	entered, release := make(chan struct{}), make(chan struct{})
	e := openEngine(t, t.TempDir(), registerPair(
		func(context.Context, int) (int, error) { close(entered); <-release; return 7, nil },
		func(_ context.Context, n int) (int, error) { return n * 6, nil }))
	must(t, e.Start(t.Context(), "r1", "pair", 0))
	<-entered
	a := e.attempts.latestOf("r1")
	e.endUnrecorded("r1/2", errors.New("of another attempt"))
	if err := a.unrecordedError(); err != nil || e.attempts.latestOf("r1") != a {
		t.Errorf("attempt %d: %v", e.attempts.latestOf("r1").number, err)
	}
	st, err := e.Status(t.Context(), "r1")
	must(t, err)
	e.recordTimeout = 20 * time.Millisecond
	if err := e.waitRecorded(t.Context(), a, st); !errors.Is(err, errSilent) || !fault.Is(err, fault.Transient) {
		t.Errorf("waitRecorded: got %v, want errSilent", err)
	}
	close(release)
	<-a.ended
}
