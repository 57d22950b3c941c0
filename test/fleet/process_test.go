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

// waitTimeout is the longest wait for an event on a busy machine.
const waitTimeout = 10 * time.Minute

// A result is the exit code and the output of a command.
type result struct {
	t              *testing.T
	code           int
	stdout, stderr string
}

// command returns a decamp command without a terminal, with the state directory of the environment.
func (r *testEnv) command(args ...string) *exec.Cmd { return r.commandIn(r.stateDir(), args...) }

func (r *testEnv) commandIn(state string, args ...string) *exec.Cmd {
	cmd := exec.Command(binary, append(append(args, r.flags...), "--state", state)...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL}
	cmd.Env = append(os.Environ(), r.environ...)
	if r.db != "" {
		cmd.Env = append(cmd.Env, "DECAMP_DB="+r.db)
		cmd.Args = append(cmd.Args, r.fleetFlags(args)...)
	}
	return cmd
}

// fleetFlags returns the flags of commands that sign or execute plans in a common database.
func (r *testEnv) fleetFlags(args []string) (flags []string) {
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

// run runs decamp and returns its result.
func (r *testEnv) run(args ...string) result {
	r.t.Helper()
	p := r.startCommand(args...)
	p.waitForExit()
	p.shown = true
	return result{r.t, p.ProcessState.ExitCode(), p.out.String(), p.errs.String()}
}

// wantExit checks the exit code.
func (r result) wantExit(code int) result {
	r.t.Helper()
	if r.code != code {
		r.t.Fatalf("exit code %d, want %d\nstdout: %s\nstderr: %s", r.code, code, r.stdout, r.stderr)
	}
	return r
}

// stateFlag matches the flag that decamp repeats in the commands that it prints. All commands of these tests have it.
var stateFlag = regexp.MustCompile(` --state \S+`)

// wantOutput checks that the output contains all these texts, with or without the repeated --state.
func (r result) wantOutput(words ...string) result {
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

// A process is a decamp process in the background.
type process struct {
	*exec.Cmd
	t    *testing.T
	out  *outputBuffer
	errs *outputBuffer
	done chan struct{} // closed when it has ended

	shown bool // the output is shown by the check of the result
}

// An outputBuffer contains the output of a process, and wakes goroutines that wait for more.
type outputBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
	more chan struct{}
}

func newOutputBuffer() *outputBuffer { return &outputBuffer{more: make(chan struct{})} }

func (p *outputBuffer) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	close(p.more)
	p.more = make(chan struct{})
	return p.text.Write(b)
}

func (p *outputBuffer) String() string {
	s, _ := p.contents()
	return s
}

// contents returns the output, and a channel that is closed when more is written.
func (p *outputBuffer) contents() (string, <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.text.String(), p.more
}

// startCommand starts decamp and returns at once.
func (r *testEnv) startCommand(args ...string) *process {
	r.t.Helper()
	return startProcess(r.t, r.command(args...))
}

// startProcess starts cmd. If the test fails and DECAMP_STACKS is set, its goroutines are logged.
func startProcess(t *testing.T, cmd *exec.Cmd) *process {
	t.Helper()
	p := &process{Cmd: cmd, t: t, out: newOutputBuffer(), errs: newOutputBuffer(), done: make(chan struct{})}
	p.Stdout, p.Stderr = io.Writer(p.out), io.Writer(p.errs)
	must(t, p.Start())
	go func() {
		defer close(p.done)
		_ = p.Wait() // ProcessState has the result
	}()
	t.Cleanup(func() {
		_ = p.Process.Signal(syscall.SIGCONT) // a suspended process handles no SIGQUIT
		if t.Failed() && os.Getenv("DECAMP_STACKS") != "" {
			p.signalAndWait(syscall.SIGQUIT) // Go prints the stacks of all goroutines
		}
		p.signalAndWait(syscall.SIGKILL)
		if t.Failed() && !p.shown {
			t.Logf("%s\nstdout: %s\nstderr: %s", strings.Join(p.Args[1:], " "), p.out, p.errs)
		}
	})
	return p
}

// signalAndWait sends a signal and waits for the end of the process.
func (p *process) signalAndWait(s syscall.Signal) syscall.WaitStatus {
	p.t.Helper()
	if err := p.Process.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
		p.t.Fatal(err)
	}
	return p.waitForExit()
}

// kill kills the process. It fails the test if the process has ended before.
func (p *process) kill() {
	p.t.Helper()
	if status := p.signalAndWait(syscall.SIGKILL); !status.Signaled() {
		p.shown = true
		p.t.Errorf("%s ended with %d before it was killed\nstdout: %s\nstderr: %s", p.Args[1], status.ExitStatus(), p.out, p.errs)
	}
}

// stop sends SIGTERM, and returns the exit code.
func (p *process) stop() int {
	p.t.Helper()
	return p.signalAndWait(syscall.SIGTERM).ExitStatus()
}

// waitForExit waits for the end of the process.
func (p *process) waitForExit() syscall.WaitStatus {
	p.t.Helper()
	select {
	case <-p.done:
	case <-time.After(waitTimeout):
		p.t.Fatalf("%s did not end in time\nstdout: %s\nstderr: %s", p.Args[1], p.out, p.errs)
	}
	return p.ProcessState.Sys().(syscall.WaitStatus)
}

// wantExit waits for the end of the process and checks the exit code.
func (p *process) wantExit(code int) result {
	p.t.Helper()
	p.waitForExit()
	return result{p.t, p.ProcessState.ExitCode(), p.out.String(), p.errs.String()}.wantExit(code)
}

// waitForOutput waits until a stream contains the text, and returns the whole stream.
func (p *process) waitForOutput(on *outputBuffer, want string) string {
	p.t.Helper()
	late := time.After(waitTimeout)
	for {
		text, more := on.contents()
		if strings.Contains(text, want) {
			return text
		}
		select {
		case <-more:
		case <-p.done:
			if strings.Contains(on.String(), want) {
				continue
			}
			p.t.Fatalf("%s ended (%v) and did not print %q\nstdout: %s\nstderr: %s", p.Args[1], p.ProcessState, want, p.out, p.errs)
		case <-late:
			p.t.Fatalf("%s did not print %q in time\nstdout: %s\nstderr: %s", p.Args[1], want, p.out, p.errs)
		}
	}
}

// logFlags returns the flags that make a process write its log to a file.
func (r *testEnv) logFlags(name string) []string {
	return []string{"--log-file", filepath.Join(r.dir, name+".log")}
}
