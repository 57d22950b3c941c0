package vsphere

import (
	"errors"
	"fmt"

	"github.com/decamp/decamp/internal/lab/nfchost"
)

// KillSessions ends every session: cookies handed out so far stop working.
func (l *Lab) KillSessions() {
	for _, e := range l.endpoints() {
		e.door.killAll()
	}
	if l.tags != nil {
		l.tags.killAll()
	}
}

// Stop closes every connection and the listening port; sessions end. Resume brings the lab
// back at the same address.
func (l *Lab) Stop() error {
	errs := []error{l.nfcHosts.each((*nfchost.Server).Close)}
	for _, e := range l.endpoints() {
		errs = append(errs, e.close())
	}
	l.KillSessions()
	return errors.Join(errs...)
}

// Resume listens again after Stop.
func (l *Lab) Resume() error {
	errs := []error{l.nfcHosts.each((*nfchost.Server).Open)}
	for _, e := range l.endpoints() {
		errs = append(errs, e.open())
	}
	return errors.Join(errs...)
}

// Restart is Stop and Resume: what a restart of the management agents looks like.
func (l *Lab) Restart() error {
	if err := l.Stop(); err != nil {
		return fmt.Errorf("stop lab: %w", err)
	}
	return l.Resume()
}
