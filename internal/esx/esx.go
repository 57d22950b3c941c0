// Package esx is a client of the vSphere API: a session with an ESXi host or a vCenter,
// its inventory, the files of its datastores, and the power state of its VMs. It is the
// only package that imports govmomi, and its API contains no govmomi types.
//
// # Sessions
//
// A Session is one login that is kept for days. It calls the server every 10 minutes,
// because ESXi ends a session after 30 minutes without API calls, and downloads from
// /folder do not count. If a session ends anyway, the first call that detects it logs
// in again. Concurrent calls share that login.
//
// The session cookie (pass) is valid for the API and for /folder. Requests do not use
// Basic authentication, because each of them would open a session, and ESXi permits
// 500.
//
// The pin is the SHA-256 of the server's certificate. CAs and host names are not
// checked. Fingerprint returns the certificate of a server for the user to confirm.
//
// Tags of a vCenter are not part of the API. A REST service with separate sessions
// provides them; see package tagging. Its first use opens a session with the same
// password. Close ends both sessions.
//
// # Guarantees
//
// At most two wrong passwords are sent in 15 minutes, because ESXi locks the account at
// the fifth. Exported functions return errors with a fault.Kind and, if possible, a
// remedy.
//
// Disks of the source are never written. Only these calls change other state of the
// source: PowerOff; MountNAS, CopyDisk to a mounted datastore, UnmountNAS;
// CreateSnapshot and RemoveSnapshot; StartSSH and StopSSH. All other calls only read.
// Tests compare the list of called API methods with this paragraph.
package esx

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/vmware/govmomi/vim25"
	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/soap"
	"github.com/vmware/govmomi/vim25/types"

	"github.com/decamp/decamp/internal/esx/tagging"
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/proxy"
)

// Config configures a Session. URL, Password and Fingerprint are required.
type Config struct {
	// URL is esxi://user@host[:port] or vcenter://user@host[:port]; see ParseURL.
	URL *url.URL

	// AnyProduct permits a server of the other product than URL names.
	AnyProduct bool

	// Cookie is the cookie of an open session, as name=value or as the value only. The
	// Session uses it until the server ends it, and does not log it out. Empty for a login.
	Cookie Secret

	// Password is called before the first login, and again after the server refused its
	// result. An accepted password is kept for later logins.
	Password func(context.Context) (Secret, error)

	// Judged, if not nil, is called after each login that the server decided: with nil
	// if it accepted the password, else with its refusal.
	Judged func(error)

	// Admit, if not nil, is called before each login and may wait or refuse it. The
	// session then calls pass with the result. With Admit, the session does not count
	// refused passwords itself.
	Admit func(context.Context) (pass func(error), err error)

	// Fingerprint is the SHA-256 of the server's certificate in hex, with or without
	// colons. The function Fingerprint returns the server's.
	Fingerprint string

	Log *slog.Logger // no log if nil

	Now   func() time.Time                     // clock; time.Now if nil
	After func(time.Duration) <-chan time.Time // timer; time.After if nil
}

// Session is a login to one ESXi host or vCenter. Its methods are safe for concurrent
// use. It embeds one type per purpose. A later type may use an earlier one.
type Session struct {
	*connection
	*inventoryReader
	*fileReader
	*vmController
	*hostController
}

// connection is the login. It sends API calls and renews the session cookie. Its fields
// are set by newSession and openSession, and do not change after Dial.
type connection struct {
	cfg   Config          // configuration with defaults applied
	end   endpoint        // parsed URL
	tls   *tls.Config     // pinned configuration; cloned by users
	base  *http.Transport // transport of all HTTP requests
	web   *http.Client    // client for /folder; does not follow redirects
	soap  *soap.Client    // client that sends the session cookie and never renews it
	vim   *vim25.Client   // client that renews an ended session: its RoundTripper is the connection
	about inventory.About // product and version of the server

	pass    pass             // session cookie
	login   *login           // serializes logins
	folder  *folderCookies   // cookie of /folder; keepAlive keeps its session alive
	tagging *tagging.Service // client of the vCenter's tag service

	stop context.CancelFunc // ends keepAlive
	done sync.WaitGroup     // waits for keepAlive
}

// inventoryReader reads VMs, hosts and datastores.
type inventoryReader struct{ *connection }

// fileReader reads files of datastores with HTTPS.
type fileReader struct {
	*connection
	encoded encodings // datastores of which names must be encoded twice
}

// vmController reads and changes single VMs: power, snapshots, change tracking and
// disks.
type vmController struct{ *inventoryReader }

// hostController reads and changes hosts: datastores by NFS, SSH, tickets, clocks and
// counters.
type hostController struct{ *inventoryReader }

// Dial logs in and keeps the session alive until Close. ctx applies to the login only.
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

// newSession validates cfg and builds the types of a session. It does not connect.
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
	// The API and /folder share one transport. Logins clone it, so that they use new
	// connections.
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

// withDefaults returns c with the optional functions and the log set.
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

// idleConnections is the number of idle connections to keep per host. The VMs of a
// fleet send about a dozen calls at a time. With fewer connections, every second call
// would start with a TLS handshake, which takes longer than the call.
const idleConnections = 16

// newTransport returns a transport for API calls and small files. It uses HTTP/1.1 and
// the pinned certificate, and the same proxies as the data connections.
func newTransport(pinned *tls.Config) *http.Transport {
	dialer := &net.Dialer{Timeout: 15 * time.Second, KeepAlive: 30 * time.Second}
	return &http.Transport{
		DialContext:           func(ctx context.Context, _, addr string) (net.Conn, error) { return proxy.Dial(ctx, dialer, addr) },
		TLSClientConfig:       pinned.Clone(),
		TLSHandshakeTimeout:   15 * time.Second,
		ResponseHeaderTimeout: 3 * time.Minute, // a slow hostd, not a dead one
		IdleConnTimeout:       60 * time.Second,
		MaxIdleConnsPerHost:   idleConnections,
	}
}

// noRedirect makes http.Client return a redirect as the response. The cookie must not
// go to another server.
func noRedirect(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

// openSession reads the server's product and logs in. It fails if the product does not
// match the URL.
func (s *connection) openSession(ctx context.Context) error {
	// This call needs no session.
	content, err := methods.GetServiceContent(ctx, s.soap)
	if err != nil {
		return err
	}
	s.vim = &vim25.Client{Client: s.soap, ServiceContent: content, RoundTripper: s}
	s.about = toAbout(content.About)
	if err := s.end.checkScheme(s.about); err != nil && !s.cfg.AnyProduct {
		return err
	}
	if s.cfg.Cookie == "" {
		return s.renewSession(ctx, "")
	}
	s.pass.set(s.cfg.foreignPass())
	return s.touchSession(ctx)
}

// foreignPass returns the session cookie of the configuration as name=value.
func (c Config) foreignPass() string {
	if strings.HasPrefix(string(c.Cookie), soap.SessionCookieName+"=") {
		return string(c.Cookie)
	}
	return soap.SessionCookieName + "=" + string(c.Cookie)
}

// toAbout converts the server's description of itself.
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

// About returns the product and version of the server.
func (s *connection) About() inventory.About { return s.about }

// Addr returns the host:port that serves the API and /folder.
func (s *connection) Addr() string { return s.end.addr }

// TLS returns the pinned configuration for connections to Addr. The caller must clone
// it.
func (s *connection) TLS() *tls.Config { return s.tls }

// Close logs out and waits for the goroutine of Dial. It returns nil if the host is not
// reachable, because the host ends idle sessions itself. A session that Config.Cookie
// named stays open. The Session must not be used after Close.
func (s *Session) Close() error {
	s.stop()
	s.done.Wait()
	defer s.base.CloseIdleConnections()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	s.tagging.Close(ctx)
	if s.cfg.Cookie != "" && s.pass.get() == s.cfg.foreignPass() {
		return nil
	}
	_, err := methods.Logout(ctx, s.soap, &types.Logout{This: *s.vim.ServiceContent.SessionManager})
	if err == nil || isSessionEnded(err) {
		return nil
	}
	err = fmt.Errorf("log out of %s: %w", s.end.addr, classify(err))
	switch fault.KindOf(err) {
	// The host ends an idle session itself, so the program may end without an error.
	case fault.Unreachable, fault.Transient, fault.Denied:
		s.cfg.Log.Warn("session not ended, it expires", "host", s.end.addr, "err", err)
		return nil
	}
	return err
}
