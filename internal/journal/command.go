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

// Command is the user's command to a warm run. It is a file beside the plan. Any process may write it;
// the process that executes the run obeys it now or when it starts.
type Command string

const (
	GoOn    Command = ""        // rounds in their interval
	Pause   Command = "pause"   // no further round
	CutOver Command = "cutover" // power the VM off when the current round is complete
	GiveUp  Command = "cancel"  // stop at once and revert
)

// Command returns the current order for a run.
func (s *Store) Command(id ID) (Command, error) {
	text, err := os.ReadFile(s.filePath(id, "command"))
	if errors.Is(err, fs.ErrNotExist) {
		return GoOn, nil
	}
	if err != nil {
		return GoOn, fmt.Errorf("read command for run %s: %w", id, err)
	}
	o := Command(strings.TrimSpace(string(text)))
	if o != GoOn && o != Pause && o != CutOver && o != GiveUp {
		return GoOn, fault.New(fault.Corrupt, "the command for run %s is %q", id, o).WithHint("send the command again: decamp pause, resume, cutover or cancel")
	}
	return o, nil
}

// SendCommand durably replaces the order for a run.
func (s *Store) SendCommand(id ID, o Command) error {
	if _, err := s.Plan(id); err != nil {
		return err
	}
	if err := atomicfile.Replace(s.filePath(id, "command"), []byte(o+"\n"), private); err != nil {
		return fmt.Errorf("send command to run %s: %w", id, s.spaceError(err))
	}
	return s.markCommands()
}

// CommandCount returns the number of orders and removals by this Store.
func (s *Store) CommandCount() int64 { return s.given.Load() }

// CommandMark returns a text that changes with each order of any process, and with the removal of a run.
// It need not be durable, because no process that compares it survives a power loss.
func (s *Store) CommandMark() string {
	text, err := os.ReadFile(s.markPath())
	if err != nil {
		return "" // same value as before the first command
	}
	return string(text)
}

// CommandsRead records that the process that executes runs has read the commands up to the mark. The file
// need not be durable.
func (s *Store) CommandsRead(mark string) error {
	if err := os.WriteFile(s.readMarkPath(), []byte(mark), private); err != nil {
		return fmt.Errorf("record that commands were read: %w", s.spaceError(err))
	}
	return nil
}

// AreCommandsRead reports whether the process that executes runs has read all commands.
func (s *Store) AreCommandsRead() bool {
	text, err := os.ReadFile(s.readMarkPath())
	return err == nil && string(text) == s.CommandMark()
}

// markPath returns the path of the file with the mark.
func (s *Store) markPath() string { return filepath.Join(filepath.Dir(s.root), "commands") }

// readMarkPath returns the path of the file with the mark of the commands that were read.
func (s *Store) readMarkPath() string { return s.markPath() + ".read" }

// markCommands changes the mark. It must be called after the change. Without a state directory it does
// nothing.
func (s *Store) markCommands() error {
	s.given.Add(1)
	mark := strconv.FormatUint(rand.Uint64(), 16)
	if err := os.WriteFile(s.markPath(), []byte(mark+"\n"), private); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("record that a command was sent: %w", s.spaceError(err))
	}
	return nil
}
