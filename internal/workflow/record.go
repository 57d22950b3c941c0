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

// record is the persistent state of runs: a file in the state directory, or a database that several
// executors share. It is safe for concurrent use.
type record struct {
	dir      string // the state directory
	executor string // name of this executor, if the record is shared
	signer   signer // signs and verifies the documents of a shared record

	db    *sql.DB      // the file; nil if the record is shared
	pg    *database    // the shared database; nil if the record is a file
	queue dbos.Queue   // queue of this executor in the shared database
	root  dbos.Context // context of the engine; it ends when the engine is closed
}

// open opens the shared record if the configuration has a URL, else the state file.
func (r *record) open(ctx context.Context, at Config, cfg dbos.Config) error {
	if at.URL != "" {
		return r.openShared(ctx, at, cfg)
	}
	return r.openLocal(ctx, cfg)
}

// openLocal opens the state file and starts the engine on it. A damaged file is fault.Corrupt.
func (r *record) openLocal(ctx context.Context, cfg dbos.Config) (err error) {
	if r.db, err = openSQLite(filepath.Join(r.dir, localName)); err != nil {
		return err
	}
	cfg.SQLiteSystemDB, cfg.ExecutorID = r.db, localExecutor
	if err = checkFormat(ctx, r.db); fault.Is(err, fault.Unsupported) {
		return err
	}
	if err == nil {
		err = r.startEngine(ctx, cfg)
	}
	if err == nil {
		err = writeFormat(ctx, r.db)
	}
	if err == nil {
		return nil
	}
	if damage := r.checkIntegrity(ctx); damage != nil { // the engine's error has only the text of SQLite's
		return damage
	}
	return err
}

// checkIntegrity runs SQLite's integrity check on the state file. Damage is fault.Corrupt; toFault
// classifies other errors.
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

// startEngine creates the engine's context. The end of ctx does not end it: see Engine.openRecord.
func (r *record) startEngine(ctx context.Context, cfg dbos.Config) (err error) {
	if r.root, err = dbos.NewContext(context.WithoutCancel(ctx), cfg); err != nil {
		return fmt.Errorf("start engine: %w", err)
	}
	return nil
}

// close closes the file or the pool. The engine must have ended.
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

// attemptsAtOnce is how many attempts one query looks up. They are requested by id: a search by prefix
// would read the records of all runs.
const attemptsAtOnce = 8

// readCurrent returns the record of a run's last attempt, without its steps. An unknown run has State
// None.
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

// listAttempts returns the records that filters select, without inputs. It returns fault.Canceled if
// ctx has ended: the engine's own error does not always show that.
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

// applyLatest sets st to the latest of the attempts, if it is later than st.Attempt.
func (r *record) applyLatest(st *Status, attempts []dbos.WorkflowStatus) {
	for _, w := range attempts {
		if run, n := splitAttempt(w.ID); run == st.Run && n > st.Attempt {
			st.Attempt, st.State, st.Started, st.Executor = n, stateOf(w.Status), w.CreatedAt, r.ownerOf(w)
			st.Err = outcomeOf(st.State, w.Error)
		}
	}
}

// oldFence is a step that earlier versions recorded in an attempt that they took over. It is ignored.
const oldFence = "decamp.fence"

// readSteps adds the recorded steps to st, and sets the step at which a next attempt begins.
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

// attemptID returns the engine's id of an attempt: the run for the first one, "run/2" for the second.
func attemptID(run string, attempt int) string {
	if attempt == 1 {
		return run
	}
	return fmt.Sprintf("%s/%d", run, attempt)
}

// splitAttempt is the inverse of attemptID.
func splitAttempt(id string) (run string, attempt int) {
	run, number, ok := strings.Cut(id, "/")
	if n, err := strconv.Atoi(number); ok && err == nil {
		return run, n
	}
	return run, 1
}
