package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/flow"
	"github.com/decamp/decamp/internal/plan"
	"github.com/decamp/decamp/internal/roster"
)

// warmOptions are the flags of decamp migrate --warm.
type warmOptions struct {
	on       bool
	at       string
	interval time.Duration
	budget   time.Duration
	boot     time.Duration
	bootSaid bool
	paranoid bool
	time     time.Time // of at; zero where the operator says when
}

const manually = "manual"

func (o *warmOptions) register(f *pflag.FlagSet) {
	f.BoolVar(&o.on, "warm", false, "copy while the VM runs, in rounds, and power it off for the last one only")
	f.StringVar(&o.at, "cutover", manually, "with warm: `TIME` of the last round, as 2026-12-01T02:00Z, or manual: when decamp cutover says so")
	f.DurationVar(&o.interval, "interval", time.Hour, "with warm: `TIME` from the beginning of one round to the next")
	f.DurationVar(&o.budget, "downtime-budget", 0, "with warm: cut over once the outage is expected to be at most this `TIME`")
	f.DurationVar(&o.boot, "boot-time", 0, "with warm: `TIME` the guest takes to boot, counted into the outage; kept when the run is continued")
	f.BoolVar(&o.paranoid, "paranoid", false, "with warm: after the last round, while the VM is off, read all of its disks once more and compare")
}

// cutoverForms are how times are written: RFC 3339, with or without seconds.
var cutoverForms = []string{time.RFC3339, "2006-01-02T15:04Z07:00"}

// check refuses flags that do not fit.
func (o *warmOptions) check(cmd *cobra.Command, targets int) error {
	if !o.on {
		for _, name := range []string{"cutover", "interval", "downtime-budget", "boot-time", "paranoid"} {
			if cmd.Flags().Changed(name) {
				return badUsage(cmd, "--%s says how a warm migration ends: it needs --warm", name)
			}
		}
		return nil
	}
	if targets > 1 {
		return badUsage(cmd, "--warm takes one --to")
	}
	o.bootSaid = cmd.Flags().Changed("boot-time")
	if o.interval <= 0 || o.budget < 0 || o.boot < 0 {
		return badUsage(cmd, "--interval, --downtime-budget and --boot-time: want times above 0")
	}
	if o.at == manually {
		return nil
	}
	for _, form := range cutoverForms {
		if at, err := time.Parse(form, o.at); err == nil {
			o.time = at
			return nil
		}
	}
	return badUsage(cmd, "--cutover %q: want manual, or a time with its zone, as 2026-12-01T02:00Z", o.at)
}

const cutoverHelp = `
Have a warm migration cut over: the round under way, if any, is completed, or another is
done if the last one began more than a minute ago; then the VM is shut down, what changed
last is copied, and the image is proven and published.

The process that drives the run obeys within seconds. If none does, the order is kept until
the run is continued.
`

const cancelHelp = `
Give a migration up, at any point before its VM is published. The VM is as it was found:
our snapshots are removed and their deltas merged, change tracking is off if it was, and
the VM is powered on if decamp powered it off for the cutover of a warm migration. What
was copied, and the record of the run, are removed.

If a decamp drives the run, it obeys within seconds and undoes it; else this command logs
in to the host and does so itself: by SSH, too, where the host has a free licence.
`

const pauseHelp = `
Have a plan, or one VM of it, begin no further transfer: what is under way goes on to its end. A
warm migration begins no further round; decamp cutover goes on with the last one. decamp resume
ends the pause.
`

func newCutover(a *app) *cobra.Command {
	return a.newOrder("cutover", "Let warm migrations cut over", cutoverHelp, roster.CutOver, plan.CutOver)
}

func newPause(a *app) *cobra.Command {
	cmd := a.newOrder("pause", "Let a plan, a VM or a warm migration pause", pauseHelp, roster.Pause, plan.Pause)
	cmd.Flags().Bool("off", false, "go on: as decamp resume")
	return cmd
}

func newCancel(a *app) *cobra.Command {
	var l login
	var m meetingFlags
	var ssh sshOptions
	cmd := &cobra.Command{
		Use: "cancel RUN|PLAN[/VM]", Short: "Give a migration or a plan up, and leave VMs as they were found",
		Long: text(cancelHelp) + "\n\n" + text(namedHelp) + "\n\n" + text(sourceHelp), Args: takes("RUN"), Example: "decamp cancel web01-3f9a1c\ndecamp cancel wave-1/db01",
		Annotations: exits(append(slices.Clone(sourceExits[1:]),
			exit{fault.NotFound, "there is no such run, plan or VM: decamp runs and decamp status list them"},
			exit{fault.Conflict, "the VM is published, or a decamp is at work that does not take the order"})...),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: a.logged(func(cmd *cobra.Command, args []string) error {
			return a.give(cmd.Context(), m, args[0], roster.Cancel, func() error {
				return a.cancelRun(cmd.Context(), l, ssh, plan.ID(args[0]))
			})
		}),
	}
	m.register(cmd)
	ssh.register(cmd.Flags())
	l.register(cmd)
	return cmd
}

// recorded returns a run, and the state directory and store that it is in.
func (a *app) recorded(id plan.ID) (state string, store *plan.Store, run plan.Run, err error) {
	if state, err = a.stateDir(); err != nil {
		return "", nil, run, err
	}
	store = plan.NewStore(state)
	run, err = store.Run(id)
	return state, store, run, err
}

func (a *app) cancelRun(ctx context.Context, l login, ssh sshOptions, id plan.ID) (err error) {
	state, store, run, err := a.recorded(id)
	switch {
	case err != nil:
		return err
	case run.State == plan.Done:
		return fault.New(fault.Conflict, "run %s is done and its VM published", id).WithHint("remove the VM from %s by hand if it is not wanted", run.Plan.Target)
	case run.Plan.Warm && flow.InUse(state):
		if err := store.Give(id, plan.GiveUp); err != nil {
			return err
		}
		return a.tellOrder(id, plan.GiveUp, true)
	}
	p := run.Plan
	o := migrateOptions{login: l, to: []string{p.Target}, format: p.Format, transport: "https", connections: 1, landing: landingOptions{ssh: ssh}}
	w, err := a.openWorks(ctx, o, p.Source)
	if err != nil {
		return err
	}
	defer closing(&err, w.Close)
	w.to[0].plan = p
	return a.discard(ctx, w)
}

// newOrder is a command that gives an order to a plan or a VM of it, or to a warm run.
func (a *app) newOrder(name, short, long string, o roster.Order, run plan.Order) *cobra.Command {
	var m meetingFlags
	cmd := &cobra.Command{
		Use: name + " RUN|PLAN[/VM]", Short: short, Long: text(long) + "\n\n" + text(namedHelp), Args: takes("RUN"),
		Example:           "decamp " + name + " web01-3f9a1c\ndecamp " + name + " wave-1/db01",
		Annotations:       exits(ordersExits...),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: a.logged(func(cmd *cobra.Command, args []string) error {
			o, run := o, run
			if off, err := cmd.Flags().GetBool("off"); err == nil && off {
				o, run = roster.GoOn, plan.GoOn
			}
			return a.give(cmd.Context(), m, args[0], o, func() error { return a.order(plan.ID(args[0]), run) })
		}),
	}
	m.register(cmd)
	return cmd
}

func (a *app) order(id plan.ID, order plan.Order) error {
	state, store, run, err := a.recorded(id)
	switch {
	case err != nil:
		return err
	case !run.Plan.Warm:
		return fault.New(fault.Conflict, "run %s is not a warm one", id).WithHint("it ends by itself; decamp runs says where it stands")
	case run.State == plan.Done:
		return fault.New(fault.Conflict, "run %s is done", id).WithHint("nothing is left to do")
	}
	if err := store.Give(id, order); err != nil {
		return err
	}
	return a.tellOrder(id, order, flow.InUse(state))
}

func (a *app) tellOrder(id plan.ID, order plan.Order, driven bool) error {
	if a.json {
		return a.print(map[string]any{"run": id, "order": order, "driven": driven})
	}
	fmt.Fprintf(a.out, "%s\n", orderWords(order))
	if !driven {
		fmt.Fprintln(a.out, "No decamp drives the run now: give the command again that began it.")
	}
	return nil
}

func orderWords(o plan.Order) string {
	switch o {
	case plan.CutOver:
		return "The run cuts over as soon as no round is under way."
	case plan.Pause:
		return "The run begins no further round."
	case plan.GiveUp:
		return "The run is given up by the decamp that drives it."
	}
	return "The run goes on with rounds."
}
