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

// A Job is a command that goes on without its connection.
//
// It has a folder of its name below Config.Jobs, made by mkdir, of which only one can
// succeed: there are never two jobs of one name. In it are
//
//	command  what runs, as a shell reads it
//	pid      of the job's shell, which leads a process group of its own
//	child    pid of the command
//	log      both its outputs
//	exit     its status, once it has ended
//
// pid and exit are renamed into place: who sees them sees all of them.
type Job struct {
	// Name finds the job again: letters, digits, - and _.
	Name string

	// Argv is the command.
	Argv []string

	// Kept has the job go on if the context ends: that ends the waiting, and Follow goes on
	// with it. For what must not be stopped half way.
	Kept bool

	// Progress, if not nil, is told the end of the log, again and again.
	Progress func(log []byte)
}

// Result is how a job ended.
type Result struct {
	Status int
	Log    []byte // the end of it
}

// Jobs starts, follows and ends the jobs of one host, by commands of its Shell. It has no
// state: what jobs there are is on the host. Its methods may be called concurrently.
type Jobs struct {
	cfg   Config
	shell *Shell
}

var jobName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_-]{0,99}$`)

// startScript makes the job's folder ($2) in the folder of all jobs ($1) and starts the
// command ($4 and on) there, whose text is $3. It says what it found. Both shells end at the
// first thing that fails, so that nothing runs that could not be found again.
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

// statusScript says how the job in the folder $1 is, then what runs, then the end of its log.
// Whether it lives is asked before its exit is: one that ends in between has left it.
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

// killScript sends the signal $2 to the job in the folder $1: to its group, and where a host
// knows no groups to its two processes. There is no -- before the group: busybox's kill
// takes it for a number.
const killScript = `cd "$1" 2>/dev/null || exit 0
p=$(cat pid 2>/dev/null)
c=$(cat child 2>/dev/null)
if test -n "$p"; then kill "-$2" "-$p" 2>/dev/null || kill "-$2" "$p" "$c" 2>/dev/null; fi
true`

// readState returns the state of a job.
func (js *Jobs) readState(ctx context.Context, name string) (state, error) {
	out, err := js.shell.runShell(ctx, statusScript, js.folderOf(name))
	if err != nil {
		return state{}, err
	}
	return parseState(out.Stdout)
}

func (js *Jobs) folderOf(name string) string { return path.Join(js.cfg.Jobs, name) }

// Do runs a job to its end and cleans up after it. A job of that name that runs the same
// command is followed, whoever started it; one that runs another is ended first. If ctx
// ends, the job is ended, unless it is to be kept.
//
// Connections that break are opened again, for as long as Config.Patience. A job that was
// not there any more, killed or ended by a reboot, is fault.Transient.
func (js *Jobs) Do(ctx context.Context, j Job) (Result, error) {
	r, err := js.run(ctx, j)
	if err != nil {
		return r, fmt.Errorf("job %s on %s: %w", j.Name, js.cfg.Addr, err)
	}
	return r, nil
}

func (js *Jobs) run(ctx context.Context, j Job) (Result, error) {
	if !jobName.MatchString(j.Name) {
		return Result{}, fault.New(fault.Internal, "%q is no name for a job", j.Name)
	}
	command, err := quoteWords(j.Argv)
	if err != nil {
		return Result{}, err
	}
	if err := js.startJob(ctx, j, command); err != nil {
		return Result{}, err
	}
	r, err := js.awaitEnd(ctx, j, command)
	if err != nil && ctx.Err() != nil {
		if j.Kept {
			return r, err
		}
		after, cancel := context.WithTimeout(context.WithoutCancel(ctx), js.cfg.Patience)
		defer cancel()
		return r, errors.Join(err, js.End(after, j.Name))
	}
	if err == nil || errors.Is(err, errLost) {
		err = errors.Join(err, js.removeFolder(ctx, j.Name, command))
	}
	return r, err
}

// Follow waits for the end of a job that somebody began before, and cleans up after it. One
// that is not there is no error, and neither is how it ended: whoever asks looks what it did.
func (js *Jobs) Follow(ctx context.Context, name string) error {
	st, err := js.readStatePatiently(ctx, name)
	if err == nil && st.kind != none {
		js.cfg.Log.Info("following a job that is there already", "host", js.cfg.Addr, "job", name)
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

// startJob starts the job, unless the same one is there.
func (js *Jobs) startJob(ctx context.Context, j Job, command string) error {
	for {
		was, err := js.readStatePatiently(ctx, j.Name)
		if err != nil {
			return err
		}
		if was.command == command && (was.kind == running || was.kind == exited) {
			js.cfg.Log.Info("following a job that is there already", "host", js.cfg.Addr, "job", j.Name)
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
		// It broke off, or somebody else was faster: look again.
	}
}

// readStatePatiently looks at a job, again and again while the host is out of reach.
func (js *Jobs) readStatePatiently(ctx context.Context, name string) (state, error) {
	since := js.cfg.Now()
	for n := 0; ; n++ {
		st, err := js.readState(ctx, name)
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

// pauseBefore waits the nth time for a host to get on: soon at first, since many jobs are short,
// and in the end every Config.Poll.
func (js *Jobs) pauseBefore(ctx context.Context, n int) error {
	const doublings = 5
	select {
	case <-js.cfg.After(js.cfg.Poll >> max(doublings-n, 0)):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// beginWait is how long a job that has a folder may have no pid: its shell is about to
// write it, or was never started.
const beginWait = time.Minute

// errLost is a job that is gone without a word.
var errLost = errors.New("it is gone without an exit status")

// awaitEnd follows a job until it ends. One of its name that runs something else, if it is known
// what this one runs, has taken its place.
func (js *Jobs) awaitEnd(ctx context.Context, j Job, command string) (Result, error) {
	began := js.cfg.Now()
	for n := 0; ; n++ {
		st, err := js.readStatePatiently(ctx, j.Name)
		if err != nil {
			return Result{}, err
		}
		if st.kind != begun && command != "" && st.command != command { // of one that has begun it may not be written yet
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
				WithHint("somebody killed it, the host was restarted, or it has no memory left for commands (hostd-tmp): copy fewer disks at once")
		}
		if err := js.pauseBefore(ctx, n); err != nil {
			return Result{}, err
		}
	}
}

const (
	killAfter = 10 * time.Second // from TERM to KILL
	endWait   = 2 * time.Minute  // from KILL to giving up: it may wait for storage
)

// End ends a job and removes what is left of it. One that is not there is no error; one that
// does not end is fault.Conflict.
func (js *Jobs) End(ctx context.Context, name string) error {
	if !jobName.MatchString(name) {
		return fault.New(fault.Internal, "%q is no name for a job", name)
	}
	began, sent := js.cfg.Now(), ""
	for n := 0; ; n++ {
		st, err := js.readStatePatiently(ctx, name)
		age := js.cfg.Now().Sub(began)
		signal := "TERM"
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

// removeScript removes the folder $1 if the job in it has the text $2 still: another may
// have taken its place. Two may remove the same job, and the slower one must not empty the folder
// of the job that is begun next: so it is taken out of the way first, which one of them can, and
// looked at again there: the other may have removed it from there, too. What somebody left who was
// killed between goes with it: no job has such a name.
const removeScript = `gone=$1.$$
if test "$(cat "$1/command" 2>/dev/null)" = "$2" && mv "$1" "$gone" 2>/dev/null; then
	if test -s "$gone/command" && test "$(cat "$gone/command" 2>/dev/null)" != "$2"; then mv "$gone" "$1" 2>/dev/null; exit 0; fi
fi
for left in "$1".*; do rm -rf -- "$left"; done`

// removeFolder removes the folder of a job that does not run.
func (js *Jobs) removeFolder(ctx context.Context, name, command string) error {
	_, err := js.shell.runShell(ctx, removeScript, js.folderOf(name), command)
	return err
}
