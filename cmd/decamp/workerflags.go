package main

import (
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/decamp/decamp/internal/assemble"
)

// defaultVMs is the default number of VMs that a process migrates at a time: enough for four busy
// hosts.
const defaultVMs = 80

// registerTrials registers the limit of parallel trial boots.
func registerTrials(f *pflag.FlagSet, n *int) {
	f.IntVar(n, "trials", 1, "maximum number `N` of parallel trial boots of VMs whose plan has trial: true; at least 1")
}

// checkCounts fails unless a process may migrate and boot at least one VM at a time.
func checkCounts(cmd *cobra.Command, vms, trials int) error {
	if vms < 1 || trials < 1 {
		return badUsage(cmd, "--vms %d --trials %d: want 1 or more", vms, trials)
	}
	return nil
}

// checkAboveZero fails if the user set the flag name to a time that is not above 0. Without the flag, the
// default applies.
func checkAboveZero(cmd *cobra.Command, name string, d time.Duration) error {
	if cmd.Flags().Changed(name) && d <= 0 {
		return badUsage(cmd, "--%s %v: want a time above 0", name, d)
	}
	return nil
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
	f.IntVar(&o.vms, "vms", defaultVMs, "maximum number `N` of VMs at a time; at least 1")
	registerTrials(f, &o.trials)
	registerHooks(f, &o.hooks)
}

// registerHooks registers the flag that permits hooks of plans.
func registerHooks(f *pflag.FlagSet, allow *bool) {
	f.BoolVar(allow, "allow-hooks", false, "run the commands (hooks) of plans that an admin submitted, as this user; otherwise such plans are refused")
}
