package mover

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"github.com/decamp/decamp/internal/assemble"
	"github.com/decamp/decamp/internal/childenv"
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/fleet"
	"github.com/decamp/decamp/internal/fleetdb"
	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/planfile"
)

// Hook runs a hook of a plan; when is "pre" or "post". It implements fleet.Mover.
func (m *Mover) Hook(ctx context.Context, p fleetdb.Plan, when string) error {
	s, err := m.sourceOf(ctx, p)
	if err != nil {
		return err
	}
	hook := s.file.Hooks.Pre
	if when == "post" {
		hook = s.file.Hooks.Post
	}
	return m.runHook(ctx, s, hook, []string{"DECAMP_PLAN=" + p.Name, "DECAMP_WHEN=" + when})
}

// runPreHook runs the hook before a VM, unless the database has a record that it was run.
func (m *Mover) runPreHook(ctx context.Context, s *planSource, hook planfile.Hook, row fleetdb.VM, vm *inventory.VM) error {
	if len(hook.Command) == 0 {
		return nil
	}
	return fleet.VMHooks{Records: m.database.Records, VM: row.Key}.RunPre(ctx, func() error { return m.runVMHook(ctx, s, hook, row, vm, hookPre, nil) })
}

// runPostHook runs the hook after a VM, unless it was run. ended is the result of the VM.
func (m *Mover) runPostHook(ctx context.Context, s *planSource, hook planfile.Hook, row fleetdb.VM, vm *inventory.VM, ended error) error {
	if len(hook.Command) == 0 {
		return nil
	}
	return fleet.VMHooks{Records: m.database.Records, VM: row.Key}.RunPost(ctx, ended == nil, func() error { return m.runVMHook(ctx, s, hook, row, vm, hookPost, ended) })
}

// runVMHook runs a hook of one VM, with variables that describe the VM. ended is nil before the VM, and
// after its success.
func (m *Mover) runVMHook(ctx context.Context, s *planSource, hook planfile.Hook, row fleetdb.VM, vm *inventory.VM, when string, ended error) error {
	result := ""
	switch {
	case when == hookPost && ended != nil:
		result = fault.KindOf(ended).String()
	case when == hookPost:
		result = "done"
	}
	return m.runHook(ctx, s, hook, []string{
		"DECAMP_PLAN=" + row.Plan, "DECAMP_WHEN=" + when, "DECAMP_RESULT=" + result, "DECAMP_VM=" + vm.Name,
		"DECAMP_REF=" + string(vm.Ref), "DECAMP_UUID=" + vm.UUID, "DECAMP_RUN=" + strings.Join(row.Runs, " "), "DECAMP_TO=" + strings.Join(row.To, " "),
	})
}

const (
	hookPre  = "pre"  // before a plan or a VM
	hookPost = "post" // after a plan or a VM
)

// runHook runs a command in the folder of the plan. Its environment has vars and the common variables
// of package childenv only. After the timeout the whole process group is killed.
func (m *Mover) runHook(ctx context.Context, s *planSource, hook planfile.Hook, vars []string) error {
	if err := m.allowHooks(s, planfile.Hooks{Pre: hook}); err != nil {
		return err
	}
	if len(hook.Command) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, time.Duration(hook.Timeout))
	defer cancel()
	var args []string
	for _, a := range hook.Command[1:] {
		args = append(args, string(a))
	}
	cmd := exec.CommandContext(ctx, string(hook.Command[0]), args...)
	cmd.Dir, cmd.Env = s.folder, vars
	for _, name := range childenv.Common {
		if v := m.a.Env(name); v != "" {
			cmd.Env = append(cmd.Env, name+"="+v)
		}
	}
	said := &assemble.OutputTail{}
	cmd.Stdout, cmd.Stderr = said, said
	// a separate process group, so that the kill also reaches processes that the hook started
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = hookOutputTimeout
	err := cmd.Run()
	m.a.Log.Info("hook", "plan", s.name, "command", hook.Command[0], "vars", vars, "output", said, "err", err)
	return hookError(ctx, hook, err, said.String())
}

// hookOutputTimeout is how long the output of processes that a hook started is read after the hook has
// ended.
const hookOutputTimeout = 5 * time.Second

// hookError converts the result of a command to an error with the end of its output. A hook that
// succeeded but left a process running is not an error.
func hookError(ctx context.Context, hook planfile.Hook, err error, said string) error {
	switch {
	case err == nil || errors.Is(err, exec.ErrWaitDelay): // it succeeded, and left a process running
		return nil
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		err = fmt.Errorf("it exceeded its timeout of %v", time.Duration(hook.Timeout))
	case ctx.Err() != nil:
		return ctx.Err()
	}
	if said != "" {
		err = fmt.Errorf("%w: %s", err, fault.OneLine(said))
	}
	return fault.New(fault.Conflict, "hook %s: %w", hook.Command[0], err).WithHint("correct the cause, then run: decamp retry")
}
