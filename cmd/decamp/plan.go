package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/decamp/decamp/internal/assemble"
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/planfile"
	"github.com/decamp/decamp/internal/preflight"
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
	var o *outlines
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
func (a *app) checkPlan(ctx context.Context, l assemble.Login, f *planfile.File, folder string, dryRun bool) (r preflight.Report, o *outlines, err error) {
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
			o = a.newOutlines(w, f, &rig)
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

func (a *app) writeCheck(path string, f *planfile.File, r preflight.Report, o *outlines) error {
	name := ""
	if f != nil {
		name = string(f.Name)
	}
	if a.json {
		r.Findings = append(planfile.Findings{}, r.Findings...) // a list, if an empty one
		return a.print(struct {
			Plan string `json:"plan"`
			preflight.Report
			Outlines []dryRunReport `json:"outlines,omitempty"` // of --dry-run
		}{name, r, o.reports()})
	}
	if r.VMs > 0 {
		fmt.Fprintf(a.out, "Plan %s: %s with %s, %s in all\n", name, count(r.VMs, "VM"), count(r.Disks, "disk"), size(r.Bytes))
	}
	for _, s := range r.Places {
		fmt.Fprintf(a.out, "%s: %s, %s to %s to be written, %s free\n", strings.Join(s.Folders, ", "), count(s.VMs, "VM"), size(s.Least), size(s.Most), size(s.Free))
	}
	o.write(a.out)
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
