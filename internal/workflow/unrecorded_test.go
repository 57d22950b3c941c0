package workflow

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/decamp/decamp/internal/fault"
)

// refuse has the record refuse what a trigger is for, as a full disk does, and returns what ends that.
func refuse(t *testing.T, e *Engine, when string) (accept func()) {
	t.Helper()
	exec := func(sql string) {
		t.Helper()
		_, err := e.record.db.ExecContext(t.Context(), sql)
		ok(t, err)
	}
	exec("CREATE TRIGGER full BEFORE " + when + " BEGIN SELECT RAISE(FAIL, 'database or disk is full'); END")
	return func() { t.Helper(); exec("DROP TRIGGER full") }
}

func TestWhatCannotBeRecordedFailsNoRun(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		when           string
		first, second  int // how often they run in all
		attempt, steps int // that are on record after the refusal
	}{
		"a step":  {"INSERT ON operation_outputs WHEN NEW.function_name = 'second'", 1, 2, 1, 1},
		"the end": {"UPDATE ON workflow_status WHEN NEW.status = 'SUCCESS'", 1, 1, 1, 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			firsts, seconds := 0, 0
			e := open(t, t.TempDir(), pair(
				func(context.Context, int) (int, error) { firsts++; return 7, nil },
				func(_ context.Context, n int) (int, error) { seconds++; return n * 6, nil }))
			accept := refuse(t, e, c.when)
			ok(t, e.Start(t.Context(), "r1", "pair", 0))
			if err := e.Wait(t.Context(), "r1"); err == nil || fault.HintOf(err) == "" || !strings.Contains(err.Error(), "database or disk is full") {
				t.Fatalf("waited for %v, hint %q", err, fault.HintOf(err))
			}
			st, err := e.Status(t.Context(), "r1")
			if err != nil || st.State != Pending || st.Attempt != c.attempt || len(st.Steps) != c.steps {
				t.Fatalf("status %+v, %v", st, err)
			}
			accept()
			ok(t, e.Start(t.Context(), "r1", "pair", 0))
			ok(t, e.Wait(t.Context(), "r1"))
			var n int
			st, err = e.Status(t.Context(), "r1")
			ok(t, err)
			if _, err := st.Last(&n); err != nil || n != 42 || firsts != c.first || seconds != c.second {
				t.Errorf("result %d, %v; first ran %d times, second %d", n, err, firsts, seconds)
			}
		})
	}
}

// A message about an earlier attempt does not concern the latest one, whose wait ends after the limit.
func TestOutcomeOfAnEarlierAttempt(t *testing.T) {
	t.Parallel()
	entered, release := make(chan struct{}), make(chan struct{})
	e := open(t, t.TempDir(), pair(
		func(context.Context, int) (int, error) { close(entered); <-release; return 7, nil },
		func(_ context.Context, n int) (int, error) { return n * 6, nil }))
	ok(t, e.Start(t.Context(), "r1", "pair", 0))
	<-entered
	a := e.attempts.latestOf("r1")
	e.endUnrecorded("r1/2", errors.New("of another attempt"))
	if err := a.unrecordedError(); err != nil || e.attempts.latestOf("r1") != a {
		t.Errorf("attempt %d: %v", e.attempts.latestOf("r1").number, err)
	}
	st, err := e.Status(t.Context(), "r1")
	ok(t, err)
	e.recordTimeout = 20 * time.Millisecond
	if err := e.waitRecorded(t.Context(), a, st); !errors.Is(err, errSilent) || !fault.Is(err, fault.Transient) {
		t.Errorf("waited for %v", err)
	}
	close(release)
	<-a.ended
}
