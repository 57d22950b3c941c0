package main

import (
	"bytes"
	"context"
	"io"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"

	"github.com/decamp/decamp/internal/assemble"
	"github.com/decamp/decamp/internal/atomicfile"
	"github.com/decamp/decamp/internal/config"
	"github.com/decamp/decamp/internal/fault"
)

const initHelp = `
Configure decamp for a first migration. The command prompts for the source and the target,
checks both with decamp doctor, adds them to the user's config file, and writes a plan for the
VMs of the source. Findings of the doctor do not stop it; a refused login does.

Without a terminal, set --source and --to. An existing plan file, and an entry of the config
file with another value, are replaced only after a confirmation or with --replace.
`

const initExamples = `
decamp init
decamp init --source esxi://root@esx1 --to dir:/srv/vm --plan wave-1.yaml
`

// initCommand is decamp init.
type initCommand struct {
	p     *program       // output, config files and prompts
	login assemble.Login // login to the source
	setup assemble.Setup // source, target and plan file
	to    []string       // values of --to
}

// newInit returns the command decamp init.
func newInit(p *program) *cobra.Command {
	ic := &initCommand{p: p}
	cmd := &cobra.Command{
		Use: "init", Short: "Configure a source and a target, and write a first plan", Long: trimHelp(initHelp), Example: trimHelp(initExamples),
		Args: exactArgs(), Annotations: exitCodes(append(slices.Clone(sourceExits[1:]), exit{fault.Conflict, "the plan file or an entry of the config file exists"})...),
		RunE: p.withLog(func(cmd *cobra.Command, _ []string) error {
			if len(ic.to) > 1 {
				return badUsage(cmd, "--to: want one target")
			}
			return ic.runInit(cmd.Context(), cmd.Root())
		}),
	}
	f := cmd.Flags()
	f.StringVar(&ic.setup.Source.URL, "source", "", "`URL` of the source (default a question)")
	f.StringArrayVar(&ic.to, "to", nil, "`TARGET` of the VMs, as for decamp migrate (default a question)")
	f.StringVar(&ic.setup.Plan, "plan", "plan.yaml", "`FILE` for the plan")
	f.BoolVar(&ic.setup.Replace, "replace", false, "replace an existing plan file and entries of the config file")
	registerLogin(&ic.login, cmd)
	return cmd
}

// runInit prompts, checks, and writes the config file and the plan.
func (ic *initCommand) runInit(ctx context.Context, root *cobra.Command) error {
	out, s := ic.p.out, &ic.setup
	if len(ic.to) > 0 {
		s.To = ic.to[0]
	}
	if err := ic.p.assembler.AskSetup(ctx, s); err != nil {
		return err
	}
	// before the question for a password: both commands log in
	ic.p.assembler.KeepPasswords = true
	err := ic.runOther(ctx, root, out.screen, "doctor", s.Source.URL, "--to", s.To)
	if err != nil && !fault.Is(err, fault.Conflict) { // failed checks are printed, with their remedies
		return err
	}
	var plan bytes.Buffer
	if err := ic.runOther(ctx, root, &plan, "plan", "init", s.Source.URL, "--to", s.To); err != nil {
		return err
	}
	if s.Source.Fingerprint = ic.login.Fingerprint; ic.login.PasswordFile != "" {
		if s.Source.PasswordFile, err = filepath.Abs(ic.login.PasswordFile); err != nil {
			return err
		}
	}
	e := config.Editor{Path: ic.p.config.User, Flags: flagNames(root)}
	source, target, err := ic.p.assembler.WriteSetup(ctx, e, ic.p.config, *s)
	if err != nil {
		return err
	}
	if err := atomicfile.Replace(s.Plan, plan.Bytes(), 0o644); err != nil {
		return fault.New(fault.Denied, "write the plan: %w", err)
	}
	if out.json {
		return out.printJSON(map[string]string{"source": source, "target": target, "config": e.Path, "plan": s.Plan})
	}
	out.note("Source %s and target %s are in %s. The plan is in %s.", source, target, e.Path, s.Plan)
	file := fault.Quote(s.Plan)
	out.note("Next: review the plan, then run: decamp plan check %s && decamp plan run %s", file, file)
	return nil
}

// runOther runs another command with the login of this one, and its output to w.
func (ic *initCommand) runOther(ctx context.Context, root *cobra.Command, w io.Writer, words ...string) error {
	out := ic.p.out
	results, json := out.Writer, out.json
	out.Writer, out.json = w, false
	defer func() { out.Writer, out.json = results, json }()
	if ic.login.PasswordFile != "" {
		words = append(words, "--password-file", ic.login.PasswordFile)
	}
	if ic.login.Fingerprint != "" {
		words = append(words, "--fingerprint", ic.login.Fingerprint)
	}
	root.SetArgs(words)
	return root.ExecuteContext(ctx)
}
