package main

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/spf13/cobra"

	"github.com/decamp/decamp/internal/assemble"
	"github.com/decamp/decamp/internal/assemble/mover"
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/planfile"
	"github.com/decamp/decamp/internal/server"
)

const planRunHelp = `
Execute a plan: migrate, verify and publish all of its VMs, as decamp migrate does for one VM,
within the limits of hosts, datastores and links. Transient errors are retried. A VM that
fails does not stop the others.

The command can be killed at any time: the same command continues. decamp status shows the
progress and why VMs wait. decamp pause, resume, cancel, cutover, retry and rollback accept
PLAN or PLAN/VM. The command ends when every VM has ended, with exit code 0 if all are
published or were withdrawn.

If a decamp serve uses the state directory, or with --server, the server executes the plan,
and this command shows its progress. The plan then continues after the end of this command.
--detach does not wait.
`

const planRunExamples = `
decamp plan run plan.yaml
decamp plan run plan.yaml --json | jq 'select(.vm.state == "done").vm.name'
decamp plan run plan.yaml --server https://mover:8470 --token-file token --detach
`

// planRunCommand is decamp plan run.
type planRunCommand struct {
	out       *output             // output and messages
	assembler *assemble.Assembler // state directory, access file and prompts
	fleet     fleetFlags          // flags of the fleet
	notify    assemble.Notify     // receivers of notifications

	detach bool // do not wait for the end of the plan
	hooks  bool // run hooks of plans in a shared database
	vms    int  // VMs that this process migrates at a time
	trials int  // trial boots at a time
}

// newPlanRun returns the command decamp plan run.
func newPlanRun(p *program) *cobra.Command {
	pr := &planRunCommand{out: p.out, assembler: p.assembler, fleet: fleetFlags{assembler: p.assembler}}
	cmd := &cobra.Command{
		Use: "run FILE", Short: "Execute a plan", Long: trimHelp(planRunHelp), Example: trimHelp(planRunExamples),
		Args: exactArgs("FILE"),
		Annotations: exitCodes(
			exit{fault.NotFound, "the file does not exist"},
			exit{fault.Denied, "wrong password, missing privilege, unknown or changed certificate, or the database is not verified"},
			exit{fault.Unreachable, "the database or the server does not answer"},
			exit{fault.Conflict, "VMs failed, another plan has that name, or another decamp process uses the state directory"}),
		RunE: p.withLog(func(cmd *cobra.Command, args []string) error {
			if err := checkCounts(cmd, pr.vms, pr.trials); err != nil {
				return err
			}
			return pr.runPlan(cmd.Context(), args[0])
		}),
	}
	cmd.Flags().BoolVar(&pr.detach, "detach", false, "submit the plan and do not wait for its end")
	cmd.Flags().IntVar(&pr.vms, "vms", defaultVMs, "maximum number `N` of VMs that this process migrates at a time; at least 1")
	registerTrials(cmd.Flags(), &pr.trials)
	cmd.Flags().BoolVar(&pr.hooks, "allow-hooks", false, "with --db: run the commands (hooks) of all plans in the database that an admin submitted; without --db they are always run")
	pr.fleet.registerFlags(cmd)
	pr.fleet.registerKey(cmd)
	registerNotify(&pr.notify, cmd.Flags())
	return cmd
}

// runPlan submits the plan, and executes it unless a server or another process does.
func (pr *planRunCommand) runPlan(ctx context.Context, path string) (err error) {
	s, f, err := readSubmission(pr.out, path)
	if err != nil {
		return err
	}
	c, closeControl, err := pr.fleet.openControl(ctx)
	if err != nil {
		return err
	}
	defer joinClose(&err, closeControl)
	local, here := c.(server.Audited)
	if here && pr.detach {
		if err := ownCredentials(f); err != nil {
			return err
		}
	}
	if !here || pr.detach {
		return pr.handOver(ctx, c, s, pr.detach)
	}
	url, err := pr.fleet.databaseURL()
	if err != nil {
		return err
	}
	n, err := mover.OpenNode(ctx, pr.assembler, local.Database, mover.NodeOptions{
		Folders: foldersOf(f), VMs: pr.vms, Trials: pr.trials, Command: true, Hooks: pr.hooks || isFile(url), Shared: sharedURL(url), Insecure: pr.fleet.insecure, Notify: pr.notify,
	})
	if fault.Is(err, fault.Conflict) && isFile(url) {
		if isDriven(ctx, c) {
			if err := ownCredentials(f); err != nil {
				return err
			}
			fmt.Fprintf(pr.out.screen, "Another decamp process executes the plan (%s).\n", fault.Printable(err.Error()))
			return pr.handOver(ctx, c, s, false)
		}
		// If the database is full, the other process cannot renew its lease.
		if full := local.Database.SchedulerState.Request(ctx); fault.Is(full, fault.Full) {
			return full
		}
	}
	if err != nil {
		return err
	}
	defer joinClose(&err, n.Close)
	return pr.runToEnd(ctx, c, n, s)
}

// ownCredentials returns an error for a plan without credentials. Servers and workers would refuse it,
// because they do not receive the credentials of this command.
func ownCredentials(f *planfile.File) error {
	if f.Source.Credentials != (planfile.Credentials{}) {
		return nil
	}
	return assemble.NoCredentials(string(f.Source.URL))
}

// handOver submits the plan to a server or another process, and follows it unless detach is set.
func (pr *planRunCommand) handOver(ctx context.Context, c server.Control, s server.Submission, detach bool) error {
	p, err := c.Submit(ctx, s)
	if err != nil {
		return err
	}
	if detach {
		if pr.out.json {
			return pr.out.printJSON(map[string]string{"plan": p.Name})
		}
		_, err := fmt.Fprintln(pr.out, pr.out.message("Plan %s is submitted. Follow it with: decamp watch %s", p.Name, p.Name))
		return err
	}
	return followPlan(ctx, pr.out, c, p.Name)
}

// runToEnd executes the plan in this process until it ends.
func (pr *planRunCommand) runToEnd(ctx context.Context, c server.Control, n *mover.Node, s server.Submission) error {
	p, err := c.Submit(ctx, s)
	if err != nil {
		return err
	}
	if others := unfinishedPlans(ctx, c, p.Name); len(others) > 0 {
		fmt.Fprintf(pr.out.screen, "Other unfinished plans also continue: %v\n", others)
	}
	view, err := server.OpenPlanView(ctx, c, p.Name) // before the first VM begins
	if err != nil {
		return err
	}
	outer := ctx
	ctx, end := context.WithCancel(outer)
	defer end()
	var running sync.WaitGroup
	var nodeErr error
	running.Go(func() {
		defer end() // without a node nothing moves
		nodeErr = n.Run(ctx)
	})
	err = followView(ctx, pr.out, c, view)
	end()
	running.Wait()
	if nodeErr != nil {
		return nodeErr
	}
	// ctx has ended in any case; a plan with canceled VMs also returns fault.Canceled.
	if fault.Is(err, fault.Canceled) && outer.Err() != nil {
		return fault.New(fault.Canceled, "plan %s was stopped", p.Name).WithHint("run the same command again to continue")
	}
	return err
}

// unfinishedPlans returns the names of other plans that have not ended; nil if they cannot be read.
func unfinishedPlans(ctx context.Context, c server.Control, but string) (names []string) {
	plans, err := c.Plans(ctx)
	if err != nil {
		return nil
	}
	for _, p := range plans {
		if p.Name != but && !p.State.IsFinal() {
			names = append(names, p.Name)
		}
	}
	return names
}

// foldersOf returns the folders of all destinations of a plan, each once.
func foldersOf(f *planfile.File) []string {
	var folders []string
	for _, d := range f.Destinations() {
		if !slices.Contains(folders, d.Folder()) {
			folders = append(folders, d.Folder())
		}
	}
	return folders
}
