package esx

import (
	"context"
	"errors"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/vmware/govmomi/vapi/rest"
	"github.com/vmware/govmomi/vim25/soap"

	"github.com/decamp/decamp/internal/fault"
)

const (
	// taggingPatience is how long one reading of tags may take. A service that hangs must not hang
	// the inventory.
	taggingPatience = time.Minute

	// taggingRest is how long nothing is asked of a service that failed: each VM of a fleet would
	// wait for it.
	taggingRest = 5 * time.Minute

	// taggingTries is how often a call is made that finds the service busy, taggingPause apart.
	taggingTries = 3
	taggingPause = time.Second
)

// A dialect is one of the two forms of vCenter's REST API. Both are there since 7.0 U2, and share
// their sessions; the older one is alone before that, and deprecated since. govmomi speaks that one.
type dialect struct {
	session, tagging string // paths
	action           string // the name of the query's parameter
	id               string // before an ID in a path
}

var (
	newDialect = dialect{"/api/session", "/api/cis/tagging", "action", "/"}
	oldDialect = dialect{"/com/vmware/cis/session", "/com/vmware/cis/tagging", "~action", "/id:"}
)

// tagging is what is had of vCenter's tagging service.
type tagging struct {
	turn chan struct{} // holds one token: one reading goes on at a time, and has what follows
	err  error         // why the service is left alone
	till time.Time     // so long
	off  bool          // or as long as we are logged in: the service refuses our login
	tagNames

	renewing chan struct{} // holds one token; taken while logging in
	session  atomic.Pointer[tagSession]
}

// tagSession is a session with the service, which is another one than the API's.
type tagSession struct {
	*rest.Client // it knows the session's ID
	dialect
}

func newTagging() *tagging {
	t := &tagging{turn: make(chan struct{}, 1), renewing: make(chan struct{}, 1), tagNames: newTagNames()}
	t.turn <- struct{}{}
	t.renewing <- struct{}{}
	return t
}

// withTagging has use talk to the tagging service, unless that failed a short time ago.
func (s *Session) withTagging(outer context.Context, use func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(outer, taggingPatience)
	defer cancel()
	t := s.tagging
	select {
	case <-t.turn:
	case <-ctx.Done():
		return taggingFault(ctx.Err())
	}
	defer func() { t.turn <- struct{}{} }()
	if t.err != nil && (t.off || s.cfg.Now().Before(t.till)) {
		return t.err
	}
	t.err = taggingFault(use(ctx))
	t.till = s.cfg.Now().Add(taggingRest)
	if err := outer.Err(); err != nil {
		t.err = nil // it is not the service's
		return err
	}
	return t.err
}

// openTagging logs in, in the dialect that the server speaks, in place of a session that is not one
// any more; nil before the first.
func (s *Session) openTagging(ctx context.Context, seen *tagSession) error {
	t := s.tagging
	select {
	case <-t.renewing:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { t.renewing <- struct{}{} }()
	if t.session.Load() != seen {
		return nil // another call did it while we waited
	}
	err := s.logInTagging(ctx, newDialect)
	if rest.IsStatusError(err, http.StatusNotFound) {
		err = s.logInTagging(ctx, oldDialect)
	}
	if rest.IsStatusError(err, http.StatusUnauthorized) {
		t.off = true
		s.login.mu.Lock()
		s.login.lockout.fail(s.cfg.Now()) // it may count as a wrong password there
		s.login.mu.Unlock()
	}
	return err
}

// logInTagging opens a session with the password that the API took. It never asks for one, and goes
// by a connection of its own, as all logins do.
func (s *Session) logInTagging(ctx context.Context, d dialect) error {
	s.login.mu.Lock()
	secret, known := s.login.secret, s.login.known
	s.login.mu.Unlock()
	if !known {
		return fault.New(fault.Denied, "the password is not known any more").WithHint("run the same command again")
	}
	if s.cfg.Admit != nil {
		pass, err := s.cfg.Admit(ctx)
		if err != nil {
			return err
		}
		defer pass(nil) // the API took the password: what is refused here is not that
	}
	base := s.base.Clone()
	base.DisableKeepAlives = true
	fresh := s.newREST(base)
	req := fresh.Resource(d.session).Request(http.MethodPost)
	req.SetBasicAuth(s.end.user, string(secret))
	req.Header.Set("vmware-use-header-authn", "true") // against CSRF; the older dialect wants it
	var id string
	if err := fresh.Do(ctx, req, &id); err != nil {
		return err
	}
	c := s.newREST(redial{s.base})
	c.SessionID(id)
	s.tagging.session.Store(&tagSession{c, d})
	return nil
}

// newREST returns a client for REST, which has govmomi's words and our connections.
func (s *Session) newREST(through http.RoundTripper) *rest.Client {
	c := soap.NewClient(s.end.sdk(), true)
	c.Client.Transport = through // pinned; soap's own transport is not used
	c.Client.Jar = nil
	c.Client.CheckRedirect = noRedirect
	c.UserAgent = "decamp"
	return &rest.Client{Client: c}
}

// A query is a call of the service that changes nothing: about what has an ID, or about the many
// things in its body.
type query struct {
	of   string // "/tag"
	id   string
	body any
}

// askTagging makes a call. It logs in where it has to, and waits for a service that is busy.
func (s *Session) askTagging(ctx context.Context, q query, answer any) error {
	renewed := false
	for try := 1; ; try++ {
		with := s.tagging.session.Load()
		err := s.callTagging(ctx, with, q, answer)
		ended := with == nil || rest.IsStatusError(err, http.StatusUnauthorized) // it does after five minutes without use
		if ended && !renewed {
			if err = s.openTagging(ctx, with); err == nil {
				renewed = true
				try--
				continue
			}
		}
		if !busyTagging(err) || try == taggingTries {
			return err
		}
		select {
		case <-s.cfg.After(taggingPause):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// callTagging makes a call once.
func (s *Session) callTagging(ctx context.Context, with *tagSession, q query, answer any) error {
	switch {
	case with == nil:
		return nil // askTagging logs in
	case q.body == nil:
		return with.Do(ctx, with.Resource(with.tagging+q.of+with.id+q.id).Request(http.MethodGet), answer)
	}
	at := with.Resource(with.tagging+q.of).WithParam(with.action, "list-attached-tags-on-objects")
	return with.Do(ctx, at.Request(http.MethodPost, q.body), answer)
}

// busyTagging reports whether a call may go well a little later. The service refuses what is more
// than 360 calls a second.
func busyTagging(err error) bool {
	return rest.IsStatusError(err, http.StatusServiceUnavailable) || rest.IsStatusError(err, http.StatusTooManyRequests)
}

// closeTagging logs out, if somebody logged in. A session that is left ends by itself.
func (s *Session) closeTagging(ctx context.Context) {
	with := s.tagging.session.Swap(nil)
	if with == nil {
		return
	}
	err := with.Do(ctx, with.Resource(with.dialect.session).Request(http.MethodDelete), nil)
	if err != nil && !rest.IsStatusError(err, http.StatusUnauthorized) {
		s.cfg.Log.Warn("session with the tagging service is left to end by itself", "host", s.end.addr, "err", err)
	}
}

// taggingFault gives an error of the service its kind and remedy.
func taggingFault(err error) error {
	status := func(code int) bool { return rest.IsStatusError(err, code) }
	switch {
	case err == nil, errors.Is(err, context.Canceled):
		return err
	case errors.Is(err, context.DeadlineExceeded):
		return fault.New(fault.Transient, "the tagging service did not answer within %v", taggingPatience).WithHint(taggingHint)
	case status(http.StatusNotFound):
		return fault.New(fault.Unsupported, "this vCenter has no tagging service for programs: %w", err).
			WithHint("nothing, where it is older than 6.5; else see that the service vmware-vapi-endpoint runs there: service-control --status")
	case status(http.StatusUnauthorized):
		return fault.New(fault.Denied, "the tagging service refuses the user that the API takes: %w", err).
			WithHint("see whether the user may log in to the REST API (POST /api/session), or log in as another")
	case status(http.StatusForbidden):
		return fault.New(fault.Denied, "%w", err).
			WithHint("give the user the role Read-only on the tags and on their categories, or log in as another: the privilege is System.Read")
	case busyTagging(err), status(http.StatusInternalServerError), status(http.StatusBadGateway), status(http.StatusGatewayTimeout):
		return fault.New(fault.Transient, "%w", err).WithHint(taggingHint)
	}
	if fault.HintOf(err) != "" {
		return err
	}
	return fault.New(fault.KindOf(classify(err)), "ask the tagging service: %s", fault.Line(err.Error())).WithHint(taggingHint)
}

const taggingHint = "run the same command again; if it stays so, see that the service vmware-vapi-endpoint runs on the vCenter: service-control --status"
