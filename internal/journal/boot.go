package journal

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"time"

	"github.com/decamp/decamp/internal/atomicfile"
	"github.com/decamp/decamp/internal/fault"
)

// BootTime returns the boot time of the guest that an operator entered; 0 if none.
func (s *Store) BootTime(id ID) (time.Duration, error) {
	text, err := os.ReadFile(s.filePath(id, "boot-time"))
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("read boot time of run %s: %w", id, err)
	}
	d, err := time.ParseDuration(strings.TrimSpace(string(text)))
	if err != nil || d < 0 {
		return 0, fault.New(fault.Corrupt, "the boot time of run %s is %q", id, text).WithHint("state it again, with --boot-time")
	}
	return d, nil
}

// SetBootTime durably records the boot time beside the plan. Later processes of the run use it.
func (s *Store) SetBootTime(id ID, d time.Duration) error {
	if err := atomicfile.Replace(s.filePath(id, "boot-time"), []byte(d.String()+"\n"), private); err != nil {
		return fmt.Errorf("record boot time of run %s: %w", id, s.spaceError(err))
	}
	return nil
}
