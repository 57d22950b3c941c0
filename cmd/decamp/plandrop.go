package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/decamp/decamp/internal/fault"
)

const planDropHelp = `
Remove the record of a plan that has ended, so that another plan can have its name. The
migrated VMs are kept, but decamp status and decamp rollback no longer find them by the name
of the plan. At a server the command requires the role admin.

Cancel a plan that has not ended first: decamp cancel PLAN. PLAN is looked up in the state
directory, in the database of --db, or at the server of --server.
`

// planDropCommand is decamp plan drop.
type planDropCommand struct {
	out   *output    // output and messages
	fleet fleetFlags // flags of the fleet
}

// newPlanDrop returns the command decamp plan drop.
func newPlanDrop(p *program) *cobra.Command {
	pd := &planDropCommand{out: p.out, fleet: fleetFlags{assembler: p.assembler}}
	cmd := &cobra.Command{
		Use: "drop PLAN", Short: "Remove the record of a plan that has ended", Long: trimHelp(planDropHelp), Args: exactArgs("PLAN"),
		Example: "decamp plan drop wave-1",
		Annotations: exitCodes(append([]exit{
			{fault.NotFound, "the plan does not exist: decamp status lists the plans"},
			{fault.Conflict, "the plan has not ended"}}, commandExits[2:]...)...),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE:              p.withLog(func(cmd *cobra.Command, args []string) error { return pd.dropPlan(cmd.Context(), args[0]) }),
	}
	pd.fleet.registerFlags(cmd)
	return cmd
}

// dropPlan removes the record of a plan.
func (pd *planDropCommand) dropPlan(ctx context.Context, name string) (err error) {
	c, closeControl, err := pd.fleet.openControl(ctx)
	if err != nil {
		return err
	}
	defer joinClose(&err, closeControl)
	if err := c.DropPlan(ctx, name); err != nil {
		return err
	}
	if pd.out.json {
		return pd.out.printJSON(map[string]string{"dropped": name})
	}
	_, err = fmt.Fprintf(pd.out, "Plan %s is removed. Its migrated VMs are kept.\n", fault.Printable(name))
	return err
}
