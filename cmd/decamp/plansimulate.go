package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/decamp/decamp/internal/assemble"
	"github.com/decamp/decamp/internal/assemble/mover"
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/fleet/simulate"
	"github.com/decamp/decamp/internal/planfile"
	"github.com/decamp/decamp/internal/roster"
)

const planSimulateHelp = `
Play a plan through the scheduler that plan run has, with transfers that are only counted, and
say how long it would take, when each VM would begin, and what would be the bottleneck.

It logs in to the source and reads which VMs there are and how much they have allocated; it
moves nothing and changes nothing. How fast transfers are has to be said, or is guessed: --rate
for one transfer, for each host, and for all together; --hosts names a file that says it of each
host, datastore and disk, and how far it may be off. Such a file can name VMs, too, in place of
a plan: what would 500 VMs on 8 hosts take?

What it does not know of: warm rounds, conversion and verification, failures, other plans.
`

const planSimulateExamples = `
decamp plan simulate plan.yaml
decamp plan simulate plan.yaml --rate 60M --host-rate 300M --all-rate 1G
decamp plan simulate plan.yaml --hosts hosts.yaml
decamp plan simulate --hosts hosts.yaml --json | jq .makespan
`

type simulateOptions struct {
	assemble.Login
	each, host, all rateFlag
	hosts           string
}

func newPlanSimulate(a *app) *cobra.Command {
	o := simulateOptions{each: mover.GuessedRate}
	cmd := &cobra.Command{
		Use: "simulate [FILE]", Short: "Say how long a plan would take", Long: text(planSimulateHelp), Example: text(planSimulateExamples),
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 && o.hosts != "" {
				return nil
			}
			return takes("FILE")(cmd, args)
		},
		Annotations: exits(slices.Concat(sourceExits, []exit{{fault.Conflict, "the plan has VMs that could never begin"}})...),
		RunE:        a.logged(func(cmd *cobra.Command, args []string) error { return a.planSimulate(cmd.Context(), o, args) }),
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.Var(&o.each, "rate", "bytes a second of one VM's transfer")
	f.Var(&o.host, "host-rate", "bytes a second of each ESXi host (default no bound)")
	f.Var(&o.all, "all-rate", "bytes a second of all together (default no bound)")
	f.StringVar(&o.hosts, "hosts", "", "FILE that says what hosts, datastores, disks and links give, in place of the rates above")
	for _, rate := range []string{"rate", "host-rate", "all-rate"} {
		cmd.MarkFlagsMutuallyExclusive("hosts", rate)
	}
	registerLogin(&o.Login, cmd)
	return cmd
}

// rates are the simulation's.
func (o *simulateOptions) rates() map[string]int64 {
	rates := map[string]int64{}
	for name, rate := range map[string]rateFlag{"vm:*/rate": o.each, "host:*/rate": o.host, "link:all/rate": o.all} {
		if rate > 0 {
			rates[name] = int64(rate)
		}
	}
	return rates
}

func (a *app) planSimulate(ctx context.Context, o simulateOptions, args []string) error {
	h := &planfile.Hardware{}
	if o.hosts != "" {
		var err error
		if h, err = planfile.LoadHardware(o.hosts); err != nil {
			return err
		}
	}
	name, s := filepath.Base(o.hosts), simulationOf(h)
	if len(args) > 0 {
		name = filepath.Base(args[0])
		if err := a.planned(ctx, o, args[0], &s); err != nil {
			return err
		}
	}
	if len(s.VMs) == 0 {
		return fault.New(fault.Invalid, "there is no VM to simulate").WithHint("name a plan, or say vms: [{count: 500, hosts: 8, allocated: 35G}] in %s", o.hosts)
	}
	maps.Copy(s.Capacities, h.PerHost.Capacities("*"))
	if o.hosts == "" {
		s.Rates = o.rates()
	}
	done, err := runSimulation(ctx, s, h)
	if err != nil {
		return err
	}
	return a.writeSimulated(name, done)
}

// planned reads the VMs of a plan and what it limits into s.
func (a *app) planned(ctx context.Context, o simulateOptions, path string, s *simulate.Config) (err error) {
	sub, f, err := a.submission(path)
	if err != nil {
		return err
	}
	m := mover.New(&a.Assembler)
	p := roster.Plan{Name: string(f.Name), Text: sub.Text, Folder: sub.Folder}
	source, err := m.Known(p)
	if err != nil {
		return err
	}
	defer closing(&err, source.Close)
	if err := source.Look(ctx, o.Login); err != nil {
		return err
	}
	s.VMs, s.Needs = nil, m.Needs
	err = source.List(ctx, func(some []roster.VM) error { s.VMs = append(s.VMs, some...); return nil })
	if err != nil {
		return err
	}
	s.Capacities, err = m.Capacities(ctx, p)
	return err
}

// simulationOf is what a file of hardware says, with its own VMs.
func simulationOf(h *planfile.Hardware) simulate.Config {
	return simulate.Config{
		VMs: groups(h.VMs), Capacities: mover.DefaultCapacities(), Needs: mover.New(nil).Needs,
		Rates: h.Rates(1), Crowds: map[string]float64{"link:all/rate": float64(h.Crowd)}, Hold: time.Duration(h.Hold),
	}
}

// groups are VMs as a listing would tell them.
func groups(all []planfile.Group) (vms []roster.VM) {
	for _, g := range all {
		for i := range g.Count {
			n := len(vms) + 1
			host := fmt.Sprintf("esx%d", i%g.Hosts+1)
			vms = append(vms, roster.VM{
				Key: roster.Key{Plan: "simulated", VM: fmt.Sprintf("vm-%d", n)}, Name: fmt.Sprintf("vm%d", n),
				Host: host, Datastore: "datastore1", Source: "vc", To: []string{"dir:/"}, Disks: g.Disks, Bytes: int64(g.Allocated),
			})
		}
	}
	return vms
}

// simulated is a simulation with the bounds of its end.
type simulated struct {
	simulate.Result
	Least time.Duration `json:"least,omitempty"` // if all rates are as much higher as the file says they may be
	Most  time.Duration `json:"most,omitempty"`  // or lower
}

func runSimulation(ctx context.Context, s simulate.Config, h *planfile.Hardware) (done simulated, err error) {
	if done.Result, err = simulate.Run(ctx, s); err != nil || h.Uncertain == 0 {
		return done, err
	}
	for factor, bound := range map[float64]*time.Duration{1 + float64(h.Uncertain): &done.Least, 1 - float64(h.Uncertain): &done.Most} {
		s.Rates = h.Rates(factor)
		other, err := simulate.Run(ctx, s)
		if err != nil {
			return done, err
		}
		*bound = other.Makespan
	}
	return done, nil
}

func (a *app) writeSimulated(name string, s simulated) error {
	if a.json {
		if err := a.print(s); err != nil {
			return err
		}
		return neverError(s)
	}
	fmt.Fprintf(a.out, "%s: %s, %s allocated, in %s%s (%s on average)\n\n", plain(name), count(len(s.VMs), "VM"), size(s.Bytes), duration(s.Makespan), between(s), rate(s.Bytes, s.Makespan))
	writeLoads(a.out, s)
	if waits := waitedFor(s); len(waits) > 0 {
		fmt.Fprintln(a.out, "\nWhat VMs waited for before they began")
		for _, w := range waits {
			fmt.Fprintf(a.out, "  %s\n", w)
		}
	}
	return neverError(s)
}

// mostLoads is how many hosts and workers are shown.
const mostLoads = 40

// writeLoads shows what hosts and workers had to do; of many, those that had most.
func writeLoads(w io.Writer, s simulated) {
	loads := slices.Clone(s.Loads)
	if len(loads) > mostLoads {
		slices.SortStableFunc(loads, func(x, y simulate.Load) int {
			return cmp.Or(cmp.Compare(y.Busy, x.Busy), cmp.Compare(y.Bytes, x.Bytes))
		})
		loads = loads[:mostLoads]
	}
	t := newTable("", "VMS", "BYTES", "MOST AT ONCE", "BUSY", "OF ALL THE TIME")
	t.alignRight(1, 2, 3, 4, 5)
	for _, l := range loads {
		t.add(plain(l.Name), strconv.Itoa(l.VMs), size(l.Bytes), strconv.Itoa(l.Most), duration(l.Busy), percent(int64(l.Busy), int64(s.Makespan)))
	}
	t.write(w)
	if more := len(s.Loads) - len(loads); more > 0 {
		fmt.Fprintf(w, "and %d more, which had less to do\n", more)
	}
}

// between tells the bounds of an end, where there are any.
func between(s simulated) string {
	if s.Most == 0 {
		return ""
	}
	return fmt.Sprintf(", between %s and %s", duration(s.Least), duration(s.Most))
}

// mostWaits is how many reasons are told.
const mostWaits = 5

// waitedFor sums up what VMs waited for, what cost most first.
func waitedFor(s simulated) []string {
	type wait struct {
		vms  int
		time time.Duration
	}
	waits := map[string]wait{}
	for _, vm := range s.VMs {
		if vm.Waited != "" {
			w := waits[vm.Waited]
			waits[vm.Waited] = wait{w.vms + 1, w.time + vm.Began}
		}
	}
	names := slices.SortedFunc(maps.Keys(waits), func(x, y string) int { return int(waits[y].time - waits[x].time) })
	var lines []string
	for _, name := range names[:min(len(names), mostWaits)] {
		lines = append(lines, fmt.Sprintf("%s: %s, %s on average", plain(name), count(waits[name].vms, "VM"), duration(waits[name].time/time.Duration(waits[name].vms))))
	}
	return lines
}

// neverError tells of VMs that could not begin.
func neverError(s simulated) error {
	if len(s.Never) == 0 {
		return nil
	}
	first := s.Never[0]
	return fault.New(fault.Conflict, "%s of the plan would never begin; %s: %s", count(len(s.Never), "VM"), first.VM, first.Why).
		WithHint("decamp plan check says what stands in the way")
}
