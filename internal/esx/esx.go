// Package esx is decamp's side of the vSphere API: one session with an ESXi host or a
// vCenter, the inventory behind it, the files in its datastores, and the power switch.
// It is the only importer of govmomi, and no govmomi type leaves it.
//
// Terms:
//
//   - A Session is one login, kept for days. Every 10 minutes it touches the server, since
//     /folder transfers do not count as use of the session and ESXi ends an idle one
//     after 30. A session that ended all the same is replaced by one new login, which
//     all calls that found out share.
//   - The pass is the session's cookie. It opens both the API and /folder, so that no
//     request authenticates by itself: Basic authentication on each request opens a
//     session each time, and ESXi has 500.
//   - The pin is the SHA-256 of the server's certificate. Nothing else is believed:
//     no CA, no host name. Package esx shows a certificate (Fingerprint) and compares
//     it with the pin; asking the operator is the command's business.
//
// Tags of a vCenter are not in the API but in a REST service, with sessions of its own: one is opened
// with the same password when tags are first asked for, and closed with the Session.
//
// Promises: at most two wrong passwords are sent in 15 minutes, because ESXi locks the
// account at the fifth. Errors carry a fault.Kind, and a remedy where there is one.
//
// No disk of the source is ever written. What else changes there does when it is asked for,
// by a call that says so: PowerOff; MountNAS, CopyDisk onto what was mounted, UnmountNAS;
// CreateSnapshot and RemoveSnapshot; StartSSH and StopSSH. All others only read; tests
// compare the list of called methods with that sentence.
package esx

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/vmware/govmomi/vim25"
	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/soap"
	"github.com/vmware/govmomi/vim25/types"

	"github.com/decamp/decamp/internal/esx/tagging"
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/inventory"
)

// Config says where to log in and how.
type Config struct {
	// URL is esxi://user@host[:port] or vcenter://user@host[:port]; see ParseURL.
	URL *url.URL

	// Password is asked before a login, and again after the server refused the answer.
	// A password that was accepted is remembered for later logins.
	Password func(context.Context) (Secret, error)

	// Judged, if not nil, is told each login that the server judged: nil when it took the
	// password, else its refusal.
	Judged func(error)

	// Admit, if not nil, is asked before each login, and pass is told how it went. It then
	// decides alone: refusals do not keep the session from logging in again.
	Admit func(context.Context) (pass func(error), err error)

	// Fingerprint is the SHA-256 of the server's certificate in hex, with or without
	// colons. It is required; Fingerprint gives what the server shows.
	Fingerprint string

	Log *slog.Logger // nil: no log

	Now   func() time.Time                     // nil: time.Now
	After func(time.Duration) <-chan time.Time // nil: time.After
}

// Session is a login to one ESXi or vCenter. Its methods may be called concurrently. It consists of types with one
// purpose each; those of a later line may use those of an earlier one.
type Session struct {
	*connection
	*inventoryReader
	*fileReader
	*vmController
	*hostController
}

// connection is the login: it renews the pass, and carries calls of the API.
type connection struct {
	cfg   Config
	end   endpoint
	tls   *tls.Config
	base  *http.Transport
	web   *http.Client // for /folder
	soap  *soap.Client // carries the pass, never renews it
	vim   *vim25.Client
	about inventory.About

	pass    pass
	login   *login
	folder  *folderCookies // the session of /folder, which keepAlive touches
	tagging *tagging.Service

	stop context.CancelFunc
	done sync.WaitGroup
}

// inventoryReader reads VMs, hosts and datastores.
type inventoryReader struct{ *connection }

// fileReader reads files of datastores, by HTTPS.
type fileReader struct {
	*connection
	encoded encodings
}

// vmController reads and changes single VMs: power, snapshots, change tracking and disks.
type vmController struct{ *inventoryReader }

// hostController reads and changes hosts: datastores by NFS, SSH, tickets, clocks and counters.
type hostController struct{ *inventoryReader }

// Dial logs in. It keeps the session alive until Close; ctx is for the login alone.
func Dial(ctx context.Context, cfg Config) (*Session, error) {
	s, err := newSession(cfg)
	if err != nil {
		return nil, err
	}
	if err := s.openSession(ctx); err != nil {
		s.base.CloseIdleConnections()
		return nil, fmt.Errorf("log in to %s: %w", s.end.addr, classify(err))
	}
	s.startKeepAlive()
	return s, nil
}

func newSession(cfg Config) (*Session, error) {
	end, err := parseEndpoint(cfg.URL)
	if err != nil {
		return nil, err
	}
	pinned, err := pinnedTLS(end, cfg.Fingerprint)
	if err != nil {
		return nil, err
	}
	if cfg.Password == nil {
		return nil, fault.New(fault.Invalid, "log in to %s: no password given", end.addr)
	}
	s := &connection{cfg: cfg.withDefaults(), end: end, tls: pinned, login: newLogin(), folder: newFolder()}
	s.base = newTransport(pinned)
	s.web = &http.Client{Transport: redialTransport{s.base}, CheckRedirect: noRedirect}
	s.soap = s.newSOAP(&soapTransport{base: redialTransport{s.base}, pass: &s.pass})
	s.tagging = tagging.New(tagging.Config{
		SDK: end.sdkURL(), Addr: end.addr, User: end.user, Password: s.login.currentPassword, Admit: s.cfg.Admit,
		Refused: func() { s.login.countRefusal(s.cfg.Now()) },
		Base:    s.base, Through: redialTransport{s.base}, KindOf: func(err error) fault.Kind { return fault.KindOf(classify(err)) },
		Log: s.cfg.Log, Now: s.cfg.Now, After: s.cfg.After,
	})
	vms := &inventoryReader{s}
	return &Session{s, vms, &fileReader{connection: s}, &vmController{vms}, &hostController{vms}}, nil
}

func (c Config) withDefaults() Config {
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.After == nil {
		c.After = time.After
	}
	return c
}

// idleConnections are kept for the next call. A fleet's VMs of one source call a dozen at a time:
// with fewer, every other call would begin with a handshake, which costs more than the call.
const idleConnections = 16

// newTransport returns a transport for API calls and small files: HTTP/1.1, pinned, and
// direct, as the data connections are.
func newTransport(pinned *tls.Config) *http.Transport {
	dialer := &net.Dialer{Timeout: 15 * time.Second, KeepAlive: 30 * time.Second}
	return &http.Transport{
		DialContext:           dialer.DialContext,
		TLSClientConfig:       pinned.Clone(),
		TLSHandshakeTimeout:   15 * time.Second,
		ResponseHeaderTimeout: 3 * time.Minute, // a slow hostd, not a dead one
		IdleConnTimeout:       60 * time.Second,
		MaxIdleConnsPerHost:   idleConnections,
	}
}

func noRedirect(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

// openSession reads what the server is, and logs in.
func (s *connection) openSession(ctx context.Context) error {
	content, err := methods.GetServiceContent(ctx, s.soap)
	if err != nil {
		return err
	}
	s.vim = &vim25.Client{Client: s.soap, ServiceContent: content, RoundTripper: s}
	s.about = toAbout(content.About)
	if err := s.end.checkScheme(s.about); err != nil {
		return err
	}
	return s.renewSession(ctx, "")
}

func toAbout(a types.AboutInfo) inventory.About {
	return inventory.About{
		Name:         a.Name,
		Version:      a.Version,
		Build:        a.Build,
		APIVersion:   a.ApiVersion,
		InstanceUUID: a.InstanceUuid,
		VCenter:      a.ApiType == "VirtualCenter",
	}
}

// About returns what was logged in to.
func (s *connection) About() inventory.About { return s.about }

// Addr returns the host:port that serves the API and /folder.
func (s *connection) Addr() string { return s.end.addr }

// TLS returns the pinned configuration for connections to Addr. Callers clone it.
func (s *connection) TLS() *tls.Config { return s.tls }

// Close logs out and waits for what Dial started. A host that cannot be reached any more
// is no error: the session ends there by itself.
func (s *Session) Close() error {
	s.stop()
	s.done.Wait()
	defer s.base.CloseIdleConnections()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	s.tagging.Close(ctx)
	_, err := methods.Logout(ctx, s.soap, &types.Logout{This: *s.vim.ServiceContent.SessionManager})
	if err == nil || isSessionEnded(err) {
		return nil
	}
	err = fmt.Errorf("log out of %s: %w", s.end.addr, classify(err))
	switch fault.KindOf(err) {
	case fault.Unreachable, fault.Transient, fault.Denied:
		s.cfg.Log.Warn("session is left to end by itself", "host", s.end.addr, "err", err)
		return nil
	}
	return err
}
