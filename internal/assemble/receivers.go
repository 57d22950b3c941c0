package assemble

import "github.com/decamp/decamp/internal/notify"

// Notify selects the receivers of notifications.
type Notify struct {
	File     string // notification file; empty: notify.yaml in the state directory, if it exists
	Commands bool   // receivers may be commands
}

// Receivers reads the notification file and its secrets. It returns nil if the default file does not
// exist.
func (a *Assembler) Receivers(n Notify) (*notify.Receivers, error) {
	o := notify.Options{Commands: n.Commands, Log: a.Log}
	if n.File != "" {
		return notify.Load(n.File, o)
	}
	state, err := a.StateDir()
	if err != nil {
		return nil, err
	}
	return notify.LoadDefault(state, o)
}
