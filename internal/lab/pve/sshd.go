package pve

import (
	"crypto/ed25519"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"

	"golang.org/x/crypto/ssh"

	"github.com/decamp/decamp/internal/lab/executable"
)

// SSH is the SSH login of the node: a real sshd, one process for each connection. A session has a pvesm
// with the node's volumes, and the programs in Tools.
type SSH struct {
	Addr       string // host:port of the server
	Key        string // file with the private key that the server accepts
	OtherKey   string // file with a private key that the server rejects
	KnownHosts string // known_hosts file with the host key of the server
	ChangedKey string // known_hosts file with another host key for the server
	Tools      string // folder of programs: a removed program is missing on the node

	config   string         // path of sshd's configuration file
	listener net.Listener   // accepts connections, which are relayed to an sshd
	serving  sync.WaitGroup // goroutines of the listener and of the connections

	mu     sync.Mutex        // guards the fields below
	cuts   int               // connections that are still to be cut
	after  int64             // bytes from clients until the next cut
	every  int64             // bytes between two cuts
	conns  map[net.Conn]bool // open connections, which Close ends
	logins int               // number of connections so far
	bytes  int64             // number of bytes that clients sent
}

// programs are those of this machine that a session can run, in addition to the emulated ones.
var programs = []string{"perl", "dd", "qemu-nbd", "sh"}

// StartSSH starts an SSH login, which ends with the node. It fails if one of the programs or sshd's
// privilege separation folder is missing.
func (s *Server) StartSSH() (*SSH, error) {
	folder := filepath.Join(s.config.Dir, "ssh")
	in := func(name string) string { return filepath.Join(folder, name) }
	d := &SSH{
		Key: in("key"), OtherKey: in("other"), KnownHosts: in("known"), ChangedKey: in("changed"), Tools: in("bin"),
		config: in("config"), conns: map[net.Conn]bool{},
	}
	for _, folder := range []string{d.Tools, in("perl/PVE"), "/run/sshd"} { // sshd does not start without the last
		if err := os.MkdirAll(folder, 0o755); err != nil {
			return nil, err
		}
	}
	for _, name := range []string{"host", "key", "other"} {
		if err := writeKey(in(name)); err != nil {
			return nil, err
		}
	}
	if err := s.writeTools(d, in("perl/PVE/Storage.pm")); err != nil {
		return nil, err
	}
	// The default key exchange, sntrup761, costs a hundred milliseconds of processor time in each login.
	config := fmt.Sprintf("HostKey %s\nAuthorizedKeysFile %s\nStrictModes no\nPermitRootLogin yes\nPasswordAuthentication no\nUsePAM no\n"+
		"KexAlgorithms curve25519-sha256\nCiphers aes128-gcm@openssh.com\nSetEnv PATH=%s PERL5LIB=%s\n",
		in("host"), in("key.pub"), d.Tools, in("perl"))
	if err := os.WriteFile(d.config, []byte(config), 0o600); err != nil {
		return nil, err
	}
	var err error
	if d.listener, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		return nil, err
	}
	d.Addr = d.listener.Addr().String()
	if err := d.writeKnown(in("host.pub"), d.KnownHosts); err != nil {
		return nil, err
	}
	if err := d.writeKnown(in("other.pub"), d.ChangedKey); err != nil {
		return nil, err
	}
	d.serving.Go(d.acceptLogins)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sshd = append(s.sshd, d)
	return d, nil
}

// writeKey writes a private key to path, and the public key to path.pub, in the formats of ssh-keygen.
func writeKey(path string) error {
	public, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		return err
	}
	block, err := ssh.MarshalPrivateKey(private, "")
	if err != nil {
		return err
	}
	key, err := ssh.NewPublicKey(public)
	if err != nil {
		return err
	}
	return errors.Join(
		os.WriteFile(path, pem.EncodeToMemory(block), 0o600),
		os.WriteFile(path+".pub", ssh.MarshalAuthorizedKey(key), 0o644),
	)
}

// writeKnown writes a known_hosts file with the public key of the file key. SSH.Addr must be set.
func (d *SSH) writeKnown(key, path string) error {
	public, err := os.ReadFile(key)
	if err != nil {
		return err
	}
	host, port, err := net.SplitHostPort(d.Addr)
	if err != nil {
		return err
	}
	return os.WriteFile(path, fmt.Appendf(nil, "[%s]:%s %s", host, port, public), 0o600)
}

// writeTools fills the folder of programs: links to real programs, an emulated uname and pvesm, and the
// Perl library PVE::Storage. A lazy volume appears only when the library activates it.
func (s *Server) writeTools(d *SSH, library string) error {
	for _, name := range programs {
		path, err := exec.LookPath(name)
		if err != nil {
			return err
		}
		if err := os.Symlink(path, filepath.Join(d.Tools, name)); err != nil {
			return err
		}
	}
	var paths, activate strings.Builder
	for _, st := range s.config.Storages {
		root := filepath.Join(s.config.Dir, st.ID, "images")
		shown := root
		if st.Lazy {
			shown = filepath.Join(s.config.Dir, "dev", st.ID)
			fmt.Fprintf(&activate, "\tif ($v =~ /^%s:(.*)/) { symlink \"%s/$1\", \"%s/$1\" }\n", st.ID, root, shown)
			if err := os.MkdirAll(shown, 0o755); err != nil {
				return err
			}
		}
		if st.Remote {
			fmt.Fprintf(&paths, "%s:*) echo 'file:%s/'\"${2#*:}\" ;;\n", st.ID, shown)
			continue
		}
		fmt.Fprintf(&paths, "%s:*) echo '%s/'\"${2#*:}\" ;;\n", st.ID, shown)
	}
	for path, text := range map[string]string{
		filepath.Join(d.Tools, "uname"): "#!/bin/sh\necho " + s.config.Node + ".example.org\n",
		filepath.Join(d.Tools, "pvesm"): "#!/bin/sh\n[ \"$1\" = path ] || exit 2\ncase \"$2\" in\n" + paths.String() +
			"*) echo \"storage '${2%%:*}' does not exist\" >&2; exit 2 ;;\nesac\n",
		library: "package PVE::Storage;\nsub config { return {} }\nsub activate_volumes {\n\tmy ($v) = @{$_[1]};\n" +
			activate.String() + "}\n1;\n",
	} {
		if err := executable.WriteFile(path, text); err != nil {
			return err
		}
	}
	return nil
}

// Fail makes qemu-nbd fail requests with a Linux errno, such as 28 for a full disk, at an event of
// QEMU's blkdebug driver. An errno of 0 restores the real program.
func (d *SSH) Fail(errno int, event string) error {
	path := filepath.Join(d.Tools, "qemu-nbd")
	real, err := exec.LookPath("qemu-nbd")
	if err != nil {
		return err
	}
	if err := os.Remove(path); err != nil {
		return err
	}
	if errno == 0 {
		return os.Symlink(real, path)
	}
	rules := filepath.Join(filepath.Dir(d.Tools), "rules")
	text := fmt.Sprintf("[inject-error]\nevent = \"%s\"\nerrno = \"%d\"\n", event, errno)
	if err := os.WriteFile(rules, []byte(text), 0o600); err != nil {
		return err
	}
	script := fmt.Sprintf("#!/bin/sh\nfor last; do :; done\nexec %s -f raw \"blkdebug:%s:$last\"\n", real, rules)
	return executable.WriteFile(path, script)
}

// Cut makes the next connections fail, up to times of them, each after the clients have sent so many
// more bytes.
func (d *SSH) Cut(after int64, times int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.after, d.every, d.cuts = after, after, times
}

// Sent returns the number of bytes that clients sent, in all connections.
func (d *SSH) Sent() int64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.bytes
}

// Logins returns the number of connections, including rejected ones.
func (d *SSH) Logins() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.logins
}

// acceptLogins serves connections until the listener is closed.
func (d *SSH) acceptLogins() {
	for {
		conn, err := d.listener.Accept()
		if err != nil {
			return // Close
		}
		d.mu.Lock()
		d.conns[conn] = true
		d.logins++
		d.mu.Unlock()
		d.serving.Go(func() { d.serveLogin(conn) })
	}
}

// serveLogin starts sshd for one connection and relays its bytes. sshd reads the addresses of its
// connection; therefore it gets a TCP connection, not a pipe.
func (d *SSH) serveLogin(conn net.Conn) {
	defer func() {
		_ = conn.Close()
		d.mu.Lock()
		defer d.mu.Unlock()
		delete(d.conns, conn)
	}()
	inner, err := net.Listen("tcp", "127.0.0.1:0") // sshd reads the addresses of its connection
	if err != nil {
		return
	}
	defer inner.Close()
	near, err := net.Dial("tcp", inner.Addr().String())
	if err != nil {
		return
	}
	defer near.Close()
	far, err := inner.Accept()
	if err != nil {
		return
	}
	file, err := far.(*net.TCPConn).File()
	_ = far.Close() // file has its own
	if err != nil {
		return
	}
	defer file.Close()
	cmd := exec.Command("/usr/sbin/sshd", "-i", "-f", d.config)
	cmd.Stdin, cmd.Stdout = file, file
	if err := cmd.Start(); err != nil {
		return
	}
	_ = file.Close()
	var ways sync.WaitGroup
	ways.Go(func() {
		_, _ = io.Copy(near, io.TeeReader(conn, d)) // ends with either
		_ = near.Close()
	})
	_, _ = io.Copy(conn, near)
	_ = conn.Close()
	ways.Wait()
	_ = near.Close()
	_ = cmd.Wait() // refused logins end it by an error
}

// Write counts the bytes of a client. It fails when the connection has to be cut.
func (d *SSH) Write(p []byte) (int, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.bytes += int64(len(p))
	if d.after -= int64(len(p)); d.cuts > 0 && d.after < 0 {
		d.cuts--
		d.after = d.every
		return 0, io.ErrClosedPipe
	}
	return len(p), nil
}

// Close ends all connections and waits for them.
func (d *SSH) Close() {
	_ = d.listener.Close()
	d.mu.Lock()
	for conn := range d.conns {
		_ = conn.Close()
	}
	d.mu.Unlock()
	d.serving.Wait()
}
