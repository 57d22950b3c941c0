package lab

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

// ExpirePassword has the password be refused from now on, as one that was changed. Sessions go
// on.
func (l *Lab) ExpirePassword() {
	for _, e := range l.endpoints() {
		e.door.refuse(true)
	}
}

// RenewPassword ends ExpirePassword.
func (l *Lab) RenewPassword() {
	for _, e := range l.endpoints() {
		e.door.refuse(false)
	}
}

// ChangeCertificate gives the main endpoint a new certificate and drops its connections, as
// replacing one on a host does.
func (l *Lab) ChangeCertificate() error {
	cert, err := newCertificate("localhost.localdomain")
	if err != nil {
		return fmt.Errorf("new certificate: %w", err)
	}
	l.main.cert.Store(cert)
	return l.restart(l.main)
}

// Stop closes every connection and the listening port; sessions end. Resume brings the lab
// back at the same address.
func (l *Lab) Stop() error {
	errs := []error{l.nfc.each((*nfchost.Server).Close)}
	for _, e := range l.endpoints() {
		errs = append(errs, e.close())
	}
	l.KillSessions()
	return errors.Join(errs...)
}

// Resume listens again after Stop.
func (l *Lab) Resume() error {
	errs := []error{l.nfc.each((*nfchost.Server).Open)}
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

func (l *Lab) restart(e *endpoint) error {
	if err := e.close(); err != nil {
		return err
	}
	return e.open()
}
