package shell_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/decamp/decamp/internal/esx/shell"
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/lab"
	"github.com/decamp/decamp/internal/lab/executable"
	"github.com/decamp/decamp/test/lane"
)

// onEveryHost runs a test on the lab and on real shells.
func onEveryHost(t *testing.T, test func(t *testing.T, h host)) {
	t.Run("lab", func(t *testing.T) {
		l := startLab(t, lab.Config{})
		cfg := fromLab(l)
		cfg.Jobs = "/tmp/jobs"
		test(t, host{cfg: cfg, drop: l.DropSSH, folder: "/tmp"})
	})
	for name, sh := range testShells(t) {
		t.Run(name, func(t *testing.T) {
			r := startRealHost(t, sh)
			test(t, host{cfg: r.config(), drop: r.drop, folder: t.TempDir()})
		})
	}
}

type host struct {
	cfg    shell.Config
	drop   func()
	folder string // folder for files on the host
}

// waitCommand returns a command that prints "begun", waits for a file with that name, and succeeds.
func (h host) waitCommand(name string) []string {
	return []string{"sh", "-c", `echo "begun $1" && until test -e "$1"; do sleep 0.01; done; echo over`, "sh", h.file(name)}
}

func (h host) file(name string) string { return filepath.Join(h.folder, name) }

// runningJob is a job that runs in the background.
type runningJob struct {
	*testing.T
	ended  chan struct{}
	result shell.Result
	err    error

	mu  sync.Mutex
	log string
}

func startJob(t *testing.T, ctx context.Context, s *shell.Shell, name string, argv []string) *runningJob {
	d := &runningJob{T: t, ended: make(chan struct{})}
	go func() {
		defer close(d.ended)
		d.result, d.err = s.Jobs.Do(ctx, shell.Job{Name: name, Argv: argv, Progress: func(log []byte) {
			d.mu.Lock()
			defer d.mu.Unlock()
			d.log = string(log)
		}})
	}()
	return d
}

// waitForLog waits until the job's log contains a text.
func (d *runningJob) waitForLog(text string) {
	d.Helper()
	eventually(d.T, "the job prints "+text, func() bool {
		select {
		case <-d.ended:
			d.Fatalf("the job ended: %+v, %v", d.result, d.err)
		default:
		}
		d.mu.Lock()
		defer d.mu.Unlock()
		return strings.Contains(d.log, text)
	})
}

func (d *runningJob) checkSuccess() {
	d.Helper()
	<-d.ended
	must(d.T, d.err)
	if d.result.Status != 0 || !strings.HasSuffix(string(d.result.Log), "over\n") {
		d.Errorf("status %d, log %q", d.result.Status, d.result.Log)
	}
}

func (h host) createFile(t *testing.T, s *shell.Shell, name string) {
	t.Helper()
	out, err := s.Run(t.Context(), "touch", h.file(name))
	must(t, err)
	must(t, out.Err())
}

// checkNoJobs checks that the folder of jobs is empty.
func (h host) checkNoJobs(t *testing.T, s *shell.Shell) {
	t.Helper()
	out, err := s.Run(t.Context(), "ls", "-A", h.cfg.Jobs)
	must(t, err)
	if len(out.Stdout) > 0 {
		t.Errorf("files of jobs: %s", out.Stdout)
	}
}

func TestJobRunsAndIsCleanedUp(t *testing.T) {
	onEveryHost(t, func(t *testing.T, h host) {
		s := dial(t, h.cfg)
		all := words[:len(words):len(words)]
		res, err := s.Jobs.Do(t.Context(), shell.Job{Name: "words", Argv: append([]string{"printf", `<%s>\n`}, all...)})
		must(t, err)
		if want := "<" + strings.Join(all, ">\n<") + ">\n"; string(res.Log) != want {
			t.Errorf("%d, %q, want %q", res.Status, res.Log, want)
		}
		res, err = s.Jobs.Do(t.Context(), shell.Job{Name: "fails", Argv: []string{"sh", "-c", "echo out; echo err >&2; exit 3"}})
		must(t, err)
		if res.Status != 3 || string(res.Log) != "out\nerr\n" {
			t.Errorf("%+v", res)
		}
		if res, err = s.Jobs.Do(t.Context(), shell.Job{Name: "nosuch", Argv: []string{"nosuch-command"}}); err != nil || res.Status != 127 {
			t.Errorf("%+v, %v", res, err)
		}
		h.checkNoJobs(t, s)
	})
}

func TestJobContinuesAfterConnectionLoss(t *testing.T) {
	onEveryHost(t, func(t *testing.T, h host) {
		s := dial(t, h.cfg)
		d := startJob(t, t.Context(), s, "job", h.waitCommand("go"))
		d.waitForLog("begun")
		for range 3 {
			h.drop()
			eventually(t, "another connection", func() bool { _, err := s.Run(t.Context(), "true"); return err == nil })
		}
		h.createFile(t, s, "go")
		d.checkSuccess()
		h.checkNoJobs(t, s)
	})
}

// Another process that starts the same job follows the running one.
func TestSecondProcessFollowsRunningJob(t *testing.T) {
	onEveryHost(t, func(t *testing.T, h host) {
		first := dial(t, h.cfg)
		startJob(t, t.Context(), first, "job", h.waitCommand("go")).waitForLog("begun")
		must(t, first.Close()) // like the end of a killed process: the job continues

		s := dial(t, h.cfg)
		again := startJob(t, t.Context(), s, "job", h.waitCommand("go"))
		again.waitForLog("begun")
		h.createFile(t, s, "go")
		again.checkSuccess()
		h.checkNoJobs(t, s)
	})
}

// A job that ended while no process followed it is not run again.
func TestEndedJobIsNotRunAgain(t *testing.T) {
	onEveryHost(t, func(t *testing.T, h host) {
		count := []string{"sh", "-c", `echo x >>"$1"; until test -e "$2"; do sleep 0.01; done; echo over`, "sh", h.file("count"), h.file("go")}
		first := dial(t, h.cfg)
		other := startJob(t, t.Context(), first, "other", h.waitCommand("never"))
		other.waitForLog("begun")
		cfg := h.cfg
		var paused atomic.Bool
		stopped := make(chan struct{}) // closed when the polling stops
		stop := sync.OnceFunc(func() { close(stopped) })
		cfg.After = func(d time.Duration) <-chan time.Time {
			if d <= cfg.Poll && paused.Load() {
				stop()
				return nil
			}
			return time.After(d)
		}
		cut, cancel := context.WithCancel(t.Context())
		defer cancel()
		slow := startJob(t, cut, dial(t, cfg), "job", count)
		eventually(t, "the job begins", func() bool {
			out, err := first.Run(t.Context(), "test", "-s", h.file("count"))
			return err == nil && out.Status == 0
		})
		paused.Store(true)
		<-stopped
		h.createFile(t, first, "go")
		eventually(t, "the job ends", func() bool {
			out, err := first.Run(t.Context(), "test", "-s", h.cfg.Jobs+"/job/exit")
			return err == nil && out.Status == 0
		})
		startJob(t, t.Context(), first, "job", count).checkSuccess()
		out, err := first.Run(t.Context(), "cat", h.file("count"))
		must(t, err)
		if string(out.Stdout) != "x\n" {
			t.Errorf("the job ran %d times", strings.Count(string(out.Stdout), "x"))
		}
		must(t, first.Jobs.End(t.Context(), "other"))
		<-other.ended
		if !fault.Is(other.err, fault.Transient) {
			t.Errorf("a job that End ended: %v", other.err)
		}
		cancel()
		<-slow.ended
	})
}

// A job with the same name and another command is ended first.
func TestJobOfAnotherRunIsEndedFirst(t *testing.T) {
	onEveryHost(t, func(t *testing.T, h host) {
		first := dial(t, h.cfg)
		startJob(t, t.Context(), first, "job", h.waitCommand("old")).waitForLog("begun")
		must(t, first.Close())

		s := dial(t, h.cfg)
		next := startJob(t, t.Context(), s, "job", h.waitCommand("new"))
		next.waitForLog(h.file("new"))
		h.createFile(t, s, "new")
		next.checkSuccess()
		h.checkNoJobs(t, s)
	})
}

// Several processes may remove the folder of the same job at once.
func TestJobFolderIsRemovedConcurrently(t *testing.T) {
	onEveryHost(t, func(t *testing.T, h host) {
		first := dial(t, h.cfg)
		others := make([]*shell.Shell, 4)
		for i := range others {
			others[i] = dial(t, h.cfg)
		}
		for range map[bool]int{false: 8, true: 20}[lane.Slow] {
			out, err := first.Run(t.Context(), "sh", "-c", `mkdir -p "$1/job" "$1/job.1/child/folder" && echo 0 >"$1/job/exit" && touch "$1/job.1/log" "$1/job.1/child/folder/pid"`, "sh", h.cfg.Jobs)
			must(t, err)
			must(t, out.Err())
			var ending sync.WaitGroup
			for _, s := range others {
				ending.Go(func() {
					if err := s.Jobs.End(t.Context(), "job"); err != nil {
						t.Error(err)
					}
				})
			}
			ending.Wait()
			h.checkNoJobs(t, first)
		}
	})
}

func TestCanceledJobIsEnded(t *testing.T) {
	onEveryHost(t, func(t *testing.T, h host) {
		s := dial(t, h.cfg)
		ctx, cancel := context.WithCancel(t.Context())
		d := startJob(t, ctx, s, "job", h.waitCommand("never"))
		d.waitForLog("begun")
		out, err := s.Run(t.Context(), "cat", h.cfg.Jobs+"/job/child")
		must(t, err)
		child := strings.TrimSpace(string(out.Stdout))
		cancel()
		<-d.ended
		if !errors.Is(d.err, context.Canceled) {
			t.Errorf("%v", d.err)
		}
		eventually(t, "the process ends", func() bool {
			out, err := s.Run(t.Context(), "kill", "-0", child)
			must(t, err)
			return out.Status != 0
		})
		h.checkNoJobs(t, s)
	})
}

// A kept job continues after the context of Do ends, and Follow waits for its end.
func TestKeptJobIsFollowed(t *testing.T) {
	onEveryHost(t, func(t *testing.T, h host) {
		s := dial(t, h.cfg)
		must(t, s.Jobs.Follow(t.Context(), "job")) // no such job
		ctx, cancel := context.WithCancel(t.Context())
		begun := make(chan struct{})
		var once sync.Once
		first := make(chan error, 1)
		go func() {
			_, err := s.Jobs.Do(ctx, shell.Job{Name: "job", Argv: h.waitCommand("go"), Kept: true, Progress: func([]byte) { once.Do(func() { close(begun) }) }})
			first <- err
		}()
		<-begun
		cancel()
		if err := <-first; !errors.Is(err, context.Canceled) {
			t.Errorf("%v", err)
		}
		followed := make(chan error, 1)
		go func() { followed <- s.Jobs.Follow(t.Context(), "job") }()
		h.drop()
		h.createFile(t, dial(t, h.cfg), "go")
		must(t, <-followed)
		h.checkNoJobs(t, s)
	})
}

// Follow returns nil for a job that was killed.
func TestKilledJobIsFollowed(t *testing.T) {
	onEveryHost(t, func(t *testing.T, h host) {
		first := dial(t, h.cfg)
		startJob(t, t.Context(), first, "job", h.waitCommand("never")).waitForLog("begun")
		must(t, first.Close())
		s := dial(t, h.cfg)
		followed := make(chan error, 1)
		eventually(t, "the pids are recorded", func() bool {
			out, err := s.Run(t.Context(), "test", "-s", h.cfg.Jobs+"/job/child")
			return err == nil && out.Status == 0
		})
		go func() { followed <- s.Jobs.Follow(t.Context(), "job") }()
		out, err := s.Run(t.Context(), "sh", "-c", `kill -9 "$(cat "$1/pid")" "$(cat "$1/child")"`, "sh", h.cfg.Jobs+"/job")
		must(t, err)
		must(t, out.Err())
		must(t, <-followed)
		h.checkNoJobs(t, s)
	})
}

// A job whose shell is killed has no exit status. Do returns a transient error and removes the folder.
func TestKilledJobReturnsError(t *testing.T) {
	onEveryHost(t, func(t *testing.T, h host) {
		s := dial(t, h.cfg)
		d := startJob(t, t.Context(), s, "job", h.waitCommand("never"))
		d.waitForLog("begun")
		out, err := s.Run(t.Context(), "sh", "-c", `kill -9 "-$(cat "$1")"`, "sh", h.cfg.Jobs+"/job/pid")
		must(t, err)
		must(t, out.Err())
		<-d.ended
		if !fault.Is(d.err, fault.Transient) || fault.HintOf(d.err) == "" {
			t.Errorf("%v", d.err)
		}
		h.checkNoJobs(t, s)
	})
}

// The folder of a job that was never started does not prevent a new one.
func TestUnstartedJobFolderIsReplaced(t *testing.T) {
	onEveryHost(t, func(t *testing.T, h host) {
		h.cfg.Now = newFastClock()
		s := dial(t, h.cfg)
		out, err := s.Run(t.Context(), "mkdir", "-p", h.cfg.Jobs+"/job")
		must(t, err)
		must(t, out.Err())
		h.createFile(t, s, "go")
		startJob(t, t.Context(), s, "job", h.waitCommand("go")).checkSuccess()
	})
}

// slowMv imitates mv in the slower of two processes that remove the same job. The other process removed
// the job before, and the next job has started.
const slowMv = `#!/bin/sh
if test "$(cat "$1/command")" = old; then
	rm -r "$1"
	mkdir "$1"
	echo new >"$1/command"
fi
PATH=$BEFORE exec mv "$@"
`

// A late removal of a job does not remove the next job with that name.
func TestNextJobIsNotRemoved(t *testing.T) {
	bin := t.TempDir()
	executable.Write(t, filepath.Join(bin, "mv"), slowMv)
	t.Setenv("BEFORE", os.Getenv("PATH"))
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	cfg := startRealHost(t, []string{"sh", "-c"}).config()
	folder := filepath.Join(cfg.Jobs, "job")
	must(t, os.Mkdir(folder, 0o700))
	must(t, os.WriteFile(filepath.Join(folder, "command"), []byte("old\n"), 0o600))
	must(t, os.WriteFile(filepath.Join(folder, "exit"), []byte("0\n"), 0o600))
	must(t, dial(t, cfg).Jobs.End(t.Context(), "job"))
	text, err := os.ReadFile(filepath.Join(folder, "command"))
	if err != nil || string(text) != "new\n" {
		t.Errorf("the next job's command is %q: %v", text, err)
	}
	if all, err := os.ReadDir(cfg.Jobs); err != nil || len(all) != 1 {
		t.Errorf("files in the folder of jobs: %v, %v", all, err)
	}
}

// newFastClock returns a clock that advances by a second on each call.
func newFastClock() func() time.Time {
	var mu sync.Mutex
	now := time.Unix(1_700_000_000, 0)
	return func() time.Time {
		mu.Lock()
		defer mu.Unlock()
		now = now.Add(time.Second)
		return now
	}
}

// A job that is started several times at once runs once.
func TestConcurrentStartsRunJobOnce(t *testing.T) {
	onEveryHost(t, func(t *testing.T, h host) {
		s := dial(t, h.cfg)
		argv := []string{"sh", "-c", `echo x >>"$1"; until test -e "$2"; do sleep 0.01; done; echo over`, "sh", h.file("count"), h.file("go")}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var jobs []*runningJob
		for range 4 {
			jobs = append(jobs, startJob(t, ctx, s, "job", argv))
		}
		eventually(t, "the job begins", func() bool {
			out, err := s.Run(t.Context(), "test", "-s", h.file("count"))
			return err == nil && out.Status == 0
		})
		out, err := s.Run(t.Context(), "cat", h.file("count"))
		must(t, err)
		if string(out.Stdout) != "x\n" {
			t.Errorf("%q", out.Stdout)
		}
		cancel()
		for _, d := range jobs {
			<-d.ended
		}
	})
}

func TestJobFailsIfHostStaysUnreachable(t *testing.T) {
	r := startRealHost(t, []string{"sh", "-c"})
	relay := startRelay(t, r.addr)
	cfg := r.config()
	cfg.Addr, cfg.Patience = relay.addr, 20*time.Second
	cfg.Now = newFastClock()
	s := dial(t, cfg)
	d := startJob(t, t.Context(), s, "job", []string{"sh", "-c", `until test -e "$1"; do sleep 0.01; done`, "sh", filepath.Join(cfg.Jobs, "go")})
	eventually(t, "the job", func() bool { _, err := os.Stat(filepath.Join(cfg.Jobs, "job", "pid")); return err == nil })
	relay.close()
	<-d.ended
	if k := fault.KindOf(d.err); k != fault.Unreachable && k != fault.Transient {
		t.Errorf("%v", d.err)
	}
	cfg.Addr, cfg.Now = r.addr, nil
	must(t, dial(t, cfg).Jobs.End(t.Context(), "job"))
}

func TestNamesOfJobs(t *testing.T) {
	s := dial(t, fromLab(startLab(t, lab.Config{})))
	for _, name := range []string{"", ".", "..", "a/b", "-rf", "a b", strings.Repeat("a", 101)} {
		if _, err := s.Jobs.Do(t.Context(), shell.Job{Name: name, Argv: []string{"true"}}); !fault.Is(err, fault.Internal) {
			t.Errorf("%q: %v", name, err)
		}
		if err := s.Jobs.End(t.Context(), name); !fault.Is(err, fault.Internal) {
			t.Errorf("%q: %v", name, err)
		}
	}
	if a, b := shell.JobName("clone", "ab", "c"), shell.JobName("clone", "a", "bc"); a == b || !strings.HasPrefix(a, "clone-") {
		t.Errorf("%s %s", a, b)
	}
}

// A job continues without its connection. If it is a process of this machine, startRealHost kills it
// at the end of the test.
func TestHelperJobsEndWithTheirTest(t *testing.T) {
	environ := ""
	t.Run("host", func(t *testing.T) {
		r := startRealHost(t, []string{"sh", "-c"})
		cfg := r.config()
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() {
			_, err := dial(t, cfg).Jobs.Do(ctx, shell.Job{Name: "job", Argv: []string{"sleep", "1000"}, Kept: true})
			ended <- err
		}()
		var pid []byte
		eventually(t, "the job", func() (begun bool) {
			var err error
			pid, err = os.ReadFile(filepath.Join(cfg.Jobs, "job", "pid"))
			return err == nil
		})
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
		environ = filepath.Join("/proc", strings.TrimSpace(string(pid)), "environ")
		if has, err := os.ReadFile(environ); err != nil || !strings.Contains(string(has), r.mark) {
			t.Fatalf("the job does not continue: %v", err)
		}
	})
	if has, err := os.ReadFile(environ); err == nil && len(has) > 0 { // empty for a zombie
		t.Errorf("the job still runs: %s", environ)
	}
}
