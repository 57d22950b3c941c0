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

// A child is a node in a separate process, which a test kills or suspends.

// childEnv is the environment variable that makes the test binary a child. Its value is a childConfig in JSON.
const childEnv = "DECAMP_FLEET_TEST_CHILD"

type childConfig struct {
	URL    string
	Name   string
	Folder string // folder of the images, shared by all children
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
		Database: r, Mover: imageMover{c}, Schedule: true, Drive: true, TTL: c.TTL,
		Worker: fleetdb.Worker{Name: c.Name, Offers: map[string]string{"/srv": "shared"}, VMs: 10},
	}).Run(ctx)
}

// pieces is the number of lines in an image.
const pieces = 20

// An imageMover writes images. An image is a file of lines, each with its number and the epoch of its
// writer. A writer locks the file, and publishes it under a name that must not exist.
type imageMover struct{ childConfig }

func (imageMover) Admit(context.Context, fleetdb.Plan) error { return nil }

func (w imageMover) List(_ context.Context, _ fleetdb.Plan, found func([]fleetdb.VM) error) error {
	for vms := vmsOn(w.VMs, 2); len(vms) > 0; vms = vms[min(10, len(vms)):] {
		if err := found(vms[:min(10, len(vms))]); err != nil {
			return err
		}
	}
	return nil
}

func (w imageMover) Capacities(context.Context, fleetdb.Plan) (map[string]int64, error) {
	return map[string]int64{"host:*/vms": 6}, nil
}

func (w imageMover) Needs(vm fleetdb.VM, _ fleetdb.TransferKind) ([]sched.Need, time.Duration) {
	return []sched.Need{{Resource: "host:" + vm.Host + "/vms", Weight: 1}}, time.Second
}

func (w imageMover) SendCommand(fleetdb.VM, fleetdb.Command) error    { return nil }
func (w imageMover) Undo(context.Context, fleetdb.VM) error           { return nil }
func (w imageMover) Rehearse(fleetdb.VM, fleetdb.Rehearsal) error     { return nil }
func (w imageMover) TakeBack(fleetdb.VM, string) error                { return nil }
func (w imageMover) Hook(context.Context, fleetdb.Plan, string) error { return nil }

func (w imageMover) Move(ctx context.Context, vm fleetdb.VM, d Driver) error {
	if err := d.Storage([]string{"shared"}); err != nil {
		return err
	}
	giveBack, err := d.RequestSlot(ctx, fleetdb.First, 0)
	if err != nil {
		return err
	}
	defer giveBack()
	done := filepath.Join(w.Folder, vm.VM+".done")
	if _, err := os.Stat(done); err == nil {
		return nil // published, but not recorded
	}
	f, err := os.OpenFile(filepath.Join(w.Folder, vm.VM), os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return fault.New(fault.Transient, "another process has the image of %s", vm.VM)
	}
	if err := w.addPieces(ctx, f, d); err != nil {
		return err
	}
	return os.Link(f.Name(), done)
}

// addPieces adds the missing lines to the image.
func (w imageMover) addPieces(ctx context.Context, f *os.File, d Driver) error {
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
		time.Sleep(5 * time.Millisecond) // the duration of a transfer
	}
	return nil
}

// children are processes that use one database.
type children struct {
	t      *testing.T
	config childConfig
	alive  map[string]*exec.Cmd
}

func (c *children) start(name string) {
	c.t.Helper()
	cfg := c.config
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

// kill kills a child by SIGKILL.
func (c *children) kill(name string) {
	c.t.Helper()
	c.signal(name, syscall.SIGKILL)
	_ = c.alive[name].Wait() // always an error after the kill
	delete(c.alive, name)
}

func (c *children) killAll() {
	for name := range c.alive {
		c.kill(name)
	}
}

// checkImages checks that each image has each line once and in order, and that the epochs do not decrease.
func (c *children) checkImages() {
	c.t.Helper()
	for i := range c.config.VMs {
		name := filepath.Join(c.config.Folder, fmt.Sprintf("vm-%d.done", i+1))
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
				c.t.Errorf("line %d of %s is %q after epoch %d", n+1, name, line, last)
				break
			}
			last = epoch
		}
	}
}
