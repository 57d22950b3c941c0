package main

import (
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/decamp/decamp/internal/assemble"
)

// defaultVMs is the default number of VMs that a process migrates at a time: enough for four busy
// hosts.
const defaultVMs = 80

// registerTrials registers the limit of parallel trial boots.
func registerTrials(f *pflag.FlagSet, n *int) {
	f.IntVar(n, "trials", 1, "maximum number `N` of parallel trial boots of VMs whose plan has trial: true")
}

// workerFlags are the flags of commands that offer folders to a fleet.
type workerFlags struct {
	folders []string // offered folders
	name    string   // name of the worker; empty: the name of this machine
	vms     int      // VMs at a time
	trials  int      // trial boots at a time
	hooks   bool     // run hooks of plans
}

// registerFlags registers the flags of a worker.
func (o *workerFlags) registerFlags(a *assemble.Assembler, cmd *cobra.Command) {
	f := cmd.Flags()
	f.SortFlags = false
	f.StringArrayVar(&o.folders, "offer", nil, "`FOLDER` to which VMs may go on this machine; may be repeated")
	registerAccess(a, f)
	f.StringVar(&o.name, "name", "", "`NAME` of the worker, which must not change (default the name of this machine)")
	f.IntVar(&o.vms, "vms", defaultVMs, "maximum number `N` of VMs at a time")
	registerTrials(f, &o.trials)
	registerHooks(f, &o.hooks)
}

// registerHooks registers the flag that permits hooks of plans.
func registerHooks(f *pflag.FlagSet, allow *bool) {
	f.BoolVar(allow, "allow-hooks", false, "run the commands (hooks) of plans that an admin submitted, as this user; otherwise such plans are refused")
}
