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

// mostKeys is how many keys of an agent are offered. A server hangs up after six offers
// (MaxAuthTries), and the password is to have its turn.
const mostKeys = 4

// mostTries is how many passwords are sent without an answer. The host locks the account
// for 15 minutes at the fifth that is wrong (Security.AccountLockFailures), and the API's
// logins count there too.
const mostTries = 2

// attempt is one login on one connection.
type attempt struct {
	c     *connection
	kinds []string // of host keys that are asked for; nil: all

	conn    net.Conn
	shown   *HostKey
	trusted bool        // the key shown is pinned
	asked   bool        // the password was sent
	failed  error       // in giving what was asked for
	pass    func(error) // to be told how the login went; nil: it was not admitted, or needed no password
}

// run connects and logs in. Whoever admitted the login is told how it went.
func (a *attempt) run(ctx context.Context) (*ssh.Client, error) {
	client, err := a.logIn(ctx)
	if a.pass != nil {
		a.pass(err)
	}
	return client, err
}

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
		_ = conn.Close() // the error says what is wrong
		return nil, a.loginError(ctx, err)
	}
	a.c.recordAcceptance(a.asked)
	return client, nil
}

func (a *attempt) shakeHands(ctx context.Context) (*ssh.Client, error) {
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

var errOtherKey = errors.New("the host key is not the pinned one")

func (a *attempt) checkKey(_ string, _ net.Addr, key ssh.PublicKey) error {
	a.shown = &HostKey{key.Type(), ssh.FingerprintSHA256(key)}
	if a.trusted = slices.Contains(a.c.pins, a.shown.Fingerprint); !a.trusted {
		return errOtherKey
	}
	return nil
}

// authMethods are the ways to log in: keys first, since they cost no tries.
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
		closeAll = func() { _ = conn.Close() } // it was only asked
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
			WithHint("put it into an agent: ssh-add %s; and leave --ssh-key out", fault.Quote(path))
	case err != nil:
		return nil, fault.New(fault.Invalid, "SSH key %s: %w", path, err)
	}
	return key, nil
}

// answerPrompts gives the password to a question that does not show what is typed. Other questions
// (a code, a new password) are not ours to answer.
func (a *attempt) answerPrompts(ctx context.Context) ssh.KeyboardInteractiveChallenge {
	return func(_, _ string, questions []string, echos []bool) ([]string, error) {
		switch {
		case len(questions) == 0:
			return nil, nil
		case len(questions) > 1 || echos[0]:
			a.failed = fault.New(fault.Denied, "the host asks %q", questions).WithHint("log in with a key: --ssh-key FILE, or an agent")
			return nil, a.failed
		}
		text, err := a.passwordOnce(ctx)()
		return []string{text}, err
	}
}

var errRefused = errors.New("the password was refused")

// passwordOnce gives the password once: a second question for it is a refusal, in whichever
// way it is asked.
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

// readPassword gets the password, from somebody who may be slow to type it, once it may be sent.
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

// loginError says what a failed handshake means. The library has no error for a refused login:
// it is one if the key was right and the connection held.
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

// lostError is a login that ended without a word of the host. Where others decide who tries again,
// it is for them to know that it was the last which is tried for that.
func (a *attempt) lostError(err error) error {
	if a.pass != nil {
		if last := a.c.mayTry(); last != nil {
			a.c.locked(func() { a.c.unanswered = 0 })
			return last
		}
	}
	return fault.Wrap(fault.Transient, err)
}

// refusedError is a login that will not be tried again.
func (a *attempt) refusedError(err error) error {
	if a.asked {
		if a.c.cfg.Judged != nil {
			a.c.cfg.Judged(err)
		}
		err = fault.New(fault.Denied, "user %s: %w: %w", a.c.cfg.User, errRefused, err).
			WithHint("check the password; by SSH, a host in lockdown mode takes none but its exception users; the account locks after 5 failures in 15 minutes, so this is not tried again").OfLogin()
	} else {
		err = fault.New(fault.Denied, "user %s: %w", a.c.cfg.User, err).
			WithHint("the host takes none of the keys: put one into /etc/ssh/keys-%s/authorized_keys there, or give a password", a.c.cfg.User)
	}
	a.c.locked(func() {
		if a.c.unanswered = 0; a.pass == nil {
			a.c.refused = fmt.Errorf("not tried again: %w", err)
		}
	})
	return err
}
