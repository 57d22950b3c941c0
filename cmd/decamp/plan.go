package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net/url"
	"path/filepath"
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
	"github.com/decamp/decamp/internal/selection"
)

const planHelp = `
Write, check and carry out plan files: which VMs are to be moved, where to and how, in one
text.

A plan is YAML. It is reviewed, changed and kept in git, and holds no secret. What its keys
mean is in docs/plan-files.md and in the schema.
`

const planExamples = `
decamp plan init esxi://root@esx1 --to dir:/srv/vm > plan.yaml
decamp plan check plan.yaml
decamp plan simulate plan.yaml
decamp plan run plan.yaml
decamp plan schema > plan.schema.json
`

func newPlan(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:         "plan COMMAND",
		Short:       "Write, check and carry out plans of many VMs",
		Long:        text(planHelp),
		Example:     text(planExamples),
		Annotations: exits(),
		Args:        noSuchCommand,
		RunE:        func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newPlanInit(a), newPlanCheck(a), newPlanRun(a), newPlanSimulate(a), newPlanSchema(a))
	return cmd
}

const planSchemaHelp = `
Print the JSON schema (2020-12) of plan files, for editors and other programs. It takes all
that decamp takes; what one value says about another only decamp plan check knows.
`

const planSchemaExamples = `
decamp plan schema > plan.schema.json
sed -i '1i # yaml-language-server: $schema=plan.schema.json' plan.yaml
`

func newPlanSchema(a *app) *cobra.Command {
	return &cobra.Command{
		Use: "schema", Short: "Print the JSON schema of plan files", Long: text(planSchemaHelp), Example: text(planSchemaExamples),
		Args: takes(), Annotations: exits(),
		RunE: func(*cobra.Command, []string) error {
			schema, err := planfile.Schema()
			if err != nil {
				return err
			}
			_, err = a.out.Write(schema)
			return err
		},
	}
}

const planCheckHelp = `
Say everything about a plan that would fail, before it does.

It reads the file, logs in to the source, and looks at each VM, folder and host: VMs that
are gone, ambiguous or cannot be moved as they are; folders that are missing, too small for
all VMs of the plan together, or have a VM's name already; hosts that do not answer. One
disk of each host is opened by the transport that is to move it. Nothing is changed.

With --dry-run it also says what each VM would be defined as at each of its places, as decamp
migrate --dry-run does; for that it reads a little of the disks of VMs that are off.

Findings that block end it with the exit code of their kind, or 6 if they are of several;
the others are notes. --password-file and --fingerprint stand above what the plan says.
`

const planCheckExamples = `
decamp plan check plan.yaml
decamp plan check plan.yaml --dry-run
decamp plan check plan.yaml --json | jq '.findings[] | select(.blocks)'
`

func newPlanCheck(a *app) *cobra.Command {
	var l assemble.Login
	var dryRun bool
	cmd := &cobra.Command{
		Use: "check FILE", Short: "Say what would fail of a plan", Long: text(planCheckHelp), Example: text(planCheckExamples),
		Args: takes("FILE"),
		Annotations: exits(
			exit{fault.NotFound, "the file, a VM, a folder or a program is not there"},
			exit{fault.Denied, "wrong password, missing privilege, certificate unknown or changed, SSH off"},
			exit{fault.Unreachable, "nobody answers at that address"},
			exit{fault.Conflict, "something is in the way: a VM runs, a name is taken; or several things are"},
			exit{fault.Unsupported, "a VM has something decamp cannot move"},
			exit{fault.Full, "the VMs do not fit where they are to live"}),
		RunE: a.logged(func(cmd *cobra.Command, args []string) error { return a.planCheck(cmd.Context(), l, args[0], dryRun) }),
	}
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "say what each VM would be defined as, too")
	registerLogin(&l, cmd)
	return cmd
}

func (a *app) planCheck(ctx context.Context, l assemble.Login, path string, dryRun bool) error {
	f, found, err := planfile.Load(path)
	if err != nil {
		return err
	}
	var r preflight.Report
	var o *assemble.Outlines
	if len(found) == 0 {
		if r, o, err = a.checkPlan(ctx, l, f, filepath.Dir(path), dryRun); err != nil {
			return err
		}
	} else {
		r = preflight.Report{Places: []preflight.Space{}, Findings: found}
	}
	if err := a.writeCheck(path, f, r, o); err != nil {
		return err
	}
	if err := r.Findings.Err(); err != nil {
		return fmt.Errorf("check %s: %w", path, err)
	}
	return nil
}

// checkPlan looks at this machine first. A source that cannot be logged in to is a finding as
// others are: what this machine lacks is told all the same.
func (a *app) checkPlan(ctx context.Context, l assemble.Login, f *planfile.File, folder string, dryRun bool) (r preflight.Report, o *assemble.Outlines, err error) {
	if l.PasswordFile != "" {
		f.Source.Credentials = planfile.Credentials{}
	}
	inFiles, err := a.InFiles(f)
	if err != nil {
		return r, nil, err
	}
	found := preflight.Local(inFiles, folder, a.Env)
	w, err := a.OpenPlan(ctx, l, f, folder)
	defer closing(&err, w.Close)
	if err == nil {
		rig := w.Rig(f)
		if dryRun {
			o = w.Outlines(f, &rig)
		}
		r, err = preflight.Check(ctx, f, rig)
	}
	if ctx.Err() != nil {
		return r, o, ctx.Err()
	}
	if err != nil {
		found = append(found, planfile.Found("source", f.At("source.url"), "", err))
		r.Places = []preflight.Space{}
	}
	r.Findings = append(found, r.Findings...)
	r.Findings.Sort()
	return r, o, nil
}

func (a *app) writeCheck(path string, f *planfile.File, r preflight.Report, o *assemble.Outlines) error {
	name := ""
	if f != nil {
		name = string(f.Name)
	}
	if a.json {
		r.Findings = append(planfile.Findings{}, r.Findings...) // a list, if an empty one
		return a.print(struct {
			Plan string `json:"plan"`
			preflight.Report
			Outlines []assemble.DryRun `json:"outlines,omitempty"` // of --dry-run
		}{name, r, o.Reports()})
	}
	if r.VMs > 0 {
		fmt.Fprintf(a.out, "Plan %s: %s with %s, %s in all\n", name, count(r.VMs, "VM"), count(r.Disks, "disk"), size(r.Bytes))
	}
	for _, s := range r.Places {
		fmt.Fprintf(a.out, "%s: %s, %s to %s to be written, %s free\n", strings.Join(s.Folders, ", "), count(s.VMs, "VM"), size(s.Least), size(s.Most), size(s.Free))
	}
	writeOutlines(a.out, o)
	for _, finding := range r.Findings {
		writeFinding(a.out, path, finding)
	}
	if r.Findings.Blocking() == 0 {
		fmt.Fprintln(a.out, "\nNothing was found that would fail.")
	}
	return nil
}

// count says how many there are of something.
func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

func writeFinding(w io.Writer, path string, f planfile.Finding) {
	mark := cmp.Or(f.Code, "file")
	if f.Blocks {
		mark += "!"
	}
	place := path
	if f.Line > 0 {
		place += fmt.Sprintf(":%d", f.Line)
	}
	if f.Column > 0 {
		place += fmt.Sprintf(":%d", f.Column)
	}
	what := f.Text
	if f.VM != "" {
		what = f.VM + ": " + what
	}
	fmt.Fprintf(w, "\n%s: %s: %s\n", plain(place), mark, plain(fault.OneLine(what)))
	if f.Remedy != "" {
		fmt.Fprintf(w, "  Remedy: %s\n", plain(fault.OneLine(f.Remedy)))
	}
}

const planInitHelp = `
Print a plan of the VMs that a source has, with comments that say what else a plan can say.

VMs that cannot be moved as they are become comments, with the reason and the remedy. VMs
that run are among those unless --power-off or --warm says what is to be done about that.
With --json the plan is in "plan", and the others are in "left".

--select chooses VMs by an expression, such as: folder=prod && !poweredOn
= and != compare text, ~ with a pattern of * and ?, < <= > >= numbers and sizes; terms are
joined by && and ||, and ! and ( ) are what they are elsewhere. The fields are:
`

const planInitExamples = `
decamp plan init esxi://root@esx1 --to dir:/srv/vm > plan.yaml
decamp plan init vcenter://ops@vsphere.local@vc1 --select 'folder=prod && size<1TiB' --warm
decamp plan init esxi://root@esx1 --to dir:/srv/vm --json | jq .plan > plan.json
`

// planInitOptions are the flags of decamp plan init.
type planInitOptions struct {
	assemble.Login
	choose   string
	name     string
	to       []string
	powerOff bool
	warm     bool
}

func newPlanInit(a *app) *cobra.Command {
	var o planInitOptions
	cmd := &cobra.Command{
		Use: "init URL", Short: "Print a plan of what a source has", Args: takes("URL"),
		Long:    text(planInitHelp) + "\n\n" + fieldsHelp() + "\n\n" + text(sourceHelp),
		Example: text(planInitExamples), Annotations: exits(slices.Concat([]exit{{fault.NotFound, "no VM is chosen"}}, sourceExits[1:])...),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: a.logged(func(cmd *cobra.Command, args []string) error {
			chosen, err := o.check(cmd)
			if err != nil {
				return err
			}
			return a.planInit(cmd.Context(), o, chosen, args[0])
		}),
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.StringVar(&o.choose, "select", "", "only the VMs that `EXPR` chooses")
	f.StringArrayVar(&o.to, "to", nil, "where the VMs are to live: `dir:FOLDER`; may be repeated")
	f.StringVar(&o.name, "name", "", "`NAME` of the plan (default the source's host)")
	f.BoolVar(&o.powerOff, "power-off", false, "have guests shut down that run: powerOff: guest")
	f.BoolVar(&o.warm, "warm", false, "have VMs copied while they run: mode: warm")
	registerLogin(&o.Login, cmd)
	return cmd
}

// fieldsHelp lists the fields of selections.
func fieldsHelp() string {
	t := newTable()
	t.rows = nil
	for _, f := range selection.Fields() {
		t.add("  "+f.Name, f.Means)
	}
	var b strings.Builder
	t.write(&b)
	return strings.TrimRight(b.String(), "\n")
}

// check refuses flags that do not fit, before the source is asked.
func (o *planInitOptions) check(cmd *cobra.Command) (chosen selection.Expr, err error) {
	if o.name != "" && !planfile.IsName(o.name) {
		return chosen, badUsage(cmd, "--name %q: want letters, digits, dots, dashes and underscores", o.name)
	}
	for i, to := range o.to {
		d, err := assemble.DestinationOf(to, "")
		if err != nil {
			return chosen, fmt.Errorf("--to: %w", err)
		}
		o.to[i] = string(d)
	}
	if o.choose == "" {
		return chosen, nil
	}
	if chosen, err = selection.Parse(o.choose); err != nil {
		return chosen, fault.New(fault.Invalid, "--select: %w", err).WithHint("%s", selection.RemedyOf(err))
	}
	return chosen, nil
}

func (a *app) planInit(ctx context.Context, o planInitOptions, chosen selection.Expr, rawURL string) (err error) {
	src, err := a.Dial(ctx, rawURL, o.Login)
	if err != nil {
		return err
	}
	defer closing(&err, src.Close)
	vms, err := src.VMs(ctx)
	if err != nil {
		return err
	}
	d, err := o.draft(rawURL, vms, chosen)
	if err != nil {
		return err
	}
	names := esx.NewIndex(vms)
	if !a.json {
		return d.Write(a.out, names)
	}
	plan, left := d.JSON(names)
	return a.print(map[string]any{"plan": plan, "left": left})
}

// draft is the plan of the VMs that are chosen; without an expression, all are.
func (o *planInitOptions) draft(rawURL string, vms []inventory.VM, chosen selection.Expr) (*planfile.Draft, error) {
	d := &planfile.Draft{Name: o.name, URL: rawURL, Select: o.choose, To: o.to, Mode: planfile.Cold, PowerOff: planfile.NeverOff}
	if d.Name == "" {
		d.Name = planName(rawURL)
	}
	if o.powerOff {
		d.PowerOff = planfile.GuestOff
	}
	if o.warm {
		d.Mode = planfile.Warmly
	}
	permit := preflight.PermitOf(planfile.Options{PowerOff: d.PowerOff, Mode: d.Mode})
	for i := range vms {
		if chosen.IsZero() || chosen.Match(&vms[i]) {
			d.VMs = append(d.VMs, planfile.Candidate{VM: &vms[i], Obstacles: preflight.Obstacles(&vms[i], nil, permit)})
		}
	}
	if len(d.VMs) == 0 && !chosen.IsZero() {
		return nil, fault.New(fault.NotFound, "no VM is chosen by: %s", o.choose).
			WithHint("decamp ls lists the VMs; a user sees only those it has privileges on")
	}
	return d, nil
}

var notInName = regexp.MustCompile(`[^A-Za-z0-9._-]+`)

// longestPlanName is what a plan's name may have.
const longestPlanName = 63

// planName makes the source's host a name that a plan may have.
func planName(rawURL string) string {
	host := ""
	if u, err := url.Parse(rawURL); err == nil {
		host = u.Hostname()
	}
	name := strings.Trim(notInName.ReplaceAllString(host, "-"), "._-")
	if name == "" {
		return "plan"
	}
	return name[:min(len(name), longestPlanName)]
}
