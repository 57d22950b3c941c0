package pve

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
)

// startGuest starts QEMU from the guest's options, and with nothing else.
func startGuest(c *call) (any, error) {
	g, err := c.find("VM.PowerMgmt")
	if err != nil {
		return nil, err
	}
	return c.fork("qmstart", c.args[0], func(ctx context.Context, t *task) error {
		if !g.busy.TryLock() {
			return errLocked(g.vmid)
		}
		defer g.busy.Unlock()
		return c.boot(g)
	}), nil
}

// boot runs QEMU until the guest is off, is stopped, or the node ends.
func (s *Server) boot(g *guest) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if g.qemu != nil {
		return errors.New("VM " + strconv.Itoa(g.vmid) + " already running")
	}
	args, err := s.commandLine(g)
	if err != nil {
		return err
	}
	said, err := os.Create(filepath.Join(s.config.Dir, "qemu-"+strconv.Itoa(g.vmid)+".log"))
	if err != nil {
		return err
	}
	defer said.Close() // QEMU has its own
	cmd := exec.CommandContext(s.alive, "qemu-system-x86_64", args...)
	cmd.Stdout, cmd.Stderr = said, said
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		return err
	}
	g.qemu = cmd
	s.work.Go(func() {
		_ = cmd.Wait() // being killed is how it ends
		s.mu.Lock()
		defer s.mu.Unlock()
		g.qemu = nil
	})
	return nil
}

// stopGuest switches a guest off.
func stopGuest(c *call) (any, error) {
	g, err := c.find("VM.PowerMgmt")
	if err != nil {
		return nil, err
	}
	return c.fork("qmstop", c.args[0], func(context.Context, *task) error {
		c.mu.Lock()
		defer c.mu.Unlock()
		if g.qemu == nil {
			return nil
		}
		return g.qemu.Process.Kill()
	}), nil
}
