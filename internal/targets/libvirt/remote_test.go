package libvirt

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/decamp/decamp/internal/fault"
)

// A VM is delivered over every transport of libvirt.
func TestDeliversOverEveryTransport(t *testing.T) {
	t.Parallel()
	d := sharedDaemon(t)
	ssh, pki := newSSH(t), newPKI(t)
	tests := map[string]string{
		"tcp": "qemu+tcp://" + d.startRelay(t, nil) + "/system?x=x",
		"tls": "qemu+tls://" + d.startRelay(t, pki.server()) + "/system?pkipath=" + pki.folder,
		"ssh": ssh.url(d, ssh.key),
	}
	for name, url := range tests {
		t.Run(name, func(t *testing.T) {
			s := newSite(t, d, false)
			p, err := New(strings.Replace(url, "x=x", "", 1)+"&pool="+s.platform.at.pool, Options{})
			if err != nil {
				t.Fatal(err)
			}
			data := bytes.Repeat([]byte("some more bytes "), 3<<16)
			_, to, def := stageVM(t, webVM(int64(len(data))), p, data)
			if err := to.Publish(t.Context(), def); err != nil {
				t.Fatalf("%v (%s)", err, fault.HintOf(err))
			}
			vms := s.storedVMs(t)
			if len(vms) != 1 || !bytes.Equal(vms[0].Disks[0], data) {
				t.Errorf("got %d VMs, want 1 with the staged disk", len(vms))
			}
			if err := to.Withdraw(t.Context(), def.VM); err != nil {
				t.Error(err)
			}
			if left := s.listObjects(t); len(left) > 0 {
				t.Errorf("remaining objects: %q", left)
			}
		})
	}
}

// The error of a failed connection has its kind and a hint.
func TestFailedConnectionsHaveKindAndHint(t *testing.T) {
	t.Parallel()
	d := sharedDaemon(t)
	ssh, pki, others := newSSH(t), newPKI(t), newPKI(t)
	closed := ssh.url(d, ssh.key)
	closed = strings.Replace(closed, ssh.address, "127.0.0.1:1", 1)
	tests := []struct {
		name, url string
		kind      fault.Kind
	}{
		{"another key", ssh.url(d, ssh.otherKey), fault.Denied},
		{"an unknown host", strings.Replace(ssh.url(d, ssh.key), "known_hosts=", "known_hosts=/dev/null/", 1), fault.Denied},
		{"no sshd", closed, fault.Unreachable},
		{"no libvirt behind sshd", strings.Replace(ssh.url(d, ssh.key), "libvirt-sock", "nothing", 1), fault.Unreachable},
		{"foreign certificate", "qemu+tls://" + d.startRelay(t, pki.server()) + "/system?pkipath=" + others.folder, fault.Denied},
		{"no certificate", "qemu+tls://" + d.startRelay(t, pki.server()) + "/system?pkipath=" + t.TempDir(), fault.Denied},
		{"no libvirt at the port", "qemu+tcp://127.0.0.1:1/system", fault.Unreachable},
		{"no libvirt at the socket", "qemu:///system?socket=" + filepath.Join(t.TempDir(), "none"), fault.Unreachable},
		{"no such pool", "qemu:///system?pool=none&socket=" + d.socket(), fault.NotFound},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p, err := New(tt.url, Options{})
			if err != nil {
				t.Fatal(err)
			}
			if err := p.Check(t.Context(), webVM(1<<20)); !fault.Is(err, tt.kind) || fault.HintOf(err) == "" {
				t.Errorf("got %v (%v, hint %q), want %v with a hint", err, fault.KindOf(err), fault.HintOf(err), tt.kind)
			}
		})
	}
}

// Check reports before the copy that libvirt cannot run the domain type. This libvirt has no KVM.
func TestUnsupportedDomainTypeIsReportedBeforeCopy(t *testing.T) {
	t.Parallel()
	s := newSite(t, sharedDaemon(t), false)
	for _, kind := range []string{"", "qemu"} {
		s.platform.opts.Type = kind
		if err := s.platform.Check(t.Context(), webVM(1<<20)); err != nil {
			t.Errorf("type %q: %v", kind, err)
		}
	}
	s.platform.opts.Type = "kvm"
	if err := s.platform.Check(t.Context(), webVM(1<<20)); !fault.Is(err, fault.Unsupported) || !strings.Contains(fault.HintOf(err), "--domain-type qemu") {
		t.Errorf("type kvm: %v (%s)", err, fault.HintOf(err))
	}
}

// Withdraw keeps a domain that the user defined for the same VM, for example from the domain.xml in a folder.
func TestWithdrawKeepsUserDefinedDomain(t *testing.T) {
	t.Parallel()
	s := newSite(t, sharedDaemon(t), false)
	data := make([]byte, 1<<20)
	stage, to, def := stageVM(t, webVM(1<<20), s.platform, data)
	text, err := stage.Domain(def)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.client.DefineDomain(t.Context(), text); err != nil {
		t.Fatal(err)
	}
	before := s.listObjects(t)
	if err := s.platform.Check(t.Context(), def.VM); !fault.Is(err, fault.Conflict) || fault.HintOf(err) == "" {
		t.Errorf("Check: got %v, want a conflict", err)
	}
	if err := to.Publish(t.Context(), def); !fault.Is(err, fault.Conflict) {
		t.Errorf("Publish: got %v, want a conflict", err)
	}
	if err := s.platform.Withdraw(t.Context(), def.VM); err != nil {
		t.Errorf("Withdraw: %v", err)
	}
	if now := s.listObjects(t); !slices.Equal(now, before) {
		t.Errorf("the objects change from %q to %q", before, now)
	}
}

// startRelay returns a TCP address that forwards to libvirtd's socket, which is the only connection to its
// namespaces. With a config it uses TLS and sends the greeting of libvirtd.
func (d *daemon) startRelay(t *testing.T, config *tls.Config) string {
	t.Helper()
	return serveTCP(t, func(conn net.Conn) {
		if config != nil {
			conn = tls.Server(conn, config)
			if _, err := conn.Write([]byte{1}); err != nil {
				return // the client's certificate was refused
			}
		}
		to, err := net.Dial("unix", d.socket())
		if err != nil {
			t.Error(err)
			return
		}
		defer to.Close()
		go func() {
			_, _ = io.Copy(to, conn) // ends when either side closes
			_ = to.Close()
		}()
		_, _ = io.Copy(conn, to)
	})
}

// serveTCP serves connections to a local port until the test ends.
func serveTCP(t *testing.T, serve func(net.Conn)) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	t.Cleanup(func() { _ = l.Close(); all.Wait() })
	all.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			all.Go(func() {
				defer conn.Close()
				serve(conn)
			})
		}
	})
	return l.Addr().String()
}

// sshd is a real SSH server that runs one process for each connection.
type sshd struct {
	address       string
	key, otherKey string // paths; only key is authorized
	knownHosts    string // path of the known_hosts file
}

func newSSH(t *testing.T) sshd {
	t.Helper()
	folder := t.TempDir()
	in := func(name string) string { return filepath.Join(folder, name) }
	for _, name := range []string{"host", "key", "other"} {
		if out, err := exec.CommandContext(t.Context(), "ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", in(name)).CombinedOutput(); err != nil {
			t.Fatalf("ssh-keygen: %v: %s", err, out)
		}
	}
	if err := os.MkdirAll("/run/sshd", 0o755); err != nil { // required by sshd
		t.Fatal(err)
	}
	// The default key exchange, sntrup761, takes 100 ms of CPU time for each login.
	config := fmt.Sprintf("HostKey %s\nAuthorizedKeysFile %s\nStrictModes no\nPermitRootLogin yes\nPasswordAuthentication no\nUsePAM no\n"+
		"KexAlgorithms curve25519-sha256\nCiphers aes128-gcm@openssh.com\n", in("host"), in("key.pub"))
	writeFile(t, in("config"), config)
	s := sshd{key: in("key"), otherKey: in("other"), knownHosts: in("known")}
	s.address = serveTCP(t, func(conn net.Conn) {
		file, err := conn.(*net.TCPConn).File()
		if err != nil {
			t.Error(err)
			return
		}
		defer file.Close()
		cmd := exec.Command("/usr/sbin/sshd", "-i", "-f", in("config"))
		cmd.Stdin, cmd.Stdout = file, file
		_ = cmd.Run() // a refused login ends sshd with an error
	})
	host, port, _ := net.SplitHostPort(s.address)
	public, err := os.ReadFile(in("host.pub"))
	if err != nil {
		t.Fatal(err)
	}
	writeFile(t, s.knownHosts, fmt.Sprintf("[%s]:%s %s", host, port, public))
	return s
}

func (s sshd) url(d *daemon, key string) string {
	return "qemu+ssh://root@" + s.address + "/system?socket=" + d.socket() + "&keyfile=" + key + "&known_hosts=" + s.knownHosts
}

func writeFile(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// A pki is a certificate authority and a certificate that client and server share.
type pki struct {
	folder string
	all    *x509.CertPool
}

func newPKI(t *testing.T) pki {
	t.Helper()
	p := pki{folder: t.TempDir(), all: x509.NewCertPool()}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	own := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, own, own, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	certificate := string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
	writeFile(t, filepath.Join(p.folder, "cacert.pem"), certificate)
	writeFile(t, filepath.Join(p.folder, "clientcert.pem"), certificate)
	writeFile(t, filepath.Join(p.folder, "clientkey.pem"), string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret})))
	p.all.AppendCertsFromPEM([]byte(certificate))
	return p
}

// server returns the TLS configuration of libvirtd, which accepts only clients with a certificate of the authority.
func (p pki) server() *tls.Config {
	own, err := tls.LoadX509KeyPair(filepath.Join(p.folder, "clientcert.pem"), filepath.Join(p.folder, "clientkey.pem"))
	if err != nil {
		panic(err)
	}
	return &tls.Config{Certificates: []tls.Certificate{own}, ClientCAs: p.all, ClientAuth: tls.RequireAndVerifyClientCert}
}
