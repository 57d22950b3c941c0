package fleet

import (
	"bytes"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/decamp/decamp/internal/fleetkey"
)

// patience is how long anything may take under the heaviest load. Nothing waits so long if all
// is well.
const patience = 3 * time.Minute

// result is what a command left.
type result struct {
	t              *testing.T
	code           int
	stdout, stderr string
}

// command prepares decamp, without a terminal, in the rig's state directory.
func (r *rig) command(args ...string) *exec.Cmd { return r.commandIn(r.state(), args...) }

func (r *rig) commandIn(state string, args ...string) *exec.Cmd {
	cmd := exec.Command(binary, append(append(args, r.flags...), "--state", state)...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL}
	cmd.Env = append(os.Environ(), r.environ...)
	if r.db != "" {
		cmd.Env = append(cmd.Env, "DECAMP_DB="+r.db)
		cmd.Args = append(cmd.Args, r.fleetFlags(args)...)
	}
	return cmd
}

// fleetFlags are the flags for a common database of commands that sign plans or carry them out.
func (r *rig) fleetFlags(args []string) (flags []string) {
	if args[0] == "worker" || args[0] == "serve" || args[0] == "plan" && args[1] == "run" {
		if !r.keyless {
			key := filepath.Join(r.dir, fleetkey.FileName)
			_, err := fleetkey.Ensure(key)
			must(r.t, err)
			flags = append(flags, "--fleet-key", key)
		}
		if !r.hookless {
			flags = append(flags, "--allow-hooks")
		}
		if r.insecure {
			flags = append(flags, "--insecure-database")
		}
	}
	return flags
}

// run runs decamp to its end.
func (r *rig) run(args ...string) result {
	r.t.Helper()
	p := r.begin(args...)
	p.finished()
	p.shown = true
	return result{r.t, p.ProcessState.ExitCode(), p.out.String(), p.errs.String()}
}

// ends checks the exit code.
func (r result) ends(code int) result {
	r.t.Helper()
	if r.code != code {
		r.t.Fatalf("exit code %d, want %d\nstdout: %s\nstderr: %s", r.code, code, r.stdout, r.stderr)
	}
	return r
}

// stateFlag matches the flag that decamp repeats in commands, because all commands of these tests have it.
var stateFlag = regexp.MustCompile(` --state \S+`)

// says checks that the output contains these words, apart from repeated --state.
func (r result) says(words ...string) result {
	r.t.Helper()
	output := r.stdout + r.stderr
	short := stateFlag.ReplaceAllString(output, "")
	for _, w := range words {
		if !strings.Contains(short, w) && !strings.Contains(output, w) {
			r.t.Errorf("the output does not contain %q\nstdout: %s\nstderr: %s", w, r.stdout, r.stderr)
		}
	}
	return r
}

// a process is a decamp that goes on in the background.
type process struct {
	*exec.Cmd
	t    *testing.T
	out  *tape
	errs *tape
	done chan struct{} // closed when it has ended

	shown bool // by whoever looks at the result
}

// tape contains the output of a process, and wakes goroutines that wait for words in it.
type tape struct {
	mu   sync.Mutex
	text bytes.Buffer
	more chan struct{}
}

func newTape() *tape { return &tape{more: make(chan struct{})} }

func (p *tape) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	close(p.more)
	p.more = make(chan struct{})
	return p.text.Write(b)
}

func (p *tape) String() string {
	s, _ := p.read()
	return s
}

func (p *tape) read() (string, <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.text.String(), p.more
}

// begin starts decamp and returns at once.
func (r *rig) begin(args ...string) *process {
	r.t.Helper()
	return start(r.t, r.command(args...))
}

// start starts cmd. If the test fails and DECAMP_STACKS is set, its goroutines are logged.
func start(t *testing.T, cmd *exec.Cmd) *process {
	t.Helper()
	p := &process{Cmd: cmd, t: t, out: newTape(), errs: newTape(), done: make(chan struct{})}
	p.Stdout, p.Stderr = io.Writer(p.out), io.Writer(p.errs)
	must(t, p.Start())
	go func() {
		defer close(p.done)
		_ = p.Wait() // the state says it
	}()
	t.Cleanup(func() {
		_ = p.Process.Signal(syscall.SIGCONT) // a stopped one could not be ended
		if t.Failed() && os.Getenv("DECAMP_STACKS") != "" {
			p.signal(syscall.SIGQUIT) // Go tells where all goroutines are
		}
		p.signal(syscall.SIGKILL)
		if t.Failed() && !p.shown {
			t.Logf("%s\nstdout: %s\nstderr: %s", strings.Join(p.Args[1:], " "), p.out, p.errs)
		}
	})
	return p
}

// signal sends one and waits for the end.
func (p *process) signal(s syscall.Signal) syscall.WaitStatus {
	p.t.Helper()
	if err := p.Process.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
		p.t.Fatal(err)
	}
	return p.finished()
}

// kill ends it as a crash does. A process that ended before fails the test.
func (p *process) kill() {
	p.t.Helper()
	if status := p.signal(syscall.SIGKILL); !status.Signaled() {
		p.shown = true
		p.t.Errorf("%s ended with %d before it was killed\nstdout: %s\nstderr: %s", p.Args[1], status.ExitStatus(), p.out, p.errs)
	}
}

// stops sends SIGTERM, and returns the exit code.
func (p *process) stops() int {
	p.t.Helper()
	return p.signal(syscall.SIGTERM).ExitStatus()
}

// finished waits for the process to end by itself.
func (p *process) finished() syscall.WaitStatus {
	p.t.Helper()
	select {
	case <-p.done:
	case <-time.After(patience):
		p.t.Fatalf("%s does not end\nstdout: %s\nstderr: %s", p.Args[1], p.out, p.errs)
	}
	return p.ProcessState.Sys().(syscall.WaitStatus)
}

// ends waits for the end and checks the exit code.
func (p *process) ends(code int) result {
	p.t.Helper()
	p.finished()
	return result{p.t, p.ProcessState.ExitCode(), p.out.String(), p.errs.String()}.ends(code)
}

// says waits until the output contains these words, and returns all output of that stream.
func (p *process) says(on *tape, words string) string {
	p.t.Helper()
	late := time.After(patience)
	for {
		text, more := on.read()
		if strings.Contains(text, words) {
			return text
		}
		select {
		case <-more:
		case <-p.done:
			if strings.Contains(on.String(), words) {
				continue
			}
			p.t.Fatalf("%s ended (%v) and did not say %q\nstdout: %s\nstderr: %s", p.Args[1], p.ProcessState, words, p.out, p.errs)
		case <-late:
			p.t.Fatalf("%s does not say %q\nstdout: %s\nstderr: %s", p.Args[1], words, p.out, p.errs)
		}
	}
}

// log returns the flags that make a process write its full log to a file.
func (r *rig) log(name string) []string {
	return []string{"--log-file", filepath.Join(r.dir, name+".log")}
}
