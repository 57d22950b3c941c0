package journal

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/decamp/decamp/internal/atomicfile"
	"github.com/decamp/decamp/internal/fault"
)

// Order is what an operator wants of a warm run. It is a file
// beside the plan: any process may give it, whichever drives the run obeys, at its next
// start if none does now.
type Order string

const (
	GoOn    Order = ""        // rounds at their interval
	Pause   Order = "pause"   // no further round
	CutOver Order = "cutover" // switch the VM off as soon as the round is done
	GiveUp  Order = "cancel"  // stop at once, and undo
)

// Order returns the last order for a run.
func (s *Store) Order(id ID) (Order, error) {
	text, err := os.ReadFile(s.filePath(id, "order"))
	if errors.Is(err, fs.ErrNotExist) {
		return GoOn, nil
	}
	if err != nil {
		return GoOn, fmt.Errorf("read order for run %s: %w", id, err)
	}
	o := Order(strings.TrimSpace(string(text)))
	if o != GoOn && o != Pause && o != CutOver && o != GiveUp {
		return GoOn, fault.New(fault.Corrupt, "the order for run %s is %q", id, o).WithHint("give it again")
	}
	return o, nil
}

// Give replaces the order for a run, durably.
func (s *Store) Give(id ID, o Order) error {
	if _, err := s.Plan(id); err != nil {
		return err
	}
	if err := atomicfile.Replace(s.filePath(id, "order"), []byte(o+"\n"), private); err != nil {
		return fmt.Errorf("give order to run %s: %w", id, s.spaceError(err))
	}
	return s.markOrders()
}

// Given counts the orders that came by this Store, and the runs that it removed.
func (s *Store) Given() int64 { return s.given.Load() }

// OrderMark changes after each command of any process, and after the removal of a run. It need not be
// durable: no process that compares it survives a power cut.
func (s *Store) OrderMark() string {
	text, err := os.ReadFile(s.markPath())
	if err != nil {
		return "" // same value as before the first command
	}
	return string(text)
}

func (s *Store) markPath() string { return filepath.Join(filepath.Dir(s.root), "orders") }

// markOrders runs after the change that it marks. Without a state directory it does nothing.
func (s *Store) markOrders() error {
	s.given.Add(1)
	mark := strconv.FormatUint(rand.Uint64(), 16)
	if err := os.WriteFile(s.markPath(), []byte(mark+"\n"), private); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("tell of an order: %w", s.spaceError(err))
	}
	return nil
}
