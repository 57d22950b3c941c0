package main

import (
	"os"
	"path/filepath"

	"github.com/spf13/pflag"

	"github.com/decamp/decamp/internal/assemble"
	"github.com/decamp/decamp/internal/notify"
	"github.com/decamp/decamp/internal/planfile"
)

// notifyFlags are the flags of commands that send notifications.
type notifyFlags struct {
	file     string // notification file; empty: notify.yaml in the state directory, if it exists
	commands bool   // receivers may be commands
}

// registerFlags registers the flags.
func (n *notifyFlags) registerFlags(f *pflag.FlagSet) {
	f.StringVar(&n.file, "notify", "", "`FILE` with the receivers of notifications (default "+planfile.NotifyFile+" in the state directory, if it exists)")
	f.BoolVar(&n.commands, "allow-notify-commands", false, "run the commands of the notification file, as this user; otherwise a file with commands is refused")
}

// load reads the notification file and its secrets. It returns nil if the default file does not exist.
func (n *notifyFlags) load(a *assemble.Assembler) (*notify.Receivers, error) {
	path := n.file
	if path == "" {
		state, err := a.StateDir()
		if err != nil {
			return nil, err
		}
		path = filepath.Join(state, planfile.NotifyFile)
		if _, err := os.Lstat(path); os.IsNotExist(err) {
			return nil, nil
		}
	}
	return notify.Load(path, notify.Options{Commands: n.commands, Log: a.Log})
}
