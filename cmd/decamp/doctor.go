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
	"github.com/decamp/decamp/internal/units"
)

const doctorHelp = `
Report what would fail or slow down a migration, with remedies.

It logs in as decamp ls does. It checks hosts and datastores, the privileges of the account,
the named VMs, the network path to the host, and this machine. Flags such as --transport and
--warm describe the planned migration, because each has other requirements. Without a VM it
checks all VMs: obstacles of one VM are then warnings, and running VMs are ignored. Without a
URL it checks only this machine and the targets of --to. It logs in to libvirt, Proxmox,
KubeVirt and OpenStack, and makes the checks that precede a copy, with the names of --map.
Nothing is changed. Probes that write remove what they wrote. --short omits slow probes and
those that write; migrate and plan check run the short form.

Findings are sorted by severity. A failure will fail. A warning works until something else
happens. A recommendation makes it faster or safer. Unknown could not be checked. Passed
checks are printed with --verbose, and always with --json. Checks that depend on a failed one
are left out. docs/doctor.md explains each code.
`

const doctorExamples = `
decamp doctor esxi://root@esx1 --to dir:/srv/vm
decamp doctor esxi://root@esx1 db01 --to dir:/srv/vm --warm --transport nfc
decamp doctor --to dir:/srv/vm --short
decamp doctor --to libvirt:qemu+ssh://root@kvm1/system --staging /srv/stage --map map.yaml
decamp doctor esxi://root@esx1 --json | jq '.findings[] | select(.status == "failure")'
`

// doctorCommand is decamp doctor.
type doctorCommand struct {
	moveFlags
	out       *output             // output and messages
	assembler *assemble.Assembler // state directory, access file and prompts
	short     bool                // omit slow checks and those that write
}

// newDoctor returns the command decamp doctor.
func newDoctor(p *program) *cobra.Command {
	dc := &doctorCommand{out: p.out, assembler: p.assembler}
	cmd := &cobra.Command{
		Use:     "doctor [URL [VM ...]] [--to TARGET ...]",
		Short:   "Report problems and bottlenecks of a migration, with remedies",
		Long:    trimHelp(doctorHelp) + "\n\n" + trimHelp(sourceHelp),
		Example: trimHelp(doctorExamples),
		Annotations: exitCodes(append(slices.Clone(sourceExits),
			exit{fault.Conflict, "a finding will make the migration fail"})...),
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

// registerFlags registers the flags that describe the planned migration.
func (dc *doctorCommand) registerFlags(cmd *cobra.Command) {
	dc.Options = planfile.DefaultOptions()
	f := cmd.Flags()
	f.StringArrayVar(&dc.to, "to", nil, "`TARGET` of the VMs, as for decamp migrate; may be repeated")
	dc.registerPlace(f)
	f.StringVar((*string)(&dc.Transport), "transport", string(dc.Transport), "transport of the disks: `https, nfc or landing`")
	f.BoolVar(&dc.warm, "warm", false, "the VMs will be migrated while they run")
	f.BoolVar(&dc.powerOff, "power-off", false, "running VMs will be shut down")
	f.BoolVar(&dc.SourceHash, "source-hash", false, "the host will hash its disks, by SSH")
	f.BoolVar(&dc.SSH.Enable, "enable-ssh", false, "decamp may start SSH on hosts if it is off and required")
	f.Var(&dc.into, "landing", "disks will be received in memory first, `tmpfs:SIZE`; implies --transport landing")
	f.BoolVar(&dc.short, "short", false, "omit checks that take seconds or write")
	registerLogin(&dc.Login, cmd)
	_ = cmd.RegisterFlagCompletionFunc("transport", cobra.FixedCompletions([]string{"https", "nfc", "landing"}, cobra.ShellCompDirectiveNoFileComp)) // fails for unknown flags only
}

// checkFlags sets the options and refuses invalid flags.
func (dc *doctorCommand) checkFlags(cmd *cobra.Command) error {
	if err := dc.setOptions(cmd); err != nil {
		return err
	}
	return dc.checkKeys(cmd)
}

// runDoctor makes all possible checks. If the login fails, it still checks this machine, and returns
// the error of the login.
func (dc *doctorCommand) runDoctor(ctx context.Context, args []string) error {
	found, err := dc.runChecks(ctx, args)
	if ctx.Err() != nil {
		return errors.Join(ctx.Err(), err)
	}
	return dc.writeDiagnosis(found, errors.Join(err, failureError(found)))
}

// runChecks returns the findings on everything that can be reached, and the error of the rest.
func (dc *doctorCommand) runChecks(ctx context.Context, args []string) (found []doctor.Finding, err error) {
	d := &assemble.Diagnosis{Move: dc.Move, Parts: &assemble.Parts{}}
	defer joinClose(&err, d.Parts.Close)
	barred := dc.assembler.OpenTargets(d.Parts, dc.Move, planfile.Local)
	if len(args) > 0 {
		barred = errors.Join(barred, dc.assembler.LogIn(ctx, d, args[0], args[1:]))
	}
	return doctor.Examine(ctx, d.Groups(), doctor.Options{Short: dc.short}), barred
}

// failureError returns an error with the number of failures; nil without any.
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
	return fault.New(fault.Conflict, "%s failed", units.Count(n, "check")).WithHint("apply their remedies, and run the command again")
}

// diagnosisOf is the JSON output.
type diagnosisOf struct {
	Worst    doctor.Status    `json:"worst"`           // worst status of all findings
	Findings []doctor.Finding `json:"findings"`        // all findings; not nil
	Error    *problem         `json:"error,omitempty"` // error of the command; nil if it succeeds
}

// writeDiagnosis prints the findings and returns end, the error of the command.
func (dc *doctorCommand) writeDiagnosis(found []doctor.Finding, end error) error {
	if dc.out.json {
		d := diagnosisOf{Worst: doctor.Worst(found), Findings: append([]doctor.Finding{}, found...)}
		if end == nil {
			return dc.out.printJSON(d)
		}
		p := dc.out.problemOf(end)
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

// countFindings returns the number of findings by status: "1 failure, 2 warnings; 30 checks passed."
func countFindings(found []doctor.Finding) string {
	n := map[doctor.Status]int{}
	for _, f := range found {
		n[f.Status]++
	}
	var parts []string
	for _, s := range []doctor.Status{doctor.Failure, doctor.Warning, doctor.Advice} {
		switch {
		case n[s] == 1:
			parts = append(parts, fmt.Sprintf("%d %s", n[s], s))
		case n[s] > 0:
			parts = append(parts, fmt.Sprintf("%d %ss", n[s], s))
		}
	}
	if n[doctor.Unknown] > 0 {
		parts = append(parts, fmt.Sprintf("%d unknown", n[doctor.Unknown]))
	}
	right := fmt.Sprintf("%d checks passed.", n[doctor.OK])
	if n[doctor.OK] == 1 {
		right = "1 check passed."
	}
	if len(parts) == 0 {
		return right
	}
	return strings.Join(parts, ", ") + "; " + right
}
