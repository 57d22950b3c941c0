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

// login makes logins one at a time, shared by whoever waited for one.
type login struct {
	renewal chan struct{} // holds one token; taken while logging in

	mu       sync.Mutex
	attempts int   // finished attempts
	err      error // of the last one
	secret   Secret
	known    bool // secret was accepted before, or was not refused yet
	lockout  lockout
}

func newLogin() *login {
	l := &login{renewal: make(chan struct{}, 1)}
	l.renewal <- struct{}{}
	return l
}

// currentPassword returns the password, and whether it was accepted before or was not refused yet.
func (l *login) currentPassword() (secret string, known bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return string(l.secret), l.known
}

// countRefusal counts a refusal that another service of the server gave to the password.
func (l *login) countRefusal(now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lockout.addFailure(now)
}

// renewSession replaces the pass that was seen to be refused ("" before the first login) by
// that of a new session. Callers that saw the same pass refused share one login and
// its outcome.
func (s *connection) renewSession(ctx context.Context, seen string) error {
	before := s.login.attemptCount()
	select {
	case <-s.login.renewal:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { s.login.renewal <- struct{}{} }()
	if s.pass.get() != seen {
		return nil // somebody renewed it while we waited
	}
	if err := s.login.failedSince(before); err != nil {
		return err
	}
	err := s.logInOnce(ctx)
	if ctx.Err() == nil {
		s.login.recordAttempt(err)
	}
	return err
}

func (l *login) attemptCount() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.attempts
}

func (l *login) failedSince(before int) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.attempts == before {
		return nil
	}
	return l.err
}

func (l *login) recordAttempt(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.attempts++
	l.err = err
}

// logInOnce logs in if that is admitted.
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

// logIn opens a session. It goes in without a cookie, because a server refuses a login
// within a live session as if the password were wrong; and on a new connection, because
// an old one may be dead, and a login is not one to send twice.
func (s *connection) logIn(ctx context.Context) error {
	secret, err := s.readSecret(ctx)
	if err != nil {
		return err
	}
	var fresh pass
	base := s.base.Clone()
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

// readSecret returns the password, unless the account is close to its lock.
func (s *connection) readSecret(ctx context.Context) (Secret, error) {
	s.login.mu.Lock()
	var err error
	if s.cfg.Admit == nil {
		err = s.login.lockout.check(s.cfg.Now())
	}
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

func (l *login) recordAcceptance() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lockout.clear()
}

// recordRefusal counts a wrong password and forgets it.
func (l *login) recordRefusal(now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lockout.addFailure(now)
	l.secret, l.known = "", false
}

func (s *connection) reportVerdict(err error) {
	if s.cfg.Judged != nil {
		s.cfg.Judged(err)
	}
}

func (s *connection) loginError(err error) error {
	if !isInvalidLogin(err) && !isStatus(err, 401) {
		return err
	}
	s.login.recordRefusal(s.cfg.Now())
	s.reportVerdict(err)
	hint := "check user and password; " + lockoutHint
	if s.about.VCenter {
		hint = "check user and password, and that the user has its SSO domain (administrator@vsphere.local); " + lockoutHint
	}
	return fault.New(fault.Denied, "user %s: %w", s.end.user, err).WithHint("%s", hint).OfLogin()
}

// lockout counts refused passwords, so that decamp stops before the account locks:
// Security.AccountLockFailures is 5 and AccountUnlockTime 900 s by default. It knows
// this session's failures only, hence the distance.
type lockout struct{ failures []time.Time }

const (
	lockoutWindow = 900 * time.Second
	lockoutLimit  = 2
	lockoutHint   = "the account locks after 5 failures in 15 minutes, so decamp stops after 2"
)

var errLockout = errors.New("not tried again after 2 refused passwords in 15 minutes")

// check says whether one more password may be tried.
func (l *lockout) check(now time.Time) error {
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
		WithHint("wait %v or start again with the right password; %s", recent[0].Add(lockoutWindow).Sub(now).Round(time.Second), lockoutHint)
}

func (l *lockout) addFailure(now time.Time) { l.failures = append(l.failures, now) }
func (l *lockout) clear()                   { l.failures = nil }
