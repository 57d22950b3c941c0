package main

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/roster"
)

const auditHelp = `
List who submitted plans, gave orders and changed limits, and what was refused, newest first.
At a server that takes a token of role admin.
`

const auditExamples = `
decamp audit
decamp audit --most 1000 --json | jq '.entries[] | select(.err != null)'
`

func newAudit(a *app) *cobra.Command {
	var m meetingFlags
	most := 50
	cmd := &cobra.Command{
		Use: "audit", Short: "List who did what with plans", Long: text(auditHelp), Example: text(auditExamples),
		Args: takes(), Annotations: exits(ordersExits[2:]...), ValidArgsFunction: cobra.NoFileCompletions,
		RunE: a.logged(func(cmd *cobra.Command, _ []string) error {
			if most < 1 || most > 1000 {
				return badUsage(cmd, "--most %d: want 1 to 1000", most)
			}
			return a.audit(cmd.Context(), m, most)
		}),
	}
	cmd.Flags().IntVar(&most, "most", most, "at most `N` entries")
	m.register(cmd)
	return cmd
}

func (a *app) audit(ctx context.Context, m meetingFlags, most int) (err error) {
	c, closeControl, err := a.openControl(ctx, m)
	if err != nil {
		return err
	}
	defer closing(&err, closeControl)
	trail, err := c.Audit(ctx, 0, most)
	if err != nil {
		return err
	}
	if a.json {
		return a.print(map[string]any{"entries": append([]roster.Entry{}, trail...)})
	}
	t := newTable("TIME", "WHO", "ROLE", "FROM", "WHAT", "ON", "REFUSED")
	for _, e := range trail {
		t.add(e.Time.Local().Format(time.DateTime), plain(e.Who), e.Role, plain(e.From), plain(e.What), plain(e.On), plain(fault.OneLine(e.Err)))
	}
	t.write(a.out)
	return nil
}
