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

// connection is the SSH connection of a Shell: opened when it is needed, kept alive, opened
// again after it broke. turn is taken before mu; mu is never held during I/O.
type connection struct {
	cfg        Config
	pins       pins
	connecting chan struct{}  // holds one token; taken while connecting
	running    sync.WaitGroup // goroutines of connections

	mu         sync.Mutex
	link       *link // nil: none, or broken
	closed     bool
	refused    error // why no login is tried again
	unanswered int   // passwords sent that the host said nothing about
}

func newConnection(cfg Config, p pins) *connection {
	c := &connection{cfg: cfg, pins: p, connecting: make(chan struct{}, 1)}
	c.connecting <- struct{}{}
	return c
}

// link is one connection.
type link struct {
	*ssh.Client
	gone chan struct{} // closed when the connection has ended
}

// close ends the connection for good, and waits for what runs on it.
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

var errClosed = errors.New("the login has ended")

// ensureConnected returns the connection, and makes one if there is none; fresh says which.
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

// currentLink returns the connection that is there, or nil.
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

// adoptLink makes l the connection.
func (c *connection) adoptLink(l *link) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		_ = l.Close() // nobody wants it any more
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

// dropLink takes a connection that does not work out of use.
func (c *connection) dropLink(l *link) {
	_ = l.Close() // it is broken
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.link == l {
		c.link = nil
	}
}

// dialAndLogIn opens a connection and logs in. A host has several keys and shows one kind: if that
// is not the pinned one, the other kinds are asked for.
func (c *connection) dialAndLogIn(ctx context.Context) (*link, error) {
	var shown []HostKey
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

// openSession does not wait longer than ctx: on a connection that is dead and does not know
// it yet there is no answer.
func (c *connection) openSession(ctx context.Context, l *link) (*ssh.Session, error) {
	type opened struct {
		*ssh.Session
		error
	}
	answer := make(chan opened)
	c.running.Go(func() {
		session, err := l.NewSession()
		select {
		case answer <- opened{session, err}:
		case <-ctx.Done():
			if err == nil {
				_ = session.Close() // nobody wants it any more
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

func (c *connection) locked(f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f()
}

func (c *connection) mayTry() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.unanswered < mostTries {
		return nil
	}
	return fault.New(fault.Denied, "the host hung up on %d logins after the password, and the account locks at 5", c.unanswered).OfLogin().
		WithHint("see the host's auth.log; then run the same command again")
}

// recordAcceptance forgets what was counted.
func (c *connection) recordAcceptance(password bool) {
	c.locked(func() { c.unanswered = 0 })
	if password && c.cfg.Judged != nil {
		c.cfg.Judged(nil)
	}
}
