package main

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/decamp/decamp/internal/terminal"
	"github.com/decamp/decamp/test/pty"
)

// On a terminal, decamp gather writes the archive only after the user confirms the list of files.
func TestGatherConfirmsOnTerminal(t *testing.T) {
	for answered, code := range map[string]int{"no": 130, "yes": 0} {
		r, p := newTestProgram(t), pty.New(t)
		r.program.out.screen = terminal.NewScreen(p.Open())
		r.terminal = terminalOf(p)
		path := filepath.Join(t.TempDir(), "a.tar.gz")
		typeAnswer(p, "Type yes to continue: ", answered+"\n", func() {
			if got := r.run(t.Context(), []string{"gather", "--state", r.state, "--output", path}); got != code {
				t.Errorf("%s: exit code %d, want %d", answered, got, code)
			}
		})
		mustContain(t, r.out.String(), "FILE", "versions.json", "doctor.json")
		if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) == (answered == "yes") {
			t.Errorf("answer %s: archive %v", answered, err)
		}
	}
}
