package journal

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync/atomic"

	"github.com/decamp/decamp/internal/atomicfile"
	"github.com/decamp/decamp/internal/fault"
)

// Store stores the folders of runs in a state directory. It is safe for concurrent use.
type Store struct {
	root  string       // folder of all runs
	given atomic.Int64 // orders and removals by this Store
}

// NewStore returns the store in the state directory dir, which need not exist.
func NewStore(dir string) *Store { return &Store{root: filepath.Join(dir, "runs")} }

// filePath returns the path of a file of a run.
func (s *Store) filePath(id ID, name string) string { return filepath.Join(s.root, string(id), name) }

// Folder returns the folder of a run. It may not exist yet.
func (s *Store) Folder(id ID) string { return filepath.Join(s.root, string(id)) }

// Create durably records p, or returns the plan that is recorded with its ID. If that is another
// intent, it returns fault.Conflict as well.
func (s *Store) Create(p Plan) (Plan, error) {
	old, err := s.Plan(p.ID)
	if err == nil {
		return old, old.Same(p)
	}
	if !fault.Is(err, fault.NotFound) {
		return Plan{}, err
	}
	if err := s.writePlan(p); err != nil {
		return Plan{}, fmt.Errorf("record plan %s: %w", p.ID, s.spaceError(err))
	}
	return p, nil
}

// Change replaces the plan with the ID of p by p. The journal stays.
func (s *Store) Change(p Plan) error {
	if err := s.writePlan(p); err != nil {
		return fmt.Errorf("record plan %s: %w", p.ID, s.spaceError(err))
	}
	return nil
}

// spaceError adds the remedy to an error of writing if the file system is full.
func (s *Store) spaceError(err error) error { return fault.Room(filepath.Dir(s.root), err) }

// writePlan durably writes p.
func (s *Store) writePlan(p Plan) error {
	if err := os.MkdirAll(s.filePath(p.ID, ""), 0o700); err != nil {
		return err
	}
	text, err := json.MarshalIndent(p, "", "  ")
	if err != nil {
		return err
	}
	return atomicfile.Replace(s.filePath(p.ID, "plan.json"), append(text, '\n'), private)
}

// private is the mode of all files of a run.
const private = 0o600

// Plan returns the plan of a run. A plan that a newer decamp wrote is fault.Unsupported.
func (s *Store) Plan(id ID) (Plan, error) {
	if !id.isValid() {
		return Plan{}, fault.New(fault.Invalid, "%q is no run id", id).WithHint("list the runs: decamp runs")
	}
	text, err := os.ReadFile(s.filePath(id, "plan.json"))
	if errors.Is(err, fs.ErrNotExist) {
		return Plan{}, fault.New(fault.NotFound, "run %s does not exist", id).WithHint("list the runs: decamp runs")
	}
	if err != nil {
		return Plan{}, fmt.Errorf("read plan %s: %w", id, err)
	}
	p, err := parsePlan(text)
	if err != nil {
		return Plan{}, fmt.Errorf("read plan %s: %w", id, err)
	}
	return p, nil
}

// parsePlan parses a plan. A newer version is fault.Unsupported.
func parsePlan(text []byte) (Plan, error) {
	var p Plan
	if err := json.Unmarshal(text, &p); err != nil {
		return Plan{}, fault.Wrap(fault.Corrupt, err)
	}
	if p.Version != version {
		return Plan{}, fault.New(fault.Unsupported, "its format is version %d, and this decamp supports version %d", p.Version, version).
			WithHint("use the version of decamp that wrote it, or a newer one")
	}
	return p, nil
}

// Run returns the state of a run by its plan and journal.
func (s *Store) Run(id ID) (Run, error) {
	p, err := s.Plan(id)
	if err != nil {
		return Run{}, err
	}
	events, err := s.Events(id)
	return newRun(p, events), err
}

// Events returns the events of the run's journal, oldest first.
func (s *Store) Events(id ID) ([]Event, error) { return ReadJournal(s.filePath(id, "journal.jsonl")) }

// Journal opens the run's journal for appending.
func (s *Store) Journal(id ID) (*Journal, error) {
	j, err := OpenJournal(s.filePath(id, "journal.jsonl"))
	if err != nil {
		return nil, s.spaceError(err)
	}
	j.dir = filepath.Dir(s.root)
	return j, nil
}

// Runs returns all runs in the order of their ids.
func (s *Store) Runs() ([]Run, error) {
	entries, err := os.ReadDir(s.root)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list runs: %w", err)
	}
	var runs []Run
	for _, e := range entries {
		r, err := s.Run(ID(e.Name()))
		if fault.Is(err, fault.NotFound) {
			continue // a crash came between folder and plan
		}
		if err != nil {
			return nil, err
		}
		runs = append(runs, r)
	}
	return runs, nil
}

// Remove deletes the folder of a run.
func (s *Store) Remove(id ID) error {
	if !id.isValid() {
		return fault.New(fault.Invalid, "%q is no run id", id)
	}
	if err := os.RemoveAll(s.filePath(id, "")); err != nil {
		return fmt.Errorf("forget run %s: %w", id, err)
	}
	return s.markCommands()
}
