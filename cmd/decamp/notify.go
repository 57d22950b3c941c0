package main

import (
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/decamp/decamp/internal/assemble"
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/notify"
	"github.com/decamp/decamp/internal/planfile"
)

const notifyHelp = `
Test the receivers of notifications. decamp serve, worker and plan run send notifications to
the webhooks, mail addresses and commands of the notification file: when a VM or a plan
fails, when a plan is done, when a warm VM waits for its cutover, and when an outage was too
long. docs/notifications.md describes the file.
`

// newNotify returns the command decamp notify with its subcommand.
func newNotify(p *program) *cobra.Command {
	cmd := &cobra.Command{
		Use: "notify COMMAND", Short: "Test the receivers of notifications", Long: trimHelp(notifyHelp), Example: "decamp notify test ops",
		Annotations: exitCodes(), Args: noSuchCommand,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newNotifyTest(p))
	return cmd
}

// newNotifyTest returns the command decamp notify test.
func newNotifyTest(p *program) *cobra.Command {
	var file assemble.Notify
	var kind string
	var show bool
	cmd := &cobra.Command{
		Use: "test NAME", Short: "Send a sample to a receiver, or print it", Args: exactArgs("NAME"),
		Long:    trimHelp("\nSend the notification of a sample event to one receiver, once. With --print, print it instead.\n"),
		Example: "decamp notify test ops\ndecamp notify test ops --event cutover-due --print",
		Annotations: exitCodes(
			exit{fault.NotFound, "the notification file, a secret or the receiver does not exist"},
			exit{fault.Denied, "other users may write the file or read a secret, or the receiver is a command and --allow-notify-commands is missing"},
			exit{fault.Unreachable, "the receiver did not accept the notification"}),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: p.withLog(func(cmd *cobra.Command, args []string) error {
			if !slices.Contains(planfile.EventKinds, planfile.EventKind(kind)) {
				return badUsage(cmd, "--event %q: want one of %v", kind, planfile.EventKinds)
			}
			to, err := p.assembler.Receivers(file)
			if err == nil && to == nil {
				err = fault.New(fault.NotFound, "the state directory has no notification file").WithHint("create %s there, or name a file with --notify", planfile.NotifyFile)
			}
			if err != nil {
				return err
			}
			e, body, err := to.Preview(args[0], notify.Sample(planfile.EventKind(kind)))
			if err == nil && !show {
				err = to.Test(cmd.Context(), args[0], e)
			}
			switch {
			case err != nil:
				return err
			case p.out.json:
				return p.out.printJSON(e)
			case show:
				_, err = fmt.Fprintf(p.out, "Subject: %s\n\n%s\nBody of a webhook: %s\n", fault.Printable(e.Subject), e.Text, fault.Printable(string(body)))
			default:
				_, err = fmt.Fprintf(p.out, "%s accepted the sample %s.\n", args[0], e.ID)
			}
			return err
		}),
	}
	registerNotify(&file, cmd.Flags())
	cmd.Flags().StringVar(&kind, "event", string(planfile.VMFailed), "`KIND` of the sample event")
	cmd.Flags().BoolVar(&show, "print", false, "print the notification and do not send it")
	return cmd
}
