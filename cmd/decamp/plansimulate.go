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
	"github.com/decamp/decamp/internal/flaghelp"
	"github.com/decamp/decamp/internal/fleet/simulate"
	"github.com/decamp/decamp/internal/fleetdb"
	"github.com/decamp/decamp/internal/planfile"
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

// simulateCommand is decamp plan simulate.
type simulateCommand struct {
	out       *output
	assembler *assemble.Assembler
	login     assemble.Login

	each, host, all flaghelp.Rate
	hosts           string
}

func newPlanSimulate(p *program) *cobra.Command {
	sim := &simulateCommand{out: p.out, assembler: p.assembler, each: mover.GuessedRate}
	cmd := &cobra.Command{
		Use: "simulate [FILE]", Short: "Say how long a plan would take", Long: trimHelp(planSimulateHelp), Example: trimHelp(planSimulateExamples),
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 && sim.hosts != "" {
				return nil
			}
			return exactArgs("FILE")(cmd, args)
		},
		Annotations: exitCodes(slices.Concat(sourceExits, []exit{{fault.Conflict, "the plan has VMs that could never begin"}})...),
		RunE:        p.withLog(func(cmd *cobra.Command, args []string) error { return sim.runSimulation(cmd.Context(), args) }),
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.Var(&sim.each, "rate", "bytes a second of one VM's transfer")
	f.Var(&sim.host, "host-rate", "bytes a second of each ESXi host (default no bound)")
	f.Var(&sim.all, "all-rate", "bytes a second of all together (default no bound)")
	f.StringVar(&sim.hosts, "hosts", "", "FILE with the rates of hosts, datastores, disks and links, in place of the rates above")
	for _, rate := range []string{"rate", "host-rate", "all-rate"} {
		cmd.MarkFlagsMutuallyExclusive("hosts", rate)
	}
	registerLogin(&sim.login, cmd)
	return cmd
}

// ratesByName are the simulation's.
func (sim *simulateCommand) ratesByName() map[string]int64 {
	rates := map[string]int64{}
	for name, rate := range map[string]flaghelp.Rate{"vm:*/rate": sim.each, "host:*/rate": sim.host, "link:all/rate": sim.all} {
		if rate > 0 {
			rates[name] = int64(rate)
		}
	}
	return rates
}

func (sim *simulateCommand) runSimulation(ctx context.Context, args []string) error {
	h := &planfile.Hardware{}
	if sim.hosts != "" {
		var err error
		if h, err = planfile.LoadHardware(sim.hosts); err != nil {
			return err
		}
	}
	name, s := filepath.Base(sim.hosts), mover.NewSimulation(h)
	if len(args) > 0 {
		name = filepath.Base(args[0])
		sub, f, err := readSubmission(sim.out, args[0])
		if err != nil {
			return err
		}
		p := fleetdb.Plan{Name: string(f.Name), Text: sub.Text, Folder: sub.Folder}
		if err := mover.AddPlan(ctx, sim.assembler, sim.login, p, &s); err != nil {
			return err
		}
	}
	if len(s.VMs) == 0 {
		return fault.New(fault.Invalid, "there is no VM to simulate").WithHint("name a plan, or say vms: [{count: 500, hosts: 8, allocated: 35G}] in %s", sim.hosts)
	}
	maps.Copy(s.Capacities, h.PerHost.Capacities("*"))
	if sim.hosts == "" {
		s.Rates = sim.ratesByName()
	}
	done, err := mover.Simulate(ctx, s, h)
	if err != nil {
		return err
	}
	return writeSimulated(sim.out, name, done)
}

func writeSimulated(out *output, name string, s mover.Simulated) error {
	if out.json {
		if err := out.printJSON(s); err != nil {
			return err
		}
		return neverError(s)
	}
	fmt.Fprintf(out, "%s: %s, %s allocated, in %s%s (%s on average)\n\n", printable(name), countOf(len(s.VMs), "VM"), sizeText(s.Bytes), durationText(s.Makespan), boundsText(s), rateText(s.Bytes, s.Makespan))
	writeLoads(out, s)
	if waits := waitedFor(s); len(waits) > 0 {
		fmt.Fprintln(out, "\nWhat VMs waited for before they began")
		for _, w := range waits {
			fmt.Fprintf(out, "  %s\n", w)
		}
	}
	return neverError(s)
}

// maxLoads is how many hosts and workers are shown.
const maxLoads = 40

// writeLoads shows what hosts and workers had to do; of many, those that had most.
func writeLoads(w io.Writer, s mover.Simulated) {
	loads := slices.Clone(s.Loads)
	if len(loads) > maxLoads {
		slices.SortStableFunc(loads, func(x, y simulate.Load) int {
			return cmp.Or(cmp.Compare(y.Busy, x.Busy), cmp.Compare(y.Bytes, x.Bytes))
		})
		loads = loads[:maxLoads]
	}
	t := newTable("", "VMS", "BYTES", "MOST AT ONCE", "BUSY", "OF ALL THE TIME")
	t.alignRight(1, 2, 3, 4, 5)
	for _, l := range loads {
		t.addRow(printable(l.Name), strconv.Itoa(l.VMs), sizeText(l.Bytes), strconv.Itoa(l.Most), durationText(l.Busy), percentText(int64(l.Busy), int64(s.Makespan)))
	}
	t.writeTo(w)
	if more := len(s.Loads) - len(loads); more > 0 {
		fmt.Fprintf(w, "and %d more, which had less to do\n", more)
	}
}

// boundsText returns the bounds of an end, if there are any.
func boundsText(s mover.Simulated) string {
	if s.Most == 0 {
		return ""
	}
	return fmt.Sprintf(", between %s and %s", durationText(s.Least), durationText(s.Most))
}

// maxWaits is the number of printed reasons.
const maxWaits = 5

// waitedFor sums up what VMs waited for, what cost most first.
func waitedFor(s mover.Simulated) []string {
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
	for _, name := range names[:min(len(names), maxWaits)] {
		lines = append(lines, fmt.Sprintf("%s: %s, %s on average", printable(name), countOf(waits[name].vms, "VM"), durationText(waits[name].time/time.Duration(waits[name].vms))))
	}
	return lines
}

// neverError is the error for VMs that could not begin.
func neverError(s mover.Simulated) error {
	if len(s.Never) == 0 {
		return nil
	}
	first := s.Never[0]
	return fault.New(fault.Conflict, "%s of the plan would never begin; %s: %s", countOf(len(s.Never), "VM"), first.VM, first.Why).
		WithHint("find the obstacles with decamp plan check")
}
