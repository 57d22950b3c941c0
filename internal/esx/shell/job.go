package shell

import (
	"context"
	"errors"
	"fmt"
	"path"
	"regexp"
	"strings"
	"time"

	"github.com/decamp/decamp/internal/fault"
)

// A Job is a command that continues after its connection is closed.
//
// It has a folder with its name below Config.Jobs. Creating the folder with mkdir
// succeeds only once, so there are never two jobs with one name. The folder contains
//
// command the command in the syntax of the shell pid process ID of the job's shell, the
// leader of its process group child process ID of the command log standard output and
// standard error exit exit status after the command ended
//
// pid and exit are renamed into place, so a reader never sees a partial file.
type Job struct {
	// Name identifies the job: letters, digits, - and _.
	Name string

	// Argv is the command and its arguments.
	Argv []string

	// Kept makes the job continue when the context ends; only the wait ends. Follow can
	// wait for it later. It is for commands that must not be interrupted, such as
	// merges of snapshots.
	Kept bool

	// Progress, if not nil, is called with the end of the log after each poll.
	Progress func(log []byte)
}

// Result is the outcome of a job that ended.
type Result struct {
	Status int    // exit status of the command
	Log    []byte // last 2048 bytes of the log
}

// Jobs starts, follows and ends the jobs of one host through its Shell. It has no
// state: the jobs are on the host. It is safe for concurrent use.
type Jobs struct {
	cfg   Config // configuration of the Shell
	shell *Shell // runs the scripts on the host
}

// jobName matches valid names. They need no quoting and cannot contain a path
// separator.
var jobName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_-]{0,99}$`)

// startScript creates the job's folder ($2) in the folder of all jobs ($1) and starts
// the command ($4 and following), whose text is $3. It prints "started" or "exists".
// Both shells exit at the first failure, so that no process runs that cannot be found
// again.
const startScript = `umask 077
mkdir -p "$1" || exit 1
if mkdir "$2" 2>/dev/null; then
	cd "$2" || exit 1
	printf "%s\n" "$3" >command || exit 1
	shift 3
	setsid sh -c 'echo $$ >pid.new && mv pid.new pid || exit 1
"$@" >log 2>&1 &
echo $! >child
wait $!
echo $? >exit.new
mv exit.new exit' sh "$@" </dev/null >/dev/null 2>&1 &
	echo started
elif test -d "$2"; then
	echo exists
else
	echo "cannot make $2" >&2
	exit 1
fi`

// statusScript prints the state of the job in the folder $1, its command and the end of
// its log. It checks for the process before it reads the exit status: a job that ends
// in between has written its status.
const statusScript = `cd "$1" 2>/dev/null || { echo none; exit 0; }
state=begun
if test -s pid; then
	state=dead
	if kill -0 "$(cat pid)" 2>/dev/null; then state=running; fi
fi
if test -s exit; then state="exit $(cat exit)"; fi
echo "$state"
wc -c <command 2>/dev/null || echo 0
cat command 2>/dev/null
tail -c 2048 log 2>/dev/null
true`

// killScript sends the signal $2 to the job in the folder $1: to its process group or,
// on hosts without process groups, to its two processes. There is no -- before the
// group, because the kill of busybox parses it as a number.
const killScript = `cd "$1" 2>/dev/null || exit 0
p=$(cat pid 2>/dev/null)
c=$(cat child 2>/dev/null)
if test -n "$p"; then kill "-$2" "-$p" 2>/dev/null || kill "-$2" "$p" "$c" 2>/dev/null; fi
true`

// readState returns the state of a job. A job without a folder has the kind none.
func (js *Jobs) readState(ctx context.Context, name string) (state, error) {
	out, err := js.shell.runShell(ctx, statusScript, js.folderOf(name))
	if err != nil {
		return state{}, err
	}
	return parseState(out.Stdout)
}

// folderOf returns the path of a job's folder on the host.
func (js *Jobs) folderOf(name string) string { return path.Join(js.cfg.Jobs, name) }

// Do runs a job, waits for its end and removes its folder. If a job with that name runs
// the same command, Do follows it, even if another process started it. If it runs
// another command, Do ends it first. If ctx ends, Do ends the job, except a Kept one.
//
// Do reopens broken connections for at most Config.Patience. A job that disappeared,
// because it was killed or the host restarted, is fault.Transient.
func (js *Jobs) Do(ctx context.Context, j Job) (Result, error) {
	r, err := js.run(ctx, j)
	if err != nil {
		return r, fmt.Errorf("job %s on %s: %w", j.Name, js.cfg.Addr, err)
	}
	return r, nil
}

// run does the work of Do without the context of errors.
func (js *Jobs) run(ctx context.Context, j Job) (Result, error) {
	if !jobName.MatchString(j.Name) {
		return Result{}, fault.New(fault.Internal, "%q is no name for a job", j.Name)
	}
	command, err := quoteWords(j.Argv)
	if err != nil {
		return Result{}, err
	}
	// The job may exist already: after a crash, or because another process started it.
	if err := js.startJob(ctx, j, command); err != nil {
		return Result{}, err
	}
	r, err := js.awaitEnd(ctx, j, command)
	if err != nil && ctx.Err() != nil {
		if j.Kept {
			return r, err
		}
		// ctx has ended, but the job must be ended on the host.
		after, cancel := context.WithTimeout(context.WithoutCancel(ctx), js.cfg.Patience)
		defer cancel()
		return r, errors.Join(err, js.End(after, j.Name))
	}
	if err == nil || errors.Is(err, errLost) {
		err = errors.Join(err, js.removeFolder(ctx, j.Name, command))
	}
	return r, err
}

// Follow waits for the end of a job that was started before, and removes its folder. It
// returns nil if there is no such job, and regardless of the exit status: the caller
// must check the result of the command.
func (js *Jobs) Follow(ctx context.Context, name string) error {
	st, err := js.readStatePatiently(ctx, name)
	if err == nil && st.kind != none {
		js.cfg.Log.Info("following an existing job", "host", js.cfg.Addr, "job", name)
		if _, err = js.awaitEnd(ctx, Job{Name: name}, st.command); err == nil || errors.Is(err, errLost) {
			if st, err = js.readStatePatiently(ctx, name); err == nil && st.kind != running { // now it is known what ran
				err = js.removeFolder(ctx, name, st.command)
			}
		}
	}
	if err != nil {
		return fmt.Errorf("job %s on %s: %w", name, js.cfg.Addr, err)
	}
	return nil
}

// startJob starts the job unless the same one exists. It loops until one of two
// processes that start the same job wins.
func (js *Jobs) startJob(ctx context.Context, j Job, command string) error {
	for {
		was, err := js.readStatePatiently(ctx, j.Name)
		if err != nil {
			return err
		}
		if was.command == command && (was.kind == running || was.kind == exited) {
			js.cfg.Log.Info("following an existing job", "host", js.cfg.Addr, "job", j.Name)
			return nil
		}
		if was.kind != none {
			js.cfg.Log.Info("ending a job of an earlier run", "host", js.cfg.Addr, "job", j.Name)
			if err := js.End(ctx, j.Name); err != nil {
				return err
			}
		}
		words := append([]string{js.cfg.Jobs, js.folderOf(j.Name), command}, j.Argv...)
		out, err := js.shell.runShell(ctx, startScript, words...)
		if err != nil && !fault.Is(err, fault.Transient) {
			return err
		}
		if err == nil && strings.TrimSpace(string(out.Stdout)) == "started" {
			js.cfg.Log.Debug("job started", "host", js.cfg.Addr, "job", j.Name)
			return nil
		}
		// The command failed, or another process created the job first: read its state
		// again.
	}
}

// readStatePatiently is readState with retries while the host is unreachable, for at
// most Config.Patience.
func (js *Jobs) readStatePatiently(ctx context.Context, name string) (state, error) {
	since := js.cfg.Now()
	for n := 0; ; n++ {
		st, err := js.readState(ctx, name)
		// Other errors, such as a refused login, do not pass.
		passing := fault.Is(err, fault.Transient) || fault.Is(err, fault.Unreachable)
		if !passing || ctx.Err() != nil || js.cfg.Now().Sub(since) >= js.cfg.Patience {
			return st, err
		}
		if n == 0 {
			js.cfg.Log.Warn("host is out of reach by SSH", "host", js.cfg.Addr, "err", err)
		}
		if err := js.pauseBefore(ctx, n); err != nil {
			return st, err
		}
	}
}

// pauseBefore waits before poll n. The first intervals are short, because many jobs
// are; after five doublings the interval is Config.Poll.
func (js *Jobs) pauseBefore(ctx context.Context, n int) error {
	const doublings = 5
	select {
	case <-js.cfg.After(js.cfg.Poll >> max(doublings-n, 0)):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// beginWait is the time after which a job with a folder and no pid counts as lost. Its
// shell writes the pid at once, or was never started.
const beginWait = time.Minute

// errLost is the cause of the error for a job that disappeared without an exit status.
var errLost = errors.New("it ended without an exit status")

// awaitEnd follows a job until it ends. If command is not "" and the job with the name
// runs another command, the job is lost: another one replaced it.
func (js *Jobs) awaitEnd(ctx context.Context, j Job, command string) (Result, error) {
	began := js.cfg.Now()
	for n := 0; ; n++ {
		st, err := js.readStatePatiently(ctx, j.Name)
		if err != nil {
			return Result{}, err
		}
		if st.kind != begun && command != "" && st.command != command { // a job without pid may not have written its command yet
			st = state{kind: none}
		}
		if j.Progress != nil && len(st.log) > 0 {
			j.Progress(st.log)
		}
		switch {
		case st.kind == exited:
			return Result{st.status, st.log}, nil
		case st.kind == dead, st.kind == none, st.kind == begun && js.cfg.Now().Sub(began) >= beginWait:
			return Result{Log: st.log}, fault.New(fault.Transient, "%w: %s", errLost, lastLines(string(st.log))).
				WithHint("it was killed, the host was restarted, or it has no memory left for commands (hostd-tmp): copy fewer disks at once")
		}
		if err := js.pauseBefore(ctx, n); err != nil {
			return Result{}, err
		}
	}
}

const (
	killAfter = 10 * time.Second // time from SIGTERM to SIGKILL
	endWait   = 2 * time.Minute  // time until End fails; a process may be blocked in storage
)

// End ends a job with SIGTERM, then SIGKILL, and removes its folder. A job that does
// not exist is no error. A job that does not end within 2 minutes is fault.Conflict.
func (js *Jobs) End(ctx context.Context, name string) error {
	if !jobName.MatchString(name) {
		return fault.New(fault.Internal, "%q is no name for a job", name)
	}
	began, sent := js.cfg.Now(), ""
	for n := 0; ; n++ {
		st, err := js.readStatePatiently(ctx, name)
		age := js.cfg.Now().Sub(began)
		signal := "TERM"
		// A process that ignores SIGTERM gets SIGKILL.
		if age >= killAfter {
			signal = "KILL"
		}
		switch {
		case err != nil || st.kind == none:
			return err
		case st.kind == exited, st.kind == dead, st.kind == begun && age >= killAfter:
			return js.removeFolder(ctx, name, st.command)
		case age >= endWait:
			return fault.New(fault.Conflict, "job %s on %s does not end", name, js.cfg.Addr).
				WithHint("end it on the host: kill -9 $(cat %s/pid); one that waits for storage ends when the storage answers", fault.Quote(js.folderOf(name)))
		case st.kind == running && signal != sent:
			if _, err := js.shell.runShell(ctx, killScript, js.folderOf(name), signal); err != nil && !fault.Is(err, fault.Transient) {
				return err
			}
			sent = signal
		}
		if err := js.pauseBefore(ctx, n); err != nil {
			return err
		}
	}
}

// removeScript removes the folder $1 if its command is $2. Otherwise another job has
// replaced it. Two processes may remove the same job, and the slower one must not empty
// the folder of the next job. So the script first renames the folder, which succeeds
// once, and checks the command again. It also removes what a killed process left
// between these steps: no job has such a name. rm fails on files that another process
// removes; then the folder does not exist afterwards.
const removeScript = `gone=$1.$$
if test "$(cat "$1/command" 2>/dev/null)" = "$2" && mv "$1" "$gone" 2>/dev/null; then
	if test -s "$gone/command" && test "$(cat "$gone/command" 2>/dev/null)" != "$2"; then mv "$gone" "$1" 2>/dev/null; exit 0; fi
fi
for left in "$1".*; do rm -rf -- "$left" 2>/dev/null || test ! -e "$left" || rm -rf -- "$left"; done`

// removeFolder removes the folder of a job that does not run.
func (js *Jobs) removeFolder(ctx context.Context, name, command string) error {
	_, err := js.shell.runShell(ctx, removeScript, js.folderOf(name), command)
	return err
}
