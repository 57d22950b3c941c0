package vsphere

import (
	"crypto/ed25519"
	"crypto/rand"
	"errors"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"

	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/types"
	"golang.org/x/crypto/ssh"

	"github.com/decamp/decamp/internal/lab/shell"
	"github.com/decamp/decamp/internal/lab/socket"
)

// SSH configures the hosts' SSH servers. They are off until TSM-SSH is started through the API.
type SSH struct {
	Enabled        bool     `json:"enabled,omitempty"`        // TSM-SSH runs from the start
	Unavailable    bool     `json:"unavailable,omitempty"`    // the server cannot be started
	Addr           string   `json:"addr,omitempty"`           // address of the first host's server; default 127.0.0.1:0
	AuthorizedKeys []string `json:"authorizedKeys,omitempty"` // keys that log in, as authorized_keys has them
	PasswordAuth   bool     `json:"passwordAuth,omitempty"`   // offer "password" beside keyboard-interactive
	NoPasswords    bool     `json:"noPasswords,omitempty"`    // keys only
	MaxClones      int      `json:"maxClones,omitempty"`      // vmkfstools at a time, one more is killed: the memory of hostd-tmp; 0 is no limit
	Lockdown       bool     `json:"lockdown,omitempty"`       // lockdown mode without exception users: every login fails
	MaxSessions    int      `json:"maxSessions,omitempty"`    // commands at a time on one connection, default 10 as with OpenSSH
	SecretKey      bool     `json:"secretKey,omitempty"`      // whether the API does not serve the host key
	SHA256Sum      bool     `json:"sha256sum,omitempty"`      // the host has sha256sum; it is not known which do
}

// A shellHost is an ESXi host for SSH users.
type shellHost struct {
	lab      *Lab                         // emulator of the host
	name     string                       // name in the inventory
	ref      types.ManagedObjectReference // host in the inventory
	key      ssh.Signer                   // host key, constant
	machine  *shell.Machine               // processes and programs
	files    *hostFiles                   // files of the host
	services *serviceSystem               // service system of the host

	serving sync.WaitGroup // goroutines of the listener, of connections and of sessions

	mu     sync.Mutex        // guards the fields below
	addr   string            // host:port; fixed after the first bind
	ln     net.Listener      // listener of the server; nil while SSH is off
	conns  map[net.Conn]bool // open connections
	clones int               // number of copies in progress
	down   bool              // whether the emulator is closing
}

var (
	errNoSSH   = errors.New("this host has no SSH server") // SSH.Unavailable, or the emulator is closing
	errNoLogin = errors.New("permission denied")           // wrong user, password or key
)

// sshHosts are the SSH servers of all hosts.
type sshHosts struct {
	lab       *Lab         // emulator of the hosts
	cfg       *Config      // configuration with defaults
	ports     *ports       // reserved ports
	inventory *inventory   // objects of the API
	all       []*shellHost // hosts in the order in which they were added
}

// newShellHost adds a host with a new key. The SSH server is off.
func (s *sshHosts) newShellHost(h *simulator.HostSystem) (*shellHost, error) {
	_, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, err
	}
	key, err := ssh.NewSignerFromKey(private)
	if err != nil {
		return nil, err
	}
	host := &shellHost{lab: s.lab, name: h.Name, ref: h.Self, key: key, addr: "127.0.0.1:0", conns: map[net.Conn]bool{}}
	if len(s.all) == 0 {
		setDefault(&s.cfg.SSH.Addr, host.addr)
		setDefault(&s.cfg.SSH.MaxSessions, maxSessions)
		host.addr = s.cfg.SSH.Addr
	}
	host.addr = s.ports.reservePort(host.addr)
	host.files = newHostFiles(host)
	host.machine = &shell.Machine{
		Open: host.files.openFile, Commands: host.hostCommands(),
		IsDir: func(name string) bool { return host.files.isDir(host.jobContext(), name) },
		Files: func(name string) []string {
			list, _ := host.files.listFolder(host.jobContext(), name) // no folder: no files
			return list
		},
	}
	s.all = append(s.all, host)
	return host, nil
}

// SSHAddr returns the host:port of a host's SSH server, by the host's name in the inventory; "" is the
// first host. It is empty while the server is off.
func (s *sshHosts) SSHAddr(host string) string {
	for _, h := range s.all {
		if host == "" || h.name == host {
			h.mu.Lock()
			defer h.mu.Unlock()
			if h.ln == nil {
				return ""
			}
			return h.addr
		}
	}
	return ""
}

// SSHServer describes the SSH server of a host.
type SSHServer struct {
	Host        string `json:"host"`           // name of the host in the inventory
	Addr        string `json:"addr,omitempty"` // address of the server; empty until the server is started for the first time
	Running     bool   `json:"running"`        // whether the server accepts connections
	Fingerprint string `json:"fingerprint"`    // fingerprint of its key, as SHA256:…
}

// SSHServers returns the SSH servers of all hosts.
func (s *sshHosts) SSHServers() []SSHServer {
	all := []SSHServer{}
	for _, h := range s.all {
		h.mu.Lock()
		server := SSHServer{Host: h.name, Addr: h.addr, Running: h.ln != nil, Fingerprint: ssh.FingerprintSHA256(h.key.PublicKey())}
		h.mu.Unlock()
		if _, port, err := net.SplitHostPort(server.Addr); !server.Running && (err != nil || port == "0") {
			server.Addr = ""
		}
		all = append(all, server)
	}
	return all
}

// SSHHostKey returns the public key of a host's SSH server in the format of authorized_keys; "" is the
// first host. The key exists before SSH is started.
func (s *sshHosts) SSHHostKey(host string) string {
	for _, h := range s.all {
		if host == "" || h.name == host {
			return string(ssh.MarshalAuthorizedKey(h.key.PublicKey()))
		}
	}
	return ""
}

// maxSessions is OpenSSH's default of MaxSessions.
const maxSessions = 10

// hostKeyPath is the path at which the API of a host serves the public part of its RSA key. The
// emulated hosts have one key, of another type, because RSA keys take long to generate.
const hostKeyPath = "/host/ssh_host_rsa_key_pub"

// serveHostKey sends the host key to authenticated clients.
func (e *endpoint) serveHostKey(w http.ResponseWriter, r *http.Request) {
	e.lab.stats.countRequest(r)
	if err := e.authenticate(w, r); err != nil {
		writeError(&recorder{ResponseWriter: w}, r, err)
		return
	}
	w.Header().Set("Content-Type", "application/octet-stream")
	_, _ = io.WriteString(w, e.lab.SSHHostKey("")) // the client may have gone
}

// startListening starts the SSH server. A running server is no error.
func (h *shellHost) startListening() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.lab.cfg.SSH.Unavailable || h.down {
		return errNoSSH
	}
	if h.ln != nil {
		return nil
	}
	ln, err := socket.Listen(h.addr)
	if err != nil {
		return err
	}
	h.ln, h.addr = ln, ln.Addr().String()
	h.serving.Go(func() { h.acceptConns(ln) })
	return nil
}

// stopListening stops accepting connections. Open connections continue.
func (h *shellHost) stopListening() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.ln == nil {
		return nil
	}
	err := h.ln.Close()
	h.ln = nil
	socket.WaitClosed(h.addr)
	return err
}

// acceptConns serves connections until ln is closed.
func (h *shellHost) acceptConns(ln net.Listener) {
	for {
		c, err := ln.Accept()
		if err != nil {
			return
		}
		h.mu.Lock()
		taken := !h.down
		if taken {
			h.conns[c] = true
			h.serving.Go(func() { h.serveConn(c) })
		}
		h.mu.Unlock()
		if !taken {
			_ = c.Close() // the connection is already lost
		}
	}
}

// dropConns breaks all connections, as a failure of the network does.
func (h *shellHost) dropConns() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for c := range h.conns {
		_ = c.Close() // its server sees it
	}
}

// close stops the server, kills all processes and waits for them.
func (h *shellHost) close() error {
	h.mu.Lock()
	h.down = true
	h.mu.Unlock()
	err := h.stopListening()
	h.dropConns()
	h.machine.Close()
	h.serving.Wait()
	return err
}

// DropSSH breaks all SSH connections to all hosts. Processes that are not detached receive SIGHUP; the
// others continue.
func (s *sshHosts) DropSSH() {
	for _, h := range s.all {
		h.dropConns()
	}
}

// SetSSH starts or stops the SSH servers of all hosts, as a user of the console does. Open sessions
// continue.
func (s *sshHosts) SetSSH(on bool) error {
	var errs []error
	for _, h := range s.all {
		switched := h.services.stopService
		if on {
			switched = h.services.startService
		}
		errs = append(errs, switched(s.inventory.newContext(), serviceSSH))
	}
	return errors.Join(errs...)
}

// serveConn authenticates a client and serves its sessions until the connection ends.
func (h *shellHost) serveConn(c net.Conn) {
	defer func() {
		h.mu.Lock()
		delete(h.conns, c)
		h.mu.Unlock()
		_ = c.Close() // the client has gone or will notice
	}()
	conn, channels, requests, err := ssh.NewServerConn(c, h.serverConfig())
	if err != nil {
		return // a client that did not get in
	}
	var sessions sync.WaitGroup
	sessions.Go(func() { ssh.DiscardRequests(requests) })
	var open atomic.Int64
	for ch := range channels {
		switch {
		case ch.ChannelType() != "session": // such as port forwarding
			_ = ch.Reject(ssh.Prohibited, "only sessions") // a failure appears at the connection
			continue
		case open.Load() >= int64(h.lab.cfg.SSH.MaxSessions):
			_ = ch.Reject(ssh.Prohibited, "open failed") // a failure appears at the connection; the message is OpenSSH's
			continue
		}
		channel, requests, err := ch.Accept()
		if err != nil {
			break
		}
		open.Add(1)
		sessions.Go(func() {
			defer open.Add(-1)
			h.runSession(channel, requests)
		})
	}
	_ = conn.Close() // fails if the connection has ended
	sessions.Wait()
}

// serverConfig accepts the authentication methods of ESXi's sshd: keyboard-interactive through PAM, and
// keys. The account is that of the API, with the same lock after wrong passwords.
func (h *shellHost) serverConfig() *ssh.ServerConfig {
	cfg := &ssh.ServerConfig{ServerVersion: "SSH-2.0-OpenSSH_9.1", MaxAuthTries: 6}
	open := !h.lab.cfg.SSH.Lockdown // valid keys and passwords are accepted; lockdown mode rejects them
	cfg.PublicKeyCallback = func(meta ssh.ConnMetadata, key ssh.PublicKey) (*ssh.Permissions, error) {
		if !open {
			return nil, errNoLogin
		}
		return nil, h.checkKey(meta.User(), key)
	}
	password := func(user, pass string) error {
		if open && h.lab.main.auth.checkPassword(user, pass) {
			return nil
		}
		h.lab.stats.countRefusedSSH()
		return errNoLogin
	}
	if !h.lab.cfg.SSH.NoPasswords {
		cfg.KeyboardInteractiveCallback = func(meta ssh.ConnMetadata, ask ssh.KeyboardInteractiveChallenge) (*ssh.Permissions, error) {
			answers, err := ask("", "", []string{"Password: "}, []bool{false})
			if err != nil || len(answers) != 1 {
				return nil, errNoLogin
			}
			return nil, password(meta.User(), answers[0])
		}
	}
	if h.lab.cfg.SSH.PasswordAuth && !h.lab.cfg.SSH.NoPasswords {
		cfg.PasswordCallback = func(meta ssh.ConnMetadata, pass []byte) (*ssh.Permissions, error) {
			return nil, password(meta.User(), string(pass))
		}
	}
	cfg.AddHostKey(h.key)
	return cfg
}

// checkKey returns an error unless the configuration or the host's authorized_keys contains the key.
func (h *shellHost) checkKey(user string, key ssh.PublicKey) error {
	if user != h.lab.cfg.User && user != "root" {
		return errNoLogin
	}
	rest := h.files.fileText("/etc/ssh/keys-root/authorized_keys")
	for _, line := range h.lab.cfg.SSH.AuthorizedKeys {
		rest = append(rest, (line + "\n")...)
	}
	for len(rest) > 0 {
		var known ssh.PublicKey
		var err error
		if known, _, _, rest, err = ssh.ParseAuthorizedKey(rest); err != nil {
			break
		}
		if string(known.Marshal()) == string(key.Marshal()) {
			return nil
		}
	}
	return errNoLogin
}

// runSession runs one command. It returns when the command and all other processes that use its output
// have ended, or the client has disconnected.
func (h *shellHost) runSession(ch ssh.Channel, requests <-chan *ssh.Request) {
	s := &sshSession{host: h, ch: ch, ended: make(chan struct{})}
	for {
		select {
		case r, ok := <-requests:
			if !ok { // the client went
				if s.proc != nil && !s.hasEnded() {
					s.proc.Hangup()
					<-s.ended
				}
				return
			}
			s.handleRequest(r)
		case <-s.ended:
			ssh.DiscardRequests(requests) // until the client closes its side
			return
		}
	}
}

// An sshSession is one session of a connection, with one command.
type sshSession struct {
	host   *shellHost    // host of the session
	ch     ssh.Channel   // channel of the session
	proc   *shell.Proc   // process of the session; nil until the command is known
	output sessionOutput // number of processes that use the output
	ended  chan struct{} // closed when the command has ended and all writers are closed
}

// handleRequest executes exec and signal requests. It accepts pty-req without effect, and rejects
// others.
func (s *sshSession) handleRequest(r *ssh.Request) {
	var cmd struct{ Command string }
	var sig struct{ Name string }
	switch {
	case r.Type == "exec" && s.proc == nil && ssh.Unmarshal(r.Payload, &cmd) == nil:
		answerRequest(r, true) // first: the command may end, and close the channel, at once
		s.startCommand(cmd.Command)
	case r.Type == "signal" && s.proc != nil && ssh.Unmarshal(r.Payload, &sig) == nil:
		s.host.signalProc(s.proc, sig.Name)
		answerRequest(r, true)
	default:
		answerRequest(r, r.Type == "pty-req")
	}
}

// answerRequest replies to a request, if the client expects a reply.
func answerRequest(r *ssh.Request, good bool) {
	if r.WantReply {
		_ = r.Reply(good, nil) // a failure appears at the channel
	}
}

// startCommand starts the command of the session.
func (s *sshSession) startCommand(command string) {
	s.output.Hold() // until finish
	s.proc = s.host.machine.Start(command, s.ch, sessionWriter{s.ch, &s.output}, sessionWriter{s.ch.Stderr(), &s.output})
	s.host.serving.Go(s.finish)
}

// finish sends the exit status when the command has ended, and closes the channel when no process uses
// it.
func (s *sshSession) finish() {
	<-s.proc.Done()
	status := struct{ Status uint32 }{uint32(s.proc.Status())}
	_, _ = s.ch.SendRequest("exit-status", false, ssh.Marshal(&status)) // the client may have gone
	s.output.Drop()
	s.output.Wait()
	close(s.ended)
	_ = s.ch.Close() // a failure appears at the channel
}

// hasEnded reports whether the command has ended and no process uses its output. Background processes of the command may still run.
func (s *sshSession) hasEnded() bool {
	select {
	case <-s.ended:
		return true
	default:
		return false
	}
}

// signalProc sends a signal to the process group of p. Unknown names are ignored.
func (h *shellHost) signalProc(p *shell.Proc, name string) {
	if s, ok := map[string]shell.Signal{"HUP": shell.HUP, "INT": shell.INT, "KILL": shell.KILL, "TERM": shell.TERM}[name]; ok {
		_ = h.machine.Signal(-p.PID, s) // gone already
	}
}

// A sessionOutput counts the processes that use the output of a session.
type sessionOutput struct{ sync.WaitGroup }

// Hold implements shell.SharedOutput.
func (o *sessionOutput) Hold() { o.Add(1) }

// Drop implements shell.SharedOutput.
func (o *sessionOutput) Drop() { o.Done() }

// A sessionWriter is one of the two outputs of a session.
type sessionWriter struct {
	io.Writer
	*sessionOutput
}
