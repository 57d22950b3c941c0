package pve

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// startGuest starts QEMU with the guest's options in a task. If the cluster's HA manager controls the
// guest, the task ends before the start, and its result is not reported.
func startGuest(c *call) (any, error) {
	g, err := c.findGuest("VM.PowerMgmt")
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	ha := c.faults.HA
	c.mu.Unlock()
	if ha { // the HA manager starts the guest
		return c.startTask("hastart", c.args[0], func(_ context.Context, t *task) error {
			t.logf("Requesting HA start for VM %d", g.vmid)
			c.work.Go(func() { _ = guestStart{c.Server}.start(&task{}, g) }) // the result is not reported
			return nil
		}), nil
	}
	return c.startTask("qmstart", c.args[0], func(_ context.Context, t *task) error { return guestStart{c.Server}.start(t, g) }), nil
}

// guestStart has the methods that start guests.
type guestStart struct{ *Server }

// start checks and boots a guest. It fails if another change of the guest is in progress.
func (s guestStart) start(t *task, g *guest) error {
	if !g.busy.TryLock() {
		return errLocked(g.vmid)
	}
	defer g.busy.Unlock()
	if t.broken != nil { // Faults.Tasks
		return t.broken
	}
	args, err := s.checkStart(t, g)
	if err != nil {
		return err
	}
	if err := s.bootQEMU(t, g, args); err != nil {
		return fmt.Errorf("start failed: %w", err)
	}
	return nil
}

// checkStart returns the command line of QEMU, or the error of a guest that cannot start: locked,
// running, on an offline storage, without KVM, bridge or memory.
func (s guestStart) checkStart(t *task, g *guest) ([]string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if lock := g.config["lock"]; lock != "" { // such as "create"
		return nil, fmt.Errorf("VM is locked (%s)", lock)
	}
	if g.qemu != nil {
		return nil, fmt.Errorf("VM %d already running", g.vmid)
	}
	for key, value := range g.config {
		id, _, _ := strings.Cut(parseDrive(value).volume, ":")
		if driveKey.MatchString(key) && slices.Contains(s.faults.Offline, id) {
			return nil, fmt.Errorf("storage '%s' is not online", id)
		}
	}
	if s.faults.NoKVM && g.config["kvm"] != "0" {
		return nil, errors.New("KVM virtualisation configured, but not available. Either disable in VM configuration or enable in BIOS")
	}
	args, err := s.commandLine(g)
	if err != nil {
		return nil, err
	}
	if err := s.checkBridges(t, g); err != nil {
		return nil, err
	}
	if memory, _ := strconv.Atoi(g.config["memory"]); s.faults.FreeMiB > 0 && memory > s.faults.FreeMiB {
		t.logf("kvm: cannot set up guest memory 'pc.ram': Cannot allocate memory")
		return nil, errors.New("start failed: QEMU exited with code 1")
	}
	return args, nil
}

// checkBridges fails if a bridge is missing. As with QEMU, the cause is in the task's log and not in
// the error.
func (s guestStart) checkBridges(t *task, g *guest) error {
	for _, name := range sortedKeys(g.config) {
		m := bridgeOf.FindStringSubmatch(g.config[name])
		if !strings.HasPrefix(name, "net") || m == nil {
			continue
		}
		if _, ok := s.findNetwork(m[1]); !ok {
			t.logf("bridge '%s' does not exist", m[1])
			t.logf("kvm: -netdev type=tap,id=%s,ifname=tap%di%s,script=/usr/libexec/qemu-server/pve-bridge,downscript=/usr/libexec/qemu-server/pve-bridgedown: "+
				"network script /usr/libexec/qemu-server/pve-bridge failed with status 512", name, g.vmid, strings.TrimPrefix(name, "net"))
			return errors.New("start failed: QEMU exited with code 1")
		}
	}
	return nil
}

// bootQEMU starts QEMU and returns when its monitor responds or QEMU has ended. QEMU runs until the
// guest is switched off or the node is closed.
func (s guestStart) bootQEMU(t *task, g *guest, args []string) error {
	output, err := os.Create(filepath.Join(s.config.Dir, "qemu-"+strconv.Itoa(g.vmid)+".log"))
	if err != nil {
		return err
	}
	defer output.Close() // QEMU has a duplicate
	cmd := exec.CommandContext(s.alive, "qemu-system-x86_64", append(args, "-qmp", "stdio")...)
	cmd.Args[0] = "kvm" // name of QEMU on a node, in its messages
	cmd.Stderr = output
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	ask, errAsk := cmd.StdinPipe()
	monitor, errMonitor := cmd.StdoutPipe()
	if err := cmp.Or(errAsk, errMonitor); err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	s.mu.Lock()
	dies := s.faults.Dies
	s.mu.Unlock()
	_, _ = io.WriteString(ask, `{"execute": "qmp_capabilities"}`+"\n") // fails if QEMU has ended
	up := isUp(monitor)
	if up && dies { // Faults.Dies
		_ = cmd.Process.Kill()
	}
	if !up || dies {
		_ = cmd.Wait() // the error contains its output and exit code
		return startError(t, cmd, output.Name(), up)
	}
	off := make(chan struct{})
	s.mu.Lock()
	g.qemu, g.off = cmd, off
	s.mu.Unlock()
	s.work.Go(func() {
		_, _ = io.Copy(io.Discard, monitor) // Wait closes it
		_ = cmd.Wait()                      // reports the kill that ended it
		s.mu.Lock()
		defer s.mu.Unlock()
		g.qemu = nil
		close(off)
	})
	return nil
}

// SwitchOff ends a guest's QEMU, as a shutdown from inside does, and waits for its end. A guest that is
// off stays off.
func (s *Server) SwitchOff(vmid int) {
	s.mu.Lock()
	g := s.guests[vmid]
	if g == nil || g.qemu == nil {
		s.mu.Unlock()
		return
	}
	_ = g.qemu.Process.Kill() // fails if it has ended
	off := g.off
	s.mu.Unlock()
	<-off
}

// isUp waits for QEMU's first response on its monitor. It returns false if QEMU ends before.
func isUp(monitor io.Reader) bool {
	for r := bufio.NewReader(monitor); ; {
		line, err := r.ReadString('\n')
		if err != nil {
			return false
		}
		if strings.Contains(line, `"return"`) {
			return true
		}
	}
}

// startError copies QEMU's messages from the file output to the task's log and returns an error with
// the exit code. It returns nil if the guest was up before it ended.
func startError(t *task, cmd *exec.Cmd, output string, up bool) error {
	if up {
		return nil
	}
	words, _ := os.ReadFile(output)
	for line := range strings.Lines(string(words)) {
		t.logf("%s", strings.TrimSpace(line))
	}
	return fmt.Errorf("QEMU exited with code %d", cmd.ProcessState.ExitCode())
}

// stopGuest kills a guest's QEMU in a task. A guest that is off is not an error.
func stopGuest(c *call) (any, error) {
	g, err := c.findGuest("VM.PowerMgmt")
	if err != nil {
		return nil, err
	}
	return c.startTask("qmstop", c.args[0], func(context.Context, *task) error {
		c.mu.Lock()
		defer c.mu.Unlock()
		if g.qemu == nil {
			return nil
		}
		return g.qemu.Process.Kill()
	}), nil
}
