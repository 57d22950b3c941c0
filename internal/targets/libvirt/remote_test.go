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

// A VM is delivered the same way whichever way libvirt is reached.
func TestDeliversOverEveryTransport(t *testing.T) {
	t.Parallel()
	d := sharedDaemon(t)
	ssh, pki := newSSH(t), newPKI(t)
	tests := map[string]string{
		"tcp": "qemu+tcp://" + d.relay(t, nil) + "/system?x=x",
		"tls": "qemu+tls://" + d.relay(t, pki.server()) + "/system?pkipath=" + pki.folder,
		"ssh": ssh.url(d, ssh.key),
	}
	for name, url := range tests {
		t.Run(name, func(t *testing.T) {
			s := newSite(t, d, false)
			place, err := New(strings.Replace(url, "x=x", "", 1)+"&pool="+s.place.at.pool, Options{})
			if err != nil {
				t.Fatal(err)
			}
			data := bytes.Repeat([]byte("some more bytes "), 3<<16)
			_, to, def := onStage(t, webVM(int64(len(data))), place, data)
			if err := to.Publish(t.Context(), def); err != nil {
				t.Fatalf("%v (%s)", err, fault.HintOf(err))
			}
			seen := s.seen(t)
			if len(seen) != 1 || !bytes.Equal(seen[0].Disks[0], data) {
				t.Errorf("%d VMs, or their disks differ", len(seen))
			}
			if err := to.Withdraw(t.Context(), def.VM); err != nil {
				t.Error(err)
			}
			if left := s.things(t); len(left) > 0 {
				t.Errorf("%q is left", left)
			}
		})
	}
}

// Whoever is not let in is told so, and what to do.
func TestThoseWhoAreNotLetIn(t *testing.T) {
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
		{"another's certificate", "qemu+tls://" + d.relay(t, pki.server()) + "/system?pkipath=" + others.folder, fault.Denied},
		{"no certificate", "qemu+tls://" + d.relay(t, pki.server()) + "/system?pkipath=" + t.TempDir(), fault.Denied},
		{"no libvirt at the port", "qemu+tcp://127.0.0.1:1/system", fault.Unreachable},
		{"no libvirt at the socket", "qemu:///system?socket=" + filepath.Join(t.TempDir(), "none"), fault.Unreachable},
		{"no such pool", "qemu:///system?pool=none&socket=" + d.socket(), fault.NotFound},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			place, err := New(tt.url, Options{})
			if err != nil {
				t.Fatal(err)
			}
			if err := place.Check(t.Context(), webVM(1<<20)); !fault.Is(err, tt.kind) || fault.HintOf(err) == "" {
				t.Errorf("%v (%v, remedy %q), want %v with a remedy", err, fault.KindOf(err), fault.HintOf(err), tt.kind)
			}
		})
	}
}

// Whether libvirt can run the VM is asked before it is copied. Here it has no KVM.
func TestDomainTypeIsAskedForBeforeTheCopy(t *testing.T) {
	t.Parallel()
	s := newSite(t, sharedDaemon(t), false)
	for _, kind := range []string{"", "qemu"} {
		s.place.opts.Type = kind
		if err := s.place.Check(t.Context(), webVM(1<<20)); err != nil {
			t.Errorf("type %q: %v", kind, err)
		}
	}
	s.place.opts.Type = "kvm"
	if err := s.place.Check(t.Context(), webVM(1<<20)); !fault.Is(err, fault.Unsupported) || !strings.Contains(fault.HintOf(err), "--domain-type qemu") {
		t.Errorf("type kvm: %v (%s)", err, fault.HintOf(err))
	}
}

// Nobody undefines a domain that somebody else made of the same VM, as of the domain.xml in a folder.
func TestDomainOfTheSameVMThatSomebodyElseMade(t *testing.T) {
	t.Parallel()
	s := newSite(t, sharedDaemon(t), false)
	data := make([]byte, 1<<20)
	stage, to, def := onStage(t, webVM(1<<20), s.place, data)
	text, err := stage.Domain(def)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.client.DefineDomain(t.Context(), text); err != nil {
		t.Fatal(err)
	}
	before := s.things(t)
	if err := s.place.Check(t.Context(), def.VM); !fault.Is(err, fault.Conflict) || fault.HintOf(err) == "" {
		t.Errorf("check: %v", err)
	}
	if err := to.Publish(t.Context(), def); !fault.Is(err, fault.Conflict) {
		t.Errorf("publish: %v", err)
	}
	if err := s.place.Withdraw(t.Context(), def.VM); err != nil {
		t.Errorf("withdraw: %v", err)
	}
	if now := s.things(t); !slices.Equal(now, before) {
		t.Errorf("there was %q, and is %q", before, now)
	}
}

// relay lends libvirtd an address of its own: its socket is all that can be reached of its namespaces.
// With a config it speaks TLS, and greets as libvirtd does.
func (d *daemon) relay(t *testing.T, config *tls.Config) string {
	t.Helper()
	return accept(t, func(conn net.Conn) {
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
			_, _ = io.Copy(to, conn) // ends with either
			_ = to.Close()
		}()
		_, _ = io.Copy(conn, to)
	})
}

// accept serves connections to a port of this machine until the test ends.
func accept(t *testing.T, serve func(net.Conn)) string {
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

// sshd is a real one, of which each connection has a process.
type sshd struct {
	address       string
	key, otherKey string // files; one of them is let in
	known         string // file
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
	if err := os.MkdirAll("/run/sshd", 0o755); err != nil { // sshd does not start without
		t.Fatal(err)
	}
	// The default key exchange, sntrup761, costs a hundred milliseconds of processor time in each login.
	config := fmt.Sprintf("HostKey %s\nAuthorizedKeysFile %s\nStrictModes no\nPermitRootLogin yes\nPasswordAuthentication no\nUsePAM no\n"+
		"KexAlgorithms curve25519-sha256\nCiphers aes128-gcm@openssh.com\n", in("host"), in("key.pub"))
	write(t, in("config"), config)
	s := sshd{key: in("key"), otherKey: in("other"), known: in("known")}
	s.address = accept(t, func(conn net.Conn) {
		file, err := conn.(*net.TCPConn).File()
		if err != nil {
			t.Error(err)
			return
		}
		defer file.Close()
		cmd := exec.Command("/usr/sbin/sshd", "-i", "-f", in("config"))
		cmd.Stdin, cmd.Stdout = file, file
		_ = cmd.Run() // refused logins end it by an error
	})
	host, port, _ := net.SplitHostPort(s.address)
	public, err := os.ReadFile(in("host.pub"))
	if err != nil {
		t.Fatal(err)
	}
	write(t, s.known, fmt.Sprintf("[%s]:%s %s", host, port, public))
	return s
}

func (s sshd) url(d *daemon, key string) string {
	return "qemu+ssh://root@" + s.address + "/system?socket=" + d.socket() + "&keyfile=" + key + "&known_hosts=" + s.known
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// A pki is an authority, and a certificate that it gave to client and server.
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
	write(t, filepath.Join(p.folder, "cacert.pem"), certificate)
	write(t, filepath.Join(p.folder, "clientcert.pem"), certificate)
	write(t, filepath.Join(p.folder, "clientkey.pem"), string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret})))
	p.all.AppendCertsFromPEM([]byte(certificate))
	return p
}

// server is libvirtd's side: it takes only clients with a certificate of its authority.
func (p pki) server() *tls.Config {
	own, err := tls.LoadX509KeyPair(filepath.Join(p.folder, "clientcert.pem"), filepath.Join(p.folder, "clientkey.pem"))
	if err != nil {
		panic(err)
	}
	return &tls.Config{Certificates: []tls.Certificate{own}, ClientCAs: p.all, ClientAuth: tls.RequireAndVerifyClientCert}
}
