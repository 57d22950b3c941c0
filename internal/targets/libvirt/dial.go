package libvirt

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/targets/libvirt/rpc"
)

const (
	dialTimeout = 30 * time.Second // limit for a connection with its TLS handshake
	callTimeout = 5 * time.Minute  // limit for the silence of libvirt; refreshing a large pool is slow
)

// connect opens a connection to libvirt and its driver. The caller closes it.
func (p *Platform) connect(ctx context.Context) (*rpc.Client, error) {
	conn, err := p.dial(ctx, p.at)
	if err != nil {
		return nil, fmt.Errorf("libvirt at %s: %w", p.at, err)
	}
	c := rpc.New(conn, callTimeout)
	if err := c.Open(ctx, p.at.driver); err != nil {
		return nil, errors.Join(fmt.Errorf("libvirt at %s: %w", p.at, refusedLogin(err)), ignoreClosed(c.Close()))
	}
	return c, nil
}

// refusedLogin converts an authentication error of libvirt to fault.Denied.
func refusedLogin(err error) error {
	if rpc.IsCode(err, rpc.AuthFailed, rpc.AuthCancelled, rpc.AuthUnavailable, rpc.AccessDenied) {
		return fault.New(fault.Denied, "%w", err).OfLogin().
			WithHint("join the group that may manage VMs there, or log in as root: usermod -aG libvirt USER")
	}
	return libvirtFault(err)
}

// ignoreClosed returns nil for net.ErrClosed, which closing a broken connection returns.
func ignoreClosed(err error) error {
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

// dial opens a connection to libvirt's socket with the address's transport.
func dial(ctx context.Context, a address) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	switch a.transport {
	case "unix":
		return dialUnix(ctx, a)
	case "ssh":
		return dialSSH(a)
	case "tls":
		return dialTLS(ctx, a)
	}
	return dialTCP(ctx, a)
}

// dialUnix connects to the first socket that accepts. Missing permission is fault.Denied. If no socket
// accepts, the error
// is fault.Unreachable.
func dialUnix(ctx context.Context, a address) (net.Conn, error) {
	var errs []error
	for _, path := range a.socketPaths() {
		conn, err := new(net.Dialer).DialContext(ctx, "unix", path)
		if err == nil {
			return conn, nil
		}
		if errors.Is(err, fs.ErrPermission) {
			return nil, fault.New(fault.Denied, "%w", err).OfLogin().
				WithHint("run as root, or join the group that may manage VMs: usermod -aG libvirt $USER")
		}
		errs = append(errs, err)
	}
	return nil, dialFault(ctx, errors.Join(errs...), "start it: systemctl start libvirtd, or virtqemud.socket; then check its sockets: ls /run/libvirt")
}

// dialTCP connects to libvirt without encryption.
func dialTCP(ctx context.Context, a address) (net.Conn, error) {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", net.JoinHostPort(a.host, cmp.Or(a.port, defaultPort[a.transport])))
	if err != nil {
		return nil, dialFault(ctx, err, "make libvirt listen there: systemctl start libvirtd-"+a.transport+".socket; or use SSH: qemu+ssh://root@"+a.host+"/system")
	}
	return conn, nil
}

// dialFault returns context.Canceled if ctx was canceled, else fault.Unreachable with the remedy.
func dialFault(ctx context.Context, err error, remedy string) error {
	if errors.Is(context.Cause(ctx), context.Canceled) {
		return context.Canceled
	}
	return fault.New(fault.Unreachable, "%w", err).WithHint("%s", remedy)
}

// dialTLS connects with the client's certificate and waits until libvirt has accepted it.
func dialTLS(ctx context.Context, a address) (net.Conn, error) {
	config, err := tlsConfig(a)
	if err != nil {
		return nil, err
	}
	raw, err := dialTCP(ctx, a)
	if err != nil {
		return nil, err
	}
	conn := tls.Client(raw, config)
	err = conn.HandshakeContext(ctx)
	if err == nil {
		err = readAcceptance(ctx, conn)
	}
	if err == nil {
		return conn, nil
	}
	return nil, errors.Join(tlsFault(ctx, a, err), ignoreClosed(raw.Close()))
}

// readAcceptance reads the byte that libvirt sends after the TLS handshake: 1 if it accepts the
// client's certificate.
func readAcceptance(ctx context.Context, conn net.Conn) error {
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	var word [1]byte
	if _, err := conn.Read(word[:]); err != nil {
		return err
	}
	if word[0] != 1 {
		return errors.New("libvirt rejects the client's certificate")
	}
	return nil
}

// tlsFault returns fault.Unreachable if the peer did not answer, else fault.Denied: one side rejected
// the other's
// certificate.
func tlsFault(ctx context.Context, a address, err error) error {
	if errors.Is(context.Cause(ctx), context.Canceled) {
		return context.Canceled
	}
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, syscall.ECONNRESET) {
		return fault.New(fault.Unreachable, "%w", err).WithHint("find the process that listens there, and read its log: journalctl -u libvirtd")
	}
	return fault.New(fault.Denied, "%w", err).OfLogin().
		WithHint("compare the certificates of both sides: virt-pki-validate; the client's are read from %s", a.certificateFiles()[0])
}

// certificateFiles returns the paths of the client's certificate, its key, and the CA's certificate.
// The defaults are
// libvirt's.
func (a address) certificateFiles() [3]string {
	if a.pki != "" {
		in := func(name string) string { return filepath.Join(a.pki, name) }
		return [3]string{in("clientcert.pem"), in("clientkey.pem"), in("cacert.pem")}
	}
	return [3]string{"/etc/pki/libvirt/clientcert.pem", "/etc/pki/libvirt/private/clientkey.pem", "/etc/pki/CA/cacert.pem"}
}

// tlsConfig reads the certificates. Unreadable files are fault.Denied.
func tlsConfig(a address) (*tls.Config, error) {
	names := a.certificateFiles()
	own, err := tls.LoadX509KeyPair(names[0], names[1])
	if err != nil {
		return nil, noCertificate(err)
	}
	text, err := os.ReadFile(names[2])
	if err != nil {
		return nil, noCertificate(err)
	}
	authorities := x509.NewCertPool()
	if !authorities.AppendCertsFromPEM(text) {
		return nil, noCertificate(fmt.Errorf("%s contains no certificate", names[2]))
	}
	return &tls.Config{MinVersion: tls.VersionTLS12, ServerName: a.host, Certificates: []tls.Certificate{own}, RootCAs: authorities}, nil
}

// noCertificate returns the error for missing or malformed certificates.
func noCertificate(err error) error {
	return fault.New(fault.Denied, "certificates for libvirt: %w", err).OfLogin().
		WithHint("set the folder with clientcert.pem, clientkey.pem and cacert.pem: ?pkipath=FOLDER; see https://libvirt.org/kbase/tlscerts.html")
}
