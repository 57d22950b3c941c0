package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/decamp/decamp/internal/assemble"
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/journal"
	"github.com/decamp/decamp/internal/planfile"
	"github.com/decamp/decamp/internal/server"
	"github.com/decamp/decamp/internal/targets"
	"github.com/decamp/decamp/internal/targets/attach"
	"github.com/decamp/decamp/internal/targets/dir"
	"github.com/decamp/decamp/internal/terminal"
)

const consoleHelp = `
Attach the terminal to the serial console of a VM that runs on its libvirt target, to watch it
boot and to log in. Ctrl-] detaches, and the VM continues to run. The connection is that of
the migration: no libvirt client is required, and the source is not contacted.

RUN is one VM that decamp migrate migrated from this machine; decamp runs lists them. The VM
must run. The command does not take a console over from another user.

If the standard input is not a terminal, it is sent to the guest. The output of the guest is
printed until the VM is off or Ctrl-C is pressed, also after the end of the input. If the
output is not a terminal, each control character is replaced by a question mark. A terminal
receives the output unchanged, so the guest can do with the terminal what any program can.
`

// consoleCommand is decamp console.
type consoleCommand struct {
	in        *os.File                           // the standard input
	out       *output                            // output and messages
	terminal  func() (*terminal.Terminal, error) // opens the controlling terminal
	assembler *assemble.Assembler                // state directory, access file and prompts
	fleet     fleetFlags                         // flags of the fleet
}

// newConsole returns the command decamp console.
func newConsole(p *program) *cobra.Command {
	cs := &consoleCommand{in: p.in, out: p.out, terminal: p.terminal, assembler: p.assembler, fleet: fleetFlags{assembler: p.assembler}}
	cmd := &cobra.Command{
		Use: "console RUN|PLAN/VM", Short: "Attach to the serial console of a migrated VM", Long: trimHelp(consoleHelp) + "\n\n" + trimHelp(namedHelp),
		Args: exactArgs("RUN"), Example: "decamp console web01-3f9a1c\ndecamp console wave-1/db01\necho reboot | decamp console web01-3f9a1c > boot.log",
		Annotations: exitCodes(
			exit{fault.NotFound, "the run, plan or VM does not exist, or the VM is not published"},
			exit{fault.Conflict, "the VM is off, or another user has its console"},
			exit{fault.Unsupported, "the VM or its target has no serial console; the remedy has an alternative"},
			exit{fault.Denied, "the target refuses the login"},
			exit{fault.Unreachable, "the address does not answer"},
			exit{fault.Corrupt, "the VM's record cannot be read, or the server does not send a console"},
			exit{fault.Transient, "the connection was lost"}),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: p.withLog(func(cmd *cobra.Command, args []string) error {
			if cs.out.json {
				return badUsage(cmd, "--json is not supported: the output of a guest is not JSON")
			}
			return cs.openConsole(cmd.Context(), args[0])
		}),
	}
	cs.fleet.registerFlags(cmd)
	return cmd
}

// openConsole attaches to the VM that RUN or PLAN/VM names. The fleet database is closed before.
func (cs *consoleCommand) openConsole(ctx context.Context, name string) error {
	c, closeControl, err := cs.fleet.openControl(ctx)
	if err != nil {
		return err
	}
	id, err := server.ResolveRun(ctx, c, name)
	if err = errors.Join(err, closeControl()); err != nil {
		return err
	}
	return cs.attachRun(ctx, id)
}

// attachRun attaches to the VM of a run of this state directory.
func (cs *consoleCommand) attachRun(ctx context.Context, id journal.ID) error {
	_, _, run, err := recordedRun(cs.assembler, id)
	if fault.Is(err, fault.NotFound) {
		return fault.New(fault.NotFound, "run %q does not exist on this machine", id).
			WithHint("list runs with decamp runs; for the VM of a plan, run the command on the worker that decamp status names")
	}
	if err != nil {
		return err
	}
	p := run.Plan
	w := &assemble.Parts{}
	if err := cs.assembler.OpenTargets(w, recordedMove(p), planfile.Local); err != nil {
		return err
	}
	d := w.To[0]
	moved, err := publishedOf(p, d)
	if err != nil {
		return fmt.Errorf("run %s: %w", id, err)
	}
	c, ok := d.Target.(targets.Consoler)
	if !ok {
		return noConsole(moved, d.At)
	}
	open, err := c.Console(ctx, targets.Definition{VM: moved.Record.Source})
	if errors.Is(err, targets.ErrNoConsole) {
		return noConsole(moved, d.At)
	}
	if err != nil {
		return err
	}
	return cs.attachTerminal(ctx, moved.Record.TargetName(), open)
}

// publishedOf returns the record of a run's published VM.
func publishedOf(p journal.Plan, d *assemble.Destination) (*dir.Published, error) {
	moved, err := dir.OpenPublished(d.Target.Folder(&inventory.VM{Name: p.VM.Name}))
	if fault.Is(err, fault.NotFound) {
		return nil, fault.New(fault.NotFound, "VM %s is not published: %w", p.VM.Name, err).WithHint("see the state of the run with decamp runs")
	}
	if err != nil {
		return nil, err
	}
	if s := moved.Record.Source; s.Ref != p.VM.Ref || s.UUID != p.VM.UUID || s.InstanceUUID != p.VM.InstanceUUID {
		return nil, fault.New(fault.Conflict, "%s has another VM", moved.Folder).WithHint("identify it: decamp verify %s", fault.Quote(moved.Folder))
	}
	return moved, nil
}

// noConsole returns the error for a target without consoles; its remedy is an alternative command.
func noConsole(p *dir.Published, to planfile.Destination) error {
	err := fault.New(fault.Unsupported, "%s does not provide consoles", to.Kind())
	r := p.Record.Delivered
	if r == nil {
		return fault.New(fault.Unsupported, "VM %s was migrated to a folder, so its host is unknown", p.Record.TargetName()).
			WithHint("on its host: virsh console %s", shellArgument(p.DomainName()))
	}
	switch to.Kind() {
	case planfile.Proxmox:
		return err.WithHint("on the node that runs it: qm terminal %s; its screen is in Proxmox's web interface", shellArgument(r.ID))
	case planfile.OpenStack:
		return err.WithHint("openstack console url show %s", shellArgument(r.Name))
	case planfile.KubeVirt:
		if namespace, name, is := strings.Cut(r.ID, "/"); is && name == r.Name {
			return err.WithHint("virtctl -n %s console %s", shellArgument(namespace), shellArgument(name))
		}
		return err.WithHint("virtctl console %s", shellArgument(r.Name))
	}
	return targets.ErrNoConsole
}

// attachTerminal connects the terminal, or standard input and output, with the console of the VM name,
// and closes the console. It restores the terminal before it returns.
func (cs *consoleCommand) attachTerminal(ctx context.Context, name string, console io.ReadWriteCloser) error {
	var shown io.Writer = cs.out
	if !terminal.IsTerminal(cs.out.stdoutFile()) {
		shown = &attach.Harmless{To: cs.out}
	}
	t := attach.New(console, cs.in, shown)
	if terminal.IsTerminal(cs.in) {
		tty, err := cs.terminal()
		if err != nil {
			return errors.Join(fmt.Errorf("open the terminal: %w", err), console.Close())
		}
		fmt.Fprintf(cs.out.screen, "Connected to the console of %s. Press Ctrl-] to detach.\n", fault.Printable(name))
		err = errors.Join(t.RunTyped(ctx, tty), tty.Close())
		return cs.printEnd(ctx, name, err)
	}
	return cs.printEnd(ctx, name, t.Run(ctx))
}

// printEnd prints how the attachment ended. Detaching is not an error.
func (cs *consoleCommand) printEnd(ctx context.Context, name string, err error) error {
	switch {
	case ctx.Err() != nil:
		return fault.Wrap(fault.Canceled, attach.ErrLeft)
	case errors.Is(err, attach.ErrLeft):
		fmt.Fprintf(cs.out.screen, "\nDetached from the console of %s.\n", fault.Printable(name))
		return nil
	case err == nil:
		fmt.Fprintf(cs.out.screen, "\n%s is off.\n", fault.Printable(name))
	}
	return err
}
