package assemble

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/url"
	"strings"
	"time"

	"github.com/decamp/decamp/internal/esx"
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/mount"
	"github.com/decamp/decamp/internal/proxy"
	"github.com/decamp/decamp/internal/transport/https"
)

// Mounted is a mounted host, with its session and its transport.
type Mounted struct {
	session   *esx.Session     // session with the host; owned
	transport *https.Transport // reads disks for the mount; owned
	mount     *mount.Mount     // FUSE mount; nil if it failed
}

// mountStall is the time after which a connection of a mount that delivers nothing is replaced. It is
// short because other reads wait, and because a read has a deadline.
const mountStall = 20 * time.Second

// Mount mounts the host of session at dir. It takes ownership of the session, also if it fails. If
// stores is not nil, the root folder lists these datastores instead of those of the host. The caller
// sets o.Log.
func Mount(ctx context.Context, session *esx.Session, stores []inventory.Datastore, dir string, connections int, o mount.Options) (*Mounted, error) {
	m := &Mounted{session: session}
	m.transport = https.New(session, https.Options{MaxConnections: connections, Stall: mountStall, Log: o.Log})
	var host mount.Host = mount.NewRemote(session, m.transport, o.Log)
	if stores != nil {
		host = mount.Listed{Host: host, Stores: stores}
	}
	var err error
	if m.mount, err = mount.New(ctx, host, dir, o); err != nil {
		return nil, errors.Join(err, m.Close())
	}
	return m, nil
}

// Wait returns when ctx ends or the file system is unmounted.
func (m *Mounted) Wait(ctx context.Context) {
	select {
	case <-ctx.Done():
	case <-m.mount.Done():
	}
}

// Close unmounts the file system, closes the transport and logs out.
func (m *Mounted) Close() error {
	var errs []error
	if m.mount != nil {
		errs = append(errs, m.mount.Close())
	}
	return errors.Join(append(errs, m.transport.Close(), m.session.Close())...)
}

// DialShown logs in to an ESXi host, or to a vCenter if the address is one. The certificate that it
// presents now is accepted for the lifetime of the session.
func (a *Assembler) DialShown(ctx context.Context, host, user, passwordFile string) (*esx.Session, error) {
	shown, err := esx.Fingerprint(ctx, host)
	if err != nil {
		return nil, err
	}
	cfg := esx.Config{
		Fingerprint: shown.Fingerprint,
		Log:         a.Log,
		URL:         &url.URL{Scheme: "esxi", User: url.User(user), Host: host},
		Password: func(context.Context) (esx.Secret, error) {
			text, err := a.PasswordFrom(passwordFile)
			return esx.Secret(text), err
		},
	}
	session, err := esx.Dial(ctx, cfg)
	// the server is not of the expected type: it may be a vCenter
	if fault.Is(err, fault.Invalid) {
		cfg.URL = &url.URL{Scheme: "vcenter", User: url.User(user), Host: host}
		if second, again := esx.Dial(ctx, cfg); again == nil {
			return second, nil
		}
	}
	return session, err
}

// CheckAuthority verifies the certificate of a host with the certificate authorities of this machine.
// addr may lack a port; the default is 443.
func CheckAuthority(ctx context.Context, addr string) error {
	if _, _, err := net.SplitHostPort(addr); err != nil {
		addr = net.JoinHostPort(strings.Trim(addr, "[]"), "443")
	}
	ctx, cancel := context.WithTimeout(ctx, 15*time.Second)
	defer cancel()
	raw, err := proxy.Dial(ctx, &net.Dialer{}, addr)
	if err != nil {
		return fault.New(fault.KindOf(err), "connect to %s: %w", addr, err)
	}
	defer raw.Close()
	host, _, _ := net.SplitHostPort(addr)
	conn := tls.Client(raw, &tls.Config{ServerName: host, NextProtos: []string{"http/1.1"}})
	err = conn.HandshakeContext(ctx)
	var cert *tls.CertificateVerificationError
	switch {
	case errors.As(err, &cert):
		return fault.New(fault.Denied, "the certificate of %s is not valid: %w", addr, err).
			WithHint("install a certificate on the host that this machine trusts, or add --skip-cert-verification")
	case err != nil:
		return fault.New(fault.Unreachable, "connect to %s: %w", addr, err)
	}
	return conn.Close()
}
