package main

import (
	"context"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/decamp/decamp/internal/assemble"
	"github.com/decamp/decamp/internal/esx"
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/planfile"
	"github.com/decamp/decamp/internal/preflight"
	"github.com/decamp/decamp/internal/selector"
)

const planInitHelp = `
Print a plan for the VMs of a source, with comments that show further keys.

VMs that cannot be migrated now become comments, with the reason and the remedy. That includes
running VMs, unless --power-off or --warm is set. With --json, "plan" has the plan and "left"
the other VMs.

--select selects VMs by an expression, such as folder=prod && !poweredOn: see decamp help
selection.
`

const planInitExamples = `
decamp plan init esxi://root@esx1 --to dir:/srv/vm > plan.yaml
decamp plan init vcenter://ops@vsphere.local@vc1 --select 'folder=prod && size<1TiB' --warm
decamp plan init esxi://root@esx1 --to dir:/srv/vm --json | jq .plan > plan.json
`

// planInitCommand is decamp plan init.
type planInitCommand struct {
	out       *output             // output and messages
	assembler *assemble.Assembler // state directory, access file and prompts
	login     assemble.Login      // login to the source
	selection string              // expression of --select; empty selects all VMs
	name      string              // name of the plan; empty: the host of the source and the words of selection
	to        []string            // destinations
	powerOff  bool                // set powerOff: guest
	warm      bool                // set mode: warm
}

// newPlanInit returns the command decamp plan init.
func newPlanInit(p *program) *cobra.Command {
	pi := &planInitCommand{out: p.out, assembler: p.assembler}
	cmd := &cobra.Command{
		Use: "init URL", Short: "Print a plan for the VMs of a source", Args: exactArgs("URL"),
		Long:    trimHelp(planInitHelp) + "\n\n" + trimHelp(sourceHelp),
		Example: trimHelp(planInitExamples), Annotations: exitCodes(slices.Concat([]exit{{fault.NotFound, "the selection matches no VM"}}, sourceExits[1:])...),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: p.withLog(func(cmd *cobra.Command, args []string) error {
			chosen, err := pi.checkFlags(cmd)
			if err != nil {
				return err
			}
			return pi.runInit(cmd.Context(), chosen, args[0])
		}),
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.StringVar(&pi.selection, "select", "", "only VMs that match `EXPR`")
	f.StringArrayVar(&pi.to, "to", nil, "target of the VMs: `dir:FOLDER`; may be repeated")
	f.StringVar(&pi.name, "name", "", "`NAME` of the plan (default the source's host and the words of --select)")
	f.BoolVar(&pi.powerOff, "power-off", false, "shut running guests down: powerOff: guest")
	f.BoolVar(&pi.warm, "warm", false, "copy VMs while they run: mode: warm")
	registerLogin(&pi.login, cmd)
	return cmd
}

// checkFlags parses the flags before the source is contacted.
func (pi *planInitCommand) checkFlags(cmd *cobra.Command) (chosen selector.Expr, err error) {
	if pi.name != "" && !planfile.IsName(pi.name) {
		return chosen, badUsage(cmd, "--name %q: want letters, digits, dots, dashes and underscores", pi.name)
	}
	for i, to := range pi.to {
		d, err := assemble.DestinationOf(to, "")
		if err != nil {
			return chosen, fmt.Errorf("--to: %w", err)
		}
		pi.to[i] = string(d)
	}
	if pi.selection == "" {
		return chosen, nil
	}
	if chosen, err = selector.Parse(pi.selection); err != nil {
		return chosen, fault.New(fault.Invalid, "--select: %w", err).WithHint("%s", selector.RemedyOf(err))
	}
	return chosen, nil
}

// runInit reads the VMs of the source and prints the plan.
func (pi *planInitCommand) runInit(ctx context.Context, chosen selector.Expr, rawURL string) (err error) {
	src, err := pi.assembler.Dial(ctx, rawURL, pi.login)
	if err != nil {
		return err
	}
	defer joinClose(&err, src.Close)
	vms, err := src.VMs(ctx)
	if err != nil {
		return err
	}
	d, err := pi.newDraft(rawURL, vms, chosen)
	if err != nil {
		return err
	}
	names := esx.NewIndex(vms)
	if !pi.out.json {
		return d.Write(pi.out, names)
	}
	plan, left := d.JSON(names)
	return pi.out.printJSON(map[string]any{"plan": plan, "left": left})
}

// newDraft returns the plan of the selected VMs. It fails if the selection matches none.
func (pi *planInitCommand) newDraft(rawURL string, vms []inventory.VM, chosen selector.Expr) (*planfile.Draft, error) {
	d := &planfile.Draft{Name: pi.name, URL: rawURL, Select: pi.selection, To: pi.to, Mode: planfile.Cold, PowerOff: planfile.NeverOff}
	if d.Name == "" {
		d.Name = planName(rawURL, pi.selection)
	}
	if pi.powerOff {
		d.PowerOff = planfile.GuestOff
	}
	if pi.warm {
		d.Mode = planfile.WarmMode
	}
	permit := preflight.PermitOf(planfile.Options{PowerOff: d.PowerOff, Mode: d.Mode})
	for i := range vms {
		if chosen.IsZero() || chosen.Match(&vms[i]) {
			d.VMs = append(d.VMs, planfile.Candidate{VM: &vms[i], Obstacles: preflight.Obstacles(&vms[i], nil, permit)})
		}
	}
	if len(d.VMs) == 0 && !chosen.IsZero() {
		return nil, fault.New(fault.NotFound, "the selection matches no VM: %s", pi.selection).
			WithHint("list the VMs with decamp ls; a user sees only VMs for which it has privileges")
	}
	return d, nil
}

// notInName matches characters that the name of a plan must not have.
var notInName = regexp.MustCompile(`[^A-Za-z0-9._-]+`)

// maxPlanName is the maximum length of a plan's name.
const maxPlanName = 63

// planName converts the host of the source and a selection to a valid name of a plan. Plans of several
// selections therefore have several names.
func planName(rawURL, selection string) string {
	host := ""
	if u, err := url.Parse(rawURL); err == nil {
		host = u.Hostname()
	}
	name := strings.Trim(notInName.ReplaceAllString(host+" "+selection, "-"), "._-")
	if name == "" {
		return "plan"
	}
	return strings.TrimRight(name[:min(len(name), maxPlanName)], "._-")
}
