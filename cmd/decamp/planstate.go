package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/roster"
)

func planState(p roster.Plan) string {
	switch {
	case !p.State.Over() && p.Order == roster.Pause:
		return "paused"
	case !p.State.Over() && (p.Order == roster.Cancel || p.Order == roster.Rollback):
		return "giving up"
	}
	return string(p.State)
}

func total(n roster.Counts) (all int) {
	for _, each := range n {
		all += each
	}
	return all
}

func underWay(n roster.Counts) int { return n[roster.Running] + n[roster.Assigned] }

func waiting(n roster.Counts) int { return n[roster.Queued] + n[roster.Stranded] }

// rateOf sums up the rates of a plan's transfers that were told lately.
func rateOf(progress []roster.Progress, plan string) (bytes int64) {
	for _, p := range progress {
		if p.Plan == plan {
			bytes += p.Rate
		}
	}
	return bytes
}

func writePlan(out io.Writer, p roster.Plan) {
	var parts []string
	for _, s := range []roster.State{roster.Done, roster.Running, roster.Assigned, roster.Queued, roster.Stranded, roster.Failed, roster.Canceled} {
		if n := p.Counts[s]; n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, s))
		}
	}
	fmt.Fprintf(out, "Plan %s, %s: %s", p.Name, planState(p), count(total(p.Counts), "VM"))
	if len(parts) > 0 {
		fmt.Fprintf(out, " (%s)", strings.Join(parts, ", "))
	}
	fmt.Fprintln(out)
	if p.Failure != nil {
		fmt.Fprintf(out, "%s\n", plain(fault.OneLine(p.Failure.Text)))
		if p.Failure.Hint != "" {
			fmt.Fprintf(out, "Remedy: %s\n", plain(fault.OneLine(p.Failure.Hint)))
		}
	}
}

// planError is what a plan that ended comes to: nil if every VM is published.
func planError(p roster.Plan) error {
	if p.Failure != nil {
		return fault.New(fault.KindNamed(p.Failure.Kind), "plan %s: %s", p.Name, p.Failure.Text).WithHint("%s", p.Failure.Hint)
	}
	failed, canceled := p.Counts[roster.Failed], p.Counts[roster.Canceled]
	switch {
	case failed > 0:
		return fault.New(fault.Conflict, "plan %s: %d of %s failed", p.Name, failed, count(total(p.Counts), "VM")).
			WithHint("decamp status %s says why; decamp retry %s tries them again", p.Name, p.Name)
	case canceled > 0:
		return fault.New(fault.Canceled, "plan %s: %d of %s were given up", p.Name, canceled, count(total(p.Counts), "VM"))
	}
	return nil
}
