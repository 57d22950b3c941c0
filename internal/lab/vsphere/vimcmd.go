package vsphere

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/soap"
	"github.com/vmware/govmomi/vim25/types"

	"github.com/decamp/decamp/internal/lab/shell"
)

// vimCmd implements vim-cmd: the list of VMs, the SSH service, and the commands for one VM.
//
// vim-cmd calls the host's agent locally, so that calls succeed that the licence forbids to the API.
// The output is that of published transcripts. The exit status after failures is not documented
// (ghettoVCB, its oldest user, ignores it).
func (h *shellHost) vimCmd(c *shell.Call) int {
	if len(c.Args) < 2 {
		return 1
	}
	name := strings.TrimPrefix(c.Args[1], "/")
	h.lab.stats.countVimCmd(name)
	switch name {
	case "vmsvc/getallvms":
		return h.listVMs(c)
	case "hostsvc/start_ssh":
		return boolStatus(h.services.startService(h.lab.newContext(), serviceSSH) == nil)
	case "hostsvc/stop_ssh":
		return boolStatus(h.services.stopService(h.lab.newContext(), serviceSSH) == nil)
	case "hostsvc/enable_ssh":
		h.services.changeService(h.lab.newContext(), serviceSSH, func(v *hostService) { v.Policy = "on" })
		return 0
	case "hostsvc/disable_ssh":
		h.services.changeService(h.lab.newContext(), serviceSSH, func(v *hostService) { v.Policy = "off" })
		return 0
	}
	if do := vmCommands[name]; do != nil {
		return h.vmCommand(c, name, do)
	}
	fmt.Fprintf(c.Out, "Invalid command '%s'.\n", c.Args[1])
	return 1
}

// listVMs prints the VMs by reference.
func (h *shellHost) listVMs(c *shell.Call) int {
	fmt.Fprintln(c.Out, "Vmid   Name   File   Guest OS   Version   Annotation")
	ids := slices.SortedFunc(maps.Keys(h.lab.machines), func(a, b managedRef) int { return strings.Compare(a.Value, b.Value) })
	for _, id := range ids {
		m := h.lab.machines[id]
		fmt.Fprintf(c.Out, "%s   %s   %s   %s   vmx-21\n", id.Value, m.spec.Name, datastorePath(m.home.spec.Name, m.spec.Folder, m.spec.Folder+".vmx"), m.spec.GuestID)
	}
	return 0
}

// A vmCall is one execution of a command for a VM.
type vmCall struct {
	host *shellHost      // host that executes the command
	vm   *virtualMachine // VM of the command
	args []string        // arguments after the VM's number
	out  io.Writer       // output of the command
}

// vmCommands are the commands with the number of a VM as first argument.
var vmCommands = map[string]func(*vmCall) error{
	"vmsvc/power.getstate":  (*vmCall).printState,
	"vmsvc/power.on":        (*vmCall).powerOn,
	"vmsvc/power.off":       (*vmCall).powerOff,
	"vmsvc/power.shutdown":  (*vmCall).shutDown,
	"vmsvc/snapshot.get":    (*vmCall).printSnapshots,
	"vmsvc/snapshot.create": (*vmCall).createSnapshot,
	"vmsvc/snapshot.remove": (*vmCall).removeSnapshot,
}

// vmCommand runs a command for a VM, at once, or after a delay with FaultVimCmdLate.
func (h *shellHost) vmCommand(c *shell.Call, name string, do func(*vmCall) error) int {
	if len(c.Args) < 3 {
		fmt.Fprintf(c.Out, "Insufficient arguments.\nUsage: %s vmid ...\n", name)
		return 1
	}
	ref := types.ManagedObjectReference{Type: "VirtualMachine", Value: c.Args[2]}
	m := h.lab.machines[ref]
	vm, ok := h.lab.model.Map().Get(ref).(*simulator.VirtualMachine)
	if !ok || m == nil {
		fmt.Fprintln(c.Out, notFound(fmt.Sprintf("Unable to find a VM corresponding to %q", c.Args[2])))
		return 1
	}
	verb := strings.TrimPrefix(name, "vmsvc/")
	if stall := h.lab.vimCmdFault(m, FaultVimCmdStall, verb); stall != nil && stall.waitRelease(c.Ctx) != nil {
		return 1
	}
	call := &vmCall{host: h, vm: &virtualMachine{VirtualMachine: vm, lab: h.lab, machine: m}, args: c.Args[3:], out: c.Out}
	if late := h.lab.vimCmdFault(m, FaultVimCmdLate, verb); late != nil && changesVM(name) {
		call.out = io.Discard
		h.runLater(time.Duration(late.Delay), func() { _ = do(call) }) // the result is not reported
		return 0
	}
	err := do(call)
	if err != nil {
		fmt.Fprintln(c.Out, err)
	}
	return boolStatus(err == nil || h.lab.vimCmdFault(m, FaultVimCmdQuiet, verb) != nil)
}

// changesVM reports whether a command changes the VM.
func changesVM(name string) bool {
	return name != "vmsvc/power.getstate" && name != "vmsvc/snapshot.get"
}

// runLater runs f after a delay, unless the host loses power or the emulator is closed before.
func (h *shellHost) runLater(delay time.Duration, f func()) {
	ctx, cancel := h.lab.jobs.jobContext(h.jobContext())
	h.lab.jobs.running.Go(func() {
		defer cancel()
		if sleepContext(ctx, delay) == nil {
			f()
		}
	})
}

// vimCmdFault returns the fault of a command for m, or nil.
func (l *Lab) vimCmdFault(m *machine, kind FaultKind, verb string) *injected {
	return l.faults.takeIf(func(f *Fault) bool { return f.Kind == kind && f.matchesPath(m.spec.Name, verb) })
}

// printState prints the power state.
func (c *vmCall) printState() error {
	words := map[types.VirtualMachinePowerState]string{
		types.VirtualMachinePowerStatePoweredOn: "Powered on", types.VirtualMachinePowerStatePoweredOff: "Powered off", types.VirtualMachinePowerStateSuspended: "Suspended",
	}
	var now types.VirtualMachinePowerState
	c.host.lab.newContext().WithLock(c.vm.VirtualMachine, func() { now = c.vm.Runtime.PowerState })
	fmt.Fprintf(c.out, "Retrieved runtime info\n%s\n", words[now])
	return nil
}

// powerOn powers the VM on and waits for the task.
func (c *vmCall) powerOn() error {
	fmt.Fprintln(c.out, "Powering on VM:")
	return c.runTask("Power on failed", func(ctx *simulator.Context) soap.HasFault {
		return c.vm.PowerOnVMTask(ctx, &types.PowerOnVM_Task{This: c.vm.Self})
	})
}

// powerOff powers the VM off and waits for the task.
func (c *vmCall) powerOff() error {
	fmt.Fprintln(c.out, "Powering off VM:")
	return c.runTask("Power off failed", func(ctx *simulator.Context) soap.HasFault {
		return c.vm.PowerOffVMTask(ctx, &types.PowerOffVM_Task{This: c.vm.Self})
	})
}

// shutDown requests a shutdown of the guest.
func (c *vmCall) shutDown() error {
	var res soap.HasFault
	ctx := c.host.lab.newContext()
	ctx.WithLock(c.vm.VirtualMachine, func() { res = c.vm.ShutdownGuest(ctx, &types.ShutdownGuest{This: c.vm.Self}) })
	return vimFaultText(res)
}

// createSnapshot has the arguments name, description, memory and quiesced. As in published transcripts,
// arguments may contain blanks.
func (c *vmCall) createSnapshot() error {
	fmt.Fprintln(c.out, "Create Snapshot:")
	word := func(i int) string {
		if i < len(c.args) {
			return c.args[i]
		}
		return ""
	}
	return c.runTask("Create snapshot failed", func(ctx *simulator.Context) soap.HasFault {
		return c.vm.CreateSnapshotTask(ctx, &types.CreateSnapshot_Task{
			This: c.vm.Self, Name: word(0), Description: word(1), Memory: parseSwitch(word(2)), Quiesce: parseSwitch(word(3)),
		})
	})
}

// parseSwitch returns the value of a switch of vim-cmd.
func parseSwitch(s string) bool { return s == "1" || s == "true" }

// removeSnapshot has a snapshot's number as argument. Child snapshots remain.
func (c *vmCall) removeSnapshot() error {
	fmt.Fprintln(c.out, "Remove Snapshot:")
	if len(c.args) == 0 {
		return shellText("Usage: snapshot.remove vmid snapId")
	}
	snapshot := c.findSnapshot(c.args[0])
	if snapshot == nil {
		return notFound("Unable to find the snapshot")
	}
	err := c.runTask("Remove snapshot failed", func(ctx *simulator.Context) soap.HasFault {
		s := &vmSnapshot{VirtualMachineSnapshot: snapshot, lab: c.host.lab, machine: c.vm.machine}
		return s.RemoveSnapshotTask(ctx, &types.RemoveSnapshot_Task{This: snapshot.Self})
	})
	if err == nil {
		c.writeTree()
	}
	return err
}

// findSnapshot returns the snapshot with this number, or nil.
func (c *vmCall) findSnapshot(id string) (found *simulator.VirtualMachineSnapshot) {
	for _, s := range c.listSnapshots() {
		if strconv.Itoa(int(s.Id)) == id {
			found, _ = c.host.lab.model.Map().Get(s.Snapshot).(*simulator.VirtualMachineSnapshot)
		}
	}
	return found
}

// listSnapshots returns the snapshots, parents first.
func (c *vmCall) listSnapshots() (all []types.VirtualMachineSnapshotTree) {
	c.host.lab.newContext().WithLock(c.vm.VirtualMachine, func() { all = snapshotsOf(c.vm.Snapshot) })
	return all
}

// printSnapshots prints the snapshots.
func (c *vmCall) printSnapshots() error {
	fmt.Fprintln(c.out, "Get Snapshot:")
	c.writeTree()
	return nil
}

// writeTree prints the chain of snapshots. The misspelling Desciption is VMware's.
func (c *vmCall) writeTree() {
	for depth, s := range c.listSnapshots() {
		indent, node := strings.Repeat("--", depth), "|-CHILD"
		if depth == 0 {
			node = "|-ROOT"
		}
		state := "powered off"
		if s.State == types.VirtualMachinePowerStatePoweredOn {
			state = "powered on"
		}
		at := s.CreateTime
		fmt.Fprintf(c.out, "%s%s\n", indent, node)
		for _, line := range []string{
			"Snapshot Name        : " + s.Name, fmt.Sprintf("Snapshot Id        : %d", s.Id), "Snapshot Desciption  : " + s.Description,
			fmt.Sprintf("Snapshot Created On  : %d/%d/%d %d:%d:%d", at.Month(), at.Day(), at.Year(), at.Hour(), at.Minute(), at.Second()),
			"Snapshot State       : " + state,
		} {
			fmt.Fprintf(c.out, "%s--%s\n", indent, line)
		}
	}
}

// runTask starts a task of the VM and waits for it. If the task fails, the error is the text failed.
func (c *vmCall) runTask(failed string, start func(*simulator.Context) soap.HasFault) error {
	var res soap.HasFault
	b := &builder{lab: c.host.lab, ctx: c.host.lab.newContext(), reg: c.host.lab.model.Map()}
	b.ctx.WithLock(c.vm.VirtualMachine, func() { res = start(b.ctx) })
	if err := vimFaultText(res); err != nil {
		return err
	}
	if _, err := waitForTask(b.reg, taskOf(res)); err != nil {
		return shellText(failed)
	}
	return nil
}

// taskOf returns the task of a successful response.
func taskOf(res soap.HasFault) types.ManagedObjectReference {
	switch body := res.(type) {
	case *methods.PowerOnVM_TaskBody:
		return body.Res.Returnval
	case *methods.PowerOffVM_TaskBody:
		return body.Res.Returnval
	case *methods.CreateSnapshot_TaskBody:
		return body.Res.Returnval
	case *methods.RemoveSnapshot_TaskBody:
		return body.Res.Returnval
	}
	panic(fmt.Sprintf("no task in %T", res))
}

// vimFaultText returns the fault of a response as vim-cmd prints it, or nil.
func vimFaultText(res soap.HasFault) error {
	f := res.Fault()
	if f == nil {
		return nil
	}
	return printedFault(strings.TrimPrefix(fmt.Sprintf("%T", f.VimFault()), "*types."), "")
}

// notFound returns a NotFound fault as vim-cmd prints it.
func notFound(text string) error { return printedFault("NotFound", text) }

// printedFault returns a fault as vim-cmd prints it.
func printedFault(name, text string) error {
	return shellText(fmt.Sprintf("(vim.fault.%s) {\n   faultCause = (vmodl.MethodFault) null, \n   msg = \"%s\"\n}", name, text))
}
