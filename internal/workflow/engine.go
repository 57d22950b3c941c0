package workflow

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"github.com/dbos-inc/dbos-transact-golang/dbos"
	"github.com/decamp/decamp/internal/atomicfile"
	"github.com/decamp/decamp/internal/fault"
)

// An Engine executes runs. Register all flows and steps, then call Launch. Its other methods may be
// called concurrently.
type Engine struct {
	cfg      Config              // configuration with defaults; Dir is absolute
	lock     *os.File            // locked file of the state directory
	record   *record             // records of runs
	attempts *attempts           // attempts in this process
	watcher  *watcher            // reads what other executors did; it runs only with a shared record
	flows    map[string]flowFunc // registered flows by name; not changed after Launch
	steps    map[string]stepFunc // registered steps by name; not changed after Launch

	recordTimeout time.Duration // time limit of waitRecorded

	closing atomic.Bool // set by Close; all log messages of the engine become Debug
}

// Open locks the state directory and opens the state in it. It returns fault.Conflict, with the
// process, if another process has the directory locked.
func Open(ctx context.Context, cfg Config) (_ *Engine, err error) {
	cfg = cfg.withDefaults()
	if err := errors.Join(checkEnvironment(os.Environ()), cfg.check()); err != nil {
		return nil, err
	}
	if cfg.Dir, err = filepath.Abs(cfg.Dir); err != nil { // SQLite interprets the beginning of a relative path as a host
		return nil, fmt.Errorf("find state directory: %w", err)
	}
	if err := os.MkdirAll(cfg.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("make state directory: %w", err)
	}
	l, err := lockFile(filepath.Join(cfg.Dir, lockName))
	if err != nil {
		return nil, fmt.Errorf("open state %s: %w", cfg.Dir, err)
	}
	e := &Engine{
		lock: l, cfg: cfg, flows: map[string]flowFunc{}, steps: map[string]stepFunc{},
		record:        &record{dir: cfg.Dir, executor: cfg.Executor, signer: signer{cfg.Keys}},
		attempts:      &attempts{latest: map[string]*attempt{}},
		recordTimeout: recordTimeout,
	}
	e.watcher = newWatcher(e.record, e.attempts, cfg.Log)
	if cfg.URL == "" {
		e.recordTimeout = localRecordTimeout
	}
	if err := e.openRecord(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("open state %s: %w", cfg.Dir, toFault(e.cfg.Dir, err)), e.releaseState())
	}
	return e, nil
}

// openRecord starts the engine with a separate context: if the caller's ended, the engine would record
// every pending run as canceled. Close ends it properly.
func (e *Engine) openRecord(ctx context.Context) error {
	cfg := dbos.Config{
		AppName:            appName,
		Logger:             slog.New(quietHandler{e.cfg.Log.Handler(), &e.closing, e.endUnrecorded}),
		ApplicationVersion: version,
	}
	if err := e.record.open(ctx, e.cfg, cfg); err != nil {
		return err
	}
	// 0 is "no limit": a run may be killed and continued any number of times.
	dbos.RegisterWorkflow(e.record.root, e.runBody, dbos.WithWorkflowName("run"), dbos.WithMaxRecoveryAttempts(0))
	return nil
}

// checkEnvironment refuses the engine's own environment variables: they override the
// version and executor above, and DBOS__CLOUD makes it dial out.
func checkEnvironment(environ []string) error {
	for _, kv := range environ {
		if name, _, _ := strings.Cut(kv, "="); strings.HasPrefix(name, "DBOS__") {
			return fault.New(fault.Invalid, "environment variable %s would redirect the engine", name).
				WithHint("unset %s", name)
		}
	}
	return nil
}

// Launch begins to execute runs. Runs that were pending when the last process ended continue within
// about a second after they are admitted (Config.Resume, Start).
func (e *Engine) Launch() error {
	if err := e.record.root.Launch(); err != nil {
		return fmt.Errorf("launch engine: %w", err)
	}
	if e.record.isShared() {
		e.watcher.start()
	}
	return nil
}

// Close ends the contexts of running steps, waits for them, and releases the state directory.
// Unfinished runs stay pending. If a step does not end within Config.Grace, Close returns
// fault.Internal and the directory stays locked until the process ends, because that step still writes.
func (e *Engine) Close() error {
	e.closing.Store(true)
	if e.record.isShared() {
		e.record.pg.setPatient(false)
	}
	if err := dbos.Shutdown(e.record.root, e.cfg.Grace); err != nil {
		return fault.New(fault.Internal, "close state %s: %w", e.cfg.Dir, err)
	}
	return e.releaseState()
}

// releaseState closes the record and unlocks the state directory. The engine must have ended.
func (e *Engine) releaseState() error {
	e.watcher.wait()
	return errors.Join(e.record.close(), atomicfile.Unlock(e.lock))
}

// Status returns the record of a run with its steps. An unknown run has State None and no error.
func (e *Engine) Status(ctx context.Context, run string) (Status, error) {
	st, err := e.record.readCurrent(ctx, run)
	if err != nil || st.State == None {
		return st, err
	}
	return st, e.record.readSteps(ctx, &st)
}
