package shell

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"time"

	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/agent"

	"github.com/decamp/decamp/internal/esx"
	"github.com/decamp/decamp/internal/fault"
)

// mostKeys limits the number of keys that an agent offers. A server hangs up after six
// attempts (MaxAuthTries), and the password must still be possible.
const mostKeys = 4

// mostTries limits the number of passwords sent without an answer. The host locks the
// account for 15 minutes at the fifth wrong one (Security.AccountLockFailures), which
// includes logins to the API.
const mostTries = 2

// attempt is one login on one connection. It is used by one goroutine.
type attempt struct {
	c     *connection // connection to log in for
	kinds []string    // accepted kinds of host keys; all if nil

	conn    net.Conn    // TCP connection
	shown   *HostKey    // presented host key; nil before the handshake
	trusted bool        // true if shown is pinned
	asked   bool        // true after the password was sent
	failed  error       // error of a callback; the SSH library loses it
	pass    func(error) // callback of Config.Admit; nil if the login was not admitted or needed no password
}

// run connects and logs in. It reports the result to Config.Admit.
func (a *attempt) run(ctx context.Context) (*ssh.Client, error) {
	client, err := a.logIn(ctx)
	if a.pass != nil {
		a.pass(err)
	}
	return client, err
}

// logIn connects, performs the handshake and converts its error.
func (a *attempt) logIn(ctx context.Context) (*ssh.Client, error) {
	conn, done, err := dialTCP(ctx, a.c.cfg.Addr)
	if err != nil {
		return nil, err
	}
	a.conn = conn
	client, err := a.shakeHands(ctx)
	if !done() && err == nil { // ctx ended and closed it
		err = ctx.Err()
	}
	if err != nil {
		_ = conn.Close() // err is more specific
		return nil, a.loginError(ctx, err)
	}
	a.c.recordAcceptance(a.asked)
	return client, nil
}

// shakeHands performs the SSH handshake with a deadline, and removes the deadline
// afterwards.
func (a *attempt) shakeHands(ctx context.Context) (*ssh.Client, error) {
	// The agent's connection is needed until the end of the handshake.
	methods, closeAll, err := a.authMethods(ctx)
	if err != nil {
		return nil, err
	}
	defer closeAll()
	cfg := &ssh.ClientConfig{User: a.c.cfg.User, Auth: methods, HostKeyCallback: a.checkKey, HostKeyAlgorithms: a.kinds}
	if err := a.conn.SetDeadline(time.Now().Add(handshakeWait)); err != nil {
		return nil, err
	}
	c, channels, requests, err := ssh.NewClientConn(a.conn, a.c.cfg.Addr, cfg)
	if err != nil {
		return nil, err
	}
	return ssh.NewClient(c, channels, requests), a.conn.SetDeadline(time.Time{})
}

// errOtherKey ends a handshake with a host key that is not pinned. No password was sent
// then.
var errOtherKey = errors.New("the host key differs from the known one")

// checkKey is the HostKeyCallback. It accepts pinned keys only.
func (a *attempt) checkKey(_ string, _ net.Addr, key ssh.PublicKey) error {
	a.shown = &HostKey{key.Type(), ssh.FingerprintSHA256(key)}
	if a.trusted = slices.Contains(a.c.pins, a.shown.Fingerprint); !a.trusted {
		return errOtherKey
	}
	return nil
}

// authMethods returns the ways to log in. Keys come first, because a refused key does
// not count as a wrong password. The caller must call closeAll after the handshake. An
// agent that does not answer is ignored.
func (a *attempt) authMethods(ctx context.Context) (methods []ssh.AuthMethod, closeAll func(), err error) {
	closeAll = func() {}
	switch cfg := a.c.cfg; {
	case cfg.KeyFile != "":
		key, err := readKey(cfg.KeyFile)
		if err != nil {
			return nil, closeAll, err
		}
		methods = append(methods, ssh.PublicKeys(key))
	case cfg.Agent != "":
		conn, err := (&net.Dialer{}).DialContext(ctx, "unix", cfg.Agent)
		if err != nil {
			a.c.cfg.Log.Debug("SSH agent is left out", "err", err)
			break
		}
		closeAll = func() { _ = conn.Close() } // no data is lost
		methods = append(methods, ssh.PublicKeysCallback(func() ([]ssh.Signer, error) {
			keys, err := agent.NewClient(conn).Signers()
			if err != nil {
				a.c.cfg.Log.Debug("SSH agent is left out", "err", err)
				return nil, nil
			}
			return keys[:min(len(keys), mostKeys)], nil
		}))
	}
	if a.c.cfg.Password != nil {
		methods = append(methods, ssh.KeyboardInteractive(a.answerPrompts(ctx)), ssh.PasswordCallback(a.passwordOnce(ctx)))
	}
	return methods, closeAll, nil
}

// readKey reads a private key. A key with a passphrase is fault.Invalid.
func readKey(path string) (ssh.Signer, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fault.New(fault.Invalid, "read SSH key: %w", err)
	}
	key, err := ssh.ParsePrivateKey(text)
	var locked *ssh.PassphraseMissingError
	switch {
	case errors.As(err, &locked):
		return nil, fault.New(fault.Invalid, "SSH key %s has a passphrase", path).
			WithHint("add it to an agent with ssh-add %s, and omit --ssh-key", fault.Quote(path))
	case err != nil:
		return nil, fault.New(fault.Invalid, "SSH key %s: %w", path, err)
	}
	return key, nil
}

// answerPrompts answers a single prompt without echo with the password. Other prompts,
// such as for a code or a new password, are fault.Denied.
func (a *attempt) answerPrompts(ctx context.Context) ssh.KeyboardInteractiveChallenge {
	return func(_, _ string, questions []string, echos []bool) ([]string, error) {
		switch {
		case len(questions) == 0:
			return nil, nil
		case len(questions) > 1 || echos[0]:
			a.failed = fault.New(fault.Denied, "the host requests %q", questions).WithHint("log in with a key: --ssh-key FILE, or an agent")
			return nil, a.failed
		}
		text, err := a.passwordOnce(ctx)()
		return []string{text}, err
	}
}

// errRefused is the error for a second prompt for the password.
var errRefused = errors.New("the password was refused")

// passwordOnce returns a function that returns the password once. A second prompt means
// that the host refused it, with either method. Errors are kept in failed.
func (a *attempt) passwordOnce(ctx context.Context) func() (string, error) {
	return func() (string, error) {
		if a.failed != nil {
			return "", a.failed
		}
		if a.asked {
			a.failed = errRefused
			return "", a.failed
		}
		if a.failed = a.c.mayTry(); a.failed != nil {
			return "", a.failed
		}
		var secret esx.Secret
		if secret, a.failed = a.readPassword(ctx); a.failed != nil {
			return "", a.failed
		}
		a.asked = true
		a.c.locked(func() { a.c.unanswered++ })
		return string(secret), nil
	}
}

// readPassword calls Config.Admit and Config.Password. It removes the deadline of the
// connection meanwhile, because the user may type slowly.
func (a *attempt) readPassword(ctx context.Context) (secret esx.Secret, err error) {
	if err := a.conn.SetDeadline(time.Time{}); err != nil {
		return "", err
	}
	if a.c.cfg.Admit != nil {
		pass, err := a.c.cfg.Admit(ctx)
		if err != nil {
			return "", err
		}
		a.pass = pass
	}
	if secret, err = a.c.cfg.Password(ctx); err != nil {
		return "", err
	}
	return secret, a.conn.SetDeadline(time.Now().Add(handshakeWait))
}

// loginError converts the error of a handshake. The library has no error for a refused
// login. It is one if the host key was right and the connection is intact.
func (a *attempt) loginError(ctx context.Context, err error) error {
	var known *fault.Error
	var lost net.Error
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case a.failed != nil && !errors.Is(a.failed, errRefused):
		return a.failed
	case errors.As(err, &known):
		return err
	case !a.trusted || errors.As(err, &lost) || isHungUp(err):
		return a.lostError(err)
	}
	return a.refusedError(err)
}

// lostError converts a login that ended without an answer of the host to
// fault.Transient. With Config.Admit, the last permitted attempt is fault.Denied, so
// that the caller stops.
func (a *attempt) lostError(err error) error {
	if a.pass != nil {
		if last := a.c.mayTry(); last != nil {
			a.c.locked(func() { a.c.unanswered = 0 })
			return last
		}
	}
	return fault.Wrap(fault.Transient, err)
}

// refusedError converts a refused login to fault.Denied. Without Config.Admit, the
// connection does not log in again.
func (a *attempt) refusedError(err error) error {
	if a.asked {
		if a.c.cfg.Judged != nil {
			a.c.cfg.Judged(err)
		}
		err = fault.New(fault.Denied, "user %s: %w: %w", a.c.cfg.User, errRefused, err).
			WithHint("check the password; a host in lockdown mode accepts only its exception users by SSH; the account locks after 5 failures in 15 minutes, so decamp does not try again").OfLogin()
	} else {
		err = fault.New(fault.Denied, "user %s: %w", a.c.cfg.User, err).
			WithHint("the host accepts none of the keys: add one to /etc/ssh/keys-%s/authorized_keys on the host, or set a password", a.c.cfg.User)
	}
	a.c.locked(func() {
		if a.c.unanswered = 0; a.pass == nil {
			a.c.refused = fmt.Errorf("not tried again: %w", err)
		}
	})
	return err
}
