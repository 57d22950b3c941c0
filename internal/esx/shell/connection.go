package shell

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/decamp/decamp/internal/fault"
)

// connection is the SSH connection of a Shell. It is opened when it is needed, kept
// alive, and opened again after it broke. Take the token of connecting before mu. Never
// hold mu during I/O.
type connection struct {
	cfg        Config         // configuration with defaults applied
	pins       pins           // accepted host keys
	connecting chan struct{}  // contains one token; the holder may connect
	running    sync.WaitGroup // goroutines of connections

	mu         sync.Mutex // protects the fields below
	link       *link      // current connection; nil if none
	closed     bool       // true after close
	refused    error      // reason for not logging in again; nil if permitted
	unanswered int        // number of passwords sent without an answer of the host
}

// newConnection returns a connection that is not open.
func newConnection(cfg Config, p pins) *connection {
	c := &connection{cfg: cfg, pins: p, connecting: make(chan struct{}, 1)}
	c.connecting <- struct{}{}
	return c
}

// link is one established SSH connection.
type link struct {
	*ssh.Client
	gone chan struct{} // closed after the connection ended
}

// close ends the connection permanently, and waits for its goroutines.
func (c *connection) close() {
	c.mu.Lock()
	c.closed = true
	l := c.link
	c.link = nil
	c.mu.Unlock()
	if l != nil {
		_ = l.Close() // the host will notice, or has
	}
	c.running.Wait()
}

// errClosed is the cause of errors after close.
var errClosed = errors.New("the login has ended")

// ensureConnected returns the connection. It connects first if necessary; fresh is true
// then. Concurrent callers share one attempt.
func (c *connection) ensureConnected(ctx context.Context) (l *link, fresh bool, err error) {
	select {
	case <-c.connecting:
	case <-ctx.Done():
		return nil, false, ctx.Err()
	}
	defer func() { c.connecting <- struct{}{} }()
	l, err = c.currentLink()
	if l != nil || err != nil {
		return l, false, err
	}
	if l, err = c.dialAndLogIn(ctx); err != nil {
		return nil, false, err
	}
	return l, true, c.adoptLink(l)
}

// currentLink returns the open connection, or nil. The error is not nil if a new one
// must not be opened: after close, or after a refused login.
func (c *connection) currentLink() (*link, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.closed:
		return nil, fault.Wrap(fault.Canceled, errClosed)
	case c.link == nil:
		return nil, c.refused
	}
	select {
	case <-c.link.gone:
		return nil, c.refused
	default:
		return c.link, nil
	}
}

// adoptLink makes l the current connection and starts its goroutines. If the connection
// was closed in the meantime, it closes l.
func (c *connection) adoptLink(l *link) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		_ = l.Close() // the connection was closed meanwhile
		return fault.Wrap(fault.Canceled, errClosed)
	}
	c.link = l
	c.running.Go(func() {
		err := l.Wait()
		c.cfg.Log.Debug("SSH connection ended", "host", c.cfg.Addr, "err", err)
		close(l.gone)
	})
	c.running.Go(func() { c.keepAlive(l) })
	return nil
}

// dropLink closes a connection that does not work. It keeps a newer one.
func (c *connection) dropLink(l *link) {
	_ = l.Close() // the error of a broken connection is known
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.link == l {
		c.link = nil
	}
}

// dialAndLogIn opens a connection and logs in. A host has keys of several kinds and
// presents one of them. If that one is not pinned, dialAndLogIn connects again for each
// other kind. It stops at the first error that another kind of key cannot avoid.
func (c *connection) dialAndLogIn(ctx context.Context) (*link, error) {
	var shown []HostKey
	// The first attempt accepts all kinds; the host chooses.
	for _, kinds := range append([][]string{nil}, keyKinds...) {
		if showsAny(shown, kinds) {
			continue
		}
		a := &attempt{c: c, kinds: kinds}
		client, err := a.run(ctx)
		if err == nil {
			c.cfg.Log.Info("logged in by SSH", "host", c.cfg.Addr, "user", c.cfg.User)
			return &link{client, make(chan struct{})}, nil
		}
		if a.shown != nil {
			shown = append(shown, *a.shown)
		}
		if a.trusted || a.shown == nil && (kinds == nil || fault.Is(err, fault.Unreachable) || ctx.Err() != nil) {
			return nil, err
		}
	}
	return nil, c.pins.mismatchError(c.cfg.Addr, shown)
}

// dialTCP opens a connection that is closed when ctx ends, until done is called. done
// returns false if ctx ended before.
func dialTCP(ctx context.Context, addr string) (conn net.Conn, done func() bool, err error) {
	d := net.Dialer{Timeout: dialWait, KeepAlive: 30 * time.Second}
	if conn, err = d.DialContext(ctx, "tcp", addr); err != nil {
		return nil, nil, netError(ctx, err)
	}
	done = context.AfterFunc(ctx, func() { _ = conn.Close() }) // the handshake then fails
	return conn, done, nil
}

// netError converts an error that occurred before the login to fault.Unreachable with a
// remedy.
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

// howToStart is the remedy if the host does not answer. SSH is off on a newly installed
// host.
const howToStart = "SSH is off by default on ESXi: start the service TSM-SSH (host client: Manage, Services; or on the console), and check that the firewall ruleset sshServer permits this machine"

// openSession opens a session, and returns when ctx ends. A dead connection gives no
// answer, so NewSession itself may block until the connection is closed.
func (c *connection) openSession(ctx context.Context, l *link) (*ssh.Session, error) {
	type opened struct {
		*ssh.Session
		error
	}
	// The channel has no buffer: a session that arrives too late is closed by the
	// goroutine.
	answer := make(chan opened)
	c.running.Go(func() {
		session, err := l.NewSession()
		select {
		case answer <- opened{session, err}:
		case <-ctx.Done():
			if err == nil {
				_ = session.Close() // the caller has returned
			}
		}
	})
	select {
	case o := <-answer:
		return o.Session, o.error
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// locked calls f while it holds mu.
func (c *connection) locked(f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f()
}

// mayTry returns fault.Denied if too many passwords were sent without an answer.
func (c *connection) mayTry() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.unanswered < mostTries {
		return nil
	}
	return fault.New(fault.Denied, "the host closed %d logins after the password, and the account locks at 5 failures", c.unanswered).OfLogin().
		WithHint("see the host's auth.log; then run the same command again")
}

// recordAcceptance resets the count of unanswered passwords. password is true if the
// login used one; Config.Judged is then called.
func (c *connection) recordAcceptance(password bool) {
	c.locked(func() { c.unanswered = 0 })
	if password && c.cfg.Judged != nil {
		c.cfg.Judged(nil)
	}
}
