package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/decamp/decamp/internal/assemble"
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/flow"
	"github.com/decamp/decamp/internal/migrate"
	"github.com/decamp/decamp/internal/migrate/warm"
	"github.com/decamp/decamp/internal/plan"
	"github.com/decamp/decamp/internal/planfile"
	"github.com/decamp/decamp/internal/roster"
	"github.com/decamp/decamp/internal/sleep"
	"github.com/decamp/decamp/internal/trial"
)

const rehearseHelp = `
Boot the VM of a warm migration from its images as they are, between two rounds, and say how
far it comes: what a cutover now would publish. The VM at the source runs on and is not asked
for anything; the images are only read; rounds go on meanwhile. The guest is converted on
overlays first, if the migration does so (--hardware), and all of it is thrown away.

The guest finds its disks as after a power cut, as of the last snapshot: it replays its
journals, as it would then. It boots as with decamp trial: on networks that lead nowhere, on
KVM where that really runs and else emulated. Its screen and what its serial port said are
kept with the run, in rehearsal of its folder in the state directory.

If a decamp drives the run, it boots the VM as soon as no round is under way, and decamp
cutover ends that at once; else this command does so itself, from the last round. A VM that
does not boot ends no migration.

The VM of a plan is booted by the worker that drives it, wherever that is: it is asked through
the server or the database, and its verdict and the end of the serial log come the same way.
The screen and the whole log stay on that worker.
`

// rehearseOptions are the flags of decamp rehearse.
type rehearseOptions struct {
	deadline time.Duration
	expect   string
}

func newRehearse(a *app) *cobra.Command {
	var o rehearseOptions
	var m meetingFlags
	cmd := &cobra.Command{
		Use: "rehearse RUN|PLAN/VM", Short: "Boot a warm migration's VM from what is copied so far", Long: text(rehearseHelp) + "\n\n" + text(namedHelp),
		Args: takes("RUN"), Example: "decamp rehearse web01-3f9a1c\ndecamp rehearse wave-1/db01 --expect 'db01 is ready'",
		Annotations: exits(
			exit{fault.NotFound, "there is no such run, plan or VM, or QEMU or its firmware is not installed"},
			exit{fault.Conflict, "it is no warm migration, no round is done, or one was broken off; nobody drives the plan's VM, or it is rehearsed already"},
			exit{fault.Unsupported, "it does not boot, or cannot be converted or tried; the remedy says what to do"},
			exit{fault.Denied, "the token does not allow it"},
			exit{fault.Full, "no space left for what is kept of it"},
			exit{fault.Unreachable, "the database or the server does not answer"}),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: a.logged(func(cmd *cobra.Command, args []string) error {
			if o.deadline < 0 {
				return badUsage(cmd, "--deadline: want a time above 0")
			}
			return a.rehearse(cmd.Context(), m, o, args[0])
		}),
	}
	cmd.Flags().DurationVar(&o.deadline, "deadline", 0, "`TIME` the guest may take (default 5m, emulated 15m)")
	cmd.Flags().StringVar(&o.expect, "expect", "", "`TEXT` on its serial port or text screen that means the guest is up, beside a login and its network")
	m.register(cmd)
	return cmd
}

// rehearse finds out whose run is meant.
func (a *app) rehearse(ctx context.Context, m meetingFlags, o rehearseOptions, name string) (err error) {
	ask := plan.Rehearsal{ID: strconv.FormatUint(rand.Uint64(), 16), Expect: o.expect, Deadline: o.deadline}
	c, closeControl, err := a.openControl(ctx, m)
	if err != nil {
		return err
	}
	defer closing(&err, closeControl)
	planName, vmName, isRun, err := meant(ctx, c, name)
	switch {
	case err != nil:
		return err
	case isRun:
		return a.rehearseRun(ctx, plan.ID(name), ask)
	case vmName == "":
		return fault.New(fault.Invalid, "a plan's VMs are rehearsed one at a time").WithHint("decamp rehearse %s/VM; decamp status %s --all lists them", fault.Quote(planName), fault.Quote(planName))
	}
	vm, err := findVM(ctx, c, planName, vmName)
	if err != nil {
		return err
	}
	if a.rehearsesHere(m, vm) {
		return a.rehearseRun(ctx, plan.ID(vm.Runs[0]), ask)
	}
	return a.rehearseVM(ctx, c, vm, roster.Rehearsal{ID: ask.ID, Expect: ask.Expect, Deadline: ask.Deadline})
}

// rehearseRun has a run of this state directory rehearsed, by whoever drives it or else here, and says
// how that ended.
func (a *app) rehearseRun(ctx context.Context, id plan.ID, ask plan.Rehearsal) error {
	state, store, run, err := a.recorded(id)
	switch {
	case err != nil:
		return err
	case !run.Plan.Warm:
		return fault.New(fault.Conflict, "run %s is not a warm one", id).WithHint("--trial boots its VM before it is published; decamp trial any time after that")
	case run.State == plan.Done:
		return fault.New(fault.Conflict, "run %s is done", id).WithHint("decamp trial boots what is published")
	}
	driven := flow.InUse(state)
	if driven && run.State != plan.Open {
		return fault.New(fault.Conflict, "nobody drives run %s, and another decamp has the state directory", id).
			WithHint("wait until that one has ended; or give the command again that began the run")
	}
	var report trial.Report
	if driven {
		report, err = a.askRehearsal(ctx, rehearsed{state, store, id, ask})
	} else {
		report, err = a.rehearseHere(ctx, run.Plan, ask)
	}
	if err != nil {
		return fmt.Errorf("rehearsal of run %s: %w", id, err)
	}
	if err := a.writeTrial(report); err != nil {
		return err
	}
	return bootless(run.Plan.VM.Name, report)
}

// bootless is a fault if a VM does not boot.
func bootless(name string, r trial.Report) error {
	if r.Booted() {
		return nil
	}
	return fault.New(fault.Unsupported, "%s does not boot (%s): %s", name, r.Verdict, r.Why).WithHint("%s", r.Remedy)
}

// rehearseHere boots the VM of a run that nobody drives.
func (a *app) rehearseHere(ctx context.Context, p plan.Plan, ask plan.Rehearsal) (r trial.Report, err error) {
	w := &assemble.Parts{Conversion: assemble.EngineOptions{Kernel: p.Kernel}}
	if err := w.Conversion.CheckFiles("", "the run's kernel"); err != nil {
		return r, err
	}
	defer closing(&err, w.Close)
	if err := a.OpenTargets(w, recordedMove(p), planfile.Local); err != nil {
		return r, err
	}
	if err := a.OpenState(ctx, w); err != nil {
		return r, err
	}
	shown := a.newProgress(nil)
	defer shown.close()
	w.Shown = shown.event
	return warm.Rehearse(ctx, w.Migrator, p.ID, migrate.Rig{Target: w.To[0].Target, Convert: w.Conversion.Appended, Rehearse: w.Rehearse}, ask)
}

// rehearsed is a rehearsal that another process was asked for.
type rehearsed struct {
	state string
	store *plan.Store
	id    plan.ID
	ask   plan.Rehearsal
}

// rehearsedEvery is how often one looks for the answer.
const rehearsedEvery = 500 * time.Millisecond

// askRehearsal has the decamp that drives the run boot it, and waits for what it says. Who does not
// wait does not want it any more.
func (a *app) askRehearsal(ctx context.Context, r rehearsed) (report trial.Report, err error) {
	if err := r.store.AskRehearsal(r.id, r.ask); err != nil {
		return report, err
	}
	defer func() { err = errors.Join(err, r.store.TakeBack(r.id, r.ask.ID)) }()
	if !a.json {
		fmt.Fprintf(a.err, "The decamp that drives run %s boots its VM as soon as no round is under way ...\n", r.id)
	}
	for {
		answer, err := r.store.Rehearsed(r.id)
		switch {
		case err != nil:
			return report, err
		case answer != nil && answer.ID == r.ask.ID:
			return trialOf(*answer)
		}
		if err := r.driven(); err != nil {
			return report, err
		}
		if err := sleep.For(ctx, rehearsedEvery); err != nil {
			return report, err
		}
	}
}

// driven is a fault if nobody will answer.
func (r rehearsed) driven() error {
	run, err := r.store.Run(r.id)
	switch {
	case err != nil:
		return err
	case run.State == plan.Open && flow.InUse(r.state):
		return nil
	}
	if answer, err := r.store.Rehearsed(r.id); err == nil && answer != nil && answer.ID == r.ask.ID {
		return nil // its last words
	}
	return fault.New(fault.Canceled, "the decamp that drove the run does not any more").WithHint("see decamp runs; where the run goes on, rehearse it again")
}

func trialOf(answer plan.Rehearsed) (r trial.Report, err error) {
	if f := answer.Failure; f != nil {
		return r, fault.New(fault.KindNamed(f.Kind), "%s", f.Text).WithHint("%s", f.Hint)
	}
	err = json.Unmarshal(answer.Report, &r)
	return r, err
}
