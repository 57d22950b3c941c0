package fleet

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/fleetdb"
	"github.com/decamp/decamp/internal/sched"
)

// A child is a node in a process of its own, to be killed and frozen.

// childEnv has the test binary be a child; what it is to do is its value.
const childEnv = "DECAMP_FLEET_TEST_CHILD"

type childConfig struct {
	URL    string
	Name   string
	Folder string // of the images, shared by all children
	VMs    int
	TTL    time.Duration
}

func TestMain(m *testing.M) {
	if text := os.Getenv(childEnv); text != "" {
		var c childConfig
		if err := json.Unmarshal([]byte(text), &c); err != nil {
			panic(err)
		}
		fmt.Fprintln(os.Stderr, c.run())
		os.Exit(1)
	}
	os.Exit(m.Run())
}

func (c childConfig) run() error {
	ctx := context.Background()
	var r *fleetdb.Database
	for {
		var err error
		if r, err = fleetdb.Open(ctx, fleetdb.Config{URL: c.URL}); err == nil {
			break
		}
		if !isTransient(err) {
			return err
		}
		time.Sleep(c.TTL / 10)
	}
	return New(Config{
		Database: r, Mover: writer{c}, Schedule: true, Drive: true, TTL: c.TTL,
		Worker: fleetdb.Worker{Name: c.Name, Offers: map[string]string{"/srv": "shared"}, VMs: 10},
	}).Run(ctx)
}

// pieces is of how many an image is made.
const pieces = 20

// A writer makes images: files of so many lines, each with its number and the epoch of who
// wrote it, under a lock, published by a name that must not be there.
type writer struct{ childConfig }

func (writer) Admit(context.Context, fleetdb.Plan) error { return nil }

func (w writer) List(_ context.Context, _ fleetdb.Plan, tell func([]fleetdb.VM) error) error {
	for vms := vmsOn(w.VMs, 2); len(vms) > 0; vms = vms[min(10, len(vms)):] {
		if err := tell(vms[:min(10, len(vms))]); err != nil {
			return err
		}
	}
	return nil
}

func (w writer) Capacities(context.Context, fleetdb.Plan) (map[string]int64, error) {
	return map[string]int64{"host:*/vms": 6}, nil
}

func (w writer) Needs(vm fleetdb.VM, _ fleetdb.TransferKind) ([]sched.Need, time.Duration) {
	return []sched.Need{{Resource: "host:" + vm.Host + "/vms", Weight: 1}}, time.Second
}

func (w writer) SendCommand(fleetdb.VM, fleetdb.Command) error    { return nil }
func (w writer) Undo(context.Context, fleetdb.VM) error           { return nil }
func (w writer) Rehearse(fleetdb.VM, fleetdb.Rehearsal) error     { return nil }
func (w writer) TakeBack(fleetdb.VM, string) error                { return nil }
func (w writer) Hook(context.Context, fleetdb.Plan, string) error { return nil }

func (w writer) Move(ctx context.Context, vm fleetdb.VM, d Driver) error {
	if err := d.Storage([]string{"shared"}); err != nil {
		return err
	}
	back, err := d.RequestSlot(ctx, fleetdb.First, 0)
	if err != nil {
		return err
	}
	defer back()
	done := filepath.Join(w.Folder, vm.VM+".done")
	if _, err := os.Stat(done); err == nil {
		return nil // it was published, and nobody could say so
	}
	f, err := os.OpenFile(filepath.Join(w.Folder, vm.VM), os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return fault.New(fault.Transient, "another process has the image of %s", vm.VM)
	}
	if err := w.write(ctx, f, d); err != nil {
		return err
	}
	return os.Link(f.Name(), done)
}

// write adds what the image lacks.
func (w writer) write(ctx context.Context, f *os.File, d Driver) error {
	text, err := os.ReadFile(f.Name())
	if err != nil {
		return err
	}
	for n := strings.Count(string(text), "\n"); n < pieces; n++ {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if _, err := fmt.Fprintf(f, "%d %d\n", n, d.Epoch()); err != nil {
			return err
		}
		d.Progress(fleetdb.Progress{Total: pieces, Done: int64(n + 1)})
		time.Sleep(5 * time.Millisecond) // as a transfer takes its time
	}
	return nil
}

// children are processes over one database.
type children struct {
	t     *testing.T
	of    childConfig
	alive map[string]*exec.Cmd
}

func (c *children) start(name string) {
	c.t.Helper()
	cfg := c.of
	cfg.Name = name
	text, err := json.Marshal(cfg)
	if err != nil {
		c.t.Fatal(err)
	}
	cmd := exec.Command(os.Args[0], "-test.run=^$")
	cmd.Env = append(os.Environ(), childEnv+"="+string(text))
	cmd.Stderr = c.t.Output()
	if err := cmd.Start(); err != nil {
		c.t.Fatal(err)
	}
	c.alive[name] = cmd
}

func (c *children) signal(name string, s syscall.Signal) {
	c.t.Helper()
	if err := c.alive[name].Process.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
		c.t.Fatal(err)
	}
}

// kill is kill -9.
func (c *children) kill(name string) {
	c.t.Helper()
	c.signal(name, syscall.SIGKILL)
	_ = c.alive[name].Wait() // it was killed
	delete(c.alive, name)
}

func (c *children) killAll() {
	for name := range c.alive {
		c.kill(name)
	}
}

// check holds the images against what they must be: each piece once, in order, by epochs that
// only grow.
func (c *children) check() {
	c.t.Helper()
	for i := range c.of.VMs {
		name := filepath.Join(c.of.Folder, fmt.Sprintf("vm-%d.done", i+1))
		text, err := os.ReadFile(name)
		if errors.Is(err, fs.ErrNotExist) {
			c.t.Errorf("vm-%d was not published", i+1)
			continue
		}
		last := int64(0)
		for n, line := range strings.Split(strings.TrimSpace(string(text)), "\n") {
			var piece int
			var epoch int64
			if _, err := fmt.Sscanf(line, "%d %d", &piece, &epoch); err != nil || piece != n || epoch < last || n >= pieces {
				c.t.Errorf("line %d of %s is %q, behind epoch %d", n+1, name, line, last)
				break
			}
			last = epoch
		}
	}
}
