package main

import (
	"context"
	"fmt"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/decamp/decamp/internal/assemble"
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/planfile"
	"github.com/decamp/decamp/internal/preflight"
)

const planCheckHelp = `
Report everything in a plan that would fail.

It reads the file, logs in to the source, and checks each VM, folder and host: VMs that are
missing, ambiguous or cannot be migrated now; folders that are missing, too small for all VMs
of the plan together, or already have a VM of that name; hosts that do not answer. It opens
one disk of each host with the transport of the plan. Nothing is changed.

--dry-run also prints the definition of each VM at each of its destinations, as decamp migrate
--dry-run does. It then reads small parts of the disks of VMs that are off.

The exit code is that of the blocking findings, or 6 if they have different kinds. The other
findings are notes. --password-file and --fingerprint take precedence over the plan.
`

const planCheckExamples = `
decamp plan check plan.yaml
decamp plan check plan.yaml --dry-run
decamp plan check plan.yaml --json | jq '.findings[] | select(.blocks)'
`

// planCheckCommand is decamp plan check.
type planCheckCommand struct {
	out       *output             // output and messages
	assembler *assemble.Assembler // state directory, access file and prompts
	login     assemble.Login      // login to the source
	dryRun    bool                // also print the definition of each VM
}

// newPlanCheck returns the command decamp plan check.
func newPlanCheck(p *program) *cobra.Command {
	pc := &planCheckCommand{out: p.out, assembler: p.assembler}
	cmd := &cobra.Command{
		Use: "check FILE", Short: "Report problems of a plan", Long: trimHelp(planCheckHelp), Example: trimHelp(planCheckExamples),
		Args: exactArgs("FILE"),
		Annotations: exitCodes(
			exit{fault.NotFound, "the file, a VM, a folder or a program does not exist"},
			exit{fault.Denied, "wrong password, missing privilege, unknown or changed certificate, or SSH is off"},
			exit{fault.Unreachable, "the address does not answer"},
			exit{fault.Conflict, "a VM runs, a name is in use, or several different findings block"},
			exit{fault.Unsupported, "decamp cannot migrate a VM of the plan"},
			exit{fault.Full, "the VMs do not fit at their destinations"}),
		RunE: p.withLog(func(cmd *cobra.Command, args []string) error { return pc.runCheck(cmd.Context(), args[0]) }),
	}
	cmd.Flags().BoolVar(&pc.dryRun, "dry-run", false, "also print the definition of each VM")
	registerLogin(&pc.login, cmd)
	return cmd
}

// runCheck prints the findings on a plan. The error has those that block.
func (pc *planCheckCommand) runCheck(ctx context.Context, path string) error {
	f, found, err := planfile.Load(path)
	if err != nil {
		return err
	}
	var r preflight.Report
	var o *assemble.Outlines
	if len(found) == 0 {
		if r, o, err = pc.checkPlan(ctx, f, filepath.Dir(path)); err != nil {
			return err
		}
	} else {
		r = preflight.Report{FileSystems: []preflight.Space{}, Findings: found}
	}
	if err := writeCheck(pc.out, path, f, r, o); err != nil {
		return err
	}
	if err := r.Findings.Err(); err != nil {
		return fmt.Errorf("check %s: %w", path, err)
	}
	return nil
}

// checkPlan checks this machine, then the plan at its source. A failed login is a finding like others,
// so findings on this machine are reported in any case.
func (pc *planCheckCommand) checkPlan(ctx context.Context, f *planfile.File, folder string) (r preflight.Report, o *assemble.Outlines, err error) {
	if pc.login.PasswordFile != "" {
		f.Source.Credentials = planfile.Credentials{}
	}
	inFiles, err := pc.assembler.InFiles(f)
	if err != nil {
		return r, nil, err
	}
	found := preflight.Local(inFiles, folder, pc.assembler.Env)
	w, err := pc.assembler.OpenPlan(ctx, pc.login, f, folder)
	defer joinClose(&err, w.Close)
	if err == nil {
		rig := w.CheckDependencies(f)
		if pc.dryRun {
			o = w.Outlines(f, &rig)
		}
		r, err = preflight.Check(ctx, f, rig)
	}
	if ctx.Err() != nil {
		return r, o, ctx.Err()
	}
	if err != nil {
		found = append(found, planfile.ErrorFinding("source", f.At("source.url"), "", err))
		r.FileSystems = []preflight.Space{}
	}
	r.Findings = append(found, r.Findings...)
	r.Findings.Sort()
	return r, o, nil
}
