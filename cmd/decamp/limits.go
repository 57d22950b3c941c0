package main

import (
	"context"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/decamp/decamp/internal/assemble/mover"
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/units"
)

const limitsHelp = `
List and change the limits of parallel work and of rates. A change applies at once, also to
running transfers. It takes precedence over plans until --unset removes it.

The value of a NAME that ends in /rate is bytes per second of all its transfers, such as 50M;
0 stops them. The value of other names is a number; 0 starts no further transfers. An ESXi
source has its name from the URL of the source, and its datastores are NAME@HOST.

  host:NAME/vms, host:NAME/disks, host:NAME/nfc   one ESXi host, or each one: host:*/vms
  datastore:NAME/vms, source:HOST:PORT/vms        one datastore; one ESXi host or vCenter
  target:dir:/FOLDER/vms, worker:NAME/vms         one destination; one machine
  fleet:all/rate, plan:NAME/rate, source:HOST:PORT/rate, host:NAME/rate,
  target:dir:/FOLDER/rate, worker:NAME/rate       bytes per second
`

const limitsExamples = `
decamp limits
decamp limits host:esx1.example.com/vms 5
decamp limits fleet:all/rate 200M
decamp limits --unset fleet:all/rate
`

// limitsCommand is decamp limits.
type limitsCommand struct {
	out   *output    // output and messages
	fleet fleetFlags // flags of the fleet
	unset bool       // remove the limit
}

// newLimits returns the command decamp limits.
func newLimits(p *program) *cobra.Command {
	lim := &limitsCommand{out: p.out, fleet: fleetFlags{assembler: p.assembler}}
	cmd := &cobra.Command{
		Use: "limits [NAME VALUE]", Short: "List and change limits of parallel work and rates", Long: trimHelp(limitsHelp), Example: trimHelp(limitsExamples),
		Args: cobra.MaximumNArgs(2), Annotations: exitCodes(commandExits[2:]...), ValidArgsFunction: cobra.NoFileCompletions,
		RunE: p.withLog(func(cmd *cobra.Command, args []string) error {
			switch {
			case lim.unset && len(args) == 1:
				return lim.setLimit(cmd.Context(), args[0], -1)
			case lim.unset:
				return badUsage(cmd, "--unset: want the NAME of a limit")
			case len(args) == 1:
				return badUsage(cmd, "%s: want a VALUE, or --unset", args[0])
			case len(args) == 0:
				return lim.listLimits(cmd.Context())
			}
			units, err := limitOf(args[0], args[1])
			if err != nil {
				return badUsage(cmd, "%w", err)
			}
			return lim.setLimit(cmd.Context(), args[0], units)
		}),
	}
	cmd.Flags().BoolVar(&lim.unset, "unset", false, "remove a limit: the limits of plans apply again")
	lim.fleet.registerFlags(cmd)
	return cmd
}

// limitOf parses the value of a limit: a rate if its name ends in /rate, otherwise a number.
func limitOf(name, text string) (int64, error) {
	if strings.HasSuffix(name, mover.RateSuffix) {
		return units.ParseRate(text)
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 0 || n == math.MaxInt64 {
		return 0, fmt.Errorf("%q: want a number, or 0 to start no transfers", text)
	}
	return n, nil
}

// setLimit sets a limit, or removes it if units are negative.
func (lim *limitsCommand) setLimit(ctx context.Context, name string, units int64) (err error) {
	c, closeControl, err := lim.fleet.openControl(ctx)
	if err != nil {
		return err
	}
	defer joinClose(&err, closeControl)
	if err := c.SetLimit(ctx, name, units); err != nil {
		return err
	}
	if lim.out.json {
		return lim.out.printJSON(map[string]any{"name": name, "units": units})
	}
	_, err = fmt.Fprintf(lim.out, "%s: %s\n", fault.Printable(name), limitWords(name, units))
	return err
}

// listLimits prints all limits that are set.
func (lim *limitsCommand) listLimits(ctx context.Context) (err error) {
	c, closeControl, err := lim.fleet.openControl(ctx)
	if err != nil {
		return err
	}
	defer joinClose(&err, closeControl)
	limits, err := c.Limits(ctx)
	if err != nil {
		return err
	}
	if lim.out.json {
		return lim.out.printJSON(map[string]any{"limits": limits})
	}
	if len(limits) == 0 {
		fmt.Fprintln(lim.out, "No limits are set: the limits of plans and the defaults apply.")
		return nil
	}
	t := newTable("NAME", "VALUE")
	t.alignRight(1)
	for _, l := range limits {
		t.addRow(fault.Printable(l.Name), limitWords(l.Name, l.Units))
	}
	t.writeTo(lim.out)
	return nil
}
