package fleetdb

import (
	"bufio"
	"context"
	"database/sql"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// The environment of a process that is not the test but a writer beside it.
const (
	childURL  = "FLEETDB_TEST_URL"
	childName = "FLEETDB_TEST_NAME"

	childUpgrades = "FLEETDB_TEST_UPGRADES" // the process dies amid an upgrade of the schema
	childUpgraded = "all statements are executed"
)

// herd is how many VMs a writer adds in one transaction.
const herd = 200

// child adds VMs to a plan of its own, herd by herd, and says so after each, until its input
// ends.
func child(url string) int {
	if os.Getenv(childUpgrades) != "" {
		fmt.Fprintln(os.Stderr, dieUpgrading(url))
		return 1
	}
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	err := addHerds(ctx, url, os.Getenv(childName))
	if err != nil && ctx.Err() == nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// dieUpgrading executes all statements of an upgrade, and kills its process before the commit.
func dieUpgrading(url string) error {
	d, err := openDatabase(Config{URL: url})
	if err != nil {
		return err
	}
	d.patience, d.changes = patient, append(slices.Clone(schemaChanges), nextChange(true))
	return d.runTx(context.Background(), d.durable, nil, func(ctx context.Context, t *sql.Tx) error {
		if _, err := d.kind.lockAndFind(ctx, t); err != nil {
			return err
		}
		if err := d.upgradeSchema(ctx, t); err != nil {
			return err
		}
		fmt.Fprintln(os.Stderr, childUpgraded)
		return syscall.Kill(os.Getpid(), syscall.SIGKILL)
	})
}

func addHerds(ctx context.Context, url, plan string) error {
	r, err := Open(ctx, Config{URL: url})
	if err != nil {
		return err
	}
	defer r.Close()
	if _, err := r.Plans.Add(ctx, Plan{Name: plan}); err != nil {
		return err
	}
	have, err := r.Plans.Get(ctx, plan)
	for n := have.Counts[Queued] / herd; err == nil; n++ {
		all := someVMs(plan, (n+1)*herd)
		if err = r.VMs.Add(ctx, all[n*herd:]); err == nil {
			fmt.Println(n + 1)
		}
	}
	return err
}

// writer is a child under way.
type writer struct {
	t     *testing.T
	cmd   *exec.Cmd
	stdin io.Closer
	herds *bufio.Scanner
	said  int
}

func startWriter(t *testing.T, p *place, plan string) *writer {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childURL+"="+p.url, childName+"="+plan)
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	in, err := cmd.StdinPipe()
	must(t, err)
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	w := &writer{t: t, cmd: cmd, stdin: in, herds: bufio.NewScanner(out)}
	t.Cleanup(func() { _ = cmd.Process.Kill() }) // it may have ended
	return w
}

// until reads what the writer says until it has added so many herds.
func (w *writer) until(herds int) {
	w.t.Helper()
	for w.said < herds && w.herds.Scan() {
		w.said = ok(strconv.Atoi(strings.TrimSpace(w.herds.Text())))(w.t)
	}
	if w.said < herds {
		w.t.Fatalf("the writer ended after %d herds: %v", w.said, w.herds.Err())
	}
}

func (w *writer) kill() {
	_ = w.cmd.Process.Kill() // it may have ended
	for w.herds.Scan() {     // what it said before
		w.said, _ = strconv.Atoi(w.herds.Text()) // the last line may be cut
	}
	_ = w.cmd.Wait() // by a signal: that is an error
}

func (w *writer) end() {
	w.t.Helper()
	must(w.t, w.stdin.Close())
	for w.herds.Scan() {
		w.said = ok(strconv.Atoi(w.herds.Text()))(w.t)
	}
	must(w.t, w.cmd.Wait())
}

// Two processes find no database, make it both, and write at once.
func TestTwoProcessesOnOneDatabase(t *testing.T) {
	onBoth(t, func(t *testing.T, p *place) {
		one, two := startWriter(t, p, "one"), startWriter(t, p, "two")
		one.until(3)
		two.until(3)
		one.end()
		two.end()
		r := p.open()
		vms := map[Key]VM{}
		follow(t, r, 0, vms)
		for _, plan := range ok(r.Plans.List(t.Context()))(t) {
			if n := plan.Counts[Queued]; n < 3*herd || n%herd != 0 {
				t.Errorf("plan %s has %d VMs", plan.Name, n)
			}
		}
		if all := ok(r.VMs.List(t.Context(), Query{}))(t); len(all) != len(vms) {
			t.Errorf("a follower has %d VMs of %d", len(vms), len(all))
		}
	})
}

// A writer that is killed leaves whole transactions, and all that it was told it had.
func TestAWriterIsKilled(t *testing.T) {
	onBoth(t, func(t *testing.T, p *place) {
		r := p.open()
		rng := rand.New(rand.NewPCG(7, 7))
		for round := range 5 {
			w := startWriter(t, p, "p")
			w.until(2*round + 1)
			<-time.After(time.Duration(rng.IntN(20)) * time.Millisecond) // somewhere amid the next one
			w.kill()
			var n int
			must(t, eventually(func() (bool, error) { // PostgreSQL takes a moment to see it
				n = ok(r.Plans.Get(t.Context(), "p"))(t).Counts[Queued]
				return n >= w.said*herd, nil
			}))
			if n%herd != 0 {
				t.Fatalf("%d VMs are no whole herds", n)
			}
			must(t, r.Limits.Set(t.Context(), "x", int64(round))) // nobody holds it up
		}
	})
}

func eventually(is func() (bool, error)) error {
	for began := time.Now(); ; <-time.After(10 * time.Millisecond) {
		switch done, err := is(); {
		case done || err != nil:
			return err
		case time.Since(began) > patient:
			return fmt.Errorf("it did not happen within %v", patient)
		}
	}
}

// At once is what processes that start together do.
func TestManyOpenAFreshDatabaseAtOnce(t *testing.T) {
	onBoth(t, func(t *testing.T, p *place) {
		opened := make(chan error, writers)
		for range writers {
			go func() {
				r, err := Open(t.Context(), Config{URL: p.url})
				if err == nil {
					err = r.Close()
				}
				opened <- err
			}()
		}
		for range writers {
			if err := <-opened; err != nil {
				t.Error(err)
			}
		}
	})
}
