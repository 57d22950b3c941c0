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

// onEveryHost runs a test on the lab and on real shells; folder is one on that host.
func onEveryHost(t *testing.T, test func(t *testing.T, h host)) {
	t.Run("lab", func(t *testing.T) {
		l := startLab(t, lab.Config{})
		cfg := fromLab(l)
		cfg.Jobs = "/tmp/jobs"
		test(t, host{cfg: cfg, drop: l.DropSSH, folder: "/tmp"})
	})
	for name, sh := range shells(t) {
		t.Run(name, func(t *testing.T) {
			r := startReal(t, sh)
			test(t, host{cfg: r.config(), drop: r.drop, folder: t.TempDir()})
		})
	}
}

type host struct {
	cfg    shell.Config
	drop   func()
	folder string
}

// until is a command that says it has begun, waits for a file of that name, and succeeds.
func (h host) until(name string) []string {
	return []string{"sh", "-c", `echo "begun $1" && until test -e "$1"; do sleep 0.01; done; echo over`, "sh", h.file(name)}
}

func (h host) file(name string) string { return filepath.Join(h.folder, name) }

// doing is a job under way.
type doing struct {
	*testing.T
	ended  chan struct{}
	result shell.Result
	err    error

	mu  sync.Mutex
	log string
}

func do(t *testing.T, ctx context.Context, s *shell.Shell, name string, argv []string) *doing {
	d := &doing{T: t, ended: make(chan struct{})}
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

// says waits until the job's log has a text.
func (d *doing) says(text string) {
	d.Helper()
	eventually(d.T, "the job says "+text, func() bool {
		select {
		case <-d.ended:
			d.Fatalf("it ended: %+v, %v", d.result, d.err)
		default:
		}
		d.mu.Lock()
		defer d.mu.Unlock()
		return strings.Contains(d.log, text)
	})
}

func (d *doing) succeeds() {
	d.Helper()
	<-d.ended
	must(d.T, d.err)
	if d.result.Status != 0 || !strings.HasSuffix(string(d.result.Log), "over\n") {
		d.Errorf("status %d, log %q", d.result.Status, d.result.Log)
	}
}

func (h host) touch(t *testing.T, s *shell.Shell, name string) {
	t.Helper()
	out, err := s.Run(t.Context(), "touch", h.file(name))
	must(t, err)
	must(t, out.Err())
}

// nothingLeft checks that jobs leave no trace.
func (h host) nothingLeft(t *testing.T, s *shell.Shell) {
	t.Helper()
	out, err := s.Run(t.Context(), "ls", "-A", h.cfg.Jobs)
	must(t, err)
	if len(out.Stdout) > 0 {
		t.Errorf("left: %s", out.Stdout)
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
		h.nothingLeft(t, s)
	})
}

func TestJobOutlivesItsConnection(t *testing.T) {
	onEveryHost(t, func(t *testing.T, h host) {
		s := dial(t, h.cfg)
		d := do(t, t.Context(), s, "job", h.until("go"))
		d.says("begun")
		for range 3 {
			h.drop()
			eventually(t, "another connection", func() bool { _, err := s.Run(t.Context(), "true"); return err == nil })
		}
		h.touch(t, s, "go")
		d.succeeds()
		h.nothingLeft(t, s)
	})
}

// Another process that does the same finds the job by its name.
func TestJobIsFoundAgain(t *testing.T) {
	onEveryHost(t, func(t *testing.T, h host) {
		first := dial(t, h.cfg)
		do(t, t.Context(), first, "job", h.until("go")).says("begun")
		must(t, first.Close()) // as a process that was killed: the job is left alone

		s := dial(t, h.cfg)
		again := do(t, t.Context(), s, "job", h.until("go"))
		again.says("begun")
		h.touch(t, s, "go")
		again.succeeds()
		h.nothingLeft(t, s)
	})
}

// A job that ended while nobody looked is not run again.
func TestJobThatEndedMeanwhile(t *testing.T) {
	onEveryHost(t, func(t *testing.T, h host) {
		count := []string{"sh", "-c", `echo x >>"$1"; until test -e "$2"; do sleep 0.01; done; echo over`, "sh", h.file("count"), h.file("go")}
		first := dial(t, h.cfg)
		other := do(t, t.Context(), first, "other", h.until("never"))
		other.says("begun")
		cfg := h.cfg
		var blind atomic.Bool
		stopped := make(chan struct{}) // closed when it looks no more
		stop := sync.OnceFunc(func() { close(stopped) })
		cfg.After = func(d time.Duration) <-chan time.Time {
			if d <= cfg.Poll && blind.Load() {
				stop()
				return nil
			}
			return time.After(d)
		}
		cut, cancel := context.WithCancel(t.Context())
		defer cancel()
		slow := do(t, cut, dial(t, cfg), "job", count)
		eventually(t, "the job begins", func() bool {
			out, err := first.Run(t.Context(), "test", "-s", h.file("count"))
			return err == nil && out.Status == 0
		})
		blind.Store(true)
		<-stopped
		h.touch(t, first, "go")
		eventually(t, "the job ends", func() bool {
			out, err := first.Run(t.Context(), "test", "-s", h.cfg.Jobs+"/job/exit")
			return err == nil && out.Status == 0
		})
		do(t, t.Context(), first, "job", count).succeeds()
		out, err := first.Run(t.Context(), "cat", h.file("count"))
		must(t, err)
		if string(out.Stdout) != "x\n" {
			t.Errorf("it ran %d times", strings.Count(string(out.Stdout), "x"))
		}
		must(t, first.Jobs.End(t.Context(), "other"))
		<-other.ended
		if !fault.Is(other.err, fault.Transient) {
			t.Errorf("a job that was ended: %v", other.err)
		}
		cancel()
		<-slow.ended
	})
}

// One of the same name that does something else makes way.
func TestJobOfAnotherRunIsEndedFirst(t *testing.T) {
	onEveryHost(t, func(t *testing.T, h host) {
		first := dial(t, h.cfg)
		do(t, t.Context(), first, "job", h.until("old")).says("begun")
		must(t, first.Close())

		s := dial(t, h.cfg)
		next := do(t, t.Context(), s, "job", h.until("new"))
		next.says(h.file("new"))
		h.touch(t, s, "new")
		next.succeeds()
		h.nothingLeft(t, s)
	})
}

// Several processes may remove the folder of the same job at once.
func TestJobIsRemovedByManyAtOnce(t *testing.T) {
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
			h.nothingLeft(t, first)
		}
	})
}

func TestCanceledJobIsEnded(t *testing.T) {
	onEveryHost(t, func(t *testing.T, h host) {
		s := dial(t, h.cfg)
		ctx, cancel := context.WithCancel(t.Context())
		d := do(t, ctx, s, "job", h.until("never"))
		d.says("begun")
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
		h.nothingLeft(t, s)
	})
}

// A job that is to be kept goes on without whoever began it, and whoever comes next waits for
// its end.
func TestKeptJobIsFollowed(t *testing.T) {
	onEveryHost(t, func(t *testing.T, h host) {
		s := dial(t, h.cfg)
		must(t, s.Jobs.Follow(t.Context(), "job")) // there is none
		ctx, cancel := context.WithCancel(t.Context())
		begun := make(chan struct{})
		var once sync.Once
		first := make(chan error, 1)
		go func() {
			_, err := s.Jobs.Do(ctx, shell.Job{Name: "job", Argv: h.until("go"), Kept: true, Progress: func([]byte) { once.Do(func() { close(begun) }) }})
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
		h.touch(t, dial(t, h.cfg), "go")
		must(t, <-followed)
		h.nothingLeft(t, s)
	})
}

// A job that was killed was no success, which is nothing to whoever follows it.
func TestKilledJobIsFollowed(t *testing.T) {
	onEveryHost(t, func(t *testing.T, h host) {
		first := dial(t, h.cfg)
		do(t, t.Context(), first, "job", h.until("never")).says("begun")
		must(t, first.Close())
		s := dial(t, h.cfg)
		followed := make(chan error, 1)
		eventually(t, "its pids are on record", func() bool {
			out, err := s.Run(t.Context(), "test", "-s", h.cfg.Jobs+"/job/child")
			return err == nil && out.Status == 0
		})
		go func() { followed <- s.Jobs.Follow(t.Context(), "job") }()
		out, err := s.Run(t.Context(), "sh", "-c", `kill -9 "$(cat "$1/pid")" "$(cat "$1/child")"`, "sh", h.cfg.Jobs+"/job")
		must(t, err)
		must(t, out.Err())
		must(t, <-followed)
		h.nothingLeft(t, s)
	})
}

// A job whose shell is killed leaves no status: it is told, and begins afresh next time.
func TestKilledJobIsNoSuccess(t *testing.T) {
	onEveryHost(t, func(t *testing.T, h host) {
		s := dial(t, h.cfg)
		d := do(t, t.Context(), s, "job", h.until("never"))
		d.says("begun")
		out, err := s.Run(t.Context(), "sh", "-c", `kill -9 "-$(cat "$1")"`, "sh", h.cfg.Jobs+"/job/pid")
		must(t, err)
		must(t, out.Err())
		<-d.ended
		if !fault.Is(d.err, fault.Transient) || fault.HintOf(d.err) == "" {
			t.Errorf("%v", d.err)
		}
		h.nothingLeft(t, s)
	})
}

// The folder of one that was never started is no obstacle.
func TestHalfBegunJob(t *testing.T) {
	onEveryHost(t, func(t *testing.T, h host) {
		h.cfg.Now = hasty()
		s := dial(t, h.cfg)
		out, err := s.Run(t.Context(), "mkdir", "-p", h.cfg.Jobs+"/job")
		must(t, err)
		must(t, out.Err())
		h.touch(t, s, "go")
		do(t, t.Context(), s, "job", h.until("go")).succeeds()
	})
}

// slowMv is mv as it is for the slower of two who remove the same job: the other is done, and the
// next job has begun.
const slowMv = `#!/bin/sh
if test "$(cat "$1/command")" = old; then
	rm -r "$1"
	mkdir "$1"
	echo new >"$1/command"
fi
PATH=$BEFORE exec mv "$@"
`

// Whoever removes a job late leaves the one that took its place.
func TestNextJobIsNotRemoved(t *testing.T) {
	bin := t.TempDir()
	executable.Write(t, filepath.Join(bin, "mv"), slowMv)
	t.Setenv("BEFORE", os.Getenv("PATH"))
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	cfg := startReal(t, []string{"sh", "-c"}).config()
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
		t.Errorf("left are %v: %v", all, err)
	}
}

// hasty is a clock that gains a second each time it is asked.
func hasty() func() time.Time {
	var mu sync.Mutex
	now := time.Unix(1_700_000_000, 0)
	return func() time.Time {
		mu.Lock()
		defer mu.Unlock()
		now = now.Add(time.Second)
		return now
	}
}

// Many begin the same job at once: it runs once.
func TestOneJobByEachName(t *testing.T) {
	onEveryHost(t, func(t *testing.T, h host) {
		s := dial(t, h.cfg)
		argv := []string{"sh", "-c", `echo x >>"$1"; until test -e "$2"; do sleep 0.01; done; echo over`, "sh", h.file("count"), h.file("go")}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var all []*doing
		for range 4 {
			all = append(all, do(t, ctx, s, "job", argv))
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
		for _, d := range all {
			<-d.ended
		}
	})
}

func TestHostThatStaysAwayIsGivenUp(t *testing.T) {
	r := startReal(t, []string{"sh", "-c"})
	relay := startRelay(t, r.addr)
	cfg := r.config()
	cfg.Addr, cfg.Patience = relay.addr, 20*time.Second
	cfg.Now = hasty()
	s := dial(t, cfg)
	d := do(t, t.Context(), s, "job", []string{"sh", "-c", `until test -e "$1"; do sleep 0.01; done`, "sh", filepath.Join(cfg.Jobs, "go")})
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

// A job goes on without its connection, and where it is a process of this machine it would go on
// without the test.
func TestNoJobOutlivesItsTest(t *testing.T) {
	environ := ""
	t.Run("host", func(t *testing.T) {
		r := startReal(t, []string{"sh", "-c"})
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
			t.Fatalf("the job does not go on: %v", err)
		}
	})
	if has, err := os.ReadFile(environ); err == nil && len(has) > 0 { // nothing: it is dead and not buried yet
		t.Errorf("it still runs: %s", environ)
	}
}
