package main

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/decamp/decamp/internal/assemble"
	"github.com/decamp/decamp/internal/assemble/complete"
	"github.com/decamp/decamp/internal/config"
	"github.com/decamp/decamp/internal/doctor"
	"github.com/decamp/decamp/internal/fleetdb"
)

// addCompletions makes each command complete --to, and its arguments, by their names in its usage: URL, VM,
// RUN, PLAN, VM of PLAN, and NAME of a limit. Other arguments are unchanged.
func addCompletions(p *program, cmd *cobra.Command) {
	for _, sub := range cmd.Commands() {
		addCompletions(p, sub)
	}
	if cmd.Flags().Lookup("to") != nil {
		_ = cmd.RegisterFlagCompletionFunc("to", func(cmd *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) { // fails for unknown flags only
			return quietCompleter(p).Targets(cmd.Context(), typed, p.config, flagNames(cmd.Root())), cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
		})
	}
	words := strings.FieldsFunc(cmd.Use, func(r rune) bool { return strings.ContainsRune(" []", r) })
	if len(words) < 2 || !strings.Contains("URL RUN PLAN RUN|PLAN RUN|PLAN/VM NAME", words[1]) || words[1] == "NAME" && cmd.Name() != "limits" {
		return
	}
	cmd.ValidArgsFunction = func(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
		_ = p.applySettings(cmd, args) // without settings names are not completed
		c := &completion{completer: quietCompleter(p), cmd: cmd, settings: p.assembler.Settings}
		return c.complete(words[1], strings.Contains(cmd.Use, "VM"), args, typed), cobra.ShellCompDirectiveNoFileComp
	}
}

// quietCompleter returns a completer that prints and asks nothing.
func quietCompleter(p *program) *complete.Completer {
	quiet := func(string, ...any) {}
	return &complete.Completer{Cache: p.words(), Assembler: &assemble.Assembler{
		Version: p.assembler.Version, Env: p.assembler.Env, State: p.assembler.State, Prompts: assemble.Prompts{
			Terminal: func() (assemble.Terminal, error) { return nil, errors.New("completions ask nothing") },
			Command:  p.commandWith, Warn: quiet, Notify: quiet, Found: func([]doctor.Finding) {}, Log: slog.New(slog.DiscardHandler),
		}}}
}

// completion completes one argument of a command.
type completion struct {
	completer *complete.Completer // words of sources and runs
	cmd       *cobra.Command      // command, with its parsed flags
	settings  *config.Settings    // settings of the config files; nil if they have a mistake
	fleet     fleetFlags          // fleet that the flags select
}

// complete returns the words for an argument. kind is the name of the first argument; withVMs means that
// the usage also names VMs.
func (c *completion) complete(kind string, withVMs bool, args []string, typed string) (words []string) {
	switch {
	case kind == "URL" && len(args) == 0:
		words = c.completer.Sources()
		if s := c.settings; s != nil {
			words = slices.AppendSeq(words, maps.Keys(s.Sources))
		}
	case kind == "URL" && withVMs && (len(args) == 1 || c.cmd.Name() == "doctor"):
		words = c.completer.VMs(c.cmd.Context(), args[0], c.flagText("password-file"))
	case len(args) > 0:
	case kind == "NAME":
		for _, url := range c.completer.Sources() {
			_, host, _ := strings.Cut(url, "@")
			for _, d := range c.completer.Datastores(url) {
				words = append(words, "datastore:"+d+"/vms", "datastore:"+d+"@"+host+"/vms")
			}
		}
	default:
		words = c.fleetWords(withVMs, typed)
		if strings.HasPrefix(kind, "RUN") {
			words = append(words, c.completer.Runs()...)
		}
	}
	var matching []string
	for _, w := range complete.Plain(words) {
		if strings.HasPrefix(w, typed) {
			matching = append(matching, w)
		}
	}
	return matching
}

// flagText returns the value of a flag; empty if the command does not have it.
func (c *completion) flagText(name string) string {
	if f := c.cmd.Flags().Lookup(name); f != nil {
		return f.Value.String()
	}
	return ""
}

// fleetWords returns the names of plans. After PLAN/ it returns the VMs of that plan.
func (c *completion) fleetWords(withVMs bool, typed string) []string {
	f := &c.fleet
	f.server, f.tokenFile, f.fingerprint, f.ca = c.flagText("server"), c.flagText("token-file"), c.flagText("server-fingerprint"), c.flagText("server-ca")
	f.cert, f.key, f.db, f.insecure = c.flagText("client-cert"), c.flagText("client-key"), c.flagText("db"), c.flagText("insecure-database") == "true"
	f.assembler = c.completer.Assembler
	if !f.exists() {
		return nil // a completion creates no database
	}
	plan, _, ofPlan := strings.Cut(typed, "/")
	if ofPlan = ofPlan && withVMs; !ofPlan {
		plan = ""
	}
	url, _ := f.databaseURL() // exists has tried it
	url = cmp.Or(f.server, f.assembler.Env(serverEnv), url)
	return c.completer.Cache.FleetWords(c.cmd.Context(), url+" "+plan, func(ctx context.Context) ([]string, error) { return f.readWords(ctx, plan) })
}

// readWords returns the names of plans; with a plan the names of its VMs.
func (f *fleetFlags) readWords(ctx context.Context, plan string) (words []string, err error) {
	control, closeControl, err := f.openControl(ctx)
	if err != nil {
		return nil, err
	}
	defer joinClose(&err, closeControl)
	if plan != "" {
		vms, err := control.VMs(ctx, fleetdb.Query{Plan: plan, Limit: maxCompletedVMs})
		for _, vm := range vms {
			words = append(words, plan+"/"+complete.NameOrRef(vm.Name, vm.VM))
		}
		return words, err
	}
	all, err := control.Plans(ctx)
	for _, p := range all {
		words = append(words, p.Name)
	}
	return words, err
}

// maxCompletedVMs is the number of VMs of a plan that are completed.
const maxCompletedVMs = 1000
