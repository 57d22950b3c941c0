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

// window is the time for which a benchmark measures the CPU usage of an idle engine.
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
			must(b, err)
			registerFlows(e)
			must(b, e.Launch())
			measureIdle(b, e, c.waiting, c.finished)
			must(b, e.Close())
		})
		b.Run("postgres/"+c.name, func(b *testing.B) {
			e := openShared(b, postgres.StartDurable(b).URL(), "a", registerFlows)
			measureIdle(b, e, c.waiting, c.finished)
			must(b, e.Close())
		})
	}
}

// registerFlows registers flow "hang", which waits until it is canceled, and flow "add" of five steps.
func registerFlows(e *Engine) {
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

// measureIdle adds the finished runs, starts the waiting ones, and reports the CPU usage after that.
func measureIdle(b *testing.B, e *Engine, waiting, finished int) {
	if finished > 0 {
		must(b, e.Start(b.Context(), "f", "add", 0))
		must(b, e.Wait(b.Context(), "f"))
		for _, table := range []string{"workflow_status", "workflow_input", "workflow_output", "operation_outputs"} {
			copyRun(b, e, table, finished)
		}
	}
	for n := range waiting {
		run := fmt.Sprint("w", n)
		must(b, e.Start(b.Context(), run, "hang", n))
		go e.Wait(b.Context(), run) // ends with the engine
	}
	time.Sleep(3 * time.Second) // time for all runs to begin
	began, used := time.Now(), cpuTime(b)
	time.Sleep(window)
	b.ReportMetric(100*float64(cpuTime(b)-used)/float64(time.Since(began)), "%core")
	b.ReportMetric(0, "ns/op")
}

func cpuTime(b *testing.B) time.Duration {
	var u syscall.Rusage
	must(b, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// copyRun copies the rows of run f in a table for the given number of runs.
func copyRun(b *testing.B, e *Engine, table string, runs int) {
	db, from := e.record.db, table
	if e.record.isShared() {
		db, from = stdlib.OpenDBFromPool(e.record.pg.Pool), schema+"."+table
	}
	rows, err := db.QueryContext(b.Context(), "SELECT * FROM "+from+" LIMIT 0")
	must(b, err)
	columns, err := rows.Columns()
	must(b, errors.Join(err, rows.Close()))
	copied := slices.Clone(columns)
	copied[slices.Index(columns, "workflow_uuid")] = "'f' || n"
	_, err = db.ExecContext(b.Context(), fmt.Sprintf(`INSERT INTO %[1]s (%[2]s)
		WITH RECURSIVE series(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM series WHERE n < %[4]d)
		SELECT %[3]s FROM %[1]s, series WHERE workflow_uuid = 'f'`,
		from, quoteColumns(columns), strings.Join(copied, ", "), runs))
	must(b, err)
}

func quoteColumns(columns []string) string { return `"` + strings.Join(columns, `", "`) + `"` }
