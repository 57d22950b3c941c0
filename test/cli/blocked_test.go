package cli

import (
	"bufio"
	"bytes"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/journal"
)

// A run whose standard output is a full pipe continues to copy and accepts commands. It prints all events when the pipe
// is read.
func TestRunWithAnUnreadOutput(t *testing.T) {
	t.Parallel()
	r := newUnbootableRig(t)
	read, write := newPipe(t, 0)
	size, err := unix.FcntlInt(write.Fd(), unix.F_SETPIPE_SZ, onePacket)
	must(t, err)
	cmd := r.command(append([]string{"migrate", r.url(), "web01", "--to", "dir:" + r.vmsDir(), "--json", "--warm", "--transport", "nfc", "--interval", "1s"}, r.extra...)...)
	cmd.Stdout = write
	must(t, cmd.Start())
	must(t, write.Close())
	printed := func() (bytes int) {
		text, err := journal.NewStore(r.stateDir()).Events(journal.ID(r.onlyRun()))
		must(t, err)
		return len(text)
	}
	// Each event is longer than 64 bytes, so size/64 events do not fit.
	r.waitUntil("more events than fit in the pipe", func() bool { return r.hasRun() && printed() > size/64 })
	r.run("cutover", r.onlyRun()).wantExit(0).wantOutput("cuts over")
	r.waitUntil("the end of the run", func() bool {
		run, err := journal.NewStore(r.stateDir()).Run(journal.ID(r.onlyRun()))
		return err == nil && run.State == journal.Done
	})
	var out bytes.Buffer
	_, err = out.ReadFrom(read)
	must(t, err)
	if err := cmd.Wait(); err != nil {
		t.Errorf("%v: %s", err, out.String())
	}
	for _, event := range []journal.EventKind{journal.RoundDone, journal.RunDone} {
		if !bytes.Contains(out.Bytes(), []byte(`"kind":"`+string(event)+`"`)) {
			t.Errorf("the output has no event %s", event)
		}
	}
	r.checkRestored(inventory.PoweredOff)
}

// Commands to a stopped decamp process report that the process does not read them. The process executes them when it
// continues.
func TestCommandsToAStoppedProcess(t *testing.T) {
	t.Parallel()
	r := newUnbootableRig(t)
	u := r.startWarmRound("--interval", "1h")
	must(t, u.Process.Signal(syscall.SIGSTOP))
	r.run("pause", r.onlyRun()).wantExit(0).wantOutput("Warning: the decamp process ", "has not read the command for 10s", "kill -CONT")
	c := r.command("rehearse", r.onlyRun())
	screen, err := c.StderrPipe()
	must(t, err)
	must(t, c.Start())
	lines := bufio.NewScanner(screen)
	for lines.Scan() && !strings.Contains(lines.Text(), "has not read the command for 10s") {
	}
	must(t, lines.Err())
	must(t, c.Process.Signal(syscall.SIGINT))
	for lines.Scan() { // Wait closes the pipe
	}
	_ = c.Wait() // the exit code has the result
	if code := c.ProcessState.ExitCode(); code != 130 {
		t.Errorf("exit code %d of rehearse, want 130", code)
	}
	must(t, u.Process.Signal(syscall.SIGCONT))
	r.waitUntil("the command to be read", journal.NewStore(r.stateDir()).AreCommandsRead)
	if out := r.run("cutover", r.onlyRun()).wantExit(0); len(out.stderr) > 0 {
		t.Errorf("want no warning after the process continues, got: %s", out.stderr)
	}
	u.waitSuccess()
}

// hasRun reports whether a run is recorded.
func (r *rig) hasRun() bool {
	all, err := filepath.Glob(filepath.Join(r.stateDir(), "runs", "*", "journal.jsonl"))
	must(r.t, err)
	return len(all) == 1
}
