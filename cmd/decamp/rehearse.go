package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/decamp/decamp/internal/assemble"
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/fleetdb"
	"github.com/decamp/decamp/internal/journal"
	"github.com/decamp/decamp/internal/migrate"
	"github.com/decamp/decamp/internal/migrate/warm"
	"github.com/decamp/decamp/internal/planfile"
	"github.com/decamp/decamp/internal/server"
	"github.com/decamp/decamp/internal/testboot"
	"github.com/decamp/decamp/internal/workflow"
)

const rehearseHelp = `
Boot the VM of a warm migration from its current images, between two rounds, and report how
far it boots: a cutover now would publish that state. The source VM continues to run, the
images are only read, and rounds continue. If the migration converts the guest (--hardware),
it is first converted on overlays. All changes are discarded.

The guest finds its disks as after a power failure at the last snapshot. It boots as with
decamp trial: on isolated networks, with KVM or emulated. The run keeps the screen and the
serial log in the folder rehearsal of its folder in the state directory.

If another decamp process executes the run, that process boots the VM when no round is
running; decamp cutover ends the rehearsal at once. A process that does not read the request
is reported after 10 s, and after 5 min this command fails. Otherwise this command boots the
VM from the last round. A VM that does not boot does not end the migration.

The VM of a plan is booted by the worker that executes it. The request goes through the server
or the database, and so do the verdict and the end of the serial log. The screen and the whole
log stay on the worker.
`

// rehearseCommand is decamp rehearse.
type rehearseCommand struct {
	out       *output             // output and messages
	assembler *assemble.Assembler // state directory, access file and prompts
	fleet     fleetFlags          // flags of the fleet
	deadline  time.Duration       // time limit of the boot; 0: default
	expect    string              // text that means that the guest has booted
}

// newRehearse returns the command decamp rehearse.
func newRehearse(p *program) *cobra.Command {
	rh := &rehearseCommand{out: p.out, assembler: p.assembler, fleet: fleetFlags{assembler: p.assembler}}
	cmd := &cobra.Command{
		Use: "rehearse RUN|PLAN/VM", Short: "Boot a warm migration's VM from its current images", Long: trimHelp(rehearseHelp) + "\n\n" + trimHelp(namedHelp),
		Args: exactArgs("RUN"), Example: "decamp rehearse web01-3f9a1c\ndecamp rehearse wave-1/db01 --expect 'db01 is ready'",
		Annotations: exitCodes(
			exit{fault.NotFound, "the run, plan or VM does not exist, or QEMU or its firmware is not installed"},
			exit{fault.Conflict, "the run is not warm, has no complete round, or a round was interrupted; or no worker executes the plan's VM, or it is already being rehearsed"},
			exit{fault.Unsupported, "the VM does not boot, or cannot be converted or booted here; the error has a remedy"},
			exit{fault.Denied, "the token does not allow it"},
			exit{fault.Full, "no space left for the log and the screenshot"},
			exit{fault.Unreachable, "the database, the server or the process that executes the run does not answer"}),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: p.withLog(func(cmd *cobra.Command, args []string) error {
			if err := checkAboveZero(cmd, "deadline", rh.deadline); err != nil {
				return err
			}
			return rh.runRehearse(cmd.Context(), args[0])
		}),
	}
	cmd.Flags().DurationVar(&rh.deadline, "deadline", 0, "`TIME` limit of the boot (default 5m, emulated 15m)")
	cmd.Flags().StringVar(&rh.expect, "expect", "", "`TEXT` on the serial port or text screen that means that the guest has booted, in addition to a login prompt and its network")
	rh.fleet.registerFlags(cmd)
	return cmd
}

// runRehearse rehearses the run, or the VM of a plan, that name names.
func (rh *rehearseCommand) runRehearse(ctx context.Context, name string) (err error) {
	ask := journal.Rehearsal{ID: strconv.FormatUint(rand.Uint64(), 16), Expect: rh.expect, Deadline: rh.deadline}
	c, closeControl, err := rh.fleet.openControl(ctx)
	if err != nil {
		return err
	}
	defer joinClose(&err, closeControl)
	planName, vmName, isRun, err := server.ResolveName(ctx, c, name)
	switch {
	case err != nil:
		return err
	case isRun:
		return rh.rehearseRun(ctx, journal.ID(name), ask)
	case vmName == "":
		return fault.New(fault.Invalid, "only one VM of a plan can be rehearsed at a time").WithHint("run decamp rehearse %s/VM; list the VMs with decamp status %s --all", fault.Quote(planName), fault.Quote(planName))
	}
	vm, err := server.FindVM(ctx, c, planName, vmName)
	if err != nil {
		return err
	}
	if rh.rehearsesHere(vm) {
		return rh.rehearseRun(ctx, journal.ID(vm.Runs[0]), ask)
	}
	return rh.rehearseVM(ctx, c, vm, fleetdb.Rehearsal{ID: ask.ID, Expect: ask.Expect, Deadline: ask.Deadline})
}

// rehearseRun rehearses a run of this state directory, in the process that executes it or otherwise in
// this one, and prints the result.
func (rh *rehearseCommand) rehearseRun(ctx context.Context, id journal.ID, ask journal.Rehearsal) error {
	state, store, run, err := recordedRun(rh.assembler, id)
	switch {
	case err != nil:
		return err
	case !run.Plan.Warm:
		return fault.New(fault.Conflict, "run %s is not a warm migration", id).WithHint("--trial boots its VM before it is published; decamp trial boots it later")
	case run.State == journal.Done:
		return fault.New(fault.Conflict, "run %s is done", id).WithHint("boot the published VM with decamp trial")
	}
	driven := workflow.InUse(state)
	if driven && run.State != journal.Open {
		return fault.New(fault.Conflict, "no process executes run %s, and another decamp process has the state directory", id).
			WithHint("wait until that process has ended, or run the command that began the run again")
	}
	var report testboot.Report
	if driven {
		report, err = warm.Request{State: state, Store: store, ID: id, Ask: ask, Warn: rh.out.warn}.Await(ctx, func() {
			rh.printAsked(fmt.Sprintf("The decamp process that executes run %s", id), "its VM")
		})
	} else {
		report, err = rh.rehearseHere(ctx, run.Plan, ask)
	}
	if err != nil {
		return fmt.Errorf("rehearsal of run %s: %w", id, err)
	}
	if err := writeTrial(rh.out, report); err != nil {
		return err
	}
	return bootError(run.Plan.VM.Name, report)
}

// printAsked prints that another process received the request.
func (rh *rehearseCommand) printAsked(process, vm string) {
	if !rh.out.json {
		fmt.Fprintf(rh.out.screen, "%s boots %s when no round is running ...\n", process, vm)
	}
}

// rehearseHere boots the VM of a run that no process executes.
func (rh *rehearseCommand) rehearseHere(ctx context.Context, p journal.Plan, ask journal.Rehearsal) (r testboot.Report, err error) {
	w := &assemble.Parts{Conversion: assemble.EngineOptions{Kernel: p.Kernel}}
	if err := w.Conversion.CheckFiles("", "the run's kernel"); err != nil {
		return r, err
	}
	defer joinClose(&err, w.Close)
	if err := rh.assembler.OpenTargets(w, recordedMove(p), planfile.Local); err != nil {
		return r, err
	}
	if err := rh.assembler.OpenState(ctx, w); err != nil {
		return r, err
	}
	shown := newProgress(rh.out, nil)
	defer shown.Close()
	w.Shown = shown.HandleEvent
	return warm.Rehearse(ctx, w.Migrator, p.ID, migrate.Environment{Target: w.To[0].Target, Convert: w.Conversion.Appended, Rehearse: w.Rehearse}, ask)
}

// rehearsesHere reports whether the run of a plan's VM is rehearsed through this state directory: it
// contains the run, and no process on another machine can execute it.
func (rh *rehearseCommand) rehearsesHere(vm fleetdb.VM) bool {
	if len(vm.Runs) == 0 {
		return false
	}
	if _, _, _, err := recordedRun(rh.assembler, journal.ID(vm.Runs[0])); err != nil {
		return false
	}
	if vm.State != fleetdb.Assigned && vm.State != fleetdb.Running {
		return true
	}
	url, err := rh.fleet.databaseURL()
	far := rh.fleet.db == "" && cmp.Or(rh.fleet.server, rh.assembler.Env(serverEnv)) != ""
	return err == nil && !far && isFile(url)
}

// workerReport is the report of a worker on a VM that it booted.
type workerReport struct {
	testboot.Report
	Worker string `json:"worker"`               // worker with the files
	Tail   string `json:"serialTail,omitempty"` // end of the serial port's output
}

// rehearseVM requests a boot of a plan's VM from its worker, and prints the result.
func (rh *rehearseCommand) rehearseVM(ctx context.Context, c server.Control, vm fleetdb.VM, ask fleetdb.Rehearsal) error {
	done, err := server.AwaitRehearsal(ctx, c, rh.out.log, vm, ask, func() { rh.printAsked("Worker "+fault.Printable(vm.Worker), fault.Printable(vm.Name)) })
	if err != nil {
		return fmt.Errorf("rehearsal of %s: %w", vm.Key, err)
	}
	r := workerReport{Worker: done.Worker, Tail: done.Tail}
	if err := json.Unmarshal(done.Report, &r.Report); err != nil {
		return fault.New(fault.Corrupt, "report of worker %s on the rehearsal of %s: %w", done.Worker, vm.Key, err)
	}
	if err := rh.writeWorkerReport(r); err != nil {
		return err
	}
	return bootError(vm.Name, r.Report)
}

// writeWorkerReport prints the report of another machine. If the VM did not boot, it also prints the
// end of the serial log.
func (rh *rehearseCommand) writeWorkerReport(r workerReport) error {
	if rh.out.json {
		return rh.out.printJSON(r)
	}
	if err := writeTrial(rh.out, r.Report); err != nil {
		return err
	}
	if r.Screen != "" || r.Serial != "" {
		fmt.Fprintf(rh.out, "These files are on worker %s.\n", fault.Printable(r.Worker))
	}
	if r.Booted() || strings.TrimSpace(r.Tail) == "" {
		return nil
	}
	fmt.Fprintln(rh.out, "Last output of the serial port:")
	for line := range strings.Lines(strings.TrimSpace(r.Tail)) {
		fmt.Fprintf(rh.out, "  %s\n", fault.Printable(strings.TrimRight(line, "\r\n")))
	}
	return nil
}
