package main

import (
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/decamp/decamp/internal/assemble"
)

// defaultVMs is the default number of VMs that a process executes in parallel: four busy hosts.
const defaultVMs = 80

// registerTrials adds the bound on trial boots that plans ask for.
func registerTrials(f *pflag.FlagSet, n *int) {
	f.IntVar(n, "trials", 1, "at most `N` trial boots at a time, of VMs whose plan has trial: true")
}

// workerFlags are the flags of commands that offer folders to a fleet.
type workerFlags struct {
	folders []string
	name    string
	vms     int
	trials  int
	hooks   bool
}

func (o *workerFlags) registerFlags(a *assemble.Assembler, cmd *cobra.Command) {
	f := cmd.Flags()
	f.SortFlags = false
	f.StringArrayVar(&o.folders, "offer", nil, "`FOLDER` that VMs may go to here; may be repeated")
	registerAccess(a, f)
	f.StringVar(&o.name, "name", "", "what the worker is `called`, always the same (default this machine's name)")
	f.IntVar(&o.vms, "vms", defaultVMs, "at most `N` VMs at a time")
	registerTrials(f, &o.trials)
	registerHooks(f, &o.hooks)
}

func registerHooks(f *pflag.FlagSet, allow *bool) {
	f.BoolVar(allow, "allow-hooks", false, "run the commands (hooks) of plans that an admin submitted, as this user; without it such plans are refused")
}
