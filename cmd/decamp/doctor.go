package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/decamp/decamp/internal/assemble"
	"github.com/decamp/decamp/internal/doctor"
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/planfile"
)

const doctorHelp = `
Say what would fail, or go slowly, before a move does, and what to type against it.

It logs in as decamp ls does, and looks at hosts and datastores, at the account's privileges,
at the VMs that are named, at the way to the host, and at this machine.
--transport, --warm and the like say what for: each needs other things. Without a VM's name it
looks at all: what keeps one from being moved is a warning then, and that it runs is nothing.
Without a URL it looks at this machine alone, and at what --to names: libvirt, Proxmox, KubeVirt
and OpenStack are logged in to, and asked what they are asked before a copy, for --map if given.
Nothing is changed; probes that write clean up, and are left out by --short, which is also what
migrate and plan check run.

The worst is told first. A failure is what will fail; a warning works until something else
happens; an advice works, and could be faster or safer; unknown is what could not be looked at.
What is right is told with --verbose, and always with --json. What depends on something that
failed is left out. Each code is explained in docs/doctor.md.
`

const doctorExamples = `
decamp doctor esxi://root@esx1 --to dir:/srv/vm
decamp doctor esxi://root@esx1 db01 --to dir:/srv/vm --warm --transport nfc
decamp doctor --to dir:/srv/vm --short
decamp doctor --to libvirt:qemu+ssh://root@kvm1/system --stage /srv/stage --map map.yaml
decamp doctor esxi://root@esx1 --json | jq '.findings[] | select(.status == "failure")'
`

// doctorCommand is decamp doctor.
type doctorCommand struct {
	moveFlags
	out       *output
	assembler *assemble.Assembler
	short     bool
}

func newDoctor(p *program) *cobra.Command {
	dc := &doctorCommand{out: p.out, assembler: p.assembler}
	cmd := &cobra.Command{
		Use:     "doctor [URL [VM ...]] [--to TARGET ...]",
		Short:   "Report problems and bottlenecks of a migration, with remedies",
		Long:    trimHelp(doctorHelp) + "\n\n" + trimHelp(sourceHelp),
		Example: trimHelp(doctorExamples),
		Annotations: exitCodes(append(slices.Clone(sourceExits),
			exit{fault.Conflict, "something was found that will fail"})...),
		ValidArgsFunction: cobra.NoFileCompletions, // names would have to be asked of the host
		RunE: p.withLog(func(cmd *cobra.Command, args []string) error {
			if err := dc.checkFlags(cmd); err != nil {
				return err
			}
			return dc.runDoctor(cmd.Context(), args)
		}),
	}
	dc.registerFlags(cmd)
	return cmd
}

func (dc *doctorCommand) registerFlags(cmd *cobra.Command) {
	dc.Options = planfile.DefaultOptions()
	f := cmd.Flags()
	f.StringArrayVar(&dc.to, "to", nil, "`TARGET` of the VMs, as for decamp migrate; may be repeated")
	dc.registerPlace(f)
	f.StringVar((*string)(&dc.Transport), "transport", string(dc.Transport), "that is to move them: `https, nfc or landing`")
	f.BoolVar(&dc.warm, "warm", false, "the VMs will be migrated while they run")
	f.BoolVar(&dc.powerOff, "power-off", false, "running VMs will be shut down")
	f.BoolVar(&dc.SourceHash, "source-hash", false, "the host is to hash its disks, by SSH")
	f.BoolVar(&dc.SSH.Enable, "enable-ssh", false, "SSH may be started where it is off and needed")
	f.Var(&dc.into, "landing", "disks are to land in RAM first, `tmpfs:SIZE`; means --transport landing")
	f.BoolVar(&dc.short, "short", false, "leave out what takes seconds, or writes")
	registerLogin(&dc.Login, cmd)
	_ = cmd.RegisterFlagCompletionFunc("transport", cobra.FixedCompletions([]string{"https", "nfc", "landing"}, cobra.ShellCompDirectiveNoFileComp)) // fails for unknown flags only
}

// checkFlags completes the options, and refuses flags that do not fit.
func (dc *doctorCommand) checkFlags(cmd *cobra.Command) error {
	if err := dc.setOptions(cmd); err != nil {
		return err
	}
	return dc.checkKeys(cmd)
}

// runDoctor performs all possible checks: if the login fails, it still checks this machine, and returns the
// login's error.
func (dc *doctorCommand) runDoctor(ctx context.Context, args []string) error {
	found, err := dc.runChecks(ctx, args)
	if ctx.Err() != nil {
		return errors.Join(ctx.Err(), err)
	}
	return dc.writeDiagnosis(found, errors.Join(err, failureError(found)))
}

// runChecks returns the findings of all reachable objects, and the error of the others.
func (dc *doctorCommand) runChecks(ctx context.Context, args []string) (found []doctor.Finding, err error) {
	d := &assemble.Diagnosis{Move: dc.Move, Parts: &assemble.Parts{}}
	defer joinClose(&err, d.Parts.Close)
	barred := dc.assembler.OpenTargets(d.Parts, dc.Move, planfile.Local)
	if len(args) > 0 {
		barred = errors.Join(barred, dc.assembler.LogIn(ctx, d, args[0], args[1:]))
	}
	return doctor.Examine(ctx, d.Groups(), doctor.Options{Short: dc.short}), barred
}

// failureError returns the error for findings that will fail; nil without any.
func failureError(found []doctor.Finding) error {
	n := 0
	for _, f := range found {
		if f.Status == doctor.Failure {
			n++
		}
	}
	if n == 0 {
		return nil
	}
	return fault.New(fault.Conflict, "%s will fail", countOf(n, "thing")).WithHint("apply the remedy of each, and run the command again")
}

// diagnosisOf is what --json prints.
type diagnosisOf struct {
	Worst    doctor.Status    `json:"worst"`
	Findings []doctor.Finding `json:"findings"`
	Error    *problem         `json:"error,omitempty"` // error of the command; nil if it succeeds
}

// writeDiagnosis prints the findings, and returns the error of the command.
func (dc *doctorCommand) writeDiagnosis(found []doctor.Finding, end error) error {
	if dc.out.json {
		d := diagnosisOf{Worst: doctor.Worst(found), Findings: append([]doctor.Finding{}, found...)}
		if end == nil {
			return dc.out.printJSON(d)
		}
		p := problemOf(end)
		d.Error = &p
		if err := dc.out.printJSON(d); err != nil {
			return err
		}
		return inResult{end}
	}
	least := doctor.Unknown
	if dc.out.verbose {
		least = doctor.OK
	}
	writeFindings(dc.out, found, least)
	if _, err := fmt.Fprintln(dc.out, countFindings(found)); err != nil {
		return err
	}
	return end
}

// countFindings counts the findings: "1 failure, 2 warnings; 30 checks passed".
func countFindings(found []doctor.Finding) string {
	n := map[doctor.Status]int{}
	for _, f := range found {
		n[f.Status]++
	}
	var parts []string
	for _, s := range []doctor.Status{doctor.Failure, doctor.Warning, doctor.Advice} {
		switch {
		case n[s] == 1 || s == doctor.Advice && n[s] > 0: // advice has no plural
			parts = append(parts, fmt.Sprintf("%d %s", n[s], s))
		case n[s] > 0:
			parts = append(parts, fmt.Sprintf("%d %ss", n[s], s))
		}
	}
	if n[doctor.Unknown] > 0 {
		parts = append(parts, fmt.Sprintf("%d unknown", n[doctor.Unknown]))
	}
	right := fmt.Sprintf("%d things are right.", n[doctor.OK])
	if n[doctor.OK] == 1 {
		right = "1 thing is right."
	}
	if len(parts) == 0 {
		return right
	}
	return strings.Join(parts, ", ") + "; " + right
}
