package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/decamp/decamp/internal/fleetdb"
	"github.com/decamp/decamp/internal/fleetkey"
	"github.com/decamp/decamp/internal/lab"
)

// A workspace contains the files of the real program: the binary, a state directory, a
// folder for VMs, and the passwords of emulated hosts.
type workspace struct {
	dir      string   // folder that contains everything except the binary
	decamp   string   // path of the binary
	vms      string   // destination of VMs
	wrapped  []string // program and arguments to run decamp with, such as taskset; may be empty
	database string   // URL of the fleet database; if empty, a file in the state directory
	key      string   // file with the fleet key, for a database with a URL
}

// newWorkspace creates a workspace and builds decamp. The caller must remove it.
func (b *bench) newWorkspace(ctx context.Context) (*workspace, error) {
	dir, err := os.MkdirTemp(b.dir, "bed")
	if err != nil {
		return nil, err
	}
	if dir, err = filepath.Abs(dir); err != nil {
		return nil, err
	}
	d := &workspace{dir: dir, vms: filepath.Join(dir, "vms"), key: filepath.Join(dir, fleetkey.FileName)}
	if d.decamp, err = b.buildProgram(ctx); err != nil {
		d.remove()
		return nil, err
	}
	return d, os.Mkdir(d.vms, 0o755)
}

// buildProgram builds decamp from the current sources, once per run of this program.
func (b *bench) buildProgram(ctx context.Context) (string, error) {
	path, err := filepath.Abs(filepath.Join(b.dir, "decamp"))
	if err != nil || b.built {
		return path, err
	}
	out, err := exec.CommandContext(ctx, "go", "build", "-o", path, "./cmd/decamp").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("build decamp: %w: %s", err, lastLine(string(out)))
	}
	b.built = true
	return path, nil
}

// remove removes all files of the workspace.
func (d *workspace) remove() { os.RemoveAll(d.dir) }

// stateDir returns the state directory, which decamp creates.
func (d *workspace) stateDir() string { return filepath.Join(d.dir, "state") }

// databaseURL returns the URL of the fleet database.
func (d *workspace) databaseURL() string {
	if d.database != "" {
		return d.database
	}
	return "sqlite:" + filepath.Join(d.stateDir(), "fleet.db")
}

// openFleetDB opens the fleet database while decamp uses it.
func (d *workspace) openFleetDB(ctx context.Context) (*fleetdb.Database, error) {
	if err := os.MkdirAll(d.stateDir(), 0o700); err != nil {
		return nil, err
	}
	return fleetdb.Open(ctx, fleetdb.Config{URL: d.databaseURL()})
}

// moveSpec describes a plan with one emulated source.
type moveSpec struct {
	name string // name of the plan
	warm bool   // migrate running VMs
	vms  string // YAML of the plan's selection; empty selects all VMs
}

// writePlan writes a plan file and returns its path. The second reading of the source
// is off: the disks are smaller than a sample. Part trust measures its cost.
func (d *workspace) writePlan(at labFacts, scheme string, s moveSpec) (string, error) {
	password := filepath.Join(d.dir, s.name+".password")
	mode := "cold, transport: https"
	if s.warm {
		mode = "warm, transport: nfc" // the files of a VM that runs are locked
	}
	which := "select: \"!template\""
	if s.vms != "" {
		which = s.vms
	}
	text := fmt.Sprintf(`version: 1
name: %s
source:
  url: %s://%s@%s
  fingerprint: %q
  credentials: {file: %s}
defaults: {to: ["dir:%s"], mode: %s, spot: {off: true}}
%s
`, s.name, scheme, at.User, at.Addr, at.Fingerprint, password, d.vms, mode, which)
	path := filepath.Join(d.dir, s.name+".yaml")
	return path, errors.Join(os.WriteFile(password, []byte(at.Password+"\n"), 0o600), os.WriteFile(path, []byte(text), 0o644))
}

// program is a running decamp.
type program struct {
	cmd    *exec.Cmd    // process
	log    string       // file with its standard error
	began  time.Time    // time of the start
	waited func() error // waits for the end of the process; may be called repeatedly
	addr   string       // address of the API; empty if the program does not serve
}

// startProgram starts decamp with the state of the workspace. It calls told, which may
// be nil, with each line of the output.
func (d *workspace) startProgram(ctx context.Context, told func([]byte), args ...string) (*program, error) {
	args = append(args, "--state", d.stateDir())
	// A worker gets the URL of the database with --join.
	if d.database != "" && args[0] != "worker" {
		args = append(args, "--db", d.database)
	}
	if d.database != "" && (args[0] == "worker" || args[0] == "serve" || args[0] == "plan" && args[1] == "run") {
		if _, err := fleetkey.Ensure(d.key); err != nil {
			return nil, err
		}
		args = append(args, "--fleet-key", d.key)
	}
	// The wrapper, if any, starts decamp with its arguments.
	return d.startCommand(ctx, told, append(append(append([]string{}, d.wrapped...), d.decamp), args...))
}

// startCommand starts a program. It calls told, which may be nil, with each line of the
// output.
func (d *workspace) startCommand(ctx context.Context, told func([]byte), line []string) (*program, error) {
	cmd := exec.CommandContext(ctx, line[0], line[1:]...)
	p := &program{cmd: cmd, began: time.Now()}
	// Standard error goes to a file, whose end is part of error messages.
	log, err := os.CreateTemp(d.dir, "decamp-*.log")
	if err != nil {
		return nil, err
	}
	defer log.Close()
	p.log, cmd.Stderr = log.Name(), log
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	var reading sync.WaitGroup
	reading.Go(func() { eachLine(out, told) })
	p.waited = sync.OnceValue(func() error {
		// The output must be read completely before Wait closes the pipe.
		reading.Wait()
		if err := cmd.Wait(); err != nil {
			return fmt.Errorf("%s: %w: %s", strings.Join(line[:min(3, len(line))], " "), err, p.lastWords())
		}
		return nil
	})
	return p, nil
}

// eachLine calls told with each line of r until its end. told may be nil.
func eachLine(r io.Reader, told func([]byte)) {
	lines := bufio.NewReader(r)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return
		}
		if told != nil {
			told(line)
		}
	}
}

// lastWords returns the last line of the program's standard error, for messages.
func (p *program) lastWords() string {
	text, err := os.ReadFile(p.log)
	if err != nil {
		return ""
	}
	return lastLine(string(text))
}

// wait waits until the program has ended by itself. A nonzero exit status is an error.
func (p *program) wait() error { return p.waited() }

// stop interrupts the program like a user, and waits.
func (p *program) stop() {
	_ = p.cmd.Process.Signal(os.Interrupt) // fails if the process has ended
	_ = p.waited()                         // stopped: that is an error
}

// kill ends the program with SIGKILL, like a crash, and waits.
func (p *program) kill() {
	_ = p.cmd.Process.Kill()
	_ = p.waited()
}

// cpuSeconds returns the processor seconds that the program has used so far, or 0 if it
// has ended.
func (p *program) cpuSeconds() float64 { return processCPU(p.cmd.Process.Pid) }

// processCPU returns the processor seconds that a process has used so far; 0 if it does
// not exist.
func processCPU(pid int) float64 {
	taken, err := cpuOf(pid)
	if err != nil {
		return 0
	}
	return taken
}

// memoryBytes returns the current and the largest resident memory in bytes, or 0 if the
// program has ended.
func (p *program) memoryBytes() (now, peak int64) {
	status := fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid)
	return parseKiB(readField(status, "VmRSS")), parseKiB(readField(status, "VmHWM"))
}

// parseKiB converts a field of /proc such as "1024 kB" to bytes, or returns 0.
func parseKiB(s string) int64 {
	var n int64
	if _, err := fmt.Sscan(s, &n); err != nil {
		return 0
	}
	return n << 10
}

// coreShare measures which share of one core the program uses during span.
func (p *program) coreShare(ctx context.Context, span time.Duration) (float64, error) {
	before, err := cpuOf(p.cmd.Process.Pid)
	if err != nil {
		return 0, err
	}
	began := time.Now()
	if err := pauseFor(ctx, span); err != nil {
		return 0, err
	}
	if p.hasEnded() {
		return 0, fmt.Errorf("it ended while it was measured: %w", p.wait())
	}
	after, err := cpuOf(p.cmd.Process.Pid)
	return (after - before) / time.Since(began).Seconds(), err
}

// pauseFor waits for a time. It returns the error of ctx if ctx ends first.
func pauseFor(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// waitUntil polls until is returns true. It fails if the program ends first, or after
// patience. what describes the condition in errors.
func (p *program) waitUntil(ctx context.Context, patience time.Duration, what string, is func() (bool, error)) error {
	for end := time.Now().Add(patience); ; {
		ok, err := is()
		switch {
		case err != nil:
			return err
		case ok:
			return nil
		case time.Now().After(end):
			return fmt.Errorf("%s: not after %v: %s", what, patience, p.lastWords())
		case p.hasEnded():
			return fmt.Errorf("%s: %w", what, p.wait())
		}
		if err := pauseFor(ctx, 100*time.Millisecond); err != nil {
			return err
		}
	}
}

// hasEnded reports whether the process has ended.
func (p *program) hasEnded() bool {
	state := readField(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid), "State")
	return state == "" || state[0] == 'Z' || p.cmd.Process.Signal(syscall.Signal(0)) != nil
}

// vmTold is a line of plan run --json that contains a VM.
type vmTold struct {
	VM *fleetdb.VM `json:"vm"` // VM of the line; nil for other lines
}

// vmLines returns a function for lines of plan run --json, which calls each with the
// VMs.
func vmLines(each func(fleetdb.VM)) func([]byte) {
	return func(line []byte) {
		var t vmTold
		if json.Unmarshal(line, &t) == nil && t.VM != nil {
			each(*t.VM)
		}
	}
}

// vmsOf returns n VMs like the given one, which differ in name, host and contents. With
// 0 hosts, they have none.
func vmsOf(n, hosts int, like lab.VM) []lab.VM {
	vms := make([]lab.VM, n)
	for i := range vms {
		vm := like
		vm.Name = fmt.Sprintf("vm%05d", i)
		if hosts > 0 {
			vm.Host = hostOf(i % hosts)
		}
		vm.Disks = nil
		for k, d := range like.Disks {
			d.Seed = uint64(i*len(like.Disks) + k + 1)
			vm.Disks = append(vm.Disks, d)
		}
		vms[i] = vm
	}
	return vms
}

// hostOf returns the name of host i.
func hostOf(i int) string { return fmt.Sprintf("esx%02d", i) }

// vcenterOf returns the configuration of an emulated vCenter with this number of hosts.
func vcenterOf(hosts int, vms []lab.VM) lab.Config {
	dc := lab.Datacenter{Name: "DC1"}
	for i := range hosts {
		dc.Hosts = append(dc.Hosts, hostOf(i))
	}
	return lab.Config{VCenter: true, Datacenters: []lab.Datacenter{dc}, VMs: vms}
}

// runProgram runs decamp until it ends.
func (d *workspace) runProgram(ctx context.Context, args ...string) error {
	p, err := d.startProgram(ctx, nil, args...)
	if err != nil {
		return err
	}
	return p.wait()
}

// startServe starts decamp serve and waits until it serves.
func (d *workspace) startServe(ctx context.Context, more ...string) (*program, error) {
	serving := make(chan string, 1)
	p, err := d.startProgram(ctx, func(line []byte) {
		var t struct{ Serving string }
		if json.Unmarshal(line, &t) == nil && t.Serving != "" {
			serving <- t.Serving
		}
	}, append([]string{"serve", "--plain", "--listen", "127.0.0.1:0", "--json"}, more...)...)
	if err != nil {
		return nil, err
	}
	err = p.waitUntil(ctx, time.Minute, "decamp serves", func() (bool, error) {
		select {
		// One line of the output contains the address.
		case p.addr = <-serving:
			return true, nil
		default:
			return false, nil
		}
	})
	if err != nil {
		p.stop()
		return nil, err
	}
	return p, nil
}

// waitPlans waits until this number of plans has ended. It fails if a VM of them is not
// published.
func (d *workspace) waitPlans(ctx context.Context, p *program, plans int) error {
	r, err := d.openFleetDB(ctx)
	if err != nil {
		return err
	}
	defer r.Close()
	return p.waitUntil(ctx, endedBy, "all plans end", func() (bool, error) {
		all, err := r.Plans.List(ctx)
		over := 0
		for _, pl := range all {
			if pl.State != fleetdb.PlanEnded {
				continue
			}
			// A VM that failed would make the figure meaningless.
			if over++; pl.Counts[fleetdb.Done] != sumCounts(pl.Counts) {
				return false, fmt.Errorf("plan %s: %v", pl.Name, pl.Counts)
			}
		}
		return over == plans, err
	})
}

// endedBy limits the duration of plans.
const endedBy = 10 * time.Minute

// sumCounts returns the number of VMs in all states.
func sumCounts(n fleetdb.Counts) (all int) {
	for _, each := range n {
		all += each
	}
	return all
}
