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

// Environment variables of a child process, which the test binary becomes if childURL is set.
const (
	childURL  = "FLEETDB_TEST_URL"
	childName = "FLEETDB_TEST_NAME"

	childUpgrades = "FLEETDB_TEST_UPGRADES" // if set, the child dies during an upgrade of the schema
	childUpgraded = "all statements are executed"
)

// batchSize is the number of VMs that a writer adds in one transaction.
const batchSize = 200

// runChild adds VMs to the child's plan in batches until its input ends. It prints the number of batches after each
// one. It returns the exit code.
func runChild(url string) int {
	if os.Getenv(childUpgrades) != "" {
		fmt.Fprintln(os.Stderr, killDuringUpgrade(url))
		return 1
	}
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	err := addBatches(ctx, url, os.Getenv(childName))
	if err != nil && ctx.Err() == nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// killDuringUpgrade executes all statements of an upgrade, and kills its process before the commit.
func killDuringUpgrade(url string) error {
	d, err := openDatabase(Config{URL: url})
	if err != nil {
		return err
	}
	d.patience, d.changes = waitTimeout, append(slices.Clone(schemaChanges), nextChange(true))
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

func addBatches(ctx context.Context, url, plan string) error {
	r, err := Open(ctx, Config{URL: url})
	if err != nil {
		return err
	}
	defer r.Close()
	if _, err := r.Plans.Add(ctx, Plan{Name: plan}); err != nil {
		return err
	}
	have, err := r.Plans.Get(ctx, plan)
	for n := have.Counts[Queued] / batchSize; err == nil; n++ {
		all := someVMs(plan, (n+1)*batchSize)
		if err = r.VMs.Add(ctx, all[n*batchSize:]); err == nil {
			fmt.Println(n + 1)
		}
	}
	return err
}

// A writer is a running child process that adds VMs.
type writer struct {
	t       *testing.T
	cmd     *exec.Cmd
	stdin   io.Closer
	stdout  *bufio.Scanner
	batches int // last number of batches that it printed
}

func startWriter(t *testing.T, p *testDatabase, plan string) *writer {
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
	w := &writer{t: t, cmd: cmd, stdin: in, stdout: bufio.NewScanner(out)}
	t.Cleanup(func() { _ = cmd.Process.Kill() }) // an error if it has ended
	return w
}

// waitForBatches waits until the writer has added n batches.
func (w *writer) waitForBatches(n int) {
	w.t.Helper()
	for w.batches < n && w.stdout.Scan() {
		w.batches = ok(strconv.Atoi(strings.TrimSpace(w.stdout.Text())))(w.t)
	}
	if w.batches < n {
		w.t.Fatalf("the writer ended after %d batches, want %d: %v", w.batches, n, w.stdout.Err())
	}
}

func (w *writer) kill() {
	_ = w.cmd.Process.Kill() // an error if it has ended
	for w.stdout.Scan() {    // the rest of its output
		w.batches, _ = strconv.Atoi(w.stdout.Text()) // the last line may be incomplete
	}
	_ = w.cmd.Wait() // always an error, because of the signal
}

func (w *writer) end() {
	w.t.Helper()
	must(w.t, w.stdin.Close())
	for w.stdout.Scan() {
		w.batches = ok(strconv.Atoi(w.stdout.Text()))(w.t)
	}
	must(w.t, w.cmd.Wait())
}

// Two processes find an empty database, create its tables and write at the same time.
func TestTwoProcessesOnOneDatabase(t *testing.T) {
	onBoth(t, func(t *testing.T, p *testDatabase) {
		one, two := startWriter(t, p, "one"), startWriter(t, p, "two")
		one.waitForBatches(3)
		two.waitForBatches(3)
		one.end()
		two.end()
		r := p.open()
		vms := map[Key]VM{}
		followChanges(t, r, 0, vms)
		for _, plan := range ok(r.Plans.List(t.Context()))(t) {
			if n := plan.Counts[Queued]; n < 3*batchSize || n%batchSize != 0 {
				t.Errorf("plan %s has %d VMs, want at least 3 whole batches of %d", plan.Name, n, batchSize)
			}
		}
		if all := ok(r.VMs.List(t.Context(), Query{}))(t); len(all) != len(vms) {
			t.Errorf("a follower has %d VMs, want %d", len(vms), len(all))
		}
	})
}

// A writer that is killed leaves only complete transactions, among them all that were acknowledged.
func TestAWriterIsKilled(t *testing.T) {
	onBoth(t, func(t *testing.T, p *testDatabase) {
		r := p.open()
		rng := rand.New(rand.NewPCG(7, 7))
		for round := range 5 {
			w := startWriter(t, p, "p")
			w.waitForBatches(2*round + 1)
			<-time.After(time.Duration(rng.IntN(20)) * time.Millisecond) // during the next batch
			w.kill()
			var n int
			must(t, eventually(func() (bool, error) { // PostgreSQL notices the end of the process later
				n = ok(r.Plans.Get(t.Context(), "p"))(t).Counts[Queued]
				return n >= w.batches*batchSize, nil
			}))
			if n%batchSize != 0 {
				t.Fatalf("%d VMs, want a multiple of %d", n, batchSize)
			}
			must(t, r.Limits.Set(t.Context(), "x", int64(round))) // not blocked by the killed writer
		}
	})
}

func eventually(cond func() (bool, error)) error {
	for began := time.Now(); ; <-time.After(10 * time.Millisecond) {
		switch done, err := cond(); {
		case done || err != nil:
			return err
		case time.Since(began) > waitTimeout:
			return fmt.Errorf("the condition did not hold within %v", waitTimeout)
		}
	}
}

// Processes that start together open an empty database at the same time.
func TestEmptyDatabaseIsOpenedConcurrently(t *testing.T) {
	onBoth(t, func(t *testing.T, p *testDatabase) {
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
