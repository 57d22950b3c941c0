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
	"github.com/decamp/decamp/internal/units"
)

const planSimulateHelp = `
Simulate a plan with the scheduler of plan run, and print how long it would take, when each VM
would begin, and what the bottleneck would be. Transfers are only counted.

It logs in to the source and reads the VMs and their allocated bytes; nothing is migrated or
changed. Set the rates of transfers with --rate for one transfer, --host-rate for each host
and --all-rate for all together. --hosts is a file with the rate of each host, datastore and
disk, and with their uncertainty. Without a plan, that file can also describe the VMs, for
example 500 VMs on 8 hosts.

The simulation ignores warm rounds, conversions, verification, failures and other plans.
`

const planSimulateExamples = `
decamp plan simulate plan.yaml
decamp plan simulate plan.yaml --rate 60M --host-rate 300M --all-rate 1G
decamp plan simulate plan.yaml --hosts hosts.yaml
decamp plan simulate --hosts hosts.yaml --json | jq .makespan
`

// simulateCommand is decamp plan simulate.
type simulateCommand struct {
	out       *output             // output and messages
	assembler *assemble.Assembler // state directory, access file and prompts
	login     assemble.Login      // login to the source

	each, host, all flaghelp.Rate // rates in bytes per second of a transfer, of a host, and of all transfers
	assumed         bool          // each is the default, because --rate is not set
	hosts           string        // path of the hardware file; empty for none
}

// newPlanSimulate returns the command decamp plan simulate.
func newPlanSimulate(p *program) *cobra.Command {
	sim := &simulateCommand{out: p.out, assembler: p.assembler, each: mover.GuessedRate}
	cmd := &cobra.Command{
		Use: "simulate [FILE]", Short: "Predict how long a plan would take", Long: trimHelp(planSimulateHelp), Example: trimHelp(planSimulateExamples),
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 && sim.hosts != "" {
				return nil
			}
			return exactArgs("FILE")(cmd, args)
		},
		Annotations: exitCodes(slices.Concat(sourceExits, []exit{{fault.Conflict, "the plan has VMs that would never start"}})...),
		RunE: p.withLog(func(cmd *cobra.Command, args []string) error {
			sim.assumed = !cmd.Flags().Changed("rate")
			return sim.runSimulation(cmd.Context(), args)
		}),
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.Var(&sim.each, "rate", "bytes per second of one VM's transfer")
	f.Var(&sim.host, "host-rate", "bytes per second of each ESXi host (default unlimited)")
	f.Var(&sim.all, "all-rate", "bytes per second of all transfers together (default unlimited)")
	f.StringVar(&sim.hosts, "hosts", "", "`FILE` with the rates of hosts, datastores, disks and links, instead of the rates above")
	for _, rate := range []string{"rate", "host-rate", "all-rate"} {
		cmd.MarkFlagsMutuallyExclusive("hosts", rate)
	}
	registerLogin(&sim.login, cmd)
	return cmd
}

// ratesByName returns the rates of the flags by the names of the simulation.
func (sim *simulateCommand) ratesByName() map[string]int64 {
	rates := map[string]int64{}
	for name, rate := range map[string]flaghelp.Rate{"vm:*/rate": sim.each, "host:*/rate": sim.host, "link:all/rate": sim.all} {
		if rate > 0 {
			rates[name] = int64(rate)
		}
	}
	return rates
}

// runSimulation simulates the plan, or the VMs of the hardware file.
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
		return fault.New(fault.Invalid, "the simulation has no VM").WithHint("add a plan file to the command, or add vms: [{count: 500, hosts: 8, allocated: 35G}] to %s", sim.hosts)
	}
	maps.Copy(s.Capacities, h.PerHost.Capacities("*"))
	if sim.hosts == "" {
		s.Rates = sim.ratesByName()
	}
	done, err := mover.Simulate(ctx, s, h)
	if err != nil {
		return err
	}
	if sim.hosts == "" && sim.assumed {
		done.AssumedRate = int64(sim.each)
	}
	return writeSimulated(sim.out, name, done)
}

// writeSimulated prints the duration, the load of hosts and workers, and what VMs waited for.
func writeSimulated(out *output, name string, s mover.Simulated) error {
	if out.json {
		if err := out.printJSON(s); err != nil {
			return err
		}
		return neverError(s)
	}
	fmt.Fprintf(out, "%s: %s, %s allocated, in %s%s (%s on average)\n\n", fault.Printable(name), units.Count(len(s.VMs), "VM"), units.Binary(s.Bytes), units.Duration(s.Makespan), boundsText(s), units.Rate(s.Bytes, s.Makespan))
	if s.AssumedRate > 0 {
		fmt.Fprintf(out, "Assumed: %s for each VM. Measure it with decamp bench, and set --rate.\n\n", units.Rate(s.AssumedRate, time.Second))
	}
	writeLoads(out, s)
	if waits := waitedFor(s); len(waits) > 0 {
		fmt.Fprintln(out, "\nResources that VMs waited for")
		for _, w := range waits {
			fmt.Fprintf(out, "  %s\n", w)
		}
	}
	return neverError(s)
}

// maxLoads is the number of hosts and workers that are printed.
const maxLoads = 40

// writeLoads prints the load of hosts and workers. If there are more than maxLoads, it prints the
// busiest.
func writeLoads(w io.Writer, s mover.Simulated) {
	loads := slices.Clone(s.Loads)
	if len(loads) > maxLoads {
		slices.SortStableFunc(loads, func(x, y simulate.Load) int {
			return cmp.Or(cmp.Compare(y.Busy, x.Busy), cmp.Compare(y.Bytes, x.Bytes))
		})
		loads = loads[:maxLoads]
	}
	t := newTable("", "VMS", "BYTES", "PEAK", "BUSY", "OF TOTAL TIME")
	t.alignRight(1, 2, 3, 4, 5)
	for _, l := range loads {
		t.addRow(fault.Printable(l.Name), strconv.Itoa(l.VMs), units.Binary(l.Bytes), strconv.Itoa(l.Peak), units.Duration(l.Busy), units.Percent(int64(l.Busy), int64(s.Makespan)))
	}
	t.writeTo(w)
	if more := len(s.Loads) - len(loads); more > 0 {
		fmt.Fprintf(w, "and %d more with less load\n", more)
	}
}

// boundsText returns the bounds of the duration; otherwise an empty text.
func boundsText(s mover.Simulated) string {
	if s.Most == 0 {
		return ""
	}
	return fmt.Sprintf(", between %s and %s", units.Duration(s.Least), units.Duration(s.Most))
}

// maxWaits is the number of reasons that are printed.
const maxWaits = 5

// waitedFor returns the resources for which VMs waited, the longest total time first.
func waitedFor(s mover.Simulated) []string {
	type wait struct {
		vms  int
		time time.Duration
	}
	waits := map[string]wait{}
	for _, vm := range s.VMs {
		if vm.WaitReason != "" {
			w := waits[vm.WaitReason]
			waits[vm.WaitReason] = wait{w.vms + 1, w.time + vm.Began}
		}
	}
	names := slices.SortedFunc(maps.Keys(waits), func(x, y string) int { return int(waits[y].time - waits[x].time) })
	var lines []string
	for _, name := range names[:min(len(names), maxWaits)] {
		lines = append(lines, fmt.Sprintf("%s: %s, %s on average", fault.Printable(name), units.Count(waits[name].vms, "VM"), units.Duration(waits[name].time/time.Duration(waits[name].vms))))
	}
	return lines
}

// neverError returns the error for VMs that would never start; nil without any.
func neverError(s mover.Simulated) error {
	if len(s.NeverStarted) == 0 {
		return nil
	}
	first := s.NeverStarted[0]
	return fault.New(fault.Conflict, "%s of the plan would never start; %s: %s", units.Count(len(s.NeverStarted), "VM"), first.VM, first.Reason).
		WithHint("find the obstacles with decamp plan check")
}
