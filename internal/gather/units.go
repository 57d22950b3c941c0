package gather

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"strconv"
	"time"

	"github.com/decamp/decamp/internal/childenv"
	"github.com/decamp/decamp/internal/fault"
)

// Limits of the log of a unit.
const (
	unitLines = 20_000      // newest entries
	unitTime  = time.Minute // time limit of journalctl
)

// readUnit reads the log of a unit of systemd. A unit without entries, and a machine without systemd, have none.
func (a *Archive) readUnit(ctx context.Context, unit string) {
	ctx, cancel := context.WithTimeout(ctx, unitTime)
	defer cancel()
	cmd := exec.CommandContext(ctx, "journalctl", "--quiet", "--no-pager", "--no-hostname", "--output", "short-iso-precise", "--lines", strconv.Itoa(unitLines), "--unit", unit)
	log, stderr := &tail{limit: maxFile}, &tail{limit: maxFile}
	cmd.Env, cmd.Stdout, cmd.Stderr, cmd.WaitDelay = childenv.Of(os.Environ()), log, stderr, time.Second
	name := "logs/" + unit + ".log"
	switch err := cmd.Run(); {
	case errors.Is(err, exec.ErrNotFound):
		return
	case err != nil:
		a.Left = append(a.Left, name+": journalctl: "+fault.OneLine(err.Error()+" "+string(stderr.text)))
	}
	text := log.lines()
	if len(text) == 0 {
		return
	}
	c := collected{Entry: Entry{Name: name, Size: int64(len(text))}, text: text, changed: time.Now(), isLog: true}
	if log.cut || bytes.Count(text, []byte("\n")) >= unitLines {
		c.Note = endOfFile
	}
	a.files = append(a.files, c)
}

// tail is a writer that keeps the last bytes.
type tail struct {
	limit int    // bytes that are kept
	text  []byte // last bytes, at most twice the limit
	cut   bool   // the beginning was dropped
}

// Write implements io.Writer.
func (t *tail) Write(p []byte) (int, error) {
	t.text = append(t.text, p...)
	if len(t.text) > 2*t.limit {
		t.trim()
	}
	return len(p), nil
}

// trim drops all but the last limit bytes.
func (t *tail) trim() {
	if over := len(t.text) - t.limit; over > 0 {
		t.text, t.cut = append(t.text[:0], t.text[over:]...), true
	}
}

// lines returns the lines that are kept completely.
func (t *tail) lines() []byte {
	t.trim()
	if t.cut {
		_, t.text, _ = bytes.Cut(t.text, []byte("\n"))
	}
	return t.text
}
