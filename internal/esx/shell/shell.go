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
	"fmt"
	"log/slog"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/decamp/decamp/internal/esx"
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

// Shell is a login to one host, and runs commands there. Its methods may be called
// concurrently; it has no lock of its own.
type Shell struct {
	// Jobs are the commands on this host that go on without a connection.
	Jobs *Jobs

	cfg      Config
	conn     *connection
	sessions *semaphore.Weighted // commands at once
}

// Dial logs in. ctx is for the login alone.
func Dial(ctx context.Context, cfg Config) (*Shell, error) {
	s, err := newShell(cfg)
	if err == nil {
		_, _, err = s.conn.ensureConnected(ctx)
	}
	if err != nil {
		return nil, fmt.Errorf("log in to %s by SSH: %w", cfg.Addr, err)
	}
	return s, nil
}

func newShell(cfg Config) (*Shell, error) {
	pins, err := parsePins(cfg.HostKey)
	if err != nil {
		return nil, err
	}
	cfg = cfg.withDefaults()
	s := &Shell{cfg: cfg, conn: newConnection(cfg, pins), sessions: semaphore.NewWeighted(maxSessions)}
	s.Jobs = &Jobs{cfg: cfg, shell: s}
	return s, nil
}

// Addr returns the host:port that was logged in to.
func (s *Shell) Addr() string { return s.cfg.Addr }

// Close ends the connection. Jobs go on.
func (s *Shell) Close() error {
	s.conn.close()
	return nil
}
