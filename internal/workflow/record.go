package workflow

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/dbos-inc/dbos-transact-golang/dbos"
	"github.com/decamp/decamp/internal/fault"
)

// record is what the engine remembers of runs: a file in the state directory, or a database that
// several executors share. It is safe for concurrent use.
type record struct {
	dir      string // the state directory
	executor string // name of this executor, if the record is shared
	signer   signer

	db    *sql.DB    // the file; nil if the record is shared
	pg    *database  // the shared database; nil if the record is a file
	queue dbos.Queue // queue of this executor in the shared database
	root  dbos.Context
}

func (r *record) open(ctx context.Context, at Config, cfg dbos.Config) error {
	if at.URL != "" {
		return r.openShared(ctx, at, cfg)
	}
	return r.openLocal(ctx, cfg)
}

func (r *record) openLocal(ctx context.Context, cfg dbos.Config) (err error) {
	if r.db, err = openSQLite(filepath.Join(r.dir, localName)); err != nil {
		return err
	}
	cfg.SQLiteSystemDB, cfg.ExecutorID = r.db, localExecutor
	err = r.startEngine(ctx, cfg)
	if err == nil {
		return nil
	}
	if damage := r.checkIntegrity(ctx); damage != nil { // the engine's error has only the text of SQLite's
		return damage
	}
	return err
}

// checkIntegrity runs SQLite's integrity check of the state file. Damage is fault.Corrupt; other errors are
// classified by told.
func (r *record) checkIntegrity(ctx context.Context) error {
	var found string
	if err := r.db.QueryRowContext(ctx, `PRAGMA quick_check(1)`).Scan(&found); err != nil {
		return err
	}
	if found != "ok" {
		return newCorruptError(r.dir, fmt.Errorf("SQLite's check of it: %s", strings.Join(strings.Fields(found), " ")))
	}
	return nil
}

func (r *record) startEngine(ctx context.Context, cfg dbos.Config) (err error) {
	if r.root, err = dbos.NewContext(context.WithoutCancel(ctx), cfg); err != nil {
		return fmt.Errorf("start engine: %w", err)
	}
	return nil
}

func (r *record) close() error {
	var err error
	if r.db != nil {
		err = r.db.Close()
	}
	if r.pg != nil {
		r.pg.Close()
	}
	return err
}

// cancelAttempt records that an attempt is canceled.
func (r *record) cancelAttempt(ctx context.Context, run string, attempt int) error {
	return dbos.CancelWorkflow(r.clientFor(ctx), attemptID(run, attempt))
}

// attemptsAtOnce are looked up together. They are asked for by name: what begins alike is only
// found by reading the record of every run there ever was.
const attemptsAtOnce = 8

// readCurrent reads the record of a run's last attempt, without its steps.
func (r *record) readCurrent(ctx context.Context, run string) (Status, error) {
	st := Status{Run: run, State: None}
	for full := true; full; full = st.Attempt > 0 && st.Attempt%attemptsAtOnce == 0 {
		var ids []string
		for n := range attemptsAtOnce {
			ids = append(ids, attemptID(run, st.Attempt+n+1))
		}
		found, err := r.listAttempts(ctx, dbos.WithFilterWorkflowIDs(ids...), dbos.WithFilterLoadOutput(true))
		if err != nil {
			return st, fmt.Errorf("read record of run %s: %w", run, toFault(r.dir, err))
		}
		if len(found) == 0 {
			break
		}
		r.applyLatest(&st, found)
	}
	return st, nil
}

func (r *record) listAttempts(ctx context.Context, filters ...dbos.ListWorkflowsOption) ([]dbos.WorkflowStatus, error) {
	if err := ctx.Err(); err != nil {
		return nil, fault.Wrap(fault.Canceled, err)
	}
	found, err := dbos.ListWorkflows(r.clientFor(ctx), append(filters, dbos.WithFilterLoadInput(false))...)
	if err != nil && ctx.Err() != nil {
		return nil, fault.Wrap(fault.Canceled, err)
	}
	return found, err
}

// applyLatest takes the last of the attempts for the run's current one.
func (r *record) applyLatest(st *Status, attempts []dbos.WorkflowStatus) {
	for _, w := range attempts {
		if run, n := splitAttempt(w.ID); run == st.Run && n > st.Attempt {
			st.Attempt, st.State, st.Started, st.Executor = n, stateOf(w.Status), w.CreatedAt, r.ownerOf(w)
			st.Err = outcomeOf(st.State, w.Error)
		}
	}
}

// oldFence is a step that earlier versions recorded in an attempt that they took over.
const oldFence = "decamp.fence"

// readSteps fills in the steps.
func (r *record) readSteps(ctx context.Context, st *Status) error {
	infos, err := dbos.GetWorkflowSteps(r.clientFor(ctx), attemptID(st.Run, st.Attempt), dbos.WithStepsLoadOutput(true))
	if err != nil {
		return fmt.Errorf("read steps of run %s: %w", st.Run, toFault(r.dir, err))
	}
	bad := false
	for _, s := range infos {
		if s.StepName == oldFence {
			continue
		}
		bad = bad || s.Error != nil
		if !bad {
			st.next = uint(s.StepID) + 1
		}
		out, err := json.Marshal(s.Output)
		if err != nil {
			return fmt.Errorf("read step %s of run %s: %w", s.StepName, st.Run, err)
		}
		step := StepRecord{Name: s.StepName, Started: s.StartedAt, Ended: s.CompletedAt, Err: fromStored(s.Error)}
		if step.Err == nil {
			step.out, step.refused = r.signer.verify(resultUse, st.Run, step.Name, out)
		}
		st.Steps = append(st.Steps, step)
	}
	return nil
}

func attemptID(run string, attempt int) string {
	if attempt == 1 {
		return run
	}
	return fmt.Sprintf("%s/%d", run, attempt)
}

func splitAttempt(id string) (run string, attempt int) {
	run, number, ok := strings.Cut(id, "/")
	if n, err := strconv.Atoi(number); ok && err == nil {
		return run, n
	}
	return run, 1
}
