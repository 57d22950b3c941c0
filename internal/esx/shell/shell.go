// Package shell is an SSH client for ESXi hosts. It logs in, runs commands, and manages
// jobs on the host that outlive a connection and this process.
//
// A host accepts by command what its API refuses: with a free licence, the API is
// read-only (RestrictedVersion), and neither mounts a datastore nor copies a disk. The
// host's own esxcli and vmkfstools can do both.
//
// # Terms
//
//   - A Shell is one login to one host. The connection is opened when it is needed, kept
//     alive, and opened again after it broke. Commands end with their connection.
//   - The pin is the SHA-256 of the host's key, in the format of ssh-keygen -l. Nothing is
//     sent to a host with another key.
//   - A Job is a command that continues without a connection. It has a folder on the host
//     with its pid, its log and its exit status, and a name by which it is found again.
//
// # Guarantees
//
// A Shell sends at most two passwords without an answer, because the host locks the
// account at the fifth wrong one. After a refused password it sends no further one.
// With Config.Admit, the caller limits the attempts instead.
//
// Only commands are sent to the host, and no programs: hosts may refuse to execute
// files that were not installed (VMkernel.Boot.execInstalledOnly).
//
// A command whose connection broke may have had an effect. The caller must be able to
// repeat it, or use a Job, whose name is unique on the host.
package shell

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/decamp/decamp/internal/esx"
)

// Config configures a Shell. Addr, User, HostKey and one way to log in are required.
type Config struct {
	// Addr is host:port. The port of SSH on ESXi is always 22.
	Addr string

	// User is root or a user with the Administrator role.
	User string

	// HostKey contains the SHA-256 of the host's key as SHA256:…, or several with
	// spaces between them. The host must have one of these keys. HostKeys returns the
	// host's.
	HostKey string

	// Password is called if the host wants a password; nil means that there is no
	// password. ESXi uses keyboard-interactive, and older versions also "password".
	Password func(context.Context) (esx.Secret, error)

	// KeyFile is the path of a private key without a passphrase. Empty means no key.
	KeyFile string

	// Agent is the socket of an SSH agent, which is used if KeyFile is empty. Empty
	// means no agent.
	Agent string

	// Judged, if not nil, is called after each password that the host accepted or
	// refused: with nil or with the refusal.
	Judged func(error)

	// Admit, if not nil, is called before each password and may wait or refuse it. The
	// Shell then calls pass with the result. With Admit, a refusal does not prevent
	// later logins.
	Admit func(context.Context) (pass func(error), err error)

	// Jobs is the folder for jobs on the host. The default is on its RAM disk, whose
	// contents end with the host's uptime, as jobs do.
	Jobs string

	// Poll is the longest interval between polls of a job. The default is 2 s.
	Poll time.Duration

	// Patience limits how long a host may be unreachable while a job is followed, and
	// how long the cleanup of a canceled job may take. The default is 10 min.
	Patience time.Duration

	Log *slog.Logger // no log if nil

	Now   func() time.Time                     // clock; time.Now if nil
	After func(time.Duration) <-chan time.Time // timer; time.After if nil
}

// DefaultJobs is the default of Config.Jobs.
const DefaultJobs = "/tmp/decamp"

const (
	defaultPoll     = 2 * time.Second  // default of Config.Poll
	defaultPatience = 10 * time.Minute // default of Config.Patience

	dialWait      = 15 * time.Second // limit for a TCP connection
	handshakeWait = time.Minute      // limit for a handshake; PAM of a busy host is slow

	// maxSessions limits the number of concurrent commands. OpenSSH permits 10 sessions
	// per connection by default (MaxSessions).
	maxSessions = 8
)

// withDefaults returns c with defaults for all optional fields.
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

// Shell is a login to one host that runs commands. It is safe for concurrent use.
type Shell struct {
	// Jobs manages the commands on this host that continue without a connection.
	Jobs *Jobs

	cfg      Config              // configuration with defaults applied
	conn     *connection         // connection, shared by all commands
	sessions *semaphore.Weighted // limits the number of concurrent commands
}

// Dial logs in to a host. ctx applies to the login only.
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

// newShell validates cfg and returns a Shell without a connection.
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

// Addr returns the host:port of the host.
func (s *Shell) Addr() string { return s.cfg.Addr }

// Close ends the connection. Jobs continue on the host.
func (s *Shell) Close() error {
	s.conn.close()
	return nil
}
