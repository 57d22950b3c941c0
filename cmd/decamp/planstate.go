package main

import (
	"fmt"
	"strings"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/fleetdb"
	"github.com/decamp/decamp/internal/units"
)

// writePlan prints the state of a plan, and its failure.
func writePlan(out *output, p fleetdb.Plan) {
	var parts []string
	for _, s := range []fleetdb.State{fleetdb.Done, fleetdb.Running, fleetdb.Assigned, fleetdb.Queued, fleetdb.Stranded, fleetdb.Failed, fleetdb.Canceled} {
		if n := p.Counts[s]; n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, s))
		}
	}
	fmt.Fprintf(out, "Plan %s, %s: %s", p.Name, p.StateText(), units.Count(p.Counts.Total(), "VM"))
	if len(parts) > 0 {
		fmt.Fprintf(out, " (%s)", strings.Join(parts, ", "))
	}
	fmt.Fprintln(out)
	if p.Failure != nil {
		fmt.Fprintf(out, "%s\n", fault.Printable(fault.OneLine(p.Failure.Text)))
		if p.Failure.Hint != "" {
			fmt.Fprintln(out, out.message("Remedy: %s", p.Failure.Hint))
		}
	}
}
