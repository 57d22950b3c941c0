// Package tagging reads the tags of VMs from the tagging service of a vCenter, by its
// REST API.
//
// The service has sessions that are independent of the API's, and may fail while the
// API works. Each read has a time limit. After a failure the service is not called for
// some minutes, so that an inventory does not wait for it repeatedly.
//
// The results are complete or absent for each VM: a VM whose tags could not be read has
// a warning.
package tagging

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/url"
	"sync/atomic"
	"time"

	"github.com/vmware/govmomi/vapi/rest"
	"github.com/vmware/govmomi/vim25/soap"

	"github.com/decamp/decamp/internal/fault"
)

const (
	// patience limits one read of tags. An unresponsive service must not block the
	// inventory.
	patience = time.Minute

	// restTime is the time without calls after the service failed. Otherwise each VM of
	// a fleet would wait for it.
	restTime = 5 * time.Minute

	// tries is the number of attempts for a call if the service is busy.
	tries = 3
	pause = time.Second // pause between attempts
)

// A dialect is one of the two forms of vCenter's REST API. Versions since 7.0 U2 have
// both, with shared sessions. Earlier versions have only the older one, which is
// deprecated since. govmomi uses the older one.
type dialect struct {
	session, tagging string // paths of the two services
	action           string // name of the query parameter that selects an operation
	id               string // text before an ID in a path
}

var (
	newDialect = dialect{"/api/session", "/api/cis/tagging", "action", "/"} // since 7.0 U2
	// deprecated since 7.0 U2
	oldDialect = dialect{"/com/vmware/cis/session", "/com/vmware/cis/tagging", "~action", "/id:"}
)

// Config describes the service and the login.
type Config struct {
	SDK  *url.URL // URL of the vCenter's API; REST has the same host and port
	Addr string   // host:port for messages
	User string   // user of the API session

	// Password returns the password that the API accepted. known is false before the
	// first login.
	Password func() (password string, known bool)

	// Admit, if not nil, is called before each login; pass receives the result.
	Admit func(context.Context) (pass func(error), err error)

	// Refused is called when the service refuses the login, which may count as a wrong
	// password.
	Refused func()

	Base    *http.Transport   // transport with the pinned certificate, for logins
	Through http.RoundTripper // sends other requests on the connections of Base

	KindOf func(error) fault.Kind // returns the kind of errors that are not from REST

	Log   *slog.Logger                         // log for sessions that cannot be closed
	Now   func() time.Time                     // clock
	After func(time.Duration) <-chan time.Time // timer
}

// Service is a client of the tagging service of one vCenter. It is safe for concurrent
// use.
type Service struct {
	cfg     Config        // configuration
	reading chan struct{} // contains one token: its holder may read tags and use err, retryAt and refused
	err     error         // reason for not calling the service; nil if it works
	retryAt time.Time     // end of the pause after a failure
	refused bool          // true if the service refused the login; it is then never called again
	tagNames

	renewing chan struct{}              // contains one token; the holder may log in
	session  atomic.Pointer[tagSession] // current session; nil before the first login and after Close
}

// tagSession is a session with the service, independent of the API's session.
type tagSession struct {
	*rest.Client // client with the session's ID
	dialect
}

// New returns a client for the service that cfg describes. It sends nothing.
func New(cfg Config) *Service {
	t := &Service{cfg: cfg, reading: make(chan struct{}, 1), renewing: make(chan struct{}, 1), tagNames: newTagNames()}
	t.reading <- struct{}{}
	t.renewing <- struct{}{}
	return t
}

// withService calls do, unless the service failed a short time ago; it then returns the
// earlier error. One call runs at a time, for at most patience.
func (t *Service) withService(outer context.Context, do func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(outer, patience)
	defer cancel()
	select {
	case <-t.reading:
	case <-ctx.Done():
		return t.toFault(ctx.Err())
	}
	defer func() { t.reading <- struct{}{} }()
	if t.err != nil && (t.refused || t.cfg.Now().Before(t.retryAt)) {
		return t.err
	}
	t.err = t.toFault(do(ctx))
	t.retryAt = t.cfg.Now().Add(restTime)
	if err := outer.Err(); err != nil {
		t.err = nil // an ended context is no failure of the service
		return err
	}
	return t.err
}

// openSession logs in with the dialect that the server supports. It does nothing if
// another call replaced the session seen, which is nil before the first login.
func (t *Service) openSession(ctx context.Context, seen *tagSession) error {
	select {
	case <-t.renewing:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { t.renewing <- struct{}{} }()
	// The session is only replaced if it is still the one that was refused.
	if t.session.Load() != seen {
		return nil // another call did it while we waited
	}
	err := t.logIn(ctx, newDialect)
	if rest.IsStatusError(err, http.StatusNotFound) {
		err = t.logIn(ctx, oldDialect)
	}
	// A refused password must not be sent again, because the account would lock.
	if rest.IsStatusError(err, http.StatusUnauthorized) {
		t.refused = true
		t.cfg.Refused()
	}
	return err
}

// logIn opens a session with the password that the API accepted. It never prompts for
// one. It uses a new connection, because a login must not be sent twice.
func (t *Service) logIn(ctx context.Context, d dialect) error {
	password, known := t.cfg.Password()
	if !known {
		return fault.New(fault.Denied, "the password is no longer available").WithHint("run the same command again")
	}
	if t.cfg.Admit != nil {
		pass, err := t.cfg.Admit(ctx)
		if err != nil {
			return err
		}
		defer pass(nil) // the API accepted the password, so a refusal here has another cause
	}
	base := t.cfg.Base.Clone()
	base.DisableKeepAlives = true
	fresh := t.newREST(base)
	req := fresh.Resource(d.session).Request(http.MethodPost)
	req.SetBasicAuth(t.cfg.User, password)
	req.Header.Set("vmware-use-header-authn", "true") // against CSRF; the older dialect wants it
	var id string
	if err := fresh.Do(ctx, req, &id); err != nil {
		return err
	}
	c := t.newREST(t.cfg.Through)
	c.SessionID(id)
	t.session.Store(&tagSession{c, d})
	return nil
}

// newREST returns a REST client with the given transport and without a cookie jar.
func (t *Service) newREST(through http.RoundTripper) *rest.Client {
	c := soap.NewClient(t.cfg.SDK, true)
	c.Client.Transport = through // pinned; soap's own transport is not used
	c.Client.Jar = nil
	c.Client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	c.UserAgent = "decamp"
	return &rest.Client{Client: c}
}

// A query is a read-only call of the service. It is about one ID, or about the objects
// in its body.
type query struct {
	of   string // path below the tagging service, such as "/tag"
	id   string // ID of one object; ignored if body is set
	body any    // list of objects; nil for a query about one ID
}

// callPatiently sends a query and decodes the response into answer. It logs in if
// necessary, at most once, and repeats the call if the service is busy.
func (t *Service) callPatiently(ctx context.Context, q query, answer any) error {
	renewed := false
	for try := 1; ; try++ {
		with := t.session.Load()
		err := t.callOnce(ctx, with, q, answer)
		ended := with == nil || rest.IsStatusError(err, http.StatusUnauthorized) // sessions end after five minutes without use
		if ended && !renewed {
			if err = t.openSession(ctx, with); err == nil {
				renewed = true
				try--
				continue
			}
		}
		if !isBusy(err) || try == tries {
			return err
		}
		select {
		case <-t.cfg.After(pause):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// callOnce sends a query once. It does nothing without a session.
func (t *Service) callOnce(ctx context.Context, with *tagSession, q query, answer any) error {
	switch {
	case with == nil:
		return nil // ask logs in
	case q.body == nil:
		return with.Do(ctx, with.Resource(with.tagging+q.of+with.id+q.id).Request(http.MethodGet), answer)
	}
	at := with.Resource(with.tagging+q.of).WithParam(with.action, "list-attached-tags-on-objects")
	return with.Do(ctx, at.Request(http.MethodPost, q.body), answer)
}

// isBusy reports whether a call may succeed later. The service rejects more than 360
// calls per second.
func isBusy(err error) bool {
	return rest.IsStatusError(err, http.StatusServiceUnavailable) || rest.IsStatusError(err, http.StatusTooManyRequests)
}

// Close logs out if a session is open. A session that remains ends by a timeout.
func (t *Service) Close(ctx context.Context) {
	with := t.session.Swap(nil)
	if with == nil {
		return
	}
	err := with.Do(ctx, with.Resource(with.dialect.session).Request(http.MethodDelete), nil)
	if err != nil && !rest.IsStatusError(err, http.StatusUnauthorized) {
		t.cfg.Log.Warn("session of the tagging service not ended, it expires", "host", t.cfg.Addr, "err", err)
	}
}

// toFault adds a fault kind and a remedy to an error of the service.
func (t *Service) toFault(err error) error {
	status := func(code int) bool { return rest.IsStatusError(err, code) }
	switch {
	case err == nil, errors.Is(err, context.Canceled):
		return err
	case errors.Is(err, context.DeadlineExceeded):
		return fault.New(fault.Transient, "the tagging service did not answer within %v", patience).WithHint(hint)
	case status(http.StatusNotFound):
		return fault.New(fault.Unsupported, "this vCenter has no tagging service for programs: %w", err).
			WithHint("if it is older than 6.5: update the vCenter to read tags; otherwise check that the service vmware-vapi-endpoint runs there: service-control --status")
	case status(http.StatusUnauthorized):
		return fault.New(fault.Denied, "the tagging service refuses the user that the API accepts: %w", err).
			WithHint("check that the user can log in to the REST API (POST /api/session), or log in as another user")
	case status(http.StatusForbidden):
		return fault.New(fault.Denied, "%w", err).
			WithHint("assign the user the role Read-only on the tags and on their categories (privilege System.Read), or log in as another user")
	case isBusy(err), status(http.StatusInternalServerError), status(http.StatusBadGateway), status(http.StatusGatewayTimeout):
		return fault.New(fault.Transient, "%w", err).WithHint(hint)
	}
	if fault.HintOf(err) != "" {
		return err
	}
	return fault.New(t.cfg.KindOf(err), "ask the tagging service: %s", fault.Line(err.Error())).WithHint(hint)
}

// hint is the remedy for most failures of the service.
const hint = "run the same command again; if the error persists, check that the service vmware-vapi-endpoint runs on the vCenter: service-control --status"
