package main

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/fleetdb"
)

const auditHelp = `
List who submitted plans, gave commands and changed limits, and which requests were refused,
the newest first. A server requires a token with the role admin.
`

const auditExamples = `
decamp audit
decamp audit --most 1000 --json | jq '.entries[] | select(.err != null)'
`

// auditCommand is decamp audit.
type auditCommand struct {
	out   *output    // output and messages
	fleet fleetFlags // flags of the fleet
	most  int        // entries
}

// newAudit returns the command decamp audit.
func newAudit(p *program) *cobra.Command {
	a := &auditCommand{out: p.out, fleet: fleetFlags{assembler: p.assembler}}
	cmd := &cobra.Command{
		Use: "audit", Short: "List actions of users on plans", Long: trimHelp(auditHelp), Example: trimHelp(auditExamples),
		Args: exactArgs(), Annotations: exitCodes(commandExits[2:]...), ValidArgsFunction: cobra.NoFileCompletions,
		RunE: p.withLog(func(cmd *cobra.Command, _ []string) error {
			if a.most < 1 || a.most > 1000 {
				return badUsage(cmd, "--most %d: want 1 to 1000", a.most)
			}
			return a.printAudit(cmd.Context())
		}),
	}
	cmd.Flags().IntVar(&a.most, "most", 50, "at most `N` entries")
	a.fleet.registerFlags(cmd)
	return cmd
}

// printAudit prints the newest entries of the audit trail.
func (a *auditCommand) printAudit(ctx context.Context) (err error) {
	c, closeControl, err := a.fleet.openControl(ctx)
	if err != nil {
		return err
	}
	defer joinClose(&err, closeControl)
	trail, err := c.Audit(ctx, 0, a.most)
	if err != nil {
		return err
	}
	if a.out.json {
		return a.out.printJSON(map[string]any{"entries": append([]fleetdb.Entry{}, trail...)})
	}
	t := newTable("TIME", "USER", "ROLE", "FROM", "ACTION", "ON", "REFUSED")
	for _, e := range trail {
		t.addRow(e.Time.Local().Format(time.DateTime), fault.Printable(e.User), e.Role, fault.Printable(e.From), fault.Printable(e.Action), fault.Printable(e.On), fault.Printable(fault.OneLine(e.Err)))
	}
	t.writeTo(a.out)
	return nil
}
