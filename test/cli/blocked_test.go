package cli

import (
	"bufio"
	"bytes"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/journal"
)

// A run whose standard output is a full pipe copies on, takes commands, and prints all of its steps when the
// pipe is read at last.
func TestRunWithAnUnreadOutput(t *testing.T) {
	t.Parallel()
	r := unbootable(t)
	read, write := pipe(t, 0)
	size, err := unix.FcntlInt(write.Fd(), unix.F_SETPIPE_SZ, onePacket)
	must(t, err)
	cmd := r.command(append([]string{"migrate", r.url(), "web01", "--to", "dir:" + r.vms(), "--json", "--warm", "--transport", "nfc", "--interval", "1s"}, r.extra...)...)
	cmd.Stdout = write
	must(t, cmd.Start())
	must(t, write.Close())
	printed := func() (bytes int) {
		text, err := journal.NewStore(r.state()).Events(journal.ID(r.onlyRun()))
		must(t, err)
		return len(text)
	}
	// Each event has more than 64 bytes, so that many do not fit.
	r.awaits("events that the pipe has no room for", func() bool { return r.hasRun() && printed() > size/64 })
	r.run("cutover", r.onlyRun()).ends(0).says("cuts over")
	r.awaits("the end of the run", func() bool {
		run, err := journal.NewStore(r.state()).Run(journal.ID(r.onlyRun()))
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
			t.Errorf("no %s is printed", event)
		}
	}
	r.asFound(inventory.PoweredOff)
}

// A stopped process is reported to those who send it commands, and obeys when it continues.
func TestCommandsToAStoppedProcess(t *testing.T) {
	t.Parallel()
	r := unbootable(t)
	u := r.warmly("--interval", "1h")
	must(t, u.Process.Signal(syscall.SIGSTOP))
	r.run("pause", r.onlyRun()).ends(0).says("Warning: the decamp process ", "has not read the command for 10s", "kill -CONT")
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
	_ = c.Wait() // the code says it
	if code := c.ProcessState.ExitCode(); code != 130 {
		t.Errorf("rehearse ends with %d", code)
	}
	must(t, u.Process.Signal(syscall.SIGCONT))
	if out := r.run("cutover", r.onlyRun()).ends(0); len(out.stderr) > 0 {
		t.Errorf("a process that continues is reported: %s", out.stderr)
	}
	u.succeeds()
}

// hasRun reports whether a run is recorded.
func (r *rig) hasRun() bool {
	all, err := filepath.Glob(filepath.Join(r.state(), "runs", "*", "journal.jsonl"))
	must(r.t, err)
	return len(all) == 1
}

// awaits waits until ready.
func (r *rig) awaits(what string, ready func() bool) {
	r.t.Helper()
	for deadline := time.Now().Add(5 * time.Minute); !ready(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			r.t.Fatalf("waited in vain for %s", what)
		}
	}
}
