package export

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io/fs"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/decamp/decamp/internal/fault"
)

// Address describes where clients connect. The zero value is a socket in a private folder.
type Address struct {
	Socket   string // folder of the Unix socket; empty: a private folder that is removed at the end
	Listen   string // host:port of TCP; empty: a Unix socket
	Cert     string // file with the certificate of the server; empty: no TLS
	Key      string // file with the key of Cert
	ClientCA string // file with the authorities of clients' certificates; empty: any client is accepted
}

const (
	socketName = "nbd.sock" // name of the Unix socket
	nbdPort    = "10809"    // port of NBD, assigned by IANA
	maxSocket  = 107        // longest path of a Unix socket in bytes: sun_path of unix(7) without its end
)

// place is an open Address.
type place struct {
	listener net.Listener
	tls      *tls.Config // nil without TLS
	socket   string      // path of the Unix socket; empty for TCP
	host     string      // name or address of this machine for clients; empty for a Unix socket
	remove   string      // folder to remove at the end; empty: none
}

// openPlace checks an address and listens on it. It sends nothing.
func openPlace(a Address) (p *place, err error) {
	p = &place{}
	if a.Socket != "" && a.Listen != "" {
		return nil, fault.New(fault.Invalid, "--socket and --listen exclude each other")
	}
	if p.tls, err = a.loadTLS(); err != nil {
		return nil, err
	}
	if a.Listen != "" {
		return p, p.listenTCP(a)
	}
	dir := a.Socket
	if dir == "" {
		dir, err = os.MkdirTemp(os.Getenv("XDG_RUNTIME_DIR"), "decamp-nbd-") // with mode 700
		if err != nil {
			dir, err = os.MkdirTemp("", "decamp-nbd-")
		}
		if err != nil {
			return nil, fault.New(fault.Denied, "create a private folder for the socket: %w", err).WithHint("name an existing folder with --socket DIR")
		}
		p.remove = dir
	}
	if err = p.listenUnix(dir); err != nil {
		return nil, errors.Join(err, p.close())
	}
	return p, nil
}

// loadTLS returns the configuration of TLS; nil without certificates.
func (a Address) loadTLS() (*tls.Config, error) {
	switch {
	case a.Cert == "" && a.Key == "" && a.ClientCA == "":
		return nil, nil
	case a.Cert == "" || a.Key == "":
		return nil, fault.New(fault.Invalid, "--tls-cert and --tls-key: want both")
	case a.Listen == "":
		return nil, fault.New(fault.Invalid, "--tls-cert requires --listen: a Unix socket has no TLS")
	}
	pair, err := tls.LoadX509KeyPair(a.Cert, a.Key)
	if err != nil {
		return nil, fault.New(fault.Invalid, "certificate of the NBD server: %w", err).WithHint("--tls-cert and --tls-key name PEM files that belong together")
	}
	cfg := &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}
	if a.ClientCA == "" {
		return cfg, nil
	}
	text, err := os.ReadFile(a.ClientCA)
	if err != nil {
		return nil, fault.New(fault.Invalid, "--tls-client-ca: %w", err)
	}
	cfg.ClientCAs, cfg.ClientAuth = x509.NewCertPool(), tls.RequireAndVerifyClientCert
	// GnuTLS 3.7, which libnbd and QEMU use, sends no RSA certificate if a TLS 1.3 server does not accept
	// PKCS #1 signatures, as Go's does not
	cfg.MaxVersion = tls.VersionTLS12
	if !cfg.ClientCAs.AppendCertsFromPEM(text) {
		return nil, fault.New(fault.Invalid, "--tls-client-ca: %s contains no certificate", a.ClientCA).WithHint("name a PEM file with the certificate of the authority")
	}
	return cfg, nil
}

// listenTCP listens on TCP. Without TLS, only addresses of this machine's loopback are accepted: NBD
// sends the disk in clear to every client.
func (p *place) listenTCP(a Address) error {
	host, port, err := net.SplitHostPort(a.Listen)
	if err != nil {
		host, port = strings.Trim(a.Listen, "[]"), nbdPort
	}
	at, err := net.ResolveTCPAddr("tcp", net.JoinHostPort(host, cmp.Or(port, nbdPort)))
	if err != nil {
		return fault.New(fault.Invalid, "--listen %s: %w", a.Listen, err).WithHint("want an address and a port, such as 127.0.0.1:" + nbdPort)
	}
	if p.tls == nil && !at.IP.IsLoopback() {
		return fault.New(fault.Invalid, "--listen %s: any machine that reaches this address could read the disks", a.Listen).
			WithHint("add --tls-cert FILE --tls-key FILE --tls-client-ca FILE, or listen on 127.0.0.1 and forward the port with ssh -L")
	}
	if p.listener, err = net.ListenTCP("tcp", at); err != nil {
		return listenError(a.Listen, err)
	}
	if p.host = host; at.IP == nil || at.IP.IsUnspecified() { // all addresses of this machine
		p.host, err = os.Hostname()
	}
	return err
}

// listenUnix listens on a socket in dir that only this user can connect to. A socket without a server is
// replaced.
func (p *place) listenUnix(dir string) error {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return err
	}
	if st, err := os.Stat(dir); err != nil || !st.IsDir() {
		return fault.New(fault.NotFound, "--socket %s is not a folder", dir).WithHint("create it: mkdir -m 700 %s", fault.Quote(dir))
	}
	path := filepath.Join(dir, socketName)
	if len(path) > maxSocket {
		return fault.New(fault.Invalid, "the path of the socket is longer than %d bytes: %s", maxSocket, path).WithHint("name a folder with a shorter path: --socket DIR")
	}
	if conn, err := net.Dial("unix", path); err == nil {
		conn.Close()
		return fault.New(fault.Conflict, "another process serves %s", path).WithHint("end that process, or name another folder: --socket DIR")
	}
	if st, err := os.Lstat(path); err == nil && st.Mode().Type() == fs.ModeSocket { // its process was killed
		if err := os.Remove(path); err != nil {
			return fault.New(fault.Denied, "replace an old socket: %w", err).WithHint("remove it: rm %s", fault.Quote(path))
		}
	}
	before := unix.Umask(0o177)
	p.listener, err = net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"}) // its Close removes the file
	unix.Umask(before)
	if err != nil {
		return listenError(path, err)
	}
	p.socket = path
	return nil
}

// listenError adds kind and remedy to an error of listening.
func listenError(at string, err error) error {
	switch {
	case errors.Is(err, unix.EADDRINUSE):
		return fault.New(fault.Conflict, "listen on %s: %w", at, err).WithHint("choose another port or folder; port 0 chooses a free one")
	case errors.Is(err, unix.EACCES), errors.Is(err, unix.EPERM):
		return fault.New(fault.Denied, "listen on %s: %w", at, err).WithHint("choose an address or a folder that you may use")
	}
	return fault.New(fault.Invalid, "listen on %s: %w", at, err).WithHint("use an address of this machine")
}

// uri returns the NBD URI of an export. The empty name is that of the first export.
func (p *place) uri(name string) string {
	u := url.URL{Scheme: "nbd+unix", Path: "/" + name}
	switch {
	case p.socket != "":
		u.RawQuery = "socket=" + escapePath(p.socket)
		return "nbd+unix://" + u.RequestURI()
	case p.tls != nil:
		u.Scheme = "nbds"
	default:
		u.Scheme = "nbd"
	}
	_, port, _ := net.SplitHostPort(p.listener.Addr().String()) // an address that listens has a port
	u.Host = net.JoinHostPort(p.host, port)
	return u.String()
}

// escapePath escapes a path for the query of a URI, except its slashes: QEMU and libnbd decode percent
// signs only, and users read it.
func escapePath(path string) string {
	return strings.NewReplacer("+", "%20", "%2F", "/").Replace(url.QueryEscape(path))
}

// close closes the listener, and removes the private folder.
func (p *place) close() error {
	if p == nil {
		return nil
	}
	var errs []error
	if p.listener != nil {
		if err := p.listener.Close(); !errors.Is(err, net.ErrClosed) {
			errs = append(errs, err)
		}
	}
	if p.remove != "" {
		errs = append(errs, os.RemoveAll(p.remove))
	}
	return errors.Join(errs...)
}
