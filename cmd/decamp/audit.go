package main

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/fleetdb"
)

const auditHelp = `
List who submitted plans, gave orders and changed limits, and what was refused, newest first.
At a server that takes a token of role admin.
`

const auditExamples = `
decamp audit
decamp audit --most 1000 --json | jq '.entries[] | select(.err != null)'
`

// auditCommand is decamp audit.
type auditCommand struct {
	out   *output
	fleet fleetFlags
	most  int // entries
}

func newAudit(p *program) *cobra.Command {
	a := &auditCommand{out: p.out, fleet: fleetFlags{assembler: p.assembler}}
	cmd := &cobra.Command{
		Use: "audit", Short: "List who did what with plans", Long: text(auditHelp), Example: text(auditExamples),
		Args: takes(), Annotations: exits(ordersExits[2:]...), ValidArgsFunction: cobra.NoFileCompletions,
		RunE: p.logged(func(cmd *cobra.Command, _ []string) error {
			if a.most < 1 || a.most > 1000 {
				return badUsage(cmd, "--most %d: want 1 to 1000", a.most)
			}
			return a.run(cmd.Context())
		}),
	}
	cmd.Flags().IntVar(&a.most, "most", 50, "at most `N` entries")
	a.fleet.register(cmd)
	return cmd
}

func (a *auditCommand) run(ctx context.Context) (err error) {
	c, closeControl, err := a.fleet.openControl(ctx)
	if err != nil {
		return err
	}
	defer closing(&err, closeControl)
	trail, err := c.Audit(ctx, 0, a.most)
	if err != nil {
		return err
	}
	if a.out.json {
		return a.out.print(map[string]any{"entries": append([]fleetdb.Entry{}, trail...)})
	}
	t := newTable("TIME", "WHO", "ROLE", "FROM", "WHAT", "ON", "REFUSED")
	for _, e := range trail {
		t.add(e.Time.Local().Format(time.DateTime), plain(e.Who), e.Role, plain(e.From), plain(e.What), plain(e.On), plain(fault.OneLine(e.Err)))
	}
	t.write(a.out)
	return nil
}
