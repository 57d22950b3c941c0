package main

import (
	"github.com/spf13/pflag"

	"github.com/decamp/decamp/internal/assemble"
	"github.com/decamp/decamp/internal/planfile"
)

// registerNotify registers the flags of commands that send notifications.
func registerNotify(n *assemble.Notify, f *pflag.FlagSet) {
	f.StringVar(&n.File, "notify", "", "`FILE` with the receivers of notifications (default "+planfile.NotifyFile+" in the state directory, if it exists)")
	f.BoolVar(&n.Commands, "allow-notify-commands", false, "run the commands of the notification file, as this user; otherwise a file with commands is refused")
}
