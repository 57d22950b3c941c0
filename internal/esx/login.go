package esx

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/types"

	"github.com/decamp/decamp/internal/fault"
)

// login serializes logins. Callers that wait for one share its result. It is safe for
// concurrent use.
type login struct {
	renewal chan struct{} // contains one token; the holder may log in

	mu       sync.Mutex // protects the fields below
	attempts int        // number of finished attempts
	err      error      // result of the last attempt
	secret   Secret     // password for the next login
	known    bool       // true if secret was accepted before, or not refused yet
	lockout  lockout    // refused passwords of the last 15 minutes
}

// newLogin returns a state without password and attempts.
func newLogin() *login {
	l := &login{renewal: make(chan struct{}, 1)}
	l.renewal <- struct{}{}
	return l
}

// currentPassword returns the password. known is true if the server accepted it before,
// or has not refused it yet.
func (l *login) currentPassword() (secret string, known bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return string(l.secret), l.known
}

// countRefusal counts a password that another service of the same server refused. mu
// must not be held.
func (l *login) countRefusal(now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lockout.addFailure(now)
}

// renewSession replaces the session cookie seen, which the server refused, by that of a
// new session. seen is "" before the first login. Concurrent callers with the same
// refused cookie share one login and its result, so that a wrong password is sent once.
func (s *connection) renewSession(ctx context.Context, seen string) error {
	// An attempt that finishes while this caller waits for the token counts as its own.
	before := s.login.attemptCount()
	select {
	case <-s.login.renewal:
	case <-ctx.Done():
		return ctx.Err()
	}
	// The token is returned on all paths, so that the next caller can log in.
	defer func() { s.login.renewal <- struct{}{} }()
	if s.pass.get() != seen {
		return nil // another call renewed it meanwhile
	}
	if err := s.login.failedSince(before); err != nil {
		return err
	}
	err := s.logInOnce(ctx)
	// A canceled attempt has no result, so waiting callers try again.
	if ctx.Err() == nil {
		s.login.recordAttempt(err)
	}
	return err
}

// attemptCount returns the number of finished attempts.
func (l *login) attemptCount() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.attempts
}

// failedSince returns the error of the last attempt if an attempt finished after the
// count was before, else nil.
func (l *login) failedSince(before int) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.attempts == before {
		return nil
	}
	return l.err
}

// recordAttempt records the result of an attempt.
func (l *login) recordAttempt(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.attempts++
	l.err = err
}

// logInOnce logs in after Config.Admit, if set, permitted it. It reports the result to
// Admit.
func (s *connection) logInOnce(ctx context.Context) error {
	if s.cfg.Admit == nil {
		return s.logIn(ctx)
	}
	pass, err := s.cfg.Admit(ctx)
	if err != nil {
		return err
	}
	err = s.logIn(ctx)
	pass(err)
	return err
}

// logIn opens a session. It sends no cookie, because a server refuses a login within a
// live session as if the password were wrong. It uses a new connection, because an idle
// one may be dead, and a login must not be sent twice.
func (s *connection) logIn(ctx context.Context) error {
	secret, err := s.readSecret(ctx)
	if err != nil {
		return err
	}
	var fresh pass
	base := s.base.Clone()
	// The connection is closed after the login.
	base.DisableKeepAlives = true
	c := s.newSOAP(&soapTransport{base: base, pass: &fresh, learn: true})
	_, err = methods.Login(ctx, c, &types.Login{
		This:     *s.vim.ServiceContent.SessionManager,
		UserName: s.end.user,
		Password: string(secret),
	})
	if err != nil {
		return s.loginError(err)
	}
	if fresh.get() == "" {
		return fault.New(fault.Internal, "the login gave no session cookie")
	}
	s.pass.set(fresh.get())
	s.login.recordAcceptance()
	s.reportVerdict(nil)
	s.folder.recordUse(s.cfg.Now())
	s.cfg.Log.Info("logged in", "host", s.end.addr, "user", s.end.user)
	return nil
}

// readSecret returns the stored password, or calls Config.Password. It fails if the
// account is close to its lockout.
func (s *connection) readSecret(ctx context.Context) (Secret, error) {
	s.login.mu.Lock()
	var err error
	if s.cfg.Admit == nil {
		err = s.login.lockout.check(s.cfg.Now())
	}
	// Config.Password may wait for the user, so mu is not held during the call.
	secret, known := s.login.secret, s.login.known
	s.login.mu.Unlock()
	if err != nil || known {
		return secret, err
	}
	if secret, err = s.cfg.Password(ctx); err != nil {
		return "", err
	}
	s.login.mu.Lock()
	defer s.login.mu.Unlock()
	s.login.secret, s.login.known = secret, true
	return secret, nil
}

// recordAcceptance forgets earlier refusals, as the server does after a successful
// login.
func (l *login) recordAcceptance() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lockout.clear()
}

// recordRefusal counts a refused password and forgets it.
func (l *login) recordRefusal(now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lockout.addFailure(now)
	l.secret, l.known = "", false
}

// reportVerdict calls Config.Judged, if set. err is nil if the server accepted the
// password.
func (s *connection) reportVerdict(err error) {
	if s.cfg.Judged != nil {
		s.cfg.Judged(err)
	}
}

// loginError converts a refused login to fault.Denied and counts it. Other errors are
// returned unchanged.
func (s *connection) loginError(err error) error {
	if !isInvalidLogin(err) && !isStatus(err, 401) {
		return err
	}
	s.login.recordRefusal(s.cfg.Now())
	s.reportVerdict(err)
	hint := "check the user and the password; " + lockoutHint
	if s.about.VCenter {
		hint = "check the user and the password, and that the user name contains its SSO domain (administrator@vsphere.local); " + lockoutHint
	}
	return fault.New(fault.Denied, "user %s: %w", s.end.user, err).WithHint("%s", hint).OfLogin()
}

// lockout counts refused passwords, so that decamp stops before the server locks the
// account. By default Security.AccountLockFailures is 5 and Security.AccountUnlockTime
// is 900 s. The count includes only this session's failures, so the limit is well below
// 5.
type lockout struct{ failures []time.Time }

const (
	lockoutWindow = 900 * time.Second // time after which the server forgets a failure
	lockoutLimit  = 2                 // number of refusals in the window after which no further password is sent
	// part of the remedy of a refused login
	lockoutHint = "the account locks after 5 failures in 15 minutes, so decamp stops after 2"
)

// errLockout is the cause of the error of lockout.check.
var errLockout = errors.New("not tried again after 2 refused passwords in 15 minutes")

// check returns fault.Denied if two passwords were refused in the last 15 minutes. It
// forgets older refusals.
func (l *lockout) check(now time.Time) error {
	// The slice keeps its memory; at most a few times are stored.
	recent := l.failures[:0]
	for _, t := range l.failures {
		if now.Sub(t) < lockoutWindow {
			recent = append(recent, t)
		}
	}
	l.failures = recent
	if len(recent) < lockoutLimit {
		return nil
	}
	return fault.New(fault.Denied, "%w", errLockout).OfLogin().
		WithHint("wait %v, or run the command again with the correct password; %s", recent[0].Add(lockoutWindow).Sub(now).Round(time.Second), lockoutHint)
}

// addFailure counts a refused password. The caller must hold login.mu.
func (l *lockout) addFailure(now time.Time) { l.failures = append(l.failures, now) }

// clear forgets all refusals. The caller must hold login.mu.
func (l *lockout) clear() { l.failures = nil }
