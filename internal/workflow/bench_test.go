package workflow

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/decamp/decamp/internal/lab/postgres"
	"github.com/jackc/pgx/v5/stdlib"
)

// window is how long a benchmark watches what an engine costs that has nothing to do.
const window = 10 * time.Second

func BenchmarkIdle(b *testing.B) {
	for _, c := range []struct {
		name              string
		waiting, finished int
	}{
		{"empty", 0, 0},
		{"1000-in-a-step", 1000, 0},
		{"10000-finished", 0, 10_000},
	} {
		b.Run("sqlite/"+c.name, func(b *testing.B) {
			e, err := Open(b.Context(), Config{Dir: b.TempDir()})
			ok(b, err)
			waiters(e)
			ok(b, e.Launch())
			idle(b, e, c.waiting, c.finished)
			ok(b, e.Close())
		})
		b.Run("postgres/"+c.name, func(b *testing.B) {
			e := join(b, postgres.StartDurable(b).URL(), "a", waiters)
			idle(b, e, c.waiting, c.finished)
			ok(b, e.Close())
		})
	}
}

func waiters(e *Engine) {
	RegisterStep(e, "hang", func(ctx context.Context, _ int) (int, error) { <-ctx.Done(); return 0, ctx.Err() })
	RegisterStep(e, "add", addOne)
	Register(e, "hang", func(c *Context, n int) error { return c.Step("hang", n, nil) })
	Register(e, "add", func(c *Context, n int) (err error) {
		for range 5 {
			if err = c.Step("add", n, &n); err != nil {
				break
			}
		}
		return err
	})
}

// idle starts the runs, waits for all, and reports how much of a core the process takes then.
func idle(b *testing.B, e *Engine, waiting, finished int) {
	if finished > 0 {
		ok(b, e.Start(b.Context(), "f", "add", 0))
		ok(b, e.Wait(b.Context(), "f"))
		for _, table := range []string{"workflow_status", "workflow_input", "workflow_output", "operation_outputs"} {
			multiply(b, e, table, finished)
		}
	}
	for n := range waiting {
		run := fmt.Sprint("w", n)
		ok(b, e.Start(b.Context(), run, "hang", n))
		go e.Wait(b.Context(), run) // it ends with the engine
	}
	time.Sleep(3 * time.Second) // until all have begun
	began, used := time.Now(), cpu(b)
	time.Sleep(window)
	b.ReportMetric(100*float64(cpu(b)-used)/float64(time.Since(began)), "%core")
	b.ReportMetric(0, "ns/op")
}

func cpu(b *testing.B) time.Duration {
	var u syscall.Rusage
	ok(b, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// multiply copies what a table has of run f, for as many runs.
func multiply(b *testing.B, e *Engine, table string, runs int) {
	db, from := e.record.db, table
	if e.record.isShared() {
		db, from = stdlib.OpenDBFromPool(e.record.pg.Pool), schema+"."+table
	}
	rows, err := db.QueryContext(b.Context(), "SELECT * FROM "+from+" LIMIT 0")
	ok(b, err)
	columns, err := rows.Columns()
	ok(b, errors.Join(err, rows.Close()))
	copied := slices.Clone(columns)
	copied[slices.Index(columns, "workflow_uuid")] = "'f' || n"
	_, err = db.ExecContext(b.Context(), fmt.Sprintf(`INSERT INTO %[1]s (%[2]s)
		WITH RECURSIVE series(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM series WHERE n < %[4]d)
		SELECT %[3]s FROM %[1]s, series WHERE workflow_uuid = 'f'`,
		from, quoted(columns), strings.Join(copied, ", "), runs))
	ok(b, err)
}

func quoted(columns []string) string { return `"` + strings.Join(columns, `", "`) + `"` }
