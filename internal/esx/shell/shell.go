// Package shell is decamp's side of an ESXi host's SSH: it logs in, runs commands, and has
// jobs go on there that outlive a connection and this process.
//
// It exists because a host does by command what its API refuses: a free licence makes the
// API read-only, and neither mounts a datastore nor copies a disk; the host's own
// vmkfstools and esxcli do both (facts of the licence: RestrictedVersion).
//
// Terms:
//
//   - A Shell is one login to one host. The connection is opened when it is needed, kept
//     alive, and opened again when it broke; what ran on it is lost with it.
//   - The pin is the SHA-256 of the host's key, as ssh-keygen -l prints it. Nothing else is
//     believed, and nothing is sent before it was compared.
//   - A Job is a command that goes on without us: it has a folder on the host with its pid,
//     its log and its exit status, and a name by which it is found again.
//
// Promises: at most two passwords that were not accepted are sent by a Shell, because the
// host locks the account at the fifth, and none after one was refused for certain; who admits
// logins (Config.Admit) promises that in its place. Nothing
// is uploaded but commands: hosts may refuse to execute what was not installed
// (VMkernel.Boot.execInstalledOnly).
//
// Not promised: that a command which broke off did nothing. Whoever runs one must be able
// to run it again, or start a Job, of which there is one by each name.
package shell

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	"golang.org/x/crypto/ssh"
	"golang.org/x/sync/semaphore"

	"github.com/decamp/decamp/internal/esx"
	"github.com/decamp/decamp/internal/fault"
)

// Config says where to log in and how.
type Config struct {
	// Addr is host:port. SSH of ESXi is on port 22, and cannot be moved there.
	Addr string

	// User is root, or one with the Administrator role.
	User string

	// HostKey is the SHA-256 of the host's key as SHA256:…, or several with a space between
	// them, any of which will do. It is required; HostKeys gives what the host shows.
	HostKey string

	// Password is asked when the host wants one; nil: there is none. ESXi asks by
	// keyboard-interactive, older ones also by "password".
	Password func(context.Context) (esx.Secret, error)

	// KeyFile is a private key to log in with, without a passphrase. Empty: none.
	KeyFile string

	// Agent is the socket of an SSH agent, asked for keys if there is no KeyFile. Empty:
	// none.
	Agent string

	// Judged, if not nil, is told each password that the host judged: nil when it took it,
	// else its refusal.
	Judged func(error)

	// Admit, if not nil, is asked before each password, and pass is told how its login went.
	// It then decides alone: refusals do not keep the Shell from logging in again.
	Admit func(context.Context) (pass func(error), err error)

	// Jobs is a folder for jobs on the host. The default is on its RAM disk: what is there
	// ends with the host's own end, as jobs do.
	Jobs string

	// Poll is how often a job is looked after once it has gone on for a while. Default 2 s.
	Poll time.Duration

	// Patience is how long a host may be out of reach while a job is followed, and how long
	// one that is killed may take to end. Default 10 min.
	Patience time.Duration

	Log *slog.Logger // default discards

	Now   func() time.Time                     // default time.Now
	After func(time.Duration) <-chan time.Time // default time.After
}

// DefaultJobs is the default of Config.Jobs.
const DefaultJobs = "/tmp/decamp"

const (
	defaultPoll     = 2 * time.Second
	defaultPatience = 10 * time.Minute

	dialWait      = 15 * time.Second
	handshakeWait = time.Minute // PAM of a busy host takes its time

	// maxSessions is how many commands run at once: OpenSSH takes 10 on one connection
	// unless MaxSessions says otherwise.
	maxSessions = 8
)

func (c Config) withDefaults() Config {
	if c.Jobs == "" {
		c.Jobs = DefaultJobs
	}
	if c.Poll <= 0 {
		c.Poll = defaultPoll
	}
	if c.Patience <= 0 {
		c.Patience = defaultPatience
	}
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

// Shell is a login to one host. Its methods may be called concurrently.
type Shell struct {
	cfg      Config
	pins     pins
	turn     chan struct{}       // holds one token; taken while connecting
	sessions *semaphore.Weighted // commands at once
	running  sync.WaitGroup      // goroutines of connections

	mu      sync.Mutex
	link    *link // nil: none, or broken
	closed  bool
	refused error // why no login is tried again
	tried   int   // passwords sent that the host said nothing about
}

// link is one connection.
type link struct {
	*ssh.Client
	gone chan struct{} // closed when the connection has ended
}

// Dial logs in. ctx is for the login alone.
func Dial(ctx context.Context, cfg Config) (*Shell, error) {
	s, err := newShell(cfg)
	if err == nil {
		_, _, err = s.connect(ctx)
	}
	if err != nil {
		return nil, fmt.Errorf("log in to %s by SSH: %w", cfg.Addr, err)
	}
	return s, nil
}

func newShell(cfg Config) (*Shell, error) {
	s := &Shell{cfg: cfg.withDefaults(), turn: make(chan struct{}, 1), sessions: semaphore.NewWeighted(maxSessions)}
	s.turn <- struct{}{}
	var err error
	s.pins, err = parsePins(cfg.HostKey)
	return s, err
}

// Addr returns the host:port that was logged in to.
func (s *Shell) Addr() string { return s.cfg.Addr }

// Close ends the connection. Jobs go on.
func (s *Shell) Close() error {
	s.mu.Lock()
	s.closed = true
	l := s.link
	s.link = nil
	s.mu.Unlock()
	if l != nil {
		_ = l.Close() // the host will notice, or has
	}
	s.running.Wait()
	return nil
}

var errClosed = errors.New("the login has ended")

// connect returns the connection, and makes one if there is none; fresh says which.
func (s *Shell) connect(ctx context.Context) (l *link, fresh bool, err error) {
	select {
	case <-s.turn:
	case <-ctx.Done():
		return nil, false, ctx.Err()
	}
	defer func() { s.turn <- struct{}{} }()
	l, err = s.present()
	if l != nil || err != nil {
		return l, false, err
	}
	if l, err = s.dial(ctx); err != nil {
		return nil, false, err
	}
	return l, true, s.keep(l)
}

// present returns the connection that is there, or nil.
func (s *Shell) present() (*link, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closed:
		return nil, fault.Wrap(fault.Canceled, errClosed)
	case s.link == nil:
		return nil, s.refused
	}
	select {
	case <-s.link.gone:
		return nil, s.refused
	default:
		return s.link, nil
	}
}

// keep makes l the connection.
func (s *Shell) keep(l *link) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		_ = l.Close() // nobody wants it any more
		return fault.Wrap(fault.Canceled, errClosed)
	}
	s.link = l
	s.running.Go(func() {
		err := l.Wait()
		s.cfg.Log.Debug("SSH connection ended", "host", s.cfg.Addr, "err", err)
		close(l.gone)
	})
	s.running.Go(func() { s.keepAlive(l) })
	return nil
}

// drop takes a connection that does not work out of use.
func (s *Shell) drop(l *link) {
	_ = l.Close() // it is broken
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.link == l {
		s.link = nil
	}
}

// dial opens a connection and logs in. A host has several keys and shows one kind: if that
// is not the pinned one, the other kinds are asked for.
func (s *Shell) dial(ctx context.Context) (*link, error) {
	var shown []HostKey
	for _, kinds := range append([][]string{nil}, keyKinds...) {
		if showsAny(shown, kinds) {
			continue
		}
		a := &attempt{s: s, kinds: kinds}
		client, err := a.run(ctx)
		if err == nil {
			s.cfg.Log.Info("logged in by SSH", "host", s.cfg.Addr, "user", s.cfg.User)
			return &link{client, make(chan struct{})}, nil
		}
		if a.shown != nil {
			shown = append(shown, *a.shown)
		}
		if a.trusted || a.shown == nil && (kinds == nil || fault.Is(err, fault.Unreachable) || ctx.Err() != nil) {
			return nil, err
		}
	}
	return nil, s.pins.mismatch(s.cfg.Addr, shown)
}

// dialTCP opens a connection that ends when ctx does, until done is called.
func dialTCP(ctx context.Context, addr string) (conn net.Conn, done func() bool, err error) {
	d := net.Dialer{Timeout: dialWait, KeepAlive: 30 * time.Second}
	if conn, err = d.DialContext(ctx, "tcp", addr); err != nil {
		return nil, nil, netError(ctx, err)
	}
	done = context.AfterFunc(ctx, func() { _ = conn.Close() }) // the handshake tells
	return conn, done, nil
}

// netError is what goes wrong before there is a login.
func netError(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	var dns *net.DNSError
	if errors.As(err, &dns) {
		return fault.New(fault.Unreachable, "%w", err).WithHint("check the host's name")
	}
	return fault.New(fault.Unreachable, "%w", err).WithHint("%s", howToStart)
}

// howToStart is said when nobody answers. SSH is off on a host as it is installed.
const howToStart = "SSH is off by default on ESXi: start the service TSM-SSH (host client: Manage, Services; or on the console), and see that the firewall ruleset sshServer admits this machine"
