package journal

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/decamp/decamp/internal/atomicfile"
	"github.com/decamp/decamp/internal/fault"
)

// Rehearsal is a user's request to boot the VM of a warm run from its current images. Like an Command it
// is a file beside the plan. The process that executes the run carries it out once. It is valid until
// it is answered or withdrawn; withdrawing it ends a running rehearsal.
type Rehearsal struct {
	ID       string        `json:"id"`                 // identifies the request; each request has another one
	Expect   string        `json:"expect,omitempty"`   // text that means the guest is up, beside the known signs
	Deadline time.Duration `json:"deadline,omitempty"` // time limit of the guest; 0 for the default
	// requested by the worker of a plan's VM, which repeats the request when it takes over the VM again
	Fleet bool `json:"fleet,omitempty"`
}

// Rehearsed is the result of a Rehearsal.
type Rehearsed struct {
	Rehearsal
	Began   time.Time       `json:"began,omitzero"`    // start of the rehearsal; zero if it did not begin
	Ended   time.Time       `json:"ended"`             // end of the rehearsal
	Report  json.RawMessage `json:"report,omitempty"`  // testboot.Report of the boot; empty if the guest was not booted
	Failure *Failure        `json:"failure,omitempty"` // why there is no result; nil if there is one
}

// Files beside the plan.
const (
	rehearsalFile = "rehearse"       // request
	rehearsedFile = "rehearsed.json" // result of the last rehearsal
)

// AskRehearsal records a request for the process that executes the run. The same request again changes
// nothing. Another request that is pending is fault.Conflict.
func (s *Store) AskRehearsal(id ID, r Rehearsal) error {
	if _, err := s.Plan(id); err != nil {
		return err
	}
	switch had, err := s.Rehearsal(id); {
	case err != nil:
		return err
	case had != nil && had.ID == r.ID:
		return nil
	case had != nil:
		return fault.New(fault.Conflict, "a rehearsal of run %s is already requested", id).
			WithHint("wait for its end; if its requester has ended: rm %s", fault.Quote(s.filePath(id, rehearsalFile)))
	}
	text, err := json.Marshal(r)
	if err != nil {
		return err
	}
	if err := atomicfile.Replace(s.filePath(id, rehearsalFile), append(text, '\n'), private); err != nil {
		return fmt.Errorf("request a rehearsal of run %s: %w", id, s.spaceError(err))
	}
	return s.markCommands()
}

// Rehearsal returns the pending request for a run, or nil.
func (s *Store) Rehearsal(id ID) (*Rehearsal, error) {
	r, err := readJSON[Rehearsal](s.filePath(id, rehearsalFile))
	if err != nil {
		return nil, fmt.Errorf("read rehearsal request of run %s: %w", id, err)
	}
	return r, nil
}

// TakeBack removes the request with that ID, if it is pending.
func (s *Store) TakeBack(id ID, rehearsal string) error {
	r, err := s.Rehearsal(id)
	if err == nil && (r == nil || r.ID != rehearsal) {
		return nil
	}
	if err := os.Remove(s.filePath(id, rehearsalFile)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("withdraw a rehearsal of run %s: %w", id, err)
	}
	return s.markCommands()
}

// AnswerRehearsal durably records the result of a rehearsal, and removes the request.
func (s *Store) AnswerRehearsal(id ID, r Rehearsed) error {
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	if err := atomicfile.Replace(s.filePath(id, rehearsedFile), append(text, '\n'), private); err != nil {
		return fmt.Errorf("record the rehearsal of run %s: %w", id, s.spaceError(err))
	}
	return s.TakeBack(id, r.ID)
}

// Rehearsed returns the result of the last rehearsal of a run, nil if there was none.
func (s *Store) Rehearsed(id ID) (*Rehearsed, error) {
	r, err := readJSON[Rehearsed](s.filePath(id, rehearsedFile))
	if err != nil {
		return nil, fmt.Errorf("read rehearsal result of run %s: %w", id, err)
	}
	return r, nil
}

// readJSON reads a small file. It returns nil if the file does not exist. Invalid content is
// fault.Corrupt.
func readJSON[T any](path string) (*T, error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	v := new(T)
	if err := json.Unmarshal(text, v); err != nil {
		return nil, fault.New(fault.Corrupt, "%s: %w", path, err).WithHint("remove it: rm %s", fault.Quote(path))
	}
	return v, nil
}
